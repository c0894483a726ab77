"""Hosts for a packet level: clients, this host as the balancer, and a host for each backend.

All are on one switch with 192.0.2.0/24. Clients have the addresses 198.51.100.0/24, behind a router
that is their own host, and so have no address of the switch's network as their source.
"""

import ctypes
import fcntl
import pathlib
import socket
import struct

import world

ROUTER, BALANCER = "192.0.2.1", "192.0.2.2"
# Native XDP on a veth would need a program at its other end. A larger MTU makes it generic.
MTU = "9000"


def make(backends, vip, forward):
    """`backends`: their addresses, which are also the names of their hosts."""
    switch = world.new_host("switch")
    world.run(*switch, "link", "add", "br0", "mtu", MTU, "type", "bridge")
    world.run(*switch, "link", "set", "br0", "up")
    clients = world.new_host("clients")
    plug(switch, "clients", clients, ROUTER)
    world.run(*clients, "route", "add", "local", "198.51.100.0/24", "dev", "lo")
    # Connections take addresses of the clients' network.
    world.run(*clients, "route", "add", f"{vip}/32", "dev", "eth0", "src", "198.51.100.7")
    plug(switch, None, ("ip",), BALANCER)
    world.run("ip", "route", "add", "default", "via", ROUTER)
    # As keepalived or an operator gives this machine the address.
    world.run("ip", "addr", "add", f"{vip}/32", "dev", "eth0")
    pathlib.Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    # Replies have the VIP, an address of this machine, as their source (docs/packet.md).
    pathlib.Path("/proc/sys/net/ipv4/conf/all/accept_local").write_text("1")
    for address in dict.fromkeys(backends):
        host = world.new_host(address)
        plug(switch, address, host, address)
        world.run(*host, "route", "add", "default", "via", BALANCER if forward == "nat" else ROUTER)
        if forward != "nat":
            setting(address, "arp_ignore", "1")
            setting(address, "arp_announce", "2")
            world.run(*host, "addr", "add", f"{vip}/32", "dev", "lo")


def plug(switch, name, host, address):
    """Connects a host, by `eth0`, to the switch."""
    port = "port" + address.rsplit(".", 1)[1]
    where = ["netns", name] if name else []
    world.run("ip", "link", "add", port, "netns", "switch", "type", "veth", "peer", "name", "eth0", *where)
    world.run(*switch, "link", "set", port, "mtu", MTU, "master", "br0", "up")
    world.run(*host, "link", "set", "eth0", "mtu", MTU, "up")
    world.run(*host, "addr", "add", f"{address}/24", "dev", "eth0")
    with world.on(name):
        disable_offloads("eth0")


def setting(host, name, value):
    world.run("ip", "netns", "exec", host, "sysctl", "-q", f"net.ipv4.conf.all.{name}={value}")


def disable_offloads(interface):
    """Checksums are in the packets, and packets have the size of frames (linux/ethtool.h)."""
    siocethtool, transmit_checksums, segmentation = 0x8946, 0x17, 0x1F
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        for command in (transmit_checksums, segmentation):
            value = (ctypes.c_uint32 * 2)(command, 0)
            fcntl.ioctl(one, siocethtool, struct.pack("16sP16x", interface.encode(), ctypes.addressof(value)))
