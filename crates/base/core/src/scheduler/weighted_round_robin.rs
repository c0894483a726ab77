use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::Arc;

use rand::Rng;

use super::roster::Roster;
use super::{Ask, Candidate, Scheduler};

/// Turns in proportion to weight, evenly interleaved: after any number of picks, each candidate has
/// had its exact share to within less than one turn. O(log n), integers only.
///
/// A candidate's turn number `k` (from 0) may be taken once its share is about to pass `k`, and
/// must be taken before its share passes `k + 1`. Among the turns that may be taken, the one with
/// the earliest deadline is picked. After as many picks as the sum of the weights, each candidate
/// has had exactly its weight, and the cycle begins again.
///
/// # Source
/// Windows of quota, earliest deadline first: Tijdeman, "The chairman assignment problem", Discrete
/// Mathematics 32, 1980 (the bound can be kept); Baruah et al., "Proportionate progress",
/// Algorithmica 15, 1996 (these windows); Bennett and Zhang, "WF2Q", INFOCOM 1996 (the same rule
/// for packets). Not nginx's smooth weighted round-robin (`ngx_http_upstream_round_robin.c`), which
/// serves the largest deficit: it can exceed one turn from five backends on (weights 50, 50, 8, 1,
/// 1: 1.09 turns; a test shows it).
///
/// Compared with LVS `wrr` (`ip_vs_wrr.c`): the same turns per cycle, in another order (LVS gives
/// heavy candidates theirs in a row). Ties are resolved by the order of the candidates from a
/// random one on, chosen per thread. A retry takes no turn and is drawn at random by weight, as in
/// [`super::round_robin`]. A full candidate's turn goes to one drawn by weight.
pub(super) struct WeightedRoundRobin {
    roster: Arc<Roster>,
    /// Number of picks in this cycle.
    made: u64,
    ready: BinaryHeap<Reverse<ByDeadline>>,
    waiting: BinaryHeap<Reverse<ByRelease>>,
}

/// The next turn of a candidate.
#[derive(Clone, Copy)]
struct Turn {
    position: usize,
    /// Resolves ties.
    rank: usize,
    weight: u64,
    /// Turns taken before this one in this cycle; below `weight` while the turn is ready.
    taken: u64,
    /// Number of picks after which this turn may be taken.
    release: u64,
}

impl WeightedRoundRobin {
    pub(super) fn new(roster: Arc<Roster>, rng: &mut dyn Rng) -> WeightedRoundRobin {
        let start = roster.random_start(rng);
        WeightedRoundRobin::starting_at(roster, start)
    }

    fn starting_at(roster: Arc<Roster>, start: usize) -> WeightedRoundRobin {
        // Every turn is in one of the two heaps, so with this capacity neither ever grows.
        let mut ready = BinaryHeap::with_capacity(roster.len());
        let waiting = BinaryHeap::with_capacity(roster.len());
        for (rank, (position, entry)) in roster.rotated(start).enumerate() {
            let weight = u64::from(entry.weight);
            let turn = Turn { position, rank, weight, taken: 0, release: 0 };
            ready.push(Reverse(ByDeadline(turn)));
        }
        WeightedRoundRobin { roster, made: 0, ready, waiting }
    }

    fn take_turn(&mut self) -> Option<usize> {
        let cycle = self.roster.weights_total();
        if self.made == cycle {
            self.made = 0;
            let anew = |Reverse(ByRelease(turn)): Reverse<ByRelease>| {
                Reverse(ByDeadline(Turn { taken: 0, release: 0, ..turn }))
            };
            self.ready.extend(self.waiting.drain().map(anew));
        }
        while let Some(&Reverse(ByRelease(turn))) = self.waiting.peek()
            && turn.release <= self.made
        {
            self.waiting.pop();
            self.ready.push(Reverse(ByDeadline(turn)));
        }
        let Reverse(ByDeadline(mut turn)) = self.ready.pop()?;
        self.made += 1;
        turn.taken += 1;
        turn.release = picks_until_due(turn.taken, turn.weight, cycle);
        self.waiting.push(Reverse(ByRelease(turn)));
        Some(turn.position)
    }
}

/// The slots of one cycle, in the order of [`WeightedRoundRobin`]'s turns, for levels that take
/// turns themselves. Every candidate with weight above zero has a turn. If the sum of the weights
/// without common factors is above `turns_max`, they are rounded to shares of it.
///
/// # Panics
/// If there are more candidates than `turns_max`.
pub fn cycle_of_turns(candidates: &[Candidate], turns_max: usize) -> Vec<usize> {
    let reduced = reduced(candidates, turns_max);
    let mut scheduler = WeightedRoundRobin::starting_at(Arc::new(Roster::new(&reduced)), 0);
    let turns = scheduler.roster.weights_total() as usize;
    let positions = (0..turns).map_while(|_| scheduler.take_turn()).collect::<Vec<_>>();
    positions.into_iter().map(|position| scheduler.roster.entries()[position].slot).collect()
}

/// The candidates with the smallest integer weights that keep their ratio, at least approximately.
/// Their sum is at most `sum_max`.
fn reduced(candidates: &[Candidate], sum_max: usize) -> Vec<Candidate> {
    let factor =
        candidates.iter().fold(0, |factor, candidate| gcd(factor, candidate.weight)).max(1);
    let total: u64 = candidates.iter().map(|it| u64::from(it.weight / factor)).sum();
    let listed = candidates.iter().filter(|candidate| candidate.weight > 0).count();
    let shared = (sum_max as u64).checked_sub(listed as u64);
    let shared = shared.expect("there is a turn for each candidate");
    let weight = |candidate: &Candidate| match candidate.weight / factor {
        0 => 0,
        weight if total <= sum_max as u64 => weight,
        weight => 1 + (u64::from(weight) * shared / total) as u32,
    };
    candidates.iter().map(|it| Candidate { weight: weight(it), ..*it }).collect()
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The largest number of picks at which the share of `weight` is not above `turns`. At most
/// `cycle`.
fn picks_until_due(turns: u64, weight: u64, cycle: u64) -> u64 {
    (u128::from(turns) * u128::from(cycle) / u128::from(weight)) as u64
}

impl Scheduler for WeightedRoundRobin {
    fn pick(&mut self, ask: &mut Ask<'_>) -> Option<usize> {
        let avoided = self.roster.avoidable(ask.avoid);
        let position = match avoided {
            Some(avoided) => self.roster.draw(ask.rng, &[avoided])?,
            None => self.take_turn()?,
        };
        let slot = self.roster.entries()[position].slot;
        if ask.loads.is_full(slot) { self.roster.draw_free(ask, avoided) } else { Some(slot) }
    }
}

struct ByDeadline(Turn);

impl Ord for ByDeadline {
    fn cmp(&self, other: &Self) -> Ordering {
        let (a, b) = (&self.0, &other.0);
        // Deadlines are (taken + 1) / weight of a cycle. Both factors are at most `u32::MAX`.
        let a_scaled = (a.taken + 1) * b.weight;
        let b_scaled = (b.taken + 1) * a.weight;
        a_scaled.cmp(&b_scaled).then(a.rank.cmp(&b.rank))
    }
}

struct ByRelease(Turn);

impl Ord for ByRelease {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.release.cmp(&other.0.release).then(self.0.rank.cmp(&other.0.rank))
    }
}

macro_rules! order_by_cmp {
    ($($by:ty)*) => {$(
        impl PartialOrd for $by {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl PartialEq for $by {
            fn eq(&self, other: &Self) -> bool {
                self.cmp(other).is_eq()
            }
        }

        impl Eq for $by {}
    )*};
}

order_by_cmp!(ByDeadline ByRelease);
