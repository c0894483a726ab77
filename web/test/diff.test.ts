import { expect, test } from "vitest";

import { diff } from "../src/pure/diff";

function shown(before: string, after: string): string[] {
  return diff(before, after).map((line) => (line ? line.sign + line.text : "…"));
}

test("equal texts differ in no line", () => {
  expect(shown("a\nb", "a\nb")).toEqual([]);
});

test("changes have two lines around them, and the rest is left out", () => {
  expect(shown("1\n2\n3\n4\n5\n6\n7\n8", "1\n2\n3\n4\nx\n6\n7\n8")).toEqual(["…", " 3", " 4", "-5", "+x", " 6", " 7", "…"]);
});

test("added and removed lines are told from moved ones", () => {
  expect(shown("a\nb\nc", "a\nc")).toEqual([" a", "-b", " c"]);
  expect(shown("a\nc", "a\nb\nc")).toEqual([" a", "+b", " c"]);
  expect(shown("", "a")).toEqual(["-", "+a"]);
});
