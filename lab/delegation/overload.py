#!/usr/bin/env python3
"""Light requests beside heavy ones that are more than the nodes can do.

Three nodes delegate to each other; the application of each has 0.08 of a core (a control group's quota of 1 ms in each 12.5 ms). All
heavy requests come to two of the nodes, light ones to all three, open loop: a request is sent when it is due, whether those before
were answered or not, and its time counts from then. Each case states the offered load as a multiple of what the three applications do
together, which is measured first without equipoise.

    cargo build --profile dist -p equipoise && lab/delegation/overload.py --quick

It takes root, for the control groups.
"""

import argparse
import asyncio
import contextlib
import csv
import ctypes
import json
import os
import pathlib
import platform
import socket
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
NODES = ["a", "b", "c"]
HEAVY_NODES = 2
QUOTA_US, PERIOD_US = 1000, 12500
HEAVY_CPU_S = 0.0053
WORKERS = 64
SYS_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}[platform.machine()]
PATIENCE_S = 10
GOAL_LIGHT_MS, GOAL_GOODPUT = 20, 0.9


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def application(port):
    """Serves each connection from one of its processes. `/heavy` uses CPU, anything else next to none."""
    take_short_turns()
    # A quota is handed out by processor; on two, one process could use all of it while another waits.
    os.sched_setaffinity(0, {port % os.cpu_count()})
    with socket.create_server(("127.0.0.1", port), backlog=1024) as listener:
        for _ in range(WORKERS - 1):
            if os.fork() == 0:
                break
        while True:
            stream, _ = listener.accept()
            with stream, contextlib.suppress(ConnectionError):
                serve(stream)


def take_short_turns():
    """Has the kernel change between the application's processes after 0.1 ms of CPU: a usual turn, 3 ms, is the quota of 40 ms."""
    attributes = struct.pack("IIQiIQQQ", 48, 0, 0, 0, 0, 100_000, 0, 0)
    ctypes.CDLL(None).syscall(SYS_SCHED_SETATTR, 0, attributes, 0)


def serve(stream):
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    head = b""
    while True:
        while b"\r\n\r\n" not in head:
            more = stream.recv(65536)
            if not more:
                return
            head += more
        if head.startswith(b"GET /heavy"):
            end = time.process_time() + HEAVY_CPU_S
            while time.process_time() < end:
                pass
        head = head.split(b"\r\n\r\n", 1)[1]
        stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


def await_port(port):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise SystemExit(f"no application listens on port {port}")


class Group:
    """A control group with the quota of a node."""

    def __init__(self, name):
        root = pathlib.Path("/sys/fs/cgroup")
        is_v1 = (root / "cpu/cpu.cfs_quota_us").exists() or (root / "cpu/cpu.shares").exists()
        self.folder = (root / "cpu" if is_v1 else root) / f"equipoise-overload-{os.getpid()}-{name}"
        self.folder.mkdir()
        if is_v1:
            (self.folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (self.folder / "cpu.cfs_quota_us").write_text(str(QUOTA_US))
            (self.folder / "cpu.shares").write_text("262144")
        else:
            (self.folder / "cpu.max").write_text(f"{QUOTA_US} {PERIOD_US}")
            (self.folder / "cpu.weight").write_text("10000")

    def enter(self):
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        end = time.monotonic() + 10
        while time.monotonic() < end:
            try:
                return self.folder.rmdir()
            except OSError:
                time.sleep(0.1)


class Site:
    """The nodes and their applications."""

    def __init__(self, folder, equipoise, concurrency, apps):
        self.folder, self.equipoise, self.apps = folder, equipoise, apps
        self.doors = {name: free_port() for name in NODES}
        self.processes = []
        (folder / "secret").write_text("0123456789abcdef0123456789abcdef\n")
        peers = ", ".join(f'{{ node = "{name}", address = "127.0.0.1:{port}" }}' for name, port in self.doors.items())
        for name in NODES:
            (folder / f"{name}.toml").write_text(f"""
[instance]
name = "{name}"
threads = 1
[api]
socket = "{folder}/{name}.sock"
listen = "off"
[[pool]]
name = "app"
backends = ["127.0.0.1:{apps[name]}"]
concurrency = {concurrency}
[[dispatch]]
listen = "127.0.0.1:{self.doors[name]}"
pool = "app"
secret = "{folder}/secret"
class = [{{ class = "light", paths = ["/light"] }}, {{ class = "computing", paths = ["/heavy"] }}]
peers = [{peers}]
""")
            log = open(folder / f"{name}.log", "w")
            words = [str(equipoise), "run", str(folder / f"{name}.toml")]
            self.processes.append(subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT))
        self.wait()

    def status(self, name):
        words = [str(self.equipoise), "status", "--json", "--api", f"{self.folder}/{name}.sock"]
        said = subprocess.run(words, capture_output=True, text=True)
        return json.loads(said.stdout) if said.returncode == 0 else None

    def wait(self):
        def is_ready(name):
            status = self.status(name)
            pools = status["pools"] if status else []
            peers = [one for pool in pools if pool["name"] == "app.peers" for one in pool["backends"]]
            return len(peers) == len(NODES) - 1 and all(one["health"] == "healthy" for one in peers)
        end = time.monotonic() + 60
        while not all(is_ready(name) for name in NODES):
            if time.monotonic() > end:
                raise SystemExit(f"the nodes do not find each other; see {self.folder}")
            time.sleep(0.1)

    def stop(self):
        # Without a limit what waits would take minutes to finish.
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait(30)


class Door:
    """Kept-open connections to one place."""

    def __init__(self, port):
        self.port, self.idle = port, []

    async def ask(self, path):
        """The status of the answer; 0: none."""
        try:
            return await asyncio.wait_for(self.exchange(path), PATIENCE_S)
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
            return 0

    async def exchange(self, path):
        while self.idle and self.idle[-1][0].at_eof():
            # The node closes connections that are idle for long.
            self.idle.pop()[1].close()
        reader, writer = self.idle.pop() if self.idle else await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(f"GET {path} HTTP/1.1\r\nHost: lab\r\n\r\n".encode())
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = next(int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("content-length:"))
            await reader.readexactly(length)
        except BaseException:
            writer.close()
            raise
        self.idle.append((reader, writer))
        return int(head.split()[1])


async def stream(door, path, rate, seconds, shift, told):
    """So many requests a second; tells (path, when due, time taken, status) of each."""
    begun, tasks = time.monotonic() + shift / rate, []

    async def one(due):
        status = await door.ask(path)
        told.append((path, due - begun, time.monotonic() - due, status))

    for number in range(int(rate * seconds)):
        due = begun + number / rate
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        tasks.append(asyncio.create_task(one(due)))
    await asyncio.gather(*tasks)


async def offer(ports, heavy_rate, light_rate, seconds):
    doors, told = {name: Door(port) for name, port in ports.items()}, []
    heavy = [stream(doors[name], "/heavy", heavy_rate / HEAVY_NODES, seconds, at / HEAVY_NODES, told)
             for at, name in enumerate(NODES[:HEAVY_NODES])]
    light = [stream(doors[name], "/light", light_rate / len(NODES), seconds, at / len(NODES), told)
             for at, name in enumerate(NODES)]
    await asyncio.gather(*heavy, *light)
    return told


async def capacity(apps, seconds):
    """Heavy requests a second that the applications do, with as many in flight as each is given."""
    end, done = time.monotonic() + seconds, 0

    async def client(port):
        nonlocal done
        door = Door(port)
        while time.monotonic() < end:
            if await door.ask("/heavy") == 200 and time.monotonic() < end:
                done += 1

    await asyncio.gather(*(client(port) for port in apps.values() for _ in range(2)))
    return done / seconds


def quantile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))] if values else float("nan")


def judge(told, seconds, possible):
    warm = min(3, seconds / 5)
    told = [row for row in told if row[1] >= warm]
    light = [row for row in told if row[0] == "/light"]
    heavy = [row for row in told if row[0] == "/heavy"]
    good = [row for row in heavy if row[3] == 200]
    return {
        "light_p50_ms": quantile([row[2] for row in light], 0.5) * 1e3,
        "light_p99_ms": quantile([row[2] for row in light], 0.99) * 1e3,
        "light_refused": sum(row[3] != 200 for row in light),
        "heavy_per_second": len(good) / (seconds - warm),
        "goodput": len(good) / (seconds - warm) / min(possible, len(heavy) / (seconds - warm)),
        "heavy_p99_ms": quantile([row[2] for row in good], 0.99) * 1e3,
        "heavy_refused": sum(row[3] == 503 for row in heavy),
        "lost": sum(row[3] not in (200, 503) for row in told),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="15 s a case, and fewer cases")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--times", default="0.67,1,1.25,2,4", help="offered load, as multiples of the capacity")
    parser.add_argument("--light", type=float, default=30, help="light requests a second, at all nodes together")
    parser.add_argument("--csv", type=pathlib.Path)
    parser.add_argument("--concurrency", default='"learnt",2,"none"', help="the limits to compare")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.seconds, arguments.times = 15, "1,4"
    equipoise = os.environ.get("EQUIPOISE", ROOT / "target/dist/equipoise")
    groups, apps, servers, missed, rows = [], {}, [], 0, []
    with tempfile.TemporaryDirectory(prefix="equipoise-overload-") as folder:
        try:
            for name in NODES:
                group, apps[name] = Group(name), free_port()
                groups.append(group)
                servers.append(subprocess.Popen([sys.executable, __file__, "--application", str(apps[name])],
                                                preexec_fn=group.enter, start_new_session=True))
            for port in apps.values():
                await_port(port)
            possible = asyncio.run(capacity(apps, 5 if arguments.quick else 15))
            print(f"{platform.platform()}, {arguments.seconds} s a case; without equipoise the applications do "
                  f"{possible:.1f} heavy requests a second\n")
            print("| concurrency | offered, times | heavy a second | of what is possible | heavy refused | heavy p99, ms | light p50, ms "
                  "| light p99, ms | light refused | lost |\n|---|---|---|---|---|---|---|---|---|---|")
            for concurrency in arguments.concurrency.split(","):
                for times in (float(word) for word in arguments.times.split(",")):
                    case = pathlib.Path(folder) / f"{concurrency.strip(chr(34))}-{times}"
                    case.mkdir()
                    site = Site(case, equipoise, concurrency, apps)
                    try:
                        told = asyncio.run(offer(site.doors, times * possible, arguments.light, arguments.seconds))
                    finally:
                        site.stop()
                    it = judge(told, arguments.seconds, possible)
                    rows.append({"concurrency": concurrency.strip('"'), "times": times, **it})
                    is_missed = it["light_p99_ms"] > GOAL_LIGHT_MS or it["light_refused"] or it["goodput"] < GOAL_GOODPUT
                    missed += is_missed and concurrency != '"none"'
                    print(f"| {concurrency} | {times:g} | {it['heavy_per_second']:.1f} | {it['goodput']:.2f} | {it['heavy_refused']} | "
                          f"{it['heavy_p99_ms']:.0f} | {it['light_p50_ms']:.1f} | {it['light_p99_ms']:.1f} | {it['light_refused']} | "
                          f"{it['lost']} |", flush=True)
        finally:
            for server in servers:
                os.killpg(server.pid, 9)
                server.wait()
            for group in groups:
                group.remove()
    if arguments.csv:
        with open(arguments.csv, "w", newline="") as out:
            writer = csv.DictWriter(out, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
    print(f"\nGoals (light p99 {GOAL_LIGHT_MS} ms and none refused, {GOAL_GOODPUT} of what is possible): "
          f"{'missed in ' + str(missed) + ' cases' if missed else 'met'}")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--application"]:
        application(int(sys.argv[2]))
    else:
        main()
