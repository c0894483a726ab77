"""Hosts of the labs: network namespaces joined by veth pairs, and control groups that hold processes to a share."""

import array
import contextlib
import ctypes
import fcntl
import os
import pathlib
import socket
import struct
import subprocess

LIBC = ctypes.CDLL(None, use_errno=True)
SYS_BPF = {"x86_64": 321, "aarch64": 280}[os.uname().machine]
# linux/bpf.h: BPF_PROG_LOAD, BPF_LINK_CREATE; a program's type XDP; where it is attached.
PROG_LOAD, LINK_CREATE, TYPE_XDP, ATTACH_XDP = 5, 28, 6, 37
# `r0 = XDP_PASS; exit`
PASS = (ctypes.c_uint64 * 2)(0x0000_0002_0000_00B7, 0x95)
SIOCETHTOOL = 0x8946
# linux/ethtool.h: receive and transmit checksums, TSO, GSO, GRO.
OFFLOADS = 0x15, 0x17, 0x1F, 0x24, 0x2C


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


class Host:
    def __init__(self, name):
        self.name = f"lab-{os.getpid()}-{name}"
        run("ip", "netns", "add", self.name)
        self.ip("link set lo up")

    def ip(self, words):
        return run("ip", "-n", self.name, *words.split())

    def words(self, *words):
        """The command that runs a program here. Unlike `ip netns exec` it keeps /sys, and thus pinned maps."""
        return ["nsenter", f"--net=/run/netns/{self.name}", *(str(word) for word in words)]

    def sysctl(self, **values):
        """Sets net.ipv4 values; `__` in a name separates its parts."""
        with self.entered():
            for key, value in values.items():
                pathlib.Path("/proc/sys/net/ipv4", *key.split("__")).write_text(str(value))

    @contextlib.contextmanager
    def entered(self):
        """This thread is in the namespace."""
        with open("/proc/thread-self/ns/net") as back, open(f"/run/netns/{self.name}") as there:
            call(LIBC.setns, there.fileno(), 0)
            try:
                yield
            finally:
                call(LIBC.setns, back.fileno(), 0)

    def remove(self):
        run("ip", "netns", "delete", self.name)


def call(function, *arguments):
    result = function(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def without_offloads(interface):
    """XDP programs see packets as on the wire."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for command in OFFLOADS:
            value = array.array("B", struct.pack("II", command, 0))
            request = struct.pack("16sQ", interface.encode(), value.buffer_info()[0]) + bytes(16)
            fcntl.ioctl(asked, SIOCETHTOOL, request)


def pass_everything(interface):
    """Attaches a program that passes all packets: veth accepts frames that its peer's program sends only if it has
    a program of its own. Attached until this process ends."""
    load = struct.pack("IIQQ", TYPE_XDP, 2, ctypes.addressof(PASS), ctypes.addressof(GPL))
    program = bpf(PROG_LOAD, load + bytes(44) + struct.pack("I", ATTACH_XDP))
    bpf(LINK_CREATE, struct.pack("IIII", program, socket.if_nametoindex(interface), ATTACH_XDP, 0))


GPL = ctypes.create_string_buffer(b"Apache-2.0")


def bpf(command, attributes):
    return call(LIBC.syscall, SYS_BPF, command, attributes, len(attributes))


def join(host, interface, peer, peer_interface):
    host.ip(f"link add {interface} type veth peer name {peer_interface} netns {peer.name}")
    for one, name in ((host, interface), (peer, peer_interface)):
        with one.entered():
            without_offloads(name)
        one.ip(f"link set {name} up")


class Group:
    """A control group (v1 or v2) with a quota of CPU time and a limit of memory."""

    def __init__(self, name, cpu_us, period_us, memory_bytes):
        root = pathlib.Path("/sys/fs/cgroup")
        self.is_v1 = (root / "cpu").is_dir()
        name = f"lab-{os.getpid()}-{name}"
        self.folders = [root / kind / name for kind in ("cpu", "memory", "cpuacct")] if self.is_v1 else [root / name]
        for folder in self.folders:
            folder.mkdir()
        if self.is_v1:
            self.write(0, "cpu.cfs_period_us", period_us)
            self.write(0, "cpu.cfs_quota_us", cpu_us)
            self.write(0, "cpu.shares", 262144)
            self.write(1, "memory.limit_in_bytes", memory_bytes)
        else:
            self.write(0, "cpu.max", f"{cpu_us} {period_us}")
            self.write(0, "cpu.weight", 10000)
            self.write(0, "memory.max", memory_bytes)

    def write(self, folder, file, value):
        (self.folders[folder] / file).write_text(str(value))

    def enter(self):
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(os.getpid()))

    def peak_bytes(self):
        return int((self.folders[1] / "memory.max_usage_in_bytes" if self.is_v1
                    else self.folders[0] / "memory.peak").read_text())

    def cpu_s(self):
        """CPU time that its processes have used."""
        if self.is_v1:
            return int((self.folders[2] / "cpuacct.usage").read_text()) / 1e9
        words = (self.folders[0] / "cpu.stat").read_text().split()
        return int(words[words.index("usage_usec") + 1]) / 1e6

    def remove(self):
        for folder in self.folders:
            folder.rmdir()
