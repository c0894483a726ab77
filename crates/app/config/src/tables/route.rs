//! Options of routes, and those that front doors and routes share.

use std::time::Duration;

use equipoise_session::route::{Expression, FieldCondition, HostCondition, PathCondition};

use super::limits::RouteLimit;
use super::{DAY, NAME, ms};
use crate::key::{
    Count, Each, In, List, Options, Parsed, Size, Text, Texts, count, duration, each, options,
    parsed, share, shared_options, size, table, tables, text, texts,
};
use crate::option::{Form, TypedForm, reads_as};
use crate::text::{AddressPrefix, Bandwidth, HeaderLine, RetryFailure, StickyTo};

options! {
    Route: "[[session.route]]",
    "http: what happens to requests that meet all conditions of the route. The first such route in the file's order \
     is taken; other requests go to `pool` of the front door. A route with none of `pool`, `pools`, `redirect` and \
     `answer` leads to that pool, too.";

    NAME: Option<Text> = text("name", &NAME).optional(
        "its number, from 1",
        "Name in status and metrics. Unique at the front door. A reload keeps the counters of a name.",
    ),
    HOST: Option<Each<HostCondition>> = each("host", &HOST).optional(
        "any host",
        "Condition: one of these hosts. `*.example.com` stands for every host below example.com.",
    ),
    PATH: Option<Texts> = texts("path", &PATH).optional(
        "any path",
        "Condition: exactly this path. One of `path`, `path-prefix` and `path-regex` has to be met.",
    ),
    PATH_PREFIX: Option<Texts> = texts("path-prefix", &PREFIX).optional(
        "any path",
        "Condition: this path, or one below it. `/a` is not met by `/ab`.",
    ),
    PATH_REGEX: Option<Each<Expression>> = each("path-regex", &REGEX).optional(
        "any path",
        "Condition: a regular expression that matches somewhere in the path.",
    ),
    METHOD: Option<Texts> = texts("method", &METHOD).optional(
        "any method",
        "Condition: one of these methods.",
    ),
    HEADER: Option<Texts> = texts("header", &HEADER).optional(
        "any header",
        "Condition: all of these headers, with this value or any.",
    ),
    QUERY: Option<Texts> = texts("query", &QUERY).optional(
        "any query",
        "Condition: all of these parameters of the query, with this value or any.",
    ),
    SOURCE: Option<Each<AddressPrefix>> = each("source", &super::dns::PREFIX).optional(
        "any client",
        "Condition: the client's address is in one of these prefixes.",
    ),
    POOL: Option<Text> = text("pool", &NAME).optional(
        "`pool` of the front door",
        "The `name` of the pool.",
    ),
    POOLS: List<RoutePool> = tables("pools").default(RoutePool::TABLE.help),
    STICKY: Option<Parsed<StickyTo>> = parsed("sticky", &STICKY).optional(
        "the pool is random for each request",
        "With `pools`: the requests that go to the same pool, those with the same client address, header or cookie. \
         Without the header or cookie, the client's address decides.",
    ),
    MIRROR: Option<In<RouteMirror>> = table("mirror").unless("no copies"),
    REDIRECT: Option<In<RouteRedirect>> = table("redirect").unless("requests are served"),
    ANSWER: Option<In<RouteAnswer>> = table("answer").unless("requests are served"),
    REWRITE: Option<In<RouteRewrite>> = table("rewrite").unless("path and host stay"),
    REQUEST_HEADERS: Option<In<RequestHeaders>> = table("request-headers").unless("they stay"),
    RESPONSE_HEADERS: Option<In<ResponseHeaders>> = table("response-headers").unless("they stay"),
    LIMIT: List<RouteLimit> = tables("limit").default(RouteLimit::TABLE.help),
    BANDWIDTH: Option<Parsed<Bandwidth>> = parsed("bandwidth", &super::limits::BANDWIDTH).optional(
        "that of the front door",
        "Largest rate of the bytes of each response, such as \"10MB/s\".",
    ),
    BODY_MAX: Option<Size<u64>> = size("body-max", 1, 1 << 50).optional(
        "that of the front door",
        "Largest size of a request body; beyond it, the answer is 413. It may be larger than that of the front door.",
    ),
    REQUEST_TIMEOUT: Option<Duration> = duration("request-timeout", ms(100), DAY).optional(
        "that of the front door",
        "Longest time from the end of the request's head to the last byte of the response.",
    ),
    RESPONSE_TIMEOUT: Option<Duration> = duration("response-timeout", ms(10), DAY).optional(
        "that of the pool",
        "Longest time from the last byte of the request to the first of the response; after it, the answer is 504.",
    ),
    TUNNEL_TIMEOUT: Option<Duration> = duration("tunnel-timeout", ms(100), DAY).optional(
        "that of the front door",
        "Longest time without data after an upgrade to another protocol.",
    ),
    RETRIES: Option<Count<u32>> = count("retries", 0, 10).optional(
        "that of the pool",
        "Largest number of attempts on another backend after a failure.",
    ),
    RETRY_ON: Option<Each<RetryFailure>> = each("retry-on", &RETRY_FAILURE).optional(
        "that of the pool",
        "The failures after which a request is tried again.",
    ),
}

options! {
    RoutePool: "[[session.route.pools]]", "Pools that share the route's requests by weight.";

    POOL: Option<Text> = text("pool", &NAME).required("The `name` of the pool."),
    WEIGHT: Count<u32> = count("weight", 0, 1_000_000).default(
        1,
        "Its share relative to the others.",
    ),
}

options! {
    RouteMirror: "[session.route.mirror]",
    "Sends copies of the route's requests to another pool, whose answers are dropped. Nothing that happens to a copy \
     delays or fails the request.";

    POOL: Option<Text> = text("pool", &NAME).required("The `name` of the pool."),
    SHARE: f64 = share("share").default(1.0, "The share of requests that are copied."),
    BODY_MAX: Size<u64> = size("body-max", 1, 1 << 20).default(
        64 << 10,
        "Largest size of a body that is copied. Requests with a larger one are not copied.",
    ),
    CONCURRENCY: Count<u32> = count("concurrency", 1, 100_000).default(
        100,
        "Largest number of copies in flight, over all data-plane threads. Further requests are not copied.",
    ),
}

options! {
    RouteRedirect: "[session.route.redirect]", "Redirects requests.";

    TO: Option<Text> = text("to", &REDIRECT_TO).required(
        "The new place. `{scheme}`, `{host}` (without a port), `{path}` and `{query}` (with its `?`, if there is one) \
         are those of the request, after `rewrite`.",
    ),
    STATUS: Count<u16> = count("status", 301, 308).default(
        302,
        "The status: 301, 302, 303, 307 or 308. 307 and 308 keep method and body.",
    ),
}

options! {
    RouteAnswer: "[session.route.answer]", "Answers requests without a backend.";

    STATUS: Count<u16> = count("status", 200, 599).default(200, "The status."),
    BODY: Option<Text> = text("body", &BODY).optional("it is empty", "The body."),
    FILE: Option<Text> = text("file", &super::dns::FILE).optional(
        "`body` has the body",
        "A file of text with the body, at most 1 MiB. `equipoise reload` reads it again.",
    ),
    CONTENT_TYPE: Text = text("content-type", &CONTENT_TYPE).default(
        "text/plain; charset=utf-8",
        "`Content-Type` of the body.",
    ),
}

options! {
    RouteRewrite: "[session.route.rewrite]",
    "Changes path and host of requests before their action. The query stays.";

    PREFIX: Option<Text> = text("prefix", &PREFIX).optional(
        "no prefix is replaced",
        "Replaces the longest `path-prefix` that was met; \"/\" removes it. Without `path-prefix` it comes before the \
         path.",
    ),
    REGEX: Option<Parsed<Expression>> = parsed("regex", &REGEX).optional(
        "nothing is replaced",
        "Replaces the first match of this regular expression in the path by `to`.",
    ),
    TO: Option<Text> = text("to", &REPLACEMENT).optional(
        "needed with `regex`",
        "The replacement. `${1}` is the first group of `regex`.",
    ),
    HOST: Option<Text> = text("host", &super::forms::HOST).optional(
        "the client's",
        "`Host` of the request. `X-Forwarded-Host` has the client's.",
    ),
}

options! {
    RequestHeaders: "[session.route.request-headers]", "Changes the headers that backends receive.";

    HeaderEdits::SET,
    HeaderEdits::ADD,
    HeaderEdits::REMOVE,
}

options! {
    ResponseHeaders: "[session.route.response-headers]",
    "Changes the headers that clients receive, in answers of the proxy, too.";

    HeaderEdits::SET,
    HeaderEdits::ADD,
    HeaderEdits::REMOVE,
}

shared_options! {
    HeaderEdits in RequestHeaders ResponseHeaders;

    SET: Each<HeaderLine> = each("set", &HEADER_LINE).default(
        &[],
        "Headers in the place of those with their name.",
    ),
    ADD: Each<HeaderLine> = each("add", &HEADER_LINE).default(
        &[],
        "Headers beside those with their name.",
    ),
    REMOVE: Texts = texts("remove", &HEADER_NAME).default(
        &[],
        "Names of headers that are removed.",
    ),
}
pub(super) static RETRY_FAILURE: TypedForm<RetryFailure> = TypedForm::new(
    "a failure to retry after",
    "\"connect\", \"reset\", \"grpc-cancelled\", \"grpc-deadline-exceeded\", \"grpc-internal\", \
               \"grpc-resource-exhausted\", \"grpc-unavailable\", a status or two with `-` between them, such as \
               \"502-504\"",
);

static HOST: TypedForm<HostCondition> = TypedForm::new(
    "a host",
    "a host name, a wildcard or an IPv6 address in brackets, without a port, such as \"www.example.com\" or \
               \"*.example.com\"",
);

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

static REGEX: TypedForm<Expression> = TypedForm::new(
    "a regular expression",
    "the syntax of Rust's regex crate, which is that of RE2, such as \"^/user/[0-9]+$\"",
);

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

static STICKY: TypedForm<StickyTo> = TypedForm::new(
    "what requests of one pool share",
    "\"source\", \"header:NAME\" or \"cookie:NAME\"",
);

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

static HEADER_LINE: TypedForm<HeaderLine> = TypedForm::new(
    "a header",
    "\"NAME: VALUE\", such as \"X-Frame-Options: DENY\"; not a header that the proxy writes itself \
               (Connection, Content-Length, Expect, Host, Keep-Alive, Strict-Transport-Security, TE, Trailer, \
               Transfer-Encoding, Upgrade, Via, Forwarded, X-Forwarded-*, X-Real-IP)",
);

static HEADER_NAME: Form = Form {
    noun: "a header",
    accepted: "NAME, such as \"Server\"; not a header that the proxy writes itself (Connection, Content-Length, Host, ...)",
    fits: |text| !text.contains(':') && reads_as::<HeaderLine>(&format!("{text}: x")),
};
