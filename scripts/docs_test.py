#!/usr/bin/env python3
"""Runs the commands of the documentation.

    scripts/docs_test.py                      every page of docs/ with commands to run
    scripts/docs_test.py docs/start.md ...    these pages
    EQUIPOISE=target/demo/equipoise scripts/docs_test.py
    SHOW=1 scripts/docs_test.py docs/start.md           prints the output of every step

The program is $EQUIPOISE, else target/debug/equipoise. A page says by the words after the language of
a block what the block is:

    ```toml file=site.toml       the text of a file, in the folder of the page or at an absolute path
    ```sh run                    commands; the first that fails fails the page
    ```sh run fails              commands of which the last must fail
    ```sh run until=ready        commands that continue; the next step begins when they printed `ready`
    ```text output               the whole output of the commands before; `...` stands for any text

`on=n1` runs commands, or writes a file, on the host n1: a network namespace with an /etc, /run and /var/lib
of its own. A comment that begins with `<!-- run` has commands that prepare the test, such as sample
backends, and readers do not see it. `<!-- needs: bird root target/venv/bin/python -->` skips the page if a program,
a path of the repository or the user root is missing.

Blocks of TOML need not be whole, but their options have to exist.

Each page has a network namespace of its own, which reaches nothing outside, and a copy of /etc; its processes
end with it. Blocks without these words are not run. A page that fails is repeated once, alone; if it then passes, it
is reported as flaky.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STEP_SECONDS = int(os.environ.get("STEP_SECONDS", 60))
PAGES_AT_ONCE = 2
FENCE = re.compile(r"^( *)```(.*)$")
HIDDEN = re.compile(r"^<!-- (run\b.*)$")
TOML = re.compile(r"^```toml[^\n]*\n(.*?)^```", re.M | re.S)
NEEDS = re.compile(r"^<!-- needs: (.*) -->$")
ROOTS_PATH = "/usr/local/sbin:/usr/sbin:/sbin:" + os.environ["PATH"]


class Step:
    """A file to write, or commands to run, with their expected output."""

    def __init__(self, line, words, text):
        self.line, self.text, self.expected = line, text, None
        options = dict(word.partition("=")[::2] for word in words)
        self.file, self.host, self.until = options.get("file"), options.get("on", ""), options.get("until")
        self.fails = "fails" in options
        if unknown := options.keys() - {"file", "on", "until", "fails", "run"}:
            raise ValueError(f"{line}: unknown words {sorted(unknown)}")


def steps(text):
    """The steps of a page, in order, and the programs that it needs."""
    found, needs, lines, at = [], [], text.split("\n"), 0
    while at < len(lines):
        first = at + 1
        if match := NEEDS.match(lines[at]):
            needs += match[1].split()
        elif match := HIDDEN.match(lines[at]):
            end = lines.index("-->", first)
            found.append(Step(first, shlex.split(match[1]), "\n".join(lines[first:end])))
            at = end
        elif match := FENCE.match(lines[at]):
            indent = match[1]
            end = lines.index(indent + "```", first)
            block = "\n".join(line.removeprefix(indent) for line in lines[first:end])
            words = shlex.split(match[2])[1:] if match[2] else []
            if words == ["output"]:
                found[-1].expected = block
            elif "run" in words or any(word.startswith("file=") for word in words):
                found.append(Step(first, words, block))
            at = end
        at += 1
    return found, needs


def fits(expected, printed):
    """Whether an output is the expected one. A line of `...` stands for any lines."""
    pattern = re.escape(expected.strip()).replace(re.escape("..."), ".*")
    lines = [line.rstrip() for line in printed.strip().split("\n")]
    return re.fullmatch(pattern, "\n".join(lines), re.S) is not None


def private_mounts(folder):
    """Shell commands that give the caller's mount namespace folders of its own."""
    return f"""
        mkdir -p {folder}/etc && cp -a /etc/. {folder}/etc 2>/dev/null
        mount --bind {folder}/etc /etc
        mount -t sysfs sysfs /sys && mount -t cgroup2 cgroup2 /sys/fs/cgroup && mount -t bpf bpf /sys/fs/bpf
        mkdir -p /run/netns 2>/dev/null
        for at in /var/lib /var/log; do mount -t tmpfs tmpfs $at; done
        ip link set lo up; ip link set lo multicast on; ip route add 224.0.0.0/4 dev lo
    """


class Host:
    """A shell that stays open, in a network namespace of its own if the host has a name."""

    def __init__(self, name, folder):
        self.folder, self.number = folder, 0
        # Sockets and pid files of two hosts have the same paths, so each host has mounts of its own.
        setup = "mount -t tmpfs tmpfs /run\n" + private_mounts(folder / f"host-{name}") + "\nexec bash --norc"
        command = ["bash", "-c", setup]
        if name:
            command = ["nsenter", f"--net=/run/netns/{name}", "unshare", "--mount", *command]
        self.shell = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            cwd=folder / "work", text=True,
        )

    def run(self, step):
        """Runs a step. Returns the reason why it failed, or None."""
        self.number += 1
        script, output, status = (self.folder / f"{id(self)}-{self.number}{end}" for end in (".sh", ".out", ".status"))
        if step.file:
            where = shlex.quote(step.file)
            script.write_text(f'mkdir -p "$(dirname {where})" && cat > {where} <<\'END OF FILE\'\n{step.text}\nEND OF FILE\n')
        else:
            script.write_text(step.text + "\n")
        output.touch()
        if step.until:
            self.send(f"{{ ( . {script} ); echo $? > {status}; }} < /dev/null > {output} 2>&1 &")
        elif step.fails:
            self.send(f". {script} < /dev/null > {output} 2>&1; echo $? > {status}")
        else:
            # A failed command ends a subshell, but its variables and functions belong to later blocks.
            self.send(f"set -e; trap 'echo $? > {status}' EXIT; . {script} < /dev/null > {output} 2>&1; trap - EXIT; set +e; echo 0 > {status}")
        failure = self.outcome(step, output, status)
        self.printed = output.read_text(errors="replace")
        return failure

    def send(self, line):
        self.shell.stdin.write(line + "\n")
        self.shell.stdin.flush()

    def outcome(self, step, output, status):
        end = time.monotonic() + STEP_SECONDS
        printed = lambda: output.read_text(errors="replace")
        ended = lambda: status.exists() and status.read_text().strip() != ""
        while not ended() and not (step.until and step.until in printed()):
            if time.monotonic() > end or self.shell.poll() is not None:
                return f"did not end within {STEP_SECONDS} s, or its shell ended; it printed:\n{printed()}"
            time.sleep(0.02)
        code = int(status.read_text()) if ended() else 0
        if step.until and step.until not in printed():
            return f"ended with {code} before it printed {step.until!r}; it printed:\n{printed()}"
        if (code != 0) != step.fails and not step.until:
            return f"the exit code is {code}; it printed:\n{printed()}"
        if step.expected is not None and not fits(step.expected, printed()):
            return f"it printed:\n{printed()}\ninstead of:\n{step.expected}"
        return None


def inside(page):
    """Runs a page; this process is in namespaces of its own."""
    folder = Path(tempfile.mkdtemp(prefix="docs-"))
    for name in ("work", "bin"):
        (folder / name).mkdir()
    (folder / "bin/equipoise").symlink_to(program())
    (folder / "bin/backend").symlink_to(ROOT / "scripts/docs_backend.py")
    os.environ |= {"PATH": f"{folder}/bin:{ROOTS_PATH}", "REPOSITORY": str(ROOT), "NO_COLOR": "1", "COLUMNS": "200",
                   "PYTHONDONTWRITEBYTECODE": "1"}
    hosts = {}
    try:
        for step in steps(page.read_text())[0]:
            host = hosts.get(step.host) or hosts.setdefault(step.host, Host(step.host, folder))
            failure = host.run(step)
            if "SHOW" in os.environ:
                print(f"--- {page.name}:{step.line}\n{host.printed}", end="")
            if failure:
                print(f"{page.relative_to(ROOT)}:{step.line}: {failure}")
                return 1
        return 0
    finally:
        for host in hosts.values():
            host.shell.kill()
        if "KEEP" not in os.environ:
            shutil.rmtree(folder, ignore_errors=True)


def program():
    return Path(os.environ.get("EQUIPOISE", ROOT / "target/debug/equipoise")).resolve()


def test(page):
    """Runs a page in new namespaces. Returns a line about it, and whether it failed."""
    found, needs = steps(page.read_text())
    name = page.relative_to(ROOT)
    if missing := [it for it in needs if not available(it)]:
        return f"{name}: skipped: {' '.join(missing)} is missing", False
    begun = time.monotonic()
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    namespaces = ["unshare", *as_root, "--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc"]
    done = subprocess.run([*namespaces, sys.executable, __file__, "--inside", page], capture_output=True, text=True)
    if done.returncode != 0:
        return f"{done.stdout}{done.stderr}{name}: FAILED", True
    return f"{done.stdout}{name}: {len(found)} steps, {time.monotonic() - begun:.1f} s", False


def unknown_options(page):
    """Options in a page's blocks of TOML that this version does not know."""
    text = page.read_text()
    for block in TOML.finditer(text):
        checked = subprocess.run([program(), "check", "-"], input=block[1], capture_output=True, text=True)
        first = text.count("\n", 0, block.start(1))
        for line, rest in re.findall(r"^\(standard input\):(\d+):\d+: (.*unknown option.*)", checked.stdout, re.M):
            yield f"{page.relative_to(ROOT)}:{first + int(line)}: {rest}"


def available(need):
    if need == "root":
        return os.geteuid() == 0
    if "/" in need:
        return (ROOT / need).exists()
    return shutil.which(need, path=ROOTS_PATH) is not None


def main():
    if sys.argv[1:2] == ["--inside"]:
        return inside(Path(sys.argv[2]).resolve())
    pages = [Path(name).resolve() for name in sys.argv[1:]] or sorted(ROOT.glob("docs/**/*.md"))
    if not program().exists():
        sys.exit(f"docs_test.py: there is no {program()}: build it, or name another one in EQUIPOISE")
    unknown = [line for page in pages for line in unknown_options(page)]
    pages = [page for page in pages if steps(page.read_text())[0]]
    failed, skipped = [], 0
    with ThreadPoolExecutor(PAGES_AT_ONCE) as pool:
        for page, (line, has_failed) in zip(pages, pool.map(test, pages)):
            failed += [page] if has_failed else []
            skipped += ": skipped: " in line
            print(line, flush=True)
    twice = 0
    for page in failed:
        line, has_failed = test(page)
        twice += has_failed
        print(line if has_failed else f"  FLAKY   {page.relative_to(ROOT)}: passed when repeated; please report it")
    print("\n".join([*unknown, f"docs_test.py: {len(pages)} pages, {skipped} skipped, {twice} failed; {len(unknown)} unknown options"]))
    return int(twice > 0 or bool(unknown))


if __name__ == "__main__":
    sys.exit(main())
