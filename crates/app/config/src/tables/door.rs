//! Options that all front doors with HTTP share.

use std::time::Duration;

use super::super::option::{Form, Kind, Opt, Table, reads_as};
use super::super::text::RedirectTo;
use super::{DAY, HOUR, ms};

pub(super) const HEAD_MAX: Opt = Opt::default(
    "head-max",
    Kind::Size(1 << 10, 1 << 20),
    "\"32KiB\"",
    "Largest size of request line and headers together; beyond it, the answer is 431.",
)
.http_only();

pub(super) const HEADERS_MAX: Opt = Opt::default(
    "headers-max",
    Kind::Count(1, equipoise_session::config::HEADERS_MAX as u64),
    "100",
    "Largest number of header fields in a request; beyond it, the answer is 431.",
)
.http_only();

pub(super) const BODY_MAX: Opt = Opt::optional(
    "body-max",
    Kind::Size(1, 1 << 50),
    "any size",
    "Largest size of a request body; beyond it, the answer is 413.",
)
.http_only();

pub(super) const CONNECTIONS_MAX: Opt = Opt::default(
    "connections-max",
    Kind::Count(1, 10_000_000),
    "100000",
    "Largest number of open connections (udp: client addresses) for each data-plane thread. Beyond it, accepting \
     pauses (udp: a new client replaces one that has sent for less than a second, or its datagrams are dropped). The \
     limit of open files may allow fewer.",
);

pub(super) const PRIORITY: Opt = Opt::default(
    "priority",
    Kind::Count(0, 9),
    "0",
    "Priority of this front door's requests in the pool's `queue`: before those of front doors with a lower priority.",
);

pub(super) const HEADER_TIMEOUT: Opt = Opt::default(
    "header-timeout",
    Kind::Duration(ms(100), HOUR),
    "\"10s\"",
    "Longest time from the first byte of a request to the end of its head; after it, the answer is 408. Also the \
     longest time of a PROXY protocol header, and of a TLS handshake (http, tcp).",
);

pub(super) const IDLE_TIMEOUT: Opt = Opt::default(
    "idle-timeout",
    Kind::Duration(ms(100), DAY),
    "\"1m\"",
    "Longest time without data (http: between requests or within a body; tcp: on a connection; udp: from or to a \
     client address); after it, the connection is closed.",
);

pub(super) const REQUEST_TIMEOUT: Opt = Opt::optional(
    "request-timeout",
    Kind::Duration(ms(100), DAY),
    "no limit",
    "Longest time from the end of the request's head to the last byte of the response.",
)
.http_only();

pub(super) const TRUSTED: Opt = Opt::optional(
    "trusted",
    Kind::Texts(&super::dns::PREFIX),
    "no sender is trusted",
    "Prefixes of the proxies in front of this front door. Their `X-Forwarded-*` and `Forwarded` headers are kept and \
     extended, and `accept-proxy` accepts connections only from them. The headers of any other sender are dropped. \
     Behind a PROXY protocol header, the address in that header decides about the HTTP headers.",
);

pub(super) const FORWARDED: Opt = Opt::default(
    "forwarded",
    Kind::Texts(&FORWARDED_FIELD),
    "[\"x-forwarded-for\", \"x-forwarded-proto\", \"x-forwarded-host\"]",
    "The headers that inform backends about the origin of a request. `[]`: none.",
)
.http_only();

pub(super) const UNDERSCORES: Opt = Opt::default(
    "underscores",
    Kind::Choice(&super::UNDERSCORES),
    "\"drop\"",
    "Treatment of headers with an underscore in their name, which many applications cannot distinguish from the same \
     name with a dash.",
)
.http_only();

pub(super) const UPGRADES: Opt = Opt::default(
    "upgrades",
    Kind::Texts(&UPGRADE),
    "[\"websocket\"]",
    "Protocols to which a client may upgrade its connection, such as \"h2c\". A request for another one is sent \
     without its `Upgrade` header. `[]`: none.",
)
.http_only();

static FORWARDED_FIELD: Form = Form {
    noun: "a header that this front door writes",
    accepted: "\"x-forwarded-for\", \"x-forwarded-proto\", \"x-forwarded-host\", \"x-real-ip\" or \"forwarded\" (whose headers pass depends on `trusted`)",
    fits: |text| {
        ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-real-ip", "forwarded"]
            .contains(&text)
    },
};

static UPGRADE: Form = Form {
    noun: "a protocol to upgrade to",
    accepted: "1 to 32 letters, digits, `.`, `_` and `-`, such as \"websocket\"",
    fits: |text| {
        (1..=32).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    },
};

pub(super) const HTTP2: Opt = Opt::default(
    "http2",
    Kind::Flag,
    "false",
    "Accept HTTP/2, too: with `tls` it is offered by ALPN, without it clients begin with it (prior knowledge). \
     Backends receive the protocol of their pool.",
)
.http_only();

pub(super) const REDIRECT: Opt = Opt::optional(
    "redirect",
    Kind::Text(&REDIRECT_TO),
    "requests are served",
    "\"https\": redirect requests to https, at port 443 or, as \"https:8443\", at another: 301 for GET and HEAD, 308 for \
     the others. Requests below /.well-known/acme-challenge/ are not redirected. Not with `tls`.",
)
.http_only();

pub(super) const HSTS: Opt = Opt::optional(
    "hsts",
    Kind::Table(&HSTS_TABLE),
    "the header passes as backends send it",
    HSTS_TABLE.help,
)
.http_only();

static HSTS_TABLE: Table = Table {
    title: "[session.hsts]",
    help: "`Strict-Transport-Security` of all responses, in the place of the backends': browsers use only https from \
           then on. Only with `tls`.",
    options: &[
        Opt::default(
            "max-age",
            Kind::Duration(Duration::ZERO, HSTS_MAX),
            "\"365d\"",
            "How long browsers remember it. 0s: they forget it.",
        ),
        Opt::default("subdomains", Kind::Flag, "false", "It is for all subdomains, too."),
        Opt::default(
            "preload",
            Kind::Flag,
            "false",
            "Browsers may ship with it. Needs `subdomains` and a year, and is hard to take back.",
        ),
    ],
};

/// Ten years.
const HSTS_MAX: Duration = Duration::from_secs(3650 * 86_400);

static REDIRECT_TO: Form = Form {
    noun: "a redirect",
    accepted: "\"https\" or \"https:PORT\"",
    fits: reads_as::<RedirectTo>,
};

pub(super) const STREAMS_MAX: Opt = Opt::default(
    "streams-max",
    Kind::Count(1, 10_000),
    "100",
    "Largest number of requests in flight on an HTTP/2 connection.",
)
.http_only();

pub(super) const VIA: Opt =
    Opt::default("via", Kind::Flag, "false", "Add a `Via` header in both directions.").http_only();

pub(super) const SERVER_TIMING: Opt = Opt::default(
    "server-timing",
    Kind::Flag,
    "false",
    "Add `Server-Timing` to responses of backends: how long the request waited for the response, and for a backend \
     with room. Every client can read it.",
)
.http_only();

pub(super) const ACCESS_LOG: Opt = Opt::default(
    "access-log",
    Kind::Share,
    "0.0",
    "Share of requests or connections in the access log.",
);
