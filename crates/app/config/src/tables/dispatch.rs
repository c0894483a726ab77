//! The dispatch level's options.

use std::net::SocketAddr;
use std::time::Duration;

use equipoise_core::load::RequestClass;
use equipoise_core::{BackendAddress, Weight};

use super::door::Door;
use super::forms::{LISTEN, NAME, REMOTE_ADDRESS};
use super::{ms, secs};
use crate::key::{
    Count, In, List, OneOf, Options, Parsed, Size, Text, Texts, choice, count, duration, options,
    parsed, share, size, table, tables, text, texts,
};
use crate::option::{Choice, Choices, Form};

options! {
    Dispatch: "[[dispatch]]",
    "The dispatch level: a front door (HTTP) of this node, which serves requests with its local application or \
     delegates them to a peer. In a cluster the shares are planned; otherwise they are configured here. At most \
     one table.";

    NAME: Option<Text> = text("name", &NAME).optional(
        "`dispatch:` and the address",
        "Name in metrics and logs. Unique.",
    ),
    LISTEN: Option<Parsed<SocketAddr>> = parsed("listen", &LISTEN).required(
        "Address for clients and peers. Port 0: any free port.",
    ),
    POOL: Option<Text> = text("pool", &NAME).required(
        "The `name` of the pool with the local application. The peers are another pool, with `.peers` after this \
         name.",
    ),
    PEERS: List<Peer> = tables("peers").default(
        "The other nodes. A node with the name of this instance is left out, so that all nodes can have the same \
         list. Without this option in a cluster: the nodes that the controller knows.",
    ),
    SECRET: Option<Text> = text("secret", &SECRET_FILE).optional(
        "the cluster's own; without a cluster, nothing is delegated",
        "A file with a secret that all nodes share, 16 bytes or more, by which a node recognises delegated \
         requests. Several lines are several secrets: the first is used, and all are accepted, so that the secret \
         can be changed node by node.",
    ),
    PEER_TLS: Option<OneOf<PeerTlsMode>> = choice("peer-tls").optional(
        "\"required\" in a cluster or with `tls`, else \"off\"",
        "Whether traffic between this node and its peers is encrypted (TLS 1.3, with certificates on both sides).",
    ),
    TLS: Option<In<DispatchTls>> = table("tls").unless("this node's certificate of the cluster"),
    KEEP: f64 = share("keep").default(
        1.0,
        "Without a plan: share of requests that this node serves itself; it serves all `light` ones. The peers \
         share the rest by their weights.",
    ),
    CLASS: List<DispatchClass> = tables("class").default(DispatchClass::TABLE.help),
    PEER_CONNECT_TIMEOUT: Duration = duration("peer-connect-timeout", ms(10), secs(60)).default(
        ms(500),
        "Longest time to open a session to a peer, without the TLS handshake, which may take 5 s. After it, the \
         request is served here.",
    ),
    Door::HEAD_MAX,
    Door::HEADERS_MAX,
    Door::BODY_MAX,
    Door::CONNECTIONS_MAX,
    Door::PRIORITY,
    Door::HEADER_TIMEOUT,
    Door::IDLE_TIMEOUT,
    Door::REQUEST_TIMEOUT,
    Door::TRUSTED,
    Door::FORWARDED,
    Door::UNDERSCORES,
    Door::UPGRADES,
    Door::HTTP2,
    Door::STREAMS_MAX,
    Door::VIA,
    Door::ACCESS_LOG,
}

options! {
    Peer: "[[dispatch.peers]]", "Another node.";

    NODE: Option<Text> = text("node", &NAME).required("Its name: its `instance.name`."),
    ADDRESS: Option<Parsed<BackendAddress>> = parsed("address", &REMOTE_ADDRESS).required(
        "Address of its [[dispatch]] table. A host name stands for all its addresses: connections go to the first \
         that accepts them.",
    ),
    WEIGHT: Count<u16> = count("weight", 0, Weight::MAX as u64).default(
        1,
        "Without a plan: its share of the requests that this node does not serve. 0: it gets nothing.",
    ),
}

options! {
    DispatchTls: "[dispatch.tls]",
    "Files (PEM) by which nodes without a cluster authenticate each other. A reload reads them again.";

    CERTIFICATE: Option<Text> = text("certificate", &PEM_FILE).required(
        "This node's certificate, then those between it and the authority. One of its DNS names or addresses is \
         `instance.name`, by which peers call this node; no wildcards. If it has an extended key usage, it \
         includes `clientAuth`.",
    ),
    KEY: Option<Text> = text("key", &PEM_FILE).required("Its private key."),
    AUTHORITY: Option<Text> = text("authority", &PEM_FILE).required(
        "The certificate of the authority that signs for all nodes. With several, all are accepted, so that one \
         can replace another.",
    ),
}

/// `[[dispatch]] peer-tls`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerTlsMode {
    Required,
    Accepted,
    Off,
}

/// `[[dispatch]] peer-tls`.
impl Choice for PeerTlsMode {
    const CHOICES: &'static Choices<PeerTlsMode> = &Choices(&[
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
}

options! {
    DispatchClass: "[[dispatch.class]]",
    "Classes of requests. The first table of which all conditions fit a request decides. A request that fits no \
     table is a small transfer.";

    CLASS: Option<OneOf<RequestClass>> = choice("class").required("Class of fitting requests."),
    METHODS: Texts = texts("methods", &METHOD).default(&[], "Methods. None: any."),
    PATHS: Texts = texts("paths", &PATH).default(
        &[],
        "Prefixes of the path in normal form. None: any.",
    ),
    BODY_MIN: Option<Size<u64>> = size("body-min", 1, 1 << 50).optional(
        "any length",
        "Smallest size of the request's body. A body of unknown length fits.",
    ),
}

/// `[[dispatch.class]] class`.
impl Choice for RequestClass {
    const CHOICES: &'static Choices<RequestClass> = &Choices(&[
        ("light", RequestClass::Light, "costs very little and must be fast; never delegated"),
        ("small-transfer", RequestClass::SmallTransfer, "a few kilobytes"),
        ("large-transfer", RequestClass::LargeTransfer, "bound by the network"),
        ("computing", RequestClass::Computing, "bound by the CPU"),
    ]);
}

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
