use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use async_trait::async_trait;
use equipoise_core::load::Smoothing;
use equipoise_planner::{NameSpec, Policy, PoolSpec};

use crate::Making;

/// Options of a controller.
#[derive(Clone, Debug)]
pub struct ControllerOptions {
    /// The controller's name, unique among the controllers of a store.
    pub name: String,
    /// Smoothing of measurements. Its period is the planner's. It does not change while the
    /// controller runs.
    pub smoothing: Smoothing,
    /// Lease of the leader. A leader that dies is replaced when it expires. etcd grants two seconds
    /// or more.
    pub time_to_live: Duration,
    /// Longest interval between two writes of the plan. A plan is written at once when its
    /// decisions change. Plans in between differ only by small changes of shares.
    pub write_every: Duration,
    /// Greatest number of members. Others are refused.
    pub members_max: usize,
    /// Silence after which a member is forgotten.
    pub forget_after: Duration,
}

impl ControllerOptions {
    /// Options of the controller `name`: leases of two seconds, every plan written, at most 1000
    /// members, which are forgotten after ten minutes.
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

/// Inputs of the planner other than the members, which report themselves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Premises {
    /// The planner's policy. Its smoothing is not used; [`ControllerOptions::smoothing`] is.
    pub policy: Policy,
    /// Greatest capacity of a member in cores, whatever it reports.
    pub capacity_max: Option<f64>,
    /// Names that the DNS level answers. Their nodes that never reported count as late.
    pub names: BTreeMap<String, NameSpec>,
    /// The pools of this machine's file, with the results of its checks.
    pub pools: BTreeMap<String, PoolSpec>,
    /// Addresses of backends, by pool and backend. A backend at a member's own address runs on that
    /// machine.
    pub addresses: BTreeMap<String, BTreeMap<String, IpAddr>>,
    /// Elastic pools, for which members make backends by the rosters of the instructions.
    pub made: BTreeMap<String, MadePool>,
    /// Elastic pools that this machine's file declares for nodes:
    /// [`Instructions::pools`](crate::Instructions::pools).
    pub declared: BTreeMap<String, String>,
    /// On a single machine: the backends that it makes, by pool. No other process plans or makes
    /// backends.
    pub alone: Option<BTreeMap<String, Making>>,
}

/// An elastic pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MadePool {
    /// Backends that the operator listed. Members made all others of the pool.
    pub listed: BTreeSet<String>,
    /// Drain timeout: a draining backend is removed after this, even if it still has work.
    pub drain_timeout: Duration,
}

/// Provides the [`Premises`]. The leader asks once for each plan.
#[async_trait]
pub trait Source: Send + Sync {
    /// The present inputs.
    async fn premises(&self) -> Premises;
}
