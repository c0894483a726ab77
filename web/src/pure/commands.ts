// Changes and questions of the page: each with its request, its command and its curl.

import type { Role } from "../api/types";

export interface Action {
  /** The button's word. */
  verb: string;
  /** The object, such as `web/b1`. */
  subject: string;
  /** What it does. */
  effect: string;
  /** The role that it needs. */
  role: Role;
  command: string;
  method: "POST" | "PUT" | "DELETE";
  path: string;
  body?: unknown;
  /** The tag of the state that the operator has seen: another one refuses the action. */
  ifMatch?: string;
  /** The action that takes it back. */
  undo?: Action;
}

type Wish = Omit<Action, "role" | "method"> & Partial<Pick<Action, "role" | "method">>;

function action(wish: Wish): Action {
  return { role: "operate", method: "POST", ...wish };
}

function backendPath(pool: string, backend: string): string {
  return `/v1/pools/${encodeURIComponent(pool)}/backends/${encodeURIComponent(backend)}`;
}

export function drain(pool: string, backend: string): Action {
  const subject = `${pool}/${backend}`;
  return action({
    verb: "Drain", subject, effect: "It gets no new work, and finishes its current work.",
    command: `equipoise drain ${quote(subject)}`, path: `${backendPath(pool, backend)}/drain`,
    undo: undrain(pool, backend),
  });
}

export function undrain(pool: string, backend: string): Action {
  const subject = `${pool}/${backend}`;
  return action({
    verb: "Undo drain", subject, effect: "It gets new work again.",
    command: `equipoise undrain ${quote(subject)}`, path: `${backendPath(pool, backend)}/undrain`,
  });
}

export function enable(pool: string, backend: string): Action {
  const subject = `${pool}/${backend}`;
  return action({
    verb: "Enable", subject, effect: "It gets new work again.",
    command: `equipoise enable ${quote(subject)}`, path: `${backendPath(pool, backend)}/enable`,
  });
}

export function weight(pool: string, backend: string, now: number, next: number): Action {
  const subject = `${pool}/${backend}`;
  return action({
    verb: "Set weight", subject, effect: `Its weight is ${now} now. A weight of 0 drains.`,
    command: `equipoise weight ${quote(subject)} ${next}`, method: "PUT",
    path: `${backendPath(pool, backend)}/weight`, body: { weight: next },
    ...(now === next ? {} : { undo: weight(pool, backend, now, now) }),
  });
}

export function drainNode(node: string): Action {
  return action({
    verb: "Drain", subject: node, effect: "Names' answers leave it out, and no request is delegated to it.",
    command: `equipoise drain ${quote(node)}`, path: `/v1/nodes/${encodeURIComponent(node)}/drain`,
    undo: undrainNode(node),
  });
}

export function undrainNode(node: string): Action {
  return action({
    verb: "Undo drain", subject: node, effect: "It gets clients again.",
    command: `equipoise undrain ${quote(node)}`, path: `/v1/nodes/${encodeURIComponent(node)}/undrain`,
  });
}

export function drainWorker(stream: string, worker: string): Action {
  return action({
    verb: "Drain", subject: `${stream}/${worker}`, effect: "Its slices move to other workers.",
    command: `equipoise slice drain ${quote(worker)} --stream ${quote(stream)}`, path: `${workerPath(stream, worker)}/drain`,
    undo: undrainWorker(stream, worker),
  });
}

export function undrainWorker(stream: string, worker: string): Action {
  return action({
    verb: "Undo drain", subject: `${stream}/${worker}`, effect: "It gets slices again.",
    command: `equipoise slice undrain ${quote(worker)} --stream ${quote(stream)}`, path: `${workerPath(stream, worker)}/undrain`,
  });
}

function workerPath(stream: string, worker: string): string {
  return `/v1/slices/${encodeURIComponent(stream)}/workers/${encodeURIComponent(worker)}`;
}

function poolPlan(pool: string, verb: string, effect: string, command: string, body: unknown): Action {
  return action({
    verb, subject: pool, effect, command: `equipoise plan ${command}`, method: "PUT",
    path: `/v1/plan/pools/${encodeURIComponent(pool)}`, body,
  });
}

export function pinPool(pool: string, count: number): Action {
  return poolPlan(pool, "Pin size", "It keeps this number of backends, independent of its load.",
    `pin ${quote(pool)} ${count}`, { mode: "pinned", count });
}

export function pausePool(pool: string, pinned: number | null | undefined): Action {
  const undo = resumePool(pool, pinned);
  return { ...poolPlan(pool, "Pause", "Its size stays; plans still show what they would do.",
    `pause ${quote(pool)}`, { mode: "paused" }), undo };
}

/** Ends a pause. The pin that was kept takes effect again. */
export function resumePool(pool: string, pinned: number | null | undefined): Action {
  const body = pinned == null ? { mode: "auto" } : { mode: "pinned", count: pinned, force: true };
  return poolPlan(pool, "Resume", pinned == null ? "The planner decides its size again." : `It is pinned at ${pinned} again.`,
    `resume ${quote(pool)}`, body);
}

export function reload(file: string): Action {
  return action({
    verb: "Reload", subject: file, effect: "The process reads its file again, completely or not at all.",
    role: "admin", command: "equipoise reload", path: "/v1/reload",
  });
}

/** Replaces the text of the file that has the tag. */
export function apply(file: string, tag: string, toml: string): Action {
  return action({
    verb: "Apply", subject: file, effect: "The process replaces the file with this text and reloads it. If the reload fails, it restores the file. The button, unlike the command, is refused if the file has changed since the page read it.",
    role: "admin", command: `printf %s ${quote(toml)} | equipoise reload --with -`, method: "PUT",
    path: "/v1/config/text", body: { toml }, ifMatch: tag, undo: rollBack(file),
  });
}

/** Restores the previous text. */
export function rollBack(file: string, tag?: string): Action {
  return action({
    verb: "Roll back", subject: file,
    effect: "The process restores the previous text of the file and reloads it. A second roll-back reverses the first.",
    role: "admin", command: "equipoise reload --back", path: "/v1/config/roll-back",
    ...(tag ? { ifMatch: tag } : {}),
  });
}

/** A request that only reads, with its command. */
export interface Question {
  command: string;
  method: "GET" | "POST";
  path: string;
  body?: unknown;
}

/** Where the next packet of a flow goes. */
export function flow(source: string, vip: string): Question {
  return {
    command: `equipoise flow ${quote(source)} ${quote(vip)}`, method: "GET",
    path: `/v1/flow?${new URLSearchParams({ source, vip })}`,
  };
}

/** The text of the configuration file. */
export function readFile(file: string): Question {
  return { command: `cat ${quote(file)}`, method: "GET", path: "/v1/config/text" };
}

/** The check of a text; without one, of the file on the disk. */
export function check(file: string, toml?: string): Question {
  const command = toml === undefined ? `equipoise check ${quote(file)}` : `printf %s ${quote(toml)} | equipoise check -`;
  return { command, method: "POST", path: "/v1/config/check", body: toml === undefined ? {} : { toml } };
}

/** The same request by curl, with the token from a file. */
export function curl(action: Pick<Action, "path" | "body" | "ifMatch"> & { method: string }, origin: string): string {
  // Without a body and a method, curl sends a GET.
  const method = action.method === "GET" ? [] : ["-X", action.method];
  const parts = ["curl", ...method, "-H", '"Authorization: Bearer $(cat TOKEN_FILE)"'];
  if (action.ifMatch) parts.push("-H", quote(`If-Match: ${action.ifMatch}`));
  if (action.body !== undefined) {
    parts.push("-H", "'Content-Type: application/json'", "-d", quote(JSON.stringify(action.body)));
  }
  return [...parts, quote(origin + action.path)].join(" ");
}

/** A word for a shell. */
export function quote(word: string): string {
  return /^[\w./:@%+=,-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
