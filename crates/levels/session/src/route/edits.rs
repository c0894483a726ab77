//! Changes of header fields.

use std::sync::Arc;

/// Changes of the header of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edits {
    /// Names of fields that the message must not keep.
    drop: Arc<[Box<str>]>,
    /// Lines that it gets, each with its end.
    lines: Arc<str>,
}

impl Edits {
    /// `set` replaces fields, `add` adds to them, `remove` drops them. Names and values must be
    /// valid.
    pub fn new(set: &[(String, String)], add: &[(String, String)], remove: &[String]) -> Edits {
        let lines = set.iter().chain(add).map(|(name, value)| format!("{name}: {value}\r\n"));
        let drop = set.iter().map(|(name, _)| name).chain(remove);
        Edits {
            lines: lines.collect::<String>().into(),
            drop: drop.map(|name| name.as_str().into()).collect(),
        }
    }

    /// Whether fields of this name are dropped.
    pub(crate) fn drops(&self, name: &str) -> bool {
        self.drop.iter().any(|known| known.eq_ignore_ascii_case(name))
    }

    /// The lines that are added.
    pub(crate) fn lines(&self) -> &[u8] {
        self.lines.as_bytes()
    }
}

/// Headers that protect browsers, in responses in which the backend has none of the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecurityHeaders {
    /// For almost every application.
    Basic,
    /// For an application that loads everything from its own origin.
    Strict,
}

impl SecurityHeaders {
    /// Names and values.
    pub const fn fields(self) -> &'static [(&'static str, &'static str)] {
        match self {
            SecurityHeaders::Basic => &[
                ("X-Content-Type-Options", "nosniff"),
                ("X-Frame-Options", "SAMEORIGIN"),
                ("Referrer-Policy", "strict-origin-when-cross-origin"),
            ],
            SecurityHeaders::Strict => &[
                ("X-Content-Type-Options", "nosniff"),
                ("X-Frame-Options", "DENY"),
                ("Referrer-Policy", "no-referrer"),
                (
                    "Content-Security-Policy",
                    "default-src 'self'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'; object-src 'none'",
                ),
                ("Cross-Origin-Opener-Policy", "same-origin"),
                ("Cross-Origin-Resource-Policy", "same-origin"),
                ("Permissions-Policy", "camera=(), geolocation=(), microphone=()"),
            ],
        }
    }
}
