//! Metrics of the controller.

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
    /// Whether this controller leads.
    pub leads: bool,
    /// Term of the newest instructions.
    pub term: u64,
    /// Generation of the newest instructions.
    pub generation: u64,
    /// Time since the newest instructions were planned or arrived. Without instructions, the time
    /// since they were expected.
    pub age_seconds: f64,
    /// Number of plans.
    pub plans: u64,
    /// Total time spent on planning.
    pub planning_seconds: f64,
    /// Periods without a plan.
    pub unplanned: u64,
    /// Plans that the store accepted.
    pub writes: u64,
    /// Failed operations of the store.
    pub store_failures: u64,
    /// Writes that the store refused because another controller leads.
    pub fenced_off: u64,
    /// Refused reports, by fault.
    pub refused: Vec<(&'static str, u64)>,
    /// Requests that the cluster API accepted, rejected and dropped, by name; empty without the
    /// API.
    pub cluster: Vec<(String, u64)>,
    /// Bytes of instructions that the cluster API sent to nodes; `None` without the API.
    pub cluster_sent_bytes: Option<u64>,
    /// Machines that have reported.
    pub nodes: Vec<NodeReading>,
}

/// The load of a machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeReading {
    /// Its name.
    pub name: String,
    /// For each signal: its name, its smoothed utilisation and its forecast for the next period, in
    /// per cent.
    pub signals: Vec<(&'static str, f64, f64)>,
    /// Expected L1.
    pub l1: f64,
    /// Expected L2.
    pub l2: f64,
    /// Error of forecasts in percentage points, by signal and by method.
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
            "Periods without a plan, because configuration and reports contradict each other",
            planning.unplanned,
        ),
        ("plan_writes", "Plans that the controller's store accepted", planning.writes),
        ("plan_fenced_off", "Writes refused because another controller leads", planning.fenced_off),
        ("store_failures", "Failed operations of the controller's store", planning.store_failures),
    ] {
        let mut family = describe(out, name, help, None, MetricType::Counter)?;
        family.encode_counter::<NoLabelSet, _, u64>(&total, None)?;
    }
    let help = "Time spent on planning";
    let unit = Some(&Unit::Seconds);
    let mut family = describe(out, "planning", help, unit, MetricType::Counter)?;
    family.encode_counter::<NoLabelSet, _, u64>(&planning.planning_seconds, None)?;
    let help = "Refused reports of nodes, by fault";
    let mut family = describe(out, "reports_refused", help, None, MetricType::Counter)?;
    for (fault, count) in &planning.refused {
        counter(&mut family, &[("fault", fault)], *count)?;
    }
    let help = "Requests that the cluster API accepted, refused and dropped, by name; on a node, its reports and the instructions that it \
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
        let help = "Whether the controller of this process runs";
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
    let help = "Time since the newest instructions were planned or arrived; without any, since they were expected";
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
    let help = "Expected use of a node's resource in the next period";
    let mut family = describe(out, "node_forecast_ratio", help, None, MetricType::Gauge)?;
    for node in &planning.nodes {
        for (signal, _, coming) in &node.signals {
            let labels = [("node", node.name.as_str()), ("signal", signal)];
            family.encode_family(&labels)?.encode_gauge(&ratio(*coming))?;
        }
    }
    let help = "Expected load in the next period; L2 is without the network";
    let mut family = describe(out, "node_load_ratio", help, None, MetricType::Gauge)?;
    for node in &planning.nodes {
        for (load, value) in [("L1", node.l1), ("L2", node.l2)] {
            let labels = [("node", node.name.as_str()), ("load", load)];
            family.encode_family(&labels)?.encode_gauge(&ratio(value))?;
        }
    }
    let help = "Mean absolute error of recent forecasts by method, as a part of the resource; \
                forecasts help where `believed` is below `naive`";
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
