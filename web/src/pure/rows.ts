// Backends as rows of a table: their share, their reason, their order.

import type { Backend, Pool } from "../api/types";
import { count, duration } from "./format";

export interface Row {
  /** `POOL/BACKEND`. */
  id: string;
  pool: string;
  backend: Backend;
  /** Share of the pool's requests, 0 to 1. */
  share: number;
  /** Why it is in its state, or what it lacks. */
  reason: string;
}

/** Orders of the table; trouble comes first by default. */
export const ORDERS = ["trouble", "name", "rate", "in flight", "share", "errors"] as const;
export type Order = (typeof ORDERS)[number];

/** The rows of all backends, or of one pool, whose name, address, state or reason has the text `find`. */
export function rows(pools: Pool[], pool: string, find: string, order: Order): Row[] {
  const found: Row[] = [];
  const text = find.trim().toLowerCase();
  for (const one of pools) {
    if (pool && one.name !== pool) continue;
    const total = one.backends.reduce((sum, backend) => sum + backend.rates.requests, 0);
    for (const backend of one.backends) {
      const id = `${one.name}/${backend.name}`;
      const why = reasonOf(backend);
      const words = `${id} ${backend.address} ${backend.state} ${why}`.toLowerCase();
      if (!words.includes(text)) continue;
      found.push({ id, pool: one.name, backend, share: total > 0 ? backend.rates.requests / total : 0, reason: why });
    }
  }
  return found.sort(BY[order]);
}

const TROUBLE: Record<Backend["state"], number> = {
  unhealthy: 0, draining: 1, drained: 2, down: 3, up: 5, standby: 6,
};

function trouble(row: Row): number {
  const isFull = row.backend.limit != null && row.backend.in_flight >= row.backend.limit;
  return row.backend.state === "up" && (isFull || row.backend.rates.errors > 0) ? 4 : TROUBLE[row.backend.state];
}

// Made once: `localeCompare` with options takes several times as long.
const NAMES = new Intl.Collator(undefined, { numeric: true });

function byName(a: Row, b: Row): number {
  return NAMES.compare(a.id, b.id);
}

function byFigure(of: (row: Row) => number): (a: Row, b: Row) => number {
  return (a, b) => of(b) - of(a) || byName(a, b);
}

const BY: Record<Order, (a: Row, b: Row) => number> = {
  trouble: (a, b) => trouble(a) - trouble(b) || byName(a, b),
  name: byName,
  rate: byFigure((row) => row.backend.rates.requests),
  "in flight": byFigure((row) => row.backend.in_flight),
  share: byFigure((row) => row.share),
  errors: byFigure((row) => row.backend.rates.errors),
};

/** Work that a draining backend still has: what is in flight, and flows of the packet level. */
export function left(backend: Backend): number {
  return backend.in_flight + (backend.flows ?? 0);
}

/** The countdown of a drain; empty if the backend does not drain. */
export function countdown(backend: Backend): string {
  if (backend.state !== "draining" && backend.state !== "drained") return "";
  return left(backend) === 0 ? "0: safe to stop" : `${count(left(backend), "unit")} of work left`;
}

function reasonOf(backend: Backend): string {
  const parts: string[] = [];
  const drain = countdown(backend);
  if (drain) parts.push(drain);
  if (backend.state === "down") parts.push("an operator disabled it");
  if (backend.added === "removing") parts.push("it is removed when its work is done");
  if (backend.health_detail) parts.push(backend.health_detail);
  if (backend.limit != null && backend.in_flight >= backend.limit) parts.push("at its limit");
  if (backend.queue_seconds) parts.push(`requests waited ${duration(backend.queue_seconds)}`);
  return parts.join("; ");
}

/** The points of a small line in a box of `width` by `height`; the largest value touches the top. */
export function sparkline(values: number[], width: number, height: number): string {
  const most = Math.max(...values, Number.MIN_VALUE);
  const step = width / Math.max(values.length - 1, 1);
  return values.map((value, at) => `${(at * step).toFixed(1)},${(height - (value / most) * height).toFixed(1)}`).join(" ");
}
