# Hosts for commands of the documentation (scripts/docs_test.py), on one link of the page's namespace.

# tx_off HOST INTERFACE: as `ethtool -K INTERFACE tx off` (ETHTOOL_STXCSUM of SIOCETHTOOL).
tx_off() {
  ip netns exec "$1" python3 -c 'import array, fcntl, socket, struct, sys
value = array.array("I", [0x17, 0])
request = struct.pack("16sP", sys.argv[1].encode(), value.buffer_info()[0])
fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0x8946, request)' "$2"
}

# host NAME ADDRESS/LENGTH...: a host with the interface eth0.
host() {
  local name=$1
  ip link show lan >/dev/null 2>&1 || { ip link add lan type bridge mcast_snooping 0; ip link set lan up; }
  ip netns add "$name"
  ip link add "to-$name" type veth peer name eth0 netns "$name"
  ip link set "to-$name" master lan up
  shift
  for address; do
    case $address in *:*) ip -n "$name" address add "$address" dev eth0 nodad ;; *) ip -n "$name" address add "$address" dev eth0 ;; esac
  done
  ip -n "$name" link set eth0 up
  ip -n "$name" link set lo up
  # XDP programs on such interfaces see checksums that a network card would still compute.
  tx_off "$name" eth0
}

# until_is TEXT COMMAND...: repeats the command until it prints the text.
until_is() {
  local text=$1
  shift
  until "$@" 2>&1 | grep -qF -- "$text"; do sleep 0.2; done
}

# die NAME: the host loses power.
die() {
  ip link set "to-$1" down
  # Some end by themselves meanwhile.
  ip netns pids "$1" | xargs kill -KILL || true
}
