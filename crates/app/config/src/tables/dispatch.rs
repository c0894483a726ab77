//! The dispatch level's options.

use equipoise_core::Weight;
use equipoise_core::load::RequestClass;

use super::super::option::{Choices, Form, Kind, Opt, Table};
use super::{LISTEN, NAME, REMOTE_ADDRESS, door, ms, secs};

pub(super) static DISPATCH: Table = Table {
    title: "[[dispatch]]",
    help: "The dispatch level: a front door (HTTP) of this node, which serves requests with its local application or \
           delegates them to a peer. In a cluster the shares are planned; otherwise they are configured here. At most \
           one table.",
    options: &[
        Opt::optional(
            "name",
            Kind::Text(&NAME),
            "`dispatch:` and the address",
            "Name in metrics and logs. Unique.",
        ),
        Opt::required(
            "listen",
            Kind::Text(&LISTEN),
            "Address for clients and peers. Port 0: any free port.",
        ),
        Opt::required(
            "pool",
            Kind::Text(&NAME),
            "The `name` of the pool with the local application. The peers are another pool, with `.peers` after this \
             name.",
        ),
        Opt::default(
            "peers",
            Kind::Tables(&PEER),
            "[]",
            "The other nodes. A node with the name of this instance is left out, so that all nodes can have the same \
             list. Without this option in a cluster: the nodes that the controller knows.",
        ),
        Opt::optional(
            "secret",
            Kind::Text(&SECRET_FILE),
            "the cluster's own; without a cluster, nothing is delegated",
            "A file with a secret that all nodes share, 16 bytes or more, by which a node recognises delegated \
             requests. Several lines are several secrets: the first is used, and all are accepted, so that the secret \
             can be changed node by node.",
        ),
        Opt::optional(
            "peer-tls",
            Kind::Choice(&PEER_TLS),
            "\"required\" in a cluster or with `tls`, else \"off\"",
            "Whether traffic between this node and its peers is encrypted (TLS 1.3, with certificates on both sides).",
        ),
        Opt::optional(
            "tls",
            Kind::Table(&PEER_CERTIFICATE),
            "this node's certificate of the cluster",
            PEER_CERTIFICATE.help,
        ),
        Opt::default(
            "keep",
            Kind::Share,
            "1.0",
            "Without a plan: share of requests that this node serves itself; it serves all `light` ones. The peers \
             share the rest by their weights.",
        ),
        Opt::default("class", Kind::Tables(&CLASS_RULE), "[]", CLASS_RULE.help),
        Opt::default(
            "peer-connect-timeout",
            Kind::Duration(ms(10), secs(60)),
            "\"500ms\"",
            "Longest time to open a session to a peer, without the TLS handshake, which may take 5 s. After it, the \
             request is served here.",
        ),
        door::HEAD_MAX,
        door::HEADERS_MAX,
        door::BODY_MAX,
        door::CONNECTIONS_MAX,
        door::PRIORITY,
        door::HEADER_TIMEOUT,
        door::IDLE_TIMEOUT,
        door::REQUEST_TIMEOUT,
        door::TRUSTED,
        door::FORWARDED,
        door::UNDERSCORES,
        door::UPGRADES,
        door::HTTP2,
        door::STREAMS_MAX,
        door::VIA,
        door::ACCESS_LOG,
    ],
};

static PEER: Table = Table {
    title: "[[dispatch.peers]]",
    help: "Another node.",
    options: &[
        Opt::required("node", Kind::Text(&NAME), "Its name: its `instance.name`."),
        Opt::required(
            "address",
            Kind::Text(&REMOTE_ADDRESS),
            "Address of its [[dispatch]] table. A host name stands for all its addresses: connections go to the first \
             that accepts them.",
        ),
        Opt::default(
            "weight",
            Kind::Count(0, Weight::MAX as u64),
            "1",
            "Without a plan: its share of the requests that this node does not serve. 0: it gets nothing.",
        ),
    ],
};

static PEER_CERTIFICATE: Table = Table {
    title: "[dispatch.tls]",
    help: "Files (PEM) by which nodes without a cluster authenticate each other. A reload reads them again.",
    options: &[
        Opt::required(
            "certificate",
            Kind::Text(&PEM_FILE),
            "This node's certificate, then those between it and the authority. One of its DNS names or addresses is \
             `instance.name`, by which peers call this node; no wildcards. If it has an extended key usage, it \
             includes `clientAuth`.",
        ),
        Opt::required("key", Kind::Text(&PEM_FILE), "Its private key."),
        Opt::required(
            "authority",
            Kind::Text(&PEM_FILE),
            "The certificate of the authority that signs for all nodes. With several, all are accepted, so that one \
             can replace another.",
        ),
    ],
};

/// `[[dispatch]] peer-tls`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerTlsMode {
    Required,
    Accepted,
    Off,
}

/// `[[dispatch]] peer-tls`.
pub(crate) static PEER_TLS: Choices<PeerTlsMode> = Choices(&[
    (
        "required",
        PeerTlsMode::Required,
        "requests are delegated with encryption, to the node that the certificate names, and accepted as delegated \
         only with encryption",
    ),
    (
        "accepted",
        PeerTlsMode::Accepted,
        "requests are delegated without encryption, and accepted both ways: while nodes change from \"off\" (or from \
         version 0.1.0 without encryption) to \"required\" one by one",
    ),
    (
        "off",
        PeerTlsMode::Off,
        "requests are delegated without encryption: the network between nodes must be trusted",
    ),
]);

static CLASS_RULE: Table = Table {
    title: "[[dispatch.class]]",
    help: "Classes of requests. The first table of which all conditions fit a request decides. A request that fits no \
           table is a small transfer.",
    options: &[
        Opt::required("class", Kind::Choice(&CLASS), "Class of fitting requests."),
        Opt::default("methods", Kind::Texts(&METHOD), "[]", "Methods. None: any."),
        Opt::default(
            "paths",
            Kind::Texts(&PATH),
            "[]",
            "Prefixes of the path in normal form. None: any.",
        ),
        Opt::optional(
            "body-min",
            Kind::Size(1, 1 << 50),
            "any length",
            "Smallest size of the request's body. A body of unknown length fits.",
        ),
    ],
};

/// `[[dispatch.class]] class`.
pub(crate) static CLASS: Choices<RequestClass> = Choices(&[
    ("light", RequestClass::Light, "costs very little and must be fast; never delegated"),
    ("small-transfer", RequestClass::SmallTransfer, "a few kilobytes"),
    ("large-transfer", RequestClass::LargeTransfer, "bound by the network"),
    ("computing", RequestClass::Computing, "bound by the CPU"),
]);

pub(super) static SECRET_FILE: Form = Form {
    noun: "a path to a file",
    accepted: "a path with a `/` in it, such as \"/etc/equipoise/dispatch.secret\"",
    fits: |text| text.contains('/') && !text.ends_with('/'),
};

pub(super) static PEM_FILE: Form = Form {
    noun: "a path to a file",
    accepted: "a path with a `/` in it, such as \"/etc/equipoise/node.pem\"",
    fits: SECRET_FILE.fits,
};

static METHOD: Form = Form {
    noun: "a method",
    accepted: "a method as in requests, such as \"GET\"",
    fits: |text| (1..=32).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_uppercase()),
};

static PATH: Form = Form {
    noun: "the beginning of a path",
    accepted: "a path that begins with `/`, without spaces or `#`, such as \"/render/\"",
    fits: |text| text.starts_with('/') && text.bytes().all(|b| b.is_ascii_graphic() && b != b'#'),
};
