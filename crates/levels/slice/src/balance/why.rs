//! Why a balancing round moves no more than it does.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Balancer, Sides};
use crate::ids::{SliceId, WorkerId};

/// Why a round moves no more than it does.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Why {
    /// No worker may receive slices: there is none, or all leave or have a weight of 0.
    #[default]
    NobodyTakes,
    /// Only one worker may receive slices.
    OneTakes(WorkerId),
    /// Nothing was measured: no items arrived, or none was processed yet.
    NothingMeasured,
    /// The largest excess of a worker over the mean is within this share of the mean, below which
    /// no balancing begins or goes on.
    Even(f64),
    /// The policy allows no load to move (`share_max` is 0).
    Off,
    /// The round moves slices; the next one goes on if that is not enough.
    Moves,
    /// The best move has to wait.
    Held {
        /// The slice that would move.
        slice: SliceId,
        /// Its owner.
        source: WorkerId,
        /// Its new owner.
        target: WorkerId,
        /// The reason to wait.
        by: Hold,
    },
    /// No move of a slice reduces the imbalance: the slices are too few or too large.
    NoSliceHelps {
        /// The most loaded worker.
        source: WorkerId,
        /// The number of its slices.
        slices: usize,
    },
}

/// Why a slice does not move now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// It must not move now ([`super::SliceInput::blocked`]).
    Blocked,
    /// It moved recently, and stays for this much longer.
    CoolDown(Duration),
    /// It has a standing queue, and its owner or the target is still moving that of this slice.
    Transfer(SliceId),
    /// It has more load than one round may move.
    TooLarge,
}

/// The state at the end of a round.
pub(super) struct End<'a> {
    pub(super) now: Duration,
    pub(super) mean: f64,
    /// A worker with at most this load gives nothing.
    pub(super) enough: f64,
    pub(super) imbalance: f64,
    /// Imbalance above which the round moves slices.
    pub(super) bound: f64,
    pub(super) moves: bool,
    pub(super) blocked: &'a BTreeSet<SliceId>,
}

impl Balancer {
    /// The rest of the cool-down of `slice` after its last move.
    pub fn cools(&self, now: Duration, slice: SliceId) -> Option<Duration> {
        let moved = self.known.get(&slice)?.moved?;
        let left = self.policy.cool_down.checked_sub(now.saturating_sub(moved))?;
        (!left.is_zero()).then_some(left)
    }

    /// Why the round ends here.
    pub(super) fn why(&self, sides: &Sides, end: &End<'_>) -> Why {
        let mut targets = sides.targets();
        let fullest = sides.targets().max_by(|a, b| a.1.relative().total_cmp(&b.1.relative()));
        let (Some((only, _)), Some((source, side))) = (targets.next(), fullest) else {
            return Why::NobodyTakes;
        };
        if end.moves {
            return Why::Moves;
        }
        if targets.next().is_none() {
            return Why::OneTakes(only);
        }
        if end.mean <= 0.0 {
            return Why::NothingMeasured;
        }
        if end.imbalance <= end.bound {
            return Why::Even(end.bound);
        }
        if self.policy.share_max <= 0.0 {
            return Why::Off;
        }
        match sides.best(&|_, _| false, f64::INFINITY, end.mean, end.enough) {
            Some(((slice, source, target), _)) => {
                Why::Held { slice, source, target, by: self.hold(end, slice, target) }
            }
            None => Why::NoSliceHelps { source, slices: side.slices.len() },
        }
    }

    fn hold(&self, end: &End<'_>, slice: SliceId, target: WorkerId) -> Hold {
        let transfer = self.transfer_of(slice, target).and_then(|of| of.slices.first());
        match (self.cools(end.now, slice), transfer) {
            _ if end.blocked.contains(&slice) => Hold::Blocked,
            (Some(left), _) => Hold::CoolDown(left),
            (None, Some(other)) => Hold::Transfer(*other),
            (None, None) => Hold::TooLarge,
        }
    }
}

#[cfg(test)]
mod tests {
    use equipoise_core::Weight;

    use super::*;
    use crate::balance::{Policy, SliceInput, WorkerInput};

    const ROUND: Duration = Duration::from_millis(500);

    fn worker(id: u64, weight: u16, leaving: bool) -> WorkerInput {
        let weight = Weight::new(weight).unwrap();
        WorkerInput { id: WorkerId(id), weight, leaving, takes: true }
    }

    fn slice(id: u32, owner: u64, load: f64) -> SliceInput {
        let busy = ROUND.mul_f64(load);
        let items = busy.as_millis() as u64;
        SliceInput {
            id: SliceId(id),
            owner: WorkerId(owner),
            blocked: false,
            in_handover: false,
            observed: ROUND,
            arrived: items,
            done: items,
            busy,
            queued: 0,
        }
    }

    /// Replaces the slice, as the balancer chooses among equal slices at random.
    fn any_slice(why: Why) -> Why {
        match why {
            Why::Held { source, target, by, .. } => {
                Why::Held { slice: SliceId(0), source, target, by }
            }
            why => why,
        }
    }

    /// The reason of the third round with the same inputs.
    fn why(policy: Policy, workers: &[WorkerInput], slices: &[SliceInput]) -> Why {
        let mut balancer = Balancer::new(policy);
        let rounds = (1..=3).map(|round| balancer.round(round * ROUND, workers, slices));
        any_slice(rounds.last().unwrap().why)
    }

    #[test]
    fn each_round_reports_the_reason_that_limits_its_moves() {
        let two = [worker(1, 1, false), worker(2, 1, false)];
        let usual = Policy::default;
        let (one, other) = (WorkerId(1), WorkerId(2));
        let uneven: Vec<_> = (0..8).map(|id| slice(id, 1, 0.1)).collect();
        let blocked: Vec<_> =
            uneven.iter().map(|it| SliceInput { blocked: true, ..it.clone() }).collect();
        let held = |by| Why::Held { slice: SliceId(0), source: one, target: other, by };
        let rows = [
            ("nobody", usual(), vec![], uneven.clone(), Why::NobodyTakes),
            ("all leave", usual(), vec![worker(1, 1, true)], uneven.clone(), Why::NobodyTakes),
            ("weight 0", usual(), vec![worker(1, 0, false)], uneven.clone(), Why::NobodyTakes),
            ("one", usual(), vec![two[0].clone()], uneven.clone(), Why::OneTakes(one)),
            ("idle", usual(), two.to_vec(), vec![slice(0, 1, 0.0)], Why::NothingMeasured),
            (
                "even",
                usual(),
                two.to_vec(),
                vec![slice(0, 1, 0.3), slice(1, 2, 0.3)],
                Why::Even(0.08),
            ),
            ("off", Policy { share_max: 0.0, ..usual() }, two.to_vec(), uneven.clone(), Why::Off),
            ("moves", usual(), two.to_vec(), uneven.clone(), Why::Moves),
            ("blocked", usual(), two.to_vec(), blocked, held(Hold::Blocked)),
            (
                "larger than a round's share",
                Policy { share_max: 0.05, ..usual() },
                two.to_vec(),
                uneven,
                held(Hold::TooLarge),
            ),
            (
                "one slice",
                usual(),
                two.to_vec(),
                vec![slice(0, 1, 0.9)],
                Why::NoSliceHelps { source: one, slices: 1 },
            ),
        ];
        for (case, policy, workers, slices, expected) in rows {
            assert_eq!(why(policy, &workers, &slices), expected, "{case}");
        }
    }

    #[test]
    fn a_slice_in_its_cool_down_is_reported_as_held() {
        let workers = [worker(1, 1, false), worker(2, 1, false)];
        let cool_down = Duration::from_secs(10);
        let mut balancer = Balancer::new(Policy { cool_down, ..Policy::default() });
        let of = |owner: u64| [slice(0, owner, 0.4), slice(1, owner, 0.4)];
        for (round, owner) in [(1, 2), (2, 1), (3, 1)] {
            let why = any_slice(balancer.round(round * ROUND, &workers, &of(owner)).why);
            if round == 3 {
                let (source, target) = (WorkerId(1), WorkerId(2));
                let by = Hold::CoolDown(Duration::from_millis(9500));
                assert_eq!(why, Why::Held { slice: SliceId(0), source, target, by });
            }
        }
        assert_eq!(balancer.cools(12 * ROUND, SliceId(0)), Some(Duration::from_secs(5)));
        assert_eq!(balancer.cools(22 * ROUND, SliceId(0)), None);
    }
}
