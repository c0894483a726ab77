#!/usr/bin/env python3
"""TLLB's second figure, small: only half of the nodes receive requests; throughput with the dispatcher off and on.

Each node is a control group with a CPU quota (cgroup v1 or v2, root), in which one equipoise with a [[dispatch]] table and its
application run. A controller outside of them plans. Clients ask the first half of the nodes only, each as soon as it has its answer.
Off: an overload ratio that nobody reaches. On: the default. Goal: 1.9 times (the paper: "nearly two").

    lab/tllb/half_fed.py target/release/equipoise [NODES ...]          (default: 2 4)

Differences from the paper: one machine in the place of a cluster, so that a node is a part of a CPU (printed), and 2 or 4 nodes.
"""

import http.client
import http.server
import json
import os
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time

QUOTA = 0.2  # CPUs of a node
WORK_S = 0.006  # CPU seconds of a request
CLIENTS = 8  # of each node that is fed
JOIN_S, SETTLE_S, MEASURE_S = 40, 15, 12


class App(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        end = time.thread_time() + WORK_S
        while time.thread_time() < end:
            pass
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 256


class Group:
    """A control group with a quota."""

    def __init__(self, name):
        v1 = "/sys/fs/cgroup/cpu"
        roots = [v1, "/sys/fs/cgroup/cpuacct"] if os.path.isdir(v1) else ["/sys/fs/cgroup"]
        self.folders = [f"{root}/eqp-tllb-{os.getpid()}-{name}" for root in dict.fromkeys(map(os.path.realpath, roots))]
        for folder in self.folders:
            os.mkdir(folder)
        if os.path.isdir(v1):
            write(f"{self.folders[0]}/cpu.cfs_period_us", "50000")
            write(f"{self.folders[0]}/cpu.cfs_quota_us", str(int(50000 * QUOTA)))
        else:
            write(f"{self.folders[0]}/cpu.max", f"{int(50000 * QUOTA)} 50000")

    def enter(self):
        for folder in self.folders:
            write(f"{folder}/cgroup.procs", str(os.getpid()))

    def remove(self):
        for folder in self.folders:
            for _ in range(50):
                try:
                    os.rmdir(folder)
                    break
                except OSError:
                    time.sleep(0.1)


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Site:
    def __init__(self, binary, folder, count):
        self.binary, self.folder, self.count = binary, folder, count
        self.children, self.groups = [], []
        self.cluster = free_port()
        self.doors = [free_port() for _ in range(count)]

    def controller_file(self, ratio):
        state = f"{self.folder}/ctl"
        write(
            f"{self.folder}/ctl.toml",
            f"[instance]\nname = 'ctl'\nthreads = 1\n[api]\nsocket = '{self.folder}/ctl.sock'\nlisten = 'off'\n"
            f"[load]\nnet = 0.0\nmemory = 0.0\noverload-ratio = {ratio}\nadmit = 1000.0\n[controller]\nstate = '{state}'\n"
            f"[cluster]\nstate = '{state}'\nname = 'tllb'\nlisten = '127.0.0.1:{self.cluster}'\nstore = {{}}\n",
        )

    def equipoise(self, *args):
        done = subprocess.run([self.binary, *args], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{args}: {done.stderr}")
        return done.stdout

    def run(self, name, group=None):
        log = open(f"{self.folder}/{name}.log", "w")
        command = [self.binary, "run", f"{self.folder}/{name}.toml"]
        enter = group.enter if group else None
        self.children.append(subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=enter).pid)

    def start(self):
        self.controller_file(1000.0)
        self.equipoise("cluster", "init", "--config", f"{self.folder}/ctl.toml")
        self.run("ctl")
        self.wait_for(self.cluster)
        for at, door in enumerate(self.doors):
            name, app = f"n{at}", free_port()
            group = Group(name)
            self.groups.append(group)
            pid = os.fork()
            if pid == 0:
                group.enter()
                signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
                Server(("127.0.0.1", app), App).serve_forever()
            self.children.append(pid)
            token = self.equipoise("cluster", "token", "create", "--config", f"{self.folder}/ctl.toml")
            write(f"{self.folder}/{name}.token", token)
            state = f"{self.folder}/{name}"
            write(
                f"{self.folder}/{name}.toml",
                f"[instance]\nname = '{name}'\nthreads = 1\n[api]\nsocket = '{self.folder}/{name}.sock'\nlisten = 'off'\n"
                f"[controller]\nstate = '{state}'\n[cluster]\nstate = '{state}'\n"
                f"controllers = ['127.0.0.1:{self.cluster}']\njoin-token-file = '{self.folder}/{name}.token'\n"
                f"[[pool]]\nname = 'app'\nbackends = ['127.0.0.1:{app}']\n"
                f"[[dispatch]]\nlisten = '127.0.0.1:{door}'\npool = 'app'\n",
            )
            self.run(name, group)
            self.wait_for(door)

    def wait_for(self, port):
        end = time.time() + 20
        while time.time() < end:
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.05)
        sys.exit(f"nobody listens on {port}; see {self.folder}")

    def keeps(self):
        said = self.equipoise("status", "--cluster", "--json", "--config", f"{self.folder}/ctl.toml")
        members = json.loads(said)["view"]["members"]
        return {it["name"]: round(it["keep"], 2) for it in members if it["dispatches"] and it["keep"] is not None}

    def stop(self):
        for pid in reversed(self.children):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        for group in self.groups:
            group.remove()


class Load:
    """Clients of the first half of the nodes."""

    def __init__(self, doors):
        self.stopping, self.done, self.wrong = False, 0, 0
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.ask, args=(door,)) for door in doors for _ in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def ask(self, door):
        client = http.client.HTTPConnection("127.0.0.1", door, timeout=30)
        while not self.stopping:
            try:
                client.request("GET", "/")
                answer = client.getresponse()
                answer.read()
                fine = answer.status == 200
            except OSError:
                client.close()
                fine = False
            with self.lock:
                self.done, self.wrong = self.done + fine, self.wrong + (not fine)

    def rate(self, seconds):
        before, began = self.done, time.monotonic()
        time.sleep(seconds)
        return (self.done - before) / (time.monotonic() - began)

    def stop(self):
        self.stopping = True
        for thread in self.threads:
            thread.join()


def experiment(binary, count):
    folder = tempfile.mkdtemp(prefix="eqp-tllb-")
    site, load = Site(binary, folder, count), None
    try:
        site.start()
        load = Load(site.doors[: count // 2])
        time.sleep(JOIN_S)
        off = load.rate(MEASURE_S)
        kept_off = site.keeps()
        site.controller_file(1.25)
        site.equipoise("reload", "--api", f"{folder}/ctl.sock")
        time.sleep(SETTLE_S)
        on = load.rate(MEASURE_S)
        print(
            f"{count} nodes of {QUOTA} CPU, {count // 2} fed: off {off:.1f}/s (keep {kept_off}), "
            f"on {on:.1f}/s (keep {site.keeps()}), {on / off:.2f} times; {load.wrong} failed",
            flush=True,
        )
    finally:
        if load:
            load.stop()
        site.stop()
    shutil.rmtree(folder)


for nodes in [int(text) for text in sys.argv[2:]] or [2, 4]:
    experiment(os.path.abspath(sys.argv[1]), nodes)
