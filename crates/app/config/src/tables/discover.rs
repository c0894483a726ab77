//! Options of `[pool.discover]`.

use std::net::SocketAddr;

use super::super::option::{Choices, Form, Kind, Opt, Table, reads_as};
use super::cluster::PATH as FILE_PATH;
use super::driver::URL;
use super::etcd::{MEMBER, WORD};
use super::{DAY, HOUR, LABEL, etcd, ms, secs};

pub(super) static DISCOVER: Table = Table {
    title: "[pool.discover]",
    help: "The pool's backends come from a source, in addition to the listed ones. Set one of `file`, \
           `dns`, `http`, `etcd`, `consul` and `kubernetes`. If the source fails, the last good set stays.",
    options: &[
        Opt::optional("file", Kind::Table(&FILE), "another table states the source", FILE.help),
        Opt::optional("dns", Kind::Table(&DNS), "another table states the source", DNS.help),
        Opt::optional("http", Kind::Table(&HTTP), "another table states the source", HTTP.help),
        Opt::optional("etcd", Kind::Table(&ETCD), "another table states the source", ETCD.help),
        Opt::optional(
            "consul",
            Kind::Table(&CONSUL),
            "another table states the source",
            CONSUL.help,
        ),
        Opt::optional(
            "kubernetes",
            Kind::Table(&KUBERNETES),
            "another table states the source",
            KUBERNETES.help,
        ),
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

static HTTP: Table = Table {
    title: "[pool.discover.http]",
    help: "A URL with a list of backends, which is requested again and again.",
    options: &[
        Opt::required(
            "url",
            Kind::Text(&URL),
            "The URL, which answers 200 with JSON: `{\"backends\": [...]}`, or that of Prometheus' http_sd. At most 4 MiB.",
        ),
        Opt::default(
            "interval",
            Kind::Duration(ms(500), HOUR),
            "\"10s\"",
            "Time between requests.",
        ),
        TOKEN_FILE,
        CA,
    ],
};

static ETCD: Table = Table {
    title: "[pool.discover.etcd]",
    help: "The keys below a prefix in etcd, which is watched. Each value is a backend.",
    options: &[
        Opt::required("members", Kind::Texts(&MEMBER), "URLs of members of the etcd cluster."),
        Opt::required(
            "prefix",
            Kind::Text(&PREFIX),
            "The prefix, without the final `/`: a backend's key is PREFIX/NAME, and its value an address, or a table in \
             JSON like those of `backends`.",
        ),
        etcd::AUTHORITY,
        etcd::CERTIFICATE,
        etcd::KEY,
        etcd::SERVER_NAME,
        etcd::USER,
        etcd::PASSWORD_FILE,
    ],
};

static CONSUL: Table = Table {
    title: "[pool.discover.consul]",
    help: "The instances of a service in Consul that pass their checks, by blocking queries.",
    options: &[
        Opt::required("service", Kind::Text(&WORD), "The service's name."),
        Opt::default("url", Kind::Text(&URL), "\"http://127.0.0.1:8500\"", "URL of the agent."),
        Opt::optional("tag", Kind::Text(&WORD), "any", "A tag that an instance must have."),
        Opt::optional("datacenter", Kind::Text(&WORD), "the agent's", "The datacenter."),
        Opt::optional(
            "token-file",
            Kind::Text(&FILE_PATH),
            "none is sent",
            "File with the token that is sent. The token needs `service:read` and `node:read`.",
        ),
        CA,
    ],
};

static KUBERNETES: Table = Table {
    title: "[pool.discover.kubernetes]",
    help: "The ready endpoints of a service in Kubernetes: its EndpointSlices, which are watched. Without further options \
           it uses the service account of the pod in which it runs.",
    options: &[
        Opt::required("service", Kind::Text(&LABEL_NAME), "The service's name."),
        Opt::default(
            "namespace",
            Kind::Text(&LABEL_NAME),
            "\"default\"",
            "The service's namespace.",
        ),
        Opt::optional(
            "port",
            Kind::Text(&WORD),
            "the only one",
            "Name or number of the endpoints' port (the service's `targetPort`), such as \"http\" or \"8080\".",
        ),
        Opt::default(
            "url",
            Kind::Text(&URL),
            "\"https://kubernetes.default.svc\"",
            "URL of the API server.",
        ),
        Opt::default(
            "token-file",
            Kind::Text(&FILE_PATH),
            "\"/var/run/secrets/kubernetes.io/serviceaccount/token\"",
            "File with the bearer token that is sent. The token needs `get`, `list` and `watch` of `endpointslices`.",
        ),
        Opt::default(
            "ca",
            Kind::Text(&FILE_PATH),
            "\"/var/run/secrets/kubernetes.io/serviceaccount/ca.crt\"",
            "A PEM file of trusted certificates.",
        ),
    ],
};

const TOKEN_FILE: Opt = Opt::optional(
    "token-file",
    Kind::Text(&FILE_PATH),
    "none is sent",
    "File with the bearer token that is sent.",
);

const CA: Opt = Opt::optional(
    "ca",
    Kind::Text(&FILE_PATH),
    "the system's",
    "A PEM file of trusted certificates.",
);

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

static LABEL_NAME: Form = Form {
    noun: "a name of Kubernetes",
    accepted: "1 to 63 lower-case letters, digits and `-`, such as \"web\"",
    fits: |text| {
        let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        (1..=63).contains(&text.len())
            && text.bytes().all(fits)
            && !text.starts_with('-')
            && !text.ends_with('-')
    },
};

static PREFIX: Form = Form {
    noun: "a prefix of keys",
    accepted: "words of letters, digits and `. _ : @ + -` with `/` between them, such as \"services/web\"",
    fits: |text| {
        let is_word = |word: &str| {
            !word.is_empty()
                && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:@+-".contains(&b))
        };
        text.len() <= 256 && text.split('/').all(is_word)
    },
};

static SERVER: Form = Form {
    noun: "a DNS server",
    accepted: "IP:PORT, such as \"10.0.0.53:53\"",
    fits: reads_as::<SocketAddr>,
};
