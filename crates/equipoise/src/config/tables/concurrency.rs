//! Concurrency limits of backends, and the queue of requests that exceed them.

use equipoise_session::config::Concurrency;

use super::super::option::{Choices, Kind, Opt, Table};
use super::{ms, secs};

/// Largest concurrency limit.
const LIMIT_MAX: u64 = 1_000_000;

/// Words of `concurrency`.
pub(in super::super) static CONCURRENCY: Choices<Concurrency> = Choices(&[
    (
        "learnt",
        Concurrency::Learnt,
        "the number at which the backend does the most, learned from what passes",
    ),
    ("none", Concurrency::None, "as many as there are; none waits"),
]);

pub(super) const OF_POOL: Opt = Opt::optional(
    "concurrency",
    Kind::CountOr(1, LIMIT_MAX, &CONCURRENCY),
    "\"learnt\" where http front doors alone use the pool, else \"none\"",
    "Requests (http), connections (tcp) or client addresses (udp) that each backend is given at once, over all data-plane threads. \"learnt\" is not for udp. What exceeds it waits in the pool's `queue`; udp: datagrams of new clients are dropped. A request counts while the backend is what it waits for: a tunnel (101) does not count, nor a response that its client reads slowly, nor a body that its client sends slowly.",
);

pub(super) const OF_BACKEND: Opt = Opt::optional(
    "concurrency",
    Kind::CountOr(1, LIMIT_MAX, &CONCURRENCY),
    "the pool's",
    "As `concurrency` of the pool, for this backend.",
);

pub(super) static QUEUE: Table = Table {
    title: "[pool.queue]",
    help: "How requests (http) and connections (tcp) wait while every backend of the pool is at its `concurrency`. Higher `priority` first, then (in node mode) lighter classes, then first come first served; the newest first once the oldest has waited for half of `wait`.",
    options: &[
        Opt::default(
            "wait",
            Kind::Duration(ms(10), secs(600)),
            "\"1s\"",
            "How long a request waits, over all its tries; then it is answered 503 (tcp: reset).",
        ),
        Opt::default(
            "length",
            Kind::Count(0, LIMIT_MAX),
            "1000",
            "Requests that wait at once, at most. Beyond it the one that would be served last is answered 503 at once (tcp: reset).",
        ),
    ],
};
