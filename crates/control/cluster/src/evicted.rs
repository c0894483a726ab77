//! The keys that operators have evicted, as the whole cluster may know them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::{Certified, Fingerprint};

/// Evicted keys by node; empty by default, while they are not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evictions {
    by_node: Arc<BTreeMap<String, Vec<Fingerprint>>>,
    /// The evicted nodes that have not joined again with another key. Only controllers know them.
    shut_out: Arc<BTreeSet<String>>,
    is_known: bool,
}

impl Evictions {
    pub(crate) fn new(by_node: BTreeMap<String, Vec<Fingerprint>>) -> Evictions {
        Evictions { by_node: Arc::new(by_node), shut_out: Arc::default(), is_known: true }
    }

    pub(crate) fn with_shut_out(self, nodes: BTreeSet<String>) -> Evictions {
        Evictions { shut_out: Arc::new(nodes), ..self }
    }

    /// The nodes that are evicted and have not joined again.
    pub(crate) fn shut_out(&self) -> &BTreeSet<String> {
        &self.shut_out
    }

    /// True if the node is evicted and has not joined again.
    pub(crate) fn is_shut_out(&self, node: &str) -> bool {
        self.shut_out.contains(node)
    }

    pub(crate) fn by_node(&self) -> &BTreeMap<String, Vec<Fingerprint>> {
        &self.by_node
    }

    /// True if a controller has sent them.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known
    }

    /// True if this certificate is refused.
    pub(crate) fn has(&self, certified: &Certified) -> bool {
        let keys = self.by_node.get(certified.identity.name.as_str());
        keys.is_some_and(|keys| keys.contains(&certified.key))
    }
}
