//! Options of the affinity of clients to backends.

use std::time::Duration;

use crate::key::{OneOf, Text, choice, duration, options, text};
use crate::option::{Choice, Choices, Form, TypedForm};
use crate::text::HashedBy;

options! {
    Sticky: "[pool.sticky]",
    "A cookie that brings a client back to its backend while that can be picked and has room. Otherwise the \
     scheduler picks, and the response has a new cookie.";

    COOKIE: Text = text("cookie", &COOKIE).default("equipoise", "Name of the cookie."),
    PATH: Text = text("path", &COOKIE_PATH).default("/", "The cookie is for URLs below this path."),
    MAX_AGE: Option<Duration> =
        duration("max-age", Duration::from_secs(1), Duration::from_secs(400 * 86_400)).optional(
            "until the browser ends",
            "How long browsers keep the cookie after the response that sets it.",
        ),
    SAME_SITE: OneOf<SameSite> = choice("same-site").default(
        &SameSite::Lax,
        "Requests of other sites that have the cookie.",
    ),
    SECRET: Option<Text> = text("secret", &super::dispatch::SECRET_FILE).optional(
        "clients can verify a guess of a backend's address",
        "A file with a secret of 16 characters or more, the same on all balancers of the pool, from which the \
         cookie's values are made.",
    ),
}

/// Requests of other sites that have the cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SameSite {
    Lax,
    Strict,
    None,
}

impl Choice for SameSite {
    const CHOICES: &'static Choices<SameSite> = &Choices(&[
        ("lax", SameSite::Lax, "links and other safe requests"),
        ("strict", SameSite::Strict, "none"),
        ("none", SameSite::None, "all; browsers accept it only over https"),
    ]);
}

pub(super) static HASHED_BY: TypedForm<HashedBy> = TypedForm::new(
    "a part of requests",
    "\"source\", \"header:NAME\", \"cookie:NAME\" or \"query:NAME\"",
);

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
