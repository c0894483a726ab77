//! Options that bound what the clients of a front door may do.

use super::super::option::{Form, Kind, Opt, Table, reads_as};
use super::super::text::{Bandwidth, CountedBy, RateText};

pub(super) const ALLOW: Opt = Opt::optional(
    "allow",
    Kind::Texts(&super::dns::PREFIX),
    "every address that `deny` does not list",
    "Prefixes of the clients that are served; other clients are answered 403 (tcp: reset, udp: no answer). If `allow` \
     and `deny` both have a prefix of an address, the longer one decides.",
);

pub(super) const DENY: Opt = Opt::optional(
    "deny",
    Kind::Texts(&super::dns::PREFIX),
    "no address",
    "Prefixes of the clients that are not served.",
);

pub(super) const LIMIT: Opt =
    Opt::default("limit", Kind::Tables(&LIMIT_TABLE), "[]", LIMIT_TABLE.help);

/// The option of http front doors.
pub(super) const BANDWIDTH: Opt = Opt::optional(
    "bandwidth",
    Kind::Text(&BANDWIDTH_FORM),
    "no limit",
    "Largest rate of the bytes of each response of a backend, such as \"10MB/s\". Tunnels after an upgrade are not \
     limited.",
)
.http_only();

/// The option of routes.
pub(super) const BANDWIDTH_OF_ROUTE: Opt = Opt::optional(
    "bandwidth",
    Kind::Text(&BANDWIDTH_FORM),
    "that of the front door",
    "Largest rate of the bytes of each response, such as \"10MB/s\".",
);

static BANDWIDTH_FORM: Form = Form {
    noun: "a bandwidth",
    accepted: "a size in a second, 1KB/s to 1TB/s, such as \"10MB/s\"",
    fits: reads_as::<Bandwidth>,
};

/// The option of routes.
pub(super) const OF_ROUTE: Opt =
    Opt::default("limit", Kind::Tables(&ROUTE_TABLE), "[]", ROUTE_TABLE.help);

static LIMIT_TABLE: Table = Table {
    title: "[[session.limit]]",
    help: "A limit on what clients may do (http, tcp), counted by this process. With several, each has to permit a \
           request.",
    options: &[
        Opt::default(
            "by",
            Kind::Text(&COUNTED_BY),
            "\"source\"",
            "What is counted together: requests from one client address (\"source\"), all of the front door \
             (\"front-door\"), or requests with the same value of a header (\"header:NAME\"; those without it \
             together).",
        ),
        Opt::optional(
            "rate",
            Kind::Text(&RATE),
            "no limit",
            "Largest number of requests (tcp: new connections) in a time. A request beyond it is answered 429 with \
             `Retry-After`, a connection reset.",
        ),
        BURST,
        Opt::optional(
            "connections",
            Kind::Count(1, 10_000_000),
            "no limit",
            "Largest number of open connections; further ones are reset. For all data-plane threads together.",
        ),
        IPV4_PREFIX,
        IPV6_PREFIX,
        KEYS,
        SHARED,
    ],
};

static ROUTE_TABLE: Table = Table {
    title: "[[session.route.limit]]",
    help: "A limit on what clients may do with the route, beside those of its front door, counted by this process. With \
           several, each has to permit a request.",
    options: &[
        Opt::default(
            "by",
            Kind::Text(&COUNTED_BY_IN_ROUTE),
            "\"source\"",
            "What is counted together: requests from one client address (\"source\"), all of the route (\"route\"), or \
             requests with the same value of a header (\"header:NAME\"; those without it together).",
        ),
        Opt::optional(
            "rate",
            Kind::Text(&RATE),
            "no limit",
            "Largest number of requests in a time. A request beyond it is answered 429 with `Retry-After`.",
        ),
        BURST,
        Opt::optional(
            "concurrency",
            Kind::Count(1, 10_000_000),
            "no limit",
            "Largest number of requests in flight, tunnels after an upgrade included; further ones are answered 429. For \
             all data-plane threads together.",
        ),
        IPV4_PREFIX,
        IPV6_PREFIX,
        KEYS,
        SHARED,
    ],
};

const BURST: Opt = Opt::optional(
    "burst",
    Kind::Count(1, 1_000_000),
    "the number of one second, and at least 1",
    "How many of them may come at once after a rest.",
);

const IPV4_PREFIX: Opt = Opt::default(
    "ipv4-prefix",
    Kind::Count(8, 32),
    "32",
    "Bits of an IPv4 address that make it another source.",
);

const IPV6_PREFIX: Opt = Opt::default(
    "ipv6-prefix",
    Kind::Count(16, 128),
    "64",
    "Bits of an IPv6 address that make it another source.",
);

const SHARED: Opt = Opt::default(
    "shared",
    Kind::Flag,
    "false",
    "The nodes of a cluster admit the `rate` together, divided by their demand, instead of each alone. For limits of all \
     clients together; the front door (and the route) has the same name on all nodes.",
);

const KEYS: Opt = Opt::default(
    "keys",
    Kind::Count(1000, 100_000_000),
    "100000",
    "Sources or header values of which the rate is kept, with 16 bytes each. If more send at once, those that have sent \
     the least may send a burst again.",
);

static COUNTED_BY: Form = Form {
    noun: "a way to count",
    accepted: "\"source\", \"front-door\" or \"header:NAME\"",
    fits: |text| text != "route" && reads_as::<CountedBy>(text),
};

static COUNTED_BY_IN_ROUTE: Form = Form {
    noun: "a way to count",
    accepted: "\"source\", \"route\" or \"header:NAME\"",
    fits: |text| text != "front-door" && reads_as::<CountedBy>(text),
};

static RATE: Form = Form {
    noun: "a rate",
    accepted: "a number of 1 to 1000000000 in a second, minute or hour, such as \"100/s\", \"600/m\" or \"50/h\"",
    fits: reads_as::<RateText>,
};
