#!/bin/bash
# Runs in the virtual machine, as root, when systemd has booted it: installs the package and tries its units.
cd /vm
failures=0
is() { # DESCRIPTION COMMAND...: the command succeeds within two minutes
  local what=$1 until=$((SECONDS + 120))
  shift
  until "$@" >/tmp/said 2>&1; do
    if ((SECONDS > until)); then
      echo "FAILED: $what: $*"
      explained
      failures=$((failures + 1))
      return 1
    fi
    sleep 0.5
  done
  echo "ok: $what"
}
explained() {
  tail -n 30 /tmp/said
  journalctl --no-pager --boot --lines=15 --output=cat --unit='equipoise*'
}
fails() { ! "$@"; }
now() { # DESCRIPTION COMMAND...: the command succeeds at once
  local what=$1
  shift
  if "$@" >/tmp/said 2>&1; then echo "ok: $what"; else
    echo "FAILED: $what: $*"
    explained
    failures=$((failures + 1))
  fi
}
main_pid() { systemctl show --property=MainPID --value "$1"; }
differs() { [[ $(main_pid "$1") != "$2" && $(main_pid "$1") != 0 ]]; }
capabilities() { sed -n 's/^CapPrm:\s*//p' "/proc/$(main_pid "$1")/status"; }
answers() { [[ $(curl -sS -m 20 "$1") == "$2"* ]]; }
attached() { ip "$@" link show eth0 | grep xdp; }
shows() { equipoise status | grep -F "$1"; }
secure() { [[ $(curl -sS -m 20 --http2 --cacert certificate.pem -w '%{http_version} %{http_code}' -o /dev/null https://localhost/) == "2 200" ]]; }
only() { for _ in 1 2 3 4 5 6; do answers http://127.0.0.1/ "$1" || return; done; }
requests_begin() {
  rm -f /tmp/stop
  python3 requests.py http://127.0.0.1/ /tmp/stop >/tmp/requests 2>&1 &
  client=$!
}
requests_end() {
  touch /tmp/stop
  now "no request failed meanwhile" wait "$client"
  tail -n 3 /tmp/requests
}
configuration() { cat >/etc/equipoise/equipoise.toml; }

echo "== boot: $(uname -r), systemd $(systemctl --version | sed -n '1s/systemd \([0-9]*\).*/\1/p')"
for module in modules/*; do insmod "$module"; done
mkdir -p /srv/one /srv/two
echo one >/srv/one/index.html
echo two >/srv/two/index.html
for one in one:8081 two:8082; do
  systemd-run --quiet --unit="backend-${one%:*}" --working-directory="/srv/${one%:*}" \
    python3 -m http.server --bind 127.0.0.1 "${one#*:}"
done

installation() {
  echo "== installation"
  now "the package is installed" dpkg -i 1.deb
  is "the service is active" systemctl is-active equipoise
  is "the service is enabled" systemctl is-enabled equipoise
  is "status answers" equipoise status
  now "no unit has failed" fails systemctl is-failed equipoise
}

website() {
  echo "== a website"
  configuration <<'T'
[api]
socket = "/run/equipoise/api.sock"
[[pool]]
name = "web"
backends = [{ name = "web1", address = "127.0.0.1:8081" }, { name = "web2", address = "127.0.0.1:8082" }]
health = { http = "/" }
[[session]]
name = "web"
listen = "0.0.0.0:80"
protocol = "http"
pool = "web"
T
  now "a reload takes the file" systemctl reload equipoise
  is "a request on port 80 is answered by one" answers http://127.0.0.1/ one
  is "and by the other" answers http://127.0.0.1/ two
  echo "nonsense" >>/etc/equipoise/equipoise.toml
  now "a reload of a file with an error fails" fails systemctl reload equipoise
  now "the service is active still" systemctl is-active equipoise
  sed -i '/nonsense/d' /etc/equipoise/equipoise.toml
}

https() {
  echo "== HTTPS, a drain and a dead backend"
  install -d -m 750 -g equipoise /etc/equipoise/tls
  install -m 640 -g equipoise certificate.pem key.pem /etc/equipoise/tls/
  cat >>/etc/equipoise/equipoise.toml <<'T'
[[session]]
name = "secure"
listen = "0.0.0.0:443"
protocol = "http"
pool = "web"
http2 = true
tls = { certificates = [{ chain = "/etc/equipoise/tls/certificate.pem", key = "/etc/equipoise/tls/key.pem" }] }
T
  now "the file is valid for the service's user" runuser -u equipoise -- equipoise check /etc/equipoise/equipoise.toml
  now "a reload takes the file" systemctl reload equipoise
  is "a verified request over HTTP/2 is answered" secure
  requests_begin
  now "a drain ends" equipoise drain web/web1 --wait
  now "the other backend serves everything" only two
  now "the drain is undone" equipoise undrain web/web1
  is "both serve" answers http://127.0.0.1/ one
  requests_end
  now "a backend dies" systemctl kill --signal=KILL backend-one
  requests_begin
  is "status shows it" shows unhealthy
  now "the other backend serves everything" only two
  systemctl reset-failed backend-one
  systemd-run --quiet --unit=backend-one --working-directory=/srv/one python3 -m http.server --bind 127.0.0.1 8081
  is "it serves again" answers http://127.0.0.1/ one
  requests_end
}

replacement() {
  echo "== the configuration from elsewhere"
  unit=/etc/systemd/system/equipoise.service.d
  sed -i 's/^\[api\]/&\nwrite-config = true/' /etc/equipoise/equipoise.toml
  now "a reload takes the file" systemctl reload equipoise
  sed 's/"web1"/"first"/' /etc/equipoise/equipoise.toml >new.toml
  now "the unit forbids to replace the file" fails equipoise reload --with new.toml
  mkdir -p $unit
  cp /usr/share/doc/equipoise/examples/systemd/write-config.conf $unit/
  chown equipoise /etc/equipoise
  systemctl daemon-reload
  now "a restart succeeds" systemctl restart equipoise
  now "the file is replaced" equipoise reload --with new.toml
  is "the new file is in force" shows first
  now "it is restored" equipoise reload --back
  is "the previous file is in force" shows web1
  chown root /etc/equipoise
  rm $unit/write-config.conf
  sed -i '/write-config/d' /etc/equipoise/equipoise.toml
  systemctl daemon-reload
  now "a restart without it succeeds" systemctl restart equipoise
}

upgrade() {
  echo "== upgrade"
  before=$(main_pid equipoise)
  requests_begin
  now "the next package is installed" dpkg -i 2.deb
  is "systemd's main process is another" differs equipoise "$before"
  now "the service is active" systemctl is-active equipoise
  between=$(main_pid equipoise)
  now "a reload takes the file" systemctl reload equipoise
  now "equipoise upgrade succeeds" equipoise upgrade
  is "systemd's main process is another again" differs equipoise "$between"
  requests_end
  now "the service was not restarted" test "$(systemctl show --property=NRestarts --value equipoise)" = 0
}

crash() {
  echo "== restart after a crash"
  before=$(main_pid equipoise)
  kill -9 "$before"
  is "systemd starts it again" differs equipoise "$before"
  is "requests are answered" answers http://127.0.0.1/ ""
  now "a restart succeeds" systemctl restart equipoise
  is "requests are answered" answers http://127.0.0.1/ ""
}

sockets() {
  echo "== ports that systemd holds"
  mkdir -p /etc/systemd/system/equipoise.service.d
  cp /usr/share/doc/equipoise/examples/systemd/equipoise.socket /etc/systemd/system/
  cp /usr/share/doc/equipoise/examples/systemd/limits.conf /etc/systemd/system/equipoise.service.d/
  systemctl daemon-reload
  systemctl stop equipoise
  now "the socket unit starts" systemctl start equipoise.socket
  now "the service starts" systemctl start equipoise
  requests_begin
  now "a restart succeeds" systemctl restart equipoise
  is "requests are answered" answers http://127.0.0.1/ ""
  requests_end
  now "the limits apply" test "$(systemctl show --property=MemoryMax --value equipoise)" = 5368709120
  systemctl stop equipoise.socket equipoise
  rm /etc/systemd/system/equipoise.socket /etc/systemd/system/equipoise.service.d/limits.conf
}

packet() {
  echo "== packet level"
  for host in backend client; do
    ip netns add "$host"
    ip -netns "$host" link set lo up
  done
  ip link add eth0 type veth peer name eth0 netns backend
  ip link add eth1 type veth peer name eth0 netns client
  ip address add 192.0.2.1/24 dev eth0
  ip address add 203.0.113.1/24 dev eth1
  ip link set eth0 up
  ip link set eth1 up
  ip -netns backend address add 192.0.2.2/24 dev eth0
  ip -netns client address add 203.0.113.2/24 dev eth0
  for host in backend client; do ip -netns "$host" link set eth0 up; done
  ip -netns backend route add default via 192.0.2.1
  ip -netns client route add default via 203.0.113.1
  echo 1 >/proc/sys/net/ipv4/ip_forward
  systemd-run --quiet --unit=backend-three --property=NetworkNamespacePath=/run/netns/backend \
    --working-directory=/srv/one python3 -m http.server --bind 192.0.2.2 80
  # A veth takes frames of native XDP if its other end has a program, and computes checksums itself.
  for host in backend client; do
    ip netns exec "$host" python3 checksums_off.py eth0
    systemd-run --quiet --unit="decap-$host" --property=NetworkNamespacePath="/run/netns/$host" \
      equipoise decap --interface eth0 --source 192.0.2.0/24
    is "equipoise decap attaches its program" attached -netns "$host"
  done
  install -D -m 644 /usr/share/doc/equipoise/examples/equipoise.service.d/packet.conf \
    /etc/systemd/system/equipoise.service.d/packet.conf
  systemctl daemon-reload
  configuration <<'T'
[instance]
name = "balancer"
[api]
socket = "/run/equipoise/api.sock"
[[pool]]
name = "web"
backends = ["192.0.2.2:80"]
[[packet]]
vip = "198.51.100.1:80/tcp"
interface = ["eth0", "eth1"]
forward = "nat"
pool = "web"
T
  now "the service starts" systemctl restart equipoise
  is "the XDP program is attached" attached
  is "status shows the VIP" shows 198.51.100.1
  echo "capabilities of the main thread: $(capabilities equipoise)"
  echo "instructions that the verifier processed: $(sort -u "/proc/$(main_pid equipoise)/fdinfo/"* | sed -n 's/^verified_insns:\s*//p')"
  is "a request to the VIP is answered by the backend" \
    ip netns exec client curl -sS -m 5 http://198.51.100.1/
  now "equipoise upgrade succeeds" equipoise upgrade
  is "the XDP program is attached" attached
  is "a request to the VIP is answered by the backend" \
    ip netns exec client curl -sS -m 5 http://198.51.100.1/
  now "the service is active" systemctl is-active equipoise
  now "the service stops" systemctl stop equipoise
  is "the XDP program is detached" fails attached
  rm -r /etc/systemd/system/equipoise.service.d
  systemctl daemon-reload
}

hardening() {
  echo "== hardening"
  for unit in equipoise equipoise-agent equipoise-announce equipoise-slice-worker@1; do
    now "$unit is hardened" systemd-analyze security --threshold=25 "$unit.service"
  done
}

removal() {
  echo "== removal"
  now "the package is purged" dpkg --purge equipoise
  now "the user is gone" fails getent passwd equipoise
  for path in /etc/equipoise /var/lib/equipoise /var/log/equipoise /run/equipoise /usr/bin/equipoise; do
    now "$path is gone" test ! -e "$path"
  done
}

for phase in installation $(cat phases) removal; do "$phase"; done
if ((failures)); then echo "== $failures failed"; else echo "== done"; fi
systemctl poweroff --force --force
