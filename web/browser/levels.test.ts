// States of slices, flows and 50 nodes that are hard to bring about, as documents in the API's form.
// `members.test.ts` has those of real processes.

import type { Browser, Locator, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";

import type { Event, FlowAnswer, SlicePlan, Status, Streams } from "../src/api/types";
import { axe, launch, open, rowOf } from "./chromium";
import { history, NODES } from "./nodes";
import { eventually, Rig } from "./rig";

const WORKER = {
  state: "active" as const, state_seconds: 60, reason: null, drained: false, problem: null, host: "rack-3", slices: 4, load: 0.4,
  items_per_second: 12, queued: 0, in_hand: 0, queue_age_seconds: 0, stalled_seconds: 0, items_total: 9, drops: {},
};

const SLICES: Streams = {
  streams: [{
    name: "images", slices_total: 8, domain: 0, leading: true, imbalance: 0.2, hot: [], unread: [],
    workers: [{ ...WORKER, name: "w1" }, { ...WORKER, name: "w2", state: "draining", reason: "an operator drained it", drained: true }],
    slices: Array.from({ length: 8 }, (_, slice) => ({
      slice, owner: slice === 7 ? null : `w${1 + (slice % 2)}`, epoch: 1, load: slice / 10, queued: 0, queue_age_seconds: 0,
      ...(slice === 3 ? { pinned: "w2" } : {}),
    })),
    handovers: [{ id: 4, giver: "w2", taker: "w1", slices: 2, state: "moving", waits_for: "w2 to finish its items", seconds: 0.4 }],
    connections_strange_total: 0, handovers_moved_total: 3, handovers_called_off_total: 1, handover_seconds_p50: 0.02,
    handover_seconds_max: 0.3,
  }],
};

const SLICE_PLAN: SlicePlan = {
  stream: "images", moves: [{ slices: [1, 3], giver: "w2", taker: "w1", load: 0.4, pinned: false }], reason: "balanced", explanation: "no worker is far enough over the mean", workers: [], hot: [], imbalance: 0.2,
};

const VIP = "192.0.2.10:443/tcp";

const PACKET: Status["packet"] = {
  interfaces: [{ name: "eth0", role: "clients", state: "native" }], flows: 1200, flows_max: 65536, flows_not_learnt_total: 0,
  flows_moved_total: 0, pins: 0, pins_max: 16384, pins_full_total: 0, pending: 0, publications_total: 3, registry_bytes: 0,
  kernel_bytes: 0, drops: {}, notes: {},
  vips: [{
    vip: VIP, pool: "web", forward: "ipip", scheduler: "maglev", key: "five-tuple", phase: "steady", flows: 1200,
    packets_total: 90_000, bytes_total: 0, decisions: {}, drops: { too_big: 4 }, notes: {},
    backends: [{
      name: "b1", address: "10.0.0.1", state: "up", listed: true, reachable: false, flows: 1200, flows_closing: 1, packets_total: 9,
      bytes_total: 0, drops_total: 0,
    }],
  }],
  heavy: {
    seconds: 1, sample_every: 64, backends: [],
    flows: [
      { vip: VIP, flow: "198.51.100.7:40000", backend: "b1", bytes_per_second: 12_400_000, share: 0.613, standard_error: 0.02 },
      { vip: VIP, flow: "198.51.100.8:40001", bytes_per_second: 1000.4, share: 1.02 },
      { vip: "192.0.2.11:53/udp", flow: "198.51.100.9:53", backend: "b2", bytes_per_second: 5, share: 1 },
    ],
  },
};

const FLOW: FlowAnswer = { verdict: "forwarded", backend: "b1", by: "ring", pool: "web", vip: VIP, why: "it is not known: the ring decides" };

let browser: Browser;
let rig: Rig;

beforeAll(async () => {
  [browser, rig] = await Promise.all([launch(), Rig.start({ backends: 2 })]);
});

afterEach(async () => {
  for (const context of browser.contexts()) {
    // A reading may be under way.
    for (const page of context.pages()) await page.unrouteAll({ behavior: "ignoreErrors" });
    await context.close();
  }
});

afterAll(async () => {
  await browser?.close();
  await rig?.stop();
});

/** Opens the page with canned slices, flows, nodes and a front door with TLS. */
async function opened(): Promise<{ page: Page; errors: string[] }> {
  const { page, errors } = await open(browser, "about:blank");
  const documents: [RegExp, unknown][] = [
    [/\/v1\/slices$/, SLICES], [/\/v1\/slices\/images\/plan$/, SLICE_PLAN], [/\/v1\/nodes$/, NODES],
    [/\/v1\/nodes\/n1\/history\?/, history(60)], [/\/v1\/flow\?/, FLOW],
  ];
  for (const [path, json] of documents) await page.route(path, (route) => route.fulfill({ json }));
  await page.route(/\/v1\/status$/, async (route) => {
    const status: Status = await (await route.fetch()).json();
    status.packet = PACKET;
    status.controller = { state: "leads", plan_age_seconds: 1, period_seconds: 1 };
    status.streams = [{
      name: "images", leading: true, workers: 2, slices_total: 8, slices_unowned: 1, slices_blocked: 0, items_per_second: 24, queued: 0,
      imbalance: 0.2,
    }];
    const [door, pool] = [status.front_doors[0]!, status.pools[0]!];
    const certificate = { subject: "shop.example", names: ["shop.example"], key: "ecdsa", chain: "/shop.pem", valid_until_unix_seconds: 0 };
    door.tls = { handshakes_total: 3, resumed_total: 1, certificates: [{ ...certificate, days_left: 61 }] };
    door.drops = { queue_full: 20, request_host: 12_400 };
    pool.source = { source: "dns _http._tcp.app.internal (SRV)", backends: 2, failures_total: 1, changes_total: 3, age_seconds: 200, problem: "no answer" };
    await route.fulfill({ json: status });
  });
  await page.goto(rig.api);
  await page.getByText("No worker owns 1 slice of stream images").waitFor();
  return { page, errors };
}

test("slices, flows and 50 nodes are shown, and axe finds nothing", async () => {
  const { page, errors } = await opened();
  const views: [string, string][] = [
    ["slices", "no worker is far enough over the mean"],
    ["flows", "dropped too big: 4"],
    ["nodes", "n50"],
  ];
  for (const [view, text] of views) {
    await page.goto(`${rig.api}/#${view}`);
    await page.getByText(text).first().waitFor();
    expect(await axe(page), view).toEqual([]);
  }
  const delegation = page.getByRole("region", { name: "Table of delegation" });
  const first = delegation.getByRole("row").filter({ has: page.getByRole("rowheader", { name: "n1", exact: true }) });
  await first.getByText("20 %").waitFor();
  expect(await delegation.getByRole("row").count()).toBe(50);
  await page.goto(`${rig.api}/#slices`);
  await page.getByRole("button", { name: "Drain w1" }).click();
  await page.getByRole("dialog").getByText("equipoise slice drain w1 --stream images").waitFor();
  await page.keyboard.press("Escape");
  const tallest = page.locator(".slices li", { hasText: "slice 7" }).locator(".bar");
  expect(await tallest.evaluate((bar) => bar.clientHeight / bar.parentElement!.clientHeight)).toBeCloseTo(1, 1);
  expect(errors).toEqual([]);
});

test("handovers are shown as they happen, and why nothing else moves", async () => {
  const { page, errors } = await opened();
  await page.goto(`${rig.api}/#slices`);
  await page.getByText("2 slices from w2 to w1: moving, waits for w2 to finish its items, 0 s").waitFor();
  await page.getByText("3 handovers moved slices, 1 were called off; median 20 ms, longest 300 ms.").waitFor();
  await page.getByText("Would move 2 slices from w2 to w1.").waitFor();
  await page.getByText("Why nothing else moves: no worker is far enough over the mean").waitFor();

  // The handover goes on; another one begins, of slices without an owner.
  const stream = SLICES.streams[0]!;
  const [first] = stream.handovers;
  const begun = { id: 5, giver: null, taker: "w2", slices: 1, state: "loading", waits_for: "w2 to load its state", seconds: 65 };
  const next = { ...stream, handovers: [{ ...first!, state: "committing", waits_for: "the store", seconds: 2 }, begun] };
  await page.route(/\/v1\/slices$/, (route) => route.fulfill({ json: { streams: [next] } }));
  await page.getByText("2 slices from w2 to w1: committing, waits for the store, 2 s").waitFor();
  await page.getByText("1 slices from no owner to w2: loading, waits for w2 to load its state, 1 min 5 s").waitFor();

  // Both have ended.
  await page.route(/\/v1\/slices$/, (route) => route.fulfill({ json: { streams: [{ ...stream, handovers: [], handovers_moved_total: 5 }] } }));
  await page.getByText("5 handovers moved slices").waitFor();
  expect(await page.getByText("waits for").count()).toBe(0);
  expect(errors).toEqual([]);
});

test("the largest flows of a VIP are below its backends, and a flow is explained with its command and its curl", async () => {
  const { page, errors } = await opened();
  await page.goto(`${rig.api}/#flows`);
  const heavy = page.getByRole("table").filter({ has: page.getByRole("columnheader", { name: "Largest flow" }) });
  const rows = heavy.locator("tbody tr");
  await rows.first().waitFor();
  const cells = await rows.evaluateAll((found) => found.map((row) => [...row.children].map((cell) => cell.textContent!.trim())));
  // A share is an estimate, and no more than the whole.
  expect(cells).toEqual([["198.51.100.7:40000", "b1", "12.4M", "61.3 %"], ["198.51.100.8:40001", "", "1000", "100.0 %"]]);

  await page.getByLabel("Client").fill("198.51.100.7:40000");
  await page.getByLabel("VIP").fill(VIP);
  await page.getByRole("button", { name: "Explain" }).click();
  await page.getByRole("region", { name: "Answer" }).getByText("forwarded to web/b1 by ring").waitFor();
  await page.getByText(`equipoise flow 198.51.100.7:40000 ${VIP}`, { exact: true }).waitFor();
  const query = "source=198.51.100.7%3A40000&vip=192.0.2.10%3A443%2Ftcp";
  await page.getByText(`curl -H "Authorization: Bearer $(cat TOKEN_FILE)" '${rig.api}/v1/flow?${query}'`, { exact: true }).waitFor();
  expect(await axe(page)).toEqual([]);
  expect(errors).toEqual([]);
});

test("the history of a node has the forecast beside what came", async () => {
  const { page, errors } = await opened();
  await page.goto(`${rig.api}/#nodes?node=n1`);
  const chart = page.locator("figure.chart");
  await chart.getByText("Load of n1 in per cent").waitFor();
  // The last of 60 points.
  const now = "CPU: 42 now; memory: 20 now; network: none now; CPU forecast: 44 now";
  await chart.getByText(now).waitFor({ state: "attached" });
  expect(await chart.locator(".u-legend .u-label").allTextContents()).toEqual(["Time", "CPU", "memory", "network", "CPU forecast"]);
  for (const line of ["--line-1", "--line-4"]) expect(await columns(chart, line, "all"), line).toBeGreaterThan(0);
  expect(errors).toEqual([]);
});

test("a front door has its certificates and refusals, a pool the problem of its source", async () => {
  const { page, errors } = await opened();
  await page.goto(`${rig.api}/#pools`);
  const door = rowOf(page, "Table of front doors", "door");
  await door.getByText("certificate shop.example: 61 days left").waitFor();
  expect(await door.locator(".drop").allTextContents()).toEqual(["request host: 12.4k", "queue full: 20"]);
  const pool = rowOf(page, "Table of pools", "web");
  await pool.getByText("dns _http._tcp.app.internal (SRV), confirmed 3 min 20 s ago").waitFor();
  await pool.locator(".problem", { hasText: "no answer" }).waitFor();
  expect(await axe(page)).toEqual([]);
  expect(errors).toEqual([]);
});

test("changes, checks, reloads and plans are marks at the foot of every chart; other events are none", async () => {
  const { page, errors } = await open(browser, "about:blank");
  let send: (body: string) => void = () => {};
  const body = new Promise<string>((done) => (send = done));
  let isSent = false;
  await page.route(/\/v1\/events$/, async (route) => {
    // One stream; the ones after it have no answer.
    if (isSent) return;
    const events = await body;
    isSent = true;
    await route.fulfill({ contentType: "text/event-stream", body: events });
  });
  await page.goto(rig.api);
  const charts = page.locator("figure.chart");
  for (const label of ["arrived", "in flight"]) await charts.getByText(new RegExp(`${label}: [\\d.]+ now`)).waitFor({ state: "attached" });
  const began = Date.now();
  const event = (at: number, type: string, level: string, subject: string, words: string): Event =>
    ({ id: `e-${at}`, time: new Date(began + 400 * at).toISOString(), level: level as Event["level"], type, subject, words });
  const list = [
    event(1, "change.done", "info", "/v1/reload", "token:admin: POST /v1/reload"), event(2, "reload.applied", "info", "", "the file is in force"),
    event(3, "source.set", "info", "web", "2 backends"), event(4, "backend.unhealthy", "warning", "web/b1", "connection refused"),
    event(5, "plan.scaled", "info", "app", "2 backends more"),
  ];
  send(list.map((one) => `id: ${one.id}\ndata: ${JSON.stringify(one)}\n\n`).join(""));
  expect(await charts.count()).toBe(2);
  for (const chart of await charts.all()) {
    // The newest three have their words.
    const words = chart.locator(".marks span");
    await eventually(async () => (await words.count()) === 3);
    const found = (await words.allTextContents()).map((text) => text.replace(/^\d+:\d+:\d+(\s[AP]M)? /, ""));
    expect(found).toEqual(["app 2 backends more", "web/b1 connection refused", " the file is in force"]);
    await eventually(async () => (await columns(chart, "--quiet", "foot")) === 3 && (await columns(chart, "--warn", "foot")) === 1);
  }
  expect(errors).toEqual([]);
});

/**
 * Number of separate groups of columns of a chart that have pixels of this colour of the style
 * sheet: anywhere, or in the marks at its foot.
 */
async function columns(chart: Locator, colour: string, where: "all" | "foot"): Promise<number> {
  return chart.evaluate((figure, [colour, where]) => {
    const canvas = figure.querySelector("canvas")!;
    const [whole, plot] = [canvas.getBoundingClientRect(), figure.querySelector(".u-over")!.getBoundingClientRect()];
    const scale = canvas.width / whole.width;
    const probe = figure.appendChild(document.createElement("i"));
    probe.style.color = `var(${colour})`;
    const wanted = /(\d+), (\d+), (\d+)/.exec(getComputedStyle(probe).color)!.slice(1).map(Number);
    probe.remove();
    const bottom = Math.round((plot.bottom - whole.top) * scale);
    // Above the lines of values of 0, within marks.
    const [top, height] = where === "foot" ? [bottom - 5, 1] : [Math.round((plot.top - whole.top) * scale), Math.round(plot.height * scale)];
    const [left, width] = [Math.round((plot.left - whole.left) * scale), Math.round(plot.width * scale)];
    const { data } = canvas.getContext("2d")!.getImageData(left, top, width, height);
    const has = Array.from({ length: width }, (_, x) =>
      Array.from({ length: height }, (_, y) => 4 * (y * width + x)).some((at) => wanted.every((value, of) => data[at + of] === value)));
    return has.filter((is, x) => is && !has[x - 1]).length;
  }, [colour, where] as const);
}
