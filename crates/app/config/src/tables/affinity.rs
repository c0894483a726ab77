//! Options of the affinity of clients to backends.

use std::time::Duration;

use super::super::option::{Choices, Form, Kind, Opt, Table, reads_as};
use super::super::text::HashedBy;

pub(super) const HASH_BY: Opt = Opt::default(
    "hash-by",
    Kind::Text(&HASHED_BY),
    "\"source\"",
    "Scheduler source-hash: the part of requests that is hashed, so that requests with the same value go to the same \
     backend: the client's address (\"source\"), a header (\"header:NAME\"), a cookie of the application \
     (\"cookie:NAME\") or a parameter of the query (\"query:NAME\"). Without it, the client's address.",
)
.http_only();

pub(super) const STICKY: Opt = Opt::optional(
    "sticky",
    Kind::Table(&STICKY_TABLE),
    "the scheduler picks for each request",
    STICKY_TABLE.help,
)
.http_only();

static STICKY_TABLE: Table = Table {
    title: "[pool.sticky]",
    help: "A cookie that brings a client back to its backend while that can be picked and has room. Otherwise the \
           scheduler picks, and the response has a new cookie.",
    options: &[
        Opt::default("cookie", Kind::Text(&COOKIE), "\"equipoise\"", "Name of the cookie."),
        Opt::default(
            "path",
            Kind::Text(&COOKIE_PATH),
            "\"/\"",
            "The cookie is for URLs below this path.",
        ),
        Opt::optional(
            "max-age",
            Kind::Duration(Duration::from_secs(1), Duration::from_secs(400 * 86_400)),
            "until the browser ends",
            "How long browsers keep the cookie after the response that sets it.",
        ),
        Opt::default(
            "same-site",
            Kind::Choice(&SAME_SITE),
            "\"lax\"",
            "Requests of other sites that have the cookie.",
        ),
        Opt::optional(
            "secret",
            Kind::Text(&super::dispatch::SECRET_FILE),
            "clients can verify a guess of a backend's address",
            "A file with a secret of 16 characters or more, the same on all balancers of the pool, from which the \
             cookie's values are made.",
        ),
    ],
};

/// `[pool.sticky] same-site`.
pub(in super::super) static SAME_SITE: Choices<&str> = Choices(&[
    ("lax", "Lax", "links and other safe requests"),
    ("strict", "Strict", "none"),
    ("none", "None", "all; browsers accept it only over https"),
]);

static HASHED_BY: Form = Form {
    noun: "a part of requests",
    accepted: "\"source\", \"header:NAME\", \"cookie:NAME\" or \"query:NAME\"",
    fits: reads_as::<HashedBy>,
};

static COOKIE: Form = Form {
    noun: "a name of a cookie",
    accepted: "1 to 64 letters, digits, `.`, `_` and `-`",
    fits: |text| {
        (1..=64).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    },
};

static COOKIE_PATH: Form = Form {
    noun: "a path of a cookie",
    accepted: "a path of visible characters without `;`, such as \"/app\"",
    fits: |text| {
        text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';')
    },
};
