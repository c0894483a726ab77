//! A preview of a balancing round: its moves, and why there are no more.

use std::time::Duration;

use equipoise_slice::balance::{Balancer, Hold, Move, Round, Why, WorkerInput};
use equipoise_slice::{SliceId, WorkerId};

use crate::controller::desk::Desk;
use crate::controller::plan::{
    HoldReason, PlanReason, Planned, PlannedMove, PlannedWorker, WorkerReason,
};
use crate::controller::status::{WorkerState, WorkerStatus};

/// A worker is called balanced if its load is at least this close to the mean, as a share of the
/// mean.
const EVEN: f64 = 0.02;

impl Desk {
    /// The moves of a round now.
    pub(super) fn preview(&self, now: Duration) -> Planned {
        let (workers, slices) = self.inputs();
        let mut balancer = self.balancer.clone();
        let round = match self.options.round.is_zero() {
            true => Round { why: Why::Off, ..Round::default() },
            false => balancer.round(now, &workers, &slices),
        };
        let of = |step: Move, pinned: bool| PlannedMove {
            source: self.name_of(step.source),
            target: self.name_of(step.target),
            load: step
                .slices
                .iter()
                .map(|slice| balancer.load(*slice) + balancer.backlog(*slice))
                .sum(),
            slices: step.slices,
            pinned,
        };
        let pinned = self.pinned_elsewhere().into_iter().map(|step| of(step, true));
        let moves: Vec<_> =
            pinned.chain(round.moves.into_iter().map(|step| of(step, false))).collect();
        let even = match round.why {
            Why::Even(within) => within,
            _ => EVEN,
        };
        let parts = self.parts(&balancer, &workers, now);
        let workers = parts.into_iter().map(|part| part.planned(&moves, even)).collect();
        let (why, hot) = (self.reason(now, round.why), round.hot);
        Planned { moves, why, workers, hot, imbalance: round.imbalance }
    }

    fn reason(&self, now: Duration, why: Why) -> PlanReason {
        match why {
            Why::NobodyTakes => PlanReason::NobodyTakes,
            Why::OneTakes(worker) => PlanReason::OneTakes(self.name_of(worker)),
            Why::NothingMeasured => PlanReason::NothingMeasured,
            Why::Even(within) => PlanReason::Even(within),
            Why::Off => PlanReason::Off,
            Why::Moves => PlanReason::Moves,
            Why::Held { slice, source, target, by } => PlanReason::Held {
                slice,
                source: self.name_of(source),
                target: self.name_of(target),
                by: self.hold(now, slice, by),
            },
            Why::NoSliceHelps { source, slices } => {
                PlanReason::NoSliceHelps { source: self.name_of(source), slices }
            }
        }
    }

    fn hold(&self, now: Duration, slice: SliceId, by: Hold) -> HoldReason {
        let busy = self.protocol.table().get(&slice).and_then(|row| row.busy);
        match (by, busy, self.wishes.pins.get(&slice)) {
            (Hold::Blocked, Some(handover), _) => HoldReason::Handover(handover),
            (Hold::Blocked, None, Some(worker)) => HoldReason::Pinned(worker.clone()),
            (Hold::Transfer(other), _, _) => HoldReason::Transfer(other),
            // The slice has become free since.
            (Hold::Blocked, None, None) => {
                HoldReason::CoolDown(self.balancer.cools(now, slice).unwrap_or_default())
            }
            (Hold::CoolDown(left), _, _) => HoldReason::CoolDown(left),
            (Hold::TooLarge, _, _) => HoldReason::TooLarge,
        }
    }

    /// Workers, with the values that a round has of them.
    fn parts(&self, balancer: &Balancer, inputs: &[WorkerInput], now: Duration) -> Vec<Part> {
        let part = |(id, worker): (WorkerId, WorkerStatus)| {
            let (load, queue_load) = self.loads(balancer, id);
            let input = inputs.iter().find(|input| input.id == id);
            let (pinned, in_handover, cooling) = self.held(now, id);
            let takes = input.filter(|input| input.takes && !input.leaving);
            let weight = takes.map(|input| input.weight.get()).filter(|weight| *weight > 0);
            let weight = weight.map(f64::from);
            let counts = weight.is_some() || input.is_some_and(|input| input.leaving);
            let (over_mean, room) = (None, None);
            Part {
                worker,
                load,
                queue_load,
                counts,
                weight,
                over_mean,
                room,
                pinned,
                in_handover,
                cooling,
            }
        };
        let mut parts: Vec<_> = self.workers(now).into_iter().map(part).collect();
        // Slices of lost workers are on their way to the others.
        let load: f64 = parts.iter().filter(|it| it.counts).map(Part::whole).sum();
        let weights: f64 = parts.iter().filter_map(|it| it.weight).sum();
        if load > 0.0 && weights > 0.0 {
            for part in &mut parts {
                let share = |weight: f64| weight * load / weights;
                part.over_mean = part.weight.map(|weight| part.whole() / share(weight) - 1.0);
                part.room = part.weight.map(|weight| (share(weight) - part.whole()).max(0.0));
            }
        }
        parts
    }

    /// Load of a worker's arriving items, and of its waiting items, as rounds count them.
    fn loads(&self, balancer: &Balancer, worker: WorkerId) -> (f64, f64) {
        let owned = self.protocol.table().iter();
        let owned = owned
            .filter(|(_, row)| row.owner.is_some_and(|incarnation| incarnation.worker == worker));
        owned.fold((0.0, 0.0), |(load, queue_load), (slice, _)| {
            (load + balancer.load(*slice), queue_load + balancer.backlog(*slice))
        })
    }

    /// Numbers of a worker's slices that are pinned to it, in a handover, or in their cool-down.
    fn held(&self, now: Duration, worker: WorkerId) -> (u32, u32, u32) {
        let owned = self.protocol.table().iter();
        let owned = owned
            .filter(|(_, row)| row.owner.is_some_and(|incarnation| incarnation.worker == worker));
        owned.fold((0, 0, 0), |(pinned, in_handover, cooling), (slice, row)| {
            (
                pinned + u32::from(self.pinned_to(*slice) == Some(worker)),
                in_handover + u32::from(row.busy.is_some()),
                cooling + u32::from(self.balancer.cools(now, *slice).is_some()),
            )
        })
    }
}

/// A worker, with the values that a round has of it.
struct Part {
    worker: WorkerStatus,
    load: f64,
    queue_load: f64,
    /// Its load will be spread, or may stay.
    counts: bool,
    /// Above 0. `None`: it may not receive slices.
    weight: Option<f64>,
    over_mean: Option<f64>,
    room: Option<f64>,
    pinned: u32,
    in_handover: u32,
    cooling: u32,
}

impl Part {
    /// The load that rounds even out.
    fn whole(&self) -> f64 {
        self.load + self.queue_load
    }

    fn planned(self, moves: &[PlannedMove], even: f64) -> PlannedWorker {
        let reason = self.reason(moves, even);
        let WorkerStatus { name, queued, slices, .. } = self.worker;
        let Part { load, queue_load, over_mean, room, pinned, in_handover, cooling, .. } = self;
        PlannedWorker {
            name,
            load,
            queue_load,
            queued,
            over_mean,
            room,
            slices,
            pinned,
            in_handover,
            cooling,
            reason,
        }
    }

    fn reason(&self, moves: &[PlannedMove], even: f64) -> WorkerReason {
        let name = &self.worker.name;
        let count = |of: fn(&PlannedMove) -> &String| {
            let slices = moves.iter().filter(|step| of(step) == name);
            slices.map(|step| step.slices.len()).sum::<usize>()
        };
        let (gives, takes) = (count(|step| &step.source), count(|step| &step.target));
        let why = || self.worker.reason.clone().unwrap_or_default();
        match (self.worker.state, self.over_mean) {
            (WorkerState::Lost, _) => WorkerReason::Lost,
            (WorkerState::Awaited, _) => WorkerReason::Awaited,
            _ if gives > 0 => WorkerReason::Gives(gives),
            _ if takes > 0 => WorkerReason::Takes(takes),
            (WorkerState::Stuck, _) => WorkerReason::Stuck(why()),
            (WorkerState::Draining | WorkerState::Drained | WorkerState::Refused, _) => {
                WorkerReason::Leaves(why())
            }
            (WorkerState::Joining, _) if self.worker.reason.is_some() => WorkerReason::NoReport,
            (_, Some(over)) if over > even => WorkerReason::Over,
            (_, Some(over)) if over < -even => WorkerReason::Under,
            (_, Some(_)) => WorkerReason::Even,
            (_, None) if self.weight.is_none() => WorkerReason::Standby,
            (_, None) => WorkerReason::Idle,
        }
    }
}
