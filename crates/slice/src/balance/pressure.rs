//! Workers that cannot do their share: whose queues grow although no worker has more load for its weight.
//!
//! Busy time says how much is done, not how much could be: a worker with one thread is full at one core, while one with
//! eight is not at seven. Only its queue tells. So a worker whose queue grows, while another's does not, counts as if its
//! weight were less: in the proportion of what is done to what comes, and a little more, so that the queue can shrink.
//! Once it waits for nothing, that is forgotten little by little, since the cause may be gone.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ids::WorkerId;

/// A queue is looked at for so long, while the worker's slices stay the same.
const LOOK: Duration = Duration::from_secs(2);
/// Of what comes, what has to be left over for a queue to grow; and beyond chance.
const GROWS: f64 = 0.05;
/// A look changes a worker's weight by no more than this.
const STEP_MAX: f64 = 2.0;
/// And all together by no more than this.
const FACTOR_MAX: f64 = 100.0;
/// Beyond what is measured: so that what waits can be done, too.
const MARGIN: f64 = 1.1;
/// What was learnt fades to 1/e in this time, while nothing waits.
const FORGET: Duration = Duration::from_secs(300);

/// A worker in a round, as its queue goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Queue {
    /// Items that wait or are being done, of all slices.
    pub(super) queued: u64,
    /// Items that came since the last round.
    pub(super) arrived: u64,
    /// How long the oldest item has waited.
    pub(super) age: Duration,
    /// How many slices it has: what changes when some come or go.
    pub(super) slices: usize,
}

/// By how much workers can do less than their weights say.
#[derive(Debug, Clone, Default)]
pub(super) struct Pressures(BTreeMap<WorkerId, Pressure>);

#[derive(Debug, Clone)]
struct Pressure {
    factor: f64,
    /// The last look found nothing that waits, and no more than before: it could do more.
    free: bool,
    /// The look that is going on: for how long, what it began with, and what has come since.
    looked: Duration,
    began_with: Queue,
    arrived: u64,
}

impl Pressures {
    /// What to divide the weight of `worker` by: 1 or more.
    pub(super) fn of(&self, worker: WorkerId) -> f64 {
        self.0.get(&worker).map_or(1.0, |pressure| pressure.factor)
    }

    /// `passed`: since the last round. `horizon`: who has waited for less does not wait.
    pub(super) fn learn(
        &mut self,
        passed: Duration,
        horizon: Duration,
        queues: &BTreeMap<WorkerId, Queue>,
    ) {
        self.0.retain(|worker, _| queues.contains_key(worker));
        // Where nobody could do more, there is too much for all, and weights are as good as they were.
        let anybody_free = self.0.values().any(|pressure| pressure.free);
        for (worker, queue) in queues {
            let new = || Pressure::new(*queue, 1.0);
            let pressure = self.0.entry(*worker).or_insert_with(new);
            if queue.slices == pressure.began_with.slices {
                pressure.look(passed, queue, queue.age >= horizon, anybody_free);
            } else {
                *pressure = Pressure::new(*queue, pressure.factor);
            }
        }
    }
}

impl Pressure {
    fn new(began_with: Queue, factor: f64) -> Self {
        Self { factor, free: false, looked: Duration::ZERO, began_with, arrived: 0 }
    }

    fn look(&mut self, passed: Duration, queue: &Queue, waits: bool, anybody_free: bool) {
        self.looked += passed;
        self.arrived += queue.arrived;
        if !waits {
            let fades = (-passed.as_secs_f64() / FORGET.as_secs_f64()).exp();
            self.factor = 1.0 + (self.factor - 1.0) * fades;
        }
        if self.looked < LOOK {
            return;
        }
        let arrived = self.arrived as f64;
        let grown = queue.queued as f64 - self.began_with.queued as f64;
        let grows = grown > GROWS * arrived + 2.0 * arrived.sqrt();
        let mut factor = self.factor;
        if waits && grows && anybody_free {
            let done = (arrived - grown).max(arrived / STEP_MAX);
            factor = (factor * (MARGIN * arrived / done).min(STEP_MAX)).min(FACTOR_MAX);
        }
        *self = Self { free: !waits && !grows, ..Self::new(*queue, factor) };
    }
}
