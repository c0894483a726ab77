// Views of a real process: front doors and pools, explanations, elastic pools, the configuration.

import { readFileSync, writeFileSync } from "node:fs";

import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";

import { launch, login, open, rowOf } from "./chromium";
import { eventually, Rig, TOKENS } from "./rig";

let browser: Browser;
let rig: Rig;

beforeAll(async () => {
  [browser, rig] = await Promise.all([launch(), Rig.start({ backends: 4, tokens: true, elastic: true, doors: true, writable: true, interval: "1s" })]);
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

test("front doors have what they lead to and what they refused, pools their backends and their source", async () => {
  const { page, errors } = await opened("pools", "read");
  await rig.sendRaw("GET / HTTP/1.1\r\n\r\n");
  expect(await rig.request("/gone/away")).toBe(410);
  const door = rowOf(page, "Table of front doors", "door");
  await door.getByText(`http ${new URL(rig.front).host}`).waitFor();
  await door.getByText(/^request host: \d+$/).waitFor();
  await door.getByText(/^route gone → answer 410: [1-9]\d*$/).waitFor();
  const stream = rowOf(page, "Table of front doors", "stream");
  await stream.getByText(`tcp ${rig.tcp}`).waitFor();
  await stream.getByText("nothing").waitFor();
  const web = rowOf(page, "Table of pools", "web");
  expect(await web.locator("td").allTextContents()).toEqual(expect.arrayContaining(["weighted-least-connection", "exclusive", "4 of 4", "the file"]));
  await door.getByRole("link", { name: "web" }).click();
  await page.getByText("4 backends").waitFor();
  expect(errors).toEqual([]);
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

test("a connection and a name are explained, each with its command and its curl", async () => {
  const { page, errors } = await opened("why", "read");
  const answer = page.getByRole("region", { name: "Answer" });
  const asked = async (subject: string, from: string, command: string, body: unknown) => {
    await page.getByLabel("What?").fill(subject);
    await page.getByLabel("From").fill(from);
    await page.getByRole("button", { name: "Why?" }).click();
    await page.getByText(command, { exact: true }).waitFor();
    await page.getByText(`-d '${JSON.stringify(body)}' ${rig.api}/v1/why`).waitFor();
  };
  const client = "127.0.0.1:4711";
  await asked(`tcp ${client} ${rig.tcp}`, "", `equipoise why tcp ${client} ${rig.tcp}`, { flow: { protocol: "tcp", from: client, to: rig.tcp } });
  await answer.getByText("session", { exact: true }).first().waitFor();
  await answer.getByText(/web\/b[1-4]/).first().waitFor();
  await asked(`udp ${client} ${rig.tcp}`, "", `equipoise why udp ${client} ${rig.tcp}`, { flow: { protocol: "udp", from: client, to: rig.tcp } });
  await answer.getByText("no front door takes it").first().waitFor();
  await asked("name www.cluster.example", "192.0.2.7", "equipoise why name www.cluster.example --from 192.0.2.7",
    { name: { name: "www.cluster.example", from: "192.0.2.7" } });
  await answer.getByText("dns", { exact: true }).first().waitFor();
  await answer.getByText("backend web/b1 (192.0.2.11): in").first().waitFor();
  await asked("name www.cluster.example txt", "", "equipoise why name www.cluster.example txt", { name: { name: "www.cluster.example", type: "TXT" } });
  await answer.getByText(" TXT from ").first().waitFor();
  expect(await page.getByRole("alert").count()).toBe(0);
  // This process has no stream: a refusal has its reason, and its command.
  await asked("item images key=cat", "", "equipoise why item images key=cat", { item: { stream: "images", key: "cat" } });
  await page.getByRole("alert").waitFor();
  expect(errors).toEqual([]);
});

test("an elastic pool is pinned to a size, and its history has the reason", async () => {
  const { page, errors } = await opened("elastic", "operate");
  const pool = page.getByRole("region", { name: "Pool app" });
  const dialog = page.getByRole("dialog");
  await pool.getByRole("button", { name: "Pin size" }).click();
  await dialog.getByLabel("Backends").fill("3");
  await dialog.getByText("equipoise plan pin app 3").waitFor();
  await dialog.getByText(`-d '{"mode":"pinned","count":3}' ${rig.api}/v1/plan/pools/app`).waitFor();
  await dialog.getByRole("button", { name: "Pin size" }).click();
  await pool.getByText("Mode pinned, pinned at 3").waitFor();
  await pool.getByText("app: 3 of 1 to 3 backends").waitFor();
  const scaled = page.locator(".events li", { hasText: "plan.scaled" }).filter({ hasText: "pinned at 3" }).first();
  await scaled.getByText("app", { exact: true }).waitFor();
  // The plan's events alone.
  expect(await page.locator(".events li", { hasNotText: "plan." }).count()).toBe(0);
  await pool.getByRole("button", { name: "Resume" }).click();
  await dialog.getByText("equipoise plan resume app").waitFor();
  await dialog.getByRole("button", { name: "Resume" }).click();
  await pool.getByText("Mode auto").waitFor();
  expect((await rig.read("/v1/plan/pools/app")).scaling.pinned ?? null).toBeNull();
  expect(errors).toEqual([]);
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
  await page.getByText(`cat ${rig.file}`, { exact: true }).waitFor();
  const curl = 'curl -H "Authorization: Bearer $(cat TOKEN_FILE)"';
  await page.getByText(`${curl} ${rig.api}/v1/config/text`, { exact: true }).waitFor();
  const changes = page.getByRole("region", { name: "Changes to the file" });
  await changes.getByText('+ scheduler = "least-connections"').waitFor();
  // The check of the changed text, as a command and with curl.
  await page.getByText("| equipoise check -").waitFor();
  await page.getByText(`${rig.api}/v1/config/check`).filter({ hasText: 'scheduler = \\"least-connections\\"' }).waitFor();
  await page.getByRole("button", { name: "Discard the changes" }).click();
  await changes.waitFor({ state: "detached" });
  expect(await text.inputValue()).toBe(before);
  await check.getByText("Valid", { exact: false }).filter({ hasNotText: "Not" }).waitFor();
  await page.getByText(`equipoise check ${rig.file}`, { exact: true }).waitFor();
  await page.getByText(`-d '{}' ${rig.api}/v1/config/check`).waitFor();
  const { generation } = await rig.read("/v1/config");
  await page.getByRole("button", { name: "Reload" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Reload" }).click();
  await eventually(async () => (await rig.read("/v1/config")).generation === generation + 1);
  expect(errors).toEqual([]);
});

test("a changed configuration is applied, and rolled back", async () => {
  const { page, errors } = await opened("configuration", "admin");
  const text = page.getByLabel("Text of the configuration");
  const dialog = page.getByRole("dialog");
  await page.getByRole("status", { name: "Check" }).getByText("Valid").waitFor();
  const before = await text.inputValue();
  const after = before.replace("concurrency = 50", "concurrency = 40");
  await text.fill(after);
  // Another person's change of the file after the page has read it.
  writeFileSync(rig.file, `${before}# newer`);
  const apply = page.getByRole("button", { name: "Apply" });
  await apply.click();
  await dialog.getByText("| equipoise reload --with -").waitFor();
  await dialog.getByText("-H 'If-Match: ").waitFor();
  await dialog.getByRole("button", { name: "Apply" }).click();
  await dialog.getByRole("alert").waitFor();
  expect(readFileSync(rig.file, "utf8")).toBe(`${before}# newer`);
  await dialog.getByRole("button", { name: "Cancel" }).click();
  // The edited text stays, and is compared with the newer file.
  await page.getByRole("button", { name: "Read the file again" }).click();
  const changes = page.getByRole("region", { name: "Changes to the file" });
  await changes.getByText("- # newer").waitFor();
  await changes.getByText("+ concurrency = 40").waitFor();
  await apply.click();
  await dialog.getByRole("button", { name: "Apply" }).click();
  await page.getByText(`Done: apply ${rig.file}.`).waitFor();
  expect(readFileSync(rig.file, "utf8")).toBe(after);
  await page.getByRole("button", { name: "Show the previous text" }).click();
  await changes.getByText("+ concurrency = 50").waitFor();
  await page.getByRole("button", { name: "Discard the changes" }).click();

  await page.getByRole("button", { name: "Roll back" }).click();
  await dialog.getByText("equipoise reload --back", { exact: true }).waitFor();
  await dialog.getByRole("button", { name: "Roll back" }).click();
  await page.getByText(`Done: roll back ${rig.file}.`).waitFor();
  expect(readFileSync(rig.file, "utf8")).toBe(`${before}# newer`);
  await page.getByText("- concurrency = 40").waitFor({ state: "detached" });
  expect(await text.inputValue()).toBe(`${before}# newer`);
  writeFileSync(rig.file, before);
  expect(errors).toEqual([]);
});

test("a process that may not write its file says how the text gets there", async () => {
  const other = await Rig.start({ backends: 1, tokens: true });
  try {
    const { page, errors } = await open(browser, `${other.api}/#configuration`);
    await login(page, TOKENS.admin);
    const text = page.getByLabel("Text of the configuration");
    await page.getByRole("status", { name: "Check" }).getByText("Valid").waitFor();
    await text.fill((await text.inputValue()).replace("concurrency = 50", "concurrency = 40"));
    await page.getByText("write-config = true").waitFor();
    await page.getByText(`cp ${other.file} ${other.file}.previous && cat > ${other.file}`).waitFor();
    expect(await page.getByRole("button", { name: "Apply" }).count()).toBe(0);
    expect(errors).toEqual([]);
  } finally {
    await other.stop();
  }
});
