//! Options of routes, and those that front doors and routes share.

use equipoise_session::route::{
    Expression, FieldCondition, HostCondition, PathCondition, SecurityHeaders,
};

use super::super::option::{Choices, Form, Kind, Opt, Table, reads_as};
use super::super::text::{HeaderLine, RetryFailure, StickyTo};
use super::{DAY, NAME, ms};

/// The option of http front doors.
pub(super) const OF_DOOR: Opt =
    Opt::default("route", Kind::Tables(&ROUTE), "[]", ROUTE.help).http_only();

static ROUTE: Table = Table {
    title: "[[session.route]]",
    help: "http: what happens to requests that meet all conditions of the route. The first such route in the file's order \
           is taken; other requests go to `pool` of the front door. A route with none of `pool`, `pools`, `redirect` and \
           `answer` leads to that pool, too.",
    options: &[
        Opt::optional(
            "name",
            Kind::Text(&NAME),
            "its number, from 1",
            "Name in status and metrics. Unique at the front door. A reload keeps the counters of a name.",
        ),
        Opt::optional(
            "host",
            Kind::Texts(&HOST),
            "any host",
            "Condition: one of these hosts. `*.example.com` stands for every host below example.com.",
        ),
        Opt::optional(
            "path",
            Kind::Texts(&PATH),
            "any path",
            "Condition: exactly this path. One of `path`, `path-prefix` and `path-regex` has to be met.",
        ),
        Opt::optional(
            "path-prefix",
            Kind::Texts(&PREFIX),
            "any path",
            "Condition: this path, or one below it. `/a` is not met by `/ab`.",
        ),
        Opt::optional(
            "path-regex",
            Kind::Texts(&REGEX),
            "any path",
            "Condition: a regular expression that matches somewhere in the path.",
        ),
        Opt::optional(
            "method",
            Kind::Texts(&METHOD),
            "any method",
            "Condition: one of these methods.",
        ),
        Opt::optional(
            "header",
            Kind::Texts(&HEADER),
            "any header",
            "Condition: all of these headers, with this value or any.",
        ),
        Opt::optional(
            "query",
            Kind::Texts(&QUERY),
            "any query",
            "Condition: all of these parameters of the query, with this value or any.",
        ),
        Opt::optional(
            "source",
            Kind::Texts(&super::dns::PREFIX),
            "any client",
            "Condition: the client's address is in one of these prefixes.",
        ),
        Opt::optional(
            "pool",
            Kind::Text(&NAME),
            "`pool` of the front door",
            "The `name` of the pool.",
        ),
        Opt::default("pools", Kind::Tables(&POOLS), "[]", POOLS.help),
        Opt::optional(
            "sticky",
            Kind::Text(&STICKY),
            "the pool is random for each request",
            "With `pools`: the requests that go to the same pool, those with the same client address, header or cookie. \
             Without the header or cookie, the client's address decides.",
        ),
        Opt::optional("mirror", Kind::Table(&MIRROR), "no copies", MIRROR.help),
        Opt::optional("redirect", Kind::Table(&REDIRECT), "requests are served", REDIRECT.help),
        Opt::optional("answer", Kind::Table(&ANSWER), "requests are served", ANSWER.help),
        Opt::optional("rewrite", Kind::Table(&REWRITE), "path and host stay", REWRITE.help),
        Opt::optional(
            "request-headers",
            Kind::Table(&REQUEST_HEADERS),
            "they stay",
            REQUEST_HEADERS.help,
        ),
        Opt::optional(
            "response-headers",
            Kind::Table(&RESPONSE_HEADERS),
            "they stay",
            RESPONSE_HEADERS.help,
        ),
        super::limits::OF_ROUTE,
        super::limits::BANDWIDTH_OF_ROUTE,
        Opt::optional(
            "body-max",
            Kind::Size(1, 1 << 50),
            "that of the front door",
            "Largest size of a request body; beyond it, the answer is 413. It may be larger than that of the front door.",
        ),
        Opt::optional(
            "request-timeout",
            Kind::Duration(ms(100), DAY),
            "that of the front door",
            "Longest time from the end of the request's head to the last byte of the response.",
        ),
        Opt::optional(
            "response-timeout",
            Kind::Duration(ms(10), DAY),
            "that of the pool",
            "Longest time from the last byte of the request to the first of the response; after it, the answer is 504.",
        ),
        Opt::optional(
            "tunnel-timeout",
            Kind::Duration(ms(100), DAY),
            "that of the front door",
            "Longest time without data after an upgrade to another protocol.",
        ),
        Opt::optional(
            "retries",
            Kind::Count(0, 10),
            "that of the pool",
            "Largest number of attempts on another backend after a failure.",
        ),
        Opt::optional(
            "retry-on",
            Kind::Texts(&RETRY_FAILURE),
            "that of the pool",
            "The failures after which a request is tried again.",
        ),
    ],
};

static POOLS: Table = Table {
    title: "[[session.route.pools]]",
    help: "Pools that share the route's requests by weight.",
    options: &[
        Opt::required("pool", Kind::Text(&NAME), "The `name` of the pool."),
        Opt::default("weight", Kind::Count(0, 1_000_000), "1", "Its share relative to the others."),
    ],
};

static MIRROR: Table = Table {
    title: "[session.route.mirror]",
    help: "Sends copies of the route's requests to another pool, whose answers are dropped. Nothing that happens to a copy \
           delays or fails the request.",
    options: &[
        Opt::required("pool", Kind::Text(&NAME), "The `name` of the pool."),
        Opt::default("share", Kind::Share, "1.0", "The share of requests that are copied."),
        Opt::default(
            "body-max",
            Kind::Size(1, 1 << 20),
            "\"64KiB\"",
            "Largest size of a body that is copied. Requests with a larger one are not copied.",
        ),
        Opt::default(
            "concurrency",
            Kind::Count(1, 100_000),
            "100",
            "Largest number of copies in flight, over all data-plane threads. Further requests are not copied.",
        ),
    ],
};

static REDIRECT: Table = Table {
    title: "[session.route.redirect]",
    help: "Redirects requests.",
    options: &[
        Opt::required(
            "to",
            Kind::Text(&REDIRECT_TO),
            "The new place. `{scheme}`, `{host}` (without a port), `{path}` and `{query}` (with its `?`, if there is one) \
             are those of the request, after `rewrite`.",
        ),
        Opt::default(
            "status",
            Kind::Count(301, 308),
            "302",
            "The status: 301, 302, 303, 307 or 308. 307 and 308 keep method and body.",
        ),
    ],
};

static ANSWER: Table = Table {
    title: "[session.route.answer]",
    help: "Answers requests without a backend.",
    options: &[
        Opt::default("status", Kind::Count(200, 599), "200", "The status."),
        Opt::optional("body", Kind::Text(&BODY), "it is empty", "The body."),
        Opt::optional(
            "file",
            Kind::Text(&super::dns::FILE),
            "`body` has the body",
            "A file of text with the body, at most 1 MiB. `equipoise reload` reads it again.",
        ),
        Opt::default(
            "content-type",
            Kind::Text(&CONTENT_TYPE),
            "\"text/plain; charset=utf-8\"",
            "`Content-Type` of the body.",
        ),
    ],
};

static REWRITE: Table = Table {
    title: "[session.route.rewrite]",
    help: "Changes path and host of requests before their action. The query stays.",
    options: &[
        Opt::optional(
            "prefix",
            Kind::Text(&PREFIX),
            "no prefix is replaced",
            "Replaces the longest `path-prefix` that was met; \"/\" removes it. Without `path-prefix` it comes before the \
             path.",
        ),
        Opt::optional(
            "regex",
            Kind::Text(&REGEX),
            "nothing is replaced",
            "Replaces the first match of this regular expression in the path by `to`.",
        ),
        Opt::optional(
            "to",
            Kind::Text(&REPLACEMENT),
            "needed with `regex`",
            "The replacement. `${1}` is the first group of `regex`.",
        ),
        Opt::optional(
            "host",
            Kind::Text(&super::HOST),
            "the client's",
            "`Host` of the request. `X-Forwarded-Host` has the client's.",
        ),
    ],
};

static REQUEST_HEADERS: Table = Table {
    title: "[session.route.request-headers]",
    help: "Changes the headers that backends receive.",
    options: &EDITS,
};

static RESPONSE_HEADERS: Table = Table {
    title: "[session.route.response-headers]",
    help: "Changes the headers that clients receive, in answers of the proxy, too.",
    options: &EDITS,
};

const EDITS: [Opt; 3] = [
    Opt::default(
        "set",
        Kind::Texts(&HEADER_LINE),
        "[]",
        "Headers in the place of those with their name.",
    ),
    Opt::default("add", Kind::Texts(&HEADER_LINE), "[]", "Headers beside those with their name."),
    Opt::default("remove", Kind::Texts(&HEADER_NAME), "[]", "Names of headers that are removed."),
];

/// The option of http front doors.
pub(super) const TUNNEL_TIMEOUT: Opt = Opt::optional(
    "tunnel-timeout",
    Kind::Duration(ms(100), DAY),
    "`idle-timeout`",
    "Longest time without data after an upgrade to another protocol, such as WebSocket.",
)
.http_only();

/// The option of http front doors.
pub(super) const SECURITY: Opt = Opt::optional(
    "security-headers",
    Kind::Choice(&SECURITY_HEADERS),
    "responses have those of the backends",
    "Headers by which browsers protect users, in responses that have none of the same name.",
)
.http_only();

/// The option of http front doors.
pub(super) const ERROR_PAGES: Opt = Opt::optional(
    "error-pages",
    Kind::Text(&FOLDER),
    "a line of text",
    "A folder with pages in HTML for the proxy's own errors, as STATUS.html: 503.html. Each has at most 1 MiB. \
     Responses of backends stay. `equipoise reload` reads it again.",
)
.http_only();

/// `[[session]] security-headers`.
pub(in super::super) static SECURITY_HEADERS: Choices<SecurityHeaders> = Choices(&[
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

pub(super) static RETRY_FAILURE: Form = Form {
    noun: "a failure to retry after",
    accepted: "\"connect\", \"reset\", \"grpc-cancelled\", \"grpc-deadline-exceeded\", \"grpc-internal\", \
               \"grpc-resource-exhausted\", \"grpc-unavailable\", a status or two with `-` between them, such as \
               \"502-504\"",
    fits: reads_as::<RetryFailure>,
};

static HOST: Form = Form {
    noun: "a host",
    accepted: "a host name, a wildcard or an IPv6 address in brackets, without a port, such as \"www.example.com\" or \
               \"*.example.com\"",
    fits: reads_as::<HostCondition>,
};

static PATH: Form = Form {
    noun: "a path",
    accepted: "a path in its normal form, without a query, such as \"/login\"",
    fits: |text| PathCondition::exact(text).is_ok(),
};

static PREFIX: Form = Form {
    noun: "a prefix of paths",
    accepted: "a path in its normal form, without a query, such as \"/api\"",
    fits: |text| PathCondition::prefix(text).is_ok(),
};

static REGEX: Form = Form {
    noun: "a regular expression",
    accepted: "the syntax of Rust's regex crate, which is that of RE2, such as \"^/user/[0-9]+$\"",
    fits: reads_as::<Expression>,
};

static METHOD: Form = Form {
    noun: "a method",
    accepted: "a method in capital letters, such as \"GET\"",
    fits: |text| {
        (1..=32).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_uppercase() || b"-_".contains(&b))
    },
};

static HEADER: Form = Form {
    noun: "a condition of a header",
    accepted: "NAME, \"NAME: VALUE\" or \"NAME: ~REGEX\", such as \"X-Canary: yes\"",
    fits: |text| FieldCondition::header(text).is_ok(),
};

static QUERY: Form = Form {
    noun: "a condition of a parameter",
    accepted: "NAME, NAME=VALUE or NAME=~REGEX, such as \"version=2\"",
    fits: |text| FieldCondition::query(text).is_ok(),
};

static STICKY: Form = Form {
    noun: "what requests of one pool share",
    accepted: "\"source\", \"header:NAME\" or \"cookie:NAME\"",
    fits: reads_as::<StickyTo>,
};

static REDIRECT_TO: Form = Form {
    noun: "a place to redirect to",
    accepted: "a path, or a URL that begins with https://, http:// or {scheme}://, of visible characters, with {scheme}, \
               {host}, {path} and {query} as needed, such as \"https://www.example.com{path}{query}\"",
    fits: |text| {
        let begins =
            ["/", "https://", "http://", "{scheme}://"].iter().any(|it| text.starts_with(it));
        let known = ["{scheme}", "{host}", "{path}", "{query}"];
        let plain = known.iter().fold(text.to_string(), |text, it| text.replace(it, ""));
        begins
            && !text.starts_with("//")
            && text.len() <= 2048
            && text.bytes().all(|b| b.is_ascii_graphic())
            && !plain.contains(['{', '}'])
    },
};

static BODY: Form = Form {
    noun: "a body",
    accepted: "at most 64 KiB of text",
    fits: |text| text.len() <= 64 << 10,
};

static CONTENT_TYPE: Form = Form {
    noun: "a content type",
    accepted: "TYPE/SUBTYPE and parameters, such as \"text/html; charset=utf-8\"",
    fits: |text| {
        text.contains('/')
            && text.len() <= 255
            && text.bytes().all(|b| b == b' ' || b.is_ascii_graphic())
            && text.trim() == text
    },
};

static REPLACEMENT: Form = Form {
    noun: "a replacement",
    accepted: "visible characters without `?` and `#`, such as \"/new/${1}\"",
    fits: |text| {
        text.len() <= 2048 && text.bytes().all(|b| b.is_ascii_graphic() && !b"?#\\".contains(&b))
    },
};

static HEADER_LINE: Form = Form {
    noun: "a header",
    accepted: "\"NAME: VALUE\", such as \"X-Frame-Options: DENY\"; not a header that the proxy writes itself \
               (Connection, Content-Length, Expect, Host, Keep-Alive, Strict-Transport-Security, TE, Trailer, \
               Transfer-Encoding, Upgrade, Via, Forwarded, X-Forwarded-*, X-Real-IP)",
    fits: reads_as::<HeaderLine>,
};

static HEADER_NAME: Form = Form {
    noun: "a header",
    accepted: "NAME, such as \"Server\"; not a header that the proxy writes itself (Connection, Content-Length, Host, ...)",
    fits: |text| !text.contains(':') && reads_as::<HeaderLine>(&format!("{text}: x")),
};

static FOLDER: Form = Form {
    noun: "a folder",
    accepted: "an absolute path, such as \"/etc/equipoise/errors\"",
    fits: |text| text.starts_with('/'),
};
