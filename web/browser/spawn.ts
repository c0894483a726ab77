// Processes of tests.

import { spawn, type ChildProcessByStdio } from "node:child_process";
import type { Readable } from "node:stream";

/**
 * Starts a program, whose output is read. It is asked to end when the tests end in whatever way: a
 * process that is left over checks ports on which a later test listens.
 */
export function start(program: string, args: string[]): ChildProcessByStdio<null, Readable, Readable> {
  return spawn("setpriv", ["--pdeathsig", "TERM", program, ...args], { stdio: ["ignore", "pipe", "pipe"] });
}
