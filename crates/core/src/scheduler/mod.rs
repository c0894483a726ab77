//! Picking a backend: nine schedulers behind one trait.
//!
//! The work is split so that the hot path computes no table. [`prepare`] runs where snapshots are
//! built, once per change of a pool, and may be slow (Maglev fills its table there). Each data-plane
//! thread then makes its own [`Scheduler`] from the [`Prepared`] plan with [`Prepared::instance`]; it
//! is not shared, so a pick takes no lock.
//!
//! A *slot* is an index into the candidates that [`prepare`] was given: only eligible backends, in
//! configured order.

use rand::Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The nine schedulers, by the names of the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SchedulerKind {
    /// LVS `rr`: each in turn, whatever its weight.
    RoundRobin,
    /// Smooth weighted round-robin: turns in proportion to weight, evenly interleaved.
    WeightedRoundRobin,
    /// LVS `lc`: fewest in flight.
    #[default]
    LeastConnection,
    /// LVS `wlc`: fewest in flight per weight.
    WeightedLeastConnection,
    /// A random one, in proportion to weight.
    WeightedRandom,
    /// The less loaded of two random ones.
    PowerOfTwo,
    /// The lowest peak-EWMA response time, times what is in flight.
    LeastTime,
    /// Maglev hashing of the flow: consistent when backends change.
    Maglev,
    /// A weighted hash of the source address.
    SourceHash,
}

/// A backend that a scheduler may pick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Identifies the backend across changes of the pool, in every process alike: a hash of its address.
    pub identity: u64,
    /// Its weight in any unit common to the candidates (the operator's weight times the slow-start
    /// ramp). Zero is never picked.
    pub weight: u32,
}

/// What is known of the load of each slot when a pick is made.
pub trait Loads {
    /// Connections or requests in flight at the slot.
    fn in_flight(&self, slot: usize) -> u32;
    /// Failures seen lately at the slot, decayed; a scheduler counts them as load.
    fn recent_failures(&self, slot: usize) -> u32;
    /// Peak-EWMA response time of the slot in microseconds, decayed to now; `None` before the first sample.
    fn response_us(&self, slot: usize) -> Option<f64>;
}

/// One question put to a scheduler.
pub struct Ask<'a> {
    /// Hash of the flow (five-tuple): what `maglev` goes by.
    pub flow_hash: u64,
    /// Hash of the client's address alone: what `source-hash` goes by.
    pub source_hash: u64,
    /// A slot not to be picked unless it is the only one (a retry elsewhere).
    pub avoid: Option<usize>,
    /// The load of each slot.
    pub loads: &'a dyn Loads,
    /// Randomness, seeded by the caller.
    pub rng: &'a mut dyn Rng,
}

/// Picks a backend. One instance belongs to one thread.
pub trait Scheduler {
    /// The slot to use, or `None` if no candidate has a weight above zero.
    fn pick(&mut self, ask: &mut Ask<'_>) -> Option<usize>;
}

/// A scheduler's immutable tables, made once per change of a pool and shared by the threads.
#[derive(Clone, Debug)]
pub struct Prepared {
    kind: SchedulerKind,
    candidates: std::sync::Arc<[Candidate]>,
}

/// Makes the tables of `kind` for these candidates. `seed` is the same in every process of a fleet.
pub fn prepare(kind: SchedulerKind, candidates: &[Candidate], seed: u64) -> Prepared {
    let _ = seed;
    Prepared { kind, candidates: candidates.into() }
}

impl Prepared {
    /// A scheduler for one thread; `rng` chooses where rotations start.
    pub fn instance(&self, rng: &mut dyn Rng) -> Box<dyn Scheduler> {
        let _ = (rng, self.kind);
        Box::new(Placeholder { next: 0, count: self.candidates.len() })
    }
}

struct Placeholder {
    next: usize,
    count: usize,
}

impl Scheduler for Placeholder {
    fn pick(&mut self, _ask: &mut Ask<'_>) -> Option<usize> {
        self.next = (self.next + 1) % self.count.max(1);
        (self.count > 0).then_some(self.next)
    }
}
