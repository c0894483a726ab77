"""equipoise in the lab: each case switches one more level on.

`nothing`   each node's front door proxies to its application, without limits; clients know all addresses
`names`     clients ask names by load, which the balancers serve for a cluster of the nodes
`limits`    each front door learns how many requests its application takes at once, and queues the others
`dispatch`  nodes delegate requests to each other
`packet`    the name leads to a VIP, whose packets both balancers send to the nodes
`slice`     beside that, each node works on a stream of items

Apart from these, `doors`: front doors on both balancers and nothing on the nodes, as the peers are wired.
"""

import collections
import json
import pathlib
import subprocess
import sys
import time

from machines import LINK_MBIT, NODES, PATIENCE_S, SPARE, VIP, node_address

CASES = ["nothing", "names", "limits", "dispatch", "packet", "slice"]
HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "crates/levels/slice-dds/examples"
NAME = "www.lab.example"
# Equipoise in HAProxy's place.
DOORS = "doors"
SLICES, DOMAIN, ITEMS_PER_S, ITEM_MS = 40, 7, 20, 2
CHECK = 'health = { http = "/healthz", interval = "500ms", timeout = "500ms", rise = 1, fall = 2 }'


class Doors:
    """`doors`."""

    def __init__(self, site):
        self.site = site

    def start(self):
        for node in self.site.nodes[:NODES]:
            self.join(node)
        for balancer in self.site.balancers:
            folder = self.site.folder / balancer.name
            folder.mkdir(exist_ok=True)
            (folder / "equipoise.toml").write_text(self.balancer(balancer, folder))
            balancer.start("equipoise", [self.site.equipoise, "run", folder / "equipoise.toml"], "ready")

    def plan(self):
        return {"fixed": [], "servers": [balancer.address for balancer in self.site.balancers], "name": NAME}

    def join(self, node):
        self.site.start_application(node)

    def upgrade(self):
        for balancer in self.site.balancers:
            upgrade(self.site, balancer)

    def balancer(self, balancer, folder):
        applications = ", ".join(f'{{ name = "n{number}", address = "{node_address(number)}:8080" }}'
                                 for number in range(1, SPARE + 1))
        doors = ", ".join(f'{{ name = "{one.name}", address = "{one.address}:80" }}' for one in self.site.balancers)
        return f"""
[instance]
name = "{balancer.name}"
threads = 1
[api]
socket = "{folder}/api.sock"
listen = "off"
[[pool]]
name = "applications"
backends = [{applications}]
connect-timeout = "500ms"
{CHECK}
[[session]]
listen = "{balancer.address}:80"
protocol = "http"
pool = "applications"
[[pool]]
name = "doors"
backends = [{doors}]
{CHECK}
[[dns]]
zone = "lab.example."
listen = "{balancer.address}:53"
ttl = "1s"
pool = "doors"
ns = [{servers(self.site)}]
names = ["www"]
"""


def servers(site):
    return ", ".join(f'{{ name = "ns{number}", addresses = "{one.address}" }}'
                     for number, one in enumerate(site.balancers, 1))


def upgrade(site, machine):
    """Starts the program again, which takes the sockets over."""
    words = [site.equipoise, "upgrade", "--api", site.folder / machine.name / "api.sock"]
    done = subprocess.run(machine.host.words(*words), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"upgrade of {machine.name}: {done.stderr}")


class Ours:
    """The cases that switch levels on."""

    def __init__(self, site, case):
        self.site, self.level = site, CASES.index(case)

    def has(self, case):
        return self.level >= CASES.index(case)

    def start(self):
        """Starts everything but the spare node."""
        site = self.site
        if self.has("names"):
            self.start_controller()
        for balancer in site.balancers if self.has("names") else []:
            self.run(balancer, self.balancer(balancer))
        for node in site.nodes[:NODES]:
            self.join(node)
        if self.has("names"):
            self.await_members(NODES)

    def plan(self):
        """How clients find their way."""
        if not self.has("names"):
            return {"fixed": [node_address(number) for number in range(1, NODES + 1)], "servers": [], "name": ""}
        return {"fixed": [], "servers": [balancer.address for balancer in self.site.balancers], "name": NAME}

    def join(self, node):
        """A node starts: a new one, or one that was dead."""
        self.site.start_application(node)
        self.run(node, self.node(node))

        if self.has("slice"):
            # The log of a node that comes back goes on.
            log = self.site.folder / f"{node.name}.items"
            words = [self.site.equipoise, "slice", "worker", "--slices", SLICES, "--domain", DOMAIN,
                     "--interfaces", "eth0", "--name", node.name, "--format", "lines", "--", sys.executable, HERE / "work.py", ITEM_MS, log]
            node.start("worker", words)

    def start_stream(self, python, seconds):
        """A client of the stream, on the nodes' network. `None` below the slice level."""
        if not self.has("slice"):
            return None
        words = [python, HERE / "stream.py", EXAMPLES, DOMAIN, SLICES, ITEMS_PER_S, seconds]
        return subprocess.Popen(self.site.source.host.words(*words), stdout=subprocess.PIPE, text=True)

    def done_twice(self):
        """Items that workers did more than once."""
        done = collections.Counter()
        for log in self.site.folder.glob("*.items"):
            done.update(log.read_text().split())
        return sum(times > 1 for times in done.values())

    def upgrade(self):
        """Every balancer and node but the controller starts the program again and hands its sockets over."""
        machines = [*(self.site.balancers if self.has("names") else []), *self.site.nodes]
        for machine in machines:
            if machine.processes():
                upgrade(self.site, machine)

    def folder(self, machine):
        folder = self.site.folder / machine.name
        folder.mkdir(exist_ok=True)
        return folder

    def head(self, machine):
        folder = self.folder(machine)
        text = f'[instance]\nname = "{machine.name}"\nthreads = 1\n'
        text += f'[api]\nsocket = "{folder}/api.sock"\nlisten = "off"\n'
        if not self.has("names"):
            return text
        text += f'[controller]\nstate = "{folder}"\n[cluster]\nstate = "{folder}"\n'
        if machine is self.site.controller:
            # All nodes have one machine's memory.
            text += f'name = "lab"\nlisten = "{machine.address}:9911"\nstore = {{}}\n[load]\nmemory = 0.0\n'
            if self.has("slice"):
                text += f'[[slice]]\nname = "items"\nslices = {SLICES}\ndomain = {DOMAIN}\ninterfaces = "eth0"\n'
            return text
        return text + f'controllers = "{self.site.controller.address}:9911"\njoin-token-file = "{folder}/token"\n'

    def run(self, machine, text, ready="ready"):
        folder = self.folder(machine)
        (folder / "equipoise.toml").write_text(text)
        if self.has("names") and machine is not self.site.controller and not (folder / "token").exists():
            words = ["cluster", "token", "create", "--config", self.folder(self.site.controller) / "equipoise.toml"]
            token = folder / "token"
            token.touch(0o600)
            token.write_text(self.command(self.site.controller, *words))
        machine.start("equipoise", [self.site.equipoise, "run", folder / "equipoise.toml"], ready)

    def command(self, machine, *words):
        words = machine.host.words(self.site.equipoise, *words)
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    def start_controller(self):
        controller = self.site.controller
        file = self.folder(controller) / "equipoise.toml"
        file.write_text(self.head(controller))
        self.command(controller, "cluster", "init", "--config", file)
        self.run(controller, self.head(controller), "cluster API")

    def await_members(self, count):
        """Waits until all nodes take their part in the plan."""
        file = self.folder(self.site.controller) / "equipoise.toml"
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            view = json.loads(self.command(self.site.controller, "status", "--cluster", "--json", "--config", file))
            members = view["view"]["members"]
            there = [member for member in members if member.get("standing") == "present"]
            if len([member for member in there if member["name"].startswith("n")]) >= count:
                return
            time.sleep(0.2)
        raise RuntimeError(f"not all nodes take part: {members}")

    def node(self, node):
        concurrency = "" if self.has("limits") else 'concurrency = "none"\n'
        text = self.head(node) + f"""
[[pool]]
name = "application"
backends = ["127.0.0.1:8080"]
{concurrency}
"""
        if self.has("names"):
            text += f'[load]\nlinks = [{{ interface = "eth0", speed = "{LINK_MBIT}Mbit/s" }}]\n'
        if self.has("dispatch"):
            return text + """
[[dispatch]]
listen = "0.0.0.0:80"
pool = "application"
class = [{ class = "light", paths = ["/healthz"] }, { class = "large-transfer", paths = ["/echo"] },
         { class = "computing", paths = ["/work"] }]
"""
        return text + '[[session]]\nlisten = "0.0.0.0:80"\nprotocol = "http"\npool = "application"\n'

    def balancer(self, balancer):
        doors = ", ".join(f'{{ name = "n{number}", address = "{node_address(number)}:80" }}'
                          for number in range(1, SPARE + 1))
        text = self.head(balancer) + f'[[pool]]\nname = "nodes"\nbackends = [{doors}]\n{CHECK}\n'
        zone = f'[[dns]]\nzone = "lab.example."\nlisten = "{balancer.address}:53"\nns = [{servers(self.site)}]\n'
        if not self.has("packet"):
            return text + zone + 'ttl = "1s"\npool = "nodes"\nshares = "load"\nnames = ["www"]\n'
        records = self.folder(balancer) / "zone"
        records.write_text(f"www 1 IN A {VIP}\n")
        return text + 'weights = "load"\n' + zone + f"""zone-file = "{records}"
[[packet]]
vip = "{VIP}:80/tcp"
interface = "eth0"
forward = "direct-routing"
pool = "nodes"
"""
