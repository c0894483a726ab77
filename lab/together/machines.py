"""The hosts, and what every case has: nodes with their application, balancers, clients.

    client 198.51.100.2 --- router ===+=== balancers  192.0.2.2, 192.0.2.3
                                      +=== controller 192.0.2.5
                                      +=== source     192.0.2.6, of a stream
                                      +=== nodes      192.0.2.11 to .15

The router sends VIPs of the packet level (203.0.113.0/24) to both balancers, by a flow's addresses and ports.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from hosts import Group, Host, join, pass_everything, run  # noqa: E402

NODES, SPARE = 4, 5
# A node's share of a core, and the rate of its link towards clients.
CORES, PERIOD_US, LINK_MBIT = 0.2, 10_000, 20
MEMORY_BYTES = 512 << 20
WORK_MS = 8
VIP = "203.0.113.1"
PATIENCE_S = 60


def node_address(number):
    return f"192.0.2.{10 + number}"


class Machine:
    """A host with its processes. A node's are held to its share of a core."""

    def __init__(self, site, name, number, cores=None):
        self.site, self.name, self.address = site, name, f"192.0.2.{number}"
        self.host = Host(name)
        self.group = Group(name, int(cores * PERIOD_US), PERIOD_US, MEMORY_BYTES) if cores else None

    def start(self, name, words, ready=None):
        """Starts a program, and waits for a word in its output."""
        log = self.site.folder / f"{self.name}-{name}.log"
        if self in self.site.nodes:
            # A node measures itself as on a machine of its own: the work of this machine's processors for others is hidden.
            stat = self.site.folder / "stat"
            stat.write_text(pathlib.Path("/proc/stat").read_text())
            alone = ["unshare", "--mount", "sh", "-c", f"mount --bind {stat} /proc/stat && exec \"$@\"", "sh"]
            words = [*alone, *words]
        with open(log, "w") as file:
            process = subprocess.Popen(self.host.words(*words), stdout=file, stderr=subprocess.STDOUT,
                                       preexec_fn=self.group.enter if self.group else None)
        end = time.monotonic() + PATIENCE_S
        while ready and ready not in log.read_text():
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{name} on {self.name} does not start: {log.read_text()}")
            time.sleep(0.05)
        return process

    def processes(self):
        return [int(word) for word in run("ip", "netns", "pids", self.host.name).split()]

    def kill(self):
        """Ends all its processes at once."""
        end = time.monotonic() + PATIENCE_S
        while (processes := self.processes()) and time.monotonic() < end:
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.05)

    def remove(self):
        self.kill()
        self.host.remove()
        if self.group:
            end = time.monotonic() + PATIENCE_S
            while time.monotonic() < end:
                try:
                    return self.group.remove()
                except OSError:
                    time.sleep(0.1)


class Site:
    """All hosts, without a balancer: the cases add theirs."""

    def __init__(self, folder, equipoise):
        self.folder, self.equipoise, self.nodes = folder, equipoise, []
        self.cleanup = contextlib.ExitStack()
        try:
            self.build()
        except BaseException:
            self.close()
            raise

    def build(self):
        self.client, self.router = self.bare("client"), self.bare("router")
        join(self.client, "eth0", self.router, "clients")
        self.client.ip("addr add 198.51.100.2/24 dev eth0")
        self.client.ip("route add default via 198.51.100.1")
        self.router.ip("addr add 198.51.100.1/24 dev clients")
        self.router.ip("link add lan type bridge stp_state 0 forward_delay 0 mcast_snooping 0")
        self.router.ip("addr add 192.0.2.1/24 dev lan")
        self.router.ip("link set lan up")
        self.router.sysctl(ip_forward=1, conf__all__send_redirects=0, fib_multipath_hash_policy=1)
        # Their CPU use is measured, too, and has no bound that matters.
        self.balancers = [self.machine(f"b{number}", 1 + number, os.cpu_count()) for number in (1, 2)]
        self.router.ip(f"route add {VIP}/32 " + " ".join(f"nexthop via {one.address}" for one in self.balancers))
        for balancer in self.balancers:
            balancer.host.sysctl(ip_forward=1, conf__all__send_redirects=0)
        self.controller, self.source = self.machine("controller", 5), self.machine("source", 6)
        for number in range(1, SPARE + 1):
            self.nodes.append(self.machine(f"n{number}", 10 + number, CORES))
        for node in self.nodes:
            node.host.sysctl(conf__all__arp_ignore=1, conf__all__arp_announce=2, conf__all__rp_filter=0)
            node.host.ip(f"addr add {VIP}/32 dev lo")
            run("tc", "-n", node.host.name, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", f"{LINK_MBIT}mbit",
                "burst", "64k", "latency", "200ms")

    def bare(self, name):
        host = Host(name)
        self.cleanup.callback(host.remove)
        return host

    def machine(self, name, number, cores=None):
        machine = Machine(self, name, number, cores)
        self.cleanup.callback(machine.remove)
        port = f"port{number}"
        join(machine.host, "eth0", self.router, port)
        with self.router.entered():
            pass_everything(port)
        self.router.ip(f"link set {port} master lan")
        machine.host.ip(f"addr add {machine.address}/24 dev eth0")
        machine.host.ip("route add default via 192.0.2.1")
        return machine

    def start_application(self, node):
        words = [self.equipoise, "sample-backend", "--name", node.name, "--http", 8080, "--work", f"{WORK_MS}ms",
                 "--listen", "127.0.0.1", "--listen", node.address]
        node.start("application", words, "ready")

    def link(self, node, state):
        node.host.ip(f"link set eth0 {state}")
        if state == "up":
            node.host.ip("route replace default via 192.0.2.1")

    def close(self):
        self.cleanup.close()
