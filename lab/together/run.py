#!/usr/bin/env python3
"""All levels together, switched on one by one, beside HAProxy with keepalived and gdnsd. README.md describes it.

    cargo build --profile dist -p equipoise && lab/together/run.py --quick

It takes root, for network namespaces and control groups.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import report
from machines import CORES, LINK_MBIT, NODES, WORK_MS, Site
from ours import CASES, DOORS, Doors, Ours
from peers import MAXCONN, Peers

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "report"))
import machine  # noqa: E402

PEERS = "peers"
TRANSFER_BYTES = 100_000
RESOLVERS = 6
PROGRAMS = {"nsenter": "util-linux", "ip": "iproute2", "tc": "iproute2", "curl": "curl"}
OF_PEERS = {"haproxy": "haproxy", "keepalived": "keepalived", "gdnsd": "gdnsd"}
# Seconds of each phase, requests a second of each kind, and the share that comes from one resolver as a crowd.
PHASES = [
    ("transfer", 20, 40, 20, 0.0),
    ("computing", 20, 10, 55, 0.0),
    ("crowd", 20, 10, 110, 0.8),
    ("calm", 15, 10, 55, 0.0),
    ("node dead", 15, 10, 55, 0.0),
    ("node back", 10, 10, 55, 0.0),
    ("upgrade", 10, 10, 55, 0.0),
]


def wired(case, site, options):
    if case == PEERS:
        return Peers(site, options.maxconn)
    return Doors(site) if case == DOORS else Ours(site, case)


def phases(quick):
    """The phases, each with its begin."""
    begin, found = 0, []
    for name, seconds, transfer, computing, crowd in PHASES:
        seconds = max(6, seconds // 2) if quick else seconds
        found.append({"name": name, "begin": begin, "seconds": seconds, "transfer": transfer, "computing": computing,
                      "crowd": crowd})
        begin += seconds
    return found


def events(wiring, site, phases):
    """What happens, and when."""
    begin = {phase["name"]: phase["begin"] for phase in phases}
    dead, spare = site.nodes[1], site.nodes[NODES]

    def die():
        site.link(dead, "down")
        dead.kill()

    def come_back():
        site.link(dead, "up")
        wiring.join(dead)

    yield begin["crowd"] + 3, "a fifth node joins", lambda: wiring.join(spare)
    yield begin["node dead"], f"{dead.name} dies", die
    yield begin["node back"], f"{dead.name} is back", come_back
    yield begin["upgrade"], "upgrade", wiring.upgrade


def measure(wiring, site, options):
    """Runs the clients through all phases. Returns phases, requests, CPU use by second and node, and what the stream's
    client saw."""
    schedule = phases(options.quick)
    length = schedule[-1]["begin"] + schedule[-1]["seconds"]
    source = wiring.start_stream(options.python, length) if isinstance(wiring, Ours) else None
    plan = wiring.plan() | {"phases": schedule, "resolvers": RESOLVERS, "seed": options.seed,
                            "transfer_bytes": TRANSFER_BYTES}
    clients = subprocess.Popen(site.client.words(sys.executable, HERE / "load.py"), text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    clients.stdin.write(json.dumps(plan))
    clients.stdin.close()
    begun = float(clients.stderr.readline().split()[1])
    printed = []
    reader = threading.Thread(target=lambda: printed.append(clients.stdout.read()))
    reader.start()
    agenda = sorted(events(wiring, site, schedule), key=lambda event: event[0])
    usage, failures, threads = [], [], []
    measured = [*site.nodes, *site.balancers]
    last = [machine.group.cpu_s() for machine in measured]

    def perform(what, act):
        try:
            act()
        except Exception as error:
            failures.append(f"{what}: {error}")

    for second in range(length):
        while agenda and agenda[0][0] <= second:
            _, what, act = agenda.pop(0)
            print(f"  {second} s: {what}", flush=True)
            threads.append(threading.Thread(target=perform, args=(what, act)))
            threads[-1].start()
        time.sleep(max(0.0, begun + second + 1 - time.monotonic()))
        now = [machine.group.cpu_s() for machine in measured]
        usage.append([round(new - old, 4) for new, old in zip(now, last)])
        last = now
    for thread in [*threads, reader]:
        thread.join()
    clients.wait()
    if failures or clients.returncode:
        raise RuntimeError("; ".join(failures) or clients.stderr.read())
    stream = json.loads(source.communicate()[0]) | {"done_twice": wiring.done_twice()} if source else None
    return schedule, json.loads(printed[0]), usage, stream


def manifest(options):
    peers = {name: machine.version(name) for name in OF_PEERS}
    return machine.describe() | peers | {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "commit": machine.source(),
        "equipoise": machine.output(str(options.binary), "--version"),
        "load_average": pathlib.Path("/proc/loadavg").read_text().strip(), "quick": options.quick,
        "seed": options.seed, "cores": CORES, "link_mbit": LINK_MBIT, "work_ms": WORK_MS,
        "transfer_bytes": TRANSFER_BYTES, "resolvers": RESOLVERS, "maxconn": options.maxconn,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="half the time, four cases: about 6 minutes")
    parser.add_argument("--only", help="cases, separated by commas")
    parser.add_argument("--binary", type=pathlib.Path,
                        default=os.environ.get("EQUIPOISE", ROOT / "target/dist/equipoise"))
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "lab/results/together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--maxconn", type=int, default=MAXCONN, help="of HAProxy's servers")
    parser.add_argument("--python", default=ROOT / "target/cyclonedds-python/bin/python",
                        help="a Python with the package cyclonedds, for the stream")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for configurations and logs, which stays")
    options = parser.parse_args()
    if os.geteuid():
        raise SystemExit("it takes root, for network namespaces and control groups")
    every = [*CASES, DOORS, PEERS]
    usual = ["nothing", "packet", DOORS, PEERS] if options.quick else every
    chosen = options.only.split(",") if options.only else usual
    if unknown := set(chosen) - set(every):
        raise SystemExit(f"no such case: {', '.join(sorted(unknown))}; known: {', '.join(every)}")
    needed = PROGRAMS | (OF_PEERS if PEERS in chosen else {})
    missing = {package for program, package in needed.items() if not shutil.which(program)}
    if missing:
        raise SystemExit(f"not installed: {', '.join(sorted(missing))}")
    if not os.access(options.binary, os.X_OK):
        raise SystemExit(f"{options.binary} does not exist: build it, or name another with --binary")
    options.results.mkdir(parents=True, exist_ok=True)
    # Hosts and processes are removed then, too.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    for case in chosen:
        print(case, flush=True)
        with tempfile.TemporaryDirectory(prefix="equipoise-together-") as temporary:
            folder = options.keep / case if options.keep else pathlib.Path(temporary)
            folder.mkdir(parents=True, exist_ok=not options.keep)
            site = Site(folder, options.binary)
            try:
                wiring = wired(case, site, options)
                wiring.start()
                time.sleep(5)
                circumstances = manifest(options)
                measured = measure(wiring, site, options)
            finally:
                site.close()
        report.keep(options.results, case, circumstances, *measured)
    report.write(options.results, every)
    print((options.results / "report.md").read_text())


if __name__ == "__main__":
    sys.exit(main())
