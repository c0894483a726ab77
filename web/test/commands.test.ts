import { expect, test } from "vitest";

import { apply, check, curl, drain, flow, pausePool, quote, readFile, resumePool, weight } from "../src/pure/commands";
import { question, whyCommand } from "../src/pure/question";

test("an action has the command and the curl of its request", () => {
  const action = drain("web", "[::1]:80");
  expect(action.command).toBe("equipoise drain 'web/[::1]:80'");
  expect(curl(action, "http://lb:9909")).toBe(
    'curl -X POST -H "Authorization: Bearer $(cat TOKEN_FILE)" http://lb:9909/v1/pools/web/backends/%5B%3A%3A1%5D%3A80/drain',
  );
  expect(curl(weight("web", "b1", 1, 5), "http://lb")).toContain(`-d '{"weight":5}' http://lb/v1/pools/web/backends/b1/weight`);
});

test("a question has the command and the curl of its request", () => {
  const asked = flow("[2001:db8::7]:40000", "192.0.2.10:443/tcp");
  expect(asked.command).toBe("equipoise flow '[2001:db8::7]:40000' 192.0.2.10:443/tcp");
  expect(curl(asked, "http://lb")).toBe(
    `curl -H "Authorization: Bearer $(cat TOKEN_FILE)" 'http://lb/v1/flow?source=%5B2001%3Adb8%3A%3A7%5D%3A40000&vip=192.0.2.10%3A443%2Ftcp'`,
  );
  expect(readFile("/etc/my file.toml").command).toBe("cat '/etc/my file.toml'");
  expect(curl(readFile("f"), "http://lb")).toContain(`TOKEN_FILE)" http://lb/v1/config/text`);
});

test("the check is that of the file, or of a changed text", () => {
  expect(check("/etc/e.toml").command).toBe("equipoise check /etc/e.toml");
  expect(curl(check("/etc/e.toml"), "http://lb")).toContain("-d '{}' http://lb/v1/config/check");
  const changed = check("/etc/e.toml", `name = "it's"\n`);
  expect(changed.command).toBe(`printf %s 'name = "it'\\''s"\n' | equipoise check -`);
  expect(curl(changed, "http://lb")).toContain(`-d '{"toml":"name = \\"it'\\''s\\"\\n"}' http://lb/v1/config/check`);
});

test("a text is applied to the state that the operator has seen", () => {
  const action = apply("/etc/e.toml", '"12ab"', "a = 1\n");
  expect(action.command).toBe("printf %s 'a = 1\n' | equipoise reload --with -");
  expect(curl(action, "http://lb")).toBe(
    `curl -X PUT -H "Authorization: Bearer $(cat TOKEN_FILE)" -H 'If-Match: "12ab"' -H 'Content-Type: application/json' -d '{"toml":"a = 1\\n"}' http://lb/v1/config/text`,
  );
  expect(action.undo?.path).toBe("/v1/config/roll-back");
  // Its own change has another tag.
  expect(action.undo?.ifMatch).toBeUndefined();
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
