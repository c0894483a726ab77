//! Options of pools and their backends.

use std::time::Duration;

use equipoise_core::{BackendAddress, SchedulerKind, Weight};
use equipoise_session::config::{Concurrency, ProxyProtocol, Upstream};

use super::affinity::{HASHED_BY, Sticky};
use super::concurrency::{LIMIT_MAX, Queue};
use super::discover::Discover;
use super::forms::{BACKEND_ADDRESS, LABEL, NAME};
use super::health::{Health, Passive};
use super::planning::{Elastic, WeightsBy};
use super::route::RETRY_FAILURE;
use super::tls::PoolTls;
use super::{DAY, HOUR, ms, secs};
use crate::key::{
    Briefs, Count, CountOr, Each, In, OneOf, Parsed, Text, Texts, briefs, choice, count, count_or,
    duration, each, flag, options, parsed, share, table, text, texts,
};
use crate::option::{Choice, Choices, TypedForm};
use crate::text::{HashedBy, HedgeDelay, RetryFailure};

options! {
    Pool: "[[pool]]",
    "Backends that serve the same requests, and the way in which load is spread over them. One table for each \
     pool.";

    NAME: Option<Text> = text("name", &NAME).required(
        "Name for front doors and operators. Unique.",
    ),
    SCHEDULER: OneOf<SchedulerKind> = choice("scheduler").default(
        &SchedulerKind::LeastConnection,
        "The method that picks a backend.",
    ),
    HASH_BY: Parsed<HashedBy> = parsed("hash-by", &HASHED_BY).default(
        "source",
        "Scheduler source-hash: the part of requests that is hashed, so that requests with the same value go to the same \
         backend: the client's address (\"source\"), a header (\"header:NAME\"), a cookie of the application \
         (\"cookie:NAME\") or a parameter of the query (\"query:NAME\"). Without it, the client's address.",
    ).http_only(),
    STICKY: Option<In<Sticky>> = table("sticky").unless(
        "the scheduler picks for each request",
    ).http_only(),
    BACKENDS: Briefs<Backend> = briefs("backends", Backend::ADDRESS).default(
        "The real servers. A string is short for a table with only that `address`.",
    ),
    CONCURRENCY: Option<CountOr<Concurrency>> = count_or("concurrency", 1, LIMIT_MAX).optional(
        "\"learnt\" where http front doors alone use the pool, else \"none\"",
        "Largest number of requests (http), connections (tcp) or client addresses (udp) at each backend, over all \
         data-plane threads. \"learnt\" is not for udp. Further requests wait in the pool's `queue`; udp: datagrams of new \
         clients are dropped. A request counts while it waits for the backend: a tunnel (101) does not count, nor a \
         response that its client reads slowly, nor a body that its client sends slowly.",
    ),
    QUEUE: In<Queue> = table("queue").default(),
    WEIGHTS: OneOf<WeightsBy> = choice("weights").default(
        &WeightsBy::Configured,
        "The source of the backends' weights.",
    ),
    ELASTIC: Option<In<Elastic>> = table("elastic").unless("the pool has the listed backends"),
    DISCOVER: Option<In<Discover>> = table("discover").unless("the pool has the listed backends"),
    UPSTREAM: OneOf<Upstream> = choice("upstream").default(
        &Upstream::Exclusive,
        "How requests share the open sessions to the backends.",
    ).http_only(),
    MULTIPLEX_SESSIONS: Count<usize> = count("multiplex-sessions", 1, 1024).default(
        4,
        "Multiplexed: sessions to each backend from each data-plane thread.",
    ).http_only(),
    MULTIPLEX_DEPTH: Count<usize> = count("multiplex-depth", 1, 1024).default(
        32,
        "Multiplexed: largest number of requests in flight on one session.",
    ).http_only(),
    MULTIPLEX_SLOW: Duration = duration("multiplex-slow", ms(25), secs(60)).default(
        ms(50),
        "Multiplexed: after this time at the latest a slow response keeps its session for itself, and the requests \
         behind it are sent again over other sessions.",
    ).http_only(),
    STREAMS_MAX: Count<usize> = count("streams-max", 1, 10_000).default(
        100,
        "HTTP/2: largest number of requests in flight on one connection; when all connections of a data-plane \
         thread have so many, it opens a further one.",
    ).http_only(),
    CONNECT_TIMEOUT: Duration = duration("connect-timeout", ms(10), secs(600)).default(
        secs(5),
        "Longest time to open a session to a backend. After it, another backend is tried; if none is left to try, \
         the answer is 504.",
    ),
    RESPONSE_TIMEOUT: Duration = duration("response-timeout", ms(10), DAY).default(
        secs(60),
        "Longest time from the last byte of the request to the first of the response; after it, the answer is 504.",
    ).http_only(),
    SESSION_IDLE_TIMEOUT: Duration = duration("session-idle-timeout", ms(100), DAY).default(
        secs(30),
        "An open session that is unused for this long is closed. Set it below the backend's own keep-alive time.",
    ).http_only(),
    IDLE_SESSIONS_MAX: Count<usize> = count("idle-sessions-max", 0, 65_536).default(
        256,
        "Largest number of unused open sessions to each backend from each data-plane thread.",
    ).http_only(),
    RETRIES: Count<u32> = count("retries", 0, 10).default(
        1,
        "Largest number of attempts on another backend after a failure. An attempt is made only if nothing of the response \
         was sent, and if the request is idempotent or was not sent.",
    ),
    RETRY_ON: Each<RetryFailure> = each("retry-on", &RETRY_FAILURE).default(
        &["connect", "reset"],
        "The failures after which a request is tried again: \"connect\", no connection was made; \"reset\", the connection \
         ended before a response; statuses, such as \"502-504\", of idempotent requests with their whole body; \
         \"grpc-unavailable\" and other statuses of gRPC, of calls whose answer has trailers alone. Requests with \
         statuses to retry share no multiplexed session.",
    ).http_only(),
    RETRY_BUDGET: f64 = share("retry-budget").default(
        0.1,
        "Share of the pool's requests of about the last 10 s that may be retried or hedged, in addition to 10 per second. \
         Beyond it, a failed request is answered with 503 (tcp: reset). 1.0: no limit.",
    ),
    HEDGE: Option<Parsed<HedgeDelay>> = parsed("hedge", &HEDGE_DELAY).optional(
        "a request is sent to one backend",
        "Time without a response after which an idempotent request is sent to a second backend, too: a time, or \"p95\" \
         for the time in which 95 % of the pool's recent responses have begun. The response that begins first is sent on.",
    ).http_only(),
    SEND_PROXY: Option<OneOf<ProxyProtocol>> = choice("send-proxy").optional(
        "none is sent",
        "PROXY protocol header at the start of each session to a backend, and of checks unless they have a `port`. \
         Behind http front doors a session then is for one client connection, in addition to the address in headers.",
    ),
    RETRY_AFTER: Duration = duration("retry-after", secs(1), DAY).default(
        secs(5),
        "`Retry-After` of the 503 if no backend can accept a request.",
    ).http_only(),
    TLS: Option<In<PoolTls>> = table("tls").unless("backends do not use TLS"),
    HEALTH: Option<In<Health>> = table("health").unless(
        "a backend is healthy unless traffic fails",
    ),
    PASSIVE: In<Passive> = table("passive").default(),
    SLOW_START: Option<Duration> = duration("slow-start", secs(1), HOUR).optional(
        "its full weight at once",
        "Time in which the weight of a backend that returns increases to its full value.",
    ),
}

options! {
    Backend: "[[pool.backends]]", "One backend.";

    ADDRESS: Option<Parsed<BackendAddress>> = parsed("address", &BACKEND_ADDRESS).required(
        "The backend's address. A host name stands for all its addresses: connections go to the first that accepts \
         them. A unix socket is for tcp and http front doors.",
    ),
    WEIGHT: Count<u16> = count("weight", 0, Weight::MAX as u64).default(
        1,
        "Its share relative to the others, for schedulers that use weights. 0: it gets no new work.",
    ),
    BACKUP: bool = flag("backup").default(
        false,
        "It gets new work only while no backend without this option serves. Several backups share the work.",
    ),
    CONCURRENCY: Option<CountOr<Concurrency>> = count_or("concurrency", 1, LIMIT_MAX).optional(
        "the pool's",
        "Like `concurrency` of the pool, for this backend.",
    ),
    NAME: Option<Text> = text("name", &NAME).optional(
        "`address`",
        "Name for operators. Unique in its pool.",
    ),
    NODE: Option<Text> = text("node", &NAME).optional(
        "the node or agent that reports the address, if there is one",
        "The node or agent that reports the load of the backend's machine.",
    ),
    LABELS: Option<Texts> = texts("labels", &LABEL).optional(
        "it has none",
        "Labels by which `labels` of `[[dns.names]]` selects it. Each key once.",
    ),
}

/// `[[pool]] scheduler`.
impl Choice for SchedulerKind {
    const CHOICES: &'static Choices<SchedulerKind> = &Choices(&SchedulerKind::CHOICES);
}

/// `[[pool]] upstream`.
impl Choice for Upstream {
    const CHOICES: &'static Choices<Upstream> = &Choices(&[
        ("exclusive", Upstream::Exclusive, "one request at a time on a session"),
        (
            "multiplexed",
            Upstream::Multiplexed,
            "idempotent requests of many clients pipelined over few sessions",
        ),
        (
            "http2",
            Upstream::Http2,
            "requests of many clients as streams of few HTTP/2 connections; without `tls` the backends have to know it (prior knowledge)",
        ),
        (
            "auto",
            Upstream::Auto,
            "as \"http2\" at backends that choose HTTP/2 by ALPN, else as \"exclusive\"; needs `tls`",
        ),
    ]);
}

/// `[[pool]] send-proxy`.
impl Choice for ProxyProtocol {
    const CHOICES: &'static Choices<ProxyProtocol> = &Choices(&[
        ("v1", ProxyProtocol::V1, "the text form"),
        ("v2", ProxyProtocol::V2, "the binary form"),
    ]);
}

static HEDGE_DELAY: TypedForm<HedgeDelay> = TypedForm::new(
    "a delay of hedged requests",
    "a time of 1ms or more, such as \"50ms\", or p50 to p99.9, such as \"p95\"",
);
