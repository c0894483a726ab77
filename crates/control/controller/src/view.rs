use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use equipoise_core::load::{Coefficients, ForecastError, NodeLoad, Signal, Signals};

use equipoise_planner::{NamePlan, Plan, PlannedLoad};
use equipoise_store::Leader;

use crate::condition::Condition;
use crate::counts::Counted;
use crate::shared::{ControllerHandle, Shared};
use crate::{ClusterView, Fault, Instructions, MemberState, MemberView, NodeKind};

/// A controller's values for metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Counters.
    pub counted: Counted,
    /// Number of refused reports by fault, with zeros.
    pub refused: Vec<(Fault, u64)>,
    /// The load of each machine that has reported.
    pub loads: Vec<LoadFigures>,
}

/// A machine's load.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadFigures {
    /// The machine's name.
    pub node: String,
    /// Smoothed utilisation in per cent.
    pub smoothed: Signals,
    /// Expected utilisation in the coming period.
    pub coming: Signals,
    /// L1 of the expected utilisation.
    pub l1: f64,
    /// L2 of the expected utilisation.
    pub l2: f64,
    /// Errors of the predictions, by signal.
    pub errors: Vec<(Signal, ForecastError)>,
}

impl ControllerHandle {
    /// Values for metrics.
    pub fn figures(&self) -> Figures {
        let weigh = self.shared.known().premises.policy.coefficients;
        let roll = self.shared.roll();
        let load = |node: &String| {
            let load = roll.load(node)?;
            let coming = load.coming();
            let errors = Signal::ALL.into_iter();
            Some(LoadFigures {
                node: node.clone(),
                smoothed: load.smoothed(),
                coming,
                l1: weigh.l1(&coming).get(),
                l2: weigh.l2(&coming),
                errors: errors.filter_map(|it| Some((it, load.error(it)?))).collect(),
            })
        };
        Figures {
            counted: self.shared.counts.read(),
            refused: roll.refused().collect(),
            loads: roll.members().keys().filter_map(load).collect(),
        }
    }
}

fn shares(plan: &Plan, node: &str) -> BTreeMap<String, f64> {
    let share = |(name, answers): (&String, &NamePlan)| {
        Some((name.clone(), answers.shares.get(node)?.probability))
    };
    plan.names.iter().filter_map(share).collect()
}

/// Another leader's term: the revision of its election, or a later term in its instructions.
fn term_of(leader: &Leader, newest: &Instructions) -> u64 {
    let says = Some(newest.term).filter(|_| newest.leader == leader.name);
    leader.term.0.0.max(says.unwrap_or(0))
}

/// L1 and L2 of a machine's reports, for machines without a plan.
fn by_report(weigh: &Coefficients, load: &NodeLoad) -> PlannedLoad {
    let coming = load.coming();
    let l2 = weigh.l2(&coming);
    PlannedLoad { l1: weigh.l1(&coming).get(), l2, l2_offered: l2 }
}

/// The state of the cluster as this controller sees it.
pub(crate) fn cluster(shared: &Shared) -> ClusterView {
    let newest = shared.instructions.borrow().clone();
    let weigh = shared.known().premises.policy.coefficients;
    let period = shared.options.smoothing.period;
    let (roll, now) = (shared.roll(), shared.now());
    let names: BTreeSet<&String> = roll.members().keys().chain(newest.members.keys()).collect();
    let member = |name: &String| {
        let (said, planned) = (roll.members().get(name), newest.plan.nodes.get(name));
        let enrolled = said.map(|said| &said.enrolled).or_else(|| newest.members.get(name));
        // A member that never reported here has been silent since this controller started.
        let silence = now.saturating_sub(said.map_or(Duration::ZERO, |said| said.at));
        let standing = planned.map(|planned| planned.standing);
        let claimed = said.map(|said| said.enrolled.capacity);
        let capacity = newest.members.get(name).map(|it| it.capacity).or(claimed).unwrap_or(0.0);
        let own = || roll.load(name).map(|load| by_report(&weigh, load));
        MemberView {
            name: name.clone(),
            kind: enrolled.map_or(NodeKind::Node, |it| it.kind),
            state: MemberState::after(silence, period, standing),
            version: said.map(|said| said.version.clone()).unwrap_or_default(),
            capacity,
            claimed_capacity: claimed.filter(|claimed| *claimed != capacity),
            standing,
            presence: planned.map(|planned| planned.presence),
            dispatches: enrolled.is_some_and(|it| it.dispatches),
            keep: planned.map(|planned| planned.keep),
            takes: newest.plan.dispatch.weights.get(name).copied(),
            load: said.and_then(|said| said.load),
            machine_cpu: said.and_then(|said| said.machine_cpu),
            planned: planned.and_then(|planned| planned.load).or_else(own),
            report_age: said.map(|_| silence),
            applied: said.and_then(|said| said.applied),
            shares: shares(&newest.plan, name),
            refused: said.map_or(0, |said| said.refused),
        }
    };
    let members = names.into_iter().map(member).collect();
    drop(roll);
    let condition = Condition::of(shared);
    let known = shared.known();
    ClusterView {
        controller: shared.options.name.clone(),
        controllers: known.controllers.clone(),
        problem: condition.problem(),
        leader: condition.leader,
        term: known.leads_in.or_else(|| Some(term_of(known.leader.as_ref()?, &newest))),
        leads: condition.leads,
        instructions: condition.instructions,
        instructions_age: known.published.map(|at| at.elapsed()),
        period,
        members,
        rosters: newest.rosters.clone(),
        store: condition.store,
    }
}
