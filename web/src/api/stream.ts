// Server-sent events over `fetch`: an `EventSource` cannot send a token.

import { send } from "./client";
import type { Event } from "./types";

/** Yields the events of one stream until it ends, those that arrive together at once. `last` is the id of the last event that was read. */
export async function* stream(last: string | null, signal: AbortSignal): AsyncGenerator<Event[]> {
  const headers: Record<string, string> = { Accept: "text/event-stream" };
  if (last) headers["Last-Event-ID"] = last;
  const response = await send("/v1/events", { headers, signal });
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop()!;
    // Comments and `retry` have no data.
    const data = blocks.flatMap((block) => /^data:(.*)$/m.exec(block)?.[1] ?? []);
    yield data.map((text) => JSON.parse(text) as Event);
  }
}
