//! What queries are answered from: immutable, numbered, made by [`crate::zone`].

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

/// Everything that an answer takes but loads.
pub struct Snapshot {
    /// A later one replaces an earlier one, never the other way round.
    pub generation: Generation,
    pub(crate) fixed: Arc<Fixed>,
    /// By [`Fixed::balanced`].
    pub(crate) spreads: Vec<Spread>,
    pub(crate) limiter: Arc<RateLimiter>,
    pub(crate) cookies: Option<CookieSecrets>,
    pub(crate) identity: Option<Arc<[u8]>>,
    /// Names of class CHAOS, in lower case, with what they answer to TXT.
    pub(crate) chaos: Vec<(Vec<u8>, Tail)>,
    pub(crate) client_subnet: bool,
    /// The share of answers that is logged.
    pub(crate) query_log: f64,
    pub(crate) keepalive_tenths: u16,
    /// Counts answers by node; the same in successive snapshots as long as the nodes are.
    pub(crate) tallies: Arc<NodeTallies>,
    /// Which names have accounts of load.
    pub layout: Arc<Layout>,
    /// Names and shares, for people.
    pub names_told: Vec<NameStatus>,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("generation", &self.generation).finish_non_exhaustive()
    }
}

impl Snapshot {
    /// Answers by node.
    pub fn tallies(&self) -> &NodeTallies {
        &self.tallies
    }
}

/// What does not depend on how nodes stand: snapshots of one configuration share it.
#[derive(Debug)]
pub(crate) struct Fixed {
    /// What it was made of.
    pub(crate) of: Vec<Arc<ZoneConfig>>,
    pub(crate) names: NameTable,
    pub(crate) zones: Vec<Zone>,
    /// By zone and place there: each has a spread, and an account in the layout.
    pub(crate) balanced: Vec<(usize, usize)>,
    pub(crate) layout: Arc<Layout>,
}

impl Fixed {
    /// Whether it was made of the very same zones.
    pub(crate) fn is_of(&self, zones: &[Arc<ZoneConfig>]) -> bool {
        self.of.len() == zones.len() && self.of.iter().zip(zones).all(|(a, b)| Arc::ptr_eq(a, b))
    }
}

/// What all names of a zone share.
#[derive(Debug)]
pub(crate) struct Zone {
    /// The answer to a name that does not exist.
    pub(crate) no_such_name: Tail,
    /// Tells the zone's NXDOMAINs from those of others, for limiting.
    pub(crate) seed: u64,
}

/// Everything of a name.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: Box<[u8]>,
    pub(crate) hash: u64,
    pub(crate) zone: usize,
    pub(crate) role: Role,
    /// By type.
    pub(crate) sets: Vec<(u16, Tail)>,
    /// The place of its spread, if it is balanced.
    pub(crate) spread: Option<usize>,
    /// What types have that it does not: nothing, or where it leads.
    pub(crate) otherwise: Otherwise,
    /// The answer to ANY.
    pub(crate) any: Option<Tail>,
    /// The entry that stands for names below this one that do not exist.
    pub(crate) wildcard: Option<usize>,
}

/// What stands at a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// We answer for it.
    Ours,
    /// Another server does: a referral.
    Cut,
    /// It is below this entry's cut.
    BelowCut(usize),
}

/// The answer for types that a name has no records of.
#[derive(Debug)]
pub(crate) enum Otherwise {
    /// There are none.
    Nothing(Tail),
    /// A referral.
    Referral(Tail),
    /// It is an alias.
    Alias {
        /// The answer for types that the end of the chain has not.
        plain: Tail,
        /// The answers for types that it has.
        by_type: Vec<(u16, Tail)>,
        /// For a chain that ends at a balanced name.
        balanced: Option<Lead>,
    },
}

/// Aliases that lead to a balanced name.
#[derive(Debug)]
pub(crate) struct Lead {
    /// The balanced name's entry.
    pub(crate) entry: usize,
    /// A pointer to its name in the message.
    pub(crate) owner: u16,
    /// The aliases alone.
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

    /// The entry of a name, if it is of this zone.
    pub(crate) fn of_zone(&self, name: &[u8], zone: usize) -> Option<usize> {
        self.find((name, hash_of(name))).filter(|entry| self.entries[*entry].zone == zone)
    }

    /// The entry of a name, or of its closest encloser: the longest suffix that exists. RFC 4592, 3.3.1.
    #[inline]
    pub(crate) fn closest(&self, asked: &AskedName) -> Option<(usize, bool)> {
        if let Some(found) = self.find(asked.suffix(0)) {
            return Some((found, true));
        }
        (1..=asked.labels()).find_map(|label| Some((self.find(asked.suffix(label))?, false)))
    }
}

/// A node's pool and its name there.
pub type NodeKey = (Arc<str>, Arc<str>);

/// Answers by node and thread.
#[derive(Debug, Default)]
pub struct NodeTallies {
    /// Each node's pool and name.
    pub(crate) nodes: Vec<(Arc<str>, Arc<str>)>,
    /// What earlier tallies had counted.
    carried: Vec<u64>,
    threads: Vec<CachePadded<Box<[Counter]>>>,
}

impl NodeTallies {
    /// For these nodes, each with its pool's name and its own; counts go on from `before`.
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

    /// Answers that each node stood in, by pool and name.
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

/// A balanced name as it is answered now.
#[derive(Clone, Debug, PartialEq)]
pub struct NameStatus {
    /// With its final dot.
    pub name: String,
    /// How it is answered.
    pub mode: crate::Mode,
    /// In seconds, now.
    pub ttl: u32,
    /// Of an address family no node serves, and others are given.
    pub fail_open: bool,
    /// In configured order.
    pub nodes: Vec<NodeStatus>,
}

/// A node of a balanced name.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeStatus {
    /// Its pool.
    pub pool: Arc<str>,
    /// Its name in the pool.
    pub name: Arc<str>,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// How it stands.
    pub standing: crate::zone::Standing,
    /// The share of clients that its answers aim at, 0 to 1, among nodes of its address family.
    pub share: f64,
}
