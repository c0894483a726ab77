//! Options of `[cluster]`.

use std::net::SocketAddr;

use equipoise_cluster::{ControllerAddress, JoinToken};

use super::NAME;
use super::etcd::{self, Etcd};
use super::forms::LISTEN;
use super::planning::FOLDER;
use crate::key::{Each, In, Parsed, Text, Texts, each, options, parsed, table, text, texts};
use crate::option::{Form, TypedForm};

options! {
    Cluster: "[cluster]",
    "Several machines as one. Controllers have `store`; nodes and agents have `controllers`. docs/cluster.md sets one up.";

    NAME: Text = text("name", &NAME).default(
        "equipoise",
        "On controllers: the cluster's name, as `equipoise cluster init` recorded it.",
    ),
    LISTEN: Parsed<SocketAddr> = parsed("listen", &LISTEN).default(
        "0.0.0.0:9911",
        "On controllers: the address for nodes. TLS, with certificates of the cluster's own authority.",
    ),
    ADVERTISE: Option<Texts> = texts("advertise", &HOST_NAME).optional(
        "the address of `listen` and the host name; on nodes, the address from which it reaches controllers",
        "Names and addresses of this machine for others. A controller's certificate is for these; on nodes, the \
         addresses are those that `[[packet]]` and pools of other machines may have as backends.",
    ),
    STORE: Option<In<Store>> = table("store").unless("this is not a controller"),
    CONTROLLERS: Option<Each<ControllerAddress>> =
        each("controllers", &CONTROLLER_ADDRESS).optional(
            "this is not a node",
            "On nodes: the addresses of all controllers. Each gets this node's reports; one gives it instructions, \
         another when that fails.",
        ),
    JOIN_TOKEN: Option<Parsed<JoinToken>> = parsed("join-token", &TOKEN).optional(
        "this node has joined before",
        "On nodes: the output of `equipoise cluster token create`. `join-token-file` keeps it out of this file.",
    ),
    JOIN_TOKEN_FILE: Option<Text> = text("join-token-file", &PATH).optional(
        "this node has joined before",
        "On nodes: a file with the token, read at each attempt to join; it is not needed afterwards.",
    ),
    STATE: Text = text("state", &FOLDER).default(
        "/var/lib/equipoise/cluster",
        "Folder of this machine's certificates and keys.",
    ),
}

options! {
    Store: "[cluster.store]",
    "On controllers: their common storage. Only controllers use it. Without `etcd` it is a file of this machine, \
     and this is the only controller.";

    ETCD: Option<Texts> = texts("etcd", &etcd::MEMBER).optional(
        "a file of this machine, in the folder `[controller] state`",
        "Members of an etcd cluster.",
    ),
    NAMESPACE: Text = text("namespace", &NAME).default(
        "equipoise",
        "Folder of etcd for all keys, so that several clusters may share one etcd.",
    ),
    Etcd::AUTHORITY,
    Etcd::CERTIFICATE,
    Etcd::KEY,
    Etcd::SERVER_NAME,
    Etcd::USER,
    Etcd::PASSWORD_FILE,
}

pub(super) static HOST_NAME: Form = Form {
    noun: "a host name or address",
    accepted: "a host name or an IP address without a port, such as \"c1.example.com\" or \"10.0.0.1\"",
    fits: |text| {
        let is_name = |text: &str| {
            let fits = |b: u8| b.is_ascii_alphanumeric() || b".-".contains(&b);
            !text.starts_with(['.', '-']) && text.bytes().all(fits)
        };
        (1..=253).contains(&text.len())
            && (is_name(text) || text.parse::<std::net::IpAddr>().is_ok())
    },
};

static CONTROLLER_ADDRESS: TypedForm<ControllerAddress> = TypedForm::new(
    "a controller's address",
    "HOST:PORT, such as \"c1.example.com:9911\" or \"10.0.0.1:9911\"",
);

static TOKEN: TypedForm<JoinToken> = TypedForm::new(
    "a join token",
    "the line that `equipoise cluster token create` prints, eqp1.ID.SECRET.FINGERPRINT",
);

pub(super) static PATH: Form = Form {
    noun: "a path",
    accepted: "the path of a file, such as \"/etc/equipoise/join-token\"",
    fits: |text| !text.is_empty() && text.len() <= 4000 && !text.contains('\0'),
};
