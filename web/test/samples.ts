// A small status for tests, with what each test changes.

import type { Backend, Status } from "../src/api/types";

const NO_RATES = { requests: 0, errors: 0, bytes_in: 0, bytes_out: 0 };
const NO_RESPONSES = { "1xx": 0, "2xx": 0, "3xx": 0, "4xx": 0, "5xx": 0 };

export function backend(name: string, changes: Partial<Backend> = {}): Backend {
  return {
    name, address: "10.0.0.1:80", weight: 1, admin: "up", health: "healthy", state: "up", in_flight: 0, flows: 0,
    requests_total: 0, responses: NO_RESPONSES, failures: {}, sessions_open: 0, sessions_opened_total: 0,
    sessions_reused_total: 0, multiplex_faults_total: 0,
    multiplex_shared_total: 0, multiplex_alone_total: 0, multiplex_handed_over_total: 0, multiplex_repeated_total: 0,
    multiplexing_lost: false, bytes_out_total: 0, bytes_in_total: 0, rates: NO_RATES, ...changes,
  };
}

export interface Wish {
  pid?: number;
  requests?: number;
  drops?: Record<string, number>;
  backends?: Backend[];
  queued?: number;
  changes?: Partial<Status>;
}

export function status({ pid = 1, requests = 0, drops = {}, backends = [backend("b1")], queued = 0, changes = {} }: Wish): Status {
  return {
    instance: "edge-1", version: "0.1.0", pid, phase: "running", uptime_seconds: 60, threads: 1,
    config_file: "/etc/equipoise/equipoise.toml", rates_over_seconds: 2,
    front_doors: [{
      name: "door", listen: "0.0.0.0:80", protocol: "http", pool: "web", pools: ["web"], connections_open: 3,
      connections_total: 9, requests_in_flight: 2, requests_total: requests, responses: NO_RESPONSES,
      bytes_in_total: 0, bytes_out_total: 0, retries_total: 0, accept_pauses_total: 0, drops, rates: NO_RATES,
    }],
    pools: [{
      name: "web", scheduler: "least-connection", upstream: "exclusive", queued, queue_waited_total: 0, queue_wait_seconds_total: 0, backends,
      backends_eligible: backends.filter((one) => one.state === "up").length,
    }],
    ...changes,
  };
}
