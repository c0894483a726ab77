//! The DNS level's options.

use std::net::{IpAddr, SocketAddr};

use equipoise_dns::{CookieSecret, Mode, Name};

use super::super::option::{Choices, Form, Kind, Opt, Table, reads_as};
use super::super::text::read_prefix;
use super::{DAY, HOUR, LABEL, NAME, ms, secs};

/// Largest TTL of negative answers: resolvers keep them no longer than this (RFC 2308, 5).
const NEGATIVE_MAX: std::time::Duration = secs(3 * 3600);

pub(super) static DNS: Table = Table {
    title: "[[dns]]",
    help: "A zone of the DNS level: names whose answers spread clients over the backends of pools. One table for each. \
           Every `listen` address answers all zones.",
    options: &[
        Opt::required("zone", Kind::Text(&DOMAIN), "Its name."),
        Opt::required(
            "listen",
            Kind::Texts(&LISTENS),
            "Address for queries, over UDP and TCP. Zones may share an address.",
        ),
        Opt::optional(
            "pool",
            Kind::Text(&NAME),
            "the zone's own name has no addresses but those of its zone file",
            "The pool for the zone's own name and for names without their own `pool`. The IP addresses of its backends \
             are the answers; its health checks, weights, `drain` and `weight` apply here too. Backends of an elastic \
             pool are included.",
        ),
        Opt::default(
            "mode",
            Kind::Choice(&MODE),
            "\"pair\"",
            "The content of an answer, for the zone's own name and for names without their own `mode`.",
        ),
        Opt::default(
            "shares",
            Kind::Choice(&SHARES),
            "\"weights\"",
            "The source of each backend's share of clients.",
        ),
        Opt::default(
            "ttl",
            Kind::Duration(secs(1), DAY),
            "\"1m\"",
            "Time for which resolvers may keep answers of balanced names.",
        ),
        Opt::default(
            "ttl-draining",
            Kind::Duration(secs(1), DAY),
            "\"10s\"",
            "The same time while a backend drains, if it is shorter.",
        ),
        Opt::default(
            "ttl-heavy",
            Kind::Duration(secs(1), DAY),
            "\"20s\"",
            "The same time for resolvers with more than `heavy-share` of all load, if it is shorter.",
        ),
        Opt::default(
            "record-ttl",
            Kind::Duration(secs(1), DAY),
            "\"1h\"",
            "Time for which resolvers may keep the zone's SOA and NS records and the addresses of its name servers and \
             backends.",
        ),
        Opt::default(
            "negative-ttl",
            Kind::Duration(secs(1), NEGATIVE_MAX),
            "\"30s\"",
            "Time for which resolvers may keep the answer that something does not exist.",
        ),
        Opt::default(
            "serial",
            Kind::Count(0, u32::MAX as u64),
            "1",
            "Serial number of the SOA record, which only secondaries use. A zone file's SOA record takes precedence.",
        ),
        Opt::optional(
            "mailbox",
            Kind::Text(&DOMAIN),
            "`hostmaster` below the zone's name",
            "Mailbox of the SOA record, with its `@` written as a dot.",
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
            "The zone's name servers; the zone above it must name the same ones. Without this option: the NS records \
             of the zone file. A string is short for a table with only that `name`.",
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
            "Names below the zone's name that are spread over backends. A string is short for a table with only that \
             `name`.",
        ),
    ],
};

pub(crate) static SHARES: Choices<bool> = Choices(&[
    ("weights", false, "the backends' weights"),
    (
        "load",
        true,
        "the cluster's plan, by the reports of the members that are these backends (their `node`, or else their name); \
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
            "Its name. Without a final dot, it is below the zone's name.",
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
    help: "Addresses of a backend for clients.",
    options: &[
        Opt::required(
            "backend",
            Kind::Text(&BACKEND_NAME),
            "The backend's `name`, or its `address` if it has none.",
        ),
        Opt::required(
            "addresses",
            Kind::Texts(&ADDRESS),
            "The IP addresses in answers, instead of that of the backend's `address`.",
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
            "The name. Without a final dot, it is below the zone's name: `www`, `_web._tcp`.",
        ),
        Opt::optional(
            "pool",
            Kind::Text(&NAME),
            "the zone's `pool`",
            "The pool over which it is spread.",
        ),
        Opt::optional(
            "backends",
            Kind::Texts(&BACKEND_NAME),
            "all of the pool's, including those of an elastic pool",
            "The pool's backends over which it is spread, by `name`, or by `address` if they have none.",
        ),
        Opt::optional(
            "labels",
            Kind::Texts(&LABEL),
            "`backends` lists them",
            "Spreads it over those of the pool's backends that have all of these `labels`.",
        ),
        Opt::optional(
            "mode",
            Kind::Choice(&MODE),
            "the zone's `mode`",
            "The content of an answer.",
        ),
        Opt::optional(
            "ttl",
            Kind::Duration(secs(1), DAY),
            "the zone's `ttl`",
            "Time for which resolvers may keep answers.",
        ),
        Opt::optional(
            "port",
            Kind::Count(1, 65_535),
            "srv: that of each backend's `address`; https: 443",
            "srv and https: the port in answers. https: 443 is left out, because it is the default.",
        ),
        Opt::optional(
            "alpn",
            Kind::Texts(&PROTOCOL_ID),
            "none",
            "https: the protocols in answers, such as `h2`.",
        ),
    ],
};

pub(super) static NAMESERVER: Table = Table {
    title: "[nameserver]",
    help: "Options for all zones.",
    options: &[
        Opt::optional(
            "identity",
            Kind::Text(&SHORT),
            "the instance's name",
            "The answer to NSID and to `id.server`: the name of this server among several.",
        ),
        Opt::optional("version", Kind::Text(&SHORT), "no answer", "The answer to `version.bind`."),
        Opt::default(
            "rate-limit",
            Kind::Count(0, 1_000_000),
            "200",
            "Largest number of responses of one kind per second to one prefix (/24, /56) over UDP, against floods with \
             forged sources. Clients with a valid cookie are not limited. 0: no limit.",
        ),
        Opt::default(
            "rate-limit-slip",
            Kind::Count(0, 100),
            "2",
            "One in this number of limited responses is sent truncated, so that a real client returns over TCP; the \
             others are dropped. 0: all are dropped.",
        ),
        Opt::optional(
            "rate-limit-exempt",
            Kind::Texts(&PREFIX),
            "no prefix is exempt",
            "Prefixes that are not limited.",
        ),
        Opt::default("cookies", Kind::Flag, "true", "DNS cookies (RFC 7873)."),
        Opt::optional(
            "cookie-secrets",
            Kind::Texts(&SECRET),
            "a secret of this process",
            "Secrets of the servers that share an address, at most 3: the first creates cookies, and all are accepted. \
             To change it: add the new one behind the old one on all servers, then swap them, and an hour later remove \
             the old one.",
        ),
        Opt::default(
            "client-subnet",
            Kind::Flag,
            "true",
            "Assign by the client's subnet if a resolver sends it (RFC 7871).",
        ),
        Opt::default("query-log", Kind::Share, "0.0", "Share of answers in the access log."),
        Opt::default(
            "heavy-share",
            Kind::Share,
            "0.02",
            "A resolver with more than this share of all load gets `ttl-heavy`.",
        ),
        Opt::default(
            "tcp-connections-max",
            Kind::Count(1, 1_000_000),
            "1024",
            "Largest number of TCP connections. Beyond it, the longest idle one is closed for the next; that of the \
             newcomer's own prefix (/24, /56), if it has more than an eighth.",
        ),
        Opt::default(
            "tcp-idle-timeout",
            Kind::Duration(ms(100), HOUR),
            "\"10s\"",
            "A TCP connection without a complete query for this long is closed.",
        ),
    ],
};

/// `[[dns]] mode`.
pub(crate) static MODE: Choices<Mode> = Choices(&Mode::CHOICES);

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
    fits: |text| read_prefix(text).is_some(),
};

pub(super) static FILE: Form = Form {
    noun: "a path of a file",
    accepted: "an absolute path, such as \"/etc/equipoise/cluster.zone\"",
    fits: |text| text.starts_with('/') && !text.ends_with('/'),
};
