//! Makes one plan.

use std::collections::BTreeMap;
use std::time::Duration;

use equipoise_core::AdminState;
use equipoise_core::load::{NodeLoad, PerClass, RequestClass, Resource, Signals, refuse, relieve};

use crate::along::Along;
use crate::dispatch::{Peer, delegate};
use crate::elastic;
use crate::history::History;
use crate::inventory::{Inventory, NodeSpec, PoolSpec};
use crate::liveness::{Seen, stand};
use crate::names;
use crate::plan::{DispatchPlan, NodePlan, Plan, PlannedLoad, PoolPlan, Standing};
use crate::policy::Policy;
use crate::row::Row;
use crate::weights;

/// The time of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// Time on the clock of the history.
    pub now: Duration,
    /// Time since the previous plan: a period, or more after a change of leader. Counts as at most
    /// [`PASSED_MAX`] periods.
    pub passed: Duration,
}

/// Greatest number of periods that pass at once, for ramps, decay and cool-downs: an hour of
/// silence is not an hour of observation.
pub const PASSED_MAX: f64 = 10.0;

/// Makes the plan for the coming period. O(nodes + names' members + pools' backends), times the
/// logarithm of the nodes.
///
/// `before` is the last published plan, by any leader; `None` only if there is none.
pub fn plan(
    policy: &Policy,
    inventory: &Inventory,
    history: &History,
    before: Option<&Plan>,
    tick: Tick,
) -> Plan {
    let context = Context { policy, inventory, history, before, tick };
    let mut rows = context.rows();
    let dispatch = context.dispatch(&mut rows);
    let names = inventory.names().iter().map(|(name, spec)| {
        let was = before.and_then(|plan| plan.names.get(name));
        (name.clone(), names::answers(policy, spec, was, &rows))
    });
    let names = names.collect();
    let pools = inventory.pools().iter();
    let planned = pools.filter(|(_, spec)| spec.weights_by_load || spec.elastic.is_some());
    let pools = planned.map(|(name, spec)| (name.clone(), context.pool(name, spec))).collect();
    let generation = before.map(|plan| plan.generation).unwrap_or_default().next();
    let nodes = rows.into_iter().map(|row| (row.name.to_string(), row.plan)).collect();
    Plan { generation, nodes, names, dispatch, pools }
}

#[derive(Clone, Copy)]
struct Context<'a> {
    policy: &'a Policy,
    inventory: &'a Inventory,
    history: &'a History,
    before: Option<&'a Plan>,
    tick: Tick,
}

impl<'a> Context<'a> {
    fn passed_periods(&self) -> f64 {
        let passed = self.tick.passed.as_secs_f64() / self.policy.period().as_secs_f64();
        passed.min(PASSED_MAX)
    }

    fn rows(&self) -> Vec<Row<'a>> {
        let live = &self.policy.liveness;
        let missed = |node: &str| self.history.missed_beats(node, self.tick.now);
        let nodes = self.inventory.nodes();
        let beats: Vec<f64> = nodes.keys().map(|node| missed(node)).collect();
        let wanted = || nodes.values().zip(&beats).filter(|(it, _)| it.admin == AdminState::Up);
        let timely = wanted().filter(|(_, missed)| **missed < live.late_beats).count();
        let is_lateness_doubted = (timely as f64) < live.panic_share * wanted().count() as f64;
        let fresh = self.policy.period().mul_f64(live.gone_beats);
        let is_timely = |observer: &str| missed(observer) < live.late_beats;
        let mut before = self.before.map(|plan| Along::new(&plan.nodes));
        let row = |((name, spec), &missed_beats): ((&'a String, &'a NodeSpec), &f64)| {
            let was = before.as_mut().and_then(|before| before.find(name));
            let load = self.history.load(name);
            let is_silent = missed_beats >= live.gone_beats;
            let seen = Seen {
                admin: spec.admin,
                health: spec.health,
                missed_beats,
                is_unreachable: is_silent
                    && self.history.is_unreachable(name, self.tick.now, fresh, is_timely),
                is_lateness_doubted,
            };
            let plan = self.stand(&seen, spec, was, load);
            Row { name, spec, missed_beats, plan, was, load }
        };
        nodes.iter().zip(&beats).map(row).collect()
    }

    fn stand(
        &self,
        seen: &Seen,
        spec: &NodeSpec,
        was: Option<&NodePlan>,
        load: Option<&NodeLoad>,
    ) -> NodePlan {
        let live = &self.policy.liveness;
        let warm_up = live.warm_up.as_secs_f64() / self.policy.period().as_secs_f64();
        let is_first = self.before.is_none();
        let (standing, presence) = stand(live, seen, was, is_first, self.passed_periods(), warm_up);
        let load = load.map(|load| self.load(spec, load));
        NodePlan { load, ..NodePlan::new(standing, presence) }
    }

    /// Names follow the demand for a node, not the load that delegation leaves it. Imbalance that
    /// names can correct should not be corrected by delegation.
    fn load(&self, spec: &NodeSpec, load: &NodeLoad) -> PlannedLoad {
        let weigh = &self.policy.coefficients;
        let coming = load.coming();
        let cpu = if spec.dispatches { load.offered_cpu() } else { coming.cpu };
        let offered = Signals { cpu, ..coming };
        PlannedLoad {
            l1: weigh.l1(&offered).get(),
            l2: weigh.l2(&coming),
            l2_offered: weigh.l2(&offered),
        }
    }

    fn dispatch(&self, rows: &mut [Row]) -> DispatchPlan {
        let able: Vec<usize> = (0..rows.len()).filter(|at| rows[*at].spec.dispatches).collect();
        let peers: Vec<Peer> = able.iter().map(|at| self.peer(&rows[*at])).collect();
        let plan = delegate(&self.policy.dispatch, &self.policy.overload, &peers);
        let takers = able.iter().zip(&plan.weights).filter(|(_, weight)| **weight > 0.0);
        let weights = takers.map(|(at, weight)| (rows[*at].name.to_string(), *weight)).collect();
        for (&at, (is_overloaded, keep)) in
            able.iter().zip(plan.is_overloaded.iter().zip(plan.keep))
        {
            let row = &mut rows[at];
            (row.plan.is_overloaded, row.plan.keep) = (*is_overloaded, keep);
            if keep < 1.0 {
                self.choose_classes(row);
            }
        }
        DispatchPlan { weights, level: plan.level, refuse: self.refuse(rows) }
    }

    /// The shares to refuse so that all nodes together can serve the rest. They are based on the
    /// demand of clients and its known cost, so that the plan does not react to its own effect.
    /// Without known costs nothing is refused. The total moves in bounded steps, not each class by
    /// itself, so that at any time a class is refused only after those before it are refused
    /// completely.
    fn refuse(&self, rows: &[Row]) -> PerClass<f64> {
        let (mut asked, mut fixed, mut cpu) = (PerClass::default(), 0.0, 0.0);
        for row in rows.iter().filter(|row| row.spec.dispatches && row.plan.standing.is_in()) {
            let Some(load) = row.load else { continue };
            let used = load.class_use();
            // Requests that arrive at a joining node are served there, however little others
            // delegate to it.
            let is_joining = row.plan.standing == Standing::Joining;
            let presence = if is_joining { 1.0 } else { row.plan.presence };
            cpu += row.spec.capacity * presence * 100.0;
            fixed += row.spec.capacity * load.idle_cpu();
            for class in RequestClass::ALL {
                asked[class] += row.spec.capacity * used[class].cpu;
            }
        }
        let sane = |value: f64| if value.is_finite() { value.clamp(0.0, SANE_MAX) } else { 0.0 };
        let sum =
            |of: &PerClass<f64>| RequestClass::ALL.iter().map(|class| of[*class]).sum::<f64>();
        let asked = PerClass::from_fn(|class| sane(asked[class]));
        let before = self.before.map(|plan| plan.dispatch.refuse).unwrap_or_default();
        let before = PerClass::from_fn(|class| sane(before[class]).min(1.0));
        let (demand, limit) = (sane(fixed) + sum(&asked), self.policy.dispatch.admit * cpu);
        let begins_at = if sum(&before) > 0.0 { limit } else { SURELY_TOO_MUCH * limit };
        let is_too_much = demand > begins_at;
        let target = if is_too_much { (demand - limit).min(sum(&asked)) } else { 0.0 };
        // Without demand or known costs, refused shares return by the same steps and in the same
        // order.
        let shape = if sum(&asked) > 0.0 { asked } else { PerClass::from_fn(|_| 1.0) };
        let all = sum(&shape);
        let had = sum(&PerClass::from_fn(|class| shape[class] * before[class]));
        let step = self.policy.dispatch.step_max * all;
        let excess = target.clamp(had - step, had + step).clamp(0.0, all);
        refuse(&shape, 0.0, all - excess)
    }

    fn peer(&self, row: &Row) -> Peer {
        let weigh = &self.policy.coefficients;
        let (fixed, movable, unexplained) = row.load.map_or((0.0, 0.0, 0.0), |load| {
            let (coming, idle) = (load.coming(), load.idle_cpu());
            let fixed = weigh.l2_of_memory(coming.memory) + weigh.l2_of_cpu(idle);
            let unexplained = weigh.l2_of_cpu(load.unexplained_cpu());
            (fixed, weigh.l2_of_cpu(load.offered_cpu() - idle), unexplained)
        });
        let standing = row.plan.standing;
        // A late node takes the part that its decaying presence leaves. Requests that it does not
        // serve are served where they came from.
        let is_there = matches!(standing, Standing::Present | Standing::Joining | Standing::Late);
        let is_part = |it: &f64| (0.0..=1.0).contains(it);
        let had_kept = row.was.map(|was| was.keep).filter(is_part);
        let had_weight = self.before.and_then(|plan| plan.dispatch.weights.get(row.name));
        Peer {
            capacity: row.spec.capacity,
            fixed,
            movable,
            unexplained,
            presence: if is_there && row.load.is_some() { row.plan.presence } else { 0.0 },
            drains: standing == Standing::Draining,
            queues: row.spec.permits.is_some_and(|permits| permits.queued > 0),
            was_overloaded: row.was.is_some_and(|was| was.is_overloaded),
            had_kept: had_kept.unwrap_or(1.0),
            had_weight: had_weight.copied().filter(is_part).unwrap_or(0.0),
        }
    }

    /// Chooses the classes that leave: those that relieve the CPU. The network cannot be relieved,
    /// because a peer's response passes this node's network twice.
    fn choose_classes(&self, row: &mut Row) {
        let node = &mut row.plan;
        let (Some(load), false) = (row.load, node.standing == Standing::Draining) else {
            // All classes leave a draining node, light requests too.
            node.keep_by_class = PerClass::from_fn(|_| node.keep);
            return;
        };
        let keep_min = self.policy.dispatch.keep_min;
        node.keep_by_class = relieve(1.0 - node.keep, &load.class_use(), keep_min);
        node.scarce = Some(Resource::Cpu);
    }

    fn pool(&self, name: &str, spec: &PoolSpec) -> PoolPlan {
        let was = self.before.and_then(|plan| plan.pools.get(name));
        let weights = if spec.weights_by_load {
            weights::by_load(self.policy, self.history, name, spec, was)
        } else {
            BTreeMap::new()
        };
        let passed = self.policy.period().mul_f64(self.passed_periods());
        let scaling = spec.elastic.as_ref().map(|elastic| {
            let was = was.and_then(|was| was.scaling.as_ref());
            elastic::decide(elastic, spec, self.history, name, was, passed)
        });
        PoolPlan { weights, scaling }
    }
}

/// Greatest credible sum of loads, in per cent of a machine.
const SANE_MAX: f64 = 1e12;

/// Refusing begins when demand exceeds the admitted load by this factor, because costs are
/// estimates. Clients that wait for a response before their next request cannot demand more than
/// the capacity, so a cluster kept busy by such clients refuses nothing.
const SURELY_TOO_MUCH: f64 = 1.15;
