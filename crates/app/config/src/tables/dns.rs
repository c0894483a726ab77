//! The DNS level's options.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use equipoise_dns::{CookieSecret, Mode, Name};

use super::forms::{LABEL, NAME};
use super::{DAY, HOUR, ms, secs};
use crate::key::{
    Briefs, Count, Each, List, OneOf, Text, Texts, briefs, choice, count, duration, each, flag,
    options, share, tables, text, texts,
};
use crate::option::{Choice, Choices, Form, TypedForm};
use crate::text::AddressPrefix;

/// Largest TTL of negative answers: resolvers keep them no longer than this (RFC 2308, 5).
const NEGATIVE_MAX: Duration = secs(3 * 3600);

options! {
    Dns: "[[dns]]",
    "A zone of the DNS level: names whose answers spread clients over the backends of pools. One table for each. \
     Every `listen` address answers all zones.";

    ZONE: Option<Text> = text("zone", &DOMAIN).required("Its name."),
    LISTEN: Option<Each<SocketAddr>> = each("listen", &LISTENS).required(
        "Address for queries, over UDP and TCP. Zones may share an address.",
    ),
    POOL: Option<Text> = text("pool", &NAME).optional(
        "the zone's own name has no addresses but those of its zone file",
        "The pool for the zone's own name and for names without their own `pool`. The IP addresses of its backends \
         are the answers; its health checks, weights, `drain` and `weight` apply here too. Backends of an elastic \
         pool are included.",
    ),
    MODE: OneOf<Mode> = choice("mode").default(
        &Mode::Pair,
        "The content of an answer, for the zone's own name and for names without their own `mode`.",
    ),
    SHARES: OneOf<Shares> = choice("shares").default(
        &Shares::Weights,
        "The source of each backend's share of clients.",
    ),
    TTL: Duration = duration("ttl", secs(1), DAY).default(
        secs(60),
        "Time for which resolvers may keep answers of balanced names.",
    ),
    TTL_DRAINING: Duration = duration("ttl-draining", secs(1), DAY).default(
        secs(10),
        "The same time while a backend drains, if it is shorter.",
    ),
    TTL_HEAVY: Duration = duration("ttl-heavy", secs(1), DAY).default(
        secs(20),
        "The same time for resolvers with more than `heavy-share` of all load, if it is shorter.",
    ),
    RECORD_TTL: Duration = duration("record-ttl", secs(1), DAY).default(
        HOUR,
        "Time for which resolvers may keep the zone's SOA and NS records and the addresses of its name servers and \
         backends.",
    ),
    NEGATIVE_TTL: Duration = duration("negative-ttl", secs(1), NEGATIVE_MAX).default(
        secs(30),
        "Time for which resolvers may keep the answer that something does not exist.",
    ),
    SERIAL: Count<u32> = count("serial", 0, u32::MAX as u64).default(
        1,
        "Serial number of the SOA record, which only secondaries use. A zone file's SOA record takes precedence.",
    ),
    MAILBOX: Option<Text> = text("mailbox", &DOMAIN).optional(
        "`hostmaster` below the zone's name",
        "Mailbox of the SOA record, with its `@` written as a dot.",
    ),
    ZONE_FILE: Option<Text> = text("zone-file", &FILE).optional(
        "there are no other records",
        "Further records, in the format of RFC 1035, with `$ORIGIN`, `$TTL`, `$INCLUDE` (files below this one's folder), `$GENERATE`, and times such as `1h30m`.",
    ),
    NS: Briefs<DnsServer> = briefs("ns", DnsServer::NAME).default(
        "The zone's name servers; the zone above it must name the same ones. Without this option: the NS records \
         of the zone file. A string is short for a table with only that `name`.",
    ),
    NODES: List<DnsNode> = tables("nodes").default(
        "Backends that clients reach at other addresses, or at more than one.",
    ),
    NAMES: Briefs<DnsName> = briefs("names", DnsName::NAME).default(
        "Names below the zone's name that are spread over backends. A string is short for a table with only that \
         `name`.",
    ),
}

/// Source of each backend's share of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shares {
    Weights,
    Load,
}

impl Choice for Shares {
    const CHOICES: &'static Choices<Shares> = &Choices(&[
        ("weights", Shares::Weights, "the backends' weights"),
        (
            "load",
            Shares::Load,
            "the cluster's plan, by the reports of the members that are these backends (their `node`, or else their name); \
             weights until there is a plan",
        ),
    ]);
}

options! {
    DnsServer: "[[dns.ns]]", "A name server of the zone.";

    NAME: Option<Text> = text("name", &DOMAIN).required(
        "Its name. Without a final dot, it is below the zone's name.",
    ),
    ADDRESSES: Option<Each<IpAddr>> = each("addresses", &ADDRESS).optional(
        "its name is not in this zone, or its addresses are in the zone file",
        "Its addresses. The zone above needs them too (glue).",
    ),
}

options! {
    DnsNode: "[[dns.nodes]]", "Addresses of a backend for clients.";

    BACKEND: Option<Text> = text("backend", &BACKEND_NAME).required(
        "The backend's `name`, or its `address` if it has none.",
    ),
    ADDRESSES: Option<Each<IpAddr>> = each("addresses", &ADDRESS).required(
        "The IP addresses in answers, instead of that of the backend's `address`.",
    ),
}

options! {
    DnsName: "[[dns.names]]", "A name that is spread over backends.";

    NAME: Option<Text> = text("name", &DOMAIN).required(
        "The name. Without a final dot, it is below the zone's name: `www`, `_web._tcp`.",
    ),
    POOL: Option<Text> = text("pool", &NAME).optional(
        "the zone's `pool`",
        "The pool over which it is spread.",
    ),
    BACKENDS: Option<Texts> = texts("backends", &BACKEND_NAME).optional(
        "all of the pool's, including those of an elastic pool",
        "The pool's backends over which it is spread, by `name`, or by `address` if they have none.",
    ),
    LABELS: Option<Texts> = texts("labels", &LABEL).optional(
        "`backends` lists them",
        "Spreads it over those of the pool's backends that have all of these `labels`.",
    ),
    MODE: Option<OneOf<Mode>> = choice("mode").optional(
        "the zone's `mode`",
        "The content of an answer.",
    ),
    TTL: Option<Duration> = duration("ttl", secs(1), DAY).optional(
        "the zone's `ttl`",
        "Time for which resolvers may keep answers.",
    ),
    PORT: Option<Count<u16>> = count("port", 1, 65_535).optional(
        "srv: that of each backend's `address`; https: 443",
        "srv and https: the port in answers. https: 443 is left out, because it is the default.",
    ),
    ALPN: Option<Texts> = texts("alpn", &PROTOCOL_ID).optional(
        "none",
        "https: the protocols in answers, such as `h2`.",
    ),
}

options! {
    Nameserver: "[nameserver]", "Options for all zones.";

    IDENTITY: Option<Text> = text("identity", &SHORT).optional(
        "the instance's name",
        "The answer to NSID and to `id.server`: the name of this server among several.",
    ),
    VERSION: Option<Text> = text("version", &SHORT).optional(
        "no answer",
        "The answer to `version.bind`.",
    ),
    RATE_LIMIT: Count<u32> = count("rate-limit", 0, 1_000_000).default(
        200,
        "Largest number of responses of one kind per second to one prefix (/24, /56) over UDP, against floods with \
         forged sources. Clients with a valid cookie are not limited. 0: no limit.",
    ),
    RATE_LIMIT_SLIP: Count<u32> = count("rate-limit-slip", 0, 100).default(
        2,
        "One in this number of limited responses is sent truncated, so that a real client returns over TCP; the \
         others are dropped. 0: all are dropped.",
    ),
    RATE_LIMIT_EXEMPT: Option<Each<AddressPrefix>> = each("rate-limit-exempt", &PREFIX).optional(
        "no prefix is exempt",
        "Prefixes that are not limited.",
    ),
    COOKIES: bool = flag("cookies").default(true, "DNS cookies (RFC 7873)."),
    COOKIE_SECRETS: Option<Each<CookieSecret>> = each("cookie-secrets", &SECRET).optional(
        "a secret of this process",
        "Secrets of the servers that share an address, at most 3: the first creates cookies, and all are accepted. \
         To change it: add the new one behind the old one on all servers, then swap them, and an hour later remove \
         the old one.",
    ),
    CLIENT_SUBNET: bool = flag("client-subnet").default(
        true,
        "Assign by the client's subnet if a resolver sends it (RFC 7871).",
    ),
    QUERY_LOG: f64 = share("query-log").default(0.0, "Share of answers in the access log."),
    HEAVY_SHARE: f64 = share("heavy-share").default(
        0.02,
        "A resolver with more than this share of all load gets `ttl-heavy`.",
    ),
    TCP_CONNECTIONS_MAX: Count<usize> = count("tcp-connections-max", 1, 1_000_000).default(
        1024,
        "Largest number of TCP connections. Beyond it, the longest idle one is closed for the next; that of the \
         newcomer's own prefix (/24, /56), if it has more than an eighth.",
    ),
    TCP_IDLE_TIMEOUT: Duration = duration("tcp-idle-timeout", ms(100), HOUR).default(
        secs(10),
        "A TCP connection without a complete query for this long is closed.",
    ),
}

/// `[[dns]] mode`.
impl Choice for Mode {
    const CHOICES: &'static Choices<Mode> = &Choices(&Mode::CHOICES);
}

static DOMAIN: Form = Form {
    noun: "a domain name",
    accepted: "labels of at most 63 letters, digits, `-` and `_` with dots between them, and no IP address, such as \"cluster.example.\"",
    fits: |text| {
        let bytes = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.*".contains(&b));
        !text.is_empty()
            && bytes
            && text.parse::<IpAddr>().is_err()
            && Name::vec_from_str(text).is_ok()
    },
};

static LISTENS: TypedForm<SocketAddr> =
    TypedForm::new("an address to listen on", "IP:PORT, such as \"0.0.0.0:53\" or \"[::]:53\"");

static ADDRESS: TypedForm<IpAddr> = TypedForm::new(
    "an IP address",
    "an IP address without a port, such as \"192.0.2.1\" or \"2001:db8::1\"",
);

static BACKEND_NAME: Form = Form {
    noun: "a backend",
    accepted: "the `name` of a backend of the pool, or its `address` if it has none",
    fits: |text| !text.is_empty(),
};

static PROTOCOL_ID: Form = Form {
    noun: "a protocol's name",
    accepted: "1 to 255 characters, such as \"h2\" or \"h3\"",
    fits: |text| (1..=255).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic()),
};

static SHORT: Form = Form {
    noun: "a short text",
    accepted: "1 to 64 printable ASCII characters",
    fits: |text| {
        (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic() || b == b' ')
    },
};

static SECRET: TypedForm<CookieSecret> = TypedForm::new(
    "a cookie secret",
    "32 hexadecimal digits, such as those of `openssl rand -hex 16`",
);

pub(super) static PREFIX: TypedForm<AddressPrefix> = TypedForm::new(
    "a prefix",
    "ADDRESS or ADDRESS/LENGTH, such as \"192.0.2.0/24\" or \"2001:db8::/32\"",
);

pub(super) static FILE: Form = Form {
    noun: "a path of a file",
    accepted: "an absolute path, such as \"/etc/equipoise/cluster.zone\"",
    fits: |text| text.starts_with('/') && !text.ends_with('/'),
};
