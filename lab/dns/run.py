#!/usr/bin/env python3
"""CPU per query and queries a second of equipoise, gdnsd, Knot, NSD and PowerDNS, in one run, by dnsperf; and how
many each answers when asked as much as it can take, by `load`, which sends batches.

    cargo build --profile dist -p equipoise -p equipoise-lab-dns-load && lab/dns/run.py --seconds 5 --rounds 3

Each server has one thread on one core, dnsperf the other. Every round asks all servers in turn, so that what else the
machine does falls on all alike; medians over rounds are reported, with the ratio to gdnsd in the same run. CPU is that
of the server's process, by the kernel's account, over the answers that dnsperf got.
"""

import argparse
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile

import servers

STATIC = ["text.cluster.example TXT", "www.cluster.example A", "ns1.cluster.example A", "none.cluster.example A", "cluster.example SOA"]
WEIGHTED = ["single.balanced.cluster.example A"]


def contenders(folder, core):
    """Each server with the sets of questions that it is asked."""
    yield servers.equipoise(folder, core), ("static", "weighted", "tcp")
    for start, sets in (
        (servers.gdnsd, ("static", "weighted", "tcp")),
        (servers.knot, ("static", "tcp")),
        (servers.nsd, ("static", "tcp")),
        (servers.powerdns, ("static", "weighted", "tcp")),
        (lambda *args: servers.powerdns(*args, cached=False), ("static", "weighted")),
    ):
        try:
            yield start(folder, core), sets
        except RuntimeError as error:
            print(f"left out: {error}", file=sys.stderr)


def measure(server, asked, path, seconds, client_core):
    user, system = server.cpu_seconds()
    mode = ["-m", "tcp"] if asked == "tcp" else []
    command = ["taskset", "-c", str(client_core), "dnsperf", "-s", "127.0.0.1", "-p", str(server.port), "-d", path,
               "-l", str(seconds), "-c", "8", "-T", "1", "-q", "100", *mode]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    after_user, after_system = server.cpu_seconds()
    answers = int(re.search(r"Queries completed:\s+(\d+)", out).group(1))
    rate = float(re.search(r"Queries per second:\s+([\d.]+)", out).group(1))
    lost = int(re.search(r"Queries lost:\s+(\d+)", out).group(1))
    if answers == 0:
        raise RuntimeError(f"{server.name} answered nothing:\n{out}")
    user_us, system_us = (after_user - user) / answers * 1e6, (after_system - system) / answers * 1e6
    return {
        "server": server.name, "questions": asked, "per_second": rate, "lost": lost,
        "user_us": user_us, "system_us": system_us, "cpu_us": user_us + system_us,
    }


def most(server, questions, seconds, client_core):
    """Answers a second when asked as much as it takes."""
    load = pathlib.Path(os.environ.get("EQUIPOISE", servers.ROOT / "target/dist/equipoise")).with_name("equipoise-lab-dns-load")
    command = ["taskset", "-c", str(client_core), load, f"127.0.0.1:{server.port}", "--seconds", str(seconds), *questions]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return float(re.search(r"([\d.]+) a second", out).group(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--server-core", type=int, default=0)
    parser.add_argument("--client-core", type=int, default=1)
    parser.add_argument("--csv", type=pathlib.Path)
    arguments = parser.parse_args()
    servers.have("dnsperf", "taskset")
    rows, running = [], []
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for name, questions in (("static", STATIC), ("weighted", WEIGHTED), ("tcp", STATIC)):
            files[name] = pathlib.Path(folder) / f"{name}.questions"
            files[name].write_text("\n".join(questions) + "\n")
        try:
            running = list(contenders(folder, arguments.server_core))
            for _ in range(arguments.rounds):
                for asked in files:
                    for server, sets in running:
                        if asked in sets:
                            row = measure(server, asked, files[asked], arguments.seconds, arguments.client_core)
                            questions = {"static": STATIC, "weighted": WEIGHTED}.get(asked)
                            row["most_per_second"] = most(server, questions, arguments.seconds, arguments.client_core) if questions else 0.0
                            rows.append(row)
        finally:
            servers.stop_all([server for server, _ in running])
    if arguments.csv:
        servers.write_csv(arguments.csv, rows)
    report(rows, arguments)


def report(rows, arguments):
    print(f"# {platform.platform()}, {arguments.rounds} rounds of {arguments.seconds:g} s, medians")
    print(f"{'questions':<9} {'server':<18} {'queries/s':>10} {'at most':>9} {'user µs':>8} {'system µs':>9} {'CPU µs':>7} {'to gdnsd':>8}")
    for asked in ("static", "weighted", "tcp"):
        found = {}
        for row in rows:
            if row["questions"] == asked:
                found.setdefault(row["server"], []).append(row)
        medians = {
            server: [statistics.median(row[key] for row in all_of) for key in ("per_second", "most_per_second", "user_us", "system_us")]
            for server, all_of in found.items()}
        base = medians.get("gdnsd")
        for server, (rate, at_most, user, system) in medians.items():
            ratio = f"{(user + system) / (base[2] + base[3]):8.2f}" if base else f"{'-':>8}"
            print(f"{asked:<9} {server:<18} {rate:>10.0f} {at_most:>9.0f} {user:>8.2f} {system:>9.2f} {user + system:>7.2f} {ratio}")


if __name__ == "__main__":
    main()
