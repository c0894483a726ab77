// The page against a real process under load.

import { writeFileSync } from "node:fs";

import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";

import { axe, launch, login, open } from "./chromium";
import { eventually, Rig, TOKENS } from "./rig";

const VIEWS = ["overview", "backends", "pools", "nodes", "elastic", "events", "why", "configuration"];

let browser: Browser;
let rig: Rig;

beforeAll(async () => {
  [browser, rig] = await Promise.all([launch(), Rig.start({ backends: 4, tokens: true, elastic: true })]);
  rig.load(6);
});

afterAll(async () => {
  await browser?.close();
  await rig?.stop();
});

afterEach(async () => {
  for (const context of browser.contexts()) await context.close();
});

async function opened(view: string, role: keyof typeof TOKENS, options = {}): Promise<{ page: Page; errors: string[] }> {
  const found = await open(browser, `${rig.api}/#${view}`, options);
  await login(found.page, TOKENS[role]);
  await found.page.getByRole("heading", { level: 1 }).waitFor();
  return found;
}

test("the overview has a headline, the levels with their rates, and events", async () => {
  const { page, errors } = await opened("overview", "read");
  await page.getByText("All well").waitFor();
  await eventually(async () => {
    const rate = await page.locator(".chain li", { hasText: "session" }).locator(".rate strong").textContent();
    return Number(rate) > 10;
  });
  await page.getByText("process.ready").waitFor();
  expect(errors).toEqual([]);
  if (process.env.SCREENSHOT) {
    // Charts need some readings.
    await page.waitForTimeout(40_000);
    writeFileSync(process.env.SCREENSHOT, await page.screenshot());
  }
});

test("without a token nothing is shown, and a wrong one is refused with the reason", async () => {
  const { page } = await open(browser, rig.api);
  await page.getByText("Log in with one of them").waitFor();
  expect(await page.getByRole("navigation").count()).toBe(0);
  await page.getByLabel("Token").fill("wrong-0123456789abcdef0123456789abcdef");
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByText("this token is not known").waitFor();
  await login(page, TOKENS.operate);
  await page.getByText("token:operate · operate").waitFor();
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByText("Log in with one of them").waitFor();
});

test("a reader sees the command of each change, and cannot make it", async () => {
  const { page } = await opened("backends", "read");
  await page.getByRole("button", { name: "Drain web/b1" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("equipoise drain web/b1").waitFor();
  await dialog.getByText(`curl -X POST -H "Authorization: Bearer $(cat TOKEN_FILE)" ${rig.api}/v1/pools/web/backends/b1/drain`).waitFor();
  expect(await dialog.getByRole("button", { name: "Drain" }).isDisabled()).toBe(true);
});

test("a drain counts down to 0, and is undone", async () => {
  const { page, errors } = await opened("backends?find=b2", "operate");
  // Eight requests: b2 has some of them, also beside others in flight.
  for (let tries = 0; tries < 8; tries += 1) void rig.request("/hold");
  await eventually(async () => rig.held.length === 8);
  await page.getByRole("button", { name: "Drain web/b2" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Drain" }).click();
  const row = page.getByRole("row", { name: "web/b2" });
  await row.getByText(/^\d+ units? of work left$/).waitFor();
  expect((await rig.read("/v1/pools/web/backends/b2")).backend.admin).toBe("drain");
  rig.release();
  await row.getByText("0: safe to stop").waitFor();
  await row.getByRole("button", { name: "Undo drain of web/b2" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Undo drain" }).click();
  await row.getByText("up", { exact: true }).waitFor();
  expect((await rig.read("/v1/pools/web/backends/b2")).backend.admin).toBe("up");
  expect(errors).toEqual([]);
});

test("a weight is set with its command, and undone from the message", async () => {
  const { page } = await opened("backends", "operate");
  await page.getByRole("button", { name: "Weight of web/b3" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Weight").fill("7");
  await dialog.getByText("equipoise weight web/b3 7").waitFor();
  await dialog.getByRole("button", { name: "Set weight" }).click();
  await page.getByText("Done: set weight web/b3").waitFor();
  expect((await rig.read("/v1/pools/web/backends/b3")).backend.weight).toBe(7);
  await page.getByRole("button", { name: "Undo", exact: true }).click();
  await dialog.getByText("equipoise weight web/b3 1").waitFor();
  await dialog.getByRole("button", { name: "Set weight" }).click();
  await eventually(async () => (await rig.read("/v1/pools/web/backends/b3")).backend.weight === 1);
});

test("why explains where a request goes, and its question is in the URL", async () => {
  const { page } = await opened("why", "read");
  await page.getByLabel("What?").fill(`${rig.front}/cart`);
  await page.getByRole("button", { name: "Why?" }).click();
  await page.getByRole("region", { name: "Answer" }).getByText("session").first().waitFor();
  expect(decodeURIComponent(page.url())).toContain(`q=${rig.front}/cart`);
  await page.getByLabel("What?").fill("nonsense");
  await page.getByRole("button", { name: "Why?" }).click();
  await page.getByText("is no subject").waitFor();
});

test("an elastic pool is paused, and goes on", async () => {
  const { page, errors } = await opened("elastic", "operate");
  const pool = page.getByRole("region", { name: "Pool app" });
  await pool.getByRole("button", { name: "Pause" }).click();
  await page.getByRole("dialog").getByText("equipoise plan pause app").waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Pause" }).click();
  await pool.getByText("Mode paused").waitFor();
  await pool.getByRole("button", { name: "Resume" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Resume" }).click();
  await pool.getByText("Mode auto").waitFor();
  expect(errors).toEqual([]);
});

test("a configuration is checked and compared while it is typed, and not used", async () => {
  const { page, errors } = await opened("configuration", "admin");
  const text = page.getByLabel("Text of the configuration");
  const check = page.getByRole("region", { name: "Check" }).or(page.getByLabel("Check", { exact: true }));
  await check.getByText("Valid").waitFor();
  const before = await text.inputValue();
  await text.fill(before.replace('weighted-least-connection"', 'least-connections"'));
  await check.getByText("Not valid").waitFor();
  await check.getByText("pool.web.scheduler").waitFor();
  const changes = page.getByRole("region", { name: "Changes to the file" });
  await changes.getByText('+ scheduler = "least-connections"').waitFor();
  await text.fill(before);
  await changes.waitFor({ state: "detached" });
  expect((await rig.read("/v1/config")).generation).toBe(1);
  await page.getByRole("button", { name: "Reload" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Reload" }).click();
  await eventually(async () => (await rig.read("/v1/config")).generation === 2);
  expect(errors).toEqual([]);
});

test("filters are in the URL, and a URL shows the same", async () => {
  const { page } = await opened("backends", "read");
  await page.getByLabel("Find").fill("b4");
  await page.getByLabel("Order").selectOption("rate");
  expect(page.url()).toContain("#backends?find=b4&order=rate");
  const again = await opened("backends?find=b4&order=rate", "read");
  await again.page.getByText("1 backends").waitFor();
  expect(await again.page.locator("tbody tr").count()).toBe(1);
});

test("a backend is drained with the keyboard alone", async () => {
  const { page } = await opened("backends", "read");
  const button = page.getByRole("button", { name: "Drain web/b4" });
  await button.focus();
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "hidden" });
  expect(await button.evaluate((element) => element === document.activeElement)).toBe(true);
});

test("a restart of the process is shown, and the page goes on by itself", async () => {
  const { page } = await opened("events", "read");
  await page.getByText(`pid ${rig.pid}`).waitFor();
  await rig.end();
  await page.getByText("No answer from equipoise").waitFor();
  await page.getByText("not connected, trying again").waitFor();
  await rig.run();
  await page.getByText(`pid ${rig.pid}`).waitFor();
  await page.getByText("No answer from equipoise").waitFor({ state: "hidden" });
  await page.getByText("live ·").waitFor();
  await page.getByText("events.lost").waitFor();
});

for (const colorScheme of ["light", "dark"] as const) {
  test(`axe finds nothing, on wide and narrow screens, in ${colorScheme}`, async () => {
    for (const viewport of [{ width: 1280, height: 800 }, { width: 375, height: 700 }]) {
      const { page, errors } = await opened("overview", "read", { colorScheme, viewport });
      for (const view of VIEWS) {
        await page.goto(`${rig.api}/#${view}`);
        await page.locator(`nav a[href="#${view}"][aria-current]`).waitFor();
        expect(await axe(page), view).toEqual([]);
        const width = await page.evaluate(() => document.documentElement.scrollWidth);
        expect(width, `${view} scrolls sideways`).toBeLessThanOrEqual(viewport.width);
      }
      await page.goto(`${rig.api}/#backends`);
      await page.getByRole("button", { name: "Drain web/b1" }).click();
      expect(await axe(page), "dialog").toEqual([]);
      expect(errors).toEqual([]);
      await page.context().close();
    }
  });
}
