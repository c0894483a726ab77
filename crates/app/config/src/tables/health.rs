//! Options of active and passive health checks.

use super::super::option::{Kind, Opt, Table};
use super::forms::{BODY_TEXT, GRPC_SERVICE, HOST, HTTP_PATH, STATUS, STATUSES};
use super::{CHECK_METHOD, DAY, HOUR, ms, secs};

pub(super) static HEALTH: Table = Table {
    title: "[pool.health]",
    help: "Active health checks of each backend. Set one of `tcp`, `http` and `grpc`.",
    options: &[
        Opt::optional(
            "tcp",
            Kind::Flag,
            "`http` or `grpc` states the check",
            "A check passes when a TCP connection opens, and with `tls` of the pool when its handshake succeeds.",
        ),
        Opt::optional(
            "http",
            Kind::Text(&HTTP_PATH),
            "`tcp` or `grpc` states the check",
            "A check passes when a request for this path is answered with a good status. It is sent over HTTP/2 if the \
             pool's `upstream` is \"http2\".",
        ),
        Opt::optional(
            "grpc",
            Kind::Text(&GRPC_SERVICE),
            "`tcp` or `http` states the check",
            "A check passes when the health service of gRPC (grpc.health.v1) says that this service serves; \"\" asks for \
             the whole server. It is sent over HTTP/2.",
        ),
        Opt::optional(
            "port",
            Kind::Count(1, 65535),
            "the backend's own port",
            "The port of the check, at the backend's address. Not with unix sockets.",
        ),
        Opt::default(
            "method",
            Kind::Choice(&CHECK_METHOD),
            "\"GET\"",
            "The method of an `http` check.",
        ),
        Opt::optional(
            "host",
            Kind::Text(&HOST),
            "the address of the check",
            "`Host` of an `http` check.",
        ),
        Opt::default(
            "status",
            Kind::Text(&STATUSES),
            "\"200-299\"",
            "The good statuses of an `http` check.",
        ),
        Opt::optional(
            "body",
            Kind::Text(&BODY_TEXT),
            "any body is good",
            "A text that the first 32 KB of the response's body of an `http` check must contain. Upper and lower case differ.",
        ),
        Opt::default(
            "interval",
            Kind::Duration(ms(100), HOUR),
            "\"2s\"",
            "Time between checks of one backend, varied by up to a tenth.",
        ),
        Opt::default(
            "timeout",
            Kind::Duration(ms(10), secs(600)),
            "\"1s\"",
            "Longest time of one check.",
        ),
        Opt::default(
            "rise",
            Kind::Count(1, 100),
            "2",
            "Passed checks in a row that make a backend healthy.",
        ),
        Opt::default(
            "fall",
            Kind::Count(1, 100),
            "3",
            "Failed checks in a row that make a backend unhealthy.",
        ),
        Opt::default(
            "close-connections",
            Kind::Flag,
            "false",
            "Close the connections of a backend that becomes unhealthy; requests without a response fail with 502. \
             Without it they go on, and end by the time-outs. Not while a pool of [[dispatch]] uses unhealthy backends \
             because no other is left.",
        ),
    ],
};

pub(super) static PASSIVE: Table = Table {
    title: "[pool.passive]",
    help: "Ejection of backends at which requests fail.",
    options: &[
        Opt::default(
            "failures",
            Kind::Count(0, 1000),
            "5",
            "Failures in a row that eject a backend: no connection, a reset, no response in time, a response that is \
             not HTTP, or a status of `statuses`. 0: never.",
        ),
        Opt::default(
            "statuses",
            Kind::Texts(&STATUS),
            "[]",
            "The statuses that count as failures, such as [\"502-504\"]. An active check that passes ends an ejection that they caused.",
        )
        .http_only(),
        Opt::default(
            "ejection",
            Kind::Duration(ms(100), DAY),
            "\"10s\"",
            "Duration of the first ejection; each further one lasts twice as long.",
        ),
        Opt::default(
            "ejection-max",
            Kind::Duration(ms(100), DAY),
            "\"5m\"",
            "The longest ejection.",
        ),
        Opt::default(
            "panic-threshold",
            Kind::Share,
            "0.5",
            "Smallest share of the pool's backends that ejection leaves.",
        ),
    ],
};
