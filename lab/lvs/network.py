"""Hosts made of network namespaces, joined by veth pairs and a bridge.

    client 198.51.100.2 --- router ===+=== balancer    192.0.2.2
                                      +=== database    192.0.2.3
                                      +=== real server 192.0.2.11 to .14

The VIPs are in 203.0.113.0/24, which the router sends to the balancer. Real servers send replies from a VIP to the
router, and all other replies to the balancer, so that all methods work side by side.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from hosts import Host, join, pass_everything  # noqa: E402


class Network:
    """All hosts. `vips` are on the real servers' loopback."""

    def __init__(self, servers, vips):
        self.hosts = []
        try:
            self.build(servers, vips)
        except BaseException:
            self.remove()
            raise

    def build(self, servers, vips):
        self.client, self.router = self.host("client"), self.host("router")
        self.balancer, self.database = self.host("balancer"), self.host("database")
        self.servers = [self.host(f"server{number}") for number in range(1, servers + 1)]
        join(self.client, "eth0", self.router, "clients")
        self.client.ip("addr add 198.51.100.2/24 dev eth0")
        self.client.ip("route add default via 198.51.100.1")
        self.router.ip("addr add 198.51.100.1/24 dev clients")
        self.router.ip("link add lan type bridge stp_state 0 forward_delay 0 mcast_snooping 0")
        self.router.ip("addr add 192.0.2.1/24 dev lan")
        self.router.ip("link set lan up")
        for host in (self.router, self.balancer):
            host.sysctl(ip_forward=1, conf__all__send_redirects=0)
        self.plug(self.balancer, 2)
        self.plug(self.database, 3)
        self.balancer.ip("route add default via 192.0.2.1")
        self.router.ip("route add 203.0.113.0/24 via 192.0.2.2")
        for number, server in enumerate(self.servers, 11):
            self.plug(server, number)
            server.sysctl(conf__all__arp_ignore=1, conf__all__arp_announce=2, conf__all__rp_filter=0)
            server.ip("route add default via 192.0.2.2")
            server.ip("rule add from 203.0.113.0/24 lookup 100")
            server.ip("route add default table 100 via 192.0.2.1")
            for vip in vips:
                server.ip(f"addr add {vip}/32 dev lo")

    def host(self, name):
        self.hosts.append(Host(name))
        return self.hosts[-1]

    def plug(self, host, number):
        port = f"port{number}"
        join(host, "eth0", self.router, port)
        with self.router.entered():
            pass_everything(port)
        self.router.ip(f"link set {port} master lan")
        host.ip(f"addr add 192.0.2.{number}/24 dev eth0")

    def remove(self):
        for host in self.hosts:
            host.remove()
