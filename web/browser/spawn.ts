// Processes of tests.

import { spawn, type ChildProcessByStdio } from "node:child_process";
import type { Readable } from "node:stream";

/**
 * Starts a program and returns it with pipes of its output. The kernel sends it SIGTERM when the process of the
 * tests ends, also if that is killed: a process that is left over checks ports on which a later test listens.
 */
export function start(program: string, args: string[]): ChildProcessByStdio<null, Readable, Readable> {
  return spawn("setpriv", ["--pdeathsig", "TERM", program, ...args], { stdio: ["ignore", "pipe", "pipe"] });
}
