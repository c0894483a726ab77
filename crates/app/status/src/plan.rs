//! The state of planning.

use std::collections::BTreeMap;
use std::time::Duration;

use equipoise_api::metrics::{LinkReading, MachineReading, NodeReading, PlanningReading};
use equipoise_api::wire::Admin;
use equipoise_api::wire::cluster::OwnLoad;
use equipoise_api::wire::plan::{
    HistoryPoint, HistoryQuestion, HistorySpread, NodeHistory, NodeStatus, Nodes, PlanMode,
    PlanStatus, PlannedNode, PlannedPool, PlannedScaling, PlannedWeight,
};
use equipoise_controller::{
    ClusterView, Condition, Figures, Instructions, LoadFigures, MemberState, Premises, Recorder,
    SizeWish,
};
use equipoise_core::AdminState;
use equipoise_core::load::{ForecastError, Signal};
use equipoise_monitor::{InterfaceRate, Point, QueryError, Spread, Utilisation};
use equipoise_planner::elastic::{Mode, Scaling, ScalingPlan};
use equipoise_planner::{NodePlan, Plan, PoolPlan, PoolSpec};
use equipoise_planning::capacity;

/// Context in which a plan is shown.
pub struct Shown<'s> {
    /// The newest instructions.
    pub instructions: &'s Instructions,
    /// The planner's inputs.
    pub premises: &'s Premises,
    /// Operators' settings for pool sizes.
    pub sizes: &'s BTreeMap<String, SizeWish>,
}

/// The newest plan, or the next one.
pub fn plan(view: &ClusterView, shown: &Shown<'_>, next: Option<&Plan>) -> PlanStatus {
    let Shown { instructions, premises, sizes } = *shown;
    let shown = next.unwrap_or(&instructions.plan);
    let is_there = view.instructions.is_some();
    PlanStatus {
        next: next.is_some(),
        leader: is_there.then(|| instructions.leader.clone()),
        term: instructions.term,
        generation: shown.generation.0,
        age_seconds: view.instructions_age.map(|age| age.as_secs_f64()),
        period_seconds: view.period.as_secs_f64(),
        store_failing_seconds: view.store.failing_for.map(|time| time.as_secs_f64()),
        pools: shown
            .pools
            .iter()
            .map(|(name, plan)| pool(name, plan, premises.pools.get(name), sizes.get(name)))
            .collect(),
        nodes: shown.nodes.iter().map(|(name, plan)| planned_node(name, plan)).collect(),
    }
}

fn pool(
    name: &str,
    plan: &PoolPlan,
    spec: Option<&PoolSpec>,
    said: Option<&SizeWish>,
) -> PlannedPool {
    let weight = |(backend, it): (&String, &equipoise_planner::BackendPlan)| PlannedWeight {
        backend: backend.clone(),
        weight: it.weight.get(),
        learnt: it.learnt,
    };
    PlannedPool {
        name: name.to_string(),
        weights: plan.weights.iter().map(weight).collect(),
        scaling: plan.scaling.as_ref().map(|it| scaling(it, spec, said)),
    }
}

fn scaling(plan: &ScalingPlan, spec: Option<&PoolSpec>, said: Option<&SizeWish>) -> PlannedScaling {
    let elastic = spec.and_then(|spec| spec.elastic.clone()).unwrap_or_default();
    let up = |spec: &PoolSpec| {
        spec.backends.values().filter(|it| it.admin == AdminState::Up).count() as u32
    };
    let (mode, pinned) = match elastic.mode {
        Mode::Auto => (PlanMode::Auto, None),
        Mode::Paused => (PlanMode::Paused, said.and_then(|said| said.pin())),
        Mode::Pinned(count) => (PlanMode::Pinned, Some(count)),
    };
    let (action, count, size, leaving) = match &plan.action {
        Scaling::Hold => ("hold", 0, None, Vec::new()),
        Scaling::Out { size, count } => ("out", *count, size.clone(), Vec::new()),
        Scaling::In { backends } => ("in", 0, None, backends.clone()),
        Scaling::Replace { size, backend } => ("replace", 1, size.clone(), vec![backend.clone()]),
    };
    PlannedScaling {
        mode,
        pinned,
        backends: spec.map_or(0, up),
        min: elastic.min,
        max: elastic.max,
        action: action.to_string(),
        count,
        size,
        leaving,
        reason: plan.reason.clone(),
        in_use: plan.in_use,
    }
}

fn planned_node(name: &str, plan: &NodePlan) -> PlannedNode {
    PlannedNode {
        name: name.to_string(),
        standing: plan.standing.to_string(),
        presence: plan.presence,
        l1: plan.load.map(|load| load.l1),
        l2: plan.load.map(|load| load.l2),
        overloaded: plan.is_overloaded,
        keep: plan.keep,
    }
}

/// This node alone, if no controller runs.
pub fn alone(name: &str, recorder: &Recorder, own: Option<OwnLoad>) -> Nodes {
    let latest = recorder.latest(name);
    let sample = latest.map(|(_, sample)| sample).unwrap_or_default();
    let node = NodeStatus {
        name: name.to_string(),
        kind: "node".to_string(),
        state: MemberState::Alive.name().to_string(),
        version: env!("CARGO_PKG_VERSION").to_string(),
        capacity: own.map_or_else(|| capacity(None), |own| own.capacity),
        claimed_capacity: None,
        admin: Admin::Up,
        standing: None,
        shares: BTreeMap::new(),
        cpu_percent: sample.cpu_percent,
        machine_cpu_percent: own.and_then(|own| own.machine_cpu_percent),
        memory_percent: sample.memory_percent,
        net_percent: sample.net_percent,
        l1: own.and_then(|own| own.l1),
        l2: own.and_then(|own| own.l2),
        keep: None,
        takes: None,
        report_age_seconds: latest.map(|(age, _)| age.as_secs_f64()),
        applied: None,
        refused_total: 0,
    };
    Nodes { leader: None, controllers: Vec::new(), nodes: vec![node] }
}

/// Default length and step of the history, in seconds.
const SPAN: u64 = 300;
const STEP: u64 = 1;

/// A node's recent utilisation.
pub fn history(
    node: &str,
    question: HistoryQuestion,
    recorder: &Recorder,
) -> Result<NodeHistory, QueryError> {
    let seconds = |asked: Option<u64>, otherwise| Duration::from_secs(asked.unwrap_or(otherwise));
    let (span, step) = (seconds(question.seconds, SPAN), seconds(question.step, STEP));
    let points = recorder.recent(node, span, step)?;
    Ok(NodeHistory { node: node.to_string(), points: points.iter().map(point).collect() })
}

fn point(point: &Point) -> HistoryPoint {
    let spread = |spread: Spread| HistorySpread {
        mean_percent: spread.mean_percent,
        max_percent: spread.max_percent,
        samples: spread.samples,
    };
    HistoryPoint {
        at_unix_seconds: point.at.as_secs_f64(),
        cpu: point.cpu.map(spread),
        memory: point.memory.map(spread),
        net: point.net.map(spread),
        cpu_pressure: point.cpu_pressure.map(spread),
        memory_pressure: point.memory_pressure.map(spread),
        io_pressure: point.io_pressure.map(spread),
        cpu_forecast: point.cpu_forecast.map(spread),
    }
}

/// This machine's utilisation, for metrics.
pub fn machine(used: &Utilisation) -> MachineReading {
    let known = |signals: &[(&'static str, Option<f64>)]| {
        signals.iter().copied().filter_map(|(name, percent)| Some((name, percent?))).collect()
    };
    let link = |rate: &InterfaceRate| LinkReading {
        name: rate.name.clone(),
        received_bits_per_second: rate.received_bits_per_second,
        sent_bits_per_second: rate.sent_bits_per_second,
        used_percent: rate.used_percent,
    };
    MachineReading {
        used: known(&[
            ("cpu", used.cpu_percent),
            ("machine_cpu", used.cpu_machine_percent),
            ("memory", used.memory_percent),
            ("net", used.net_percent),
        ]),
        pressure: known(&[
            ("cpu", used.cpu_pressure_percent),
            ("memory", used.memory_pressure_percent),
            ("io", used.io_pressure_percent),
        ]),
        interfaces: used.interfaces.iter().map(link).collect(),
    }
}

/// The planner's figures, for metrics.
pub fn reading(condition: &Condition, figures: &Figures) -> PlanningReading {
    let counted = figures.counted;
    let edition = condition.instructions.unwrap_or_default();
    PlanningReading {
        runs: Some(true),
        leads: condition.leads,
        term: edition.term,
        generation: edition.generation,
        age_seconds: condition.plan_age.as_secs_f64(),
        plans: counted.plans,
        planning_seconds: counted.planning.as_secs_f64(),
        unplanned: counted.unplanned,
        writes: counted.writes,
        store_failures: counted.store_failures,
        fenced_off: counted.fenced_off,
        refused: figures.refused.iter().map(|(fault, count)| (fault.label(), *count)).collect(),
        cluster: Vec::new(),
        cluster_sent_bytes: None,
        nodes: figures.loads.iter().map(node_reading).collect(),
    }
}

fn node_reading(load: &LoadFigures) -> NodeReading {
    let (now, coming) = (load.smoothed, load.coming);
    let mut signals = vec![("cpu", now.cpu, coming.cpu), ("memory", now.memory, coming.memory)];
    signals.extend(now.net.zip(coming.net).map(|(now, coming)| ("net", now, coming)));
    let errors = |(signal, error): &(Signal, ForecastError)| {
        let signal = match signal {
            Signal::Cpu => "cpu",
            Signal::Memory => "memory",
            Signal::Net => "net",
        };
        let by_method = [
            ("believed", error.believed()),
            ("holt", error.holt),
            ("smoothed", error.smoothed),
            ("naive", error.naive),
        ];
        (signal, by_method)
    };
    NodeReading {
        name: load.node.clone(),
        signals,
        l1: load.l1,
        l2: load.l2,
        errors: load.errors.iter().map(errors).collect(),
    }
}
