// The status of the process, read again and again, and what follows from two readings.

import { get, Refused } from "../api/client";
import type { Health, Status } from "../api/types";
import { facts } from "../pure/headline";
import { levels } from "../pure/levels";
import { rates, sample, type Sample } from "../pure/rates";
import { caller } from "./caller.svelte";

/** Milliseconds between two readings. */
const PERIOD = 2_000;
/** Readings that charts show: ten minutes. */
const KEPT = 300;
/** Readings between the two that rates compare: a spike stays visible for ten seconds. */
const SPAN = 5;

/** One reading of the charts; times in seconds since 1970. */
export interface Point {
  at: number;
  rate: number;
  refused: number;
  inFlight: number;
  queued: number;
}

class Live {
  status = $state.raw<Status | null>(null);
  health = $state.raw<Health | null>(null);
  rates = $state.raw<Map<string, number> | null>(null);
  points = $state.raw<Point[]>([]);
  /** The API asks for a token. */
  isLocked = $state(false);
  /** Seconds without an answer. */
  silent = $state(0);

  facts = $derived(this.status ? facts(this.status, this.health, this.rates) : []);
  levels = $derived(this.status ? levels(this.status, this.rates) : []);

  #samples: Sample[] = [];
  #answered = Date.now();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #turn = 0;

  /** Reads now, and then every period. */
  start(): void {
    clearTimeout(this.#timer);
    void this.#read(++this.#turn);
  }

  async #read(turn: number): Promise<void> {
    try {
      if (!caller.identity) await caller.ask();
      const [status, health] = await Promise.all([get<Status>("/v1/status"), readHealth()]);
      if (turn !== this.#turn) return;
      this.#take(status, health, Date.now());
    } catch (error) {
      if (turn !== this.#turn) return;
      if (error instanceof Refused && error.status === 401) {
        // The page asks no more: each try counts against this address.
        this.isLocked = true;
        this.status = null;
        caller.identity = null;
        return;
      }
      this.silent = Math.round((Date.now() - this.#answered) / 1000);
    }
    this.#timer = setTimeout(() => void this.#read(turn), PERIOD);
  }

  #take(status: Status, health: Health | null, at: number): void {
    const next = sample(status, at);
    // A restarted process counts from 0.
    if (this.#samples.at(-1)?.pid !== next.pid) this.#samples = [];
    const before = this.#samples.at(-1);
    this.rates = rates(this.#samples.at(-SPAN) ?? this.#samples[0], next);
    this.#samples = [...this.#samples.slice(-SPAN), next];
    this.status = status;
    this.health = health;
    this.isLocked = false;
    this.silent = 0;
    this.#answered = at;
    const last = rates(before, next);
    if (last) this.points = [...this.points.slice(1 - KEPT), this.#point(last, at)];
  }

  #point(last: Map<string, number>, at: number): Point {
    const refused = [...last].filter(([name]) => name.startsWith("session.refused."));
    const session = this.levels.find((level) => level.name === "session");
    return {
      at: at / 1000,
      rate: last.get("session.work") ?? 0,
      refused: refused.reduce((sum, [, rate]) => sum + rate, 0),
      inFlight: session?.inFlight?.[0] ?? 0,
      queued: session?.queued ?? 0,
    };
  }
}

/** The health, also of a process that stops. */
async function readHealth(): Promise<Health | null> {
  return get<Health>("/v1/health").catch(() => null);
}

export const live = new Live();
