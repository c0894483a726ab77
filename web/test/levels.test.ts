import { expect, test } from "vitest";

import { levels } from "../src/pure/levels";
import { rates, sample } from "../src/pure/rates";
import { backend, status } from "./samples";

test("only configured levels are in the chain, in the order of the work", () => {
  const streams = [{
    name: "images", leading: true, workers: 2, slices_total: 8, slices_unowned: 0, slices_blocked: 0,
    items_per_second: 12, queued: 3, imbalance: 0,
  }];
  const found = levels(status({ changes: { streams } }), null);
  expect(found.map((level) => level.name)).toEqual(["session", "backends", "slice"]);
  expect(found[2]).toMatchObject({ rate: 12, queued: 3 });
});

test("a level has its rate, what is in flight and queued, and what it refuses by reason", () => {
  const backends = [backend("b1", { in_flight: 4 }), backend("b2", { in_flight: 1, state: "down" })];
  const before = sample(status({ backends }), 0);
  const now = status({ backends, requests: 30, queued: 2, drops: { queue_full: 6 } });
  const [session, pool] = levels(now, rates(before, sample(now, 3000)));
  expect(session).toMatchObject({ rate: 10, inFlight: [2, "in flight"], queued: 2, refused: [["queue_full", 2]] });
  expect(pool).toMatchObject({ inFlight: [5, "in flight"], detail: "1 of 2 take new work" });
});

test("a level has no rate before the second reading", () => {
  expect(levels(status({}), null)[0]?.rate).toBeNull();
});
