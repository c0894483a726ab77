//! Keys that operators have shut out, as everybody in the cluster may know them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::{Certified, Fingerprint};

/// Evicted keys by node; empty by default, while they are not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evictions {
    by_node: Arc<BTreeMap<String, Vec<Fingerprint>>>,
    /// The nodes of these with their own key evicted: a node that joined again has another key.
    /// Controllers know them.
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

    /// The nodes that are shut out and have not joined again.
    pub(crate) fn shut_out(&self) -> &BTreeSet<String> {
        &self.shut_out
    }

    /// Whether a node is shut out and has not joined again.
    pub(crate) fn is_shut_out(&self, node: &str) -> bool {
        self.shut_out.contains(node)
    }

    pub(crate) fn by_node(&self) -> &BTreeMap<String, Vec<Fingerprint>> {
        &self.by_node
    }

    /// Whether a controller has sent them.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known
    }

    /// Whether this certificate is refused.
    pub(crate) fn has(&self, certified: &Certified) -> bool {
        let keys = self.by_node.get(certified.identity.name.as_str());
        keys.is_some_and(|keys| keys.contains(&certified.key))
    }
}
