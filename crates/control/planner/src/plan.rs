use std::collections::BTreeMap;
use std::fmt;

use equipoise_core::load::{PerClass, Resource};
use equipoise_core::{Generation, Weight};
use serde::{Deserialize, Serialize};

use crate::elastic::ScalingPlan;

/// Prepared instructions for every level, and the planner's whole memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Increases with every plan. An older plan never replaces a newer one.
    #[serde(with = "generation")]
    pub generation: Generation,
    /// Nodes by name.
    pub nodes: BTreeMap<String, NodePlan>,
    /// Names that the DNS level answers.
    pub names: BTreeMap<String, NamePlan>,
    /// The targets of delegated requests.
    pub dispatch: DispatchPlan,
    /// Pools that have weights by load or are elastic.
    pub pools: BTreeMap<String, PoolPlan>,
}

/// The plan of one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodePlan {
    /// Its standing.
    pub standing: Standing,
    /// Part of its share that it gets, 0..=1: rises while it warms up, falls while it is late.
    pub presence: f64,
    /// Its load in the coming period; `None` before it reported.
    pub load: Option<PlannedLoad>,
    /// True if it would be overloaded if it served all requests of its clients.
    pub is_overloaded: bool,
    /// Part of its load that it keeps, 0..=1. 1: it delegates nothing.
    pub keep: f64,
    /// Part of each class that it keeps, 0..=1.
    pub keep_by_class: PerClass<f64>,
    /// The resource that decided which class leaves, if any leaves.
    pub scarce: Option<Resource>,
}

/// A node's load in the coming period, per cent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedLoad {
    /// L1 of its clients' demand, memory included.
    pub l1: f64,
    /// L2 of the requests that it serves.
    pub l2: f64,
    /// L2 of its clients' demand, whichever node serves it; above 100 if it could not serve all.
    pub l2_offered: f64,
}

/// A node's participation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// Its share rises to its whole share.
    Joining,
    /// It gets its share.
    Present,
    /// Reports are missing and its share decays. A second observer has not confirmed it.
    Late,
    /// Reports are missing and a second observer cannot reach it: out.
    Gone,
    /// Its health checks fail: out.
    Unhealthy,
    /// An operator drains it: out.
    Draining,
    /// An operator has taken it down: out.
    Down,
}

/// The answers of one name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NamePlan {
    /// Its nodes by name; those that are out have a probability of zero.
    pub shares: BTreeMap<String, Share>,
    /// Nodes that observation excludes are answered all the same, so that enough are left.
    pub is_panicking: bool,
    /// One of its nodes drains, is late or left recently, so caches should ask again soon.
    pub shorten_ttl: bool,
}

/// One node's or backend's share.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// Of the whole, 0..=1; all of one name sum to 1, unless none may be answered.
    pub probability: f64,
    /// Its learnt capacity relative to the others', independent of its presence; the mean is 1.
    pub learnt: f64,
}

/// The targets of requests that overloaded nodes delegate. The same for all sources: no source is a
/// target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DispatchPlan {
    /// Shares of the delegated requests by node; they sum to 1, or no node delegates.
    pub weights: BTreeMap<String, f64>,
    /// The load at which sources and targets meet, in per cent of L2.
    pub level: Option<f64>,
    /// The part of each class, 0..=1, of its clients' requests that every node refuses, because all
    /// nodes together cannot serve more.
    #[serde(default)]
    pub refuse: PerClass<f64>,
}

/// The plan of one pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolPlan {
    /// Weights by load; empty if the pool does not ask for them.
    pub weights: BTreeMap<String, BackendPlan>,
    /// The scaling decision, if the pool is elastic.
    pub scaling: Option<ScalingPlan>,
}

/// A backend's weight by load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BackendPlan {
    /// The schedulers' weight; at least 1, so that load alone does not drain a backend.
    pub weight: Weight,
    /// As in [`Share`].
    pub learnt: f64,
}

impl NodePlan {
    /// Of a node that delegates nothing, before it reported.
    pub fn new(standing: Standing, presence: f64) -> NodePlan {
        NodePlan {
            standing,
            presence,
            load: None,
            is_overloaded: false,
            keep: 1.0,
            keep_by_class: PerClass::from_fn(|_| 1.0),
            scarce: None,
        }
    }
}

impl Standing {
    /// True if it is in answers by its own standing.
    pub fn is_in(self) -> bool {
        matches!(self, Standing::Joining | Standing::Present | Standing::Late)
    }

    /// True if an operator wants it to take part.
    pub fn is_wanted(self) -> bool {
        !matches!(self, Standing::Draining | Standing::Down)
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Standing::Joining => "joining: its share rises",
            Standing::Present => "present",
            Standing::Late => "late: its share decays",
            Standing::Gone => "gone: silent, and a second observer cannot reach it",
            Standing::Unhealthy => "unhealthy",
            Standing::Draining => "draining",
            Standing::Down => "down",
        })
    }
}

mod generation {
    use equipoise_core::Generation;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(it: &Generation, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(it.0)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Generation, D::Error> {
        u64::deserialize(from).map(Generation)
    }
}
