//! The configuration of planning.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use equipoise_driver::{DriverOptions, Limits};
use equipoise_planner::Policy;
use equipoise_planner::elastic::Elasticity;

/// Configuration of planning: load, elastic pools, names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Planning {
    /// `[load]`.
    pub policy: Policy,
    /// `[load] capacity-max`, in cores.
    pub capacity_max: Option<f64>,
    /// `[[load.links]]`: link speeds in bits per second, by interface.
    pub link_speeds: BTreeMap<String, u64>,
    /// `[controller] state`; `None` means the default folder of this user.
    pub state: Option<PathBuf>,
    /// `[pool.elastic]`, by pool.
    pub elastic: BTreeMap<String, Elasticity>,
    /// Drivers of elastic pools, by pool.
    pub makers: BTreeMap<String, Maker>,
    /// On a controller: `[pool.elastic]` tables for nodes, by pool.
    pub declared: BTreeMap<String, Declaration>,
    /// On a node: elastic pools that the controllers declare. They are in neither `elastic` nor
    /// `makers`.
    pub awaited: BTreeSet<String>,
    /// `[[pool.backends]] node`, by pool and backend.
    pub machines: BTreeMap<(String, String), String>,
    /// `[[dns]] shares = "load"`, by zone.
    pub names: NamesByLoad,
}

/// For each zone (with its final dot): the cluster member of each backend, by pool and backend
/// name.
pub type NamesByLoad = BTreeMap<String, BTreeMap<(String, String), String>>;

/// The driver of an elastic pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Maker {
    /// The kind of driver, with its options.
    pub driver: DriverOptions,
    /// Bounds on number and speed. `max` is the pool's; listed backends are not subtracted yet.
    pub limits: Limits,
}

/// A `[pool.elastic]` table that a controller declares for nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Declaration {
    /// TOML text of a configuration file with this pool's name and its `[pool.elastic]` only. The
    /// text names files with secrets; each node reads its own.
    pub text: String,
    /// Limits for the driver of each node.
    pub limits: Limits,
}
