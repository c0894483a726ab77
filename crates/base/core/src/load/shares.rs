use std::collections::BTreeMap;

use super::{DispatchTable, PerClass, RequestClass};

/// The keep shares of a node, and the targets of the rest. A planner computes them, and a node's
/// front doors follow them.
#[derive(Clone, Debug, PartialEq)]
pub struct Shares {
    /// The part of each class that it keeps, 0..=1.
    pub keep: PerClass<f64>,
    /// The part of the rest for each node. Nodes that are missing take nothing.
    pub weights: BTreeMap<String, f64>,
    /// The part of each class that is refused of what clients bring, 0..=1.
    pub refuse: PerClass<f64>,
}

impl Shares {
    /// True if the node must keep no request, because it is drained.
    pub fn keeps_nothing(&self) -> bool {
        RequestClass::ALL.iter().all(|class| self.keep[*class] <= 0.0)
    }

    /// The shares for these peers, by name.
    pub fn table<'a>(&self, peers: impl Iterator<Item = &'a str>) -> DispatchTable {
        let weight = |name: &str| self.weights.get(name).copied().unwrap_or(0.0);
        DispatchTable::new(self.keep, peers.map(weight)).refusing(self.refuse)
    }
}
