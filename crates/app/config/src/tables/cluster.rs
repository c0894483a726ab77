//! Options of `[cluster]`.

use equipoise_cluster::{ControllerAddress, JoinToken};

use super::super::option::{Form, Kind, Opt, Table, reads_as};
use super::{FOLDER, NAME, etcd};

pub(super) static CLUSTER: Table = Table {
    title: "[cluster]",
    help: "Several machines as one. Controllers have `store`; nodes and agents have `controllers`. docs/cluster.md sets one up.",
    options: &[
        Opt::default(
            "name",
            Kind::Text(&NAME),
            "\"equipoise\"",
            "On controllers: the cluster's name, as `equipoise cluster init` recorded it.",
        ),
        Opt::default(
            "listen",
            Kind::Text(&super::LISTEN),
            "\"0.0.0.0:9911\"",
            "On controllers: the address for nodes. TLS, with certificates of the cluster's own authority.",
        ),
        Opt::optional(
            "advertise",
            Kind::Texts(&HOST_NAME),
            "the address of `listen` and the host name; on nodes, the address from which it reaches controllers",
            "Names and addresses of this machine for others. A controller's certificate is for these; on nodes, the \
             addresses are those that `[[packet]]` and pools of other machines may have as backends.",
        ),
        Opt::optional("store", Kind::Table(&STORE), "this is not a controller", STORE.help),
        Opt::optional(
            "controllers",
            Kind::Texts(&CONTROLLER_ADDRESS),
            "this is not a node",
            "On nodes: the addresses of all controllers. Each gets this node's reports; one gives it instructions, \
             another when that fails.",
        ),
        Opt::optional(
            "join-token",
            Kind::Text(&TOKEN),
            "this node has joined before",
            "On nodes: the output of `equipoise cluster token create`. `join-token-file` keeps it out of this file.",
        ),
        Opt::optional(
            "join-token-file",
            Kind::Text(&PATH),
            "this node has joined before",
            "On nodes: a file with the token, read at each attempt to join; it is not needed afterwards.",
        ),
        Opt::default(
            "state",
            Kind::Text(&FOLDER),
            "\"/var/lib/equipoise/cluster\"",
            "Folder of this machine's certificates and keys.",
        ),
    ],
};

static STORE: Table = Table {
    title: "[cluster.store]",
    help: "On controllers: their common storage. Only controllers use it. Without `etcd` it is a file of this machine, \
           and this is the only controller.",
    options: &[
        Opt::optional(
            "etcd",
            Kind::Texts(&etcd::MEMBER),
            "a file of this machine, in the folder `[controller] state`",
            "Members of an etcd cluster.",
        ),
        Opt::default(
            "namespace",
            Kind::Text(&NAME),
            "\"equipoise\"",
            "Folder of etcd for all keys, so that several clusters may share one etcd.",
        ),
        etcd::AUTHORITY,
        etcd::CERTIFICATE,
        etcd::KEY,
        etcd::SERVER_NAME,
        etcd::USER,
        etcd::PASSWORD_FILE,
    ],
};

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

static CONTROLLER_ADDRESS: Form = Form {
    noun: "a controller's address",
    accepted: "HOST:PORT, such as \"c1.example.com:9911\" or \"10.0.0.1:9911\"",
    fits: reads_as::<ControllerAddress>,
};

static TOKEN: Form = Form {
    noun: "a join token",
    accepted: "the line that `equipoise cluster token create` prints, eqp1.ID.SECRET.FINGERPRINT",
    fits: reads_as::<JoinToken>,
};

pub(super) static PATH: Form = Form {
    noun: "a path",
    accepted: "the path of a file, such as \"/etc/equipoise/join-token\"",
    fits: |text| !text.is_empty() && text.len() <= 4000 && !text.contains('\0'),
};
