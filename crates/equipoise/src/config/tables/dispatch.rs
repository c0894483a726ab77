//! The dispatch level's options.

use equipoise_core::Weight;
use equipoise_core::load::RequestClass;

use super::super::option::{Choices, Form, Kind, Opt, Table};
use super::super::peer_tls::PeerTlsMode;
use super::{LISTEN, NAME, REMOTE_ADDRESS, door, ms, secs};

pub(super) static DISPATCH: Table = Table {
    title: "[[dispatch]]",
    help: "The dispatch level: a front door (HTTP) of this node, which has its local application do requests, or hands them to a peer. How much it keeps and who takes the rest is planned in a cluster, and stated here otherwise. At most one table.",
    options: &[
        Opt::optional(
            "name",
            Kind::Text(&NAME),
            "`dispatch:` and the address",
            "What metrics and logs call it. Unique.",
        ),
        Opt::required(
            "listen",
            Kind::Text(&LISTEN),
            "Where clients and peers reach this node. Port 0: any free port.",
        ),
        Opt::required(
            "pool",
            Kind::Text(&NAME),
            "The `name` of the pool with the local application. The peers are a pool of their own, with `.peers` behind this name.",
        ),
        Opt::default(
            "peers",
            Kind::Tables(&PEER),
            "[]",
            "The other nodes. Who is called as this instance is left out, so that all nodes can have the same list. In a cluster, without this: the nodes that the controller knows.",
        ),
        Opt::optional(
            "secret",
            Kind::Text(&SECRET_FILE),
            "the cluster's own; without a cluster nothing is delegated",
            "A file with a secret that all nodes share, 16 bytes or more, by which a node knows what a peer has delegated. Several lines are several secrets: the first is used, all are known, so that it can be changed node by node.",
        ),
        Opt::optional(
            "peer-tls",
            Kind::Choice(&PEER_TLS),
            "\"required\" in a cluster or with `tls`, else \"off\"",
            "Whether what goes between this node and its peers is encrypted (TLS 1.3, both sides show certificates).",
        ),
        Opt::optional(
            "tls",
            Kind::Table(&PEER_CERTIFICATE),
            "the certificate that this node has of its cluster",
            PEER_CERTIFICATE.help,
        ),
        Opt::default(
            "keep",
            Kind::Share,
            "1.0",
            "While nothing is planned: the share of requests that this node does itself; `light` ones all. The peers share the rest by their weights.",
        ),
        Opt::default("class", Kind::Tables(&CLASS_RULE), "[]", CLASS_RULE.help),
        Opt::default(
            "peer-connect-timeout",
            Kind::Duration(ms(10), secs(60)),
            "\"500ms\"",
            "To open a session to a peer, before TLS's handshake, which may take 5 s. Then the request is done here.",
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
        door::VIA,
        door::ACCESS_LOG,
    ],
};

static PEER: Table = Table {
    title: "[[dispatch.peers]]",
    help: "Another node.",
    options: &[
        Opt::required("node", Kind::Text(&NAME), "What it calls itself: its `instance.name`."),
        Opt::required(
            "address",
            Kind::Text(&REMOTE_ADDRESS),
            "Where its [[dispatch]] listens. A host name stands for all its addresses: connections go to the first that accepts them.",
        ),
        Opt::default(
            "weight",
            Kind::Count(0, Weight::MAX as u64),
            "1",
            "While nothing is planned: its share of what is not kept. 0: it gets nothing.",
        ),
    ],
};

static PEER_CERTIFICATE: Table = Table {
    title: "[dispatch.tls]",
    help: "Files (PEM) by which nodes without a cluster know each other. They are read again at a reload.",
    options: &[
        Opt::required(
            "certificate",
            Kind::Text(&PEM_FILE),
            "This node's certificate, then those between it and the authority. One of its DNS names or addresses is `instance.name`, as peers call this node; no wildcards. If it has an extended key usage, `clientAuth` is in it.",
        ),
        Opt::required("key", Kind::Text(&PEM_FILE), "Its private key."),
        Opt::required(
            "authority",
            Kind::Text(&PEM_FILE),
            "The certificate of the authority that signs for all nodes. Several are all believed, so that one can take the other's place.",
        ),
    ],
};

/// `[[dispatch]] peer-tls`.
pub(in super::super) static PEER_TLS: Choices<PeerTlsMode> = Choices(&[
    (
        "required",
        PeerTlsMode::Required,
        "requests are delegated encrypted, to the node that the certificate names, and believed to be delegated only so",
    ),
    (
        "accepted",
        PeerTlsMode::Accepted,
        "requests are delegated in the clear, and believed either way: while nodes change from \"off\" (or from version 0.1.0 without encryption) to \"required\" one by one",
    ),
    (
        "off",
        PeerTlsMode::Off,
        "requests are delegated in the clear: the network between nodes is to be trusted",
    ),
]);

static CLASS_RULE: Table = Table {
    title: "[[dispatch.class]]",
    help: "Which requests are of which class. The first table that fits a request in everything that it says decides; what none fits is a small transfer.",
    options: &[
        Opt::required("class", Kind::Choice(&CLASS), "What fitting requests are."),
        Opt::default("methods", Kind::Texts(&METHOD), "[]", "Methods. None: any."),
        Opt::default(
            "paths",
            Kind::Texts(&PATH),
            "[]",
            "What the path in normal form begins with. None: any.",
        ),
        Opt::optional(
            "body-min",
            Kind::Size(1, 1 << 50),
            "any length",
            "Bytes of the request's body at least. A body whose length is not known before its end fits.",
        ),
    ],
};

/// `[[dispatch.class]] class`.
pub(in super::super) static CLASS: Choices<RequestClass> = Choices(&[
    ("light", RequestClass::Light, "costs next to nothing and must be fast; never delegated"),
    ("small-transfer", RequestClass::SmallTransfer, "a few kilobytes"),
    ("large-transfer", RequestClass::LargeTransfer, "bound by the network"),
    ("computing", RequestClass::Computing, "bound by the CPU"),
]);

static SECRET_FILE: Form = Form {
    noun: "a path to a file",
    accepted: "a path with a `/` in it, such as \"/etc/equipoise/dispatch.secret\"",
    fits: |text| text.contains('/') && !text.ends_with('/'),
};

static PEM_FILE: Form = Form {
    noun: "a path to a file",
    accepted: "a path with a `/` in it, such as \"/etc/equipoise/node.pem\"",
    fits: SECRET_FILE.fits,
};

static METHOD: Form = Form {
    noun: "a method",
    accepted: "a method as requests have it, such as \"GET\"",
    fits: |text| (1..=32).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_uppercase()),
};

static PATH: Form = Form {
    noun: "the beginning of a path",
    accepted: "a path that begins with `/`, without spaces or `#`, such as \"/render/\"",
    fits: |text| text.starts_with('/') && text.bytes().all(|b| b.is_ascii_graphic() && b != b'#'),
};
