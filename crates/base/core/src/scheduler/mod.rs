//! Picking a backend: ten schedulers behind one trait.
//!
//! The hot path computes no table. [`prepare`] runs where snapshots are built, once per change of a
//! pool, and may be slow (Maglev fills its table there). Each data thread creates its own
//! [`Scheduler`] from the [`Prepared`] tables with [`Prepared::instance`]. A scheduler is not
//! shared, so a pick takes no lock.
//!
//! A *slot* is an index into the candidates of [`prepare`], which are the eligible backends in
//! configured order.
//!
//! A slot at its concurrency limit ([`Loads::is_full`]) is never picked. Instead each scheduler
//! picks:
//!
//! | scheduler | pick if its choice is full |
//! |---|---|
//! | `round-robin` | the next candidate in turn; the full candidate loses its turn |
//! | `weighted-round-robin` | a random one by weight; the full candidate loses its turn |
//! | `least-connection` | skips it; if both have a limit, compares requests in flight over limit |
//! | `weighted-least-connection` | skips it; still compares requests in flight over weight |
//! | `weighted-random` | a random other by weight |
//! | `power-of-two`, `least-time` | the other of the two, or a random one by weight |
//! | `prequal` | skips it |
//! | `maglev`, `source-hash` | the next in the order of the table (bounded loads) |
//!
//! `power-of-two` and `least-time` replace weights by limits if both candidates have one, `prequal`
//! if all compared candidates have one.

mod kind;
mod least_connection;
mod least_time;
mod maglev;
mod power_of_two;
mod prequal;
mod roster;
mod round_robin;
mod service_time;
mod source_hash;
mod weighted_least_connection;
mod weighted_random;
mod weighted_round_robin;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use rand::Rng;

pub use kind::{SchedulerKind, UnknownScheduler};
use least_connection::LeastConnection;
use least_time::LeastTime;
use maglev::Maglev;
pub use maglev::maglev_table;
use power_of_two::PowerOfTwo;
use prequal::Prequal;
use roster::Roster;
use round_robin::RoundRobin;
pub use service_time::ServiceTime;
use source_hash::SourceHash;
use weighted_least_connection::WeightedLeastConnection;
use weighted_random::WeightedRandom;
use weighted_round_robin::WeightedRoundRobin;
pub use weighted_round_robin::cycle_of_turns;

/// The weight of a recent failure, in requests in flight, for schedulers that count failures as
/// load.
///
/// A backend that fails at once has nothing in flight. It must look busier than its healthy peers
/// after a few failures. With 8, four failures exceed peers with up to 32 in flight.
pub(crate) const FAILURE_AS_IN_FLIGHT: u32 = 8;

/// A backend that a scheduler may pick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Identifies the backend across changes of the pool, equal in every process: a hash of its
    /// address.
    pub identity: u64,
    /// Its weight in any unit common to the candidates (the operator's weight times the slow-start
    /// ramp). A candidate with weight zero is never picked.
    pub weight: u32,
}

/// The load of each slot at the time of a pick.
pub trait Loads {
    /// Connections or requests in flight at the slot.
    fn in_flight(&self, slot: usize) -> u32;
    /// Recent failures at the slot, decayed; `power-of-two`, `least-time` and `prequal` count them
    /// as load.
    fn recent_failures(&self, slot: usize) -> u32;
    /// Peak-EWMA response time of the slot in microseconds, decayed to now; `None` before the first
    /// sample.
    fn response_us(&self, slot: usize) -> Option<f64>;

    /// The concurrency limit of the slot, at least 1; `None` if it has none.
    fn limit(&self, _slot: usize) -> Option<u32> {
        None
    }

    /// True if the slot has no free permit. A full slot is never picked.
    fn is_full(&self, _slot: usize) -> bool {
        false
    }

    /// Service time of the slot in microseconds ([`ServiceTime`]), decayed to now; `None` before
    /// the first sample.
    fn service_us(&self, slot: usize) -> Option<f64> {
        self.response_us(slot)
    }
}

/// The input of a pick.
pub struct Ask<'a> {
    /// Hash of the flow (five-tuple), which `maglev` uses.
    pub flow_hash: u64,
    /// Hash of the client's address alone, which `source-hash` uses.
    pub source_hash: u64,
    /// A slot to avoid, for a retry elsewhere. It is picked only if it is the only one, not if the
    /// others are full.
    pub avoid: Option<usize>,
    /// The load of each slot.
    pub loads: &'a dyn Loads,
    /// Random numbers, seeded by the caller.
    pub rng: &'a mut dyn Rng,
}

/// Picks a backend. One instance belongs to one thread. A pick does not allocate.
pub trait Scheduler {
    /// The slot to use; `None` if no candidate has a weight above zero, or all that may be picked
    /// are full.
    fn pick(&mut self, ask: &mut Ask<'_>) -> Option<usize>;
}

/// The immutable tables of a scheduler, built once per change of a pool and shared by the threads.
#[derive(Clone, Debug)]
pub struct Prepared {
    plan: Plan,
}

#[derive(Clone, Debug)]
enum Plan {
    RoundRobin(Arc<Roster>),
    WeightedRoundRobin(Arc<Roster>),
    LeastConnection(Arc<Roster>),
    WeightedLeastConnection(Arc<Roster>),
    WeightedRandom(Arc<Roster>),
    PowerOfTwo(Arc<Roster>),
    LeastTime(Arc<Roster>),
    Prequal(Arc<Roster>),
    Maglev(Arc<maglev::Table>),
    SourceHash(Arc<maglev::Table>),
}

/// Builds the tables of `kind` for these candidates. `seed` is the same in every process of a
/// fleet.
///
/// O(n), except for `maglev` and `source-hash`, which fill a table of at least 65,537 entries in
/// milliseconds.
pub fn prepare(kind: SchedulerKind, candidates: &[Candidate], seed: u64) -> Prepared {
    let roster = || Arc::new(Roster::new(candidates));
    let table = || Arc::new(maglev::Table::new(candidates, seed));
    let plan = match kind {
        SchedulerKind::RoundRobin => Plan::RoundRobin(roster()),
        SchedulerKind::WeightedRoundRobin => Plan::WeightedRoundRobin(roster()),
        SchedulerKind::LeastConnection => Plan::LeastConnection(roster()),
        SchedulerKind::WeightedLeastConnection => Plan::WeightedLeastConnection(roster()),
        SchedulerKind::WeightedRandom => Plan::WeightedRandom(roster()),
        SchedulerKind::PowerOfTwo => Plan::PowerOfTwo(roster()),
        SchedulerKind::LeastTime => Plan::LeastTime(roster()),
        SchedulerKind::Prequal => Plan::Prequal(roster()),
        SchedulerKind::Maglev => Plan::Maglev(table()),
        SchedulerKind::SourceHash => Plan::SourceHash(table()),
    };
    Prepared { plan }
}

impl Prepared {
    /// A scheduler for one thread. `rng` chooses where rotations start.
    pub fn instance(&self, rng: &mut dyn Rng) -> Box<dyn Scheduler> {
        match self.plan.clone() {
            Plan::RoundRobin(roster) => Box::new(RoundRobin::new(roster, rng)),
            Plan::WeightedRoundRobin(roster) => Box::new(WeightedRoundRobin::new(roster, rng)),
            Plan::LeastConnection(roster) => Box::new(LeastConnection::new(roster, rng)),
            Plan::WeightedLeastConnection(roster) => {
                Box::new(WeightedLeastConnection::new(roster, rng))
            }
            Plan::WeightedRandom(roster) => Box::new(WeightedRandom::new(roster)),
            Plan::PowerOfTwo(roster) => Box::new(PowerOfTwo::new(roster)),
            Plan::LeastTime(roster) => Box::new(LeastTime::new(roster)),
            Plan::Prequal(roster) => Box::new(Prequal::new(roster, rng)),
            Plan::Maglev(table) => Box::new(Maglev::new(table)),
            Plan::SourceHash(table) => Box::new(SourceHash::new(table)),
        }
    }
}
