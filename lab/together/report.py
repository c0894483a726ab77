"""Keeps what a case showed, and writes the tables of all cases."""

import csv
import json

# A request counts as good if its answer was there within this time.
GOOD_S = 1.0
# The last columns of CPU use.
BALANCERS = 2
# Seconds up to the one of a row whose CPU use its imbalance is of.
BALANCE_S = 5


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def keep(results, case, circumstances, schedule, requests, usage, stream):
    """One row of CSV a second, and the circumstances with a summary by phase."""
    length = schedule[-1]["begin"] + schedule[-1]["seconds"]
    seconds = [[] for _ in range(length)]
    for due, kind, took, reason in requests:
        seconds[min(int(due), length - 1)].append((kind, took, reason))
    with open(results / f"{case}.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["second", "phase", "offered", "good", "failed", "computing_p99_ms", "transfer_p99_ms",
                         *(f"n{number}_cpu" for number in range(1, len(usage[0]) - BALANCERS + 1)),
                         *(f"b{number}_cpu" for number in range(1, BALANCERS + 1)), "imbalance"])
        for second, (seen, cpu) in enumerate(zip(seconds, usage)):
            phase = next(phase["name"] for phase in reversed(schedule) if phase["begin"] <= second)
            balance = imbalance(usage[max(0, second + 1 - BALANCE_S):second + 1])
            writer.writerow([second, phase, *row(seen), *cpu, balance])
    summary = {}
    for phase in schedule:
        span = slice(phase["begin"], phase["begin"] + phase["seconds"])
        seen = [request for second in seconds[span] for request in second]
        offered, good, failed, computing, transfer = row(seen)
        reasons = {}
        for _, _, reason in seen:
            if reason:
                reasons[reason] = reasons.get(reason, 0) + 1
        summary[phase["name"]] = {
            "offered": offered, "good": good, "failed": failed, "reasons": reasons, "computing_p99_ms": computing,
            "transfer_p99_ms": transfer, "imbalance": imbalance(usage[span]),
            "cpu_ms_per_request": round(1000 * sum(map(sum, usage[span])) / offered, 3),
        }
    if stream:
        delays = stream.pop("delays_s")
        stream["delay_p99_ms"] = {
            phase["name"]: round(quantile([took * 1000 for due, took in delays
                                           if 0 <= due - phase["begin"] < phase["seconds"]], 0.99), 1)
            for phase in schedule}
    text = json.dumps(circumstances | {"phases": summary, "stream": stream}, indent=2)
    (results / f"{case}.json").write_text(text + "\n")


def row(seen):
    """Offered, good, failed, and the 99th percentile of each kind in ms."""
    good = sum(took is not None and took <= GOOD_S for _, took, _ in seen)
    failed = sum(bool(reason) for _, _, reason in seen)
    slowest = [quantile([took * 1000 for kind, took, _ in seen if kind == of and took is not None], 0.99)
               for of in ("computing", "transfer")]
    return len(seen), good, failed, *(round(ms, 1) for ms in slowest)


def imbalance(usage):
    """CPU use of the busiest node over the mean of those that ran at all."""
    sums = [sum(second[node] for second in usage) for node in range(len(usage[0]) - BALANCERS)]
    ran = [one for one in sums if one > 0.01 * max(sums)]
    return round(max(ran) / (sum(ran) / len(ran)), 3) if ran else float("nan")


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]) + "\n\n"


def write(results, cases):
    found = {case: json.loads(path.read_text()) for case in cases if (path := results / f"{case}.json").exists()}
    names = list(next(iter(found.values()))["phases"])
    text = "# All levels together\n\n"
    measures = [
        (f"Goodput: share of the offered requests that were answered within {GOOD_S:.0f} s, per cent",
         lambda phase: f"{100 * phase['good'] / phase['offered']:.1f}"),
        ("Failed requests", lambda phase: phase["failed"]),
        ("Requests that compute: 99th percentile of those that were answered, ms",
         lambda phase: phase["computing_p99_ms"]),
        ("Transfers: the same", lambda phase: phase["transfer_p99_ms"]),
        ("Balance: CPU use of the busiest node over the mean", lambda phase: phase["imbalance"]),
        ("CPU time of nodes and balancers over the offered requests, ms", lambda phase: phase["cpu_ms_per_request"]),
    ]
    for title, of in measures:
        rows = [[case, *(of(kept["phases"][name]) for name in names)] for case, kept in found.items()]
        text += f"{title}:\n\n" + table(["case", *names], rows)
    for stream in [kept["stream"] for kept in found.values() if kept["stream"]]:
        text += (f"The stream: {stream['published']} items, {stream['lost']} lost, {stream['done_twice']} done twice. "
                 "Delay, 99th percentile, ms:\n\n" + table(names, [[stream["delay_p99_ms"][name] for name in names]]))
    for case, kept in found.items():
        short = "quick run" if kept["quick"] else "whole run"
        text += (f"- {case}: {short}, commit {kept['commit'][:12]}, "
                 f"load of the machine before it {kept['load_average']}\n")
    (results / "report.md").write_text(text)
