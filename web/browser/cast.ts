// Real processes that a test starts beside each other: members of a cluster, workers, hosts of the packet level.

import { execFileSync, type ChildProcess } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer, type AddressInfo, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { eventually } from "./rig";
import { start } from "./spawn";

export class Cast {
  readonly folder = mkdtempSync(join(tmpdir(), "equipoise-cast-"));

  #processes: { child: ChildProcess; log: string }[] = [];
  #namespaces: string[] = [];
  #servers: Server[] = [];

  path(name: string): string {
    return join(this.folder, name);
  }

  write(name: string, text: string): string {
    writeFileSync(this.path(name), text, { mode: 0o600 });
    return this.path(name);
  }

  /** Runs a command to its end. Returns what it prints. */
  run(program: string, ...args: string[]): string {
    return execFileSync(program, args, { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
  }

  /** Starts a command, and waits until it prints `ready`. */
  async start(ready: string, program: string, ...args: string[]): Promise<void> {
    const child = start(program, args);
    const one = { child, log: "" };
    this.#processes.push(one);
    child.on("error", (error) => (one.log += String(error)));
    for (const output of [child.stdout, child.stderr]) output.on("data", (text) => (one.log += text));
    await eventually(async () => one.log.includes(ready), () => `${program} ${args.join(" ")}\n${one.log}`, 60);
  }

  /** Makes a network namespace. */
  namespace(name: string): string {
    const unique = `eq${process.pid}${name}`;
    this.run("ip", "netns", "add", unique);
    this.#namespaces.push(unique);
    return unique;
  }

  /** An address of this machine at which a unix socket answers. */
  async proxy(socket: string): Promise<string> {
    const server = createServer((client) => {
      const behind = connect(socket);
      client.pipe(behind).pipe(client);
      client.on("error", () => behind.destroy());
      behind.on("error", () => client.destroy());
    });
    this.#servers.push(server);
    await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  }

  /** Ends all processes, the last one first. */
  async stop(): Promise<void> {
    for (const server of this.#servers) server.close();
    for (const { child } of this.#processes.reverse()) {
      if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) continue;
      const ended = new Promise((done) => child.once("exit", done));
      child.kill("SIGTERM");
      await ended;
    }
    for (const name of this.#namespaces) this.run("ip", "netns", "delete", name);
    rmSync(this.folder, { recursive: true });
  }
}
