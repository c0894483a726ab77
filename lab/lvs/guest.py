#!/usr/bin/python3
"""The first process of the virtual machine: IPVS of its kernel makes the choices, and the console gets them."""

import ctypes
import json
import os
import pathlib
import resource
import sys
import traceback

LIBC = ctypes.CDLL(None, use_errno=True)
SYS_FINIT_MODULE = {"x86_64": 313, "aarch64": 273}[os.uname().machine]
POWER_OFF = 0x4321FEDC


def prepare():
    for kind, at in (("proc", "/proc"), ("sysfs", "/sys"), ("tmpfs", "/run")):
        pathlib.Path(at).mkdir(exist_ok=True)
        LIBC.mount(kind.encode(), at.encode(), kind.encode(), 0, None)
    resource.setrlimit(resource.RLIMIT_NOFILE, (65536, 65536))
    for module in pathlib.Path("/lab/modules").read_text().split():
        with open(module) as file:
            if LIBC.syscall(SYS_FINIT_MODULE, file.fileno(), b"", 0):
                print(f"{module}: {os.strerror(ctypes.get_errno())}", flush=True)


def balance(place, cases, names):
    from hosts import run
    for case in cases:
        place.balancer.ip(f"addr add {case.vip}/32 dev lo")
        with place.balancer.entered():
            run("/sbin/ipvsadm", "-A", "-t", f"{case.vip}:80", "-s", names[case.scheduler])
            # IPVS puts the newest first.
            for number, weight in reversed(list(enumerate(case.weights, 11))):
                run("/sbin/ipvsadm", "-a", "-t", f"{case.vip}:80", "-r", f"192.0.2.{number}:80", "-g", "-w", weight)
    with place.balancer.entered():
        run("/sbin/ipvsadm", "--set", 3600, 3600, 300)


def main():
    os.environ["PATH"] = "/usr/bin:/usr/sbin:/bin:/sbin"
    sys.path.insert(0, "/lab")
    prepare()
    import choices
    options = json.loads(pathlib.Path("/lab/options").read_text())
    place = choices.network()
    balance(place, choices.CASES, choices.SCHEDULERS)
    chosen = choices.choose(place, *options)
    print("@" + json.dumps({"kernel": os.uname().release, "chosen": chosen}), flush=True)


if __name__ == "__main__":
    try:
        main()
    except Exception:
        traceback.print_exc(file=sys.stdout)
    finally:
        sys.stdout.flush()
        LIBC.reboot(POWER_OFF)
