// Debian's Chromium, and what every page has to keep to.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";

import { chromium, type Browser, type BrowserContextOptions, type Page } from "playwright-core";

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

/** The median CPU time of the page's thread for an interaction and the frame after it, in milliseconds. */
export async function median(page: Page, interactions: string[]): Promise<number> {
  const devtools = await page.context().newCDPSession(page);
  // CPU time of the thread: other programs of the machine do not count.
  await devtools.send("Performance.enable", { timeDomain: "threadTicks" });
  const busy = async () => {
    const { metrics } = await devtools.send("Performance.getMetrics");
    return 1000 * metrics.find((one) => one.name === "TaskDuration")!.value;
  };
  const times: number[] = [];
  for (const interaction of interactions) {
    const before = await busy();
    await page.evaluate(async (script) => {
      new Function(script)();
      await new Promise((next) => requestAnimationFrame(() => setTimeout(next)));
    }, interaction);
    times.push((await busy()) - before);
  }
  return times.sort((a, b) => a - b)[times.length >> 1]!;
}
