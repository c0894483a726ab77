use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use equipoise_core::{AdminState, Health, Weight, eligibility};
use serde::{Deserialize, Serialize};

use crate::elasticity::{Elasticity, ElasticityRefused};

/// Nodes, names and pools, with their desired state. The parts are consistent: see
/// [`Inventory::new`].
///
/// Everything is ordered by name, so that the order of arrival does not matter.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inventory {
    nodes: BTreeMap<String, NodeSpec>,
    names: BTreeMap<String, NameSpec>,
    pools: BTreeMap<String, PoolSpec>,
}

/// A node of the cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeSpec {
    /// Its desired state.
    pub admin: AdminState,
    /// Its health by checks. Missed reports are judged by the planner.
    pub health: Health,
    /// Its capacity in any unit common to the nodes (cores), from which shares begin.
    pub capacity: f64,
    /// True if it has a dispatch level: it may delegate, and peers may delegate to it.
    pub dispatches: bool,
    /// The permits of its application; `None` without a concurrency limit.
    pub permits: Option<Permits>,
}

/// Permits of an application with a concurrency limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permits {
    /// Free permits.
    pub free: u32,
    /// Requests that wait for one, if the queue stands; 0 if it has been empty lately.
    pub queued: u32,
}

impl Permits {
    /// Permits that peers may use: none while requests wait.
    pub fn room(self) -> u32 {
        if self.queued > 0 { 0 } else { self.free }
    }

    /// Both numbers rounded down to powers of two, so that instructions do not change with each
    /// permit.
    #[must_use]
    pub fn stepped(self) -> Permits {
        let step = |count: u32| count.checked_ilog2().map_or(0, |log| 1 << log);
        Permits { free: step(self.free), queued: step(self.queued) }
    }
}

/// A name that the DNS level answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NameSpec {
    /// The nodes that it may resolve to.
    pub nodes: BTreeSet<String>,
}

/// A pool, as far as it is planned.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolSpec {
    /// Its backends by name.
    pub backends: BTreeMap<String, BackendSpec>,
    /// True if the pool has `weights = "load"`.
    pub weights_by_load: bool,
    /// True if no balancer counts its requests: the packet level forwards them, or names lead to
    /// its backends.
    pub is_forwarded: bool,
    /// The settings of an elastic pool.
    pub elastic: Option<Elasticity>,
}

/// A backend of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendSpec {
    /// Its desired state.
    pub admin: AdminState,
    /// Its health.
    pub health: Health,
    /// The operator's weight, from which a weight by load begins.
    pub weight: Weight,
    /// The machine that reports its load; `None` without an agent.
    pub machine: Option<String>,
    /// Its size; `None` for a backend that the operator listed.
    pub size: Option<String>,
    /// True if the planner may remove it, because a driver made it.
    pub is_elastic: bool,
    /// Time since it was added.
    pub age: Duration,
}

/// An inconsistent inventory.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum InventoryRefused {
    /// A name's node is unknown.
    #[error("name {name} has the node {node}, which is not in the cluster")]
    UnknownNode {
        /// The name.
        name: String,
        /// The node.
        node: String,
    },
    /// A capacity is not positive.
    #[error("node {node} has a capacity of {capacity}; accepted: a number above 0")]
    Capacity {
        /// The node.
        node: String,
        /// Its capacity.
        capacity: f64,
    },
    /// A backend's size is not one of its pool's.
    #[error("backend {pool}/{backend} has the size {size}, which its pool does not have")]
    UnknownSize {
        /// The pool.
        pool: String,
        /// The backend.
        backend: String,
        /// Its size.
        size: String,
    },
    /// A pool's elasticity settings are contradictory.
    #[error("pool {pool}")]
    Elasticity {
        /// The pool.
        pool: String,
        /// The error.
        #[source]
        source: ElasticityRefused,
    },
}

impl Default for NodeSpec {
    fn default() -> Self {
        let (admin, health) = (AdminState::Up, Health::Unknown);
        NodeSpec { admin, health, capacity: 1.0, dispatches: true, permits: None }
    }
}

impl Default for BackendSpec {
    fn default() -> Self {
        BackendSpec {
            admin: AdminState::Up,
            health: Health::Unknown,
            weight: Weight::DEFAULT,
            machine: None,
            size: None,
            is_elastic: false,
            age: Duration::MAX,
        }
    }
}

impl BackendSpec {
    /// True if it may receive new work.
    pub fn is_eligible(&self) -> bool {
        eligibility(self.admin, self.health, self.weight).is_eligible()
    }
}

impl Inventory {
    /// An inventory of these parts.
    ///
    /// # Errors
    /// [`InventoryRefused`] for the first part that does not fit the others.
    pub fn new(
        nodes: BTreeMap<String, NodeSpec>,
        names: BTreeMap<String, NameSpec>,
        pools: BTreeMap<String, PoolSpec>,
    ) -> Result<Inventory, InventoryRefused> {
        for (node, spec) in &nodes {
            if !(spec.capacity.is_finite() && spec.capacity > 0.0) {
                let (node, capacity) = (node.clone(), spec.capacity);
                return Err(InventoryRefused::Capacity { node, capacity });
            }
        }
        for (name, spec) in &names {
            if let Some(node) = spec.nodes.iter().find(|node| !nodes.contains_key(*node)) {
                let (name, node) = (name.clone(), node.clone());
                return Err(InventoryRefused::UnknownNode { name, node });
            }
        }
        for (pool, spec) in &pools {
            check_pool(pool, spec)?;
        }
        Ok(Inventory { nodes, names, pools })
    }

    /// The nodes by name.
    pub fn nodes(&self) -> &BTreeMap<String, NodeSpec> {
        &self.nodes
    }

    /// The names.
    pub fn names(&self) -> &BTreeMap<String, NameSpec> {
        &self.names
    }

    /// The pools by name.
    pub fn pools(&self) -> &BTreeMap<String, PoolSpec> {
        &self.pools
    }
}

fn check_pool(pool: &str, spec: &PoolSpec) -> Result<(), InventoryRefused> {
    let Some(elastic) = &spec.elastic else { return Ok(()) };
    let wrong = |source| InventoryRefused::Elasticity { pool: pool.to_string(), source };
    elastic.check().map_err(wrong)?;
    for (backend, one) in &spec.backends {
        if let Some(size) = &one.size
            && !elastic.sizes.contains_key(size)
        {
            return Err(InventoryRefused::UnknownSize {
                pool: pool.to_string(),
                backend: backend.clone(),
                size: size.clone(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_an_unknown_node_is_refused() {
        let name = NameSpec { nodes: ["a".to_string(), "b".to_string()].into() };
        let nodes: BTreeMap<_, _> = [("a".to_string(), NodeSpec::default())].into();
        let names: BTreeMap<_, _> = [("www".to_string(), name)].into();
        let refused = Inventory::new(nodes, names, BTreeMap::new()).unwrap_err().to_string();
        assert_eq!(refused, "name www has the node b, which is not in the cluster");
    }

    #[test]
    fn a_capacity_is_above_zero() {
        for capacity in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let node = NodeSpec { capacity, ..NodeSpec::default() };
            let nodes = [("a".to_string(), node)].into();
            assert!(Inventory::new(nodes, BTreeMap::new(), BTreeMap::new()).is_err(), "{capacity}");
        }
    }
}
