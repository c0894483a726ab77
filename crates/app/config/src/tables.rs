//! Every option of the configuration file: name, type, bounds, default, help.
//!
//! The reader, the JSON Schema and docs/reference.md are derived from these tables. To add an
//! option, add it to its table here, and read its key. The tests then name what is missing.

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
mod pool;
mod route;
mod session;
mod slice;
mod tls;

use std::time::Duration;

use equipoise_core::LineForm;

use super::{LogFormat, LogLevel};
use crate::key::{
    Count, In, List, OneOf, Options, Parsed, Size, Text, Texts, choice, count, duration, options,
    parsed, share, size, table, tables, text, texts,
};
use crate::option::{Choice, Choices};
use crate::text::AccessLog;

pub(super) use acme::Acme;
pub(super) use affinity::Sticky;
pub(super) use api::{Api, ApiClient, ApiToken};
pub(super) use cluster::{Cluster, Store};
pub(super) use concurrency::Queue;
pub(super) use discover::{
    ConsulSource, Discover, DnsSource, EtcdSource, FileSource, HttpSource, HttpTrust,
    KubernetesSource, RecordType,
};
pub(super) use dispatch::{Dispatch, DispatchClass, DispatchTls, Peer, PeerTlsMode};
pub(super) use dns::{Dns, DnsName, DnsNode, DnsServer, Nameserver, Shares};
pub(super) use door::{Door, Hsts};
pub(super) use driver::{Exec, Process, Webhook};
pub(super) use etcd::Etcd;
pub(super) use forms::NAME;
pub(super) use health::{CHECK_TYPES, CheckType, Health, Passive};
pub(super) use limits::{DoorLimit, Limit, RouteLimit};
pub(super) use packet::{Flows, Packet, Quic};
pub(super) use planning::{
    Controller, Declared, Elastic, ElasticSize, Link, Load, PlanMode, Schedule, WeightsBy,
};
pub(super) use pool::{Backend, Pool};
pub(super) use route::{
    HeaderEdits, Route, RouteAnswer, RouteMirror, RoutePool, RouteRedirect, RouteRewrite,
};
pub(super) use session::Session;
pub use slice::Multicast;
pub(super) use slice::{Balancing, Checkpoint, Slice, Workers};
#[cfg(feature = "slice")]
pub(super) use slice::{MORE, TOPIC, TYPE};
pub(super) use tls::{ApiTls, Certificate, DoorTls, ListenerTls, PoolTls, Sni, TlsClients};

use dispatch::PEM_FILE;
use forms::{ACCESS_LOG, COLLECTOR, LOG_FIELD};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}
const HOUR: Duration = secs(3_600);
const DAY: Duration = secs(86_400);

options! {
    File: "", "";

    INSTANCE: In<Instance> = table("instance").default(),
    API: In<Api> = table("api").default(),
    LOG: In<Log> = table("log").default(),
    TRACING: Option<In<Tracing>> = table("tracing").unless("no request is traced"),
    SHUTDOWN: In<Shutdown> = table("shutdown").default(),
    LOAD: In<Load> = table("load").default(),
    CONTROLLER: In<Controller> = table("controller").default(),
    CLUSTER: Option<In<Cluster>> = table("cluster").unless("this machine is alone"),
    ACME: In<Acme> = table("acme").default(),
    POOL: List<Pool> = tables("pool").default(Pool::TABLE.help),
    SESSION: List<Session> = tables("session").default(Session::TABLE.help),
    DISPATCH: List<Dispatch> = tables("dispatch").default(Dispatch::TABLE.help),
    PACKET: List<Packet> = tables("packet").default(Packet::TABLE.help),
    FLOWS: In<Flows> = table("flows").default(),
    DNS: List<Dns> = tables("dns").default(Dns::TABLE.help),
    NAMESERVER: In<Nameserver> = table("nameserver").default(),
    SLICE: List<Slice> = tables("slice").default(Slice::TABLE.help),
}

options! {
    Instance: "[instance]", "This process.";

    NAME: Option<Text> = text("name", &NAME).optional(
        "the host name",
        "The name of this process in `Via` headers and logs.",
    ),
    THREADS: Count<usize> = count("threads", 0, 1024).default(
        0,
        "Data-plane threads. 0: one for each core.",
    ),
    MEMORY_MAX: Option<Size<u64>> = size("memory-max", 16 << 20, 1 << 50).optional(
        "three quarters of the memory of the machine, or of the limit of its control group",
        "Bytes that this process may have allocated. Beyond it, requests are answered 503 (`memory_short`), new \
         connections wait, and a response of which its client hardly takes anything for 5 s is cut.",
    ),
}

options! {
    Log: "[log]", "The events that are logged, and their destination.";

    LEVEL: OneOf<LogLevel> = choice("level").default(
        &LogLevel::Info,
        "The least severe events that are logged.",
    ),
    FORMAT: OneOf<LogFormat> = choice("format").default(
        &LogFormat::Text,
        "Format of events on standard error.",
    ),
    ACCESS_LOG: Parsed<AccessLog> = parsed("access-log", &ACCESS_LOG).default(
        "stderr",
        "Destination of the access log. `access-log` of each front door sets the share of requests that are \
         logged.",
    ),
    ACCESS_FORMAT: Option<OneOf<LineForm>> = choice("access-format").optional(
        "`format`",
        "Format of the access log.",
    ),
    ACCESS_FIELDS: Option<Texts> = texts("access-fields", &LOG_FIELD).optional(
        "all but `protocol`, `route`, `referer` and `trace_id`",
        "Fields of the access log, as docs/operations/logs.md names them. A line has those that its kind has, in \
         the order of that page.",
    ),
}

options! {
    Tracing: "[tracing]",
    "Spans of HTTP requests, for an OpenTelemetry collector: one for the request, and one for each attempt at a \
     backend.";

    OTLP: Option<Text> = text("otlp", &COLLECTOR).required(
        "URL of the collector, which gets OTLP over HTTP in JSON. `/v1/traces` is added to it.",
    ),
    CA: Option<Text> = text("ca", &PEM_FILE).optional(
        "the authorities of the system",
        "A file in PEM with the authorities of the collector's certificate, for https.",
    ),
    SAMPLE: f64 = share("sample").default(
        0.01,
        "Share of requests that are traced. For requests with `traceparent` from `trusted` senders, its flag decides.",
    ),
    SERVICE: Text = text("service", &NAME).default("equipoise", "`service.name` of the spans."),
}

options! {
    Shutdown: "[shutdown]", "How this process stops.";

    DELAY: Duration = duration("delay", secs(0), DAY).default(
        secs(0),
        "From a signal to stop, new work is accepted for this long, while `equipoise ready` fails: \
         time for routers to send it to other machines. A second signal ends the delay.",
    ),
    GRACE: Duration = duration("grace", secs(0), DAY).default(
        secs(30),
        "Work in flight may take this long to finish; then it is aborted.",
    ),
    UPGRADE_GRACE: Duration = duration("upgrade-grace", secs(0), DAY).default(
        HOUR,
        "A process that an upgrade has replaced serves its connections for at most this long; then they are \
         aborted.",
    ),
}

/// `[log] level`.
impl Choice for LogLevel {
    const CHOICES: &'static Choices<LogLevel> = &Choices(&[
        ("error", LogLevel::Error, "failures"),
        ("warn", LogLevel::Warn, "problems that need attention"),
        ("info", LogLevel::Info, "changes of state"),
        ("debug", LogLevel::Debug, "causes of the changes"),
        ("trace", LogLevel::Trace, "everything"),
    ]);
}

/// `[log] format`.
impl Choice for LogFormat {
    const CHOICES: &'static Choices<LogFormat> = &Choices(&[
        ("text", LogFormat::Text, "a line of text"),
        ("json", LogFormat::Json, "a JSON object on a line"),
    ]);
}

/// `[log] access-format`.
impl Choice for LineForm {
    const CHOICES: &'static Choices<LineForm> = &Choices(&[
        ("text", LineForm::Text, "`key=value` pairs"),
        ("json", LineForm::Json, "a JSON object on a line"),
        (
            "combined",
            LineForm::Combined,
            "the combined format of nginx and Apache; for HTTP requests only, without fields of choice",
        ),
    ]);
}
