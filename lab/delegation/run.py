#!/usr/bin/env python3
"""What a delegated request costs on its way over kept-open HTTP/1.1 sessions, and what it would over HTTP/2.

A giver passes every request on to a taker, over mutual TLS 1.3, and the taker to an application. Equipoise speaks HTTP/1.1 between
nodes; what HTTP/2 would change is seen with a proxy that has both, HAProxy, as giver and taker, once with each. CPU is that of giver
and taker together, by the kernel's account, over the answers that wrk got; rounds ask all in turn.

    cargo build --profile dist -p equipoise && lab/delegation/run.py --seconds 5 --rounds 3
"""

import argparse
import asyncio
import csv
import json
import os
import pathlib
import platform
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What is asked, over how many connections: slow answers (200 ms), small ones, large ones.
CASES = {
    "200 at once, 200 ms each, 1 KB": ("/200/1024", 200),
    "32 at once, 1 KB": ("/0/1024", 32),
    "32 at once, 100 KB": ("/0/102400", 32),
}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def application(port):
    """Answers `GET /MS/BYTES` with so many bytes after so long."""
    body = memoryview(bytes(1 << 20))

    async def serve(reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                wait, size = (int(part) for part in head.split(b" ", 2)[1].decode().strip("/").split("/"))
                if wait:
                    await asyncio.sleep(wait / 1000)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
                writer.write(body[:size])
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def run():
        server = await asyncio.start_server(serve, "127.0.0.1", port, backlog=1024)
        async with server:
            await server.serve_forever()

    asyncio.run(run())


def certificates(folder):
    def openssl(*words):
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder)

    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=authority")
    for name in ("giver", "taker"):
        openssl("req", *curve, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (folder / f"{name}.ext").write_text(f"subjectAltName=DNS:{name}\n")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
                "-extfile", f"{name}.ext", "-out", f"{name}.pem")
        (folder / f"{name}.both").write_text((folder / f"{name}.pem").read_text() + (folder / f"{name}.key").read_text())


class Pair:
    """A giver and a taker that run: where clients go, and the port between the two."""

    def __init__(self, name, folder, app):
        self.name, self.folder, self.app = name, folder, app
        self.door, self.between = free_port(), free_port()
        self.processes = []

    def run(self, *command):
        log = open(self.folder / f"log-{len(self.processes)}-{self.name.replace(' ', '-').replace('/', '-')}", "w")
        self.processes.append(subprocess.Popen([str(word) for word in command], stdout=log, stderr=subprocess.STDOUT))

    def cpu_s(self):
        def of(pid):
            tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
            return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
        return sum(of(process.pid) for process in self.processes)

    def memory_kib(self):
        def of(pid):
            return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text()).group(1))
        return sum(of(process.pid) for process in self.processes)

    def connections(self):
        """Established from the giver to the taker."""
        rows = pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]
        to = f"0100007F:{self.between:04X}"
        return sum(1 for row in rows if row.split()[2] == to and row.split()[3] == "01")

    def await_answer(self, seconds=15):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                with socket.create_connection(("127.0.0.1", self.door), 1) as one:
                    one.sendall(b"GET /0/1 HTTP/1.1\r\nHost: h\r\n\r\n")
                    if one.recv(100).startswith(b"HTTP/1.1 200"):
                        return self
            except OSError:
                pass
            time.sleep(0.1)
        raise RuntimeError(f"{self.name} does not answer; see {self.folder}")

    def stop(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(10)


def equipoise(folder, app):
    pair = Pair("equipoise, HTTP/1.1", folder, app)
    (folder / "secret").write_text("0123456789abcdef0123456789abcdef\n")
    ports = {"giver": pair.door, "taker": pair.between}
    peers = ", ".join(f'{{ node = "{name}", address = "127.0.0.1:{port}" }}' for name, port in ports.items())
    for name, keep in (("taker", 1.0), ("giver", 0.0)):
        tls = ", ".join(f'{key} = "{folder}/{file}"' for key, file in
                        (("certificate", f"{name}.pem"), ("key", f"{name}.key"), ("authority", "ca.pem")))
        (folder / f"{name}.toml").write_text(f"""
[instance]
name = "{name}"
threads = 1
[api]
socket = "{folder}/{name}.sock"
listen = "off"
[[pool]]
name = "app"
backends = ["127.0.0.1:{app}"]
[[dispatch]]
listen = "127.0.0.1:{ports[name]}"
pool = "app"
keep = {keep}
secret = "{folder}/secret"
tls = {{ {tls} }}
peers = [{peers}]
""")
        pair.run(os.environ.get("EQUIPOISE", ROOT / "target/dist/equipoise"), "run", folder / f"{name}.toml")
    pair.await_answer()
    # The taker is checked each second, and only then given anything.
    end = time.monotonic() + 15
    while time.monotonic() < end:
        said = subprocess.run([os.environ.get("EQUIPOISE", ROOT / "target/dist/equipoise"), "status", "--json", "--api",
                               f"{folder}/giver.sock"], capture_output=True, text=True, check=True).stdout
        pair.await_answer()
        if any(it["delegated_total"] for it in json.loads(said)["front_doors"][0]["dispatch"]["classes"]):
            return pair
    raise RuntimeError("equipoise delegates nothing")


def haproxy(folder, app, protocol):
    pair = Pair(f"HAProxy, {'HTTP/2' if protocol == 'h2' else 'HTTP/1.1'}", folder, app)
    name_of = "{}-" + protocol.replace("/", "-") + ".cfg"
    common = """
global
  nbthread 1
  maxconn 4096
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  http-reuse always
"""
    tls = "ssl verify required ca-file {0}/ca.pem crt {0}/{1}.both ssl-min-ver TLSv1.3 alpn {2}"
    (folder / name_of.format("taker")).write_text(f"""{common}
frontend between
  bind 127.0.0.1:{pair.between} {tls.format(folder, "taker", protocol)}
  default_backend app
backend app
  server app 127.0.0.1:{app} pool-max-conn -1
""")
    (folder / name_of.format("giver")).write_text(f"""{common}
frontend door
  bind 127.0.0.1:{pair.door}
  default_backend taker
backend taker
  server taker 127.0.0.1:{pair.between} {tls.format(folder, "giver", protocol)} verifyhost taker pool-max-conn -1
""")
    for name in ("taker", "giver"):
        pair.run("haproxy", "-db", "-f", folder / name_of.format(name))
    return pair.await_answer()


def measure(pair, path, clients, seconds):
    before, most, end = pair.cpu_s(), 0, threading.Event()

    def watch():
        nonlocal most
        while not end.wait(0.2):
            most = max(most, pair.connections())

    watcher = threading.Thread(target=watch)
    watcher.start()
    said = subprocess.run(["wrk", "-t1", f"-c{clients}", f"-d{seconds}s", f"http://127.0.0.1:{pair.door}{path}"],
                          capture_output=True, text=True, check=True).stdout
    end.set()
    watcher.join()
    answers = int(re.search(r"(\d+) requests in", said).group(1))
    wrong = re.search(r"Non-2xx or 3xx responses: (\d+)|Socket errors: (.*)", said)
    if wrong:
        print(f"{pair.name}: {wrong.group(0)}", file=sys.stderr)
    return {"cpu_us": (pair.cpu_s() - before) / answers * 1e6, "per_second": answers / seconds, "connections": most,
            "memory_kib": pair.memory_kib()}


def write_csv(path, rows):
    with open(path, "w", newline="") as out:
        writer = csv.DictWriter(out, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seconds", type=int, default=5)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--csv", type=pathlib.Path)
    arguments = arguments.parse_args()
    missing = [program for program in ("haproxy", "wrk", "openssl") if not shutil.which(program)]
    if missing:
        raise SystemExit(f"not installed: {', '.join(missing)}")
    pairs, figures, app = [], {}, free_port()
    backend = subprocess.Popen([sys.executable, __file__, "--application", str(app)])
    with tempfile.TemporaryDirectory(prefix="equipoise-delegation-") as folder:
        folder = pathlib.Path(folder)
        try:
            certificates(folder)
            time.sleep(0.5)
            pairs.append(equipoise(folder, app))
            for protocol in ("http/1.1", "h2"):
                pairs.append(haproxy(folder, app, protocol))
            for _ in range(arguments.rounds):
                for case, (path, clients) in CASES.items():
                    for pair in pairs:
                        figures.setdefault((case, pair.name), []).append(measure(pair, path, clients, arguments.seconds))
        finally:
            for pair in pairs:
                pair.stop()
            backend.terminate()
    if arguments.csv:
        write_csv(arguments.csv, [{"asked": case, "between": name, **row} for (case, name), rows in figures.items() for row in rows])
    print(f"{platform.platform()}, {arguments.rounds} rounds of {arguments.seconds} s, medians\n")
    print("| asked | between the nodes | requests a second | CPU of both, µs a request | connections | memory of both, MiB |\n|---|---|---|---|---|---|")
    for (case, name), rows in figures.items():
        median = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        print(f"| {case} | {name} | {median['per_second']:,.0f} | {median['cpu_us']:.1f} | {median['connections']:.0f} | "
              f"{median['memory_kib'] / 1024:.1f} |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--application"]:
        application(int(sys.argv[2]))
    else:
        main()
