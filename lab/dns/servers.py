"""Starts equipoise and its peers with the same zone, each on one core and a loopback port of its own."""

import csv
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ZONE = HERE / "common.zone"
BELOW = HERE / "below.zone"
NODES = [f"192.0.2.{11 + n}" for n in range(4)]
WEIGHTS = [10, 20, 30, 40]


def free_port():
    """A port that is free for both transports now."""
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp, socket.socket() as tcp:
            udp.bind(("127.0.0.1", 0))
            try:
                tcp.bind(("127.0.0.1", udp.getsockname()[1]))
            except OSError:
                continue
            return udp.getsockname()[1]


def write_csv(path, rows):
    with open(path, "w", newline="") as out:
        writer = csv.DictWriter(out, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


class Server:
    """A running server: its port, its processes, its log."""

    def __init__(self, name, folder, core=None):
        self.name, self.port, self.core = name, free_port(), core
        self.folder = pathlib.Path(folder) / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = open(self.folder / "log", "w")
        self.process = None

    def run(self, *command):
        pinned = ["taskset", "-c", str(self.core)] if self.core is not None else []
        self.process = subprocess.Popen(
            [*pinned, *map(str, command)], stdout=self.log, stderr=subprocess.STDOUT, cwd=self.folder,
            start_new_session=True)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def await_answer(self, asked="text.cluster.example", seconds=15):
        """Waits for the first answer; whoever gives none in that time has failed."""
        import dns.message
        import dns.query
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                break
            try:
                dns.query.udp(dns.message.make_query(asked, "TXT"), "127.0.0.1", port=self.port, timeout=0.3)
                return self
            except Exception:  # not there yet, whatever way that shows
                time.sleep(0.05)
        raise RuntimeError(f"{self.name} does not answer; see {self.folder}/log")

    def cpu_seconds(self):
        """User and system time of the process and its threads and children so far."""
        user = system = 0
        ticks = os.sysconf("SC_CLK_TCK")
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[3]) == self.process.pid or int(stat.parent.name) == self.process.pid:
                user += int(fields[11])
                system += int(fields[12])
        return user / ticks, system / ticks

    def stop(self):
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        self.log.close()


# As the peers are measured: without rates and cookies, which are on by default (`defaults.py` says what they cost).
BARE = "rate-limit = 0\ncookies = false"


def equipoise(folder, core=None, threads=1, binary=None, modes=("pair", "single", "ordered"), nameserver=BARE, name="equipoise"):
    """The zone, one below it, and a name for each mode beside it, balanced over four nodes."""
    server = Server(name, folder, core)
    backends = ", ".join(
        f'{{ name = "n{n}", address = "{ip}:80", weight = {w} }}' for n, (ip, w) in enumerate(zip(NODES, WEIGHTS)))
    names = ", ".join(f'{{ name = "{m}.balanced", pool = "nodes", mode = "{m}" }}' for m in modes)
    config = server.write("equipoise.toml", f"""
[instance]
threads = {threads}
[api]
socket = "{server.folder}/api.sock"
listen = "off"
[[pool]]
name = "nodes"
backends = [{backends}]
[[dns]]
zone = "cluster.example."
listen = "127.0.0.1:{server.port}"
zone-file = "{ZONE}"
names = [{names}]
[[dns]]
zone = "below.cluster.example."
listen = "127.0.0.1:{server.port}"
zone-file = "{BELOW}"
[nameserver]
{nameserver}
""")
    binary = binary or os.environ.get("EQUIPOISE", ROOT / "target/dist/equipoise")
    server.run(binary, "run", config)
    return server.await_answer()


def knot(folder, core=None):
    server = Server("knot", folder, core)
    config = server.write("knot.conf", f"""
server:
    listen: 127.0.0.1@{server.port}
    rundir: {server.folder}
    udp-workers: 1
    tcp-workers: 1
    background-workers: 1
    udp-max-payload: 1232
log:
  - target: stderr
    any: warning
database:
    storage: {server.folder}
zone:
  - domain: cluster.example
    file: {ZONE}
    zonefile-sync: -1
  - domain: below.cluster.example
    file: {BELOW}
    zonefile-sync: -1
""")
    server.run("knotd", "-c", config)
    return server.await_answer()


def nsd(folder, core=None):
    server = Server("nsd", folder, core)
    config = server.write("nsd.conf", f"""
server:
    ip-address: 127.0.0.1@{server.port}
    username: ""
    chroot: ""
    zonesdir: "{HERE}"
    pidfile: "{server.folder}/nsd.pid"
    xfrdfile: "{server.folder}/xfrd.state"
    zonelistfile: "{server.folder}/zone.list"
    database: ""
    logfile: ""
    server-count: 1
    rrl-ratelimit: 0
    ipv4-edns-size: 1232
remote-control:
    control-enable: no
zone:
    name: cluster.example
    zonefile: {ZONE}
""")
    server.run("nsd", "-d", "-c", config)
    return server.await_answer()


def gdnsd(folder, core=None):
    """Its zone files know no HTTPS, SVCB, CAA or TLSA by name; its balanced name is a weighted plugin's."""
    server = Server("gdnsd", folder, core)
    (server.folder / "zones").mkdir(exist_ok=True)
    lines = [line for line in ZONE.read_text().splitlines()
             if not any(f" {kind} " in f"{line} " for kind in ("HTTPS", "SVCB", "TLSA", "CAA")) and not line.startswith(("host.sub", "old.below"))
             and "ORIGIN" not in line]
    lines.append("single.balanced 60 IN DYNA weighted!nodes")
    # gdnsd refuses what it takes for mistakes; the figures need none of that.
    lines = [line for line in lines if not line.startswith(("lost ", "large"))]
    (server.folder / "zones" / "cluster.example").write_text("\n".join(lines) + "\n")
    nodes = ", ".join(f"n{n} => [ {ip}, {w} ]" for n, (ip, w) in enumerate(zip(NODES, WEIGHTS)))
    (server.folder / "config").write_text(f"""
options => {{
  listen => 127.0.0.1:{server.port}
  run_dir => {server.folder}/run
  state_dir => {server.folder}/state
  udp_threads => 1
  tcp_threads => 1
}}
plugins => {{ weighted => {{ service_types => up, nodes => {{ {nodes} }} }} }}
""")
    for name in ("run", "state"):
        (server.folder / name).mkdir(exist_ok=True)
    server.run("gdnsd", "-c", server.folder, "start")
    return server.await_answer()


def powerdns(folder, core=None, cached=True):
    """With and without its packet cache; the balanced name is a Lua record."""
    server = Server("powerdns" if cached else "powerdns-uncached", folder, core)
    zone = server.folder / "zone"
    weighted = ", ".join(f"{{{w}, '{ip}'}}" for ip, w in zip(NODES, WEIGHTS))
    zone.write_text(ZONE.read_text() + f'single.balanced 60 IN LUA A "pickwrandom({{{weighted}}})"\n')
    server.write("named.conf", f'zone "cluster.example" {{ type master; file "{zone}"; }};\n')
    server.write("pdns.conf", f"""
launch=bind
bind-config={server.folder}/named.conf
local-address=127.0.0.1
local-port={server.port}
socket-dir={server.folder}
receiver-threads=1
distributor-threads=1
enable-lua-records=yes
cache-ttl={20 if cached else 0}
query-cache-ttl={20 if cached else 0}
negquery-cache-ttl={60 if cached else 0}
setuid=
setgid=
log-dns-queries=no
loglevel=3
""")
    server.run("pdns_server", f"--config-dir={server.folder}", "--daemon=no", "--guardian=no")
    return server.await_answer()


def stop_all(servers):
    for server in servers:
        server.stop()


def have(*programs):
    missing = [program for program in programs if not shutil.which(program)]
    if missing:
        raise SystemExit(f"not installed: {', '.join(missing)} (Debian: apt-get install knot nsd gdnsd pdns-server "
                         "pdns-backend-bind dnsperf python3-dnspython)")
