// Percentiles from the histograms of `/metrics`.

/** Cumulative counts of one histogram: upper bound in seconds, count up to it. */
export type Buckets = [number, number][];

const LINE = /^equipoise_(backend_response|request)_duration_seconds_bucket\{(.*)\} (\d+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

/** The response times of backends (`POOL/BACKEND`) and front doors (`door NAME`) in a scrape. */
export function responseTimes(text: string): Map<string, Buckets> {
  const found = new Map<string, Buckets>();
  for (let start = 0; start < text.length; ) {
    let end = text.indexOf("\n", start);
    if (end < 0) end = text.length;
    const isBucket = text.startsWith("equipoise_backend_response_duration_seconds_b", start)
      || text.startsWith("equipoise_request_duration_seconds_b", start);
    const line = isBucket ? LINE.exec(text.slice(start, end)) : null;
    if (line) {
      const labels = new Map<string, string>();
      for (const [, name, value] of line[2]!.matchAll(LABEL)) labels.set(name!, value!);
      const name = line[1] === "request"
        ? `door ${labels.get("front_door")}`
        : `${labels.get("pool")}/${labels.get("backend")}`;
      const bound = labels.get("le") === "+Inf" ? Infinity : Number(labels.get("le"));
      const buckets = found.get(name) ?? [];
      buckets.push([bound, Number(line[3])]);
      found.set(name, buckets);
    }
    start = end + 1;
  }
  return found;
}

/** What was counted between two scrapes; `null` if nothing was, or the process is another. */
export function between(before: Buckets | undefined, after: Buckets): Buckets | null {
  const earlier = new Map(before ?? []);
  const counted = after.map(([bound, value]): [number, number] => [bound, value - (earlier.get(bound) ?? 0)]);
  const total = counted.at(-1)?.[1] ?? 0;
  return total > 0 && counted.every(([, value]) => value >= 0) ? counted : null;
}

/** The value below which `share` of the counted times are, interpolated within its bucket. */
export function quantile(buckets: Buckets, share: number): number {
  const rank = share * (buckets.at(-1)?.[1] ?? 0);
  let [low, seen] = [0, 0];
  for (const [bound, value] of buckets) {
    if (value >= rank && value > seen) {
      return bound === Infinity ? low : low + ((bound - low) * (rank - seen)) / (value - seen);
    }
    [low, seen] = [bound, value];
  }
  return low;
}
