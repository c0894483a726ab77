// Requests to the API, with the operator's token.

/** A refusal: `application/problem+json` (RFC 9457). */
export class Refused extends Error {
  constructor(readonly status: number, detail: string, readonly errors: string[]) {
    super(detail);
  }
}

/** A time without an answer after which a request is given up, in milliseconds. */
const TIMEOUT = 10_000;
const STORED = "equipoise-token";

/** The token, which this tab keeps until it is closed. */
let token = sessionStorage.getItem(STORED);

export function setToken(next: string | null): void {
  token = next;
  if (next) sessionStorage.setItem(STORED, next);
  else sessionStorage.removeItem(STORED);
}

export function hasToken(): boolean {
  return token !== null;
}

/** Sends a request. The caller reads the body. */
export async function send(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  if (token) headers.set("Authorization", `Bearer ${token}`);
  const response = await fetch(path, { ...init, headers, credentials: "same-origin", cache: "no-store" });
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  throw new Refused(response.status, problem.detail ?? `${path} was answered with ${response.status}`, problem.errors ?? []);
}

/** Reads a document. */
export async function get<T>(path: string): Promise<T> {
  return (await tagged<T>(path)).document;
}

/** Reads a document and the tag of its state, for `ifMatch`. */
export async function tagged<T>(path: string): Promise<{ document: T; tag: string }> {
  const response = await send(path, { signal: AbortSignal.timeout(TIMEOUT) });
  return { document: (await response.json()) as T, tag: response.headers.get("ETag") ?? "" };
}

/** Sends a change or a question with a JSON body, and reads the answer. */
export async function change<T>(method: string, path: string, body?: unknown): Promise<T> {
  return (await changed(method, path, body)).json() as Promise<T>;
}

/** Sends a change. With `ifMatch`, it is refused if the resource has another state. Returns the tag of the new state. */
export async function changeIf(method: string, path: string, body?: unknown, ifMatch?: string): Promise<string> {
  return (await changed(method, path, body, ifMatch)).headers.get("ETag") ?? "";
}

function changed(method: string, path: string, body?: unknown, ifMatch?: string): Promise<Response> {
  const headers: Record<string, string> = ifMatch ? { "If-Match": ifMatch } : {};
  const init: RequestInit = { method, headers, signal: AbortSignal.timeout(6 * TIMEOUT) };
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    init.body = JSON.stringify(body);
  }
  return send(path, init);
}
