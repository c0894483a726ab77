#!/usr/bin/env python3
"""The LVS study (Barzu, Barbulescu, Carabas, 2017) with equipoise in LVS' place. README.md describes it.

    cargo build --profile dist -p equipoise && lab/lvs/run.py --quick

It takes root, for network namespaces and control groups.
"""

import argparse
import collections
import csv
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import report
from figures import mean, quantile
from place import CPU_SHARE, MEMORY_SHARE_MIB, PERIOD_US, Site

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "lab/report"))
import machine  # noqa: E402

REQUESTS = [1, 10, 25, 50, 100, 250, 500, 1000, 2500]
SIZES, COUNTS = [1, 2, 4], [1, 2, 4]
# Threads that process (0: a new one for each request), and requests in hand (0: no bound).
SERVICES = {"thread": (0, 0), "bounded": (8, 200), "unbounded": (8, 0)}
SCHEDULERS = ["round-robin", "weighted-round-robin", "least-connection", "weighted-least-connection"]
# Open-loop requests are due within this time.
OVER_S = 5
PROGRAMS = {"nsenter": "util-linux", "setpriv": "util-linux", "ip": "iproute2", "curl": "curl"}


def cases(experiment, quick):
    """Rows of: sizes of the real servers, service, forwarding, scheduler, numbers of requests, seconds."""
    requests = [1, 10, 50, 100, 250] if quick else REQUESTS
    ends = [1, 4]
    direct = "direct-routing", "least-connection"
    if experiment in SERVICES:
        for size in ends if quick else SIZES:
            for count in COUNTS:
                yield [size] * count, experiment, *direct, requests, 0
    elif experiment == "methods":
        for size in [1] if quick else ends:
            yield [size], "bounded", "none", "none", requests, 0
            for forward in ("direct-routing", "nat", "tunnel"):
                for count in [4] if quick else COUNTS:
                    yield [size] * count, "bounded", forward, "least-connection", requests, 0
    elif experiment == "schedulers":
        for sizes in ([1, 1, 2, 4],) if quick else ([2, 2, 2, 2], [1, 1, 2, 4]):
            for scheduler in SCHEDULERS:
                yield sizes, "thread", "direct-routing", scheduler, [250] if quick else [250, 1000, 2500], 0
                yield sizes, "thread", "direct-routing", scheduler, [1000] if quick else [1000, 2500], OVER_S
    elif experiment == "due":
        for size in ends if quick else SIZES:
            for count in COUNTS:
                yield [size] * count, "thread", *direct, [250] if quick else [100, 250, 500, 1000, 2500], OVER_S


EXPERIMENTS = [*SERVICES, "methods", "schedulers", "due"]


def measure(site, groups, address, requests, over_s):
    """One number of requests. Small ones are repeated, since one reply says little."""
    times, processing, whole, lost = [], [], [], 0
    servers, failures = collections.Counter(), collections.Counter()
    for repetition in range(max(1, min(10, 100 // requests)) if not over_s else 1):
        seen = site.request(address, requests, over_s, seed=2017 + repetition)
        times += seen["times"]
        processing += seen["processing"]
        whole.append(seen["whole_s"])
        lost += seen["lost"]
        servers.update(seen["servers"])
        failures.update(seen["failures"])
    row = {"requests": requests, "over_s": over_s, "repetitions": len(whole)}
    for name, values in (("response", times), ("processing", processing)):
        row[f"{name}_mean_s"] = round(mean(values), 6)
        row[f"{name}_p50_s"] = round(quantile(values, 0.5), 6)
        row[f"{name}_p99_s"] = round(quantile(values, 0.99), 6)
        row[f"{name}_max_s"] = round(max(values, default=0), 6)
    row["whole_s"] = round(mean(whole), 3)
    row["failures"], row["lost"] = failures.total(), lost
    row["reasons"] = " ".join(f"{name}:{number}" for name, number in sorted(failures.items()))
    row["by_server"] = " ".join(f"{name}:{number}" for name, number in sorted(servers.items()))
    row["memory_peak_mib"] = max(group.peak_bytes() for group in groups) >> 20
    row["load_average"] = os.getloadavg()[0]
    return row


def perform(site, experiment, quick, cpu_ms):
    for sizes, service, forward, scheduler, requests, over_s in cases(experiment, quick):
        with site.servers(sizes, *SERVICES[service], cpu_ms, decap=forward == "tunnel") as groups:
            balancer = site.no_balancer() if forward == "none" else site.balancer(sizes, forward, scheduler)
            with balancer as address:
                # The first connections resolve the neighbours' addresses.
                site.request(address, 8)
                for number in requests:
                    row = {"sizes": " ".join(map(str, sizes)), "servers": len(sizes), "service": service,
                           "forward": forward, "scheduler": scheduler}
                    row |= measure(site, groups, address, number, over_s)
                    print(f"{experiment}: {row['sizes']} {forward} {scheduler} N={number} over {over_s} s: "
                          f"response {row['response_mean_s']:.3f} s, processing {row['processing_mean_s']:.3f} s, "
                          f"failed {row['failures']}, {row['by_server']}", flush=True)
                    yield row


def output(*words):
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def manifest(options):
    versions = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    return machine.describe() | {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": output("git", "rev-parse", "HEAD"),
        "changed": bool(output("git", "status", "--porcelain", "--", ".", ":!lab/results")),
        "equipoise": output(str(options.binary), "--version"),
        "postgres": output(str(versions[-1]), "--version") if versions else "unknown",
        "load_average": pathlib.Path("/proc/loadavg").read_text().strip(),
        "quick": options.quick, "cpu_ms": options.cpu_ms, "cpu_share": CPU_SHARE, "period_us": PERIOD_US,
        "memory_share_mib": MEMORY_SHARE_MIB, "threads_and_in_hand": SERVICES,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few cases: some minutes")
    parser.add_argument("--only", default=",".join(EXPERIMENTS), help="experiments, separated by commas")
    parser.add_argument("--binary", type=pathlib.Path,
                        default=os.environ.get("EQUIPOISE", ROOT / "target/dist/equipoise"))
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "lab/results/lvs")
    parser.add_argument("--cpu-ms", type=float, default=0.8, help="CPU time of processing a request")
    options = parser.parse_args()
    if os.geteuid():
        raise SystemExit("it takes root, for network namespaces and control groups")
    missing = {package for program, package in PROGRAMS.items() if not shutil.which(program)}
    if missing:
        raise SystemExit(f"not installed: {', '.join(sorted(missing))}")
    if not os.access(options.binary, os.X_OK):
        raise SystemExit(f"{options.binary} does not exist: build it, or name another with --binary")
    chosen = options.only.split(",")
    if unknown := set(chosen) - set(EXPERIMENTS):
        raise SystemExit(f"no such experiment: {', '.join(sorted(unknown))}; known: {', '.join(EXPERIMENTS)}")
    options.results.mkdir(parents=True, exist_ok=True)
    # Hosts and processes are removed then, too.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    failed = 0
    with tempfile.TemporaryDirectory(prefix="equipoise-lvs-") as folder:
        os.chmod(folder, 0o755)
        site = Site(pathlib.Path(folder), options.binary)
        try:
            for experiment in chosen:
                circumstances = manifest(options)
                rows = list(perform(site, experiment, options.quick, options.cpu_ms))
                failed += sum(row["failures"] + row["lost"] for row in rows)
                with open(options.results / f"{experiment}.csv", "w", newline="") as file:
                    writer = csv.DictWriter(file, rows[0])
                    writer.writeheader()
                    writer.writerows(rows)
                (options.results / f"{experiment}.json").write_text(json.dumps(circumstances, indent=2) + "\n")
        finally:
            site.close()
    report.write(options.results)
    print((options.results / "report.md").read_text())
    print(f"failed or lost requests: {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
