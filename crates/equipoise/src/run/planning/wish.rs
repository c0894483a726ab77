//! The part of the configuration that concerns planning.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use equipoise_session::config::PoolConfig;

use equipoise_config::{Config, Planning};

/// The part of the configuration that concerns planning.
#[derive(Clone, Debug, Default)]
pub(super) struct Wish {
    pub(super) planning: Planning,
    /// Pools with `weights = "load"`.
    pub(super) weighed: BTreeSet<String>,
    /// Pools of the packet level and of names: the work of their backends is not known here.
    pub(super) forwarded: BTreeSet<String>,
    /// Pools of front doors.
    pub(super) served: BTreeSet<String>,
    /// Backends that the file lists, by pool.
    pub(super) listed: BTreeMap<String, BTreeSet<String>>,
    /// Whether the file has a DNS level.
    pub(super) answers: bool,
    /// The pool of the local application, if a front door is in node mode.
    pub(super) application: Option<Arc<str>>,
}

impl Wish {
    pub(super) fn of(config: &Config) -> Wish {
        let weighed = config.session.pools.iter().filter(|pool| pool.weights_by_load);
        let weighed = weighed.map(|pool| pool.name.to_string()).collect();
        let forwarded = config.packet.vips.iter().map(|vip| vip.pool.to_string());
        let named = config.dns.zones.iter().flat_map(|zone| {
            let made = zone.names.iter().filter_map(|name| Some(&name.elastic.as_ref()?.pool));
            made.chain(zone.nodes.iter().map(|node| &node.pool)).map(ToString::to_string)
        });
        let forwarded = forwarded.chain(named).collect();
        let doors = config.session.front_doors.iter();
        let served = doors.map(|door| door.pool.to_string()).collect();
        let pools = config.session.pools.iter();
        let listed = |pool: &PoolConfig| {
            let names = pool.backends.iter().map(|it| it.name.to_string());
            (pool.name.to_string(), names.collect())
        };
        let listed = pools.map(listed).collect();
        let node = config.session.front_doors.iter().find(|door| door.dispatch.is_some());
        let application = node.map(|door| Arc::clone(&door.pool));
        let answers = !config.dns.zones.is_empty();
        let planning = config.planning.clone();
        Wish { planning, weighed, forwarded, served, listed, answers, application }
    }

    /// Whether the pool's weights are planned.
    pub(super) fn weighs(&self, pool: &str) -> bool {
        self.weighed.contains(pool)
    }

    /// Whether the pool's weights or size are planned.
    pub(super) fn plans(&self, pool: &str) -> bool {
        self.weighs(pool) || self.planning.elastic.contains_key(pool)
    }

    /// Whether the plan of a pool uses the counters of this process.
    pub(super) fn counts(&self, pool: &str) -> bool {
        self.plans(pool) && self.served.contains(pool)
    }

    /// Names that this process answers by load, with the members that each may resolve to.
    pub(super) fn names(&self) -> BTreeMap<String, BTreeSet<String>> {
        let names = self.planning.names.iter();
        names.map(|(zone, nodes)| (zone.clone(), nodes.values().cloned().collect())).collect()
    }

    /// Whether any pool is planned.
    pub(super) fn plans_any_pool(&self) -> bool {
        !self.weighed.is_empty() || !self.planning.elastic.is_empty()
    }

    /// Whether any plan uses counters of requests.
    pub(super) fn counts_anything(&self) -> bool {
        self.plans_any_pool() || self.application.is_some()
    }
}
