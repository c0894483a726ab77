//! Options of `[pool.discover]`.

use std::net::SocketAddr;

use super::super::option::{Choices, Form, Kind, Opt, Table, reads_as};
use super::{DAY, HOUR, LABEL, ms, secs};

pub(super) static DISCOVER: Table = Table {
    title: "[pool.discover]",
    help: "The pool's backends come from a source, in addition to the listed ones. Set one of `file` and `dns`. If the \
           source fails, the last good set stays.",
    options: &[
        Opt::optional("file", Kind::Table(&FILE), "another table states the source", FILE.help),
        Opt::optional("dns", Kind::Table(&DNS), "another table states the source", DNS.help),
        Opt::default(
            "labels",
            Kind::Texts(&LABEL),
            "[]",
            "Labels that a backend must have; others are left out.",
        ),
        Opt::default(
            "backends-max",
            Kind::Count(1, 10_000),
            "1000",
            "Largest number of backends. A larger set is an error of the source.",
        ),
        Opt::optional(
            "empty-after",
            Kind::Duration(secs(0), DAY),
            "the last backends stay for as long as the source reports none",
            "Time for which the source must report no backend until the last ones are removed. \"0s\": at once.",
        ),
    ],
};

static FILE: Table = Table {
    title: "[pool.discover.file]",
    help: "A file with a list of backends, which is read when it changes.",
    options: &[Opt::required(
        "path",
        Kind::Text(&PATH),
        "The file: `{\"backends\": [...]}` in JSON, or in TOML if its name ends with `.toml`; or the JSON of Prometheus' \
         file_sd. At most 4 MiB. Rename a new file into its place.",
    )],
};

static DNS: Table = Table {
    title: "[pool.discover.dns]",
    help: "The records of a name, which are looked up again when they expire.",
    options: &[
        Opt::required("name", Kind::Text(&NAME), "The name, such as \"app.internal\"."),
        Opt::default(
            "type",
            Kind::Choice(&RECORDS),
            "\"addresses\"",
            "The records that are looked up.",
        ),
        Opt::optional(
            "port",
            Kind::Count(1, 65_535),
            "SRV records have the port; required for other types",
            "The port of each address.",
        ),
        Opt::optional(
            "servers",
            Kind::Texts(&SERVER),
            "the servers and the search list of `/etc/resolv.conf`",
            "Servers to ask.",
        ),
        Opt::default(
            "ttl-min",
            Kind::Duration(ms(100), HOUR),
            "\"1s\"",
            "Shortest time between two lookups. Records with a smaller TTL are looked up after this time.",
        ),
        Opt::default(
            "ttl-max",
            Kind::Duration(secs(1), DAY),
            "\"5m\"",
            "Longest time between two lookups. Records with a larger TTL are looked up after this time.",
        ),
    ],
};

/// `[pool.discover.dns] type`.
pub(in super::super) static RECORDS: Choices<RecordType> = Choices(&[
    ("addresses", RecordType::Addresses, "A and AAAA; each address is a backend"),
    ("a", RecordType::V4, "A; each address is a backend"),
    ("aaaa", RecordType::V6, "AAAA; each address is a backend"),
    (
        "srv",
        RecordType::Srv,
        "SRV; the targets with the best priority serve by their weights, and the others are backups",
    ),
]);

/// Types of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum RecordType {
    Addresses,
    V4,
    V6,
    Srv,
}

static PATH: Form = Form {
    noun: "a path of a file",
    accepted: "an absolute path, such as \"/etc/equipoise/web.json\"",
    fits: |text| {
        text.starts_with('/') && !text.ends_with('/') && text.len() <= 4000 && !text.contains('\0')
    },
};

static NAME: Form = Form {
    noun: "a domain name",
    accepted: "labels of at most 63 letters, digits, `-` and `_` with dots between them, such as \"_http._tcp.app.internal\"",
    fits: |text| {
        let labels = text.strip_suffix('.').unwrap_or(text);
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
        };
        text.len() <= 253 && labels.split('.').all(is_label)
    },
};

static SERVER: Form = Form {
    noun: "a DNS server",
    accepted: "IP:PORT, such as \"10.0.0.53:53\"",
    fits: reads_as::<SocketAddr>,
};
