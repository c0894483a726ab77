"""The circumstances of a run: commit, machine, versions of peers, and the load while it lasts."""

import hashlib
import os
import pathlib
import platform
import re
import resource
import shutil
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROC = pathlib.Path("/proc")
# Cores that other programs used, from which on a verdict is marked.
OTHERS_CORES = 0.3
# The load average before the run, where nothing else was recorded.
LOAD_BEFORE = 1.0

VERSIONS = {
    "haproxy": ["haproxy", "-v"], "nginx": ["nginx", "-v"], "wrk": ["wrk", "-v"], "h2load": ["h2load", "--version"],
    "openssl": ["openssl", "version"], "knot": ["knotd", "--version"], "nsd": ["nsd", "-v"],
    "gdnsd": ["gdnsd", "-v"], "powerdns": ["pdns_server", "--version"], "dnsperf": ["dnsperf", "-h"],
    "unbound": ["unbound", "-V"], "bind": ["named", "-v"], "knot-resolver": ["kresd", "--version"],
    "etcd": ["etcd", "--version"], "postgresql": ["psql", "--version"], "ipvsadm": ["ipvsadm", "--version"],
    "qemu": ["qemu-system-x86_64", "--version"], "keepalived": ["keepalived", "--version"], "python": ["python3", "--version"],
}


def find(program):
    """Where a program is. Those of Debian's servers are not on every user's path."""
    return shutil.which(program, path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")


def output(*words):
    """What a program prints, on either stream; nothing if it cannot be run."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=20, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout + done.stderr).strip()


def source():
    """The commit, with a digest of the changes to its files if there are any. Results are no source."""
    commit = output("git", "rev-parse", "HEAD")
    changes = output("git", "diff", "HEAD", "--", ".", ":!lab/results")
    return f"{commit}+{hashlib.sha256(changes.encode()).hexdigest()[:12]}" if changes else commit


def version(peer):
    """The line of a peer's answer that has a version."""
    program, *words = VERSIONS[peer]
    path = find(program)
    if not path:
        return "not installed"
    # The page has no address in it.
    lines = [re.sub(r"[\s-]*https?://\S+", "", line) for line in output(path, *words).splitlines()]
    return next((line.strip() for line in lines if re.search(r"\d+\.\d+", line)), lines[0] if lines else "unknown")


def describe():
    """The machine."""
    cpuinfo = (PROC / "cpuinfo").read_text()
    model = re.search(r"^model name\s*: (.*)$", cpuinfo, re.M)
    memory = re.search(r"^MemTotal:\s+(\d+)", (PROC / "meminfo").read_text(), re.M)
    return {
        "kernel": platform.release(), "cpu": model[1] if model else platform.machine(),
        "cpus_online": len(os.sched_getaffinity(0)), "memory_mib": int(memory[1]) >> 10 if memory else 0,
        "rustc": output("rustc", "--version"), "python": platform.python_version(),
    }


def busy_s():
    """CPU time of all programs since the start of the machine, and time stolen by its host; seconds."""
    fields = [int(word) for word in (PROC / "stat").read_text().split("\n", 1)[0].split()[1:]]
    ticks = os.sysconf("SC_CLK_TCK")
    return sum(fields[:3]) / ticks, (fields[7] if len(fields) > 7 else 0) / ticks


def own_s():
    """CPU time of this program and of the children that it has waited for; seconds."""
    kinds = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, kinds))


class Load:
    """The load from `__enter__` to `__exit__`. All children have to be waited for by then."""

    def __enter__(self):
        self.begin, self.busy, self.own = time.monotonic(), busy_s(), own_s()
        self.before, self.most, self.end = os.getloadavg()[0], 0.0, threading.Event()
        self.sampler = threading.Thread(target=self.sample, daemon=True)
        self.sampler.start()
        return self

    def sample(self):
        while not self.end.wait(1):
            self.most = max(self.most, os.getloadavg()[0])

    def __exit__(self, *_):
        self.end.set()
        self.sampler.join()
        seconds = max(time.monotonic() - self.begin, 0.001)
        busy, stolen = (now - then for now, then in zip(busy_s(), self.busy))
        self.told = {
            "load_average_before": round(self.before, 2), "load_average_most": round(max(self.most, self.before), 2),
            "others_cores": round(max(0.0, busy - (own_s() - self.own)) / seconds, 2),
            "stolen_cores": round(stolen / seconds, 2),
        }


def worse(load, other):
    """The load of a run in two parts."""
    return {key: max(value, other.get(key, value)) for key, value in load.items()}


def disturbance(load):
    """How other programs disturbed a run, or nothing."""
    if "others_cores" in load:
        cores = load["others_cores"] + load["stolen_cores"]
        return f"other programs used {cores:.1f} cores meanwhile" if cores >= OTHERS_CORES else ""
    before = load.get("load_average_before")
    return f"the load average was {before:g} at the start" if before is not None and before >= LOAD_BEFORE else ""
