// A real equipoise under load: backends and clients are in this process.

import type { ChildProcess } from "node:child_process";
import { createSocket } from "node:dgram";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { Agent, createServer, get as httpGet, type Server, type ServerResponse } from "node:http";
import { connect, createServer as createTcp, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

import { start } from "./spawn";

export const PROGRAM = process.env.EQUIPOISE ?? resolve(import.meta.dirname, "../../target/debug/equipoise");

/** Tokens by role. */
export const TOKENS = {
  read: "read-0123456789abcdef0123456789abcdef",
  operate: "operate-0123456789abcdef0123456789abcdef",
  admin: "admin-0123456789abcdef0123456789abcdef",
};

export interface Options {
  backends: number;
  /** Without tokens, TCP is read-only. */
  tokens?: boolean;
  /** A further pool, whose backends the controller adds and removes. */
  elastic?: boolean;
  /** Further front doors, for TCP and for names, and a route. */
  doors?: boolean;
  /** The API may replace the configuration file. */
  writable?: boolean;
  /** Further tables; `folder` is for their files. */
  further?: (folder: string) => string;
  /** Interval of the health checks. */
  interval?: string;
}

export class Rig {
  readonly folder = mkdtempSync(join(tmpdir(), "equipoise-dashboard-"));
  readonly file = join(this.folder, "equipoise.toml");
  /** Answers to `/hold` that wait for `release`. */
  readonly held: ServerResponse[] = [];
  /** Indexes of the backends that fail their health checks; index 0 is `b1`. */
  readonly sick = new Set<number>();
  api = "";
  front = "";
  /** Address and port of the front door for TCP. */
  tcp = "";
  pid = 0;
  log = "";

  #servers: Server[] = [];
  #process: ChildProcess | null = null;
  #agent = new Agent({ keepAlive: true });
  #isLoading = true;

  static async start(options: Options): Promise<Rig> {
    const rig = new Rig();
    const ports = await Promise.all(Array.from({ length: options.backends }, (_, index) => rig.#backend(index)));
    const [api, front, tcp, dns] = [await freePort(), await freePort(), await freePort(), await freeDnsPort()];
    rig.api = `http://127.0.0.1:${api}`;
    rig.front = `http://127.0.0.1:${front}`;
    rig.tcp = `127.0.0.1:${tcp}`;
    const doors = options.doors ? furtherDoors(rig.tcp, dns, ports.length) : "";
    writeFileSync(rig.file, configuration(rig.folder, api, front, ports, options) + doors + (options.further?.(rig.folder) ?? ""));
    await rig.run();
    return rig;
  }

  /** Starts the process, and waits until its API answers. */
  async run(): Promise<void> {
    const child = start(PROGRAM, ["run", this.file]);
    for (const output of [child.stdout, child.stderr]) output.on("data", (text) => (this.log += text));
    this.#process = child;
    this.pid = child.pid!;
    await eventually(async () => (await fetch(`${this.api}/v1/health`)).status === 200, () => this.log);
  }

  /** Ends the process, and waits for its end. */
  async end(): Promise<void> {
    const child = this.#process;
    if (!child || child.exitCode !== null) return;
    const ended = new Promise((done) => child.once("exit", done));
    child.kill("SIGTERM");
    await ended;
  }

  async stop(): Promise<void> {
    this.#isLoading = false;
    this.release();
    await this.end();
    this.#agent.destroy();
    for (const server of this.#servers) server.close().closeAllConnections();
    rmSync(this.folder, { recursive: true });
  }

  /** Keeps `clients` requests in flight until the rig stops. */
  load(clients: number): void {
    for (let client = 0; client < clients; client += 1) void this.#ask();
  }

  async #ask(): Promise<void> {
    while (this.#isLoading) {
      // A request fails while the process is restarted.
      await this.request("/").catch(() => new Promise((next) => setTimeout(next, 100)));
    }
  }

  request(path: string): Promise<number> {
    return new Promise((done, fail) => {
      const request = httpGet(this.front + path, { agent: this.#agent }, (response) => {
        response.resume().on("end", () => done(response.statusCode!)).on("error", fail);
      });
      request.on("error", fail);
    });
  }

  /** Answers every held request. */
  release(): void {
    for (const response of this.held.splice(0)) response.end("released");
  }

  /** Sends bytes that are no request, and waits until the connection is closed. */
  sendRaw(text: string): Promise<void> {
    const { hostname, port } = new URL(this.front);
    return new Promise((done, fail) => {
      const socket = connect(Number(port), hostname, () => socket.end(text));
      socket.on("error", fail).on("close", () => done()).resume();
    });
  }

  /** Asks the API past the page. */
  async read(path: string): Promise<any> {
    return this.change("GET", path);
  }

  /** Changes something past the page. */
  async change(method: string, path: string, body?: unknown): Promise<any> {
    const headers = { Authorization: `Bearer ${TOKENS.admin}`, "Content-Type": "application/json" };
    const response = await fetch(this.api + path, { method, headers, body: body === undefined ? null : JSON.stringify(body) });
    const answer = await response.json();
    if (!response.ok) throw new Error(`${method} ${path}: ${JSON.stringify(answer)}`);
    return answer;
  }

  async #backend(index: number): Promise<number> {
    const server = createServer((request, response) => {
      if (request.url === "/hold") this.held.push(response);
      else if (request.url === "/health" && this.sick.has(index)) response.writeHead(503).end();
      else setTimeout(() => response.end("ok"), 4 + (index % 5) * 4);
    });
    this.#servers.push(server);
    return listening(server);
  }
}

/** Tables of the API with a caller of each role. */
export function tokenTables(folder: string): string {
  const table = (role: string, token: string) => {
    const file = join(folder, `${role}.token`);
    writeFileSync(file, token, { mode: 0o600 });
    return `[[api.token]]\nname = "${role}"\nrole = "${role}"\nfile = "${file}"\n`;
  };
  return Object.entries(TOKENS).map(([role, token]) => table(role, token)).join("");
}

function configuration(folder: string, api: number, front: number, backends: number[], options: Options): string {
  const list = backends.map((port, index) => `  { name = "b${index + 1}", address = "127.0.0.1:${port}" },`);
  return `
[api]
socket = "${join(folder, "api.sock")}"
listen = "127.0.0.1:${api}"
auth-failures = 1000
${options.writable ? "write-config = true" : ""}
${options.tokens ? tokenTables(folder) : ""}
[instance]
name = "edge-1"
threads = 1

[shutdown]
grace = "1s"

[[pool]]
name = "web"
scheduler = "weighted-least-connection"
concurrency = 50
health = { http = "/health", interval = "${options.interval ?? "2s"}" }
backends = [
${list.join("\n")}
]

[[session]]
name = "door"
listen = "127.0.0.1:${front}"
protocol = "http"
pool = "web"
${options.doors ? ROUTE : ""}
${options.elastic ? elasticPool(folder) : ""}`;
}

/** A route of the front door above it. */
const ROUTE = `
[[session.route]]
name = "gone"
path-prefix = "/gone"
answer = { status = 410 }
`;

function furtherDoors(tcp: string, dns: number, backends: number): string {
  const nodes = Array.from({ length: backends }, (_, index) => `{ backend = "b${index + 1}", addresses = "192.0.2.${11 + index}" }`);
  return `
[[session]]
name = "stream"
listen = "${tcp}"
protocol = "tcp"
pool = "web"

[[dns]]
zone = "cluster.example."
listen = "127.0.0.1:${dns}"
pool = "web"
ns = [{ name = "ns1", addresses = "192.0.2.1" }]
names = ["www"]
nodes = [${nodes.join(", ")}]
`;
}

function elasticPool(folder: string): string {
  const command = [PROGRAM, "sample-backend", "--name", "{name}", "--http", "{port}"];
  return `
[controller]
state = "${join(folder, "state")}"

[[pool]]
name = "app"

[pool.elastic]
min = 1
max = 3
target-concurrency = 10
warm-up = "0s"
[pool.elastic.process]
command = ${JSON.stringify(command)}
`;
}

export function listening(server: Server | ReturnType<typeof createTcp>): Promise<number> {
  return new Promise((done) => server.listen(0, "127.0.0.1", () => done((server.address() as AddressInfo).port)));
}

export async function freePort(): Promise<number> {
  const server = createTcp();
  const port = await listening(server);
  await new Promise((done) => server.close(done));
  return port;
}

/** A port that is free for TCP and for UDP. */
async function freeDnsPort(): Promise<number> {
  for (;;) {
    const port = await freePort();
    const socket = createSocket("udp4");
    const isFree = await new Promise<boolean>((done) => {
      socket.once("error", () => done(false)).bind(port, "127.0.0.1", () => done(true));
    });
    if (isFree) await new Promise<void>((done) => socket.close(done));
    if (isFree) return port;
  }
}

/** Waits until `is` holds; it does not hold while it throws. */
export async function eventually(is: () => Promise<boolean>, why: () => string = () => "", seconds = 30): Promise<void> {
  const end = Date.now() + seconds * 1000;
  while (!(await is().catch(() => false))) {
    if (Date.now() > end) throw new Error(`not within ${seconds} s: ${is}\n${why()}`);
    await new Promise((next) => setTimeout(next, 50));
  }
}
