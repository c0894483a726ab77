//! Builds the slice level's configuration: `[[slice]]`.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use equipoise_slice::balance::Policy;
use equipoise_slice::{CheckpointConfig, Config as Protocol, Order};

use super::problem::Findings;
use super::text::show_duration;
use super::values::{Values, chosen};
use super::{FileKind, Multicast, Surroundings, tables};

/// One stream of the slice level.
#[derive(Clone, Debug, PartialEq)]
pub struct SliceStream {
    /// Name of the stream, for operators, metrics and the store.
    pub name: String,
    /// Number of slices.
    pub slices: u32,
    /// The DDS domain.
    pub domain: u32,
    /// The topic of items.
    pub items: String,
    /// The topic of replies.
    pub replies: String,
    /// DDS type name of items.
    pub item_type: String,
    /// DDS type name of replies.
    pub reply_type: String,
    /// The clients' own item type, if they do not use the built-in one.
    pub own: Option<SliceType>,
    /// Prefix of the topics between workers and controllers.
    pub control: String,
    /// DDS settings of the domain.
    pub network: SliceNetwork,
    /// Timeouts and limits of the protocol; workers have the same.
    pub protocol: Protocol,
    /// Folder of checkpoints, for several streams.
    pub checkpoint_folder: Option<PathBuf>,
    /// Balancing policy.
    pub policy: Policy,
    /// Interval between balancing rounds.
    pub round: Duration,
    /// Time after which a lost leader is replaced.
    pub controller_lease: Duration,
    /// Port of workers' connections; 0 means any free port. `None`: workers do not connect.
    pub connection_port: Option<u16>,
}

/// An item type that the clients define.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceType {
    /// Field that selects the slice, by a hash of its value.
    pub key: String,
    /// IDL with the declaration of the type.
    pub idl: String,
}

/// DDS settings of a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceNetwork {
    /// Names or addresses of interfaces. Empty: Cyclone DDS chooses one.
    pub interfaces: Vec<String>,
    /// Hosts for unicast discovery.
    pub peers: Vec<String>,
    /// Use of multicast.
    pub multicast: Multicast,
    /// Silence after which DDS takes a participant for dead.
    pub lease: Duration,
    /// Further Cyclone DDS configuration: XML, or `file://PATH`.
    pub more: Option<String>,
}

/// Builds the streams.
pub(super) fn config(file: &Values, around: &Surroundings<'_>) -> Vec<SliceStream> {
    file.tables("slice").iter().filter_map(|slice| stream(slice, around)).collect()
}

fn stream(slice: &Values, around: &Surroundings<'_>) -> Option<SliceStream> {
    let balancing = slice.table("balancing").expect("has a default: a test reads every one");
    let workers = slice.table("workers").expect("has a default: a test reads every one");
    let texts = |name: &str| slice.texts(name).unwrap_or_default().to_vec();
    let topic = |name: &str| slice.text(name).map(str::to_string);
    Some(SliceStream {
        name: slice.text("name")?.to_string(),
        slices: slice.number("slices")?.try_into().ok()?,
        domain: slice.amount("domain"),
        items: topic("items")?,
        replies: topic("replies")?,
        item_type: topic("item-type")?,
        reply_type: topic("reply-type")?,
        own: match slice.text("key") {
            // If the IDL cannot be read, `check` has reported an error.
            Some(key) => Some(SliceType { key: key.to_string(), idl: idl(slice, around).ok()? }),
            None => None,
        },
        control: topic("control")?,
        network: SliceNetwork {
            interfaces: texts("interfaces"),
            peers: texts("peers"),
            multicast: chosen(slice, "multicast", &tables::MULTICAST),
            lease: slice.duration("lease"),
            more: slice.text("more").map(str::to_string),
        },
        protocol: Protocol {
            order: chosen(slice, "order", &tables::SLICE_ORDER),
            lease: workers.duration("lease"),
            margin: workers.duration("margin"),
            recovery: workers.duration("recovery"),
            patience: workers.duration("patience"),
            standby: slice.flag("standby"),
            checkpoint: slice.table("checkpoint").map(|checkpoint| CheckpointConfig {
                every: checkpoint.duration("every"),
                items: checkpoint.amount("items"),
                folder: checkpoint.given("folder"),
            }),
            ..Protocol::default()
        },
        checkpoint_folder: slice
            .table("checkpoint")
            .and_then(|checkpoint| checkpoint.text("folder"))
            .map(PathBuf::from),
        policy: Policy {
            smoothing: balancing.duration("smoothing"),
            queue_horizon: balancing.duration("queue-horizon"),
            stuck: balancing.duration("stuck"),
            begin: balancing.share("begin"),
            stop: balancing.share("stop"),
            share_max: balancing.share("share-max"),
            batch_max: balancing.amount("batch-max"),
            first_batch_max: balancing.amount("first-batch-max"),
            cool_down: balancing.duration("cool-down"),
            hot: balancing.share("hot"),
        },
        round: balancing.duration("every"),
        controller_lease: workers.duration("controller-lease"),
        connection_port: workers.flag("connections").then(|| workers.amount("connection-port")),
    })
}

/// The concatenated IDL of a table. The error names the file.
fn idl(slice: &Values, around: &Surroundings<'_>) -> Result<String, String> {
    let mut whole = String::new();
    for text in slice.texts("idl").unwrap_or_default() {
        if text.contains('{') {
            whole.push_str(text);
        } else {
            let read = (around.read)(Path::new(text), FileKind::Idl);
            whole.push_str(&read.map_err(|error| format!("\"{text}\" cannot be read: {error}"))?);
        }
        whole.push('\n');
    }
    Ok(whole)
}

/// Refuses a key or an item type that is invalid.
fn own_type(slice: &Values, around: &Surroundings<'_>, findings: &mut Findings<'_>) {
    let given = !slice.texts("idl").unwrap_or_default().is_empty();
    let wrong = match (slice.text("key"), given) {
        (None, false) => return,
        (None, true) => Err("has no effect without `key`: accepted: `key = \"FIELD\"`, the field that decides an item's slice".into()),
        (Some(_), false) => Err("needs `idl`, which declares the type that `item-type` names: accepted: `idl = [\"FILE\"]`".into()),
        (Some(key), true) => idl(slice, around).and_then(|idl| declared(slice, &idl, key)),
    };
    if let Err(text) = wrong {
        let option = if given { "idl" } else { "key" };
        findings.error(slice.at(option), &slice.path_of(option), text);
    }
}

#[cfg(feature = "slice")]
fn declared(slice: &Values, idl: &str, key: &str) -> Result<(), String> {
    let name = |option: &str| slice.text(option).unwrap_or_default().to_string();
    let own = equipoise_slice_dds::OwnType { idl: idl.to_string(), key: key.to_string() };
    own.check(&name("item-type"), &name("reply-type")).map_err(|error| error.to_string())
}

/// A build without DDS refuses every `[[slice]]` table elsewhere.
#[cfg(not(feature = "slice"))]
fn declared(_: &Values, _: &str, _: &str) -> Result<(), String> {
    Ok(())
}

/// Checks slice tables against each other and against the rest of the file.
pub(super) fn check(file: &Values, around: &Surroundings<'_>, findings: &mut Findings<'_>) {
    let mut topics: BTreeMap<(u64, &str, &str), usize> = BTreeMap::new();
    let mut domains: BTreeMap<u64, &Values> = BTreeMap::new();
    for slice in file.tables("slice") {
        let domain = slice.number("domain").unwrap_or_default();
        for option in ["items", "control"] {
            let Some(topic) = slice.text(option) else { continue };
            let first = *topics.entry((domain, option, topic)).or_insert(slice.at);
            if first != slice.at {
                let line = findings.line(first);
                let text = format!(
                    "\"{topic}\" is that of the stream on line {line}, in the same domain; accepted: another topic, or another domain"
                );
                findings.error(slice.at(option), &slice.path_of(option), text);
            }
        }
        one_network(slice, domains.entry(domain).or_insert(slice), findings);
        security(slice, around, findings);
        own_type(slice, around, findings);
        balancing(slice, findings);
        leases(slice, findings);
        checkpoint(slice, findings);
    }
    let Some(first) = file.tables("slice").first() else { return };
    let node = file.table("cluster").filter(|cluster| cluster.given("controllers"));
    if node.is_some() {
        let text = "has no effect on a node of a cluster: slices are moved by its controllers; move the table to their files";
        findings.warning(first.at, &first.path, text.to_string());
    }
}

/// Checks that streams of one domain have the same DDS settings: a process has one set for each
/// domain.
fn one_network(slice: &Values, first: &Values, findings: &mut Findings<'_>) {
    let same = |option: &str| match option {
        "lease" => slice.duration(option) == first.duration(option),
        "multicast" | "more" => slice.text(option) == first.text(option),
        _ => slice.texts(option) == first.texts(option),
    };
    for option in ["interfaces", "peers", "multicast", "lease", "more"] {
        if !same(option) {
            let line = findings.line(first.at);
            let text = format!(
                "differs from that of the stream on line {line}, in the same domain, and a process has one set of DDS \
                 settings for each domain; accepted: the same, or another domain"
            );
            findings.error(slice.at(option), &slice.path_of(option), text);
        }
    }
}

/// Refuses DDS Security settings that this build does not support, and settings files that cannot
/// be read in time. DDS itself reports a missing file at start.
fn security(slice: &Values, around: &Surroundings<'_>, findings: &mut Findings<'_>) {
    let Some(more) = slice.text("more") else { return };
    let mut texts = vec![more.to_string()];
    for path in more.split(',').filter_map(|part| part.trim().strip_prefix("file://")) {
        match (around.read)(Path::new(path), FileKind::DdsSettings) {
            Ok(text) => texts.push(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let text = format!("\"{path}\" cannot be read: {error}");
                findings.error(slice.at("more"), &slice.path_of("more"), text);
            }
        }
    }
    let asked = texts.iter().any(|xml| asks_for_security(xml));
    if asked && !cfg!(feature = "dds-security") {
        let text = "asks for DDS Security, which this equipoise was built without: nothing would be protected; accepted: an \
                    equipoise that was built with `--features dds-security`, or a configuration without it";
        findings.error(slice.at("more"), &slice.path_of("more"), text.to_string());
    }
}

/// Whether a Cyclone DDS configuration asks for DDS Security. The DDS wrapper has the same check,
/// but it is not in every build.
fn asks_for_security(xml: &str) -> bool {
    let xml = xml.to_ascii_lowercase();
    xml.contains("<security") || xml.contains("<ddssecurity")
}

/// Warns of a DDS lease that is longer than the worker's: writers of clients wait for a dead worker
/// until its DDS lease expires.
fn leases(slice: &Values, findings: &mut Findings<'_>) {
    let Some(workers) = slice.table("workers") else { return };
    let (lease, silence) =
        (slice.duration("lease"), workers.duration("lease") + workers.duration("margin"));
    if lease > silence {
        let text = format!(
            "`lease` ({}) is longer than `workers.lease` and `workers.margin` ({}): when a worker dies, clients may \
             wait for it after its slices have moved to others",
            show_duration(lease),
            show_duration(silence)
        );
        findings.warning(slice.at("lease"), &slice.path_of("lease"), text);
    }
}

/// Refuses checkpoints where no state moves with slices.
fn checkpoint(slice: &Values, findings: &mut Findings<'_>) {
    let order = chosen(slice, "order", &tables::SLICE_ORDER);
    if slice.table("checkpoint").is_some() && order != Order::Stateful {
        let text = "saves the state of slices, which workers export with `order = \"stateful\"` only; accepted: that \
                    order, or no `checkpoint`";
        findings.error(slice.at("checkpoint"), &slice.path_of("checkpoint"), text.to_string());
    }
}

fn balancing(slice: &Values, findings: &mut Findings<'_>) {
    let Some(balancing) = slice.table("balancing") else { return };
    let (begin, stop) = (balancing.share("begin"), balancing.share("stop"));
    if stop > begin {
        let option = if balancing.given("stop") { "stop" } else { "begin" };
        let text =
            format!("`stop` ({stop}) is above `begin` ({begin}); accepted: as large or smaller");
        findings.error(balancing.at(option), &balancing.path_of(option), text);
    }
}
