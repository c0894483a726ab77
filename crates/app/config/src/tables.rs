//! Every option of the configuration file: name, type, bounds, default, help.
//!
//! The reader, the JSON Schema and docs/reference.md are derived from these tables. To add an
//! option, add its line here and read its value in `build`. The tests then name what is missing.

mod acme;
mod affinity;
mod api;
mod cluster;
mod concurrency;
mod discover;
mod dispatch;
mod dns;
mod door;
mod driver;
mod etcd;
mod forms;
mod health;
mod limits;
mod packet;
mod planning;
mod retries;
mod route;
mod slice;
mod tls;

use std::time::Duration;

use equipoise_core::{LineForm, SchedulerKind, Weight};
use equipoise_session::config::{CheckMethod, Protocol, ProxyProtocol, Underscores, Upstream};

use super::option::{Choices, Kind, Opt, Table};
use super::{LogFormat, LogLevel};

use acme::ACME;
pub(super) use affinity::SAME_SITE;
use api::API;
pub(super) use api::API_ROLE;
use cluster::CLUSTER;
pub(super) use concurrency::CONCURRENCY;
use concurrency::QUEUE;
use discover::DISCOVER;
pub(super) use discover::{RECORDS, RecordType};
pub(super) use dispatch::{CLASS as REQUEST_CLASS, PEER_TLS, PeerTlsMode};
use dispatch::{DISPATCH, PEM_FILE};
use dns::{DNS, NAMESERVER};
pub(super) use dns::{MODE as DNS_MODE, SHARES};
pub(super) use forms::NAME;
use forms::{
    ACCESS_LOG, BACKEND_ADDRESS, COLLECTOR, HOST, LABEL, LISTEN, LISTEN_AT, LOG_FIELD,
    REMOTE_ADDRESS,
};
use health::{HEALTH, PASSIVE};
pub(super) use packet::{FLOW_KEY, FORWARD, PACKET_SCHEDULER, WHEN_DOWN};
use packet::{FLOWS, PACKET};
use planning::{CONTROLLER, ELASTIC, FOLDER, LOAD};
pub(super) use planning::{DECLARED, MODE, WEIGHTS};
pub(super) use route::SECURITY_HEADERS;
pub use slice::Multicast;
use slice::SLICE;
#[cfg(feature = "slice")]
pub(super) use slice::{MORE, TOPIC, TYPE};
pub(super) use slice::{MULTICAST, ORDER as SLICE_ORDER};
pub(super) use tls::PROFILE;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}
const HOUR: Duration = secs(3_600);
const DAY: Duration = secs(86_400);

/// The whole file.
pub(super) static FILE: Table = Table {
    title: "",
    help: "",
    options: &[
        Opt::default("instance", Kind::Table(&INSTANCE), "{}", INSTANCE.help),
        Opt::default("api", Kind::Table(&API), "{}", API.help),
        Opt::default("log", Kind::Table(&LOG), "{}", LOG.help),
        Opt::optional("tracing", Kind::Table(&TRACING), "no request is traced", TRACING.help),
        Opt::default("shutdown", Kind::Table(&SHUTDOWN), "{}", SHUTDOWN.help),
        Opt::default("load", Kind::Table(&LOAD), "{}", LOAD.help),
        Opt::default("controller", Kind::Table(&CONTROLLER), "{}", CONTROLLER.help),
        Opt::optional("cluster", Kind::Table(&CLUSTER), "this machine is alone", CLUSTER.help),
        Opt::default("acme", Kind::Table(&ACME), "{}", ACME.help),
        Opt::default("pool", Kind::Tables(&POOL), "[]", POOL.help),
        Opt::default("session", Kind::Tables(&SESSION), "[]", SESSION.help),
        Opt::default("dispatch", Kind::Tables(&DISPATCH), "[]", DISPATCH.help),
        Opt::default("packet", Kind::Tables(&PACKET), "[]", PACKET.help),
        Opt::default("flows", Kind::Table(&FLOWS), "{}", FLOWS.help),
        Opt::default("dns", Kind::Tables(&DNS), "[]", DNS.help),
        Opt::default("nameserver", Kind::Table(&NAMESERVER), "{}", NAMESERVER.help),
        Opt::default("slice", Kind::Tables(&SLICE), "[]", SLICE.help),
    ],
};

static INSTANCE: Table = Table {
    title: "[instance]",
    help: "This process.",
    options: &[
        Opt::optional(
            "name",
            Kind::Text(&NAME),
            "the host name",
            "The name of this process in `Via` headers and logs.",
        ),
        Opt::default(
            "threads",
            Kind::Count(0, 1024),
            "0",
            "Data-plane threads. 0: one for each core.",
        ),
    ],
};

static LOG: Table = Table {
    title: "[log]",
    help: "The events that are logged, and their destination.",
    options: &[
        Opt::default(
            "level",
            Kind::Choice(&LOG_LEVEL),
            "\"info\"",
            "The least severe events that are logged.",
        ),
        Opt::default(
            "format",
            Kind::Choice(&LOG_FORMAT),
            "\"text\"",
            "Format of events on standard error.",
        ),
        Opt::default(
            "access-log",
            Kind::Text(&ACCESS_LOG),
            "\"stderr\"",
            "Destination of the access log. `access-log` of each front door sets the share of requests that are \
             logged.",
        ),
        Opt::optional(
            "access-format",
            Kind::Choice(&ACCESS_FORMAT),
            "`format`",
            "Format of the access log.",
        ),
        Opt::optional(
            "access-fields",
            Kind::Texts(&LOG_FIELD),
            "all but `protocol`, `route`, `referer` and `trace_id`",
            "Fields of the access log, as docs/operations/logs.md names them. A line has those that its kind has, in \
             the order of that page.",
        ),
    ],
};

static TRACING: Table = Table {
    title: "[tracing]",
    help: "Spans of HTTP requests, for an OpenTelemetry collector: one for the request, and one for each attempt at a \
           backend.",
    options: &[
        Opt::required(
            "otlp",
            Kind::Text(&COLLECTOR),
            "URL of the collector, which gets OTLP over HTTP in JSON. `/v1/traces` is added to it.",
        ),
        Opt::optional(
            "ca",
            Kind::Text(&PEM_FILE),
            "the authorities of the system",
            "A file in PEM with the authorities of the collector's certificate, for https.",
        ),
        Opt::default(
            "sample",
            Kind::Share,
            "0.01",
            "Share of requests that are traced. For requests with `traceparent` from `trusted` senders, its flag decides.",
        ),
        Opt::default("service", Kind::Text(&NAME), "\"equipoise\"", "`service.name` of the spans."),
    ],
};

static SHUTDOWN: Table = Table {
    title: "[shutdown]",
    help: "How this process stops.",
    options: &[
        Opt::default(
            "delay",
            Kind::Duration(secs(0), DAY),
            "\"0s\"",
            "From a signal to stop, new work is accepted for this long, while `equipoise ready` fails: \
             time for routers to send it to other machines. A second signal ends the delay.",
        ),
        Opt::default(
            "grace",
            Kind::Duration(secs(0), DAY),
            "\"30s\"",
            "Work in flight may take this long to finish; then it is aborted.",
        ),
        Opt::default(
            "upgrade-grace",
            Kind::Duration(secs(0), DAY),
            "\"1h\"",
            "A process that an upgrade has replaced serves its connections for at most this long; then they are \
             aborted.",
        ),
    ],
};

static POOL: Table = Table {
    title: "[[pool]]",
    help: "Backends that serve the same requests, and the way in which load is spread over them. One table for each \
           pool.",
    options: &[
        Opt::required("name", Kind::Text(&NAME), "Name for front doors and operators. Unique."),
        Opt::default("scheduler", Kind::Choice(&SCHEDULER), "\"least-connection\"", "The method that picks a backend."),
        affinity::HASH_BY,
        affinity::STICKY,
        Opt::default(
            "backends",
            Kind::Briefs(&BACKEND, "address"),
            "[]",
            "The real servers. A string is short for a table with only that `address`.",
        ),
        concurrency::OF_POOL,
        Opt::default("queue", Kind::Table(&QUEUE), "{}", QUEUE.help),
        Opt::default("weights", Kind::Choice(&WEIGHTS), "\"configured\"", "The source of the backends' weights."),
        Opt::optional("elastic", Kind::Table(&ELASTIC), "the pool has the listed backends", ELASTIC.help),
        Opt::optional(
            "discover",
            Kind::Table(&DISCOVER),
            "the pool has the listed backends",
            DISCOVER.help,
        ),
        Opt::default(
            "upstream",
            Kind::Choice(&UPSTREAM),
            "\"exclusive\"",
            "How requests share the open sessions to the backends.",
        )
        .http_only(),
        Opt::default(
            "multiplex-sessions",
            Kind::Count(1, 1024),
            "4",
            "Multiplexed: sessions to each backend from each data-plane thread.",
        )
        .http_only(),
        Opt::default(
            "multiplex-depth",
            Kind::Count(1, 1024),
            "32",
            "Multiplexed: largest number of requests in flight on one session.",
        )
        .http_only(),
        Opt::default(
            "multiplex-slow",
            Kind::Duration(ms(25), secs(60)),
            "\"50ms\"",
            "Multiplexed: after this time at the latest a slow response keeps its session for itself, and the requests \
             behind it are sent again over other sessions.",
        )
        .http_only(),
        Opt::default(
            "streams-max",
            Kind::Count(1, 10_000),
            "100",
            "HTTP/2: largest number of requests in flight on one connection; when all connections of a data-plane \
             thread have so many, it opens a further one.",
        )
        .http_only(),
        Opt::default(
            "connect-timeout",
            Kind::Duration(ms(10), secs(600)),
            "\"5s\"",
            "Longest time to open a session to a backend. After it, another backend is tried; if none is left to try, \
             the answer is 504.",
        ),
        Opt::default(
            "response-timeout",
            Kind::Duration(ms(10), DAY),
            "\"1m\"",
            "Longest time from the last byte of the request to the first of the response; after it, the answer is 504.",
        )
        .http_only(),
        Opt::default(
            "session-idle-timeout",
            Kind::Duration(ms(100), DAY),
            "\"30s\"",
            "An open session that is unused for this long is closed. Set it below the backend's own keep-alive time.",
        )
        .http_only(),
        Opt::default(
            "idle-sessions-max",
            Kind::Count(0, 65_536),
            "256",
            "Largest number of unused open sessions to each backend from each data-plane thread.",
        )
        .http_only(),
        retries::RETRIES,
        retries::RETRY_ON,
        retries::RETRY_BUDGET,
        retries::HEDGE,
        Opt::optional(
            "send-proxy",
            Kind::Choice(&PROXY_PROTOCOL),
            "none is sent",
            "PROXY protocol header at the start of each session to a backend, and of checks unless they have a `port`. \
             Behind http front doors a session then is for one client connection, in addition to the address in headers.",
        ),
        Opt::default(
            "retry-after",
            Kind::Duration(secs(1), DAY),
            "\"5s\"",
            "`Retry-After` of the 503 if no backend can accept a request.",
        )
        .http_only(),
        tls::OF_POOL,
        Opt::optional(
            "health",
            Kind::Table(&HEALTH),
            "a backend is healthy unless traffic fails",
            HEALTH.help,
        ),
        Opt::default("passive", Kind::Table(&PASSIVE), "{}", PASSIVE.help),
        Opt::optional(
            "slow-start",
            Kind::Duration(secs(1), HOUR),
            "its full weight at once",
            "Time in which the weight of a backend that returns increases to its full value.",
        ),
    ],
};

static BACKEND: Table = Table {
    title: "[[pool.backends]]",
    help: "One backend.",
    options: &[
        Opt::required(
            "address",
            Kind::Text(&BACKEND_ADDRESS),
            "The backend's address. A host name stands for all its addresses: connections go to the first that accepts \
             them. A unix socket is for tcp and http front doors.",
        ),
        Opt::default(
            "weight",
            Kind::Count(0, Weight::MAX as u64),
            "1",
            "Its share relative to the others, for schedulers that use weights. 0: it gets no new work.",
        ),
        Opt::default(
            "backup",
            Kind::Flag,
            "false",
            "It gets new work only while no backend without this option serves. Several backups share the work.",
        ),
        concurrency::OF_BACKEND,
        Opt::optional(
            "name",
            Kind::Text(&NAME),
            "`address`",
            "Name for operators. Unique in its pool.",
        ),
        Opt::optional(
            "node",
            Kind::Text(&NAME),
            "the node or agent that reports the address, if there is one",
            "The node or agent that reports the load of the backend's machine.",
        ),
        Opt::optional(
            "labels",
            Kind::Texts(&LABEL),
            "it has none",
            "Labels by which `labels` of `[[dns.names]]` selects it. Each key once.",
        ),
    ],
};

static SESSION: Table = Table {
    title: "[[session]]",
    help: "A front door of the session level: an address at which clients are served from a pool. One table for each.",
    options: &[
        Opt::optional(
            "name",
            Kind::Text(&NAME),
            "protocol and address: `http:0.0.0.0:80`",
            "Name in metrics and logs. Unique.",
        ),
        Opt::required(
            "listen",
            Kind::Texts(&LISTEN_AT),
            "Address on which it listens. With several addresses, each is a front door with the same options, called \
             NAME:ADDRESS. `*`: every address, IPv4 and IPv6; `[::]`: every IPv6 address. Port 0: any free port.",
        ),
        Opt::required("protocol", Kind::Choice(&PROTOCOL), "Protocol of its clients."),
        Opt::required("pool", Kind::Text(&NAME), "The `name` of the pool behind it."),
        tls::OF_DOOR,
        tls::SNI_OF_DOOR,
        route::OF_DOOR,
        door::REDIRECT,
        door::HSTS,
        route::SECURITY,
        door::HEAD_MAX,
        door::HEADERS_MAX,
        door::BODY_MAX,
        door::CONNECTIONS_MAX,
        door::PRIORITY,
        limits::ALLOW,
        limits::DENY,
        limits::LIMIT,
        limits::BANDWIDTH,
        door::HEADER_TIMEOUT,
        door::IDLE_TIMEOUT,
        door::REQUEST_TIMEOUT,
        route::TUNNEL_TIMEOUT,
        route::ERROR_PAGES,
        door::TRUSTED,
        door::FORWARDED,
        door::UNDERSCORES,
        door::UPGRADES,
        door::HTTP2,
        door::STREAMS_MAX,
        door::VIA,
        door::SERVER_TIMING,
        Opt::default(
            "accept-proxy",
            Kind::Flag,
            "false",
            "Require a PROXY protocol header (v1 or v2) at the start of every connection, and take the client's address from it. Connections from addresses outside `trusted` are reset.",
        ),
        Opt::optional(
            "responses",
            Kind::Count(0, 1_000_000),
            "a client is removed after `idle-timeout`",
            "udp: number of datagrams in a backend's answer to each datagram of a client. With the last of them the \
             client is removed, which frees its socket: 1 for DNS, 0 for a log collector.",
        ),
        door::ACCESS_LOG,
    ],
};

/// `[log] level`.
pub(super) static LOG_LEVEL: Choices<LogLevel> = Choices(&[
    ("error", LogLevel::Error, "failures"),
    ("warn", LogLevel::Warn, "problems that need attention"),
    ("info", LogLevel::Info, "changes of state"),
    ("debug", LogLevel::Debug, "causes of the changes"),
    ("trace", LogLevel::Trace, "everything"),
]);

/// `[log] format`.
pub(super) static LOG_FORMAT: Choices<LogFormat> = Choices(&[
    ("text", LogFormat::Text, "a line of text"),
    ("json", LogFormat::Json, "a JSON object on a line"),
]);

/// `[log] access-format`.
pub(super) static ACCESS_FORMAT: Choices<LineForm> = Choices(&[
    ("text", LineForm::Text, "`key=value` pairs"),
    ("json", LineForm::Json, "a JSON object on a line"),
    (
        "combined",
        LineForm::Combined,
        "the combined format of nginx and Apache; for HTTP requests only, without fields of choice",
    ),
]);

/// `[[pool]] scheduler`.
pub(super) static SCHEDULER: Choices<SchedulerKind> = Choices(&SchedulerKind::CHOICES);

/// `[[pool]] upstream`.
pub(super) static UPSTREAM: Choices<Upstream> = Choices(&[
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
]);

/// `[pool.health] method`.
pub(super) static CHECK_METHOD: Choices<CheckMethod> = Choices(&[
    ("GET", CheckMethod::Get, "the body is read, up to 32 KB"),
    ("HEAD", CheckMethod::Head, "the response has no body"),
    ("OPTIONS", CheckMethod::Options, "like `option httpchk` of HAProxy"),
    ("POST", CheckMethod::Post, "with an empty body"),
]);

/// `[[pool]] send-proxy`.
pub(super) static PROXY_PROTOCOL: Choices<ProxyProtocol> = Choices(&[
    ("v1", ProxyProtocol::V1, "the text form"),
    ("v2", ProxyProtocol::V2, "the binary form"),
]);

/// `[[session]] protocol`.
pub(super) static PROTOCOL: Choices<Protocol> = Choices(&[
    ("tcp", Protocol::Tcp, "bytes, connection by connection"),
    ("udp", Protocol::Udp, "datagrams, client address by client address"),
    ("http", Protocol::Http, "HTTP/1.0, HTTP/1.1 and, with `http2`, HTTP/2, request by request"),
]);

/// `[[session]] underscores`.
pub(super) static UNDERSCORES: Choices<Underscores> = Choices(&[
    ("drop", Underscores::Drop, "the header does not reach the backend"),
    ("keep", Underscores::Keep, "the header is sent like any other"),
    ("refuse", Underscores::Refuse, "the request is answered 400"),
]);
