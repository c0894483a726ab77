#!/usr/bin/env python3
"""What rates and cookies cost: CPU per query of equipoise with both, as they are by default, against equipoise without.

    cargo build --profile dist -p equipoise && lab/dns/defaults.py

The figures beside peers are without them. Here three processes, one thread each on one core, are asked in turn by dnsperf on the other: `bare`
without both, `rates` with a limit that is looked up for each query and never reached, `both` with cookies besides. Clients send no EDNS, or a client cookie, to which
a server cookie is made for every answer. Medians over rounds of the ratio to `bare` in the same round.
"""

import argparse
import pathlib
import re
import statistics
import subprocess
import tempfile

import servers

KINDS = {
    "bare": servers.BARE,
    "rates": "rate-limit = 1000000\ncookies = false",
    "both": "rate-limit = 1000000\ncookies = true",
}
CLIENTS = {"plain": [], "cookie": ["-e", "-E", "10:0102030405060708"]}
QUESTIONS = ["text.cluster.example TXT", "single.balanced.cluster.example A", "none.cluster.example A"]


def cpu(server, path, seconds, core, extra):
    """CPU of the server in microseconds, user and system, for each answer."""
    before = server.cpu_seconds()
    command = ["taskset", "-c", str(core), "dnsperf", "-s", "127.0.0.1", "-p", str(server.port), "-d", path, "-l", str(seconds),
               "-c", "8", "-T", "1", "-q", "100", *extra]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    answers = int(re.search(r"Queries completed:\s+(\d+)", out).group(1))
    lost = int(re.search(r"Queries lost:\s+(\d+)", out).group(1))
    if answers == 0 or lost > answers / 100:
        raise RuntimeError(f"{server.name}: {answers} answers, {lost} lost:\n{out}")
    return [(after - first) / answers * 1e6 for first, after in zip(before, server.cpu_seconds())]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--server-core", type=int, default=0)
    parser.add_argument("--client-core", type=int, default=1)
    parser.add_argument("--csv", type=pathlib.Path)
    arguments = parser.parse_args()
    servers.have("dnsperf", "taskset")
    running, found = [], {}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "questions"
        path.write_text("\n".join(QUESTIONS) + "\n")
        try:
            for kind, options in KINDS.items():
                running.append(servers.equipoise(folder, arguments.server_core, nameserver=options, name=kind))
            for _ in range(arguments.rounds):
                for client, extra in CLIENTS.items():
                    for server in running:
                        one = cpu(server, path, arguments.seconds, arguments.client_core, extra)
                        found.setdefault((client, server.name), []).append(one)
        finally:
            servers.stop_all(running)
    print(f"# {arguments.rounds} rounds of {arguments.seconds:g} s, medians")
    print(f"{'client':<8} {'server':<8} {'user µs':>8} {'CPU µs':>8} {'to bare':>8}")
    rows = []
    for (client, kind), all_of in found.items():
        user, whole = (statistics.median(column) for column in ([u for u, _ in all_of], [u + s for u, s in all_of]))
        ratio = statistics.median(sum(one) / sum(bare) for one, bare in zip(all_of, found[client, "bare"]))
        print(f"{client:<8} {kind:<8} {user:>8.2f} {whole:>8.2f} {ratio:>8.3f}")
        rows.append({"client": client, "server": kind, "user_us": user, "cpu_us": whole, "over_bare": ratio})
    if arguments.csv:
        servers.write_csv(arguments.csv, rows)


if __name__ == "__main__":
    main()
