//! The part of the configuration that concerns planning.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::config::Planning;

/// The part of the configuration that concerns planning.
#[derive(Clone, Debug, Default)]
pub struct PlanningConfig {
    /// The tables about planning.
    pub planning: Planning,
    /// Pools with `weights = "load"`.
    pub weighed: BTreeSet<String>,
    /// Pools of the packet level and of names: the work of their backends is not known here.
    pub forwarded: BTreeSet<String>,
    /// Pools of front doors.
    pub served: BTreeSet<String>,
    /// Backends that the file lists, by pool.
    pub listed: BTreeMap<String, BTreeSet<String>>,
    /// Whether the file has a DNS level.
    pub answers: bool,
    /// The pool of the local application, if a front door is in node mode.
    pub application: Option<Arc<str>>,
}

impl PlanningConfig {
    /// Whether the pool's weights are planned.
    pub(crate) fn weighs(&self, pool: &str) -> bool {
        self.weighed.contains(pool)
    }

    /// Whether the pool's weights or size are planned.
    pub(crate) fn plans(&self, pool: &str) -> bool {
        self.weighs(pool) || self.planning.elastic.contains_key(pool)
    }

    /// Whether the plan of a pool uses the counters of this process.
    pub(crate) fn counts(&self, pool: &str) -> bool {
        self.plans(pool) && self.served.contains(pool)
    }

    /// Names that this process answers by load, with the members that each may resolve to.
    pub(crate) fn names(&self) -> BTreeMap<String, BTreeSet<String>> {
        let names = self.planning.names.iter();
        names.map(|(zone, nodes)| (zone.clone(), nodes.values().cloned().collect())).collect()
    }

    /// Whether any pool is planned.
    pub(crate) fn plans_any_pool(&self) -> bool {
        !self.weighed.is_empty() || !self.planning.elastic.is_empty()
    }

    /// Whether any plan uses counters of requests.
    pub(crate) fn counts_anything(&self) -> bool {
        self.plans_any_pool() || self.application.is_some()
    }
}
