//! The DNS level's options.

use std::net::{IpAddr, SocketAddr};

use equipoise_dns::{CookieSecret, Mode, Name};

use super::super::option::{Choices, Form, Kind, Opt, Table, reads_as};
use super::{DAY, HOUR, LABEL, NAME, ms, secs};

/// Largest TTL of negative answers: resolvers keep them no longer than this (RFC 2308, 5).
const NEGATIVE_MAX: std::time::Duration = secs(3 * 3600);

pub(super) static DNS: Table = Table {
    title: "[[dns]]",
    help: "A zone of the DNS level: names whose answers spread clients over the backends of pools. One table for each. Every zone is answered at every `listen` address.",
    options: &[
        Opt::required("zone", Kind::Text(&DOMAIN), "Its name."),
        Opt::required(
            "listen",
            Kind::Texts(&LISTENS),
            "Where queries arrive, over UDP and TCP. Zones may share an address.",
        ),
        Opt::optional(
            "pool",
            Kind::Text(&NAME),
            "the zone's own name has no addresses but those of its zone file",
            "The pool that the zone's own name is spread over, and names that say no other. Its backends' IP addresses are the answers, its health checks, weights, `drain` and `weight` hold here too. Those that an elastic pool makes are among them.",
        ),
        Opt::default(
            "mode",
            Kind::Choice(&MODE),
            "\"pair\"",
            "What an answer has, for the zone's own name and names that say nothing else.",
        ),
        Opt::default(
            "shares",
            Kind::Choice(&SHARES),
            "\"weights\"",
            "What each backend's share of clients follows.",
        ),
        Opt::default(
            "ttl",
            Kind::Duration(secs(1), DAY),
            "\"1m\"",
            "For how long resolvers may keep answers of balanced names.",
        ),
        Opt::default(
            "ttl-draining",
            Kind::Duration(secs(1), DAY),
            "\"10s\"",
            "The same while a backend drains, if it is shorter.",
        ),
        Opt::default(
            "ttl-heavy",
            Kind::Duration(secs(1), DAY),
            "\"20s\"",
            "The same for resolvers that bring more than `heavy-share` of all load, if it is shorter.",
        ),
        Opt::default(
            "record-ttl",
            Kind::Duration(secs(1), DAY),
            "\"1h\"",
            "The same for the zone's SOA and NS records and the addresses of its name servers and backends.",
        ),
        Opt::default(
            "negative-ttl",
            Kind::Duration(secs(1), NEGATIVE_MAX),
            "\"30s\"",
            "For how long resolvers may keep that something does not exist.",
        ),
        Opt::default(
            "serial",
            Kind::Count(0, u32::MAX as u64),
            "1",
            "SOA's serial number, of use to secondaries only. A zone file's SOA record counts.",
        ),
        Opt::optional(
            "mailbox",
            Kind::Text(&DOMAIN),
            "`hostmaster` below the zone's name",
            "SOA's mailbox, its `@` written as a dot.",
        ),
        Opt::optional(
            "zone-file",
            Kind::Text(&FILE),
            "there are no other records",
            "Further records, in the format of RFC 1035, with `$ORIGIN`, `$TTL`, `$INCLUDE` (files below this one's folder), `$GENERATE`, and times such as `1h30m`.",
        ),
        Opt::default(
            "ns",
            Kind::Briefs(&SERVER, "name"),
            "[]",
            "The zone's name servers; the zone above it has to name the same. Without any, NS records of the zone file. A string is short for a table with only that `name`.",
        ),
        Opt::default(
            "nodes",
            Kind::Tables(&NODE),
            "[]",
            "Backends that clients reach at other addresses, or at more than one.",
        ),
        Opt::default(
            "names",
            Kind::Briefs(&BALANCED, "name"),
            "[]",
            "Names below the zone's that are spread over backends. A string is short for a table with only that `name`.",
        ),
    ],
};

pub(in super::super) static SHARES: Choices<bool> = Choices(&[
    ("weights", false, "the backends' weights"),
    (
        "load",
        true,
        "the cluster's plan: by what the members that are these backends (their `node`, or else their name) report; \
         weights until there is a plan",
    ),
]);

static SERVER: Table = Table {
    title: "[[dns.ns]]",
    help: "A name server of the zone.",
    options: &[
        Opt::required(
            "name",
            Kind::Text(&DOMAIN),
            "Its name. Without a final dot it is below the zone's.",
        ),
        Opt::optional(
            "addresses",
            Kind::Texts(&ADDRESS),
            "its name is not in this zone, or its addresses are in the zone file",
            "Its addresses. The zone above needs them too (glue).",
        ),
    ],
};

static NODE: Table = Table {
    title: "[[dns.nodes]]",
    help: "A backend as clients reach it.",
    options: &[
        Opt::required(
            "backend",
            Kind::Text(&BACKEND_NAME),
            "The backend's `name`, or its `address` if it has none.",
        ),
        Opt::required(
            "addresses",
            Kind::Texts(&ADDRESS),
            "The IP addresses that answers give, in place of that of the backend's `address`.",
        ),
    ],
};

static BALANCED: Table = Table {
    title: "[[dns.names]]",
    help: "A name that is spread over backends.",
    options: &[
        Opt::required(
            "name",
            Kind::Text(&DOMAIN),
            "Without a final dot it is below the zone's: `www`, `_web._tcp`.",
        ),
        Opt::optional(
            "pool",
            Kind::Text(&NAME),
            "the zone's `pool`",
            "The pool that it is spread over.",
        ),
        Opt::optional(
            "backends",
            Kind::Texts(&BACKEND_NAME),
            "all of the pool's, those that an elastic pool makes, too",
            "The pool's backends that it is spread over, by `name`, or by `address` if they have none.",
        ),
        Opt::optional(
            "labels",
            Kind::Texts(&LABEL),
            "`backends` says which",
            "Spread it over those of the pool's backends that have all of these `labels`.",
        ),
        Opt::optional("mode", Kind::Choice(&MODE), "the zone's `mode`", "What an answer has."),
        Opt::optional(
            "ttl",
            Kind::Duration(secs(1), DAY),
            "the zone's `ttl`",
            "For how long resolvers may keep answers.",
        ),
        Opt::optional(
            "port",
            Kind::Count(1, 65_535),
            "srv: that of each backend's `address`; https: 443",
            "srv and https: the port that clients are told. https: 443 is not told, for it is the default.",
        ),
        Opt::optional(
            "alpn",
            Kind::Texts(&PROTOCOL_ID),
            "none is told",
            "https: the protocols that clients are told, such as `h2`.",
        ),
    ],
};

pub(super) static NAMESERVER: Table = Table {
    title: "[nameserver]",
    help: "What holds for all zones.",
    options: &[
        Opt::optional(
            "identity",
            Kind::Text(&SHORT),
            "the instance's name",
            "The answer to NSID and to `id.server`: which of several servers has answered.",
        ),
        Opt::optional(
            "version",
            Kind::Text(&SHORT),
            "nobody is told",
            "The answer to `version.bind`.",
        ),
        Opt::default(
            "rate-limit",
            Kind::Count(0, 1_000_000),
            "200",
            "Responses of one kind a second to one prefix (/24, /56) over UDP; against floods with forged sources. Clients with a valid cookie are not limited. 0: no limit.",
        ),
        Opt::default(
            "rate-limit-slip",
            Kind::Count(0, 100),
            "2",
            "One limited response in so many is sent truncated, so that a real client comes back over TCP; the others are dropped. 0: all are.",
        ),
        Opt::optional(
            "rate-limit-exempt",
            Kind::Texts(&PREFIX),
            "nobody is exempt",
            "Prefixes that are not limited.",
        ),
        Opt::default("cookies", Kind::Flag, "true", "DNS cookies (RFC 7873)."),
        Opt::optional(
            "cookie-secrets",
            Kind::Texts(&SECRET),
            "one of this process's own",
            "Secrets of the servers that share an address, at most 3: the first makes cookies, all are taken. To change it: add the new one behind the old one on all servers, then swap them, and an hour later remove the old one.",
        ),
        Opt::default(
            "client-subnet",
            Kind::Flag,
            "true",
            "Assign by the client's subnet where a resolver sends it (RFC 7871).",
        ),
        Opt::default(
            "query-log",
            Kind::Share,
            "0.0",
            "The share of answers that is written to the access log.",
        ),
        Opt::default(
            "heavy-share",
            Kind::Share,
            "0.02",
            "A resolver that brings more than this share of all load gets `ttl-heavy`.",
        ),
        Opt::default(
            "tcp-connections-max",
            Kind::Count(1, 1_000_000),
            "1024",
            "TCP connections at a time. Then the longest idle one is closed for the next; that of the newcomer's own prefix (/24, /56), if it has more than an eighth.",
        ),
        Opt::default(
            "tcp-idle-timeout",
            Kind::Duration(ms(100), HOUR),
            "\"10s\"",
            "A TCP connection without a whole query for this long is closed.",
        ),
    ],
};

/// `[[dns]] mode`.
pub(crate) static MODE: Choices<Mode> = Choices(&[
    (
        "pair",
        Mode::Pair,
        "two backends, weighted: clients keep a second one to fail over to, and resolvers that shuffle change no share",
    ),
    ("single", Mode::Single, "one backend, weighted"),
    (
        "ordered",
        Mode::Ordered,
        "all backends in weighted random order; resolvers shuffle it, so that weights hold only for clients that ask directly",
    ),
    (
        "srv",
        Mode::Srv,
        "SRV records of all backends, with weights; over TCP if a datagram has no room for them: 1232 bytes take about 30",
    ),
    (
        "https",
        Mode::Https,
        "HTTPS records of all backends, with priorities in weighted random order; A and AAAA as for `pair`",
    ),
]);

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

static LISTENS: Form = Form {
    noun: "an address to listen on",
    accepted: "IP:PORT, such as \"0.0.0.0:53\" or \"[::]:53\"",
    fits: reads_as::<SocketAddr>,
};

static ADDRESS: Form = Form {
    noun: "an IP address",
    accepted: "an IP address without a port, such as \"192.0.2.1\" or \"2001:db8::1\"",
    fits: reads_as::<IpAddr>,
};

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

static SECRET: Form = Form {
    noun: "a cookie secret",
    accepted: "32 hexadecimal digits, such as those of `openssl rand -hex 16`",
    fits: reads_as::<CookieSecret>,
};

pub(super) static PREFIX: Form = Form {
    noun: "a prefix",
    accepted: "ADDRESS or ADDRESS/LENGTH, such as \"192.0.2.0/24\" or \"2001:db8::/32\"",
    fits: |text| prefix(text).is_some(),
};

static FILE: Form = Form {
    noun: "a path of a file",
    accepted: "an absolute path, such as \"/etc/equipoise/cluster.zone\"",
    fits: |text| text.starts_with('/') && !text.ends_with('/'),
};

/// Reads an address and the length of its prefix.
pub(in crate::config) fn prefix(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length.parse::<u8>().ok()?)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let length = length.unwrap_or(bits);
    (length <= bits).then_some((address, length))
}
