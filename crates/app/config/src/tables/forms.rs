//! The forms of texts: names, addresses, paths.

use std::net::SocketAddr;

use equipoise_core::{BackendAddress, LogField};

use super::super::option::{Form, reads_as};
use super::super::text::{AccessLog, Listen, StatusRange, StatusRanges};

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

pub(super) static LISTEN: Form = Form {
    noun: "an address to listen on",
    accepted: "IP:PORT, such as \"0.0.0.0:80\" or \"[::]:80\"",
    fits: reads_as::<SocketAddr>,
};

pub(super) static LISTEN_AT: Form = Form {
    noun: "an address to listen on",
    accepted: "IP:PORT or *:PORT, such as \"0.0.0.0:80\", \"[::]:80\" or \"*:80\"",
    fits: reads_as::<Listen>,
};

pub(super) static BACKEND_ADDRESS: Form = Form {
    noun: "a backend's address",
    accepted: "IP:PORT, HOST:PORT or unix:PATH, such as \"10.0.0.11:8080\", \"[2001:db8::1]:8080\", \"web.internal:8080\" or \"unix:/run/app.sock\"",
    fits: reads_as::<BackendAddress>,
};

/// The form of another machine's address.
pub(super) static REMOTE_ADDRESS: Form = Form {
    noun: "a node's address",
    accepted: "IP:PORT or HOST:PORT, such as \"10.0.0.11:80\", \"[2001:db8::1]:80\" or \"n2.internal:80\"",
    fits: |text| reads_as::<BackendAddress>(text) && !text.starts_with("unix:"),
};

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

pub(super) static STATUSES: Form = Form {
    noun: "statuses",
    accepted: "statuses, and ranges of two with `-` between them, 100 to 599, with `,` between the parts, such as \"200-299\" or \"200-299,401\"",
    fits: reads_as::<StatusRanges>,
};

pub(super) static BODY_TEXT: Form = Form {
    noun: "a text",
    accepted: "1 to 1024 bytes of text, such as \"ready\"",
    fits: |text| (1..=1024).contains(&text.len()),
};

pub(super) static STATUS: Form = Form {
    noun: "a range of statuses",
    accepted: "a status or two with `-` between them, 100 to 599, such as \"200-299\"",
    fits: reads_as::<StatusRange>,
};

pub(super) static ACCESS_LOG: Form = Form {
    noun: "a place for the access log",
    accepted: "\"stderr\", \"stdout\", a path with a `/` in it, such as \"/var/log/equipoise/access.log\", \"syslog\" \
               (/dev/log), \"syslog:/PATH\" of a socket or \"syslog:IP:PORT\" (UDP)",
    fits: reads_as::<AccessLog>,
};

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
