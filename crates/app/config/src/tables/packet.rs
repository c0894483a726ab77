//! The packet level's options.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use equipoise_packet::abi::{FlowKey, Forward};
use equipoise_packet::config::{FleetSecret, MacAddress, PortRange, Prefix};
use equipoise_packet::{Capacity, FlowScheduler, OnDown, QuicConfig, ServerId, VipId};

use super::super::option::{Choices, Form, Kind, Opt, Table, reads_as};
use super::super::quic::NamedId;
use super::{DAY, NAME, ms, secs};

/// Longest interface name that the kernel accepts: `IFNAMSIZ` without its final NUL.
const INTERFACE_BYTES_MAX: usize = 15;

const TCP_TIMEOUT: Kind = Kind::Duration(secs(20), DAY);
const CLOSING_TIMEOUT: Kind = Kind::Duration(secs(10), DAY);
const UDP_TIMEOUT: Kind = Kind::Duration(secs(20), DAY);

pub(super) static PACKET: Table = Table {
    title: "[[packet]]",
    help: "A VIP of the packet level: an address whose packets are forwarded by an XDP program, flow by flow. One table for each. Needs root (or CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW and CAP_PERFMON) and Linux 6.1.",
    options: &[
        Opt::required(
            "vip",
            Kind::Text(&VIP),
            "The address for clients. VIPs may not overlap; port `*` stands for every port that no other VIP has.",
        ),
        Opt::required(
            "interface",
            Kind::Texts(&INTERFACE),
            "Interface at which its packets arrive. If it does not exist yet, equipoise waits for it.",
        ),
        Opt::optional(
            "accept-mac",
            Kind::Texts(&STATION),
            "frames to the interface's own MAC address",
            "Further destination MAC addresses whose frames are accepted, such as VRRP's virtual ones. Frames to other \
             addresses are left to the kernel.",
        ),
        Opt::optional(
            "reply-interface",
            Kind::Texts(&INTERFACE),
            "replies arrive on `interface`",
            "nat, full-nat: interface at which replies of backends arrive, if it is not `interface`.",
        ),
        Opt::required(
            "forward",
            Kind::Choice(&FORWARD),
            "The way in which packets are sent to the backends.",
        ),
        Opt::optional(
            "source-addresses",
            Kind::Texts(&SOURCE_ADDRESS),
            "none; required with full-nat",
            "full-nat: source addresses of packets to backends, for this balancer alone. Backends send their replies \
             there. The machine has them, or routers send them here; nothing else uses them.",
        ),
        Opt::default(
            "source-ports",
            Kind::Text(&SOURCE_PORTS),
            "\"1024-65535\"",
            "full-nat: ports of each source address. One of them serves one flow for each backend and port.",
        ),
        Opt::required("pool", Kind::Text(&NAME), "The `name` of the pool behind it."),
        Opt::default(
            "scheduler",
            Kind::Choice(&PACKET_SCHEDULER),
            "\"maglev\"",
            "The method that picks the backend of a new flow. The pool's own `scheduler` is for front doors.",
        ),
        Opt::default(
            "key",
            Kind::Choice(&FLOW_KEY),
            "\"five-tuple\"",
            "Key that identifies a flow.",
        ),
        Opt::optional(
            "key-prefix",
            Kind::Count(1, 128),
            "24, or 56 for IPv6",
            "With key = \"source-prefix\": bits of the client's address that identify a flow.",
        ),
        Opt::default("quic", Kind::Tables(&QUIC), "[]", QUIC.help),
        Opt::optional(
            "allow",
            Kind::Texts(&super::dns::PREFIX),
            "every address that `deny` does not list",
            "Prefixes of the clients whose packets are accepted; other packets are dropped (`source_denied`), those of \
             established flows included. If `allow` and `deny` both have a prefix of an address, the longer one decides.",
        ),
        Opt::optional(
            "deny",
            Kind::Texts(&super::dns::PREFIX),
            "no address",
            "Prefixes of the clients whose packets are dropped.",
        ),
        Opt::optional(
            "tcp-timeout",
            TCP_TIMEOUT,
            "that of `[flows]`",
            "Time without packets after which a TCP flow of this VIP is forgotten.",
        ),
        Opt::optional(
            "closing-timeout",
            CLOSING_TIMEOUT,
            "that of `[flows]`",
            "The same time after a FIN.",
        ),
        Opt::optional(
            "udp-timeout",
            UDP_TIMEOUT,
            "that of `[flows]`",
            "Time without packets after which a UDP flow of this VIP is forgotten.",
        ),
        Opt::default(
            "when-down",
            Kind::Choice(&WHEN_DOWN),
            "\"move\"",
            "Treatment of the flows of a backend whose health checks fail.",
        ),
        Opt::default(
            "check-tunnel",
            Kind::Flag,
            "true",
            "tunnel, gue: a backend must also answer a TCP SYN for the VIP that is sent through its tunnel. For VIPs of TCP whose pool has `health`.",
        ),
        Opt::default(
            "second-chance",
            Kind::Flag,
            "false",
            "gue: packets also carry the backend that had their flow before a change of the pool. A backend that does not \
             know the flow passes them on to that one, so flows survive changes without an exchange between balancers. \
             For TCP, with \"maglev\" or \"weighted-random\"; backends need `equipoise decap --second-chance`.",
        ),
    ],
};

static QUIC: Table = Table {
    title: "[[packet.quic]]",
    help: "udp: connection ids of QUIC that name the server (QUIC-LB, draft-ietf-quic-load-balancers-21), so that a \
           connection stays at its backend when the client's address changes. The servers must make their connection \
           ids by the same values. Packets without such an id go by their five-tuple. One table for each \
           configuration that servers use.",
    options: &[
        Opt::default(
            "config-rotation",
            Kind::Count(0, QuicConfig::ROTATION_MAX as u64),
            "0",
            "First three bits of the connection ids. A new configuration has another value, until no connection uses \
             the old one.",
        ),
        Opt::required(
            "server-id-length",
            Kind::Count(1, ServerId::BYTES_MAX as u64),
            "Bytes of a server id. Ids that clients make are seldom mistaken for a server's if there are far more ids \
             than servers.",
        ),
        Opt::required(
            "nonce-length",
            Kind::Count(QuicConfig::NONCE_MIN as u64, 18),
            "Bytes of a nonce. With the server id at most 19. With `key-file`, 16 together cost the least.",
        ),
        Opt::optional(
            "key-file",
            Kind::Text(&FILE_PATH),
            "server ids are readable for everyone",
            "A file with the AES-128 key that encrypts connection ids: 32 hexadecimal digits, such as those of \
             `openssl rand -hex 16`.",
        ),
        Opt::optional(
            "server-ids",
            Kind::Texts(&SERVER_ID),
            "derived from each backend's address and the key; `equipoise status --json` has them",
            "Server ids of backends, by their names.",
        ),
    ],
};

pub(super) static FLOWS: Table = Table {
    title: "[flows]",
    help: "Flows of the packet level, and options for all its VIPs. Sizes are fixed while a program is loaded: a \
           change needs a restart.",
    options: &[
        Opt::default(
            "max",
            Kind::Count(1024, Capacity::FLOWS_MAX as u64),
            "1048576",
            "Largest number of registered flows, 32 bytes each, half of them for nat. If the registry is full, a new \
             flow replaces one with less evidence, or goes by the tables alone; both are counted as `registry_full`.",
        ),
        Opt::default(
            "pins-max",
            Kind::Count(1024, Capacity::PINS_MAX as u64),
            "262144",
            "Largest number of flows with a backend that differs from their VIP's table: those of a pool that changed, \
             and those of schedulers that take turns. About 10 bytes each.",
        ),
        Opt::default(
            "pending-max",
            Kind::Count(1 << 15, Capacity::PENDING_MAX as u64),
            "65536",
            "Largest number of flows that the program records itself, while they open or while a pool changes.",
        ),
        Opt::default(
            "vips-max",
            Kind::Count(1, Capacity::SERVICES_MAX as u64),
            "16",
            "Largest number of VIPs after a reload. About 800 KB each.",
        ),
        Opt::default(
            "backends-max",
            Kind::Count(1, Capacity::BACKENDS_MAX as u64),
            "1024",
            "Largest number of backends of all VIPs together after a reload, draining ones included.",
        ),
        Opt::default(
            "prefixes-max",
            Kind::Count(1, Capacity::PREFIXES_MAX as u64),
            "4096",
            "Largest number of prefixes in `allow` and `deny` of all VIPs together after a reload. 64 bytes each.",
        ),
        Opt::default(
            "full-nat-max",
            Kind::Count(1024, Capacity::FULL_NAT_FLOWS_MAX as u64),
            "262144",
            "Largest number of flows of all VIPs with full-nat, 160 bytes each. No memory is used without such a VIP.",
        ),
        Opt::default(
            "tcp-timeout",
            TCP_TIMEOUT,
            "\"15m\"",
            "Time without packets after which a TCP flow is forgotten.",
        ),
        Opt::default("closing-timeout", CLOSING_TIMEOUT, "\"2m\"", "The same time after a FIN."),
        Opt::default(
            "reset-timeout",
            Kind::Duration(secs(1), DAY),
            "\"10s\"",
            "The same time after an RST.",
        ),
        Opt::default(
            "udp-timeout",
            UDP_TIMEOUT,
            "\"5m\"",
            "Time without packets after which a UDP flow is forgotten.",
        ),
        Opt::default(
            "opening-timeout",
            Kind::Duration(secs(1), secs(600)),
            "\"5s\"",
            "Time after which a TCP flow is forgotten if only its SYN was seen.",
        ),
        Opt::default(
            "transition",
            Kind::Duration(ms(100), secs(60)),
            "\"1s\"",
            "Duration of a change of a pool: long enough for handshakes that began before it to end.",
        ),
        Opt::optional(
            "seed",
            Kind::Text(&SECRET),
            "`seed-file`, or a secret of this machine",
            "A secret that the balancers of a fleet share, so that each sends a flow to the same backend.",
        ),
        Opt::optional(
            "seed-file",
            Kind::Text(&FILE_PATH),
            "`seed`, or a secret of this machine",
            "A file with the secret `seed`.",
        ),
        Opt::optional(
            "peers",
            Kind::Texts(&PEER),
            "flows are not shared",
            "The other balancers of the VIPs: each is sent this balancer's flows, so that a flow keeps its backend when the \
             routers send it to another balancer. This balancer's own address may be among them. Needs `peers-listen`, \
             and a secret, which authenticates and encrypts the connections. A reload applies.",
        ),
        Opt::optional(
            "peers-listen",
            Kind::Text(&super::LISTEN),
            "flows are not shared",
            "Address that peers connect to, on a network that clients do not reach.",
        ),
        Opt::default(
            "tunnel-source",
            Kind::Text(&PREFIX4),
            "\"172.16.0.0/16\"",
            "Source of outer IPv4 packets. The bits behind the length follow the flow, so that backends spread flows over their receive queues; with /32 there are none.",
        ),
        Opt::default(
            "tunnel-source6",
            Kind::Text(&PREFIX6),
            "\"100::/64\"",
            "Source of outer IPv6 packets: the first 64 bits. The last 32 follow the flow.",
        ),
        Opt::default(
            "gue-port",
            Kind::Count(1, 65_535),
            "6080",
            "UDP destination port of `forward = \"gue\"`.",
        ),
        Opt::default(
            "echo-limit",
            Kind::Count(0, 10_000_000),
            "1000",
            "Largest number of ICMP echo requests to VIPs that each CPU answers per second.",
        ),
        Opt::default(
            "too-big-limit",
            Kind::Count(0, 10_000_000),
            "1000",
            "Largest number of ICMP messages \"too big\" that each CPU sends per second.",
        ),
        Opt::default(
            "adjust-offloads",
            Kind::Flag,
            "true",
            "Turn off offloads that would show the program other packets than those on the wire (`rxvlan`; `gro` below \
             an interface in generic mode), and on again when it is detached. If false, the program is not attached to \
             an interface with such an offload that would lose packets, and the log has the command to run.",
        ),
        Opt::default(
            "elephants",
            Kind::Flag,
            "true",
            "Estimate the bytes of flows from one of 64 packets, for `equipoise flows` and the status: the largest flows, \
             and their share of each backend's load.",
        ),
    ],
};

/// `[[packet]] forward`.
pub(crate) static FORWARD: Choices<Forward> = Choices(&Forward::CHOICES);

/// `[[packet]] scheduler`.
pub(crate) static PACKET_SCHEDULER: Choices<FlowScheduler> = Choices(&FlowScheduler::CHOICES);

/// `[[packet]] key`.
pub(crate) static FLOW_KEY: Choices<FlowKey> = Choices(&[
    ("five-tuple", FlowKey::FiveTuple, "addresses, ports and protocol: a connection"),
    (
        "source-address",
        FlowKey::SourceAddress,
        "the client's address: all its connections have one backend",
    ),
    (
        "source-prefix",
        FlowKey::SourcePrefix(0),
        "the first bits of the client's address: neighbours have one backend",
    ),
    ("source-mac", FlowKey::SourceMac, "the sender's MAC address: a device on the same link"),
]);

/// `[[packet]] when-down`.
pub(crate) static WHEN_DOWN: Choices<OnDown> = Choices(&[
    ("move", OnDown::Move, "they go to another backend"),
    ("keep", OnDown::Keep, "they stay until they end; the backend gets no new ones"),
]);

static VIP: Form = Form {
    noun: "a VIP",
    accepted: "IP:PORT/PROTOCOL with tcp or udp, such as \"192.0.2.10:443/tcp\" or \"[2001:db8::1]:53/udp\"; PORT may be a range (\"8000-8999\") or \"*\", and IP neither loopback nor multicast",
    fits: reads_as::<VipId>,
};

static SOURCE_ADDRESS: Form = Form {
    noun: "a source address",
    accepted: "an IP address, neither loopback nor multicast, such as \"10.0.0.9\" or \"2001:db8::9\"",
    fits: |text| {
        text.parse::<IpAddr>()
            .is_ok_and(|it| !it.is_unspecified() && !it.is_loopback() && !it.is_multicast())
    },
};

static SOURCE_PORTS: Form = Form {
    noun: "a range of ports",
    accepted: "FIRST-LAST, from 1 to 65535, such as \"1024-65535\"",
    fits: reads_as::<PortRange>,
};

pub(super) static STATION: Form = Form {
    noun: "a MAC address",
    accepted: "the address of one station, such as \"00:00:5e:00:01:0a\"",
    fits: |text| text.parse().is_ok_and(MacAddress::is_station),
};

pub(super) static INTERFACE: Form = Form {
    noun: "the name of an interface",
    accepted: "1 to 15 characters without white space, `/` or `:`, such as \"eth0\"",
    fits: |text| {
        (1..=INTERFACE_BYTES_MAX).contains(&text.len())
            && ![".", ".."].contains(&text)
            && text.bytes().all(|b| b.is_ascii_graphic() && b != b'/' && b != b':')
    },
};

static SERVER_ID: Form = Form {
    noun: "a backend's server id",
    accepted: "NAME=ID, the ID with two hexadecimal digits for each byte, such as \"10.0.0.21:443=a1b2c3d4\"",
    fits: reads_as::<NamedId>,
};

static SECRET: Form = Form {
    noun: "a secret",
    accepted: "16 characters or more, such as those of `openssl rand -hex 16`",
    fits: |text| FleetSecret::new(text).is_some(),
};

static PEER: Form = Form {
    noun: "a peer's address",
    accepted: "IP:PORT, such as \"10.0.0.2:7946\" or \"[2001:db8::2]:7946\"",
    fits: |text| {
        text.parse::<SocketAddr>().is_ok_and(|it| it.port() > 0 && !it.ip().is_unspecified())
    },
};

static FILE_PATH: Form = Form {
    noun: "a path of a file",
    accepted: "an absolute path, such as \"/etc/equipoise/seed\"",
    fits: |text| text.starts_with('/') && !text.ends_with('/'),
};

static PREFIX4: Form = Form {
    noun: "an IPv4 prefix",
    accepted: "ADDRESS/LENGTH with zero bits behind the length, such as \"172.16.0.0/16\"",
    fits: reads_as::<Prefix<Ipv4Addr>>,
};

static PREFIX6: Form = Form {
    noun: "an IPv6 prefix of 64 bits",
    accepted: "ADDRESS/64 with zero bits behind the length, such as \"100::/64\"",
    fits: |text| text.parse::<Prefix<Ipv6Addr>>().is_ok_and(|prefix| prefix.len == 64),
};
