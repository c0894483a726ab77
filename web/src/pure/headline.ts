// The sentence on top: "All well", or the worst fact and what to do.

import type { Backend, Health, Pool, Status } from "../api/types";
import { age, count, number, reason } from "./format";
import { under } from "./rates";

export interface Fact {
  /** `bad`: clients notice it. `warn`: they may soon, or a part does not work. */
  severity: "bad" | "warn";
  text: string;
  /** What to do. */
  remedy: string;
  /** The view that shows it. */
  view: string;
}

/** Days before the end of a certificate from which it is a fact. */
const CERTIFICATE_DAYS = 14;

/** Refusals that are normal on a public address, whose clients cause them. */
const OF_CLIENTS = new Set([
  "client_gone", "client_stalled", "idle_timeout", "header_timeout", "body_timeout", "request_malformed",
  "request_framing", "request_host", "request_path", "header_underscore", "request_head_too_large",
  "request_body_too_large", "method_not_allowed", "version_not_supported", "coding_not_implemented",
  "expectation_failed", "source_denied", "tls_missing", "tls_handshake", "tls_timeout", "http2_protocol",
  "http3_protocol", "proxy_untrusted", "client_evicted", "no_room",
]);

const REMEDIES: Record<string, string> = {
  queue_full: "add backends, or raise `concurrency` or `queue.length`",
  queue_timeout: "add backends, or raise `concurrency` or `queue.wait`",
  overloaded: "add nodes, or change `load.admit`",
  rate_limited: "a client exceeds a limit: look at `rate` and `burst`",
  concurrency_limited: "a client exceeds the `concurrency` of a route's limit",
  connections_limited: "a client exceeds the `connections` of a limit",
  out_of_resources: "raise `LimitNOFILE`, or free local ports",
  memory_short: "add memory, or raise `instance.memory-max`",
  connect_refused: "start the backend",
};

/** Every fact that an operator has to know, the worst first. Rates come from `rates()`. */
export function facts(status: Status, health: Health | null, rates: Map<string, number> | null): Fact[] {
  const found = [
    ...ofProcess(status), ...ofPools(status.pools), ...ofRefusals(rates), ...ofDns(status), ...ofPacket(status),
    ...ofCertificates(status), ...ofControl(status), ...ofStreams(status), ...ofHealth(health, status),
  ];
  const rank = (fact: Fact) => (fact.severity === "bad" ? 0 : 1);
  return found.sort((a, b) => rank(a) - rank(b));
}

function bad(text: string, remedy: string, view: string): Fact {
  return { severity: "bad", text, remedy, view };
}

function warn(text: string, remedy: string, view: string): Fact {
  return { severity: "warn", text, remedy, view };
}

function* ofProcess(status: Status): Generator<Fact> {
  if (status.phase === "stopping") {
    yield bad("The process is stopping", "it finishes its work and takes no more", "events");
  }
  const reload = status.last_reload;
  if (reload && !reload.succeeded) {
    const first = reload.errors?.[0] ?? "no reason was given";
    yield warn(`The last reload failed: ${first}`,
      `the earlier configuration is in force; correct ${status.config_file} and reload`, "configuration");
  }
}

function* ofPools(pools: Pool[]): Generator<Fact> {
  for (const pool of pools) {
    const failing = pool.backends.filter((backend) => backend.state === "unhealthy");
    const of = `${count(failing.length, "backend")} of ${pool.backends.length}`;
    if (pool.backends.length > 0 && pool.backends_eligible === 0) {
      const drained = pool.backends.find((backend) => backend.admin !== "up");
      yield bad(`Pool ${pool.name} has no backend that takes work${because(failing[0])}`,
        drained ? `undrain ${pool.name}/${drained.name}, or start a backend` : "start a backend, or see what its checks get",
        `backends?pool=${pool.name}`);
    } else if (failing.length > 0) {
      yield warn(`${of} in pool ${pool.name} ${failing.length === 1 ? "is" : "are"} unhealthy${because(failing[0])}`,
        "the others serve; see what its checks get", `backends?pool=${pool.name}`);
    }
    if ((pool.queued ?? 0) > 0) {
      yield warn(`${count(pool.queued ?? 0, "request")} wait for a backend of pool ${pool.name}`,
        "every backend is at its limit: add backends or raise `concurrency`", `backends?pool=${pool.name}`);
    }
    if (pool.source?.problem) {
      yield warn(`The source of pool ${pool.name} fails: ${pool.source.problem}`,
        `its last good set is in use; see ${pool.source.source}`, "pools");
    }
    const lost = pool.backends.find((backend) => backend.multiplexing_lost);
    if (lost) {
      yield warn(`${pool.name}/${lost.name} lost multiplexing: it sent bytes that cannot be framed`,
        "repair the backend, then drain and undrain it", `backends?pool=${pool.name}`);
    }
  }
}

function because(backend: Backend | undefined): string {
  if (!backend) return "";
  return `: ${backend.name}${backend.health_detail ? `, ${backend.health_detail}` : ""}`;
}

function* ofRefusals(rates: Map<string, number> | null): Generator<Fact> {
  for (const level of ["session", "packet", "dns"]) {
    for (const [word, rate] of under(rates, `${level}.refused.`)) {
      // A pool without backends is a fact already.
      if (OF_CLIENTS.has(word) || word === "no_backend" || rate < 0.05) continue;
      yield bad(`The ${level} level refuses ${number(rate)}/s: ${reason(word)}`,
        REMEDIES[word] ?? "docs/operations/drops.md says what to look at", "overview");
    }
  }
}

function* ofDns(status: Status): Generator<Fact> {
  for (const name of status.dns?.names ?? []) {
    if (name.fail_open) {
      yield bad(`No backend of the name ${name.name} serves; its answers have backends that do not`,
        "start one of its backends", "backends");
    }
  }
}

function* ofPacket(status: Status): Generator<Fact> {
  const packet = status.packet;
  if (!packet) return;
  for (const { name, state, detail } of packet.interfaces) {
    if (state === "failed" || state === "absent") {
      yield bad(`The packet program is not on ${name}${detail ? `: ${detail}` : ""}`, `bring up the interface ${name}`, "flows");
    }
  }
  for (const { vip, source_addresses: sources = [] } of packet.vips) {
    const absent = sources.find((it) => it.state === "absent");
    if (!absent) continue;
    const remedy = `give ${absent.address} to an interface: \`ip addr add\``;
    if (sources.some((it) => it.state === "own")) {
      yield warn(`This machine lacks the source address ${absent.address} of ${vip}`, remedy, "flows");
    } else {
      yield bad(`This machine has no source address of ${vip}`, remedy, "flows");
    }
  }
  if (packet.flows >= packet.flows_max * 0.9) {
    yield warn(`${number(packet.flows)} of ${number(packet.flows_max)} flows are in use`, "raise `[flows] max`", "flows");
  }
}

function* ofCertificates(status: Status): Generator<Fact> {
  const doors = status.front_doors.map((door) => [door.name, door.tls] as const);
  for (const [name, tls] of [...doors, ["the API", status.api_tls] as const]) {
    for (const certificate of tls?.certificates ?? []) {
      const { subject, days_left: days, problem, chain } = certificate;
      if (days < 0) yield bad(`The certificate ${subject} of ${name} expired ${count(-days, "day")} ago`, `replace ${chain}`, "pools");
      else if (days < CERTIFICATE_DAYS) yield warn(`The certificate ${subject} of ${name} expires in ${count(days, "day")}`, `replace ${chain}`, "pools");
      if (problem) yield warn(`The new certificate of ${name} cannot be used: ${problem}`, `correct ${chain}; the earlier one is in use`, "pools");
    }
    for (const automatic of tls?.automatic ?? []) {
      if (automatic.last_error) {
        yield warn(`The certificate of ${automatic.name} was not issued: ${automatic.last_error}`, "it is tried again by itself", "pools");
      }
    }
  }
}

function* ofControl(status: Status): Generator<Fact> {
  const controller = status.controller;
  if (controller?.problem) yield warn(controller.problem, controller.remedy ?? "see the log", "elastic");
  for (const problem of status.cluster?.problems ?? []) yield warn(problem, "see `equipoise cluster members`", "nodes");
}

function* ofStreams(status: Status): Generator<Fact> {
  for (const stream of status.streams ?? []) {
    if (stream.problem) yield warn(`Stream ${stream.name}: ${stream.problem}`, "see the slices", "slices");
    if (stream.leading && stream.slices_unowned > 0) {
      yield bad(`No worker owns ${count(stream.slices_unowned, "slice")} of stream ${stream.name}`, "start a worker", "slices");
    }
  }
}

/** Degraded parts that no other fact explains. */
function* ofHealth(health: Health | null, status: Status): Generator<Fact> {
  for (const part of health?.degraded ?? []) {
    if (part === "controller" && status.controller?.problem) continue;
    if (part === "discovery") continue;
    yield warn(`Degraded: ${part}`, "traffic goes on; the log has the reason", "events");
  }
}

/** The sentence on top. */
export function headline(found: Fact[], silentSeconds: number): Fact | null {
  if (silentSeconds > 0) {
    return bad(`No answer from equipoise for ${age(silentSeconds)}`,
      "the figures below are old; the page tries again by itself", "overview");
  }
  return found[0] ?? null;
}
