// A document of the API that a view reads again and again while it is shown.

import { get } from "../api/client";

export class Polled<T> {
  value = $state.raw<T | null>(null);
  problem = $state("");

  constructor(private readonly path: string, private readonly period = 2_000) {}

  /** Reads until the returned function is called. */
  follow(): () => void {
    let isEnded = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const read = async () => {
      try {
        this.value = await get<T>(this.path);
        this.problem = "";
      } catch (error) {
        this.problem = (error as Error).message;
      }
      if (!isEnded) timer = setTimeout(read, this.period);
    };
    void read();
    return () => {
      isEnded = true;
      clearTimeout(timer);
    };
  }
}
