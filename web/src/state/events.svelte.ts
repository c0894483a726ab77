// Events of the process, as they happen.

import { Refused } from "../api/client";
import { stream } from "../api/stream";
import type { Event } from "../api/types";

const KEPT = 1_000;
/** Events that charts mark: changes, and what may have caused a bend of a line. */
const MARKED = /^(change|reload|upgrade|plan|process|backend|pool|controller|node|slice)\./;
/** Milliseconds until the next try after a stream ended. */
const PAUSE = 1_000;

class Events {
  /** The newest first. */
  list = $state.raw<Event[]>([]);
  isConnected = $state(false);
  /** The events that charts mark; times in seconds since 1970. */
  marks = $derived(this.list.filter((event) => MARKED.test(event.type)).map(mark));

  #last: string | null = null;
  #abort: AbortController | null = null;

  /** Follows the events until the API refuses. A new call replaces the earlier one. */
  start(): void {
    this.#abort?.abort();
    this.#abort = new AbortController();
    void this.#follow(this.#abort.signal);
  }

  async #follow(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        for await (const arrived of stream(this.#last, signal)) {
          this.isConnected = true;
          this.#last = arrived.at(-1)?.id ?? this.#last;
          if (arrived.length > 0) this.list = [...arrived.reverse(), ...this.list].slice(0, KEPT);
        }
      } catch (error) {
        if (error instanceof Refused && error.status === 401) return;
      }
      this.isConnected = false;
      await new Promise((next) => setTimeout(next, PAUSE));
    }
  }
}

export interface Mark {
  at: number;
  level: string;
  text: string;
}

function mark(event: Event): Mark {
  return { at: Date.parse(event.time) / 1000, level: event.level, text: `${event.subject} ${event.words}` };
}

export const events = new Events();
