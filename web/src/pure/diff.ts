// The lines in which two texts differ.

export interface Line {
  /** `+` is new, `-` is gone, a space is in both. */
  sign: "+" | "-" | " ";
  text: string;
}

/** Lines of context around a change. */
const AROUND = 2;

/**
 * The changed lines of `before` and `after`, with a few around them; `null` stands for lines that are left out.
 * Longest common subsequence (Hunt and McIlroy 1976), after equal lines at both ends are set aside.
 */
export function diff(before: string, after: string): (Line | null)[] {
  const [old, now] = [before.split("\n"), after.split("\n")];
  let start = 0;
  while (start < old.length && start < now.length && old[start] === now[start]) start += 1;
  let end = 0;
  while (end < Math.min(old.length, now.length) - start && old.at(-1 - end) === now.at(-1 - end)) end += 1;
  const all: Line[] = [
    ...old.slice(0, start).map((text): Line => ({ sign: " ", text })),
    ...changed(old.slice(start, old.length - end), now.slice(start, now.length - end)),
    ...old.slice(old.length - end).map((text): Line => ({ sign: " ", text })),
  ];
  return shortened(all);
}

function changed(old: string[], now: string[]): Line[] {
  // common[i][j] is the length of the longest common subsequence of old from i and now from j.
  const common = Array.from({ length: old.length + 1 }, () => new Uint16Array(now.length + 1));
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = now.length - 1; j >= 0; j -= 1) {
      common[i]![j] = old[i] === now[j] ? common[i + 1]![j + 1]! + 1 : Math.max(common[i + 1]![j]!, common[i]![j + 1]!);
    }
  }
  const lines: Line[] = [];
  let [i, j] = [0, 0];
  while (i < old.length || j < now.length) {
    if (i < old.length && j < now.length && old[i] === now[j]) {
      lines.push({ sign: " ", text: old[i]! });
      [i, j] = [i + 1, j + 1];
    } else if (j >= now.length || (i < old.length && common[i + 1]![j]! >= common[i]![j + 1]!)) {
      lines.push({ sign: "-", text: old[i]! });
      i += 1;
    } else {
      lines.push({ sign: "+", text: now[j]! });
      j += 1;
    }
  }
  return lines;
}

function shortened(all: Line[]): (Line | null)[] {
  const found: (Line | null)[] = [];
  all.forEach((line, at) => {
    const near = all.slice(Math.max(0, at - AROUND), at + AROUND + 1);
    if (near.some(({ sign }) => sign !== " ")) found.push(line);
    else if (found.at(-1) !== null) found.push(null);
  });
  return all.some(({ sign }) => sign !== " ") ? found : [];
}
