//! Options of `[pool.discover]`.

use std::net::SocketAddr;
use std::time::Duration;

use super::cluster::PATH as FILE_PATH;
use super::driver::URL;
use super::etcd::{Etcd, MEMBER, WORD};
use super::forms::LABEL;
use super::{DAY, HOUR, ms, secs};
use crate::key::{
    Count, Each, In, OneOf, Text, Texts, choice, count, duration, each, options, shared_options,
    table, text, texts,
};
use crate::option::{Choice, Choices, Form, TypedForm};

shared_options! {
    HttpTrust in HttpSource ConsulSource;

    CA: Option<Text> = text("ca", &FILE_PATH).optional(
        "the system's",
        "A PEM file of trusted certificates.",
    ),
}

options! {
    Discover: "[pool.discover]",
    "The pool's backends come from a source, in addition to the listed ones. Set one of `file`, \
     `dns`, `http`, `etcd`, `consul` and `kubernetes`. If the source fails, the last good set stays.";

    FILE: Option<In<FileSource>> = table("file").unless("another table states the source"),
    DNS: Option<In<DnsSource>> = table("dns").unless("another table states the source"),
    HTTP: Option<In<HttpSource>> = table("http").unless("another table states the source"),
    ETCD: Option<In<EtcdSource>> = table("etcd").unless("another table states the source"),
    CONSUL: Option<In<ConsulSource>> = table("consul").unless("another table states the source"),
    KUBERNETES: Option<In<KubernetesSource>> = table("kubernetes").unless(
        "another table states the source",
    ),
    LABELS: Texts = texts("labels", &LABEL).default(
        &[],
        "Labels that a backend must have; others are left out.",
    ),
    BACKENDS_MAX: Count<usize> = count("backends-max", 1, 10_000).default(
        1000,
        "Largest number of backends. A larger set is an error of the source.",
    ),
    EMPTY_AFTER: Option<Duration> = duration("empty-after", secs(0), DAY).optional(
        "the last backends stay for as long as the source reports none",
        "Time for which the source must report no backend until the last ones are removed. \"0s\": at once.",
    ),
}

options! {
    FileSource: "[pool.discover.file]",
    "A file with a list of backends, which is read when it changes.";

    PATH: Option<Text> = text("path", &PATH).required(
        "The file: `{\"backends\": [...]}` in JSON, or in TOML if its name ends with `.toml`; or the JSON of Prometheus' \
         file_sd. At most 4 MiB. Rename a new file into its place.",
    ),
}

options! {
    DnsSource: "[pool.discover.dns]",
    "The records of a name, which are looked up again when they expire.";

    NAME: Option<Text> = text("name", &NAME).required("The name, such as \"app.internal\"."),
    TYPE: OneOf<RecordType> = choice("type").default(
        &RecordType::Addresses,
        "The records that are looked up.",
    ),
    PORT: Option<Count<u16>> = count("port", 1, 65_535).optional(
        "SRV records have the port; required for other types",
        "The port of each address.",
    ),
    SERVERS: Option<Each<SocketAddr>> = each("servers", &SERVER).optional(
        "the servers and the search list of `/etc/resolv.conf`",
        "Servers to ask.",
    ),
    TTL_MIN: Duration = duration("ttl-min", ms(100), HOUR).default(
        secs(1),
        "Shortest time between two lookups. Records with a smaller TTL are looked up after this time.",
    ),
    TTL_MAX: Duration = duration("ttl-max", secs(1), DAY).default(
        secs(300),
        "Longest time between two lookups. Records with a larger TTL are looked up after this time.",
    ),
}

options! {
    HttpSource: "[pool.discover.http]",
    "A URL with a list of backends, which is requested again and again.";

    URL: Option<Text> = text("url", &URL).required(
        "The URL, which answers 200 with JSON: `{\"backends\": [...]}`, or that of Prometheus' http_sd. At most 4 MiB.",
    ),
    INTERVAL: Duration = duration("interval", ms(500), HOUR).default(
        secs(10),
        "Time between requests.",
    ),
    TOKEN_FILE: Option<Text> = text("token-file", &FILE_PATH).optional(
        "none is sent",
        "File with the bearer token that is sent.",
    ),
    HttpTrust::CA,
}

options! {
    EtcdSource: "[pool.discover.etcd]",
    "The keys below a prefix in etcd, which is watched. Each value is a backend.";

    MEMBERS: Option<Texts> = texts("members", &MEMBER).required(
        "URLs of members of the etcd cluster.",
    ),
    PREFIX: Option<Text> = text("prefix", &PREFIX).required(
        "The prefix, without the final `/`: a backend's key is PREFIX/NAME, and its value an address, or a table in \
         JSON like those of `backends`.",
    ),
    Etcd::AUTHORITY,
    Etcd::CERTIFICATE,
    Etcd::KEY,
    Etcd::SERVER_NAME,
    Etcd::USER,
    Etcd::PASSWORD_FILE,
}

options! {
    ConsulSource: "[pool.discover.consul]",
    "The instances of a service in Consul that pass their checks, by blocking queries.";

    SERVICE: Option<Text> = text("service", &WORD).required("The service's name."),
    URL: Text = text("url", &URL).default("http://127.0.0.1:8500", "URL of the agent."),
    TAG: Option<Text> = text("tag", &WORD).optional("any", "A tag that an instance must have."),
    DATACENTER: Option<Text> = text("datacenter", &WORD).optional("the agent's", "The datacenter."),
    TOKEN_FILE: Option<Text> = text("token-file", &FILE_PATH).optional(
        "none is sent",
        "File with the token that is sent. The token needs `service:read` and `node:read`.",
    ),
    HttpTrust::CA,
}

options! {
    KubernetesSource: "[pool.discover.kubernetes]",
    "The ready endpoints of a service in Kubernetes: its EndpointSlices, which are watched. Without further options \
     it uses the service account of the pod in which it runs.";

    SERVICE: Option<Text> = text("service", &LABEL_NAME).required("The service's name."),
    NAMESPACE: Text = text("namespace", &LABEL_NAME).default("default", "The service's namespace."),
    PORT: Option<Text> = text("port", &WORD).optional(
        "the only one",
        "Name or number of the endpoints' port (the service's `targetPort`), such as \"http\" or \"8080\".",
    ),
    URL: Text = text("url", &URL).default(
        "https://kubernetes.default.svc",
        "URL of the API server.",
    ),
    TOKEN_FILE: Text = text("token-file", &FILE_PATH).default(
        "/var/run/secrets/kubernetes.io/serviceaccount/token",
        "File with the bearer token that is sent. The token needs `get`, `list` and `watch` of `endpointslices`.",
    ),
    CA: Text = text("ca", &FILE_PATH).default(
        "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
        "A PEM file of trusted certificates.",
    ),
}

/// `[pool.discover.dns] type`.
impl Choice for RecordType {
    const CHOICES: &'static Choices<RecordType> = &Choices(&[
        ("addresses", RecordType::Addresses, "A and AAAA; each address is a backend"),
        ("a", RecordType::V4, "A; each address is a backend"),
        ("aaaa", RecordType::V6, "AAAA; each address is a backend"),
        (
            "srv",
            RecordType::Srv,
            "SRV; the targets with the best priority serve by their weights, and the others are backups",
        ),
    ]);
}

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

static SERVER: TypedForm<SocketAddr> =
    TypedForm::new("a DNS server", "IP:PORT, such as \"10.0.0.53:53\"");
