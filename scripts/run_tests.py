#!/usr/bin/env python3
"""Runs `cargo test`, and repeats the tests that fail, alone and once.

    scripts/run_tests.py cargo test --workspace --no-fail-fast

A test that fails twice fails the run. One that passes when it is repeated is flaky: the last lines of the output name
it and show its first failure. More than REPEATED_MAX failures fail the run without repetition, and so does a test
binary that crashes. Every failure is in the output, and none is hidden. A run that fails shows how full the disks are:
a full one fails many tests, of which none names it.
"""

import re
import shutil
import subprocess
import sys
import tempfile

# A disk that is full or slow for a minute fails several tests at once.
REPEATED_MAX = 8
# Of the output of a failure that is printed again at the end.
LINES_MAX = 60

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
RESULT = re.compile(r"^test (\S+) \.\.\. (ok|FAILED)$")
OUTPUT = re.compile(r"^---- (\S+) stdout ----$")
# Cargo's list of the targets with failures: `-p equipoise --test cluster`
TARGET = re.compile(r"^ +`(?:-p (\S+) )?(--lib|--test \S+|--bin \S+|--bench \S+|--example \S+|--doc)`$")
# The end of the tests of a binary, and cargo's line about it.
RERUN = re.compile(r"^error: test failed, to rerun pass `(?:-p (\S+) )?(--\S+(?: \S+)?)`$")


class Run:
    """The results in the output of one run of `cargo test`."""

    def __init__(self):
        self.passed = set()
        self.failed = []
        self.outputs = {}
        self.targets = set()
        self.pending = []
        self.output_of = None

    def read(self, line):
        line = COLOUR.sub("", line).rstrip("\n")
        if match := RERUN.match(line):
            target = match.groups()
            self.targets.add(target)
            self.failed += [(target, name) for name in self.pending]
            self.pending, self.output_of = [], None
        elif match := TARGET.match(line):
            self.targets.add(match.groups())
        elif match := RESULT.match(line):
            if match[2] == "ok":
                self.passed.add(match[1])
            else:
                self.pending.append(match[1])
        elif match := OUTPUT.match(line):
            self.output_of = match[1]
            self.outputs[self.output_of] = []
        elif line == "failures:":
            self.output_of = None
        elif self.output_of and len(self.outputs[self.output_of]) < LINES_MAX:
            self.outputs[self.output_of].append(line)


def run(command):
    """Runs a command and shows its output. Returns its exit status and its results."""
    printed = Run()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    for line in process.stdout:
        sys.stdout.write(line)
        sys.stdout.flush()
        printed.read(line)
    return process.wait(), printed


def repeat(command, target, name):
    """Repeats one test. True if it passes."""
    # With `--workspace` as in the first run: another selection of packages would build them again.
    _, kind = target
    status, printed = run([*command, *kind.split(), "--", "--exact", name])
    return status == 0 and name in printed.passed


def main():
    command = sys.argv[1:]
    if not command:
        sys.exit(__doc__)
    status, printed = run(command)
    if status == 0:
        return 0
    print_disks()
    crashed = printed.targets - {target for target, _ in printed.failed}
    if not printed.failed or crashed or len(printed.failed) > REPEATED_MAX:
        print("\nno test is repeated:")
        for target, name in printed.failed:
            print(f"  FAILED  {name} ({called(target)})")
        for target in sorted(crashed, key=called):
            print(f"  ENDED   {called(target)}: without the names of failed tests")
        return status
    print(f"\nrepeating the failed tests, each alone: {len(printed.failed)}")
    passed = {name: repeat(command, target, name) for target, name in printed.failed}
    for _, name in printed.failed:
        print(f"\n{name}, as it failed first:")
        print("\n".join(f"  | {line}" for line in printed.outputs.get(name, [])))
    print()
    for target, name in printed.failed:
        if passed[name]:
            print(f"  FLAKY   {name} ({called(target)}): passed when repeated; please report it")
        else:
            print(f"  FAILED  {name} ({called(target)}): failed twice")
    return 0 if all(passed.values()) else status


def print_disks():
    """Prints the room for files of the build and of tests."""
    for folder in [".", tempfile.gettempdir()]:
        usage = shutil.disk_usage(folder)
        print(f"\n{folder}: {usage.free >> 20} of {usage.total >> 20} MiB are free", end="")
    print()


def called(target):
    """A target as people call it."""
    package, kind = target
    return f"{package} {kind}" if package else kind


if __name__ == "__main__":
    sys.exit(main())
