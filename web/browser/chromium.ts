// Debian's Chromium, and what every page has to keep to.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";

import { chromium, type Browser, type BrowserContextOptions, type Locator, type Page } from "playwright-core";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export async function launch(): Promise<Browser> {
  const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
  // Tests run as root in containers, where Chromium's own sandbox does not start.
  return chromium.launch({ executablePath, args: ["--no-sandbox"] });
}

/** A page, and the errors that it reported: violations of the CSP, exceptions, failed requests of its files. */
export async function open(browser: Browser, url: string, options: BrowserContextOptions = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const page = await context.newPage();
  const errors: string[] = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("console", (message) => {
    // The browser itself reports each refused or failed request.
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource")) errors.push(message.text());
  });
  // To try a change of the page without a new build of the program: npm run build, then BUILT_PAGE=1.
  if (process.env.BUILT_PAGE) {
    await page.route(/\/dashboard\.(js|css)$/, (route) => {
      const path = resolve(import.meta.dirname, "../dist", new URL(route.request().url()).pathname.slice(1));
      return route.fulfill({ path });
    });
  }
  await page.goto(url);
  return { page, errors };
}

export async function login(page: Page, token: string): Promise<void> {
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("button", { name: "Log out" }).waitFor();
}

/** Rules of axe that the page breaks, each with an element. */
export async function axe(page: Page): Promise<string[]> {
  // By the debugger: the page's CSP forbids a script element.
  await page.evaluate(AXE);
  return page.evaluate(async () => {
    const found = await (window as any).axe.run(document);
    return found.violations.map((one: any) => `${one.id}: ${one.help}: ${one.nodes[0].html} ${one.nodes[0].failureSummary}`);
  });
}

/** The row of a table with this name in its header. */
export function rowOf(page: Page, table: string, name: string): Locator {
  const header = page.getByRole("rowheader", { name: new RegExp(`^${name}\\b`) });
  return page.getByRole("region", { name: table }).getByRole("row").filter({ has: header });
}

/** Presses Tab until the keyboard's focus is on the element. */
export async function tabTo(page: Page, element: Locator): Promise<void> {
  for (let presses = 0; presses < 200; presses += 1) {
    if (await element.evaluate((one) => one === document.activeElement)) return;
    await page.keyboard.press("Tab");
  }
  throw new Error(`200 times Tab do not reach ${element}`);
}

export interface Interaction {
  /** A script that begins it. */
  run: string;
  /** An expression that holds when its result is in the page, and does not hold before. */
  isShown: string;
  /** A script that prepares the page; it is not measured. */
  first?: string;
}

export interface Medians {
  /**
   * CPU time of the page's thread until the frame with the result, in milliseconds. Other programs
   * of the machine do not count.
   */
  thread: number;
  /** Time from an interaction to the frame with its result, in milliseconds. */
  elapsed: number;
}

/** Medians of what interactions take. */
export async function medians(page: Page, interactions: Interaction[]): Promise<Medians> {
  const devtools = await page.context().newCDPSession(page);
  await devtools.send("Performance.enable", { timeDomain: "threadTicks" });
  const busy = async () => {
    const { metrics } = await devtools.send("Performance.getMetrics");
    return 1000 * metrics.find((one) => one.name === "TaskDuration")!.value;
  };
  const [thread, elapsed]: [number[], number[]] = [[], []];
  for (const interaction of interactions) {
    await page.evaluate(async (first) => {
      new Function(first)();
      await new Promise((next) => requestAnimationFrame(() => setTimeout(next)));
    }, interaction.first ?? "");
    const before = await busy();
    elapsed.push(await page.evaluate(async ({ run, isShown }) => {
      const shown = new Function(`return ${isShown}`);
      if (shown()) throw new Error(`shown before the interaction: ${isShown}`);
      const began = performance.now();
      new Function(run)();
      const end = began + 30_000;
      do {
        await new Promise((next) => requestAnimationFrame(() => setTimeout(next)));
        if (performance.now() > end) throw new Error(`not shown within 30 s: ${isShown}`);
      } while (!shown());
      return performance.now() - began;
    }, interaction));
    thread.push((await busy()) - before);
  }
  return { thread: middle(thread), elapsed: middle(elapsed) };
}

function middle(times: number[]): number {
  return times.sort((a, b) => a - b)[times.length >> 1]!;
}
