import { expect, test } from "vitest";

import { rates, sample, under } from "../src/pure/rates";
import { status } from "./samples";

test("counters of two samples become rates a second", () => {
  const before = sample(status({ requests: 100, drops: { queue_full: 4 } }), 10_000);
  const after = sample(status({ requests: 150, drops: { queue_full: 5, no_backend: 9 } }), 12_000);
  const found = rates(before, after);
  expect(found?.get("session.work")).toBe(25);
  expect(under(found, "session.refused.")).toEqual([["no_backend", 4.5], ["queue_full", 0.5]]);
});

test("a process that was restarted has no rates before its second sample", () => {
  const before = sample(status({ pid: 1, requests: 100 }), 10_000);
  const after = sample(status({ pid: 2, requests: 3 }), 12_000);
  expect(rates(before, after)).toBeNull();
  expect(rates(undefined, after)).toBeNull();
});

test("a sum that falls, because a front door left the file, is no negative rate", () => {
  const found = rates(sample(status({ requests: 100 }), 0), sample(status({ requests: 40 }), 1000));
  expect(found?.get("session.work")).toBe(0);
});

test("samples of the same moment are not divided by zero", () => {
  expect(rates(sample(status({}), 5), sample(status({}), 5))).toBeNull();
});
