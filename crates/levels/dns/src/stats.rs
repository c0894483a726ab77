//! Counters of the DNS level: one shard per thread; readers sum the shards.
//!
//! A shard has one writer, its thread. Adding is therefore a load and a store, without a locked
//! instruction or a shared cache line.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::message::code::{self, QUERY_TYPES};
use crate::{Mode, Reason};

/// A counter with one writer and any number of readers.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only the owning thread may call it.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Returns the current value.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Upper bounds of the latency histogram's buckets, microseconds. One more bucket has the rest.
pub const BUCKETS_US: [u64; 12] =
    [5, 10, 25, 50, 100, 250, 500, 1000, 2500, 10_000, 100_000, 1_000_000];

/// Number of response codes with a counter of their own. One more counter has the others.
const RCODES: usize = 24;

/// Transport of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A datagram.
    Udp,
    /// A connection.
    Tcp,
}

/// Counters of one thread.
#[derive(Debug, Default)]
pub struct Shard {
    /// Queries by transport: UDP, TCP.
    transports: [Counter; 2],
    types: [Counter; QUERY_TYPES.len() + 1],
    rcodes: [Counter; RCODES + 1],
    modes: [Counter; Mode::ALL.len()],
    drops: [Counter; Reason::ALL.len()],
    /// UDP responses with the TC bit.
    pub truncated: Counter,
    /// Answers of names without a serving node.
    pub fail_open: Counter,
    /// Answers with the node of the largest deficit.
    pub by_deficit: Counter,
    /// Queries with a valid server cookie.
    pub cookies_valid: Counter,
    /// Rate-limited responses that were sent truncated or as BADCOOKIE instead of being dropped.
    pub slipped: Counter,
    /// Dropped lines of the query log.
    pub log_dropped: Counter,
    /// Accepted TCP connections.
    pub connections: Counter,
    latency: [Counter; BUCKETS_US.len() + 1],
    latency_us_sum: Counter,
}

impl Shard {
    #[inline]
    pub(crate) fn query(&self, transport: Transport, rtype: u16) {
        self.transports[transport as usize].add(1);
        self.types[code::place_of(rtype)].add(1);
    }

    #[inline]
    pub(crate) fn response(&self, rcode: u16) {
        self.rcodes[usize::from(rcode).min(RCODES)].add(1);
    }

    #[inline]
    pub(crate) fn mode(&self, mode: Mode) {
        self.modes[mode as usize].add(1);
    }

    /// Counts `count` drops.
    pub fn dropped(&self, reason: Reason, count: u64) {
        self.drops[reason as usize].add(count);
    }

    /// Records the latency of `count` queries, from their receipt until their answers were sent.
    #[inline]
    pub(crate) fn took(&self, took: Duration, count: u64) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.latency[BUCKETS_US.partition_point(|bound| *bound < us)].add(count);
        self.latency_us_sum.add(us.saturating_mul(count));
    }
}

/// Sums over all threads, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Queries over UDP.
    pub queries_udp: u64,
    /// Queries over TCP.
    pub queries_tcp: u64,
    /// Queries by type; `other` has those without a counter of their own.
    pub types: Vec<(&'static str, u64)>,
    /// Responses by response code.
    pub rcodes: Vec<(&'static str, u64)>,
    /// Answers of balanced names by mode.
    pub modes: Vec<(&'static str, u64)>,
    /// Drops by reason.
    pub drops: Vec<(&'static str, u64)>,
    /// See [`Shard::truncated`].
    pub truncated: u64,
    /// See [`Shard::fail_open`].
    pub fail_open: u64,
    /// See [`Shard::by_deficit`].
    pub by_deficit: u64,
    /// See [`Shard::cookies_valid`].
    pub cookies_valid: u64,
    /// See [`Shard::slipped`].
    pub slipped: u64,
    /// See [`Shard::log_dropped`].
    pub log_dropped: u64,
    /// TCP connections accepted.
    pub connections: u64,
    /// Queries per bucket of [`BUCKETS_US`], not cumulative; the last holds what exceeds every
    /// bound.
    pub latency: Vec<u64>,
    /// Sum of all latencies, microseconds.
    pub latency_us_sum: u64,
}

impl Figures {
    /// Adds up the shards.
    pub fn sum<'s>(shards: impl IntoIterator<Item = &'s Shard>) -> Figures {
        let shards: Vec<_> = shards.into_iter().collect();
        let total =
            |of: &dyn Fn(&Shard) -> u64| shards.iter().map(|s| of(s)).fold(0, u64::wrapping_add);
        let named = |names: &[&'static str], of: &dyn Fn(&Shard, usize) -> u64| {
            names.iter().enumerate().map(|(at, name)| (*name, total(&|s| of(s, at)))).collect()
        };
        let mut types: Vec<_> = QUERY_TYPES.iter().map(|(_, name)| *name).collect();
        types.push("other");
        let rcodes: Vec<_> = (0..=RCODES).map(code::rcode_name).collect();
        let modes: Vec<_> = Mode::ALL.iter().map(|mode| mode.word()).collect();
        let drops: Vec<_> = Reason::ALL.iter().map(|reason| reason.name()).collect();
        let mut figures = Figures {
            queries_udp: total(&|s| s.transports[Transport::Udp as usize].get()),
            queries_tcp: total(&|s| s.transports[Transport::Tcp as usize].get()),
            types: named(&types, &|s, at| s.types[at].get()),
            rcodes: named(&rcodes, &|s, at| s.rcodes[at].get()),
            modes: named(&modes, &|s, at| s.modes[at].get()),
            drops: named(&drops, &|s, at| s.drops[at].get()),
            truncated: total(&|s| s.truncated.get()),
            fail_open: total(&|s| s.fail_open.get()),
            by_deficit: total(&|s| s.by_deficit.get()),
            cookies_valid: total(&|s| s.cookies_valid.get()),
            slipped: total(&|s| s.slipped.get()),
            log_dropped: total(&|s| s.log_dropped.get()),
            connections: total(&|s| s.connections.get()),
            latency: (0..=BUCKETS_US.len()).map(|at| total(&|s| s.latency[at].get())).collect(),
            latency_us_sum: total(&|s| s.latency_us_sum.get()),
        };
        // Merges the codes without a name into one row.
        let unnamed: u64 =
            figures.rcodes.iter().filter(|(name, _)| *name == "other").map(|(_, n)| n).sum();
        figures.rcodes.retain(|(name, _)| *name != "other");
        figures.rcodes.push(("other", unnamed));
        figures
    }
}
