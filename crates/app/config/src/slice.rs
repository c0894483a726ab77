//! Builds the slice level's configuration: `[[slice]]`.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use equipoise_slice::balance::Policy;
use equipoise_slice::{CheckpointConfig, Config as Protocol, Order};

use super::problem::Findings;
use super::tables::{Balancing, Checkpoint, Cluster, File, Slice, Workers};
use super::text::show_duration;
use super::view::View;
use super::{FileKind, Multicast, Surroundings};

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
pub(super) fn config(file: View<'_, File>, around: &Surroundings<'_>) -> Vec<SliceStream> {
    file.get(File::SLICE).iter().filter_map(|slice| stream(slice, around)).collect()
}

fn stream(slice: View<'_, Slice>, around: &Surroundings<'_>) -> Option<SliceStream> {
    let balancing = slice.get(Slice::BALANCING);
    let workers = slice.get(Slice::WORKERS);
    Some(SliceStream {
        name: slice.get(Slice::NAME)?.to_string(),
        slices: slice.get(Slice::SLICES)?,
        domain: slice.get(Slice::DOMAIN),
        items: slice.get(Slice::ITEMS).to_string(),
        replies: slice.get(Slice::REPLIES).to_string(),
        item_type: slice.get(Slice::ITEM_TYPE).to_string(),
        reply_type: slice.get(Slice::REPLY_TYPE).to_string(),
        own: match slice.get(Slice::KEY) {
            // If the IDL cannot be read, `check` has reported an error.
            Some(key) => Some(SliceType { key: key.to_string(), idl: idl(slice, around).ok()? }),
            None => None,
        },
        control: slice.get(Slice::CONTROL).to_string(),
        network: SliceNetwork {
            interfaces: slice.get(Slice::INTERFACES).to_vec(),
            peers: slice.get(Slice::PEERS).to_vec(),
            multicast: slice.get(Slice::MULTICAST),
            lease: slice.get(Slice::LEASE),
            more: slice.get(Slice::MORE).map(str::to_string),
        },
        protocol: Protocol {
            order: slice.get(Slice::ORDER),
            lease: workers.get(Workers::LEASE),
            margin: workers.get(Workers::MARGIN),
            recovery: workers.get(Workers::RECOVERY),
            patience: workers.get(Workers::PATIENCE),
            standby: slice.get(Slice::STANDBY),
            checkpoint: slice.get(Slice::CHECKPOINT).map(|checkpoint| CheckpointConfig {
                every: checkpoint.get(Checkpoint::EVERY),
                items: checkpoint.get(Checkpoint::ITEMS),
                folder: checkpoint.given(Checkpoint::FOLDER),
            }),
            ..Protocol::default()
        },
        checkpoint_folder: slice
            .get(Slice::CHECKPOINT)
            .and_then(|checkpoint| checkpoint.get(Checkpoint::FOLDER))
            .map(PathBuf::from),
        policy: Policy {
            smoothing: balancing.get(Balancing::SMOOTHING),
            queue_horizon: balancing.get(Balancing::QUEUE_HORIZON),
            stuck: balancing.get(Balancing::STUCK),
            begin: balancing.get(Balancing::BEGIN),
            stop: balancing.get(Balancing::STOP),
            share_max: balancing.get(Balancing::SHARE_MAX),
            batch_max: balancing.get(Balancing::BATCH_MAX),
            first_batch_max: balancing.get(Balancing::FIRST_BATCH_MAX),
            cool_down: balancing.get(Balancing::COOL_DOWN),
            hot: balancing.get(Balancing::HOT),
        },
        round: balancing.get(Balancing::EVERY),
        controller_lease: workers.get(Workers::CONTROLLER_LEASE),
        connection_port: workers
            .get(Workers::CONNECTIONS)
            .then(|| workers.get(Workers::CONNECTION_PORT)),
    })
}

/// The concatenated IDL of a table. The error names the file.
fn idl(slice: View<'_, Slice>, around: &Surroundings<'_>) -> Result<String, String> {
    let mut whole = String::new();
    for text in slice.get(Slice::IDL) {
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
fn own_type(slice: View<'_, Slice>, around: &Surroundings<'_>, findings: &mut Findings<'_>) {
    let given = !slice.get(Slice::IDL).is_empty();
    let wrong = match (slice.get(Slice::KEY), given) {
        (None, false) => return,
        (None, true) => Err("has no effect without `key`: accepted: `key = \"FIELD\"`, the field that decides an item's slice".into()),
        (Some(_), false) => Err("needs `idl`, which declares the type that `item-type` names: accepted: `idl = [\"FILE\"]`".into()),
        (Some(key), true) => idl(slice, around).and_then(|idl| declared(slice, &idl, key)),
    };
    if let Err(text) = wrong {
        let option = if given { Slice::IDL.any() } else { Slice::KEY.any() };
        findings.error(slice.at(option), &slice.path_of(option), text);
    }
}

#[cfg(feature = "slice")]
fn declared(slice: View<'_, Slice>, idl: &str, key: &str) -> Result<(), String> {
    let own = equipoise_slice_dds::OwnType { idl: idl.to_string(), key: key.to_string() };
    let (item, reply) = (slice.get(Slice::ITEM_TYPE), slice.get(Slice::REPLY_TYPE));
    own.check(item, reply).map_err(|error| error.to_string())
}

/// A build without DDS refuses every `[[slice]]` table elsewhere.
#[cfg(not(feature = "slice"))]
fn declared(_: View<'_, Slice>, _: &str, _: &str) -> Result<(), String> {
    Ok(())
}

/// Checks slice tables against each other and against the rest of the file.
pub(super) fn check(file: View<'_, File>, around: &Surroundings<'_>, findings: &mut Findings<'_>) {
    let mut topics: BTreeMap<(u32, &str, &str), usize> = BTreeMap::new();
    let mut domains: BTreeMap<u32, View<'_, Slice>> = BTreeMap::new();
    for slice in file.get(File::SLICE) {
        let domain = slice.get(Slice::DOMAIN);
        for option in [Slice::ITEMS, Slice::CONTROL] {
            let topic = slice.get(option);
            let first = *topics.entry((domain, option.name(), topic)).or_insert(slice.start());
            if first != slice.start() {
                let line = findings.line(first);
                let text = format!(
                    "\"{topic}\" is that of the stream on line {line}, in the same domain; accepted: another topic, or another domain"
                );
                findings.error(slice.at(option), &slice.path_of(option), text);
            }
        }
        one_network(slice, *domains.entry(domain).or_insert(slice), findings);
        security(slice, around, findings);
        own_type(slice, around, findings);
        balancing(slice, findings);
        leases(slice, findings);
        checkpoint(slice, findings);
    }
    let Some(first) = file.get(File::SLICE).first() else { return };
    if file.get(File::CLUSTER).is_some_and(|cluster| cluster.given(Cluster::CONTROLLERS)) {
        let text = "has no effect on a node of a cluster: slices are moved by its controllers; move the table to their files";
        findings.warning(first.start(), first.path(), text.to_string());
    }
}

/// Checks that streams of one domain have the same DDS settings: a process has one set for each
/// domain.
fn one_network(slice: View<'_, Slice>, first: View<'_, Slice>, findings: &mut Findings<'_>) {
    let differs = |key| slice.get(key) != first.get(key);
    let options = [
        (Slice::INTERFACES.any(), differs(Slice::INTERFACES)),
        (Slice::PEERS.any(), differs(Slice::PEERS)),
        (Slice::MULTICAST.any(), slice.get(Slice::MULTICAST) != first.get(Slice::MULTICAST)),
        (Slice::LEASE.any(), slice.get(Slice::LEASE) != first.get(Slice::LEASE)),
        (Slice::MORE.any(), slice.get(Slice::MORE) != first.get(Slice::MORE)),
    ];
    for (option, is_other) in options {
        if is_other {
            let line = findings.line(first.start());
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
fn security(slice: View<'_, Slice>, around: &Surroundings<'_>, findings: &mut Findings<'_>) {
    let Some(more) = slice.get(Slice::MORE) else { return };
    let mut texts = vec![more.to_string()];
    for path in more.split(',').filter_map(|part| part.trim().strip_prefix("file://")) {
        match (around.read)(Path::new(path), FileKind::DdsSettings) {
            Ok(text) => texts.push(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let text = format!("\"{path}\" cannot be read: {error}");
                findings.error(slice.at(Slice::MORE), &slice.path_of(Slice::MORE), text);
            }
        }
    }
    let asked = texts.iter().any(|xml| asks_for_security(xml));
    if asked && !cfg!(feature = "dds-security") {
        let text = "asks for DDS Security, which this equipoise was built without: nothing would be protected; accepted: an \
                    equipoise that was built with `--features dds-security`, or a configuration without it";
        findings.error(slice.at(Slice::MORE), &slice.path_of(Slice::MORE), text.to_string());
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
fn leases(slice: View<'_, Slice>, findings: &mut Findings<'_>) {
    let workers = slice.get(Slice::WORKERS);
    let (lease, silence) =
        (slice.get(Slice::LEASE), workers.get(Workers::LEASE) + workers.get(Workers::MARGIN));
    if lease > silence {
        let text = format!(
            "`lease` ({}) is longer than `workers.lease` and `workers.margin` ({}): when a worker dies, clients may \
             wait for it after its slices have moved to others",
            show_duration(lease),
            show_duration(silence)
        );
        findings.warning(slice.at(Slice::LEASE), &slice.path_of(Slice::LEASE), text);
    }
}

/// Refuses checkpoints where no state moves with slices.
fn checkpoint(slice: View<'_, Slice>, findings: &mut Findings<'_>) {
    if slice.get(Slice::CHECKPOINT).is_some() && slice.get(Slice::ORDER) != Order::Stateful {
        let text = "saves the state of slices, which workers export with `order = \"stateful\"` only; accepted: that \
                    order, or no `checkpoint`";
        findings.error(
            slice.at(Slice::CHECKPOINT),
            &slice.path_of(Slice::CHECKPOINT),
            text.to_string(),
        );
    }
}

fn balancing(slice: View<'_, Slice>, findings: &mut Findings<'_>) {
    let balancing = slice.get(Slice::BALANCING);
    let (begin, stop) = (balancing.get(Balancing::BEGIN), balancing.get(Balancing::STOP));
    if stop > begin {
        let option =
            if balancing.given(Balancing::STOP) { Balancing::STOP } else { Balancing::BEGIN };
        let text =
            format!("`stop` ({stop}) is above `begin` ({begin}); accepted: as large or smaller");
        findings.error(balancing.at(option), &balancing.path_of(option), text);
    }
}
