//! Options that every kind of front door has where it speaks HTTP.

use super::super::option::{Kind, Opt};
use super::{DAY, HOUR, ms};

pub(super) const HEAD_MAX: Opt = Opt::default(
    "head-max",
    Kind::Size(1 << 10, 1 << 20),
    "\"32KiB\"",
    "Request line and headers together; more is answered 431.",
)
.http_only();

pub(super) const HEADERS_MAX: Opt = Opt::default(
    "headers-max",
    Kind::Count(1, equipoise_session::config::HEADERS_MAX as u64),
    "100",
    "Header fields in a request; more is answered 431.",
)
.http_only();

pub(super) const BODY_MAX: Opt = Opt::optional(
    "body-max",
    Kind::Size(1, 1 << 50),
    "any size",
    "Request body; more is answered 413.",
)
.http_only();

pub(super) const CONNECTIONS_MAX: Opt = Opt::default(
    "connections-max",
    Kind::Count(1, 10_000_000),
    "100000",
    "Open connections (udp: client addresses) for each data-plane thread. Beyond it accepting pauses (udp: a new client takes the place of one that sent a single datagram and had no answer, or its datagrams are dropped). The limit of open files may allow fewer.",
);

pub(super) const HEADER_TIMEOUT: Opt = Opt::default(
    "header-timeout",
    Kind::Duration(ms(100), HOUR),
    "\"10s\"",
    "From the first byte of a request to the end of its head; then 408.",
)
.http_only();

pub(super) const IDLE_TIMEOUT: Opt = Opt::default(
    "idle-timeout",
    Kind::Duration(ms(100), DAY),
    "\"1m\"",
    "Nothing moved for this long (http: between requests or within a body; tcp: on a connection; udp: from or to a client address); then it is closed.",
);

pub(super) const REQUEST_TIMEOUT: Opt = Opt::optional(
    "request-timeout",
    Kind::Duration(ms(100), DAY),
    "no bound",
    "From the end of the request's head to the last byte of the response.",
)
.http_only();

pub(super) const FORWARDED: Opt = Opt::default(
    "forwarded",
    Kind::Choice(&super::FORWARDED),
    "\"append\"",
    "What to do about `Forwarded` and `X-Forwarded-For`, `-Proto` and `-Host`.",
)
.http_only();

pub(super) const VIA: Opt =
    Opt::default("via", Kind::Flag, "false", "Add a `Via` header in both directions.").http_only();

pub(super) const ACCESS_LOG: Opt = Opt::default(
    "access-log",
    Kind::Share,
    "0.0",
    "The share of requests or connections that is written to the access log.",
);
