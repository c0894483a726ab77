#!/usr/bin/env python3
"""Runs each configuration of a peer and its translation, and compares their answers.

    run.py [NAME ...]       the named configurations (a part of a folder's name is enough), or all
    run.py --imported [...] the same with the translation of `equipoise import` instead of equipoise.toml
    run.py --table          the table of README.md

A folder has the peer's file, equipoise.toml and expect.toml. Both proxies run in a world of their
own (world.py) with scripted backends; both get the requests of expect.toml, and both have to meet
its expectations. Exits 1 if one does not, and 0 with a line "skipped" if no world can be made.

Expectations may differ between the proxies where expect.toml says so. Such a configuration is "as
expected", and its answers are not the peer's: the last column of the output tells the two apart.
"""

import argparse
import concurrent.futures
import csv
import functools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

try:
    import tomllib
except ImportError:
    print("skipped: needs Python 3.11 or newer")
    sys.exit(0)

import packets
import world
from backends import Backend, Names, accepts, until
from steps import Runner

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BINARY = os.environ.get("EQUIPOISE", str(ROOT / "target/debug/equipoise"))
# The peers: the file by which a folder is theirs, and how they run in the foreground.
PEERS = {
    "haproxy": ("haproxy.cfg", ["haproxy", "-db", "-f", "{file}"]),
    "nginx": ("nginx.conf", ["nginx", "-c", "{file}", "-g", "daemon off;"]),
    "keepalived": ("keepalived.conf", None),
    "ipvsadm": ("ipvs.sh", None),
}
# Words for `Case.same_answers`.
ANSWERS = {True: "same", False: "differ as stated", None: "peer not run"}
# For one configuration, with both proxies.
LIMIT_S = 300


class Case:
    """One folder."""

    def __init__(self, folder):
        self.folder, self.name = folder, folder.name
        self.expect = tomllib.loads((folder / "expect.toml").read_text())
        self.peer = next(name for name, (file, _) in PEERS.items() if (folder / file).exists())
        self.file = folder / PEERS[self.peer][0]
        self.ours = folder / "equipoise.toml"
        self.lost = self.expect.get("lost", [])
        self.left_out = self.expect.get("left-out", [])

    @property
    def stated_differences(self):
        """The numbers of the steps whose expectations for equipoise are not those for the peer."""
        return [number for number, step in enumerate(self.expect["step"], 1) if {"ours", "peer"} & step.keys()]

    @property
    def same_answers(self):
        """Whether equipoise answers as the peer if all is as expected; None if the peer cannot run here."""
        return None if PEERS[self.peer][1] is None else not self.stated_differences

    @property
    def carried(self):
        """How much of the peer's file the translation does."""
        if self.expect.get("carried") == "none":
            return "not at all"
        return "with losses" if self.lost else "whole"

    def unknown_lines(self):
        """Lines of the explanations that the peer's file does not have."""
        text = self.file.read_text()
        return [one["line"] for one in self.lost + self.left_out if one["line"] not in text]


def cases(wanted):
    folders = sorted(path.parent for path in HERE.glob("*/expect.toml"))
    return [Case(folder) for folder in folders if not wanted or any(part in folder.name for part in wanted)]


def inside(case, scratch, imported):
    """Runs a case, within its world; returns its problems."""
    expect = case.expect
    names = expect.get("names", {})
    certificates = world.make(scratch, expect.get("files", {}), arranged(expect))
    problems = [f"no line of {case.file.name} is {line!r}" for line in case.unknown_lines()]
    problems += refusal(case)
    if imported:
        case.ours = scratch / "imported.toml"
        done = subprocess.run([BINARY, "import", str(case.file), "--out", str(case.ours)], capture_output=True, text=True, check=False)
        if not case.ours.exists():
            return [*problems, f"equipoise import: {done.stderr}"]
    checked = subprocess.run([BINARY, "check", str(case.ours)], capture_output=True, text=True, check=False)
    printed = checked.stdout + checked.stderr
    if checked.returncode != 0:
        return [*problems, f"equipoise check: {printed}"]
    problems += [f"equipoise check: {line}" for line in printed.splitlines() if "warning" in line]
    answers, current = {}, {}
    if names:
        Names(current)
    for side, command in commands(case):
        current.clear()
        current.update(names)
        backends = start_backends(expect, certificates)
        log = scratch / f"{side}.log"
        with log.open("w") as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            if side == "ours":
                until(lambda: " ready " in log.read_text() or process.poll() is not None, "the line `ready` of equipoise")
            answers[side], found = attend(case, side, process, backends, current, certificates)
        except (RuntimeError, ValueError, OSError) as error:
            found = [str(error)]
        if found:
            problems += [f"{side}: {problem}" for problem in found] + [f"  {line}" for line in log.read_text().splitlines()[-15:]]
        process.terminate()
        process.wait()
        for backend in backends.values():
            backend.become("down")
    if not problems and len(answers) == 2:
        problems += compare(case, answers)
    return problems


def refusal(case):
    """What keepalived says against its file, where it is installed: it cannot run here."""
    if case.peer != "keepalived" or not shutil.which("keepalived"):
        return []
    done = subprocess.run(["keepalived", "--config-test", "-f", str(case.file)], capture_output=True, text=True, check=False)
    return [] if done.returncode == 0 else [f"keepalived --config-test: {done.stdout}{done.stderr}"]


def arranged(expect):
    """The function that makes the hosts of a configuration."""
    if "packet" in expect:
        return lambda: packets.make([address.rsplit(":", 1)[0] for address in expect["backends"]], **expect["packet"])
    return world.backend_host


def commands(case):
    """Each side and its command; a peer that cannot run here has none."""
    _, command = PEERS[case.peer]
    if command:
        yield "peer", [word.format(file=case.file) for word in command]
    yield "ours", [BINARY, "run", str(case.ours)]


def start_backends(expect, certificates):
    backends = {}
    for address, options in expect["backends"].items():
        options = {"name": options} if isinstance(options, str) else dict(options)
        if "certificate" in options:
            options["certificate"] = certificates.pair(options["certificate"].split())
        if "packet" in expect:
            ip, port = address.rsplit(":", 1)
            address, options["host"] = f"0.0.0.0:{port}", ip
        backends[options["name"]] = Backend(address, **{key.replace("-", "_"): value for key, value in options.items()})
    return backends


def attend(case, side, process, backends, names, certificates):
    """Sends the requests to a running proxy; returns first answers and problems."""
    defaults = {"method": "GET", "host": "www.example.com", "to": "127.0.0.1:80", **case.expect.get("defaults", {})}
    clients = "clients" if "packet" in case.expect else None
    runner = Runner(side, backends, names, certificates, defaults, clients)
    steps = case.expect["step"]
    doors = {(host, int(port)) for host, port in (step.get("to", defaults["to"]).rsplit(":", 1) for step in steps
                                                  if not {"set", "names", "closed"} & step.keys() and "datagram" not in step)}

    def is_ready():
        if process.poll() is not None:
            raise RuntimeError(f"{process.args[0]} has ended with {process.returncode}")
        with world.on(clients):
            return all(accepts(door) for door in doors)

    until(is_ready, f"the front doors {sorted(doors)}")
    answers, problems = [], []
    for number, step in enumerate(steps, 1):
        answer, found = runner.run(step)
        answers.append(answer)
        label = step.get("note") or step.get("path") or step.get("line") or step.get("datagram")
        problems += [f"step {number} ({label}): {problem}" for problem in found]
        if found:
            break
    return answers, problems


def compare(case, answers):
    """Differences of single answers, whether expected or not: status, and the target at the backend."""
    problems = []
    for number, (step, theirs, ours) in enumerate(zip(case.expect["step"], answers["peer"], answers["ours"]), 1):
        if theirs is None or step.get("times", 1) > 1 or {"ours", "peer"} & step.keys():
            continue
        for what, pick in (("status", lambda it: it.status), ("target", lambda it: it.echo().get("target"))):
            if pick(theirs) != pick(ours):
                problems.append(f"step {number}: {what} is {pick(theirs)} from the peer, and {pick(ours)} from equipoise")
    return problems


def table():
    rows = ["| configuration | peer | carried | answers | not carried |", "|---|---|---|---|---|"]
    for case in cases([]):
        lost = "; ".join(f"`{one['line']}`" for one in case.lost)
        rows.append(f"| [{case.name}]({case.name}) | {case.peer} | {case.carried} | {ANSWERS[case.same_answers]} | {lost} |")
    return "\n".join(rows)


def row(case, status):
    """A row of the CSV file. `same_answers` is empty for a peer that cannot run here."""
    same = case.same_answers
    return {"configuration": case.name, "peer": case.peer, "carried": case.carried,
            "as_expected": "" if status is None else int(not status),
            "same_answers": "" if status is None or same is None else int(same and not status),
            "stated_differences": len(case.stated_differences)}


def summary(rows):
    """What came out, in one line."""
    total = lambda column, wanted: sum(one[column] == wanted for one in rows)
    return (f"{len(rows)} configurations: {total('as_expected', 0)} failed, {total('as_expected', '')} skipped; "
            f"{total('same_answers', 1)} answer as the peer, {sum(one['as_expected'] == 1 and one['same_answers'] == 0 for one in rows)} "
            f"with a stated difference, {sum(one['as_expected'] == 1 and one['same_answers'] == '' for one in rows)} as expected without a peer that runs")


def run_case(case, imported):
    peer = PEERS[case.peer][1]
    if peer and not shutil.which(peer[0]):
        return case, None, f"{peer[0]} is not installed"
    began = time.monotonic()
    try:
        # Removed out here, where no mount of a world is seen.
        with tempfile.TemporaryDirectory(prefix="equipoise-migration-") as scratch:
            status, output = world.enter("--inside", case.name, scratch, *(["--imported"] if imported else []), limit=LIMIT_S)
    except subprocess.TimeoutExpired:
        return case, 1, f"not finished after {LIMIT_S} s"
    return case, status, output if status else f"{time.monotonic() - began:.1f} s"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--table", action="store_true", help="prints the table of README.md")
    parser.add_argument("--imported", action="store_true", help="runs the translations of `equipoise import`")
    parser.add_argument("--jobs", type=int, default=4, help="configurations at a time")
    parser.add_argument("--csv", type=pathlib.Path)
    parser.add_argument("--inside", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.table:
        print(table())
        return 0
    if options.inside:
        name, scratch = options.inside
        problems = inside(Case(HERE / name), pathlib.Path(scratch), options.imported)
        print("\n".join(problems), flush=True)
        # Threads of backends end with the process.
        os._exit(bool(problems))
    if not os.access(BINARY, os.X_OK):
        parser.error(f"{BINARY} is no program: `cargo build` makes it, and EQUIPOISE names another")
    reason = world.unavailable()
    if reason:
        print(f"skipped: {reason}")
        return 0
    failed, rows = 0, []
    chosen = cases(options.names)
    if options.imported:
        for case in chosen:
            if "by-hand" in case.expect:
                print(f"{'by hand':8}{case.name:34}{case.expect['by-hand']}")
        chosen = [case for case in chosen if "by-hand" not in case.expect]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for case, status, text in pool.map(functools.partial(run_case, imported=options.imported), chosen):
            failed += bool(status)
            word = "skipped" if status is None else "FAILED" if status else "ok"
            answers = "" if status else ANSWERS[case.same_answers]
            print(f"{word:8}{case.name:34}{case.carried:12}{answers:18}{text.strip()}", flush=True)
            rows.append(row(case, status))
    if options.csv:
        with open(options.csv, "w", newline="") as out:
            writer = csv.DictWriter(out, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
    print(summary(rows))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
