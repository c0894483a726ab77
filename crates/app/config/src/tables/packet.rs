//! The packet level's options.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use equipoise_packet::abi::{FlowKey, Forward};
use equipoise_packet::config::{FleetSecret, MacAddress, PortRange, Prefix};
use equipoise_packet::{Capacity, FlowScheduler, FlowTags, OnDown, QuicConfig, ServerId, VipId};

use super::{DAY, NAME, ms, secs};
use crate::key::{
    Count, Each, List, OneOf, Options, Parsed, Text, Texts, choice, count, duration, each, flag,
    options, parsed, tables, text, texts,
};
use crate::named_id::NamedId;
use crate::option::{Choice, Choices, Form, TypedForm};
use crate::text::AddressPrefix;

/// Longest interface name that the kernel accepts: `IFNAMSIZ` without its final NUL.
const INTERFACE_BYTES_MAX: usize = 15;

options! {
    Packet: "[[packet]]",
    "A VIP of the packet level: an address whose packets are forwarded by an XDP program, flow by flow. One table for each. Needs root (or CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW and CAP_PERFMON) and Linux 6.1.";

    VIP: Option<Parsed<VipId>> = parsed("vip", &VIP).required(
        "The address for clients. VIPs may not overlap; port `*` stands for every port that no other VIP has.",
    ),
    INTERFACE: Option<Texts> = texts("interface", &INTERFACE).required(
        "Interface at which its packets arrive. If it does not exist yet, equipoise waits for it.",
    ),
    ACCEPT_MAC: Option<Each<MacAddress>> = each("accept-mac", &STATION).optional(
        "frames to the interface's own MAC address",
        "Further destination MAC addresses whose frames are accepted, such as VRRP's virtual ones. Frames to other \
         addresses are left to the kernel.",
    ),
    REPLY_INTERFACE: Option<Texts> = texts("reply-interface", &INTERFACE).optional(
        "replies arrive on `interface`",
        "nat, full-nat: interface at which replies of backends arrive, if it is not `interface`.",
    ),
    FORWARD: Option<OneOf<Forward>> = choice("forward").required(
        "The way in which packets are sent to the backends.",
    ),
    SOURCE_ADDRESSES: Option<Each<IpAddr>> = each("source-addresses", &SOURCE_ADDRESS).optional(
        "none; required with full-nat",
        "full-nat: source addresses of packets to backends, for this balancer alone. Backends send their replies \
         there. The machine has them, or routers send them here; nothing else uses them.",
    ),
    SOURCE_PORTS: Parsed<PortRange> = parsed("source-ports", &SOURCE_PORTS).default(
        "1024-65535",
        "full-nat: ports of each source address. One of them serves one flow for each backend and port.",
    ),
    POOL: Option<Text> = text("pool", &NAME).required("The `name` of the pool behind it."),
    SCHEDULER: OneOf<FlowScheduler> = choice("scheduler").default(
        &FlowScheduler::Maglev,
        "The method that picks the backend of a new flow. The pool's own `scheduler` is for front doors.",
    ),
    KEY: OneOf<FlowKey> = choice("key").default(&FlowKey::FiveTuple, "Key that identifies a flow."),
    KEY_PREFIX: Option<Count<u8>> = count("key-prefix", 1, 128).optional(
        "24, or 56 for IPv6",
        "With key = \"source-prefix\": bits of the client's address that identify a flow.",
    ),
    QUIC: List<Quic> = tables("quic").default(Quic::TABLE.help),
    ALLOW: Option<Each<AddressPrefix>> = each("allow", &super::dns::PREFIX).optional(
        "every address that `deny` does not list",
        "Prefixes of the clients whose packets are accepted; other packets are dropped (`source_denied`), those of \
         established flows included. If `allow` and `deny` both have a prefix of an address, the longer one decides.",
    ),
    DENY: Option<Each<AddressPrefix>> = each("deny", &super::dns::PREFIX).optional(
        "no address",
        "Prefixes of the clients whose packets are dropped.",
    ),
    TCP_TIMEOUT: Option<Duration> = duration("tcp-timeout", secs(20), DAY).optional(
        "that of `[flows]`",
        "Time without packets after which a TCP flow of this VIP is forgotten.",
    ),
    CLOSING_TIMEOUT: Option<Duration> = duration("closing-timeout", secs(10), DAY).optional(
        "that of `[flows]`",
        "The same time after a FIN.",
    ),
    UDP_TIMEOUT: Option<Duration> = duration("udp-timeout", secs(20), DAY).optional(
        "that of `[flows]`",
        "Time without packets after which a UDP flow of this VIP is forgotten.",
    ),
    WHEN_DOWN: OneOf<OnDown> = choice("when-down").default(
        &OnDown::Move,
        "Treatment of the flows of a backend whose health checks fail.",
    ),
    CHECK_TUNNEL: bool = flag("check-tunnel").default(
        true,
        "tunnel, gue: a backend must also answer a TCP SYN for the VIP that is sent through its tunnel. For VIPs of TCP whose pool has `health`.",
    ),
    SECOND_CHANCE: bool = flag("second-chance").default(
        false,
        "gue: packets also carry the backend that had their flow before a change of the pool. A backend that does not \
         know the flow passes them on to that one, so flows survive changes without an exchange between balancers. \
         For TCP, with \"maglev\" or \"weighted-random\"; backends need `equipoise decap --second-chance`.",
    ),
}

options! {
    Quic: "[[packet.quic]]",
    "udp: connection ids of QUIC that name the server (QUIC-LB, draft-ietf-quic-load-balancers-21), so that a \
     connection stays at its backend when the client's address changes. The servers must make their connection \
     ids by the same values. Packets without such an id go by their five-tuple. One table for each \
     configuration that servers use.";

    CONFIG_ROTATION: Count<u8> =
        count("config-rotation", 0, QuicConfig::ROTATION_MAX as u64).default(
            0,
            "First three bits of the connection ids. A new configuration has another value, until no connection uses \
         the old one.",
        ),
    SERVER_ID_LENGTH: Option<Count<u8>> =
        count("server-id-length", 1, ServerId::BYTES_MAX as u64).required(
            "Bytes of a server id. Ids that clients make are seldom mistaken for a server's if there are far more ids \
         than servers.",
        ),
    NONCE_LENGTH: Option<Count<u8>> =
        count("nonce-length", QuicConfig::NONCE_MIN as u64, 18).required(
            "Bytes of a nonce. With the server id at most 19. With `key-file`, 16 together cost the least.",
        ),
    KEY_FILE: Option<Text> = text("key-file", &FILE_PATH).optional(
        "server ids are readable for everyone",
        "A file with the AES-128 key that encrypts connection ids: 32 hexadecimal digits, such as those of \
         `openssl rand -hex 16`.",
    ),
    SERVER_IDS: Option<Each<NamedId>> = each("server-ids", &SERVER_ID).optional(
        "derived from each backend's address and the key; `equipoise status --json` has them",
        "Server ids of backends, by their names.",
    ),
}

options! {
    Flows: "[flows]",
    "Flows of the packet level, and options for all its VIPs. Sizes are fixed while a program is loaded: a \
     change needs a restart.";

    MAX: Count<u32> = count("max", 1024, Capacity::FLOWS_MAX as u64).default(
        1_048_576,
        "Largest number of registered flows, 32 bytes each, half of them for nat. If the registry is full, a new \
         flow replaces one with less evidence, or goes by the tables alone; both are counted as `registry_full`.",
    ),
    TAGS: OneOf<FlowTags> = choice("tags").default(
        &FlowTags::Long,
        "Tags by which the program knows the flows seen in the last 10 s, for each flow of `max`. A new flow with \
         the tag of another one stays hidden until the next 10 s. If the pool changes before, it may move.",
    ),
    PINS_MAX: Count<u32> = count("pins-max", 1024, Capacity::PINS_MAX as u64).default(
        262_144,
        "Largest number of flows with a backend that differs from their VIP's table: those of a pool that changed, \
         and those of schedulers that take turns. About 10 bytes each.",
    ),
    PENDING_MAX: Count<u32> = count("pending-max", 1 << 15, Capacity::PENDING_MAX as u64).default(
        65_536,
        "Largest number of flows that the program records itself, while they open or while a pool changes.",
    ),
    VIPS_MAX: Count<u32> = count("vips-max", 1, Capacity::SERVICES_MAX as u64).default(
        16,
        "Largest number of VIPs after a reload. About 800 KB each.",
    ),
    BACKENDS_MAX: Count<u32> = count("backends-max", 1, Capacity::BACKENDS_MAX as u64).default(
        1024,
        "Largest number of backends of all VIPs together after a reload, draining ones included.",
    ),
    PREFIXES_MAX: Count<u32> = count("prefixes-max", 1, Capacity::PREFIXES_MAX as u64).default(
        4096,
        "Largest number of prefixes in `allow` and `deny` of all VIPs together after a reload. 64 bytes each.",
    ),
    FULL_NAT_MAX: Count<u32> =
        count("full-nat-max", 1024, Capacity::FULL_NAT_FLOWS_MAX as u64).default(
            262_144,
            "Largest number of flows of all VIPs with full-nat, 160 bytes each. No memory is used without such a VIP.",
        ),
    TCP_TIMEOUT: Duration = duration("tcp-timeout", secs(20), DAY).default(
        secs(900),
        "Time without packets after which a TCP flow is forgotten.",
    ),
    CLOSING_TIMEOUT: Duration = duration("closing-timeout", secs(10), DAY).default(
        secs(120),
        "The same time after a FIN.",
    ),
    RESET_TIMEOUT: Duration = duration("reset-timeout", secs(1), DAY).default(
        secs(10),
        "The same time after an RST.",
    ),
    UDP_TIMEOUT: Duration = duration("udp-timeout", secs(20), DAY).default(
        secs(300),
        "Time without packets after which a UDP flow is forgotten.",
    ),
    OPENING_TIMEOUT: Duration = duration("opening-timeout", secs(1), secs(600)).default(
        secs(5),
        "Time after which a TCP flow is forgotten if only its SYN was seen.",
    ),
    TRANSITION: Duration = duration("transition", ms(100), secs(60)).default(
        secs(1),
        "Duration of a change of a pool: long enough for handshakes that began before it to end.",
    ),
    SEED: Option<Text> = text("seed", &SECRET).optional(
        "`seed-file`, or a secret of this machine",
        "A secret that the balancers of a fleet share, so that each sends a flow to the same backend.",
    ),
    SEED_FILE: Option<Text> = text("seed-file", &FILE_PATH).optional(
        "`seed`, or a secret of this machine",
        "A file with the secret `seed`.",
    ),
    PEERS: Option<Each<SocketAddr>> = each("peers", &PEER).optional(
        "flows are not shared",
        "The other balancers of the VIPs: each is sent this balancer's flows, so that a flow keeps its backend when the \
         routers send it to another balancer. This balancer's own address may be among them. Needs `peers-listen`, \
         and a secret, which authenticates and encrypts the connections. A reload applies.",
    ),
    PEERS_LISTEN: Option<Parsed<SocketAddr>> = parsed("peers-listen", &super::forms::LISTEN).optional(
        "flows are not shared",
        "Address that peers connect to, on a network that clients do not reach.",
    ),
    TUNNEL_SOURCE: Parsed<Prefix<Ipv4Addr>> = parsed("tunnel-source", &PREFIX4).default(
        "172.16.0.0/16",
        "Source of outer IPv4 packets. The bits behind the length follow the flow, so that backends spread flows over their receive queues; with /32 there are none.",
    ),
    TUNNEL_SOURCE6: Parsed<Prefix<Ipv6Addr>> = parsed("tunnel-source6", &PREFIX6).default(
        "100::/64",
        "Source of outer IPv6 packets: the first 64 bits. The last 32 follow the flow.",
    ),
    GUE_PORT: Count<u16> = count("gue-port", 1, 65_535).default(
        6080,
        "UDP destination port of `forward = \"gue\"`.",
    ),
    ECHO_LIMIT: Count<u32> = count("echo-limit", 0, 10_000_000).default(
        1000,
        "Largest number of ICMP echo requests to VIPs that each CPU answers per second.",
    ),
    TOO_BIG_LIMIT: Count<u32> = count("too-big-limit", 0, 10_000_000).default(
        1000,
        "Largest number of ICMP messages \"too big\" that each CPU sends per second.",
    ),
    ADJUST_OFFLOADS: bool = flag("adjust-offloads").default(
        true,
        "Turn off offloads that would show the program other packets than those on the wire (`rxvlan`; `gro` below \
         an interface in generic mode), and on again when it is detached. If false, the program is not attached to \
         an interface with such an offload that would lose packets, and the log has the command to run.",
    ),
    ELEPHANTS: bool = flag("elephants").default(
        true,
        "Estimate the bytes of flows from one of 64 packets, for `equipoise flows` and the status: the largest flows, \
         and their share of each backend's load.",
    ),
}

/// `[[packet]] forward`.
impl Choice for Forward {
    const CHOICES: &'static Choices<Forward> = &Choices(&Forward::CHOICES);
}

/// `[flows] tags`.
impl Choice for FlowTags {
    const CHOICES: &'static Choices<FlowTags> = &Choices(&FlowTags::CHOICES);
}

/// `[[packet]] scheduler`.
impl Choice for FlowScheduler {
    const CHOICES: &'static Choices<FlowScheduler> = &Choices(&FlowScheduler::CHOICES);
}

/// `[[packet]] key`.
impl Choice for FlowKey {
    const CHOICES: &'static Choices<FlowKey> = &Choices(&[
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
}

/// `[[packet]] when-down`.
impl Choice for OnDown {
    const CHOICES: &'static Choices<OnDown> = &Choices(&[
        ("move", OnDown::Move, "they go to another backend"),
        ("keep", OnDown::Keep, "they stay until they end; the backend gets no new ones"),
    ]);
}

static VIP: TypedForm<VipId> = TypedForm::new(
    "a VIP",
    "IP:PORT/PROTOCOL with tcp or udp, such as \"192.0.2.10:443/tcp\" or \"[2001:db8::1]:53/udp\"; PORT may be a range (\"8000-8999\") or \"*\", and IP neither loopback nor multicast",
);

static SOURCE_ADDRESS: TypedForm<IpAddr> = TypedForm::some(
    "a source address",
    "an IP address, neither loopback nor multicast, such as \"10.0.0.9\" or \"2001:db8::9\"",
    |text| {
        text.parse::<IpAddr>()
            .is_ok_and(|it| !it.is_unspecified() && !it.is_loopback() && !it.is_multicast())
    },
);

static SOURCE_PORTS: TypedForm<PortRange> =
    TypedForm::new("a range of ports", "FIRST-LAST, from 1 to 65535, such as \"1024-65535\"");

pub(super) static STATION: TypedForm<MacAddress> = TypedForm::some(
    "a MAC address",
    "the address of one station, such as \"00:00:5e:00:01:0a\"",
    |text| text.parse().is_ok_and(MacAddress::is_station),
);

pub(super) static INTERFACE: Form = Form {
    noun: "the name of an interface",
    accepted: "1 to 15 characters without white space, `/` or `:`, such as \"eth0\"",
    fits: |text| {
        (1..=INTERFACE_BYTES_MAX).contains(&text.len())
            && ![".", ".."].contains(&text)
            && text.bytes().all(|b| b.is_ascii_graphic() && b != b'/' && b != b':')
    },
};

static SERVER_ID: TypedForm<NamedId> = TypedForm::new(
    "a backend's server id",
    "NAME=ID, the ID with two hexadecimal digits for each byte, such as \"10.0.0.21:443=a1b2c3d4\"",
);

static SECRET: Form = Form {
    noun: "a secret",
    accepted: "16 characters or more, such as those of `openssl rand -hex 16`",
    fits: |text| FleetSecret::new(text).is_some(),
};

static PEER: TypedForm<SocketAddr> = TypedForm::some(
    "a peer's address",
    "IP:PORT, such as \"10.0.0.2:7946\" or \"[2001:db8::2]:7946\"",
    |text| text.parse::<SocketAddr>().is_ok_and(|it| it.port() > 0 && !it.ip().is_unspecified()),
);

static FILE_PATH: Form = Form {
    noun: "a path of a file",
    accepted: "an absolute path, such as \"/etc/equipoise/seed\"",
    fits: |text| text.starts_with('/') && !text.ends_with('/'),
};

static PREFIX4: TypedForm<Prefix<Ipv4Addr>> = TypedForm::new(
    "an IPv4 prefix",
    "ADDRESS/LENGTH with zero bits behind the length, such as \"172.16.0.0/16\"",
);

static PREFIX6: TypedForm<Prefix<Ipv6Addr>> = TypedForm::some(
    "an IPv6 prefix of 64 bits",
    "ADDRESS/64 with zero bits behind the length, such as \"100::/64\"",
    |text| text.parse::<Prefix<Ipv6Addr>>().is_ok_and(|prefix| prefix.len == 64),
);
