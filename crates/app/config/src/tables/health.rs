//! Options of active and passive health checks, and the types of active checks.

use std::time::Duration;

use equipoise_session::config::checks::{CheckMethod, GrpcCheck, HttpCheck, TcpCheck};
use equipoise_session::config::{HealthCheck, Upstream};

use super::forms::{BODY_TEXT, GRPC_SERVICE, HOST, HTTP_PATH, STATUS, STATUSES};
use super::{DAY, HOUR, ms, secs};
use crate::key::{
    Any, Count, Each, Key, OneOf, Parsed, Text, choice, count, duration, each, flag, options,
    parsed, share, text,
};
use crate::option::{Choice, Choices};
use crate::text::{StatusRange, StatusRanges};
use crate::view::View;

options! {
    Health: "[pool.health]",
    "Active health checks of each backend. Set one of `tcp`, `http` and `grpc`.";

    TCP: Option<bool> = flag("tcp").optional(
        "`http` or `grpc` states the check",
        "A check passes when a TCP connection opens, and with `tls` of the pool when its handshake succeeds.",
    ),
    HTTP: Option<Text> = text("http", &HTTP_PATH).optional(
        "`tcp` or `grpc` states the check",
        "A check passes when a request for this path is answered with a good status. It is sent over HTTP/2 if the \
         pool's `upstream` is \"http2\".",
    ),
    GRPC: Option<Text> = text("grpc", &GRPC_SERVICE).optional(
        "`tcp` or `http` states the check",
        "A check passes when the health service of gRPC (grpc.health.v1) says that this service serves; \"\" asks for \
         the whole server. It is sent over HTTP/2.",
    ),
    PORT: Option<Count<u16>> = count("port", 1, 65535).optional(
        "the backend's own port",
        "The port of the check, at the backend's address. Not with unix sockets.",
    ),
    METHOD: OneOf<CheckMethod> = choice("method").default(
        &CheckMethod::Get,
        "The method of an `http` check.",
    ),
    HOST: Option<Text> = text("host", &HOST).optional(
        "the address of the check",
        "`Host` of an `http` check.",
    ),
    STATUS: Parsed<StatusRanges> = parsed("status", &STATUSES).default(
        "200-299",
        "The good statuses of an `http` check.",
    ),
    BODY: Option<Text> = text("body", &BODY_TEXT).optional(
        "any body is good",
        "A text that the first 32 KB of the response's body of an `http` check must contain. Upper and lower case differ.",
    ),
    INTERVAL: Duration = duration("interval", ms(100), HOUR).default(
        secs(2),
        "Time between checks of one backend, varied by up to a tenth.",
    ),
    TIMEOUT: Duration = duration("timeout", ms(10), secs(600)).default(
        secs(1),
        "Longest time of one check.",
    ),
    RISE: Count<u32> = count("rise", 1, 100).default(
        2,
        "Passed checks in a row that make a backend healthy.",
    ),
    FALL: Count<u32> = count("fall", 1, 100).default(
        3,
        "Failed checks in a row that make a backend unhealthy.",
    ),
    CLOSE_CONNECTIONS: bool = flag("close-connections").default(
        false,
        "Close the connections of a backend that becomes unhealthy; requests without a response fail with 502. \
         Without it they go on, and end by the time-outs. Not while a pool of [[dispatch]] uses unhealthy backends \
         because no other is left.",
    ),
}

/// A type of active checks.
#[derive(Clone, Copy)]
pub(crate) struct CheckType {
    /// The option that states it.
    pub(crate) option: Key<Health, Any>,
    /// The option with a value, for messages.
    pub(crate) example: &'static str,
    /// Options of this type alone.
    pub(crate) own: &'static [Key<Health, Any>],
    /// Reads the check of a pool with this `upstream`; `None`: the file does not state the type.
    pub(crate) read: fn(View<'_, Health>, Upstream) -> Option<HealthCheck>,
    /// End of the error if an earlier type is stated, too.
    pub(crate) note: &'static str,
}

/// The types of active checks. If two are stated, the error is at the later one.
pub(crate) const CHECK_TYPES: &[CheckType] = &[
    CheckType {
        option: Health::HTTP.any(),
        example: "http = \"/PATH\"",
        own: &[Health::METHOD.any(), Health::HOST.any(), Health::STATUS.any(), Health::BODY.any()],
        read: |health, upstream| {
            let path = health.get(Health::HTTP)?;
            let StatusRanges(statuses) = health.get(Health::STATUS);
            Some(HealthCheck::Http(HttpCheck {
                http2: upstream == Upstream::Http2,
                method: health.get(Health::METHOD),
                path: path.into(),
                host: health.get(Health::HOST).map(Into::into),
                statuses: statuses.into(),
                body: health.get(Health::BODY).map(Into::into),
            }))
        },
        note: "",
    },
    CheckType {
        option: Health::TCP.any(),
        example: "tcp = true",
        own: &[],
        // `tcp = false` means the same as leaving `tcp` out.
        read: |health, _| {
            (health.get(Health::TCP) == Some(true)).then_some(HealthCheck::Tcp(TcpCheck))
        },
        note: " (http opens a connection too)",
    },
    CheckType {
        option: Health::GRPC.any(),
        example: "grpc = \"SERVICE\"",
        own: &[],
        read: |health, _| {
            let service = health.get(Health::GRPC)?;
            Some(HealthCheck::Grpc(GrpcCheck { service: service.into() }))
        },
        note: "",
    },
];

options! {
    Passive: "[pool.passive]", "Ejection of backends at which requests fail.";

    FAILURES: Count<u32> = count("failures", 0, 1000).default(
        5,
        "Failures in a row that eject a backend: no connection, a reset, no response in time, a response that is \
         not HTTP, or a status of `statuses`. 0: never.",
    ),
    STATUSES: Each<StatusRange> = each("statuses", &STATUS).default(
        &[],
        "The statuses that count as failures, such as [\"502-504\"]. An active check that passes ends an ejection that they caused.",
    ).http_only(),
    EJECTION: Duration = duration("ejection", ms(100), DAY).default(
        secs(10),
        "Duration of the first ejection; each further one lasts twice as long.",
    ),
    EJECTION_MAX: Duration = duration("ejection-max", ms(100), DAY).default(
        secs(300),
        "The longest ejection.",
    ),
    PANIC_THRESHOLD: f64 = share("panic-threshold").default(
        0.5,
        "Smallest share of the pool's backends that ejection leaves.",
    ),
}

/// `[pool.health] method`.
impl Choice for CheckMethod {
    const CHOICES: &'static Choices<CheckMethod> = &Choices(&[
        ("GET", CheckMethod::Get, "the body is read, up to 32 KB"),
        ("HEAD", CheckMethod::Head, "the response has no body"),
        ("OPTIONS", CheckMethod::Options, "like `option httpchk` of HAProxy"),
        ("POST", CheckMethod::Post, "with an empty body"),
    ]);
}
