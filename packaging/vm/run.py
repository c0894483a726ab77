#!/usr/bin/env python3
"""Installs and tries the Debian package in a virtual machine that systemd has booted.

    packaging/vm/run.py --kernel linux-image-*.deb --root root.tar FIRST.deb SECOND.deb

The machine (`qemu-system-x86_64`, emulated) has Debian's kernel, runs in memory and has no network card. It boots, runs
`guest.sh` and goes down. This program prints what the guest prints, and fails if the guest does not end with `== done`.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "scripts"))

from kernel_modules import modules  # noqa: E402

# For the packet level.
MODULES = ["veth"]
PHASES = ["website", "https", "replacement", "upgrade", "crash", "sockets", "packet", "hardening"]
# A boot takes about a minute on an idle core, and several beside other work.
SECONDS_MAX = 1800
# pivot_root, which the units' private folders take, does not work in the file system that the kernel unpacks.
INIT = """#!/bin/sh
mount -t tmpfs -o size=90%,mode=755 root /mnt
cp -ax /bin /sbin /lib* /etc /opt /root /srv /usr /var /vm /mnt/
mkdir -m 755 /mnt/dev /mnt/proc /mnt/sys /mnt/run /mnt/mnt /mnt/home
mkdir -m 1777 /mnt/tmp
mount -t devtmpfs dev /mnt/dev
exec switch_root /mnt /sbin/init
"""
UNIT = """[Unit]
Description=Tries the package
[Service]
ExecStart=/bin/bash /vm/guest.sh
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
[Install]
WantedBy=multi-user.target
"""


def image(folder, options):
    """Paths of the kernel, and of an archive with the root, the packages and the guest's script."""
    kernel, root = folder / "kernel", folder / "root"
    subprocess.run(["dpkg-deb", "-x", options.kernel, kernel], check=True)
    root.mkdir()
    subprocess.run(["tar", "-x", "-f", options.root, "-C", root, "--exclude=./dev/*"], check=True)
    inside = root / "vm"
    (inside / "modules").mkdir(parents=True)
    for number, path in enumerate(modules(kernel, MODULES)):
        (inside / "modules" / f"{number}-{path.name}").write_bytes(path.read_bytes())
    for name, package in zip(("1.deb", "2.deb"), options.packages, strict=True):
        (inside / name).write_bytes(package.read_bytes())
    for name in ("guest.sh", "requests.py", "checksums_off.py"):
        (inside / name).write_bytes((HERE / name).read_bytes())
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "3650",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", inside / "key.pem",
                    "-out", inside / "certificate.pem"], check=True, stderr=subprocess.DEVNULL)
    (inside / "phases").write_text(" ".join(options.phases))
    (root / "init").write_text(INIT)
    (root / "init").chmod(0o755)
    unit = root / "etc/systemd/system/try.service"
    unit.write_text(UNIT)
    wanted = root / "etc/systemd/system/multi-user.target.wants"
    wanted.mkdir(exist_ok=True)
    (wanted / unit.name).symlink_to(f"/etc/systemd/system/{unit.name}")
    archive = folder / "initrd"
    with archive.open("wb") as out:
        names = subprocess.run(["find", ".", "-print0"], cwd=root, check=True, capture_output=True).stdout
        subprocess.run(["cpio", "--null", "--create", "--format=newc", "--quiet"], cwd=root, check=True, input=names,
                       stdout=out)
    return next((kernel / "boot").glob("vmlinuz-*")), archive


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernel", type=pathlib.Path, required=True, help="Debian's package linux-image-...-amd64")
    parser.add_argument("--root", type=pathlib.Path, required=True, help="a root of Debian's packages with systemd")
    parser.add_argument("--phases", nargs="+", choices=PHASES, default=PHASES,
                        help="parts of guest.sh between the installation and the removal (default: all)")
    parser.add_argument("packages", type=pathlib.Path, nargs=2, help="the package, and one of a later version")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="equipoise-vm-") as folder:
        kernel, archive = image(pathlib.Path(folder), options)
        words = ["qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-smp", "2", "-m", "4096", "-nographic",
                 "-no-reboot", "-nic", "none", "-kernel", kernel, "-initrd", archive,
                 "-append", "console=ttyS0 quiet panic=-1 systemd.show_status=0"]
        machine = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace")
        is_done = False
        try:
            for line in machine.stdout:
                print(line.rstrip(), flush=True)
                is_done = is_done or line.strip() == "== done"
            machine.wait(SECONDS_MAX)
        finally:
            machine.kill()
    return 0 if is_done else 1


if __name__ == "__main__":
    sys.exit(main())
