// Numbers, times and sizes for people.

/** A count or a rate with about three digits: 0.42, 7.1, 380, 12.4k, 3.1M. */
export function number(value: number): string {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  for (const [limit, by, unit] of [
    [999_500_000, 1e9, "G"],
    [999_500, 1e6, "M"],
    [9_995, 1e3, "k"],
  ] as const) {
    if (size >= limit) return trimmed(value / by) + unit;
  }
  return trimmed(value);
}

function trimmed(value: number): string {
  const size = Math.abs(value);
  if (size >= 99.95 || Number.isInteger(value)) return value.toFixed(0);
  return value.toFixed(size >= 9.995 ? 1 : 2).replace(/\.?0+$/, "") || "0";
}

/** A duration such as `0.4 ms`, `12 ms`, `1.5 s`. */
export function duration(seconds: number | null | undefined): string {
  if (seconds == null) return "–";
  if (seconds === 0) return "0";
  if (seconds < 1e-3) return `${trimmed(seconds * 1e6)} µs`;
  if (seconds < 1) return `${trimmed(seconds * 1e3)} ms`;
  return `${trimmed(seconds)} s`;
}

/** An age in two units: `12 s`, `3 min 20 s`, `2 d 4 h`. */
export function age(seconds: number | null | undefined): string {
  if (seconds == null) return "–";
  const units: [string, number][] = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  let rest = Math.max(0, Math.round(seconds));
  const at = units.findIndex(([, size]) => rest >= size);
  if (at < 0) return "0 s";
  const parts: string[] = [];
  for (const [unit, size] of units.slice(at, at + 2)) {
    const count = Math.floor(rest / size);
    if (count > 0) parts.push(`${count} ${unit}`);
    rest -= count * size;
  }
  return parts.join(" ");
}

/** A share of 1 as per cent. */
export function percent(share: number | null | undefined): string {
  return share == null ? "–" : `${trimmed(share * 100)} %`;
}

/** A count with its noun: `1 backend`, `3 backends`. */
export function count(value: number, noun: string): string {
  return `${value} ${noun}${value === 1 ? "" : "s"}`;
}

/** The word of a reason: `queue_full` becomes `queue full`. */
export function reason(word: string): string {
  return word.replaceAll("_", " ");
}
