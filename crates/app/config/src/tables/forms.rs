//! The forms of texts: names, addresses, paths.

use std::net::SocketAddr;

use equipoise_core::{BackendAddress, LogField};

use crate::option::{Form, TypedForm, reads_as};
use crate::text::{AccessLog, Listen, StatusRange, StatusRanges};

pub(crate) static NAME: Form = Form {
    noun: "a name",
    accepted: "1 to 64 letters, digits, `.`, `_` and `-`, the first a letter or digit",
    fits: |text| {
        (1..=64).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    },
};

pub(super) static LABEL: Form = Form {
    noun: "a label",
    accepted: "KEY=VALUE, both of 1 to 63 letters, digits, `.`, `_` and `-`, such as \"region=eu\"",
    fits: |text| {
        let is_word = |word: &str| {
            (1..=63).contains(&word.len())
                && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        };
        text.split_once('=').is_some_and(|(key, value)| is_word(key) && is_word(value))
    },
};

pub(super) static LISTEN: TypedForm<SocketAddr> =
    TypedForm::new("an address to listen on", "IP:PORT, such as \"0.0.0.0:80\" or \"[::]:80\"");

pub(super) static LISTEN_AT: TypedForm<Listen> = TypedForm::new(
    "an address to listen on",
    "IP:PORT or *:PORT, such as \"0.0.0.0:80\", \"[::]:80\" or \"*:80\"",
);

pub(super) static BACKEND_ADDRESS: TypedForm<BackendAddress> = TypedForm::new(
    "a backend's address",
    "IP:PORT, HOST:PORT or unix:PATH, such as \"10.0.0.11:8080\", \"[2001:db8::1]:8080\", \"web.internal:8080\" or \"unix:/run/app.sock\"",
);

/// The form of another machine's address.
pub(super) static REMOTE_ADDRESS: TypedForm<BackendAddress> = TypedForm::some(
    "a node's address",
    "IP:PORT or HOST:PORT, such as \"10.0.0.11:80\", \"[2001:db8::1]:80\" or \"n2.internal:80\"",
    |text| reads_as::<BackendAddress>(text) && !text.starts_with("unix:"),
);

pub(super) static HTTP_PATH: Form = Form {
    noun: "a path",
    accepted: "a path that begins with `/`, without spaces or `#`, such as \"/healthz\"",
    fits: |text| text.starts_with('/') && text.bytes().all(|b| b.is_ascii_graphic() && b != b'#'),
};

pub(super) static GRPC_SERVICE: Form = Form {
    noun: "a service",
    accepted: "a service of gRPC, such as \"orders.v1.Orders\", or \"\"; at most 127 characters, letters, digits, \
               `.`, `_`, `-` and `/`",
    fits: |text| {
        text.len() <= 127 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-/".contains(&b))
    },
};

pub(super) static HOST: Form = Form {
    noun: "a host",
    accepted: "HOST or HOST:PORT, such as \"www.example.com\"",
    fits: |text| {
        (1..=255).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_:[]".contains(&b))
    },
};

pub(super) static STATUSES: TypedForm<StatusRanges> = TypedForm::new(
    "statuses",
    "statuses, and ranges of two with `-` between them, 100 to 599, with `,` between the parts, such as \"200-299\" or \"200-299,401\"",
);

pub(super) static BODY_TEXT: Form = Form {
    noun: "a text",
    accepted: "1 to 1024 bytes of text, such as \"ready\"",
    fits: |text| (1..=1024).contains(&text.len()),
};

pub(super) static STATUS: TypedForm<StatusRange> = TypedForm::new(
    "a range of statuses",
    "a status or two with `-` between them, 100 to 599, such as \"200-299\"",
);

pub(super) static ACCESS_LOG: TypedForm<AccessLog> = TypedForm::new(
    "a place for the access log",
    "\"stderr\", \"stdout\", a path with a `/` in it, such as \"/var/log/equipoise/access.log\", \"syslog\" \
               (/dev/log), \"syslog:/PATH\" of a socket or \"syslog:IP:PORT\" (UDP)",
);

pub(super) static COLLECTOR: Form = Form {
    noun: "a collector",
    accepted: "http://HOST[:PORT][/PATH] or https://HOST[:PORT][/PATH], such as \"http://127.0.0.1:4318\"",
    fits: |text| {
        let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        rest.is_some_and(|rest| {
            let host = rest.split('/').next().unwrap_or_default();
            (HOST.fits)(host)
                && rest.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#".contains(&byte))
        })
    },
};

pub(super) static LOG_FIELD: Form = Form {
    noun: "a field of the access log",
    accepted: "the fields in docs/operations/logs.md, such as \"client\" or \"route\"",
    fits: |text| LogField::named(text).is_some(),
};
