"""Runs experiments one after the other, goes on where a run was interrupted, and records each."""

import ctypes
import fcntl
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import machine
import registry

ROOT = machine.ROOT
RECORD = "run.json"
LOG = "output.log"
PR_SET_CHILD_SUBREAPER = 36
# An experiment may take so many times as long as expected, and so many seconds more.
PATIENCE, PATIENCE_S = 4, 600
# Seconds from the request to end until the end is forced.
GRACE_S = 20
# Options of the lab's runner for some of the cases; a later run without them measures the others.
PARTS = {"--seconds", "--every"}


class RunError(Exception):
    """A run cannot begin."""


def record(folder):
    """The record of an experiment's last run; empty if there is none."""
    try:
        return json.loads((folder / RECORD).read_text())
    except FileNotFoundError:
        return {}


def write(folder, told):
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / f"{RECORD}.new"
    new.write_text(json.dumps(told, indent=2) + "\n")
    new.replace(folder / RECORD)


def obstacle(experiment, binaries):
    """Why an experiment cannot run here; empty if it can."""
    if experiment.setting("root") and os.geteuid() and not shutil.which("sudo"):
        return "it takes root"
    if missing := [name for name in experiment.setting("needs", []) if not machine.find(name)]:
        return f"not installed: {', '.join(missing)} (`make {experiment.setting('make')}` installs them)"
    if experiment.setting("needs-file") and not experiment.needed_file():
        return f"no file {experiment.setting('needs-file')} (`make {experiment.setting('make')}` fetches it)"
    if missing := [name for name in experiment.setting("build", []) if not (binaries / name).exists()]:
        return f"not built: {', '.join(missing)} in {registry.relative(binaries)} (`make {experiment.setting('make')}` builds them)"
    return ""


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def prefix(experiment, binaries):
    """What stands before a command: the equipoise to measure, and root where it takes it."""
    environment = ["env", f"EQUIPOISE={binaries / 'equipoise'}"]
    return ["sudo", *environment] if experiment.setting("root") and os.geteuid() else environment


class Runner:
    """A run of some experiments.

    `show` prints what they print. `results` is the folder of all results, `binaries` that of the programs to measure. `again` repeats what is
    finished. `extra` are options for the experiments' programs.
    """

    def __init__(self, results, binaries, quick=False, again=False, extra=(), show=False):
        self.results, self.binaries, self.quick, self.again, self.extra, self.show = results, binaries, quick, again, extra, show
        self.source = machine.source()
        self.begun = time.monotonic()

    def run(self, experiments):
        """How many could not be finished, and how many ended with a complaint.

        Raises `RunError` if another run has the same results.
        """
        self.results.mkdir(parents=True, exist_ok=True)
        with open(self.results / ".lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunError(f"another run writes to {self.results}") from None
            try:
                return self.run_all(experiments)
            finally:
                self.manifest(experiments)

    def run_all(self, experiments):
        # Processes that an experiment leaves behind become children of this one, and are accounted to it.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        todo = [one for one in experiments if not self.is_finished(one)]
        if before := len(experiments) - len(todo):
            print(f"{before} of {len(experiments)} were finished before for this commit (--again repeats them)")
        expected = [self.expected_s(one) for one in todo]
        unfinished = complaints = 0
        for at, experiment in enumerate(todo):
            left = sum(expected[at:])
            print(f"{at + 1} of {len(todo)}  {experiment.name}: about {short(expected[at])}; {short(time.monotonic() - self.begun)} "
                  f"gone, about {short(left)} left", flush=True)
            told = self.one(experiment)
            unfinished += told["state"] != "finished"
            complaints += told["state"] == "finished" and bool(told["reason"])
            print(f"    {told['state']}" + (f" after {short(told['seconds'])}" if "seconds" in told else "")
                  + (f": {told['reason']}" if told["reason"] else "")
                  + (f" ({disturbed})" if (disturbed := machine.disturbance(told.get("load", {}))) else ""), flush=True)
        return unfinished, complaints

    def expected_s(self, experiment):
        return experiment.quick_seconds if self.quick else experiment.seconds

    def command(self, experiment):
        folder = experiment.folder(self.results)
        return experiment.command(self.quick, folder, self.binaries, self.extra)

    def is_finished(self, experiment):
        told = record(experiment.folder(self.results))
        is_same = told.get("source") == self.source and told.get("command") == self.command(experiment)
        return not self.again and is_same and told.get("state") == "finished"

    def continues(self, before, experiment):
        """Whether the cases of a folder are those of this run, so that only the others are measured."""
        is_same = before.get("source") == self.source
        return not self.again and is_same and without_parts(before["command"]) == without_parts(self.command(experiment))

    def one(self, experiment):
        """Runs an experiment, and gives its record."""
        folder, command = experiment.folder(self.results), self.command(experiment)
        before = record(folder)
        if not (before and self.continues(before, experiment)):
            before = {}
            if folder.exists():
                shutil.rmtree(folder)
        program = experiment.program
        told = {"experiment": experiment.name, "state": "interrupted", "reason": "", "date": now(), "source": self.source,
                "quick": self.quick, "build": self.binaries.name, "command": command, "seed": program.get("seed"),
                "machine": machine.describe(), "peers": {peer: machine.version(peer) for peer in program.get("peers", [])}}
        if problem := obstacle(experiment, self.binaries):
            told |= {"state": "not run", "reason": problem}
            write(folder, told)
            return told
        told["reason"] = "the run was interrupted"
        write(folder, told)
        begin, load = time.monotonic(), machine.Load()
        try:
            with load:
                state, reason = self.wait(experiment, command, folder / LOG)
        except BaseException:
            write(folder, told | {"load": machine.worse(load.told, before.get("load", {}))})
            raise
        told |= {"seconds": round(time.monotonic() - begin, 1), "load": machine.worse(load.told, before.get("load", {})),
                 "state": state, "reason": reason}
        if state == "finished" and not any(folder.glob("*.csv")):
            told |= {"state": "failed", "reason": "it wrote no CSV"}
        write(folder, told)
        return told

    def wait(self, experiment, command, log):
        """Runs a command to its end: its state, and the reason if it failed or complains."""
        limit = PATIENCE * self.expected_s(experiment) + PATIENCE_S
        with open(log, "ab") as out:
            # With sudo it has to stay in the terminal's group, whose Ctrl-C reaches it.
            process = subprocess.Popen([*prefix(experiment, self.binaries), *command], stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=out, cwd=ROOT, start_new_session=not os.geteuid())
            try:
                code = watch(process, log, limit, self.show)
            except BaseException:
                end(process)
                raise
            finally:
                reap()
        if code is None:
            return "failed", f"it was ended after {short(limit)}"
        if complaint := experiment.setting("exits", {}).get(str(code)):
            return "finished", complaint
        return ("failed", f"it ended with {code}: {cause(log)}") if code else ("finished", "")

    def manifest(self, experiments):
        """Every experiment that has results or was asked for: its state, and the circumstances of its last run."""
        found = {path.parent.relative_to(self.results).as_posix(): record(path.parent) for path in self.results.glob(f"*/*/{RECORD}")}
        found |= {one.name: {"state": "not run"} for one in experiments if one.name not in found}
        keys = ("state", "date", "source", "build", "seed", "machine", "load", "peers")
        told = {"date": now(), "quick": self.quick,
                "experiments": {name: {key: found[name][key] for key in keys if found[name].get(key)} for name in sorted(found)}}
        path = self.results / "manifest.json"
        path.write_text(json.dumps(told, indent=2) + "\n")


def without_parts(command):
    """A command without the options by which a run takes only some of its cases."""
    words, kept = iter(command), []
    for word in words:
        if word in PARTS:
            next(words, None)
        else:
            kept.append(word)
    return kept


def watch(process, log, limit, show):
    """Waits for the end; None if the limit has passed. Prints all output, or its last line in place on a terminal."""
    begin, in_place = time.monotonic(), sys.stderr.isatty() and not show
    printed = os.path.getsize(log)
    while True:
        gone = time.monotonic() - begin
        try:
            code = process.wait(1)
            break
        except subprocess.TimeoutExpired:
            if show:
                printed = print_from(log, printed)
            if in_place:
                line = f"    {short(gone)}  {last_line(log)}"
                sys.stderr.write(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}")
                sys.stderr.flush()
        if gone > limit:
            end(process)
            code = None
            break
    if show:
        print_from(log, printed)
    if in_place:
        sys.stderr.write("\r\x1b[K")
    return code


def print_from(log, start):
    """Prints a log from a place on, and gives its end."""
    with open(log, "rb") as file:
        file.seek(start)
        sys.stdout.write(file.read().decode(errors="replace"))
        sys.stdout.flush()
        return file.tell()


def end(process):
    """Ends a command and its children: by request, and after a while by force."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        try:
            if os.geteuid():
                process.send_signal(kind)
            else:
                os.killpg(process.pid, kind)
        except (ProcessLookupError, PermissionError):
            pass
        try:
            process.wait(GRACE_S)
            return
        except subprocess.TimeoutExpired:
            continue


def reap():
    """Waits for the children that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def last_lines(log):
    """The last lines that a program has written, without the marks of a line rewritten in place."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.path.getsize(log) - 8192))
            lines = file.read().decode(errors="replace").replace("\r", "\n").replace("\x1b[K", "").splitlines()
    except OSError:
        return []
    return [line.strip() for line in lines if line.strip()]


def last_line(log):
    return next(reversed(last_lines(log)), "")


def cause(log):
    """Why a program ended: the message of a panic or of an error with its causes, or else its last line."""
    lines = [line for line in last_lines(log) if line != "Caused by:"]
    begins = [at for at, line in enumerate(lines) if " panicked at " in line or line.startswith("Error: ")]
    if not begins:
        return last_line(log)
    found = lines[begins[-1]:begins[-1] + 4]
    return ": ".join(itertools.takewhile(lambda line: line.lower() != "stack backtrace:", found))


def short(seconds):
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
