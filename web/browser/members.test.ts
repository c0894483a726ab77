// Nodes of a real cluster, workers of a real stream, and the packet level between namespaces.

import { spawn } from "node:child_process";

import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";

import { Cast } from "./cast";
import { axe, launch, login, open } from "./chromium";
import { freePort, PROGRAM, TOKENS, tokenTables } from "./rig";

const IS_ROOT = process.getuid?.() === 0;
const VIP = "192.0.2.10:53/udp";

let browser: Browser;
let cast: Cast;

beforeAll(async () => {
  browser = await launch();
});

beforeEach(() => {
  cast = new Cast();
});

afterEach(async () => {
  for (const context of browser.contexts()) await context.close();
  await cast.stop();
});

afterAll(async () => {
  await browser?.close();
});

/** Starts a controller with a stream, two nodes and two workers. Returns the address of the controller's API. */
async function cluster(): Promise<string> {
  const [api, port] = [await freePort(), await freePort()];
  const of = (name: string, listen: string, cluster: string, more = "") =>
    cast.write(`${name}.toml`, `
[instance]
name = "${name}"
threads = 1

[api]
socket = "${cast.path(`${name}.sock`)}"
listen = "${listen}"
${more}
[controller]
state = "${cast.path(name)}"

[cluster]
state = "${cast.path(name)}"
${cluster}
`);
  const stream = `
[[slice]]
name = "images"
slices = 8
domain = 211
interfaces = "lo"
`;
  const store = `listen = "127.0.0.1:${port}"\nstore = {}\n${stream}`;
  const controller = of("c1", `127.0.0.1:${api}`, store, tokenTables(cast.folder));
  cast.run(PROGRAM, "cluster", "init", "--config", controller);
  await cast.start(" ready ", PROGRAM, "run", controller);
  for (const name of ["n1", "n2"]) {
    const token = cast.write(`${name}.token`, cast.run(PROGRAM, "cluster", "token", "create", "--config", controller));
    const node = of(name, "off", `controllers = "127.0.0.1:${port}"\njoin-token-file = "${token}"`);
    await cast.start(" ready ", PROGRAM, "run", node);
  }
  for (const name of ["w1", "w2"]) {
    const program = [PROGRAM, "sample-worker", "--image-ms", "1", "--log", cast.path(`${name}.done`)];
    await cast.start("", PROGRAM, "slice", "worker", "--name", name, "--config", controller, "--", ...program);
  }
  return `http://127.0.0.1:${api}`;
}

/** Starts the packet level in a namespace, with a client in another one. Returns the address of its API, and the client's namespace. */
async function packets(): Promise<[string, string]> {
  const [balancer, client] = [cast.namespace("b"), cast.namespace("c")];
  cast.run("ip", "link", "add", "b0", "netns", balancer, "type", "veth", "peer", "name", "c0", "netns", client);
  for (const [host, link, address] of [[balancer, "b0", "198.51.100.1/24"], [client, "c0", "198.51.100.2/24"]] as const) {
    cast.run("ip", "-n", host, "address", "add", address, "dev", link);
    cast.run("ip", "-n", host, "link", "set", link, "up");
    cast.run("ip", "-n", host, "link", "set", "lo", "up");
  }
  cast.run("ip", "-n", client, "route", "add", "192.0.2.0/24", "via", "198.51.100.1");
  const file = cast.write("packet.toml", `
[instance]
name = "edge"
threads = 1

[api]
socket = "${cast.path("packet.sock")}"
listen = "off"

[[pool]]
name = "names"
backends = [{ name = "ns1", address = "198.51.100.2:53" }]

[[packet]]
vip = "${VIP}"
interface = "b0"
forward = "direct-routing"
pool = "names"

[flows]
max = 4096
`);
  await cast.start(" ready ", "ip", "netns", "exec", balancer, "env", `RUNTIME_DIRECTORY=${cast.path("run")}`, PROGRAM, "run", file);
  return [await cast.proxy(cast.path("packet.sock")), client];
}

/** Asks an API past the page. */
async function read(api: string, path: string): Promise<any> {
  return (await fetch(api + path, { headers: { Authorization: `Bearer ${TOKENS.admin}` } })).json();
}

async function confirm(page: Page, button: string): Promise<void> {
  await page.getByRole("dialog").getByRole("button", { name: button }).click();
}

test("nodes of a cluster and workers of a stream are shown, drained and undrained", async () => {
  const api = await cluster();
  const { page, errors } = await open(browser, `${api}/#nodes`);
  await login(page, TOKENS.admin);
  const nodes = page.getByRole("region", { name: "Table of nodes" });
  const node = nodes.getByRole("row").filter({ has: page.getByRole("button", { name: "n1", exact: true }) });
  await node.getByText("alive").waitFor();
  await page.getByText("Leader: c1").waitFor();
  await nodes.getByRole("button", { name: "n2", exact: true }).waitFor();
  await page.getByRole("button", { name: "Drain node n1" }).click();
  await page.getByRole("dialog").getByText("equipoise drain n1").waitFor();
  await confirm(page, "Drain");
  await page.getByRole("button", { name: "Undo drain of node n1" }).waitFor();
  expect((await read(api, "/v1/nodes/n1")).admin).toBe("drain");

  // Reports of the node, the controller's forecast of them, and a mark for the change that comes now.
  await page.getByRole("button", { name: "n1", exact: true }).click();
  const chart = page.locator("figure.chart");
  await chart.getByText("Load of n1 in per cent").waitFor();
  await chart.getByText(/^CPU: [\d.]+ now; .*; CPU forecast: [\d.]+ now$/).waitFor({ state: "attached" });
  await page.getByRole("button", { name: "Undo drain of node n1" }).click();
  await page.getByRole("dialog").getByText("equipoise undrain n1").waitFor();
  await page.getByRole("dialog").getByText(`${api}/v1/nodes/n1/undrain`).waitFor();
  await confirm(page, "Undo drain");
  await page.getByRole("button", { name: "Drain node n1" }).waitFor();
  expect((await read(api, "/v1/nodes/n1")).admin).toBe("up");
  await chart.locator(".marks").getByText("POST /v1/nodes/n1/undrain").waitFor();
  expect(await axe(page)).toEqual([]);

  await page.goto(`${api}/#slices`);
  const workers = page.getByRole("region", { name: "Workers of images" });
  const row = (name: string, state: string) => workers.getByRole("row", { name }).filter({ hasText: state });
  await row("w1", "active").waitFor();
  await row("w2", "active").waitFor();
  const unowned = page.locator(".slices li.unowned");
  await expect.poll(() => unowned.count(), { timeout: 30_000 }).toBe(0);
  await page.getByRole("button", { name: "Drain w2" }).click();
  await confirm(page, "Drain");
  await page.getByRole("button", { name: "Undo drain of w2" }).waitFor();
  await expect.poll(() => page.locator('.slices li[title*="owner w1"]').count(), { timeout: 30_000 }).toBe(8);
  await page.getByText(/[1-9]\d* handovers moved slices/).waitFor();
  await page.getByText(/^Why nothing else moves: \S/).waitFor();
  await page.getByRole("button", { name: "Undo drain of w2" }).click();
  await confirm(page, "Undo drain");
  await page.getByRole("button", { name: "Drain w2" }).waitFor();
  expect(await axe(page)).toEqual([]);

  // Items of the stream: a slice, and keys.
  await page.goto(`${api}/#why`);
  for (const [item, lines] of [
    ["item images 3", ["stream images, slice 3", "slice 3: worker w"]],
    ["item images key=cat", ['stream images, key "cat"', "of 8, by the hash of the key"]],
    ["item images number=-3", ["stream images, key -3", "of 8, by the hash of the key"]],
  ] as const) {
    await page.getByLabel("What?").fill(item);
    await page.getByRole("button", { name: "Why?" }).click();
    await page.getByText(`equipoise why ${item}`, { exact: true }).waitFor();
    const answer = page.getByRole("region", { name: "Answer" });
    await answer.waitFor();
    for (const line of lines) expect(await answer.textContent()).toContain(line);
  }
  expect(errors).toEqual([]);
});

test.runIf(IS_ROOT)("flows of the packet level are counted and explained", async () => {
  const [api, client] = await packets();
  const { page, errors } = await open(browser, `${api}/#flows`);
  await page.getByText("b0 ").first().waitFor();
  const row = page.getByRole("row", { name: "ns1" });
  // Each command sends a datagram from a port of its own.
  const flood = setInterval(() => spawn("ip", ["netns", "exec", client, "bash", "-c", "echo > /dev/udp/192.0.2.10/53"]), 200);
  try {
    await expect.poll(async () => Number(await row.locator("td").last().textContent()), { timeout: 30_000 }).toBeGreaterThan(2);
  } finally {
    clearInterval(flood);
  }
  await page.getByLabel("Client").fill("198.51.100.2:40000");
  await page.getByLabel("VIP").fill(VIP);
  await page.getByRole("button", { name: "Explain" }).click();
  await page.getByRole("region", { name: "Answer" }).getByText("to names/ns1").waitFor();
  expect(decodeURIComponent(page.url())).toContain(`vip=${VIP}`);
  await page.getByText(`equipoise flow 198.51.100.2:40000 ${VIP}`, { exact: true }).waitFor();
  await page.getByText(`'${api}/v1/flow?source=198.51.100.2%3A40000&vip=192.0.2.10%3A53%2Fudp'`).waitFor();
  expect(await axe(page)).toEqual([]);
  expect(errors).toEqual([]);
});
