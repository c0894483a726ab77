import { expect, test } from "vitest";

import { countdown, rows, sparkline } from "../src/pure/rows";
import { backend, status } from "./samples";

function rate(requests: number) {
  return { rates: { requests, errors: 0, bytes_in: 0, bytes_out: 0 } };
}

const pools = status({
  backends: [
    backend("b10", rate(30)), backend("b2", rate(10)), backend("b3", { state: "unhealthy", health_detail: "timeout" }),
    backend("b4", { state: "draining", admin: "drain", in_flight: 2, flows: 1 }),
  ],
}).pools;

function names(find: string, order: Parameters<typeof rows>[3]): string[] {
  return rows(pools, "", find, order).map((row) => row.id);
}

test("trouble comes first, then names in their natural order", () => {
  expect(names("", "trouble")).toEqual(["web/b3", "web/b4", "web/b2", "web/b10"]);
  expect(names("", "name")).toEqual(["web/b2", "web/b3", "web/b4", "web/b10"]);
  expect(names("", "rate").slice(0, 2)).toEqual(["web/b10", "web/b2"]);
});

test("a text finds names, states and reasons", () => {
  expect(names("timeout", "name")).toEqual(["web/b3"]);
  expect(names("DRAINING", "name")).toEqual(["web/b4"]);
  expect(rows(pools, "other", "", "name")).toEqual([]);
});

test("the share is that of the pool, whatever the filter hides", () => {
  expect(rows(pools, "", "b2", "name")[0]?.share).toBe(0.25);
});

test("a drain counts its requests and flows down to 0", () => {
  const left = (in_flight: number, flows: number) =>
    countdown(backend("b", { state: in_flight + flows > 0 ? "draining" : "drained", admin: "drain", in_flight, flows }));
  expect(left(2, 1)).toBe("3 units of work left");
  expect(left(1, 0)).toBe("1 unit of work left");
  expect(left(0, 0)).toBe("0: safe to stop");
  expect(countdown(backend("b"))).toBe("");
});

test("a sparkline ends at the right and touches the top", () => {
  expect(sparkline([0, 5, 10], 20, 10)).toBe("0.0,10.0 10.0,5.0 20.0,0.0");
  expect(sparkline([0], 20, 10)).toBe("0.0,10.0");
});
