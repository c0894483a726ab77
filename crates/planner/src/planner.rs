//! One plan.

use std::collections::BTreeMap;
use std::time::Duration;

use equipoise_core::load::{NodeLoad, PerClass, Resource, Signals, relieve};
use equipoise_core::{AdminState, Weight};

use crate::dispatch::{Delegation, Peer, delegate};
use crate::elastic;
use crate::history::History;
use crate::inventory::{BackendSpec, Inventory, NameSpec, NodeSpec, PoolSpec};
use crate::liveness::{Seen, stand};
use crate::plan::{
    BackendPlan, DispatchPlan, NamePlan, NodePlan, Plan, PlannedLoad, PoolPlan, Share, Standing,
};
use crate::policy::Policy;
use crate::steering::{Member, steer};

/// When a plan is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// On the clock of the history.
    pub now: Duration,
    /// Since the plan before: a period, or longer after a change of leader. Taken for at most [`PASSED_MAX`] periods.
    pub passed: Duration,
}

/// The most periods that pass at once, for ramps, decay and cool-downs: a silence of an hour is no hour of observation.
pub const PASSED_MAX: f64 = 10.0;

/// Makes the plan for the coming period. O(nodes + names' members + pools' backends), times a small constant.
///
/// `before` is the last plan that was sent out, whoever made it; `None` only if there is none.
pub fn plan(
    policy: &Policy,
    inventory: &Inventory,
    history: &History,
    before: Option<&Plan>,
    tick: Tick,
) -> Plan {
    let context = Context { policy, inventory, history, before, tick };
    let mut nodes = context.nodes();
    let dispatch = context.dispatch(&mut nodes);
    let names = inventory.names().iter();
    let names = names.map(|(name, spec)| (name.clone(), context.name(name, spec, &nodes)));
    let pools = inventory.pools().iter();
    let planned = pools.filter(|(_, spec)| spec.weights_by_load || spec.elastic.is_some());
    let pools = planned.map(|(name, spec)| (name.clone(), context.pool(name, spec)));
    Plan {
        generation: before.map(|plan| plan.generation).unwrap_or_default().next(),
        names: names.collect(),
        pools: pools.collect(),
        dispatch,
        nodes,
    }
}

#[derive(Clone, Copy)]
struct Context<'a> {
    policy: &'a Policy,
    inventory: &'a Inventory,
    history: &'a History,
    before: Option<&'a Plan>,
    tick: Tick,
}

impl Context<'_> {
    fn passed_periods(&self) -> f64 {
        let passed = self.tick.passed.as_secs_f64() / self.policy.period().as_secs_f64();
        passed.min(PASSED_MAX)
    }

    fn missed_beats(&self, node: &str) -> f64 {
        self.history.missed_beats(node, self.tick.now)
    }

    fn nodes(&self) -> BTreeMap<String, NodePlan> {
        let live = &self.policy.liveness;
        let period = self.policy.period().as_secs_f64();
        let is_timely = |node: &str| self.missed_beats(node) < live.late_beats;
        let nodes = self.inventory.nodes();
        let wanted = || nodes.iter().filter(|(_, spec)| spec.admin == AdminState::Up);
        let timely = wanted().filter(|(node, _)| is_timely(node)).count();
        let is_lateness_doubted = (timely as f64) < live.panic_share * wanted().count() as f64;
        let fresh = Duration::from_secs_f64(live.gone_beats * period);
        let one = |(name, spec): (&String, &NodeSpec)| {
            let was = self.before.and_then(|plan| plan.nodes.get(name));
            let seen = Seen {
                admin: spec.admin,
                health: spec.health,
                missed_beats: self.missed_beats(name),
                is_unreachable: self.history.is_unreachable(name, self.tick.now, fresh, is_timely),
                is_lateness_doubted,
            };
            let warm_up = live.warm_up.as_secs_f64() / period;
            let is_first = self.before.is_none();
            let (standing, presence) =
                stand(live, &seen, was, is_first, self.passed_periods(), warm_up);
            let load = self.history.load(name).map(|load| self.load(spec, load));
            let keep_by_class = PerClass::from_fn(|_| 1.0);
            let (is_overloaded, keep, scarce) = (false, 1.0, None);
            let node =
                NodePlan { standing, presence, load, is_overloaded, keep, keep_by_class, scarce };
            (name.clone(), node)
        };
        nodes.iter().map(one).collect()
    }

    /// Names follow what is asked of a node and not what delegation leaves of it: what can be put right at the door should
    /// not be carried about inside.
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

    fn dispatch(&self, nodes: &mut BTreeMap<String, NodePlan>) -> DispatchPlan {
        let names: Vec<&String> = self
            .inventory
            .nodes()
            .iter()
            .filter(|(_, spec)| spec.dispatches)
            .map(|it| it.0)
            .collect();
        let peers: Vec<Peer> = names.iter().map(|name| self.peer(name, &nodes[*name])).collect();
        let plan = delegate(&self.policy.dispatch, &self.policy.overload, &peers);
        let takers = self.signals_of_takers(&names, &plan);
        for (at, name) in names.iter().enumerate() {
            let node = nodes.get_mut(*name).expect("every node of the inventory has a plan");
            node.is_overloaded = plan.is_overloaded[at];
            node.keep = plan.keep[at];
            if node.keep < 1.0 {
                self.choose_classes(name, node, takers);
            }
        }
        let weights = names.iter().zip(&plan.weights).filter(|(_, weight)| **weight > 0.0);
        let weights = weights.map(|(name, weight)| ((*name).clone(), *weight)).collect();
        DispatchPlan { weights, level: plan.level }
    }

    fn peer(&self, name: &str, node: &NodePlan) -> Peer {
        let spec = &self.inventory.nodes()[name];
        let weigh = &self.policy.coefficients;
        let known = self.history.load(name);
        let (fixed, movable, carried) = known.map_or((0.0, 0.0, 0.0), |load| {
            let (coming, idle) = (load.coming(), load.idle_cpu());
            let fixed = weigh.l2_of_memory(coming.memory) + weigh.l2_of_cpu(idle);
            (fixed, weigh.l2_of_cpu(load.offered_cpu() - idle), weigh.l2(&coming))
        });
        let was = self.before.and_then(|plan| plan.nodes.get(name));
        let takes =
            known.is_some() && matches!(node.standing, Standing::Present | Standing::Joining);
        Peer {
            capacity: spec.capacity,
            fixed,
            movable,
            carried,
            presence: if takes { node.presence } else { 0.0 },
            drains: node.standing == Standing::Draining,
            was_overloaded: was.is_some_and(|was| was.is_overloaded),
            had_kept: was.map(|was| was.keep).filter(|it| (0.0..=1.0).contains(it)).unwrap_or(1.0),
        }
    }

    /// What those who take use now, as they share it.
    fn signals_of_takers(&self, names: &[&String], plan: &Delegation) -> Signals {
        let (mut cpu, mut net, mut of_net) = (0.0, 0.0, 0.0);
        for (name, weight) in names.iter().zip(&plan.weights) {
            let Some(load) = self.history.load(name).filter(|_| *weight > 0.0) else { continue };
            let coming = load.coming();
            cpu += weight * coming.cpu;
            if let Some(one) = coming.net {
                (net, of_net) = (net + weight * one, of_net + weight);
            }
        }
        Signals { cpu, memory: 0.0, net: (of_net > 0.0).then(|| net / of_net) }
    }

    fn choose_classes(&self, name: &str, node: &mut NodePlan, takers: Signals) {
        let (Some(load), false) = (self.history.load(name), node.standing == Standing::Draining)
        else {
            // Whoever drains is to be left by all, light requests too.
            node.keep_by_class = PerClass::from_fn(|_| node.keep);
            return;
        };
        let own = load.coming();
        let net_gap = own.net.zip(takers.net).map_or(0.0, |(own, theirs)| own - theirs);
        let relieves_net = self.policy.dispatch.relieves_net && net_gap > own.cpu - takers.cpu;
        let scarce = if relieves_net { Resource::Net } else { Resource::Cpu };
        let keep_min = self.policy.dispatch.keep_min;
        node.keep_by_class = relieve(scarce, 1.0 - node.keep, &load.class_use(), keep_min);
        node.scarce = Some(scarce);
    }

    fn name(&self, name: &str, spec: &NameSpec, nodes: &BTreeMap<String, NodePlan>) -> NamePlan {
        let was = self.before.and_then(|plan| plan.names.get(name));
        let capacity = |node: &String| self.inventory.nodes()[node].capacity;
        let mean = spec.nodes.iter().map(capacity).sum::<f64>() / spec.nodes.len().max(1) as f64;
        let (presences, is_panicking) = self.presences(spec, nodes);
        let member = |(node, presence): (&String, f64)| {
            let nominal = capacity(node) / mean;
            let learnt = was.and_then(|was| was.shares.get(node)).map_or(1.0, |was| was.learnt);
            let load = nodes[node].load.map(|load| load.l1);
            Member { learnt: learnt * nominal, nominal, presence, load }
        };
        let mut members: Vec<Member> = spec.nodes.iter().zip(presences).map(member).collect();
        let probabilities = steer(&self.policy.names, &mut members);
        let learnt = relative(&members);
        let shares = spec.nodes.iter().zip(probabilities.iter().zip(learnt));
        let shares = shares
            .map(|(node, (&probability, learnt))| (node.clone(), Share { probability, learnt }));
        let leaving = [Standing::Draining, Standing::Late, Standing::Gone, Standing::Unhealthy];
        let shorten_ttl = spec.nodes.iter().any(|node| leaving.contains(&nodes[node].standing));
        NamePlan { shares: shares.collect(), is_panicking, shorten_ttl }
    }

    /// The part of its share that each node of a name gets, and whether that is more than its standing allows.
    ///
    /// If fewer are left than the panic share of those that are wanted, those come back that were silent for the
    /// shortest time; if none is left, all that are wanted do. Drained and downed nodes never do.
    fn presences(&self, spec: &NameSpec, nodes: &BTreeMap<String, NodePlan>) -> (Vec<f64>, bool) {
        let own = |name: &String| {
            let node = &nodes[name];
            if node.standing.is_in() { node.presence } else { 0.0 }
        };
        let mut presences: Vec<f64> = spec.nodes.iter().map(own).collect();
        let wanted = spec.nodes.iter().filter(|name| nodes[*name].standing.is_wanted()).count();
        let left = presences.iter().filter(|presence| **presence > 0.0).count();
        // The slack keeps shares such as 0.55 of 100 exact.
        let floor = (self.policy.liveness.panic_share * wanted as f64 - 1e-9).ceil() as usize;
        let missing = if left == 0 { wanted } else { floor.saturating_sub(left) };
        if missing == 0 {
            return (presences, false);
        }
        let is_out = |(at, name): &(usize, &String)| {
            presences[*at] == 0.0 && nodes[*name].standing.is_wanted()
        };
        let out = spec.nodes.iter().enumerate().filter(is_out);
        let mut out: Vec<(f64, usize)> =
            out.map(|(at, name)| (self.missed_beats(name), at)).collect();
        out.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        out.iter().take(missing).for_each(|(_, at)| presences[*at] = 1.0);
        (presences, true)
    }

    fn pool(&self, name: &str, spec: &PoolSpec) -> PoolPlan {
        let was = self.before.and_then(|plan| plan.pools.get(name));
        let weights = if spec.weights_by_load { self.weights(spec, was) } else { BTreeMap::new() };
        let passed = self.policy.period().mul_f64(self.passed_periods());
        let scaling = spec.elastic.as_ref().map(|elastic| {
            let was = was.and_then(|was| was.scaling.as_ref());
            elastic::decide(elastic, spec, self.history, name, was, passed)
        });
        PoolPlan { weights, scaling }
    }

    fn weights(&self, spec: &PoolSpec, was: Option<&PoolPlan>) -> BTreeMap<String, BackendPlan> {
        let before = |name: &String| was.and_then(|was| was.weights.get(name));
        let backends: Vec<(&String, &BackendSpec)> =
            spec.backends.iter().filter(|(_, it)| it.is_eligible()).collect();
        let total: f64 = backends.iter().map(|(_, it)| f64::from(it.weight.get())).sum();
        let mean = total / backends.len().max(1) as f64;
        let member = |(name, spec): &(&String, &BackendSpec)| {
            let nominal = f64::from(spec.weight.get()) / mean;
            let learnt = before(name).map_or(1.0, |was| was.learnt);
            let load = spec.machine.as_ref().and_then(|machine| self.history.load(machine));
            let load = load.map(|load| self.policy.coefficients.l1(&load.coming()).get());
            Member { learnt: learnt * nominal, nominal, presence: 1.0, load }
        };
        let mut members: Vec<Member> = backends.iter().map(member).collect();
        let shares = steer(&self.policy.pools, &mut members);
        let learnt = relative(&members);
        let largest = shares.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let scale = (WEIGHT_MEAN * shares.len() as f64).min(f64::from(Weight::MAX) / largest);
        let plan = |((name, _), (share, learnt)): (&(&String, &BackendSpec), (&f64, f64))| {
            let now = ((share * scale).round() as u16).clamp(1, Weight::MAX);
            let kept = before(name).map(|was| was.weight.get()).filter(|was| is_alike(*was, now));
            let weight = Weight::new(kept.unwrap_or(now)).unwrap_or_default();
            ((*name).clone(), BackendPlan { weight, learnt })
        };
        backends.iter().zip(shares.iter().zip(learnt)).map(plan).collect()
    }
}

/// The mean weight by load, where the largest allows it: fine enough for steps of one per cent.
const WEIGHT_MEAN: f64 = 100.0;

/// A weight that is so near the old one that a new snapshot is not worth it.
fn is_alike(was: u16, now: u16) -> bool {
    was.abs_diff(now) <= (was / 50).max(1)
}

/// What is learnt of each member as a multiple of its capacity, scaled to a mean of 1.
fn relative(members: &[Member]) -> Vec<f64> {
    let nominal: f64 = members.iter().map(|one| one.nominal).sum();
    let learnt: f64 = members.iter().map(|one| one.learnt).sum();
    members.iter().map(|one| one.learnt / one.nominal * (nominal / learnt)).collect()
}
