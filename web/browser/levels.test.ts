// States of slices, flows and 50 nodes that are hard to bring about, as documents in the API's form.
// `members.test.ts` has those of real processes.

import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import type { SlicePlan, Status, Streams } from "../src/api/types";
import { axe, launch, open } from "./chromium";
import { NODES } from "./nodes";
import { Rig } from "./rig";

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
  stream: "images", moves: [], reason: "balanced", explanation: "no worker is far enough over the mean", workers: [], hot: [], imbalance: 0.2,
};

const PACKET: Status["packet"] = {
  interfaces: [{ name: "eth0", role: "clients", state: "native" }], flows: 1200, flows_max: 65536, flows_not_learnt_total: 0,
  flows_moved_total: 0, pins: 0, pins_max: 16384, pins_full_total: 0, pending: 0, publications_total: 3, registry_bytes: 0,
  kernel_bytes: 0, drops: {}, notes: {},
  vips: [{
    vip: "192.0.2.10:443/tcp", pool: "web", forward: "ipip", scheduler: "maglev", key: "five-tuple", phase: "steady", flows: 1200,
    packets_total: 90_000, bytes_total: 0, decisions: {}, drops: { too_big: 4 }, notes: {},
    backends: [{
      name: "b1", address: "10.0.0.1", state: "up", listed: true, reachable: false, flows: 1200, flows_closing: 1, packets_total: 9,
      bytes_total: 0, drops_total: 0,
    }],
  }],
};

let browser: Browser;
let rig: Rig;

beforeAll(async () => {
  [browser, rig] = await Promise.all([launch(), Rig.start({ backends: 2 })]);
});

afterAll(async () => {
  await browser?.close();
  await rig?.stop();
});

test("slices, flows and 50 nodes are shown, and axe finds nothing", async () => {
  const { page, errors } = await open(browser, rig.api);
  const documents: [RegExp, unknown][] = [
    [/\/v1\/slices$/, SLICES], [/\/v1\/slices\/images\/plan$/, SLICE_PLAN], [/\/v1\/nodes$/, NODES],
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
    await route.fulfill({ json: status });
  });
  await page.getByText("No worker owns 1 slice of stream images").waitFor();
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
  // A reading may be under way.
  await page.unrouteAll({ behavior: "ignoreErrors" });
});
