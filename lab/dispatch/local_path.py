#!/usr/bin/env python3
"""What node mode costs where nothing is delegated: CPU per request of a [[dispatch]] door beside a plain [[session]] door.

Both doors are one process's (one data thread), before the same nginx, so that they differ in nothing else. wrk loads them in turn,
the order changing from round to round; the CPU of the process (user and system, from /proc) is divided by the requests that wrk
counted. Printed: each round's ratio, the median, and the spread.

    cargo build --release -p equipoise && lab/dispatch/local_path.py target/release/equipoise [ROUNDS] [SECONDS]
"""

import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

CLIENTS = 32
BODY = "x" * 1024


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_for(port):
    end = time.time() + 10
    while time.time() < end:
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    sys.exit(f"nobody listens on {port}")


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load(port, seconds):
    command = ["wrk", "-t1", f"-c{CLIENTS}", f"-d{seconds}s", f"http://127.0.0.1:{port}/"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in said or "Socket errors" in said:
        sys.exit(said)
    return int(re.search(r"(\d+) requests in", said).group(1))


def measure(pid, port, seconds):
    before = cpu_seconds(pid)
    requests = load(port, seconds)
    return 1e6 * (cpu_seconds(pid) - before) / requests


def main():
    binary = sys.argv[1]
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 12
    seconds = int(sys.argv[3]) if len(sys.argv) > 3 else 4
    with tempfile.TemporaryDirectory() as folder:
        backend, plain, node = free_port(), free_port(), free_port()
        with open(f"{folder}/nginx.conf", "w") as file:
            file.write(
                f"worker_processes 1; pid {folder}/nginx.pid; error_log stderr error; daemon off;\n"
                "events { worker_connections 1024; }\n"
                f"http {{ access_log off; keepalive_requests 1000000000; server {{ listen 127.0.0.1:{backend};\n"
                f"location / {{ return 200 '{BODY}'; }} }} }}\n"
            )
        with open(f"{folder}/secret", "w") as file:
            file.write("0123456789abcdef0123456789abcdef\n")
        with open(f"{folder}/e.toml", "w") as file:
            file.write(
                f"[instance]\nname = 'a'\nthreads = 1\n[api]\nsocket = '{folder}/api.sock'\nlisten = 'off'\n"
                f"[[pool]]\nname = 'app'\nbackends = ['127.0.0.1:{backend}']\n"
                f"[[session]]\nlisten = '127.0.0.1:{plain}'\nprotocol = 'http'\npool = 'app'\n"
                f"[[dispatch]]\nlisten = '127.0.0.1:{node}'\npool = 'app'\nsecret = '{folder}/secret'\n"
                "peers = [{ node = 'b', address = '127.0.0.1:9' }]\n"
                "[[dispatch.class]]\nclass = 'light'\nmethods = ['HEAD', 'OPTIONS']\n"
                "[[dispatch.class]]\nclass = 'computing'\npaths = ['/render/', '/resize/']\n"
            )
        children = [subprocess.Popen(["nginx", "-p", folder, "-c", f"{folder}/nginx.conf"])]
        wait_for(backend)
        log = open(f"{folder}/log", "w")
        process = subprocess.Popen([binary, "run", f"{folder}/e.toml"], stdout=log, stderr=log)
        children.append(process)
        try:
            wait_for(plain)
            wait_for(node)
            doors = {"session": plain, "dispatch": node}
            for port in doors.values():
                load(port, 1)
            ratios = []
            for turn in range(rounds):
                order = ["session", "dispatch"] if turn % 2 == 0 else ["dispatch", "session"]
                cpu = {door: measure(process.pid, doors[door], seconds) for door in order}
                ratios.append(cpu["dispatch"] / cpu["session"])
                print(
                    f"{turn + 1:3}  session {cpu['session']:.2f} us  dispatch {cpu['dispatch']:.2f} us  "
                    f"ratio {ratios[-1]:.3f}",
                    flush=True,
                )
            print(
                f"median ratio {statistics.median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}, "
                f"{rounds} rounds of {seconds} s, kernel {os.uname().release}, {os.cpu_count()} CPUs"
            )
        finally:
            for child in children:
                child.send_signal(signal.SIGTERM)
            for child in children:
                child.wait()


main()
