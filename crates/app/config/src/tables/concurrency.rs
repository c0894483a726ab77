//! Concurrency limits of backends, and the queue of requests that exceed them.

use equipoise_session::config::Concurrency;

use super::super::option::{Choices, Kind, Opt, Table};
use super::{ms, secs};

/// Largest concurrency limit.
const LIMIT_MAX: u64 = 1_000_000;

/// Words of `concurrency`.
pub(crate) static CONCURRENCY: Choices<Concurrency> = Choices(&[
    (
        "learnt",
        Concurrency::Learnt,
        "the number at which the backend serves most, learned from the traffic",
    ),
    ("none", Concurrency::None, "no limit; no request waits"),
]);

pub(super) const OF_POOL: Opt = Opt::optional(
    "concurrency",
    Kind::CountOr(1, LIMIT_MAX, &CONCURRENCY),
    "\"learnt\" where http front doors alone use the pool, else \"none\"",
    "Largest number of requests (http), connections (tcp) or client addresses (udp) at each backend, over all \
     data-plane threads. \"learnt\" is not for udp. Further requests wait in the pool's `queue`; udp: datagrams of new \
     clients are dropped. A request counts while it waits for the backend: a tunnel (101) does not count, nor a \
     response that its client reads slowly, nor a body that its client sends slowly.",
);

pub(super) const OF_BACKEND: Opt = Opt::optional(
    "concurrency",
    Kind::CountOr(1, LIMIT_MAX, &CONCURRENCY),
    "the pool's",
    "Like `concurrency` of the pool, for this backend.",
);

pub(super) static QUEUE: Table = Table {
    title: "[pool.queue]",
    help: "How requests (http) and connections (tcp) wait while every backend of the pool is at its `concurrency`. \
           Higher `priority` first, then (in node mode) lighter classes, then the earliest deadline, which is the \
           oldest if none has less time of its own; the newest first once the oldest has waited for half of `wait`.",
    options: &[
        Opt::default(
            "wait",
            Kind::Duration(ms(10), secs(600)),
            "\"1s\"",
            "Longest wait of a request, over all its attempts; after it, the answer is 503 (tcp: reset).",
        ),
        Opt::default(
            "length",
            Kind::Count(0, LIMIT_MAX),
            "1000",
            "Largest number of waiting requests. Beyond it, the one that would be served last is answered with 503 at \
             once (tcp: reset).",
        ),
    ],
};
