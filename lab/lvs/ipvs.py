#!/usr/bin/env python3
"""equipoise's four LVS schedulers beside IPVS itself, connection by connection.

IPVS runs in a kernel of Debian in a virtual machine (`qemu-system-x86_64`, emulated: nothing is timed), equipoise on
this machine. Both get the same openings and closings, one at a time; README.md has more.

    apt-get download linux-image-6.1.0-56-amd64 && lab/lvs/ipvs.py --kernel linux-image-*.deb

It takes root, for network namespaces.
"""

import argparse
import csv
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(ROOT / "scripts"))

import choices  # noqa: E402
from kernel_modules import modules  # noqa: E402
from place import start, stop  # noqa: E402
from report import table  # noqa: E402

# libcrc32c looks for crc32c_generic by name, so that it does not depend on it.
MODULES = ["crc32c_generic", "veth", "bridge", "ip_vs", "ip_vs_rr", "ip_vs_wrr", "ip_vs_lc", "ip_vs_wlc"]
# Debian's, which is where its modules are.
PYTHON = os.path.realpath("/usr/bin/python3")
LIBRARY = f"/usr/lib/{os.path.basename(PYTHON)}"
HEAD = ["pause, s", "scheduler", "weights", "connections", "same server", "first difference at", "same rounds",
        "IPVS by server", "equipoise by server"]


def cpio(files):
    """An archive of the kind that Linux unpacks at its start. `files`: contents by path."""
    folders = {str(parent)[1:] for path in files for parent in pathlib.Path(path).parents} - {""}
    entries = [(name, 0o040755, b"") for name in sorted(folders)]
    entries += [(path[1:], 0o100755, content) for path, content in files.items()]
    archive = bytearray()
    for number, (name, mode, content) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1):
        fields = number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0
        archive += b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        archive += bytes(-len(archive) % 4) + content
        archive += bytes(-len(archive) % 4)
    return bytes(archive)


def libraries(program):
    said = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    return re.findall(r"(/\S+)", said)


def image(kernel, options):
    """Contents by path: Python, iproute2, ipvsadm, this lab, the modules."""
    files = {}

    def add(path, at=None):
        files[at or str(path)] = pathlib.Path(path).read_bytes()

    programs = [PYTHON, "/sbin/ip", "/sbin/ipvsadm"]
    extensions = [str(path) for path in pathlib.Path(LIBRARY, "lib-dynload").glob("*.so")]
    for program in programs + extensions:
        add(program)
        for library in libraries(program):
            add(library)
    add(PYTHON, "/usr/bin/python3")
    add("/sbin/ip", "/usr/bin/ip")
    for path in pathlib.Path(LIBRARY).rglob("*.py"):
        if not {"test", "idlelib", "lib2to3", "config"} & set(path.parts):
            add(path)
    for name in ("network.py", "choices.py"):
        add(HERE / name, f"/lab/{name}")
    add(HERE.parent / "hosts.py", "/lab/hosts.py")
    add(HERE / "guest.py", "/init")
    paths = modules(kernel, MODULES)
    for path in paths:
        add(path, f"/modules/{path.name}")
    files["/lab/modules"] = "\n".join(f"/modules/{path.name}" for path in paths).encode()
    files["/lab/options"] = json.dumps(options).encode()
    return files


def of_ipvs(folder, package, options):
    kernel = folder / "kernel"
    subprocess.run(["dpkg-deb", "-x", package, kernel], check=True)
    (folder / "initrd").write_bytes(cpio(image(kernel, options)))
    words = ["qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-m", "1024", "-nographic", "-no-reboot",
             "-nic", "none", "-kernel", next((kernel / "boot").glob("vmlinuz-*")), "-initrd", folder / "initrd",
             "-append", "console=ttyS0 quiet panic=-1 ipv6.disable_ipv6=1"]
    said = subprocess.run(words, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
                          timeout=3600)
    lines = [line for line in said.stdout.splitlines() if "@{" in line]
    if not lines:
        raise SystemExit(f"the virtual machine printed no choices:\n{said.stdout[-3000:]}{said.stderr}")
    found = json.loads(lines[0][lines[0].index("@{") + 1:])
    return found["kernel"], found["chosen"]


def of_equipoise(folder, binary, options):
    place = choices.network()
    try:
        text = f"""
[instance]
name = "{place.balancer.name}"
[api]
socket = "{folder}/api.sock"
[flows]
max = 65536
pins-max = 16384
vips-max = 64
closing-timeout = "1h"
"""
        for number, case in enumerate(choices.CASES):
            backends = ", ".join(f'{{ address = "192.0.2.{at}:80", weight = {weight} }}'
                                 for at, weight in enumerate(case.weights, 11))
            text += f"""
[[pool]]
name = "web{number}"
backends = [{backends}]
[[packet]]
vip = "{case.vip}:80/tcp"
interface = "eth0"
forward = "direct-routing"
scheduler = "{case.scheduler}"
pool = "web{number}"
"""
        (folder / "equipoise.toml").write_text(text)
        process = start(folder, place.balancer, [binary, "run", folder / "equipoise.toml"], " ready ", name="equipoise")
        try:
            return choices.choose(place, *options)
        finally:
            stop(process)
    finally:
        place.remove()


def rounds(case, one, other):
    """Rounds of turns, as many as the sum of the weights, in which both gave each server as many; and all rounds."""
    period = sum(case.weights) if case.scheduler.startswith("weighted") else choices.SERVERS
    parts = [(one[at:at + period], other[at:at + period]) for at in range(0, len(one) - period + 1, period)]
    return f"{sum(sorted(a) == sorted(b) for a, b in parts)} of {len(parts)}"


def by_server(chosen):
    return " ".join(str(chosen.count(server)) for server in range(choices.SERVERS))


def compare(settle_s, theirs, ours):
    for case, one, other in zip(choices.CASES, theirs, ours, strict=True):
        differences = [at for at, (a, b) in enumerate(zip(one, other, strict=True), 1) if a != b]
        yield {
            "settle_s": settle_s,
            "scheduler": case.scheduler,
            "weights": " ".join(map(str, case.weights)),
            "connections": len(one),
            "same": len(one) - len(differences),
            "first_difference": differences[0] if differences else "",
            "same_rounds": rounds(case, one, other),
            "ipvs_by_server": by_server(one),
            "equipoise_by_server": by_server(other),
            "ipvs": "".join(str(server + 1) for server in one),
            "equipoise": "".join(str(server + 1) for server in other),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernel", type=pathlib.Path, required=True, help="Debian's package linux-image-...-amd64")
    parser.add_argument("--binary", type=pathlib.Path,
                        default=os.environ.get("EQUIPOISE", ROOT / "target/dist/equipoise"))
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "lab/results/lvs")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seed", type=int, default=2017)
    parser.add_argument("--settle", default="0,0.5",
                        help="seconds that equipoise has after each closing; a run for each")
    parser.add_argument("--reuse", action="store_true", help="connections reuse the ports of closed ones")
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    # Hosts and processes are removed then, too.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="equipoise-ipvs-") as folder:
        folder = pathlib.Path(folder)
        steps = options.seed, options.steps, options.reuse
        release, theirs = of_ipvs(folder, options.kernel.resolve(), (*steps, 0))
        rows = []
        for settle_s in map(float, options.settle.split(",")):
            ours = of_equipoise(folder, options.binary, (*steps, settle_s))
            rows += compare(settle_s, theirs, ours)
    name = "ipvs-reuse" if options.reuse else "ipvs"
    with open(options.results / f"{name}.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    ports = "reused" if options.reuse else "not reused"
    text = f"# {name}\n\nIPVS of Linux {release}; seed {options.seed}, {options.steps} steps; ports are {ports}.\n\n"
    text += table(HEAD, ([str(value) for value in list(row.values())[:len(HEAD)]] for row in rows))
    (options.results / f"{name}.md").write_text(text.rstrip() + "\n")
    print(text)


if __name__ == "__main__":
    sys.exit(main())
