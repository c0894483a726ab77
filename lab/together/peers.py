"""What people wire together: gdnsd, keepalived with two addresses, and HAProxy on both balancers, active and active."""

import signal

from machines import NODES, SPARE, node_address

NAME = "www.lab.example"
ADDRESSES = ["192.0.2.100", "192.0.2.101"]
# The best of those that `--sweep` tries.
MAXCONN = 8


class Peers:
    def __init__(self, site, maxconn=MAXCONN):
        self.site, self.maxconn = site, maxconn
        self.haproxies = []

    def start(self):
        for node in self.site.nodes[:NODES]:
            self.join(node)
        for at, balancer in enumerate(self.site.balancers):
            folder = self.site.folder / balancer.name
            folder.mkdir(exist_ok=True)
            self.start_haproxy(balancer, folder)
            self.start_keepalived(balancer, folder, at)
            self.start_gdnsd(balancer, folder)

    def plan(self):
        return {"fixed": [], "servers": [balancer.address for balancer in self.site.balancers], "name": NAME}

    def join(self, node):
        self.site.start_application(node)

    def upgrade(self):
        for process in self.haproxies:
            process.send_signal(signal.SIGUSR2)

    def start_haproxy(self, balancer, folder):
        servers = "\n".join(f"  server n{number} {node_address(number)}:8080 maxconn {self.maxconn}"
                            for number in range(1, SPARE + 1))
        (folder / "haproxy.cfg").write_text(f"""
global
  nbthread 1
  stats socket {folder}/haproxy.sock mode 600 level admin expose-fd listeners
defaults
  mode http
  timeout connect 500ms
  timeout client 10s
  timeout server 10s
  timeout queue 1s
  retries 2
  option redispatch 1
  option httpchk GET /healthz
  default-server inter 500ms fall 2 rise 1 check
frontend www
  bind *:80
  monitor-uri /monitor
  default_backend nodes
backend nodes
  balance leastconn
{servers}
""")
        words = ["haproxy", "-W", "-S", folder / "master.sock", "-f", folder / "haproxy.cfg"]
        self.haproxies.append(balancer.start("haproxy", words, "Loading success"))

    def start_keepalived(self, balancer, folder, at):
        instances = "".join(f"""
vrrp_instance address{number} {{
  state {"MASTER" if number == at else "BACKUP"}
  interface eth0
  virtual_router_id {51 + number}
  priority {150 if number == at else 100}
  advert_int 1
  virtual_ipaddress {{ {address}/24 }}
  track_script {{ haproxy }}
}}
""" for number, address in enumerate(ADDRESSES))
        (folder / "keepalived.conf").write_text(f"""
global_defs {{
  script_user root
  enable_script_security
}}
vrrp_script haproxy {{
  script "/usr/bin/curl -fsS --max-time 1 -o /dev/null http://{balancer.address}/monitor"
  interval 1
  fall 2
  rise 2
}}
{instances}
""")
        words = ["keepalived", "--dont-fork", "--log-console", "--use-file", folder / "keepalived.conf",
                 "--pid", folder / "keepalived.pid", "--vrrp_pid", folder / "vrrp.pid"]
        balancer.start("keepalived", words, "MASTER STATE")

    def start_gdnsd(self, balancer, folder):
        for name in ("zones", "run", "state"):
            (folder / name).mkdir(exist_ok=True)
        (folder / "zones" / "lab.example").write_text(f"""
@ 3600 IN SOA ns1 hostmaster 1 7200 1800 259200 30
@ 3600 IN NS ns1
ns1 3600 IN A {balancer.address}
www 1 IN DYNA multifo!www
""")
        (folder / "config").write_text(f"""
options => {{ listen => {balancer.address}, run_dir => {folder}/run, state_dir => {folder}/state, min_ttl => 1 }}
service_types => {{ web => {{ plugin => http_status, port => 80, url_path => /monitor, interval => 2, timeout => 1,
                            up_thresh => 2, down_thresh => 2, ok_thresh => 2 }} }}
plugins => {{ multifo => {{ www => {{ service_types => web, up_thresh => 0.1,
                                    a => {ADDRESSES[0]}, b => {ADDRESSES[1]} }} }} }}
""")
        balancer.start("gdnsd", ["gdnsd", "-c", folder, "start"], "DNS listeners started")
