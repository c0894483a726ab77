import { expect, test } from "vitest";

import { age, duration, number } from "../src/pure/format";
import { between, quantile, responseTimes } from "../src/pure/histogram";

const SCRAPE = `# HELP equipoise_threads Threads.
equipoise_threads 3
equipoise_backend_response_duration_seconds_sum{pool="web",backend="b1"} 0.4
equipoise_backend_response_duration_seconds_bucket{le="0.1",pool="web",backend="b1"} 10
equipoise_backend_response_duration_seconds_bucket{le="0.2",pool="web",backend="b1"} 20
equipoise_backend_response_duration_seconds_bucket{le="+Inf",pool="web",backend="b1"} 20
equipoise_request_duration_seconds_bucket{le="0.1",front_door="door"} 7
`;

test("a scrape has the histograms of backends and front doors", () => {
  const found = responseTimes(SCRAPE);
  expect(found.get("web/b1")).toEqual([[0.1, 10], [0.2, 20], [Infinity, 20]]);
  expect(found.get("door door")).toEqual([[0.1, 7]]);
});

test("percentiles are interpolated within their bucket", () => {
  const buckets = responseTimes(SCRAPE).get("web/b1")!;
  expect(quantile(buckets, 0.5)).toBeCloseTo(0.1);
  expect(quantile(buckets, 0.75)).toBeCloseTo(0.15);
  expect(quantile([[0.1, 1], [Infinity, 4]], 0.99)).toBe(0.1);
});

test("only what was counted since the scrape before counts, and a restarted process begins again", () => {
  const now = responseTimes(SCRAPE).get("web/b1")!;
  expect(between([[0.1, 4], [0.2, 9], [Infinity, 9]], now)).toEqual([[0.1, 6], [0.2, 11], [Infinity, 11]]);
  expect(between([[0.1, 40], [0.2, 90], [Infinity, 90]], now)).toBeNull();
  expect(between(now, now)).toBeNull();
});

test("figures have about three digits", () => {
  expect([0, 0.416, 7.1, 99.96, 380, 9994, 12_400, 3_100_000].map(number)).toEqual([
    "0", "0.42", "7.1", "100", "380", "9994", "12.4k", "3.1M",
  ]);
  expect([0.00042, 0.0123, 1.5, null].map(duration)).toEqual(["420 µs", "12.3 ms", "1.5 s", "–"]);
  expect([0, 12, 200, 100_000].map(age)).toEqual(["0 s", "12 s", "3 min 20 s", "1 d 3 h"]);
});
