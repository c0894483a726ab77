//! Options of front doors.

use std::time::Duration;

use equipoise_session::config::Protocol;
use equipoise_session::route::SecurityHeaders;

use super::dns::PREFIX;
use super::door::{Door, Hsts};
use super::forms::{LISTEN_AT, NAME};
use super::limits::{BANDWIDTH, DoorLimit};
use super::route::Route;
use super::tls::{DoorTls, Sni};
use super::{DAY, ms};
use crate::key::{
    Count, Each, In, List, OneOf, Options, Parsed, Text, choice, count, duration, each, flag,
    options, parsed, table, tables, text,
};
use crate::option::{Choice, Choices, Form, TypedForm};
use crate::text::{AddressPrefix, Bandwidth, Listen, RedirectTo};

options! {
    Session: "[[session]]",
    "A front door of the session level: an address at which clients are served from a pool. One table for each.";

    NAME: Option<Text> = text("name", &NAME).optional(
        "protocol and address: `http:0.0.0.0:80`",
        "Name in metrics and logs. Unique.",
    ),
    LISTEN: Option<Each<Listen>> = each("listen", &LISTEN_AT).required(
        "Address on which it listens. With several addresses, each is a front door with the same options, called \
         NAME:ADDRESS. `*`: every address, IPv4 and IPv6; `[::]`: every IPv6 address. Port 0: any free port.",
    ),
    PROTOCOL: Option<OneOf<Protocol>> = choice("protocol").required("Protocol of its clients."),
    POOL: Option<Text> = text("pool", &NAME).required("The `name` of the pool behind it."),
    TLS: Option<In<DoorTls>> = table("tls").unless("clients do not use TLS"),
    SNI: List<Sni> = tables("sni").default(Sni::TABLE.help),
    ROUTE: List<Route> = tables("route").default(Route::TABLE.help).http_only(),
    REDIRECT: Option<Parsed<RedirectTo>> = parsed("redirect", &REDIRECT_TO).optional(
        "requests are served",
        "\"https\": redirect requests to https, at port 443 or, as \"https:8443\", at another: 301 for GET and HEAD, 308 for \
         the others. Requests below /.well-known/acme-challenge/ are not redirected. Not with `tls`.",
    ).http_only(),
    HSTS: Option<In<Hsts>> = table("hsts").unless(
        "the header passes as backends send it",
    ).http_only(),
    SECURITY_HEADERS: Option<OneOf<SecurityHeaders>> = choice("security-headers").optional(
        "responses have those of the backends",
        "Headers by which browsers protect users, in responses that have none of the same name.",
    ).http_only(),
    Door::HEAD_MAX,
    Door::HEADERS_MAX,
    Door::BODY_MAX,
    Door::CONNECTIONS_MAX,
    Door::PRIORITY,
    ALLOW: Option<Each<AddressPrefix>> = each("allow", &PREFIX).optional(
        "every address that `deny` does not list",
        "Prefixes of the clients that are served; other clients are answered 403 (tcp: reset, udp: no answer). If `allow` \
         and `deny` both have a prefix of an address, the longer one decides.",
    ),
    DENY: Option<Each<AddressPrefix>> = each("deny", &PREFIX).optional(
        "no address",
        "Prefixes of the clients that are not served.",
    ),
    LIMIT: List<DoorLimit> = tables("limit").default(DoorLimit::TABLE.help),
    BANDWIDTH: Option<Parsed<Bandwidth>> = parsed("bandwidth", &BANDWIDTH).optional(
        "no limit",
        "Largest rate of the bytes of each response of a backend, such as \"10MB/s\". Tunnels after an upgrade are not \
         limited.",
    ).http_only(),
    Door::HEADER_TIMEOUT,
    Door::IDLE_TIMEOUT,
    Door::REQUEST_TIMEOUT,
    TUNNEL_TIMEOUT: Option<Duration> = duration("tunnel-timeout", ms(100), DAY).optional(
        "`idle-timeout`",
        "Longest time without data after an upgrade to another protocol, such as WebSocket.",
    ).http_only(),
    ERROR_PAGES: Option<Text> = text("error-pages", &FOLDER).optional(
        "a line of text",
        "A folder with pages in HTML for the proxy's own errors, as STATUS.html: 503.html. Each has at most 1 MiB. \
         Responses of backends stay. `equipoise reload` reads it again.",
    ).http_only(),
    Door::TRUSTED,
    Door::FORWARDED,
    Door::UNDERSCORES,
    Door::UPGRADES,
    Door::HTTP2,
    HTTP3: bool = flag("http3").default(
        false,
        "Experimental, and only in builds with `--features http3`: serve HTTP/3, too, at the UDP port of the same number, \
         and announce it to clients by `Alt-Svc`. Needs `tls`.",
    ).http_only(),
    Door::STREAMS_MAX,
    Door::VIA,
    SERVER_TIMING: bool = flag("server-timing").default(
        false,
        "Add `Server-Timing` to responses of backends: how long the request waited for the response, and for a backend \
         with room. Every client can read it.",
    ).http_only(),
    ACCEPT_PROXY: bool = flag("accept-proxy").default(
        false,
        "Require a PROXY protocol header (v1 or v2) at the start of every connection, and take the client's address from it. Connections from addresses outside `trusted` are reset.",
    ),
    RESPONSES: Option<Count<u32>> = count("responses", 0, 1_000_000).optional(
        "a client is removed after `idle-timeout`",
        "udp: number of datagrams in a backend's answer to each datagram of a client. With the last of them the \
         client is removed, which frees its socket: 1 for DNS, 0 for a log collector.",
    ),
    Door::ACCESS_LOG,
}

/// `[[session]] protocol`.
impl Choice for Protocol {
    const CHOICES: &'static Choices<Protocol> = &Choices(&[
        ("tcp", Protocol::Tcp, "bytes, connection by connection"),
        ("udp", Protocol::Udp, "datagrams, client address by client address"),
        (
            "http",
            Protocol::Http,
            "HTTP/1.0, HTTP/1.1 and, with `http2`, HTTP/2, request by request",
        ),
    ]);
}

/// `[[session]] security-headers`.
impl Choice for SecurityHeaders {
    const CHOICES: &'static Choices<SecurityHeaders> = &Choices(&[
        (
            "basic",
            SecurityHeaders::Basic,
            "no guessing of content types, no frames of other sites, no paths in `Referer` to other sites",
        ),
        (
            "strict",
            SecurityHeaders::Strict,
            "for applications that load everything from their own origin: a content security policy, no frames, no `Referer`",
        ),
    ]);
}

static REDIRECT_TO: TypedForm<RedirectTo> =
    TypedForm::new("a redirect", "\"https\" or \"https:PORT\"");

static FOLDER: Form = Form {
    noun: "a folder",
    accepted: "an absolute path, such as \"/etc/equipoise/errors\"",
    fits: |text| text.starts_with('/'),
};
