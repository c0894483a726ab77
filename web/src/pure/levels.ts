// The configured levels, from names to slices, as a chain.

import type { Status } from "../api/types";
import { under } from "./rates";

export interface Level {
  name: string;
  /** What one of its units of work is called. */
  unit: string;
  /** Per second; `null` before the second sample. */
  rate: number | null;
  /** What is in flight, and its name; absent if the level keeps nothing. */
  inFlight?: [number, string];
  /** Waiting work; absent if the level has no queue. */
  queued?: number;
  /** Refused a second by reason, the largest first. */
  refused: [string, number][];
  /** What the level consists of. */
  detail: string;
  /** The view that has more. */
  view: string;
}

/** The levels that this process has, in the order in which work passes them. */
export function levels(status: Status, rates: Map<string, number> | null): Level[] {
  const rate = (name: string) => (rates ? (rates.get(name) ?? 0) : null);
  const refused = (name: string) => under(rates, `${name}.refused.`);
  const found: Level[] = [];
  const sum = <T>(items: T[], of: (item: T) => number) => items.reduce((total, item) => total + of(item), 0);
  if (status.dns) {
    found.push({
      name: "dns", unit: "queries", rate: rate("dns.work"), refused: refused("dns"),
      inFlight: [status.dns.connections_open, "TCP connections"],
      detail: `${status.dns.names.length} balanced names`, view: "events",
    });
  }
  if (status.packet) {
    found.push({
      name: "packet", unit: "packets", rate: rate("packet.work"), refused: refused("packet"),
      inFlight: [status.packet.flows, "flows"],
      detail: `${status.packet.vips.length} VIPs`, view: "flows",
    });
  }
  if (status.front_doors.length > 0) {
    found.push({
      name: "session", unit: "requests", rate: rate("session.work"), refused: refused("session"),
      inFlight: [sum(status.front_doors, atDoor), "in flight"],
      queued: sum(status.pools, (pool) => pool.queued ?? 0),
      detail: status.front_doors.map((door) => door.name).join(", "), view: "pools",
    });
  }
  const dispatchers = status.front_doors.filter((door) => door.dispatch);
  if (dispatchers.length > 0) {
    found.push({
      name: "dispatch", unit: "requests", rate: rate("dispatch.work"), refused: refused("dispatch"),
      detail: `${(rate("dispatch.delegated") ?? 0).toFixed(1)} delegated/s`, view: "nodes",
    });
  }
  if (status.pools.length > 0) {
    const backends = status.pools.flatMap((pool) => pool.backends);
    const eligible = sum(status.pools, (pool) => pool.backends_eligible);
    found.push({
      name: "backends", unit: "requests", rate: rate("backends.work"), refused: refused("backends"),
      inFlight: [sum(backends, (backend) => backend.in_flight), "in flight"],
      detail: `${eligible} of ${backends.length} take new work`, view: "backends",
    });
  }
  const streams = status.streams ?? [];
  if (streams.length > 0) {
    found.push({
      name: "slice", unit: "items", rate: sum(streams, (stream) => stream.items_per_second), refused: [],
      queued: sum(streams, (stream) => stream.queued),
      detail: streams.map((stream) => `${stream.name}: ${stream.workers} workers`).join(", "), view: "slices",
    });
  }
  return found;
}

/** Work of a front door in flight: requests of HTTP, otherwise connections or client addresses. */
export function atDoor(door: Status["front_doors"][number]): number {
  return door.protocol === "http" ? door.requests_in_flight : door.connections_open;
}
