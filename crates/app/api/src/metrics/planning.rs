//! The controller's families.

use std::fmt::Error;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::collector::{counter, describe, ratio};

/// Counters and measurements of a controller.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanningReading {
    /// Whether the configured controller runs; `None` on nodes and agents, which have none.
    pub runs: Option<bool>,
    /// Whether this one leads.
    pub leads: bool,
    /// Of the newest instructions.
    pub term: u64,
    /// Of the newest instructions.
    pub generation: u64,
    /// Since they were planned or came here; since there should be some, if there are none.
    pub age_seconds: f64,
    /// Plans made.
    pub plans: u64,
    /// Time that making them took.
    pub planning_seconds: f64,
    /// Periods without a plan.
    pub unplanned: u64,
    /// Plans that the store took.
    pub writes: u64,
    /// Failed operations of the store.
    pub store_failures: u64,
    /// Writes refused because there was another leader.
    pub fenced_off: u64,
    /// Reports refused, by fault.
    pub refused: Vec<(&'static str, u64)>,
    /// Requests that the cluster API accepted, rejected and dropped, by name; empty without one.
    pub cluster: Vec<(String, u64)>,
    /// Bytes of instructions that the cluster API sent to nodes; `None` without one.
    pub cluster_sent_bytes: Option<u64>,
    /// Machines that have reported.
    pub nodes: Vec<NodeReading>,
}

/// A machine's load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeReading {
    /// Its name.
    pub name: String,
    /// By signal: its name, its smoothed utilisation, and its forecast for the next period; per
    /// cent.
    pub signals: Vec<(&'static str, f64, f64)>,
    /// Of what is expected.
    pub l1: f64,
    /// Of what is expected.
    pub l2: f64,
    /// How far forecasts were off, points: by signal and by method.
    pub errors: Vec<(&'static str, [(&'static str, f64); 4])>,
}

pub(super) fn encode(
    planning: &PlanningReading,
    out: &mut DescriptorEncoder<'_>,
) -> Result<(), Error> {
    totals(planning, out)?;
    gauges(planning, out)?;
    by_node(planning, out)
}

fn totals(planning: &PlanningReading, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
    for (name, help, total) in [
        ("plans", "Plans made", planning.plans),
        (
            "plans_failed",
            "Periods without a plan: what there is contradicts itself",
            planning.unplanned,
        ),
        ("plan_writes", "Plans that the controller's store took", planning.writes),
        ("plan_fenced_off", "Writes refused because another controller leads", planning.fenced_off),
        ("store_failures", "What the controller's store did not do", planning.store_failures),
    ] {
        let mut family = describe(out, name, help, None, MetricType::Counter)?;
        family.encode_counter::<NoLabelSet, _, u64>(&total, None)?;
    }
    let help = "Time spent on making plans";
    let unit = Some(&Unit::Seconds);
    let mut family = describe(out, "planning", help, unit, MetricType::Counter)?;
    family.encode_counter::<NoLabelSet, _, u64>(&planning.planning_seconds, None)?;
    let help = "Reports of nodes that were refused, by what was wrong";
    let mut family = describe(out, "reports_refused", help, None, MetricType::Counter)?;
    for (fault, count) in &planning.refused {
        counter(&mut family, &[("fault", fault)], *count)?;
    }
    let help = "What the cluster API took, refused and dropped, by name; on a node, its reports and the instructions that it \
                did not install";
    let mut family = describe(out, "cluster_api", help, None, MetricType::Counter)?;
    for (event, count) in &planning.cluster {
        counter(&mut family, &[("event", event)], *count)?;
    }
    if let Some(bytes) = &planning.cluster_sent_bytes {
        let help = "Bytes of instructions that the cluster API sent to nodes";
        let unit = Some(&Unit::Bytes);
        let mut family = describe(out, "cluster_api_sent", help, unit, MetricType::Counter)?;
        family.encode_counter::<NoLabelSet, _, u64>(bytes, None)?;
    }
    Ok(())
}

fn gauges(planning: &PlanningReading, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
    if let Some(runs) = planning.runs {
        let help = "Whether the controller runs that this process is to run";
        let mut gauge = describe(out, "controller_running", help, None, MetricType::Gauge)?;
        gauge.encode_gauge(&u64::from(runs))?;
    }
    for (name, help, value) in [
        ("controller_leads", "Whether this controller leads", u64::from(planning.leads)),
        ("plan_term", "The term of the newest instructions", planning.term),
        ("plan_generation", "The generation of the newest instructions", planning.generation),
    ] {
        let mut gauge = describe(out, name, help, None, MetricType::Gauge)?;
        gauge.encode_gauge(&value)?;
    }
    let help = "Since the newest instructions were planned, or came here; without any, since there should be some";
    let unit = Some(&Unit::Seconds);
    let mut gauge = describe(out, "plan_age", help, unit, MetricType::Gauge)?;
    gauge.encode_gauge(&planning.age_seconds)
}

fn by_node(planning: &PlanningReading, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
    let help = "Use of a node's resource, smoothed";
    let mut family = describe(out, "node_used_ratio", help, None, MetricType::Gauge)?;
    for node in &planning.nodes {
        for (signal, smoothed, _) in &node.signals {
            let labels = [("node", node.name.as_str()), ("signal", signal)];
            family.encode_family(&labels)?.encode_gauge(&ratio(*smoothed))?;
        }
    }
    let help = "Use of a node's resource that is expected in the coming period";
    let mut family = describe(out, "node_forecast_ratio", help, None, MetricType::Gauge)?;
    for node in &planning.nodes {
        for (signal, _, coming) in &node.signals {
            let labels = [("node", node.name.as_str()), ("signal", signal)];
            family.encode_family(&labels)?.encode_gauge(&ratio(*coming))?;
        }
    }
    let help = "The load expected in the coming period; L2 is without the network";
    let mut family = describe(out, "node_load_ratio", help, None, MetricType::Gauge)?;
    for node in &planning.nodes {
        for (load, value) in [("L1", node.l1), ("L2", node.l2)] {
            let labels = [("node", node.name.as_str()), ("load", load)];
            family.encode_family(&labels)?.encode_gauge(&ratio(value))?;
        }
    }
    let help = "Mean absolute error of recent forecasts by method, as a part of the resource; \
                predicting helps where `believed` is below `naive`";
    let mut family = describe(out, "node_forecast_error_ratio", help, None, MetricType::Gauge)?;
    for node in &planning.nodes {
        for (signal, errors) in &node.errors {
            for (method, error) in errors {
                let labels = [("node", node.name.as_str()), ("signal", signal), ("method", method)];
                family.encode_family(&labels)?.encode_gauge(&ratio(*error))?;
            }
        }
    }
    Ok(())
}
