//! How much load each resolver brings, and the assignment that makes use of it.
//!
//! A few resolvers carry most clients. Random answers give each of them to some node, and that node is off its share
//! until the TTL ends. Where the load of a resolver is known, the answer goes to the node that is *furthest behind its
//! share*, counting what every other known resolver was given last, and what nodes had of it over time: a resolver whose
//! clients are more than one node's share goes from node to node.
//!
//! [`ResolverLoads`] learns, off the hot path; [`LoadTable`] is what queries read. Its accounts are atomics without
//! locks: a race may leave them off by one answer until the next table, which computes them anew.
//!
//! # Source
//! Largest-deficit assignment, as in list scheduling (Graham, 1969) with weights; design section 6.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use equipoise_core::SourcePrefix;

use crate::Mode;
use crate::rate_limit::prefix;
use crate::respond::Now;
use crate::spread::{Chosen, Group};

/// Who a load is known of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source {
    prefix: u128,
    subnet: bool,
}

impl Source {
    /// A resolver by its address: the clients that it answers.
    pub fn resolver(address: IpAddr) -> Source {
        Source { prefix: prefix(address, 128), subnet: false }
    }

    /// The clients of a subnet, of which so much counts as of a [`SourcePrefix`].
    pub fn subnet(address: IpAddr) -> Source {
        let bits = if address.is_ipv4() { SourcePrefix::BITS4 } else { SourcePrefix::BITS6 };
        Source { prefix: prefix(address, bits), subnet: true }
    }

    #[inline]
    fn hash(self) -> u64 {
        let folded = (self.prefix as u64) ^ ((self.prefix >> 64) as u64).rotate_left(32);
        let product = u128::from(folded ^ u64::from(self.subnet)) * 0xa076_1d64_78bd_642f_u128;
        (product as u64) ^ ((product >> 64) as u64)
    }
}

/// Loads as they are told, in a table of bounded size.
#[derive(Debug)]
pub struct ResolverLoads {
    known: HashMap<Source, Learnt>,
    capacity: usize,
    half_life: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Learnt {
    load: f64,
    when: Instant,
}

/// Learnt loads below this share of all are left out: they change nothing, and the table stays small.
const SHARE_MIN: f64 = 1e-5;

impl ResolverLoads {
    /// Sources that are remembered unless said otherwise.
    pub const CAPACITY: usize = 4096;

    /// `capacity` sources; what is not told any more halves every `half_life`.
    pub fn new(capacity: usize, half_life: Duration) -> ResolverLoads {
        ResolverLoads { known: HashMap::new(), capacity: capacity.max(1), half_life }
    }

    fn aged(&self, learnt: Learnt, now: Instant) -> f64 {
        let lives =
            now.saturating_duration_since(learnt.when).as_secs_f64() / self.half_life.as_secs_f64();
        learnt.load * 0.5f64.powf(lives)
    }

    /// Tells what a source brings now, in any unit that is the same for all (requests a second, bytes a second).
    ///
    /// It is averaged with what was told before, which counts half after a half-life.
    pub fn observe(&mut self, source: Source, load: f64, now: Instant) {
        if !load.is_finite() || load < 0.0 {
            return;
        }
        if let Some(learnt) = self.known.get(&source).copied() {
            let lives = now.saturating_duration_since(learnt.when).as_secs_f64()
                / self.half_life.as_secs_f64();
            let kept = 0.5f64.powf(lives);
            let load = learnt.load * kept + load * (1.0 - kept);
            self.known.insert(source, Learnt { load, when: now });
            return;
        }
        if self.known.len() == self.capacity {
            let least =
                self.known.iter().map(|(source, learnt)| (*source, self.aged(*learnt, now)));
            let Some((least, least_load)) = least.min_by(|a, b| a.1.total_cmp(&b.1)) else {
                return;
            };
            if least_load >= load {
                return;
            }
            self.known.remove(&least);
        }
        self.known.insert(source, Learnt { load, when: now });
    }

    /// Sources that are remembered.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether nothing was told.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The table for queries; what `before` gave to whom is carried over where the names and nodes are the same.
    pub fn table(
        &mut self,
        now: Instant,
        heavy_share: f64,
        layout: &Arc<Layout>,
        before: &LoadTable,
    ) -> LoadTable {
        let mut loads: Vec<_> =
            self.known.iter().map(|(source, learnt)| (*source, self.aged(*learnt, now))).collect();
        let total: f64 = loads.iter().map(|(_, load)| load).sum();
        loads.retain(|(source, load)| {
            let kept = *load > total * SHARE_MIN;
            if !kept {
                self.known.remove(source);
            }
            kept
        });
        loads.sort_by_key(|(source, _)| *source);
        let faded = before.made.map_or(0.0, |made| {
            let passed = now.saturating_duration_since(made).as_secs_f64();
            0.5f64.powf(passed / self.half_life.as_secs_f64())
        });
        LoadTable {
            made: Some(now),
            ..LoadTable::new(&loads, total * heavy_share, layout, before, faded)
        }
    }
}

/// Which names have accounts, and over which nodes: what makes two tables' accounts comparable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// A name in lower case, and the identities of its nodes in the order of its configuration.
    pub(crate) names: Vec<(Vec<u8>, Vec<Arc<str>>)>,
}

/// A known source.
#[derive(Clone, Copy, Debug)]
struct Entry {
    source: Source,
    /// In units of [`UNIT`] of all load.
    load: i64,
    heavy: bool,
}

/// All load together: fine enough that the least that is listed has a hundred.
const UNIT: f64 = 1e8;

/// What [`Now::ticks`] counts in a second.
const TICKS_PER_SECOND: f64 = 1e5;

/// Families have accounts of their own: A and AAAA answers of a name.
const FAMILIES: usize = 2;

/// What queries read of loads, and what they were given.
#[derive(Debug, Default)]
pub struct LoadTable {
    entries: Box<[Entry]>,
    slots: Box<[u32]>,
    layout: Arc<Layout>,
    accounts: Box<[Account]>,
    made: Option<Instant>,
}

/// Of one name and family.
#[derive(Debug)]
struct Account {
    /// By entry: the two places that the last answer has, packed; the same twice for an answer of one.
    given: Box<[AtomicU32]>,
    /// By entry: when that was, in 10 µs.
    since: Box<[AtomicU64]>,
    /// By place of node: the load that it has been given.
    loads: Box<[AtomicI64]>,
    /// By place of node: load that it has had, each for the part of its TTL that the answer was the last; fades.
    served: Box<[AtomicI64]>,
}

const NONE: u32 = u32::MAX;

fn packed(first: usize, second: usize) -> u32 {
    (first as u32) << 16 | second as u32
}

fn unpacked(given: u32) -> [usize; 2] {
    [(given >> 16) as usize, (given & 0xffff) as usize]
}

impl LoadTable {
    fn new(
        loads: &[(Source, f64)],
        heavy: f64,
        layout: &Arc<Layout>,
        before: &LoadTable,
        faded: f64,
    ) -> LoadTable {
        let total: f64 = loads.iter().map(|(_, load)| load).sum();
        let entries: Box<[Entry]> = loads
            .iter()
            .map(|(source, load)| Entry {
                source: *source,
                // Even, so that its halves are whole.
                load: (load / total * UNIT / 2.0) as i64 * 2,
                heavy: *load >= heavy,
            })
            .collect();
        let mut slots =
            vec![NONE; (entries.len() * 2).next_power_of_two().max(1)].into_boxed_slice();
        for (index, entry) in entries.iter().enumerate() {
            let mut at = entry.source.hash() as usize & (slots.len() - 1);
            while slots[at] != NONE {
                at = (at + 1) & (slots.len() - 1);
            }
            slots[at] = index as u32;
        }
        let mut table =
            LoadTable { entries, slots, layout: Arc::clone(layout), ..LoadTable::default() };
        let same = *before.layout == **layout;
        let accounts = layout.names.iter().enumerate().flat_map(|(name, (_, nodes))| {
            let table = &table;
            (0..FAMILIES).map(move |family| {
                let old = before.accounts.get(name * FAMILIES + family).filter(|_| same);
                table.account(nodes.len(), old, before, faded)
            })
        });
        table.accounts = accounts.collect();
        table
    }

    fn account(
        &self,
        nodes: usize,
        old: Option<&Account>,
        before: &LoadTable,
        faded: f64,
    ) -> Account {
        let loads: Box<[AtomicI64]> = (0..nodes).map(|_| AtomicI64::new(0)).collect();
        let served = (0..nodes).map(|place| {
            let served = old.map_or(0, |old| old.served[place].load(Relaxed));
            AtomicI64::new((served as f64 * faded) as i64)
        });
        let since = self.entries.iter().map(|entry| {
            let carried = old.zip(before.find(entry.source));
            AtomicU64::new(carried.map_or(0, |(old, index)| old.since[index].load(Relaxed)))
        });
        let given = self.entries.iter().map(|entry| {
            let carried = old.zip(before.find(entry.source));
            let given = carried.map_or(NONE, |(old, index)| old.given[index].load(Relaxed));
            if given != NONE {
                for place in unpacked(given) {
                    loads[place].fetch_add(entry.load / 2, Relaxed);
                }
            }
            AtomicU32::new(given)
        });
        Account { given: given.collect(), since: since.collect(), served: served.collect(), loads }
    }

    /// Whether no load is known.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Sources whose load is known.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub(crate) fn find(&self, source: Source) -> Option<usize> {
        if self.entries.is_empty() {
            return None;
        }
        let mut at = source.hash() as usize & (self.slots.len() - 1);
        loop {
            let index = self.slots[at];
            if index == NONE {
                return None;
            }
            if self.entries[index as usize].source == source {
                return Some(index as usize);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// Whether a source brings so much that its answers should be short-lived.
    #[inline]
    pub(crate) fn is_heavy(&self, index: usize) -> bool {
        self.entries[index].heavy
    }

    /// The members of `group` furthest behind their shares, which are given the load of entry `index` for `ttl` seconds;
    /// `None` if this table has no account of the name.
    pub(crate) fn assign(
        &self,
        name: usize,
        family: usize,
        index: usize,
        group: &Group,
        (now, ttl): (Now, u32),
    ) -> Option<Chosen> {
        let account = self.accounts.get(name * FAMILIES + family)?;
        let load = self.entries[index].load;
        let before = account.given[index].load(Relaxed);
        let halves = |place: usize| {
            let given = unpacked(before);
            if before == NONE {
                0
            } else {
                given.iter().filter(|given| **given == place).count() as i64
            }
        };
        if group.members.iter().any(|member| member.place >= account.loads.len()) {
            return None;
        }
        // What the last answer has been good for until now, in the load of a whole TTL.
        let lived = now.ticks.saturating_sub(account.since[index].load(Relaxed));
        let part = lived as f64 / (f64::from(ttl.max(1)) * TICKS_PER_SECOND);
        let half_served = (load as f64 / 2.0 * part.min(1.0)) as i64;
        let has = |member: usize| {
            let place = group.members[member].place;
            account.loads[place].load(Relaxed) - halves(place) * (load / 2)
                + account.served[place].load(Relaxed)
                + halves(place) * half_served
        };
        // Whoever is as far behind as another comes in an order of the source's own.
        let (members, from) = (group.members.len(), self.entries[index].source.hash() as usize);
        let total = (0..group.members.len()).map(has).sum::<i64>() + load;
        let furthest = |without: Option<usize>| {
            let behind =
                |member: &usize| group.members[*member].share * total as f64 - has(*member) as f64;
            (0..members)
                .map(|member| (from % members + member) % members)
                .filter(|member| Some(*member) != without)
                .max_by(|a, b| behind(a).total_cmp(&behind(b)))
        };
        let first = furthest(None)?;
        let second = match group.mode {
            Mode::Pair => {
                // Twice the same only where shares cannot be kept otherwise, as in a draw by shares.
                let twice = group.members[first].share > 0.5
                    && has(first) + load <= (group.members[first].share * total as f64) as i64;
                if twice { first } else { furthest(Some(first)).unwrap_or(first) }
            }
            _ => first,
        };
        let places = [first, second].map(|member| group.members[member].place);
        let replaced = account.given[index].swap(packed(places[0], places[1]), Relaxed);
        account.since[index].store(now.ticks, Relaxed);
        if replaced != NONE {
            unpacked(replaced).iter().for_each(|place| {
                account.loads[*place].fetch_sub(load / 2, Relaxed);
                account.served[*place].fetch_add(half_served, Relaxed);
            });
        }
        places.iter().for_each(|place| {
            account.loads[*place].fetch_add(load / 2, Relaxed);
        });
        Some(Chosen::pair(first, second))
    }
}

#[cfg(test)]
mod tests;
