//! Options that all front doors with HTTP share.

use std::time::Duration;

use crate::key::{
    Count, Each, OneOf, Size, Texts, choice, count, duration, each, flag, options, share,
    shared_options, size, texts,
};
use equipoise_session::config::Underscores;

use super::dispatch::Dispatch;
use super::session::Session;
use super::{DAY, HOUR, ms, secs};
use crate::option::{Choice, Choices, Form};
use crate::text::AddressPrefix;

shared_options! {
    Door in Session Dispatch;

    HEAD_MAX: Size<usize> = size("head-max", 1 << 10, 1 << 20).default(
        32 << 10,
        "Largest size of request line and headers together; beyond it, the answer is 431.",
    ).http_only(),
    HEADERS_MAX: Count<usize> =
        count("headers-max", 1, equipoise_session::config::HEADERS_MAX as u64).default(
            100,
            "Largest number of header fields in a request; beyond it, the answer is 431.",
        ).http_only(),
    BODY_MAX: Option<Size<u64>> = size("body-max", 1, 1 << 50).optional(
        "any size",
        "Largest size of a request body; beyond it, the answer is 413.",
    ).http_only(),
    CONNECTIONS_MAX: Count<usize> = count("connections-max", 1, 10_000_000).default(
        100_000,
        "Largest number of open connections (udp: client addresses) for each data-plane thread. Beyond it, accepting \
         pauses (udp: a new client replaces one that has sent for less than a second, or its datagrams are dropped). The \
         limit of open files may allow fewer.",
    ),
    PRIORITY: Count<u8> = count("priority", 0, 9).default(
        0,
        "Priority of this front door's requests in the pool's `queue`: before those of front doors with a lower priority.",
    ),
    HEADER_TIMEOUT: Duration = duration("header-timeout", ms(100), HOUR).default(
        secs(10),
        "Longest time from the first byte of a request to the end of its head; after it, the answer is 408. Also the \
         longest time of a PROXY protocol header, and of a TLS handshake (http, tcp).",
    ),
    IDLE_TIMEOUT: Duration = duration("idle-timeout", ms(100), DAY).default(
        secs(60),
        "Longest time without data (http: between requests or within a body; tcp: on a connection; udp: from or to a \
         client address); after it, the connection is closed.",
    ),
    REQUEST_TIMEOUT: Option<Duration> = duration("request-timeout", ms(100), DAY).optional(
        "no limit",
        "Longest time from the end of the request's head to the last byte of the response.",
    ).http_only(),
    TRUSTED: Option<Each<AddressPrefix>> = each("trusted", &super::dns::PREFIX).optional(
        "no sender is trusted",
        "Prefixes of the proxies in front of this front door. Their `X-Forwarded-*` and `Forwarded` headers are kept and \
         extended, and `accept-proxy` accepts connections only from them. The headers of any other sender are dropped. \
         Behind a PROXY protocol header, the address in that header decides about the HTTP headers.",
    ),
    FORWARDED: Texts = texts("forwarded", &FORWARDED_FIELD).default(
        &["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"],
        "The headers that inform backends about the origin of a request. `[]`: none.",
    ).http_only(),
    UNDERSCORES: OneOf<Underscores> = choice("underscores").default(
        &Underscores::Drop,
        "Treatment of headers with an underscore in their name, which many applications cannot distinguish from the same \
         name with a dash.",
    ).http_only(),
    UPGRADES: Texts = texts("upgrades", &UPGRADE).default(
        &["websocket"],
        "Protocols to which a client may upgrade its connection, such as \"h2c\". A request for another one is sent \
         without its `Upgrade` header. `[]`: none.",
    ).http_only(),
    HTTP2: bool = flag("http2").default(
        false,
        "Accept HTTP/2, too: with `tls` it is offered by ALPN, without it clients begin with it (prior knowledge). \
         Backends receive the protocol of their pool.",
    ).http_only(),
    STREAMS_MAX: Count<usize> = count("streams-max", 1, 10_000).default(
        100,
        "Largest number of requests in flight on an HTTP/2 or HTTP/3 connection.",
    ).http_only(),
    VIA: bool = flag("via").default(false, "Add a `Via` header in both directions.").http_only(),
    ACCESS_LOG: f64 = share("access-log").default(
        0.0,
        "Share of requests or connections in the access log.",
    ),
}

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

options! {
    Hsts: "[session.hsts]",
    "`Strict-Transport-Security` of all responses, in the place of the backends': browsers use only https from \
     then on. Only with `tls`.";

    MAX_AGE: Duration = duration("max-age", Duration::ZERO, HSTS_MAX).default(
        secs(365 * 86_400),
        "How long browsers remember it. 0s: they forget it.",
    ),
    SUBDOMAINS: bool = flag("subdomains").default(false, "It is for all subdomains, too."),
    PRELOAD: bool = flag("preload").default(
        false,
        "Browsers may ship with it. Needs `subdomains` and a year, and is hard to take back.",
    ),
}

/// Ten years.
const HSTS_MAX: Duration = Duration::from_secs(3650 * 86_400);

/// `[[session]] underscores`.
impl Choice for Underscores {
    const CHOICES: &'static Choices<Underscores> = &Choices(&[
        ("drop", Underscores::Drop, "the header does not reach the backend"),
        ("keep", Underscores::Keep, "the header is sent like any other"),
        ("refuse", Underscores::Refuse, "the request is answered 400"),
    ]);
}
