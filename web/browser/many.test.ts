// 500 backends, and 50 nodes: an interaction takes less than 100 ms of the page's thread.

import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { launch, median, open } from "./chromium";
import { NODES } from "./nodes";
import { Rig } from "./rig";

const BACKENDS = 500;
const LONGEST_MS = 100;

let browser: Browser;
let rig: Rig;

beforeAll(async () => {
  [browser, rig] = await Promise.all([launch(), Rig.start({ backends: BACKENDS })]);
  rig.load(6);
});

afterAll(async () => {
  await browser?.close();
  await rig?.stop();
});

test("500 backends are found, ordered and changed without a wait", async () => {
  const { page, errors } = await open(browser, `${rig.api}/#backends`, { bypassCSP: true });
  await page.getByText(`${BACKENDS} backends`).waitFor();
  const find = (text: string) =>
    `const e = document.querySelector('input[type=search]'); e.value = '${text}'; e.dispatchEvent(new Event('input', { bubbles: true }))`;
  const order = (text: string) =>
    `const e = document.querySelectorAll('select')[1]; e.value = '${text}'; e.dispatchEvent(new Event('change', { bubbles: true }))`;
  const ask = "document.querySelector('dialog').close(); document.querySelectorAll('tbody button')[9].click()";
  const measured = async () => ({
    find: await median(page, ["b4", "b49", "b499", "b49", "b4", "b", ""].map(find)),
    order: await median(page, ["rate", "name", "share", "errors", "trouble"].map(order)),
    ask: await median(page, Array(5).fill(ask)),
  });
  const figures = await measured();
  await page.goto(`${rig.api}/#backends?rows=all`);
  await page.waitForFunction((rows) => document.querySelectorAll("tbody tr").length === rows, BACKENDS);
  console.log("milliseconds of the thread with", BACKENDS, "backends:", figures, "all of them shown:", await measured());
  for (const [name, time] of Object.entries(figures)) expect(time, name).toBeLessThan(LONGEST_MS);
  expect(errors).toEqual([]);
});

test("50 nodes are opened and changed without a wait", async () => {
  const { page, errors } = await open(browser, rig.api, { bypassCSP: true });
  await page.route(/\/v1\/nodes$/, (route) => route.fulfill({ json: NODES }));
  await page.goto(`${rig.api}/#nodes`);
  await page.getByRole("button", { name: "n50", exact: true }).waitFor();
  const press = (selector: string) => `document.querySelector('dialog').close(); document.querySelectorAll('${selector}')[9].click()`;
  const figures = {
    open: await median(page, Array(6).fill(press("tbody button.plain"))),
    ask: await median(page, Array(5).fill(press("tbody td button"))),
  };
  console.log("milliseconds of the thread with", NODES.nodes.length, "nodes:", figures);
  for (const [name, time] of Object.entries(figures)) expect(time, name).toBeLessThan(LONGEST_MS);
  expect(errors).toEqual([]);
  await page.unrouteAll({ behavior: "ignoreErrors" });
});

test("without tokens the page shows everything and says that it is read-only", async () => {
  const { page } = await open(browser, rig.api);
  await page.getByText("anonymous · read").waitFor();
  await page.getByText("Read only: log in").waitFor();
});
