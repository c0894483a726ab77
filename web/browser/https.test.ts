// Chromium as a client of a front door with TLS: HTTP/2 by ALPN, and WebSockets over it.

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { createServer, type Server } from "node:http";
import { join } from "node:path";

import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { launch } from "./chromium";
import { freePort, listening, Rig } from "./rig";

/** The text that a server appends to a WebSocket's key (RFC 6455, section 1.3). */
const WEBSOCKET = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

let browser: Browser;
let rig: Rig;
let backend: Server;
let origin: string;

beforeAll(async () => {
  backend = createServer((request, response) => {
    const length = { "Content-Type": "text/html", "X-Protocol": request.headers["x-forwarded-proto"] ?? "none" };
    let body = "";
    request.on("data", (text) => (body += text)).on("end", () => response.writeHead(200, length).end(`<p>${request.method} ${body}</p>`));
  });
  backend.on("upgrade", (request, socket) => {
    // The connection ends with the browser.
    socket.on("error", () => socket.destroy());
    const accept = createHash("sha1").update(request.headers["sec-websocket-key"] + WEBSOCKET).digest("base64");
    socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`);
    // A text message that is whole and not masked.
    socket.write(Buffer.concat([Buffer.from([0x81, 5]), Buffer.from("hello")]));
  });
  const [port, door] = [await listening(backend), await freePort()];
  origin = `https://127.0.0.1:${door}`;
  rig = await Rig.start({ backends: 1, tokens: true, further: (folder) => {
    const [chain, key] = [join(folder, "site.pem"), join(folder, "site.key")];
    execFileSync("openssl", ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30",
      "-subj", "/CN=site", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", chain], { stdio: "ignore" });
    return `
[[session]]
name = "https"
listen = "127.0.0.1:${door}"
protocol = "http"
pool = "site"
http2 = true
tls = { certificates = [{ chain = "${chain}", key = "${key}" }] }

[[pool]]
name = "site"
backends = ["127.0.0.1:${port}"]
`;
  } });
  browser = await launch();
});

afterAll(async () => {
  await browser?.close();
  await rig?.stop();
  backend?.close().closeAllConnections();
});

test("a browser speaks HTTP/2, sends a body, and opens a WebSocket on the same connection", async () => {
  const context = await browser.newContext({ ignoreHTTPSErrors: true });
  const page = await context.newPage();
  const response = await page.goto(`${origin}/`);
  expect(response!.status()).toBe(200);
  expect(response!.headers()["x-protocol"]).toBe("https");
  const protocol = await page.evaluate(() => (performance.getEntriesByType("navigation")[0] as PerformanceResourceTiming).nextHopProtocol);
  expect(protocol).toBe("h2");
  const answer = await page.evaluate(async () => (await fetch("/form", { method: "POST", body: "x".repeat(200_000) })).text());
  expect(answer).toBe(`<p>POST ${"x".repeat(200_000)}</p>`);
  const message = await page.evaluate(() => new Promise((done, fail) => {
    const socket = new WebSocket(`wss://${location.host}/socket`);
    socket.onmessage = (event) => done(event.data);
    socket.onerror = () => fail(new Error("the WebSocket failed"));
  }));
  expect(message).toBe("hello");
  const status = await rig.read("/v1/status");
  const door = status.front_doors.find((one: any) => one.name === "https");
  expect(door.tls.handshakes_total).toBe(1);
  await context.close();
});
