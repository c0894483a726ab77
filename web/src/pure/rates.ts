// Rates from counters that only rise while one process runs.

import type { Status } from "../api/types";

/** Counters of one moment, by name. */
export interface Sample {
  /** Milliseconds. */
  at: number;
  /** The process; its counters start at 0. */
  pid: number;
  counters: Map<string, number>;
}

/** The counters of a status that the page shows as rates, each as `LEVEL.NAME` or `LEVEL.refused.REASON`. */
export function sample(status: Status, at: number): Sample {
  const counters = new Map<string, number>();
  const add = (name: string, value: number) =>
    counters.set(name, (counters.get(name) ?? 0) + value);
  const refused = (level: string, drops: Record<string, number>) => {
    for (const [reason, value] of Object.entries(drops)) add(`${level}.refused.${reason}`, value);
  };
  for (const door of status.front_doors) {
    add("session.work", door.protocol === "http" ? door.requests_total : door.connections_total);
    refused("session", door.drops);
    for (const one of door.dispatch?.classes ?? []) {
      add("dispatch.work", one.arrived_total + one.taken_total);
      add("dispatch.delegated", one.delegated_total);
      if (one.refused_total) add("dispatch.refused.overloaded", one.refused_total);
    }
  }
  for (const pool of status.pools) {
    for (const backend of pool.backends) {
      add("backends.work", backend.requests_total);
      refused("backends", backend.failures);
    }
  }
  if (status.dns) {
    for (const value of Object.values(status.dns.queries)) add("dns.work", value);
    refused("dns", status.dns.drops);
  }
  if (status.packet) {
    for (const vip of status.packet.vips) {
      add("packet.work", vip.packets_total);
      refused("packet", vip.drops);
    }
    refused("packet", status.packet.drops);
  }
  return { at, pid: status.pid, counters };
}

/** Rates per second between two samples, or `null` if they cannot be compared. */
export function rates(before: Sample | undefined, after: Sample): Map<string, number> | null {
  if (!before || before.pid !== after.pid || after.at <= before.at) return null;
  const seconds = (after.at - before.at) / 1000;
  const found = new Map<string, number>();
  for (const [name, value] of after.counters) {
    // A sum falls when a front door or a backend leaves the configuration.
    found.set(name, Math.max(0, value - (before.counters.get(name) ?? 0)) / seconds);
  }
  return found;
}

/** The rates under a prefix, the largest first; those that are 0 are left out. */
export function under(rates: Map<string, number> | null, prefix: string): [string, number][] {
  const found = [...(rates ?? [])].filter(([name, rate]) => name.startsWith(prefix) && rate > 0);
  return found
    .map(([name, rate]): [string, number] => [name.slice(prefix.length), rate])
    .sort((a, b) => b[1] - a[1]);
}
