// A cluster of 50 nodes, and what one of them reported, in the API's form.

import type { NodeHistory, Nodes } from "../src/api/types";

export const NODES: Nodes = {
  leader: "c1", controllers: ["c1"],
  nodes: Array.from({ length: 50 }, (_, index) => ({
    name: `n${index + 1}`, kind: "node", state: index === 1 ? "late" : "alive", version: "0.1.0", capacity: 2, admin: index === 2 ? "drain" : "up",
    standing: "serves", shares: { "www.example.": 0.02 }, cpu_percent: 41.3, memory_percent: 20, net_percent: null, l1: 50, l2: 48,
    keep: index === 3 ? 1 : 0.8, takes: index === 3 ? 1 : null, report_age_seconds: 1, refused_total: 0,
  })),
};

/** `count` points, one every 2 s until now; the forecast is 2 above the CPU. */
export function history(count: number): NodeHistory {
  const at = (percent: number) => ({ mean_percent: percent, max_percent: percent, samples: 2 });
  const now = Date.now() / 1000;
  const points = Array.from({ length: count }, (_, index) => ({
    at_unix_seconds: now - 2 * (count - 1 - index), cpu: at(40 + (index % 3)), memory: at(20), net: null, cpu_forecast: at(42 + (index % 3)),
  }));
  return { node: "n1", points };
}
