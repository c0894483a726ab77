//! Options that bound what the clients of a front door may do.

use crate::key::{Count, Parsed, count, flag, options, parsed, shared_options};
use crate::option::{TypedForm, reads_as};
use crate::text::{Bandwidth, CountedBy, RateText};

shared_options! {
    Limit in DoorLimit RouteLimit;

    BURST: Option<Count<u32>> = count("burst", 1, 1_000_000).optional(
        "the number of one second, and at least 1",
        "How many of them may come at once after a rest.",
    ),
    IPV4_PREFIX: Count<u8> = count("ipv4-prefix", 8, 32).default(
        32,
        "Bits of an IPv4 address that make it another source.",
    ),
    IPV6_PREFIX: Count<u8> = count("ipv6-prefix", 16, 128).default(
        64,
        "Bits of an IPv6 address that make it another source.",
    ),
    KEYS: Count<usize> = count("keys", 1000, 100_000_000).default(
        100_000,
        "Sources or header values of which the rate is kept, with 16 bytes each. If more send at once, those that have sent \
         the least may send a burst again.",
    ),
    SHARED: bool = flag("shared").default(
        false,
        "The nodes of a cluster admit the `rate` together, divided by their demand, instead of each alone. For limits of all \
         clients together; the front door (and the route) has the same name on all nodes.",
    ),
}

options! {
    DoorLimit: "[[session.limit]]",
    "A limit on what clients may do (http, tcp), counted by this process. With several, each has to permit a \
     request.";

    BY: Parsed<CountedBy> = parsed("by", &COUNTED_BY).default(
        "source",
        "What is counted together: requests from one client address (\"source\"), all of the front door \
         (\"front-door\"), or requests with the same value of a header (\"header:NAME\"; those without it \
         together).",
    ),
    RATE: Option<Parsed<RateText>> = parsed("rate", &RATE).optional(
        "no limit",
        "Largest number of requests (tcp: new connections) in a time. A request beyond it is answered 429 with \
         `Retry-After`, a connection reset.",
    ),
    Limit::BURST,
    CONNECTIONS: Option<Count<u32>> = count("connections", 1, 10_000_000).optional(
        "no limit",
        "Largest number of open connections; further ones are reset. For all data-plane threads together.",
    ),
    Limit::IPV4_PREFIX,
    Limit::IPV6_PREFIX,
    Limit::KEYS,
    Limit::SHARED,
}

options! {
    RouteLimit: "[[session.route.limit]]",
    "A limit on what clients may do with the route, beside those of its front door, counted by this process. With \
     several, each has to permit a request.";

    BY: Parsed<CountedBy> = parsed("by", &COUNTED_BY_IN_ROUTE).default(
        "source",
        "What is counted together: requests from one client address (\"source\"), all of the route (\"route\"), or \
         requests with the same value of a header (\"header:NAME\"; those without it together).",
    ),
    RATE: Option<Parsed<RateText>> = parsed("rate", &RATE).optional(
        "no limit",
        "Largest number of requests in a time. A request beyond it is answered 429 with `Retry-After`.",
    ),
    Limit::BURST,
    CONCURRENCY: Option<Count<u32>> = count("concurrency", 1, 10_000_000).optional(
        "no limit",
        "Largest number of requests in flight, tunnels after an upgrade included; further ones are answered 429. For \
         all data-plane threads together.",
    ),
    Limit::IPV4_PREFIX,
    Limit::IPV6_PREFIX,
    Limit::KEYS,
    Limit::SHARED,
}

static COUNTED_BY: TypedForm<CountedBy> =
    TypedForm::some("a way to count", "\"source\", \"front-door\" or \"header:NAME\"", |text| {
        text != "route" && reads_as::<CountedBy>(text)
    });

static COUNTED_BY_IN_ROUTE: TypedForm<CountedBy> =
    TypedForm::some("a way to count", "\"source\", \"route\" or \"header:NAME\"", |text| {
        text != "front-door" && reads_as::<CountedBy>(text)
    });

static RATE: TypedForm<RateText> = TypedForm::new(
    "a rate",
    "a number of 1 to 1000000000 in a second, minute or hour, such as \"100/s\", \"600/m\" or \"50/h\"",
);

pub(super) static BANDWIDTH: TypedForm<Bandwidth> =
    TypedForm::new("a bandwidth", "a size in a second, 1KB/s to 1TB/s, such as \"10MB/s\"");
