import { expect, test } from "vitest";

import { facts, headline } from "../src/pure/headline";
import { rates, sample } from "../src/pure/rates";
import type { Backend, Pool, Status } from "../src/api/types";
import cases from "./headline.json";
import { backend, status, type Wish } from "./samples";

/** A case, which `equipoise top` is tested with, too. */
interface Case {
  name: string;
  backends?: ({ name: string } & Partial<Backend>)[];
  pool?: Partial<Pool>;
  changes?: Partial<Status>;
  degraded?: string[];
  /** Refused a second, by level and reason. */
  refused?: Record<string, Record<string, number>>;
  facts: [string, string, string][];
}

test.each(cases as unknown as Case[])("$name", (one) => {
  const backends = (one.backends ?? [{ name: "b1" }]).map((each) => backend(each.name, each));
  const now = status({ backends, changes: one.changes ?? {} });
  Object.assign(now.pools[0]!, one.pool ?? {});
  const rates = new Map(Object.entries(one.refused ?? {}).flatMap(([level, reasons]) =>
    Object.entries(reasons).map(([reason, rate]): [string, number] => [`${level}.refused.${reason}`, rate])));
  const found = facts(now, { phase: "running", degraded: one.degraded ?? [] }, rates);
  expect(found.map((fact) => [fact.severity, fact.text, fact.remedy])).toEqual(one.facts);
});

function sentences(wish: Wish): string[] {
  return facts(status(wish), { phase: "running", degraded: [] }, null).map((fact) => `${fact.severity}: ${fact.text}`);
}

test("without a fact all is well", () => {
  expect(headline(facts(status({}), null, null), 0)).toBeNull();
});

test("silence of the process comes before all", () => {
  expect(headline(facts(status({ queued: 3 }), null, null), 65)?.text).toBe("No answer from equipoise for 1 min 5 s");
});

test("a pool without a backend is worse than an unhealthy one, and names the reason and the remedy", () => {
  const down = backend("b1", { state: "unhealthy", health_detail: "connection refused" });
  expect(sentences({ backends: [down] })[0]).toBe("bad: Pool web has no backend that takes work: b1, connection refused");
  expect(sentences({ backends: [down, backend("b2")] })).toEqual([
    "warn: 1 backend of 2 in pool web is unhealthy: b1, connection refused",
  ]);
  const drained = facts(status({ backends: [backend("b1", { state: "drained", admin: "drain" })] }), null, null);
  expect(drained[0]?.remedy).toContain("undrain web/b1");
});

test("a drain is no trouble while others serve", () => {
  expect(sentences({ backends: [backend("b1", { state: "draining", admin: "drain" }), backend("b2")] })).toEqual([]);
});

test("refusals of our side are facts with a remedy; those that clients cause are not", () => {
  const before = sample(status({}), 0);
  const now = status({ drops: { queue_full: 20, tls_handshake: 50, client_gone: 7 } });
  const found = facts(now, null, rates(before, sample(now, 10_000)));
  expect(found.map((fact) => fact.text)).toEqual(["The session level refuses 2/s: queue full"]);
  expect(found[0]?.remedy).toContain("queue.length");
});

test("bad facts come before warnings", () => {
  const found = sentences({
    backends: [backend("b1", { state: "down", admin: "down" })],
    changes: { last_reload: { succeeded: false, at_unix_seconds: 0, errors: ["equipoise.toml:3: unknown option"] } },
  });
  expect(found).toEqual([
    "bad: Pool web has no backend that takes work",
    "warn: The last reload failed: equipoise.toml:3: unknown option",
  ]);
});

test("a certificate is a fact before it expires", () => {
  const certificate = { subject: "a.example", names: [], key: "ecdsa", chain: "/c.pem", valid_until_unix_seconds: 0 };
  const api_tls = (days_left: number) => ({
    changes: { api_tls: { handshakes_total: 0, resumed_total: 0, certificates: [{ ...certificate, days_left }] } },
  });
  expect(sentences(api_tls(30))).toEqual([]);
  expect(sentences(api_tls(1))).toEqual(["warn: The certificate a.example of the API expires in 1 day"]);
  expect(sentences(api_tls(-2))).toEqual(["bad: The certificate a.example of the API expired 2 days ago"]);
});

test("a degraded part is named once, by the fact that explains it", () => {
  const controller = {
    state: "leads" as const, plan_age_seconds: 1, period_seconds: 1, problem: "The store fails", remedy: "free its disk",
  };
  const found = facts(status({ changes: { controller } }), { phase: "running", degraded: ["controller"] }, null);
  expect(found.map((fact) => fact.text)).toEqual(["The store fails"]);
  expect(facts(status({}), { phase: "running", degraded: ["elastic"] }, null)[0]?.text).toBe("Degraded: elastic");
});
