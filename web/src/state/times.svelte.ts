// Response times of backends and front doors, from the histograms of `/metrics`.

import { send } from "../api/client";
import { between, quantile, responseTimes, type Buckets } from "../pure/histogram";

const PERIOD = 5_000;
const KEPT = 30;

export interface Times {
  /** Seconds, the newest last. */
  p50: number[];
  p99: number[];
}

class ResponseTimes {
  /** By `POOL/BACKEND`, or `door NAME`. */
  by = $state.raw(new Map<string, Times>());

  #before = new Map<string, Buckets>();

  /** Reads until the returned function is called. */
  follow(): () => void {
    const timer = setInterval(() => void this.#read(), PERIOD);
    void this.#read();
    return () => clearInterval(timer);
  }

  async #read(): Promise<void> {
    const response = await send("/metrics").catch(() => null);
    if (!response) return;
    const now = responseTimes(await response.text());
    const next = new Map<string, Times>();
    for (const [name, buckets] of now) {
      const { p50, p99 } = this.by.get(name) ?? { p50: [], p99: [] };
      const earlier = this.#before.get(name);
      const counted = earlier && between(earlier, buckets);
      const add = (to: number[], share: number) =>
        counted ? [...to.slice(1 - KEPT), quantile(counted, share)] : to;
      next.set(name, { p50: add(p50, 0.5), p99: add(p99, 0.99) });
    }
    this.#before = now;
    this.by = next;
  }
}

export const times = new ResponseTimes();
