"""The processes of the study on their hosts: PostgreSQL, real servers, equipoise."""

import contextlib
import json
import pathlib
import shutil
import signal
import subprocess
import sys
import time

from network import Network
from hosts import Group  # network.py says where it is
from postgres import Postgres

HERE = pathlib.Path(__file__).resolve().parent
BIN = "/usr/lib/postgresql"
# A share of CPU is this part of a core, a share of memory so many MiB.
CPU_SHARE, PERIOD_US, MEMORY_SHARE_MIB = 0.08, 20_000, 8
VIPS = {"direct-routing": "203.0.113.1", "nat": "203.0.113.2", "tunnel": "203.0.113.3"}
SERVERS = 4
PATIENCE_S = 60


def stop(process, by=signal.SIGTERM):
    process.send_signal(by)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def start(folder, host, words, ready, group=None, name="process"):
    """Starts a program on a host and waits for a word in its output."""
    path = folder / f"{name}.log"
    with open(path, "w") as log:
        process = subprocess.Popen(host.words(*words), stdout=log, stderr=subprocess.STDOUT,
                                   preexec_fn=group.enter if group else None)
    end = time.monotonic() + PATIENCE_S
    while ready not in path.read_text():
        if process.poll() is not None or time.monotonic() > end:
            stop(process)
            raise RuntimeError(f"{name} does not start: {path.read_text()}")
        time.sleep(0.02)
    return process


class Site:
    def __init__(self, folder, equipoise):
        self.folder, self.equipoise = folder, equipoise
        self.network = Network(SERVERS, [VIPS["direct-routing"], VIPS["tunnel"]])
        self.requests = 0
        self.cleanup = contextlib.ExitStack()
        self.cleanup.callback(self.network.remove)
        try:
            self.database = self.start_database()
        except BaseException:
            self.cleanup.close()
            raise

    def start_database(self):
        programs = sorted(pathlib.Path(BIN).glob("*/bin"))
        if not programs:
            raise SystemExit("PostgreSQL is not installed: apt-get install postgresql")
        data = self.folder / "database"
        data.mkdir()
        shutil.chown(self.folder, "postgres")
        shutil.chown(data, "postgres")
        user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]
        subprocess.run([*user, programs[-1] / "initdb", "-D", data, "--auth=trust"], check=True, capture_output=True)
        with open(data / "pg_hba.conf", "a") as rules:
            rules.write("host all all 192.0.2.0/24 trust\n")
        options = ["-c", "listen_addresses=192.0.2.3", "-c", f"unix_socket_directories={data}"]
        process = start(self.folder, self.network.database, [*user, programs[-1] / "postgres", "-D", data, *options],
                             "ready to accept connections", name="postgres")
        # Its fast way, which does not wait for clients.
        self.cleanup.callback(stop, process, signal.SIGINT)
        database = Postgres(str(data / ".s.PGSQL.5432"))
        database.query("create table results (number bigint primary key, server text, result text)")
        return database

    def close(self):
        self.cleanup.close()

    @contextlib.contextmanager
    def servers(self, sizes, threads, in_hand, cpu_ms, decap=False):
        """Real servers with these numbers of CPU shares, each with four times as many shares of memory."""
        with contextlib.ExitStack() as stack:
            groups = []
            for number, (size, host) in enumerate(zip(sizes, self.network.servers), 1):
                quota_us = int(size * CPU_SHARE * PERIOD_US)
                group = Group(f"server{number}", quota_us, PERIOD_US, size * 4 * MEMORY_SHARE_MIB << 20)
                stack.callback(group.remove)
                groups.append(group)
                words = [sys.executable, HERE / "service.py", "--name", f"server{number}", "--database", "192.0.2.3",
                         "--threads", threads, "--in-hand", in_hand, "--cpu-ms", cpu_ms]
                process = start(self.folder, host, words, "ready", group, f"server{number}")
                stack.callback(stop, process)
                if decap:
                    words = [self.equipoise, "decap", "--interface", "eth0"]
                    stack.callback(stop, start(self.folder, host, words, "ready", name=f"decap{number}"))
            yield groups

    @contextlib.contextmanager
    def balancer(self, sizes, forward, scheduler):
        backends = ", ".join(f'{{ address = "192.0.2.{number}:80", weight = {size} }}'
                             for number, size in enumerate(sizes, 11))
        (self.folder / "equipoise.toml").write_text(f"""
[instance]
name = "{self.network.balancer.name}"
[api]
socket = "{self.folder}/api.sock"
[flows]
max = 65536
pins-max = 16384
[[pool]]
name = "web"
backends = [{backends}]
[[packet]]
vip = "{VIPS[forward]}:80/tcp"
interface = "eth0"
forward = "{forward}"
scheduler = "{scheduler}"
pool = "web"
""")
        words = [self.equipoise, "run", self.folder / "equipoise.toml"]
        process = start(self.folder, self.network.balancer, words, " ready ", name="equipoise")
        try:
            yield VIPS[forward]
        finally:
            stop(process)

    @contextlib.contextmanager
    def no_balancer(self):
        """The router sends the VIP of direct routing straight to the first real server."""
        vip = VIPS["direct-routing"]
        self.network.router.ip(f"route add {vip}/32 via 192.0.2.11")
        try:
            yield vip
        finally:
            self.network.router.ip(f"route del {vip}/32")

    def request(self, address, requests, over=0.0, seed=2017):
        """Sends requests and waits until all results are stored. Returns response and processing times."""
        first, self.requests = self.requests, self.requests + requests
        words = [sys.executable, HERE / "load.py", address, requests, "--first", first, "--over", over, "--seed", seed]
        begun = time.monotonic()
        done = subprocess.run(self.network.client.words(*words), capture_output=True, text=True, check=True)
        seen = json.loads(done.stdout)
        wanted = len(seen["times"])
        while True:
            stored = int(self.database.query(f"select count(*) from results where number >= {first}")[0][0])
            if stored >= wanted or time.monotonic() - begun > 900:
                break
            time.sleep(0.1)
        seen["whole_s"] = time.monotonic() - begun
        seen["lost"] = wanted - stored
        # A service notes its time just after the result is stored.
        seen["processing"], end = [], time.monotonic() + 5
        while len(seen["processing"]) < stored and time.monotonic() < end:
            for at in range(SERVERS):
                seen["processing"] += self.processing_times(f"192.0.2.{11 + at}")
        return seen

    def processing_times(self, server):
        """Asked from the database's host, past the balancer. None of a server that does not run."""
        words = ["curl", "-qsS", "--noproxy", "*", "--max-time", "60", f"http://{server}/times"]
        done = subprocess.run(self.network.database.words(*words), capture_output=True, text=True)
        return json.loads(done.stdout) if done.returncode == 0 else []
