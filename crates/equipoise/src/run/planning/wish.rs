//! What the configuration says of planning.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use equipoise_session::config::PoolConfig;

use crate::config::{Config, Planning};

/// What the configuration says of planning.
#[derive(Clone, Debug, Default)]
pub(super) struct Wish {
    pub(super) planning: Planning,
    /// Pools with `weights = "load"`.
    pub(super) weighed: BTreeSet<String>,
    /// Pools of the packet level, and elastic ones that names are spread over: what their backends still have is not known
    /// here.
    pub(super) forwarded: BTreeSet<String>,
    /// Backends that the file lists, by pool.
    pub(super) listed: BTreeMap<String, BTreeSet<String>>,
    /// Whether there is a DNS level.
    pub(super) answers: bool,
    /// The pool of the local application, if there is a front door in node mode.
    pub(super) application: Option<Arc<str>>,
}

impl Wish {
    pub(super) fn of(config: &Config) -> Wish {
        let weighed = config.session.pools.iter().filter(|pool| pool.weights_by_load);
        let weighed = weighed.map(|pool| pool.name.to_string()).collect();
        let forwarded = config.packet.vips.iter().map(|vip| vip.pool.to_string());
        let names = config.dns.zones.iter().flat_map(|zone| &zone.names);
        let named = names.filter_map(|name| Some(name.elastic.as_ref()?.pool.to_string()));
        let forwarded = forwarded.chain(named).collect();
        let pools = config.session.pools.iter();
        let listed = |pool: &PoolConfig| {
            let names = pool.backends.iter().map(|it| it.name.to_string());
            (pool.name.to_string(), names.collect())
        };
        let listed = pools.map(listed).collect();
        let node = config.session.front_doors.iter().find(|door| door.dispatch.is_some());
        let application = node.map(|door| Arc::clone(&door.pool));
        let answers = !config.dns.zones.is_empty();
        Wish { planning: config.planning.clone(), weighed, forwarded, listed, answers, application }
    }

    /// Whether a pool's weights are planned.
    pub(super) fn weighs(&self, pool: &str) -> bool {
        self.weighed.contains(pool)
    }

    /// Whether anything of a pool is planned.
    pub(super) fn plans(&self, pool: &str) -> bool {
        self.weighs(pool) || self.planning.elastic.contains_key(pool)
    }

    /// Names that are answered here by load, with the members that each may resolve to.
    pub(super) fn names(&self) -> BTreeMap<String, BTreeSet<String>> {
        let names = self.planning.names.iter();
        names.map(|(zone, nodes)| (zone.clone(), nodes.values().cloned().collect())).collect()
    }

    /// Whether anything of any pool is planned.
    pub(super) fn plans_any_pool(&self) -> bool {
        !self.weighed.is_empty() || !self.planning.elastic.is_empty()
    }
}
