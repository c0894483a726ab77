#!/bin/bash
# In a clean root, without systemd: a package's life. /packages has 1.deb and 2.deb; the caller removes
# the root. Each step prints what it has seen.
set -euo pipefail
config=/etc/equipoise/equipoise.toml

fail() { echo "FAILED: $*"; cat /tmp/process.log 2>/dev/null || true; exit 1; }

# Waits until a command succeeds.
eventually() {
  for _ in {1..600}; do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 0.1
  done
  fail "never succeeded: $*"
}

# All that a package may leave behind.
everything() {
  find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /packages -o -path /tmp -o -path /var/lib/dpkg \) \
    -prune -o -print | grep -Ev '^/(etc/(passwd|group|shadow|gshadow|subuid|subgid)-?|var/log/dpkg\.log|var/cache/.*)$' | sort
  cut -d: -f1 /etc/passwd /etc/group
}

# Sends requests until /tmp/enough exists, and counts those without an answer.
requests() {
  local sent=0 lost=0 line
  until [[ -e /tmp/enough ]]; do
    line=
    if exec 3<>/dev/tcp/127.0.0.1/8080; then
      printf 'GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
      read -r line <&3 || true
      exec 3>&-
    fi
    [[ $line == HTTP/1.1\ 503* ]] || { lost=$((lost + 1)); echo "an answer was: $line"; }
    sent=$((sent + 1))
  done
  echo "requests: $sent, lost: $lost"
}

# The first is that of the process; those that it has replaced follow.
pid() { equipoise status --json --api /run/equipoise/api.sock | sed -n '/^ *"pid": /{s/[^0-9]//g;p;q}'; }

everything >/tmp/before

echo "== install"
dpkg --install /packages/1.deb
getent passwd equipoise || fail "there is no user"
[[ -L /etc/systemd/system/multi-user.target.wants/equipoise.service ]] || fail "the service is not enabled"
[[ ! -e /run/equipoise/api.sock ]] || fail "a process runs"
[[ -s /usr/share/man/man1/equipoise-status.1.gz ]] || fail "there is no manual"

echo "== run"
# As the unit does it.
install -d -o equipoise -g equipoise -m 750 /run/equipoise /var/lib/equipoise /var/log/equipoise
setpriv --reuid equipoise --regid equipoise --init-groups equipoise run "$config" >/tmp/process.log 2>&1 &
eventually equipoise status
printf '[[pool]]\nname = "web"\nbackends = []\n[[session]]\nlisten = "127.0.0.1:8080"\nprotocol = "http"\npool = "web"\n' >>"$config"
equipoise reload
first=$(pid)

echo "== upgrade"
requests >/tmp/requests &
client=$!
dpkg --install /packages/2.deb
second=$(pid)
[[ $first != "$second" ]] || fail "the process was not replaced"
touch /tmp/enough
wait "$client" || true
cat /tmp/requests
grep -q ', lost: 0$' /tmp/requests || fail "requests were lost"
grep -q '127.0.0.1:8080' "$config" || fail "the administrator's configuration was replaced"

echo "== an upgrade that fails leaves the process"
echo 'nonsense = 1' >>"$config"
dpkg --install /packages/1.deb 2>&1 | tee /tmp/said
grep -q 'the process of the previous version goes on' /tmp/said || fail "nothing was said"
[[ $(pid) == "$second" ]] || fail "it did not go on"
sed -i '$d' "$config"

echo "== remove"
kill "$second"
eventually eval "! kill -0 $second"
dpkg --remove equipoise
[[ -e $config ]] || fail "the configuration was removed"
[[ ! -e /usr/bin/equipoise ]] || fail "the binary was not removed"

echo "== purge"
dpkg --purge equipoise
everything >/tmp/after
diff /tmp/before /tmp/after || fail "something is left"
echo "== done"
