"""Writes the tables of the results, and the study's figures beside ours."""

import csv
import json

from figures import indicator, linear, logarithmic, shape

# Of the study: time at 2500 requests with one server, over that with 2 and 4, by its machine; seconds.
STUDY = [
    ("processing", 1, 2, "35 s, about 5 s", 7.0, 7.0),
    ("processing", 4, 2, "15 s, 0.5 to 1 s", 15.0, 30.0),
    ("processing", 4, 4, "15 s, 0.5 to 1 s", 15.0, 30.0),
    ("response", 1, 2, "250 s, 13 to 25 s", 10.0, 19.2),
    ("response", 1, 4, "250 s, 10 to 14 s", 17.9, 25.0),
    ("response", 4, 2, "100 s, 10 to 15 s", 6.7, 10.0),
    ("response", 4, 4, "100 s, 10 to 15 s", 6.7, 10.0),
]


def read(results, name):
    path = results / f"{name}.csv"
    if not path.exists():
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def curves(rows, measure):
    """Times by number of requests, by (size, number of servers). Only of servers of one size."""
    found = {}
    for row in rows:
        sizes = row["sizes"].split()
        if len(set(sizes)) == 1:
            key = int(sizes[0]), len(sizes)
            found.setdefault(key, {})[int(row["requests"])] = float(row[f"{measure}_mean_s"])
    return found


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n\n"


def seconds(value):
    return f"{value:.4f}" if value < 0.1 else f"{value:.2f}"


def machine(key):
    size, count = key
    return f"{count} of {size}"


def matrix(rows, measure):
    found = curves(rows, measure)
    head = ["requests"] + [machine(key) for key in found]
    numbers = sorted({number for curve in found.values() for number in curve})
    return table(head, ([str(number)] + [seconds(curve[number]) for curve in found.values()] for number in numbers))


def fits(rows):
    lines = []
    for measure in ("response", "processing"):
        for key, curve in curves(rows, measure).items():
            flat = [number for number in curve if number >= 250]
            growth = f"{curve[max(flat)] / curve[min(flat)]:.2f}" if len(flat) > 1 else ""
            a, b, straight = linear(curve)
            c, d, bent = logarithmic(curve)
            lines.append([measure, machine(key), f"{a:.3f} + {b * 1e3:.3f}e-3 N", f"{straight:.3f}",
                          f"{c:.3f} + {d:.3f} ln N", f"{bent:.3f}", shape(curve), growth])
    return table(["time", "servers", "linear, s", "R²", "logarithmic, s", "R²", "closer", "most N over 250"], lines)


def indicators(rows):
    lines = []
    for measure in ("response", "processing"):
        found = curves(rows, measure)
        for (size, count), curve in found.items():
            if count > 1 and (size, 1) in found:
                values = indicator(found[size, 1], curve)
                most = max(values, key=values.get)
                lines.append([measure, machine((size, count)), f"{values[max(values)]:.2f}", f"{max(values)}",
                              f"{values[most]:.2f}", f"{most}", f"{min(values.values()):.2f}"])
    return table(["time", "servers", "at most N", "N", "greatest", "at N", "least"], lines)


def verdict(ours, low, high):
    if ours >= low * 0.9:
        return "reproduced" if ours <= high * 1.1 else "more than the study's"
    return f"not reproduced: {ours / low:.2f} of the study's"


# The study's indicators, from its least to its best machine.
INDICATORS = {"response": "above 1.5 to above 4", "processing": "above 1.7 to above 6"}


def ranges(results):
    """Indicators at the most requests, and the shapes, of all machines."""
    lines = []
    for name in (*SERVICES, "due"):
        for measure, wanted in INDICATORS.items():
            found = curves(read(results, name), measure)
            most = max((max(curve) for curve in found.values()), default=0)
            values = [found[size, 1][most] / curve[most] for (size, count), curve in found.items() if count > 1]
            shapes = [shape(curve) for curve in found.values()]
            if values:
                lines.append([name, measure, wanted, f"{min(values):.2f} to {max(values):.2f}",
                              {"response": "linear", "processing": "logarithmic"}[measure],
                              f"linear {shapes.count('linear')}, logarithmic {shapes.count('logarithmic')}"])
    return table(["service", "time", "study: indicator", "here", "study: shape", "here, of the machines"], lines)


def beside(results):
    lines = []
    for name in (*SERVICES, "due"):
        rows = read(results, name)
        for measure, size, count, times, low, high in STUDY:
            found = curves(rows, measure)
            if (size, 1) not in found or (size, count) not in found:
                continue
            one, many = found[size, 1], found[size, count]
            most = max(one)
            ours = one[most] / many[most]
            wanted = f"{low:.1f}" if low == high else f"{low:.1f} to {high:.1f}"
            lines.append([name, f"{measure}, {size}", f"{count}", times, wanted,
                          f"{seconds(one[most])}, {seconds(many[most])}", f"{ours:.2f}", verdict(ours, low, high)])
    head = ["service", "time, shares", "servers", "study: 1 server, n", "ratio", "here: 1 server, n", "ratio",
            "verdict"]
    return table(head, lines)


def by_case(rows):
    head = ["servers", "forwarding", "scheduler", "requests", "over, s", "response mean", "p99", "processing mean",
            "p99", "all stored", "requests by server", "failed"]
    lines = []
    for row in rows:
        shown = [row[key] for key in ("sizes", "forward", "scheduler", "requests", "over_s")]
        shown += [seconds(float(row[key])) for key in ("response_mean_s", "response_p99_s", "processing_mean_s",
                                                       "processing_p99_s", "whole_s")]
        by_server = " ".join(part.split(":")[1] for part in row["by_server"].split())
        lines.append(shown + [by_server, str(int(row["failures"]) + int(row["lost"]))])
    return table(head, lines)


SERVICES = {
    "thread": "Direct routing, least-connection; the service has a new thread for each request",
    "bounded": "Direct routing, least-connection; the service has 8 threads, and at most 200 requests in hand",
    "unbounded": "Direct routing, least-connection; the service has 8 threads, and takes every request in hand",
}
TITLES = SERVICES | {
    "methods": "Forwarding methods",
    "schedulers": "Schedulers",
    "due": "Requests at random moments of 5 s, times from when each was due",
}


def write(results):
    text = "# lvs\n\nTimes are means over requests in seconds. `2 of 4`: two real servers of four shares of CPU.\n\n"
    text += "## The study's figures at the most requests\n\n" + beside(results)
    text += "The indicator at the most requests, and the closer fit, of all machines:\n\n" + ranges(results)
    for name, title in TITLES.items():
        rows = read(results, name)
        if not rows:
            continue
        about = json.loads((results / f"{name}.json").read_text())
        loads = [float(row["load_average"]) for row in rows]
        changed, quick = (about["changed"] and ", files changed"), (about["quick"] and " A quick run.")
        text += (f"## {title}\n\nCommit {about['commit']}{changed or ''}; {about['equipoise']}; Linux {about['kernel']}, "
                 f"{about['cpu']}, {about['cpus_online']} CPUs; {about['postgres']}; {about['date']}; "
                 f"load average {min(loads):.0f} to {max(loads):.0f}.{quick or ''}\n\n")
        if name in SERVICES:
            text += "Response time:\n\n" + matrix(rows, "response") + "Processing time:\n\n" + matrix(rows, "processing")
            text += "Performance indicator:\n\n" + indicators(rows) + "Fits:\n\n" + fits(rows)
            failed = sum(int(row["failures"]) + int(row["lost"]) for row in rows)
            peak = max(int(row["memory_peak_mib"]) for row in rows)
            text += f"Failed or lost requests: {failed}. The most memory of a real server: {peak} MiB.\n\n"
        else:
            text += by_case(rows)
    (results / "report.md").write_text(text.rstrip() + "\n")
