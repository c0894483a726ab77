//! Load of each resolver, and the assignment of nodes by load.
//!
//! A few resolvers serve most clients. A random answer gives all clients of such a resolver to one
//! node, which is off its share until the TTL ends. If the resolver's load is known, the answer has
//! the node with the *largest deficit*: the node furthest behind its share, counting the last
//! answers to all other known resolvers. A resolver with more load than any node's share rotates
//! over the nodes.
//!
//! [`ResolverLoads`] learns outside the hot path; queries read a [`LoadTable`]. Its accounts are
//! atomics without locks. A race may leave them off by one answer until the next table recomputes
//! them.
//!
//! # Source
//! Largest-deficit assignment, as in list scheduling (Graham, 1969) with weights; design section 6.

mod account;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use equipoise_core::SourcePrefix;

use self::account::{Account, Given, NONE, furthest_behind};
use crate::now::{Now, TICKS_PER_SECOND};
use crate::rate_limit::prefix;
use crate::spread::{Chosen, Group};

/// A source of load: a resolver or a client subnet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source {
    prefix: u128,
    subnet: bool,
}

impl Source {
    /// A resolver: the load of all clients that it answers.
    pub fn resolver(address: IpAddr) -> Source {
        Source { prefix: prefix(address, 128), subnet: false }
    }

    /// A client subnet, truncated to the length of a [`SourcePrefix`].
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

/// Learned loads of sources, in a table of bounded size.
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

/// Minimum share of all load of a source in a [`LoadTable`]. Smaller sources do not change the
/// result, and the table stays small.
const SHARE_MIN: f64 = 1e-5;

impl ResolverLoads {
    /// Default capacity, in sources.
    pub const CAPACITY: usize = 4096;

    /// Makes a table of up to `capacity` sources. Without observations a load halves every
    /// `half_life`.
    pub fn new(capacity: usize, half_life: Duration) -> ResolverLoads {
        ResolverLoads { known: HashMap::new(), capacity: capacity.max(1), half_life }
    }

    /// Factor by which a load has decayed.
    fn kept(&self, learnt: Learnt, now: Instant) -> f64 {
        let age = now.saturating_duration_since(learnt.when).as_secs_f64();
        0.5f64.powf(age / self.half_life.as_secs_f64())
    }

    fn aged(&self, learnt: Learnt, now: Instant) -> f64 {
        learnt.load * self.kept(learnt, now)
    }

    /// Records the current load of a source, in any unit that is the same for all (requests per
    /// second, bytes per second).
    ///
    /// The result is a weighted mean with the earlier load, which has weight 1/2 after a half-life.
    pub fn observe(&mut self, source: Source, load: f64, now: Instant) {
        self.observe_all([(source, load)], now);
    }

    /// Records the loads of many sources. Above the capacity, the sources with the smallest loads
    /// are removed. O(sources given + capacity).
    pub fn observe_all(&mut self, told: impl IntoIterator<Item = (Source, f64)>, now: Instant) {
        for (source, load) in told.into_iter().filter(|(_, load)| load.is_finite() && *load >= 0.0)
        {
            let before = self.known.get(&source).copied();
            let load = before.map_or(load, |before| {
                let kept = self.kept(before, now);
                before.load * kept + load * (1.0 - kept)
            });
            self.known.insert(source, Learnt { load, when: now });
        }
        let Some(last_too_many) = self.known.len().checked_sub(self.capacity + 1) else { return };
        let aged = self.known.iter().map(|(source, learnt)| {
            (self.aged(*learnt, now), std::cmp::Reverse(learnt.when), *source)
        });
        let mut aged: Vec<_> = aged.collect();
        // Among equal loads, the most recently observed source is removed.
        aged.select_nth_unstable_by(last_too_many, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        for (_, _, source) in &aged[..=last_too_many] {
            self.known.remove(source);
        }
    }

    /// Returns the decayed load of a source; 0 if it is unknown.
    pub fn load(&self, source: Source, now: Instant) -> f64 {
        self.known.get(&source).map_or(0.0, |learnt| self.aged(*learnt, now))
    }

    /// Returns the number of sources.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether no source has a load.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Makes the table for queries. Accounts of `before` are carried over for names with the same
    /// nodes.
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
        LoadTable::new(&loads, total * heavy_share, layout, before)
    }
}

/// The names that have accounts, and their nodes. Accounts of two tables are comparable if both are
/// equal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Name in lower case, and the identities of its nodes in the configured order.
    pub(crate) names: Vec<(Vec<u8>, Vec<Arc<str>>)>,
}

/// A source in a [`LoadTable`].
#[derive(Clone, Copy, Debug)]
struct Entry {
    source: Source,
    /// Load, in fractions of 1 / [`UNIT`] of all load.
    load: i64,
    heavy: bool,
}

/// All load. The smallest listed load is 1000 of these units.
const UNIT: f64 = 1e8;

/// Number of accounts of a name: A and AAAA answers are accounted separately.
const FAMILIES: usize = 2;

/// Loads that queries read, and the accounts of the answers given.
#[derive(Debug, Default)]
pub struct LoadTable {
    entries: Box<[Entry]>,
    slots: Box<[u32]>,
    layout: Arc<Layout>,
    accounts: Box<[Account]>,
}

impl LoadTable {
    fn new(
        loads: &[(Source, f64)],
        heavy: f64,
        layout: &Arc<Layout>,
        before: &LoadTable,
    ) -> LoadTable {
        let total: f64 = loads.iter().map(|(_, load)| load).sum();
        let entries: Box<[Entry]> = loads
            .iter()
            .map(|(source, load)| Entry {
                source: *source,
                // Even, so that its halves are integers.
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
                table.account(nodes.len(), old, before)
            })
        });
        table.accounts = accounts.collect();
        table
    }

    fn account(&self, nodes: usize, old: Option<&Account>, before: &LoadTable) -> Account {
        let loads: Box<[AtomicI64]> = (0..nodes).map(|_| AtomicI64::new(0)).collect();
        let served = (0..nodes).map(|place| {
            let served = old.map_or(0, |old| old.served[place].load(Relaxed));
            AtomicI64::new(served)
        });
        let since = self.entries.iter().map(|entry| {
            let carried = old.zip(before.find(entry.source));
            AtomicU64::new(carried.map_or(0, |(old, index)| old.since[index].load(Relaxed)))
        });
        let given = self.entries.iter().map(|entry| {
            let carried = old.zip(before.find(entry.source));
            let given = carried.map_or(NONE, |(old, index)| old.given[index].load(Relaxed));
            let counted = Given::unpacked(given).filter(|given| !given.rotates);
            for place in counted.into_iter().flat_map(|given| given.places) {
                loads[place].fetch_add(entry.load / 2, Relaxed);
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

    /// Returns the number of sources with a known load.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entry of a client: as a resolver, or else by its subnet.
    #[inline]
    pub(crate) fn find_client(&self, client: IpAddr) -> Option<usize> {
        self.find(Source::resolver(client)).or_else(|| self.find(Source::subnet(client)))
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

    /// Whether answers to the source have the short TTL.
    #[inline]
    pub(crate) fn is_heavy(&self, index: usize) -> bool {
        self.entries[index].heavy
    }

    /// Selects the members of `group` with the largest deficits. Records them as the last answer to
    /// the source of entry `index`, which lives for `ttl` seconds. `None`: this table has no
    /// account of the name.
    ///
    /// A source with more load than any share has a separate account: it rotates over the nodes,
    /// which share it over time.
    pub(crate) fn assign(
        &self,
        name: usize,
        family: usize,
        index: usize,
        group: &Group,
        (now, ttl): (Now, u32),
    ) -> Option<Chosen> {
        let account = self.accounts.get(name * FAMILIES + family)?;
        if group.members.iter().any(|member| member.place >= account.loads.len()) {
            return None;
        }
        let entry = &self.entries[index];
        let last = Given::unpacked(account.given[index].load(Relaxed));
        let answers = f64::from(group.mode.drawn().unwrap_or(1));
        let largest = group.members.iter().map(|member| member.share).fold(0.0, f64::max);
        let rotates = entry.load as f64 > UNIT * largest * answers;
        let since = account.since[index].swap(now.ticks, Relaxed);
        let lived = now.ticks.saturating_sub(since) as f64 / TICKS_PER_SECOND as f64;
        let part = (lived / f64::from(ttl.max(1))).min(1.0);

        // `load` is the load to divide now; `has` returns the part of it that a place has.
        let mut load = entry.load;
        if let Some(last) = last.filter(|last| rotates && last.rotates) {
            load = (load as f64 * part) as i64;
            account.serve(last, load);
        }
        let own = last.filter(|last| !last.rotates);
        let has = |place: usize| {
            let own = || own.map_or(0, |last| last.halves(place)) * (entry.load / 2);
            let (served, loads) = (&account.served[place], &account.loads[place]);
            if rotates { served.load(Relaxed) } else { loads.load(Relaxed) - own() }
        };
        let [first, second] = furthest_behind(group, load, entry.source, has);
        let given = Given { places: [first, second].map(|it| group.members[it].place), rotates };
        account.give(index, given, entry.load);
        Some(Chosen::pair(first, second))
    }
}

#[cfg(test)]
mod tests;
