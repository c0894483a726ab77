//! Immutable, numbered input of the message path, made by [`crate::zone`].

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use crossbeam_utils::CachePadded;
use equipoise_core::Generation;

use crate::config::ZoneConfig;
use crate::cookie::CookieSecrets;
use crate::loads::Layout;
use crate::message::name::{AskedName, hash_of};
use crate::message::tail::Tail;
use crate::rate_limit::RateLimiter;
use crate::spread::Spread;
use crate::stats::Counter;

/// Everything that an answer depends on, except loads.
pub struct Snapshot {
    /// Number of the snapshot. The engine only replaces a snapshot by a later one.
    pub generation: Generation,
    pub(crate) fixed: Arc<Fixed>,
    /// Same order as [`Fixed::balanced`].
    pub(crate) spreads: Vec<Spread>,
    pub(crate) limiter: Arc<RateLimiter>,
    pub(crate) cookies: Option<CookieSecrets>,
    pub(crate) identity: Option<Arc<[u8]>>,
    /// Names of class CHAOS in lower case, and their TXT answers.
    pub(crate) chaos: Vec<(Vec<u8>, Tail)>,
    pub(crate) client_subnet: bool,
    /// Fraction of answers that the query log records.
    pub(crate) query_log: f64,
    pub(crate) keepalive_tenths: u16,
    /// Counts answers by node. Successive snapshots share it as long as the nodes are the same.
    pub(crate) tallies: Arc<NodeTallies>,
    /// The names that have accounts of load.
    pub layout: Arc<Layout>,
    /// Names and shares for the status report.
    pub names_told: Vec<NameStatus>,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("generation", &self.generation).finish_non_exhaustive()
    }
}

impl Snapshot {
    /// Returns the numbers of answers by node.
    pub fn tallies(&self) -> &NodeTallies {
        &self.tallies
    }
}

/// The part that does not depend on the state of nodes. Snapshots of one configuration share it.
#[derive(Debug)]
pub(crate) struct Fixed {
    /// The zones that it was made of.
    pub(crate) of: Vec<Arc<ZoneConfig>>,
    pub(crate) names: NameTable,
    pub(crate) zones: Vec<Zone>,
    /// Zone index, and index of the name there. Each has a spread, and an account in the layout.
    pub(crate) balanced: Vec<(usize, usize)>,
    pub(crate) layout: Arc<Layout>,
}

impl Fixed {
    /// Whether it was made of these zones (the same `Arc`s).
    pub(crate) fn is_of(&self, zones: &[Arc<ZoneConfig>]) -> bool {
        self.of.len() == zones.len() && self.of.iter().zip(zones).all(|(a, b)| Arc::ptr_eq(a, b))
    }
}

/// Parts that all names of a zone share.
#[derive(Debug)]
pub(crate) struct Zone {
    /// The answer for a name that does not exist.
    pub(crate) no_such_name: Tail,
    /// Kind of the zone's NXDOMAIN responses in the rate limiter.
    pub(crate) seed: u64,
}

/// All answers of a name.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: Box<[u8]>,
    pub(crate) hash: u64,
    pub(crate) zone: usize,
    pub(crate) role: Role,
    /// Answers by type.
    pub(crate) sets: Vec<(u16, Tail)>,
    /// Index of its spread, if the name is balanced.
    pub(crate) spread: Option<usize>,
    /// The answer for other types: no records, a referral or an alias.
    pub(crate) otherwise: Otherwise,
    /// The answer to ANY.
    pub(crate) any: Option<Tail>,
    /// Index of the wildcard entry for names below this one that do not exist.
    pub(crate) wildcard: Option<usize>,
}

/// Authority for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The zone is authoritative for the name.
    Ours,
    /// The name is delegated to another server: the answer is a referral.
    Cut,
    /// The name is below the cut of this entry.
    BelowCut(usize),
}

/// The answer for types that a name has no records of.
#[derive(Debug)]
pub(crate) enum Otherwise {
    /// No records: the answer has the SOA record.
    Nothing(Tail),
    /// A referral to other servers.
    Referral(Tail),
    /// The name is an alias (CNAME).
    Alias {
        /// The answer for types that the target does not have.
        plain: Tail,
        /// The answers for types that the target has.
        by_type: Vec<(u16, Tail)>,
        /// The balanced name at the end of the chain of aliases, if there is one.
        balanced: Option<Lead>,
    },
}

/// Aliases that lead to a balanced name.
#[derive(Debug)]
pub(crate) struct Lead {
    /// Index of the balanced name's entry.
    pub(crate) entry: usize,
    /// Compression pointer to its name in the message.
    pub(crate) owner: u16,
    /// The alias records.
    pub(crate) tail: Tail,
}

/// Entries by name.
#[derive(Debug, Default)]
pub(crate) struct NameTable {
    pub(crate) entries: Vec<Entry>,
    slots: Box<[u32]>,
}

const EMPTY: u32 = u32::MAX;

impl NameTable {
    pub(crate) fn new(entries: Vec<Entry>) -> NameTable {
        let mut slots =
            vec![EMPTY; (entries.len() * 2).next_power_of_two().max(2)].into_boxed_slice();
        for (index, entry) in entries.iter().enumerate() {
            let mut at = entry.hash as usize & (slots.len() - 1);
            while slots[at] != EMPTY {
                at = (at + 1) & (slots.len() - 1);
            }
            slots[at] = index as u32;
        }
        NameTable { entries, slots }
    }

    #[inline]
    fn find(&self, (name, hash): (&[u8], u64)) -> Option<usize> {
        let mut at = hash as usize & (self.slots.len().wrapping_sub(1));
        loop {
            let index = *self.slots.get(at)?;
            if index == EMPTY {
                return None;
            }
            let entry = &self.entries[index as usize];
            if entry.hash == hash && *entry.name == *name {
                return Some(index as usize);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// Returns the index of a name's entry if it belongs to this zone.
    pub(crate) fn of_zone(&self, name: &[u8], zone: usize) -> Option<usize> {
        self.find((name, hash_of(name))).filter(|entry| self.entries[*entry].zone == zone)
    }

    /// Returns the entry of a name, or of its closest encloser, the longest existing suffix (RFC
    /// 4592, 3.3.1). The flag says whether the name itself exists.
    #[inline]
    pub(crate) fn closest(&self, asked: &AskedName) -> Option<(usize, bool)> {
        if let Some(found) = self.find(asked.suffix(0)) {
            return Some((found, true));
        }
        (1..=asked.labels()).find_map(|label| Some((self.find(asked.suffix(label))?, false)))
    }
}

/// A node: the name of its pool, and its name there.
pub type NodeKey = (Arc<str>, Arc<str>);

/// Numbers of answers by node and thread.
#[derive(Debug, Default)]
pub struct NodeTallies {
    /// Each node's pool and name.
    pub(crate) nodes: Vec<(Arc<str>, Arc<str>)>,
    /// Counts of earlier tallies.
    carried: Vec<u64>,
    threads: Vec<CachePadded<Box<[Counter]>>>,
}

impl NodeTallies {
    /// Makes tallies for `nodes` (pool and name). Counts continue from `before`.
    pub(crate) fn following(
        nodes: Vec<(Arc<str>, Arc<str>)>,
        threads: usize,
        before: Option<&Arc<NodeTallies>>,
    ) -> Arc<NodeTallies> {
        if let Some(before) = before.filter(|b| b.nodes == nodes && b.threads.len() == threads) {
            return Arc::clone(before);
        }
        let counted = before.map(|before| before.sums()).unwrap_or_default();
        let counted: HashMap<NodeKey, u64> = counted.into_iter().collect();
        let carried = nodes.iter().map(|node| counted.get(node).copied().unwrap_or(0)).collect();
        let shard = || CachePadded::new(nodes.iter().map(|_| Counter::default()).collect());
        Arc::new(NodeTallies { threads: (0..threads).map(|_| shard()).collect(), nodes, carried })
    }

    #[inline]
    pub(crate) fn count(&self, thread: usize, node: usize) {
        if let Some(counter) = self.threads.get(thread).and_then(|shard| shard.get(node)) {
            counter.add(1);
        }
    }

    /// Returns the number of answers that contained each node.
    pub fn sums(&self) -> Vec<(NodeKey, u64)> {
        let sum = |node: usize| {
            self.threads
                .iter()
                .map(|shard| shard[node].get())
                .fold(self.carried[node], u64::wrapping_add)
        };
        self.nodes.iter().cloned().enumerate().map(|(at, node)| (node, sum(at))).collect()
    }
}

/// Status of a balanced name.
#[derive(Clone, Debug, PartialEq)]
pub struct NameStatus {
    /// The name, with its final dot.
    pub name: String,
    /// Selects the nodes of an answer.
    pub mode: crate::Mode,
    /// Current TTL, seconds.
    pub ttl: u32,
    /// No node of some address family serves, so the answers have nodes that do not serve.
    pub fail_open: bool,
    /// The nodes, in the configured order.
    pub nodes: Vec<NodeStatus>,
}

/// Status of a node of a balanced name.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeStatus {
    /// Its pool.
    pub pool: Arc<str>,
    /// Its name in the pool.
    pub name: Arc<str>,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// State of the node.
    pub standing: crate::standing::Standing,
    /// Fraction of clients that answers aim at for this node, 0 to 1, among nodes of its address
    /// family.
    pub share: f64,
}
