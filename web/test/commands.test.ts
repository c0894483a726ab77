import { expect, test } from "vitest";

import { curl, drain, pausePool, quote, resumePool, weight } from "../src/pure/commands";
import { question, whyCommand } from "../src/pure/question";

test("an action has the command and the curl of its request", () => {
  const action = drain("web", "[::1]:80");
  expect(action.command).toBe("equipoise drain 'web/[::1]:80'");
  expect(curl(action, "http://lb:9909")).toBe(
    'curl -X POST -H "Authorization: Bearer $(cat TOKEN_FILE)" http://lb:9909/v1/pools/web/backends/%5B%3A%3A1%5D%3A80/drain',
  );
  expect(curl(weight("web", "b1", 1, 5), "http://lb")).toContain(`-d '{"weight":5}' http://lb/v1/pools/web/backends/b1/weight`);
});

test("an action is taken back by its opposite", () => {
  expect(drain("web", "b1").undo?.path).toBe("/v1/pools/web/backends/b1/undrain");
  expect(weight("web", "b1", 3, 5).undo?.body).toEqual({ weight: 3 });
  expect(weight("web", "b1", 3, 3).undo).toBeUndefined();
  expect(pausePool("web", 4).undo?.body).toEqual({ mode: "pinned", count: 4, force: true });
  expect(resumePool("web", null).body).toEqual({ mode: "auto" });
});

test("words with other characters are quoted for a shell", () => {
  expect(quote("b1:80")).toBe("b1:80");
  expect(quote("it's")).toBe(`'it'\\''s'`);
  expect(quote("$(x)")).toBe("'$(x)'");
});

test("the box asks what the command would ask", () => {
  expect(question("https://a.example/x?y=1", "192.0.2.7")).toEqual({ request: { url: "https://a.example/x?y=1", from: "192.0.2.7" } });
  expect(question("tcp 192.0.2.7:1 192.0.2.1:443", "")).toEqual({ flow: { protocol: "tcp", from: "192.0.2.7:1", to: "192.0.2.1:443" } });
  expect(question("name a.example aaaa", "")).toEqual({ name: { name: "a.example", type: "AAAA" } });
  expect(question("item images 3", "")).toEqual({ item: { stream: "images", slice: 3 } });
  expect(question("item images number=-3", "")).toEqual({ item: { stream: "images", number: -3 } });
  expect(question("item images key=cat", "")).toEqual({ item: { stream: "images", key: "cat" } });
  expect(question("what is this", "")).toContain("is no subject");
  expect(whyCommand("https://a.example/x?y=1", "192.0.2.7")).toBe("equipoise why 'https://a.example/x?y=1' --from 192.0.2.7");
});
