use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use async_trait::async_trait;
use equipoise_core::load::Smoothing;
use equipoise_planner::{NameSpec, Policy, PoolSpec};

use crate::Making;

/// How a controller is started.
#[derive(Clone, Debug)]
pub struct ControllerOptions {
    /// What it calls itself; unique among the controllers of a store.
    pub name: String,
    /// From measurements to signals; its period is the planner's. Does not change while the controller runs.
    pub smoothing: Smoothing,
    /// A leader that dies is replaced when this is over. etcd grants two seconds or more.
    pub time_to_live: Duration,
    /// The plan is written into the store at least this often, and at once when what it says to do has changed. What
    /// goes between two writes is only how far shares have moved.
    pub write_every: Duration,
    /// The most members; others are refused.
    pub members_max: usize,
    /// A member that says nothing for this long is forgotten.
    pub forget_after: Duration,
}

impl ControllerOptions {
    /// For the controller `name`: leases of two seconds, every plan written, 1000 members, who are forgotten after
    /// ten minutes.
    pub fn new(name: impl Into<String>) -> ControllerOptions {
        ControllerOptions {
            name: name.into(),
            smoothing: Smoothing::default(),
            time_to_live: Duration::from_secs(2),
            write_every: Duration::ZERO,
            members_max: 1000,
            forget_after: Duration::from_secs(600),
        }
    }
}

/// What there is, what is wanted of it, and how to plan for it: all but the members, which report themselves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Premises {
    /// How to plan. Its smoothing is not used: [`ControllerOptions::smoothing`] is.
    pub policy: Policy,
    /// Cores that a member counts for, at most, whatever it reports.
    pub capacity_max: Option<f64>,
    /// Names that the DNS level answers. A node of theirs that never reported counts as one that is late.
    pub names: BTreeMap<String, NameSpec>,
    /// The pools, as this machine's file and checks have them.
    pub pools: BTreeMap<String, PoolSpec>,
    /// Where each pool's backends are, by pool and backend: a backend at a member's own address runs on that machine.
    pub addresses: BTreeMap<String, BTreeMap<String, IpAddr>>,
    /// Elastic pools, whose backends members make as the instructions' rosters say.
    pub made: BTreeMap<String, MadePool>,
    /// Elastic pools that this machine's file declares for nodes: [`Instructions::pools`](crate::Instructions::pools).
    pub declared: BTreeMap<String, String>,
    /// On a machine of its own: the backends that it makes, by pool. No other process plans, or makes backends.
    pub alone: Option<BTreeMap<String, Making>>,
}

/// An elastic pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MadePool {
    /// Backends that the operator listed; all others of the pool were made.
    pub listed: BTreeSet<String>,
    /// A draining backend is taken away after this, whatever it still has.
    pub drain_timeout: Duration,
}

/// Who knows the [`Premises`]; asked by the leader, once for each plan.
#[async_trait]
pub trait Source: Send + Sync {
    /// As they are now.
    async fn premises(&self) -> Premises;
}
