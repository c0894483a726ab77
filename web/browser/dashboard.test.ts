// The page against a real process under load.

import { writeFileSync } from "node:fs";

import type { Browser, Locator, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";

import { axe, launch, login, open, rowOf, tabTo } from "./chromium";
import { eventually, Rig, TOKENS } from "./rig";

const VIEWS = ["overview", "backends", "pools", "nodes", "elastic", "events", "why", "configuration"];

let browser: Browser;
let rig: Rig;

beforeAll(async () => {
  [browser, rig] = await Promise.all([launch(), Rig.start({ backends: 4, tokens: true, elastic: true, interval: "1s" })]);
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

test("a disabled backend has its reason, and is enabled", async () => {
  const { page, errors } = await opened("backends?find=b1", "operate");
  await rig.change("POST", "/v1/pools/web/backends/b1/disable");
  const row = page.getByRole("row", { name: "web/b1" });
  await row.getByText("an operator disabled it").waitFor();
  await row.getByRole("button", { name: "Enable web/b1" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("equipoise enable web/b1").waitFor();
  await dialog.getByText(`${rig.api}/v1/pools/web/backends/b1/enable`).waitFor();
  await dialog.getByRole("button", { name: "Enable" }).click();
  await row.getByText("up", { exact: true }).waitFor();
  expect((await rig.read("/v1/pools/web/backends/b1")).backend.admin).toBe("up");
  expect(errors).toEqual([]);
});

test("a backend under load has its region beside its limit, and lines of its response times", async () => {
  const { page, errors } = await opened("backends?pool=web", "read");
  const rows = page.locator("tbody tr");
  await eventually(async () => (await rows.count()) === 4);
  const load = rows.first().locator("td").nth(1);
  await load.getByText("under-used").waitFor();
  expect(await load.textContent()).toMatch(/^\s*\d+\s*\/ 50\s*under-used\s*$/);
  // 26 of 50 for each backend, which have as many by the scheduler.
  const requests = Array.from({ length: 4 * 26 }, () => rig.request("/hold"));
  await eventually(async () => rig.held.length === requests.length);
  await load.getByText("best").waitFor();
  expect(Number(/^\s*(\d+)/.exec((await load.textContent())!)![1])).toBeGreaterThanOrEqual(25);
  rig.release();
  await Promise.all(requests);
  await load.getByText("under-used").waitFor();

  // The lines of p50 and p99: at least two points each, and figures that are not in the wrong order.
  const times = rows.first().locator("td.times");
  const points = () => times.locator("svg.sparkline polyline").evaluateAll((lines) => lines.map((one) => one.getAttribute("points")!.split(" ").length));
  await eventually(async () => (await points()).length === 2 && (await points()).every((count) => count >= 2));
  const [p50, p99] = (await times.locator(".time").allTextContents()).map(seconds);
  expect(p50).toBeGreaterThan(0);
  expect(p99).toBeGreaterThanOrEqual(p50!);

  // The same for the front door, in its view.
  await page.goto(`${rig.api}/#pools`);
  const door = rowOf(page, "Table of front doors", "door");
  const [doorP50, doorP99] = (await door.locator("td.figure").allTextContents()).slice(2).map(seconds);
  expect(doorP50).toBeGreaterThan(0);
  expect(doorP99).toBeGreaterThanOrEqual(doorP50!);
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

test("changes, reloads and checks that fail leave marks under every chart", async () => {
  const { page, errors } = await opened("overview", "read");
  const charts = page.locator("figure.chart");
  // A chart marks what happens after its first reading.
  for (const label of ["arrived", "in flight"]) await charts.getByText(new RegExp(`${label}: [\\d.]+ now`)).waitFor({ state: "attached" });
  expect(await charts.count()).toBe(2);
  const marked = async (text: string) => {
    for (const chart of await charts.all()) await chart.locator(".marks").getByText(text).first().waitFor();
  };
  await rig.change("POST", "/v1/pools/web/backends/b4/drain");
  await marked("POST /v1/pools/web/backends/b4/drain");
  await rig.change("POST", "/v1/pools/web/backends/b4/undrain");
  await rig.change("POST", "/v1/reload");
  await marked("POST /v1/reload");
  rig.sick.add(2);
  try {
    await marked("web/b3 ");
  } finally {
    rig.sick.clear();
  }
  await eventually(async () => (await rig.read("/v1/pools/web/backends/b3")).backend.state === "up");
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

test("a backend is drained and undrained with the keyboard alone", async () => {
  const { page, errors } = await open(browser, `${rig.api}/#backends?find=b4`);
  const { keyboard } = page;
  await page.getByText("Log in with one of them").waitFor();
  await tabTo(page, page.getByLabel("Token"));
  await keyboard.type(TOKENS.operate);
  await keyboard.press("Enter");

  const drain = page.getByRole("button", { name: "Drain web/b4", exact: true });
  const undo = page.getByRole("button", { name: "Undo drain of web/b4" });
  const dialog = page.getByRole("dialog");
  const isFocused = (element: Locator) => element.evaluate((one) => one === document.activeElement);
  await drain.waitFor();
  await tabTo(page, drain);
  await keyboard.press("Enter");
  await dialog.waitFor();
  await keyboard.press("Escape");
  await dialog.waitFor({ state: "hidden" });
  expect(await isFocused(drain)).toBe(true);
  expect((await rig.read("/v1/pools/web/backends/b4")).backend.admin).toBe("up");

  await keyboard.press("Enter");
  await tabTo(page, dialog.getByRole("button", { name: "Drain", exact: true }));
  await keyboard.press("Enter");
  const row = page.getByRole("row", { name: "web/b4" });
  await row.getByText("0: safe to stop").waitFor();
  expect((await rig.read("/v1/pools/web/backends/b4")).backend.admin).toBe("drain");

  // The focus is where it was; the button now takes the change back.
  expect(await isFocused(undo)).toBe(true);
  await keyboard.press("Enter");
  await tabTo(page, dialog.getByRole("button", { name: "Undo drain", exact: true }));
  await keyboard.press("Enter");
  await row.getByText("up", { exact: true }).waitFor();
  expect((await rig.read("/v1/pools/web/backends/b4")).backend.admin).toBe("up");
  expect(await isFocused(drain)).toBe(true);
  expect(errors).toEqual([]);
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

/** The seconds of a duration as the page writes it. */
function seconds(text: string): number {
  const [, value, unit] = /^\s*([\d.]+) (µs|ms|s)\s*$/.exec(text) ?? [];
  return Number(value) * { "µs": 1e-6, ms: 1e-3, s: 1 }[unit as "s"];
}
