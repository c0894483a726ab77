#!/usr/bin/env python3
"""What is left of weights behind real resolvers: each mode of a name, asked directly and through unbound, BIND and knot-resolver.

Four nodes of weights 10, 20, 30 and 40; every answer is fresh (the resolvers keep none). A client takes the address that stands
first, as most programs do; of SRV records one by weight (RFC 2782), of HTTPS records that of the lowest priority (RFC 9460). Printed: the worst node's distance from its share, in points, beside what a mode promises; exits 1 where
it promises more than was seen. A resolver that is not installed is left out, and said to be.

    lab/dns/resolvers.py [--queries 4000]                  (make compare-resolvers)
"""

import argparse
import collections
import pathlib
import random
import shutil
import sys
import tempfile

import dns.message
import dns.query

import servers

MODES = ["pair", "single", "ordered", "srv", "https"]
# Beyond this a share is lost; random answers alone leave 2 to 3 points of 4000.
LOST = 5.0
# A resolver that shuffles what it passes on makes all nodes of an `ordered` answer equal: documented, and shown here.
SHUFFLED = {"ordered"}


def unbound(folder, port):
    server = servers.Server("unbound", folder)
    config = server.write("unbound.conf", f"""
server:
  directory: "{server.folder}"
  chroot: ""
  username: ""
  pidfile: ""
  use-syslog: no
  do-daemonize: no
  interface: 127.0.0.1@{server.port}
  do-not-query-localhost: no
  cache-max-ttl: 0
  rrset-roundrobin: yes
  module-config: "iterator"
  num-threads: 1
stub-zone:
  name: "cluster.example"
  stub-addr: 127.0.0.1@{port}
remote-control:
  control-enable: no
""")
    server.run("unbound", "-d", "-c", config)
    return server


def bind(folder, port):
    server = servers.Server("bind", folder)
    config = server.write("named.conf", f"""
options {{
  directory "{server.folder}";
  pid-file none;
  session-keyfile none;
  listen-on port {server.port} {{ 127.0.0.1; }};
  listen-on-v6 {{ none; }};
  recursion yes;
  dnssec-validation no;
  max-cache-ttl 0;
}};
controls {{ }};
zone "cluster.example" {{ type forward; forward only; forwarders {{ 127.0.0.1 port {port}; }}; }};
""")
    server.run("named", "-f", "-n", "1", "-c", config)
    return server


def knot_resolver(folder, port):
    server = servers.Server("knot-resolver", folder)
    config = server.write("kresd.conf", f"""
net.listen("127.0.0.1", {server.port}, {{ kind = "dns" }})
log_level("err")
cache.size = 10 * MB
trust_anchors.remove(".")
modules = {{ "policy" }}
policy.add(policy.suffix(policy.FLAGS({{"NO_CACHE"}}), policy.todnames({{"cluster.example"}})))
policy.add(policy.suffix(policy.STUB("127.0.0.1@{port}"), policy.todnames({{"cluster.example"}})))
""")
    server.run("kresd", "-n", "-c", config, server.folder)
    return server


def first(records):
    return records[0].address


def by_weight(records):
    """RFC 2782: among those of the lowest priority, each as often as its weight says."""
    lowest = min(record.priority for record in records)
    records = [record for record in records if record.priority == lowest]
    return address_of(random.choices(records, [record.weight for record in records])[0].target)


def by_priority(records):
    return address_of(min(records, key=lambda record: record.priority).target)


def address_of(target):
    """Nodes are called n0 to n3, as `servers.equipoise` has it."""
    return servers.NODES[int(target.labels[0].decode().removeprefix("n"))]


# What clients ask for in a mode, and how they choose among what they are told.
CLIENTS = {"srv": ("SRV", by_weight), "https": ("HTTPS", by_priority)}


def worst(port, mode, queries):
    """How far the worst node is from its share of clients, in points."""
    asked, choose = CLIENTS.get(mode, ("A", first))
    chosen = collections.Counter()
    for _ in range(queries):
        answer = dns.query.udp(dns.message.make_query(f"{mode}.balanced.cluster.example", asked), "127.0.0.1", port=port, timeout=5)
        chosen[choose(list(answer.answer[0]))] += 1
    return max(abs(100 * chosen[address] / queries - weight) for address, weight in zip(servers.NODES, servers.WEIGHTS))


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--queries", type=int, default=4000, help="for each mode and resolver")
    arguments.add_argument("--csv", type=pathlib.Path)
    options = arguments.parse_args()
    queries = options.queries
    if queries < 1000:
        arguments.error("--queries: with fewer than 1000, chance alone leaves a node 5 points off")
    running, broken, rows = [], [], []
    with tempfile.TemporaryDirectory(prefix="equipoise-resolvers-") as folder:
        try:
            ours = servers.equipoise(folder, modes=MODES)
            running.append(ours)
            for program, start in [("unbound", unbound), ("named", bind), ("kresd", knot_resolver)]:
                if shutil.which(program):
                    running.append(start(folder, ours.port))
                    running[-1].await_answer()
                else:
                    print(f"{program} is not installed: left out", file=sys.stderr)
            print("| asked through | " + " | ".join(f"`{mode}`" for mode in MODES) + " |\n|---" + "|---" * len(MODES) + "|")
            for server in running:
                points = {mode: worst(server.port, mode, queries) for mode in MODES}
                print(f"| {'nobody' if server is ours else server.name} | " + " | ".join(f"{points[mode]:.1f}" for mode in MODES) + " |", flush=True)
                rows.append({"asked_through": "nobody" if server is ours else server.name, **points})
                kept = MODES if server is ours else [mode for mode in MODES if mode not in SHUFFLED]
                broken += [f"{server.name} {mode}: {points[mode]:.1f} points" for mode in kept if points[mode] > LOST]
        finally:
            for server in reversed(running):
                server.stop()
    if options.csv:
        servers.write_csv(options.csv, rows)
    if broken:
        sys.exit("shares are lost: " + "; ".join(broken))


if __name__ == "__main__":
    main()
