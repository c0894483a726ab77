//! `[load]`, `[controller]` and `[pool.elastic]`: inputs of the planner.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

use equipoise_core::load::{Coefficients, OverloadRule, Smoothing};
use equipoise_planner::elastic::{Elasticity, ElasticityRefused, Mode, ScheduledMin, Size, Target};
use equipoise_planner::{DispatchPolicy, Policy};
use equipoise_planning::{NamesByLoad, Planning};
use equipoise_session::config::PoolConfig;

use super::Surroundings;
use super::declared;
use super::driver::maker;
use super::problem::Findings;
use super::tables;
use super::text::{LinkSpeed, TimeOfDay, UtcOffset, Weekday, Zone};
use super::values::{Values, chosen};

/// Builds the configuration from values that were read. A policy that the planner rejects is an
/// error.
pub(super) fn config(
    file: &Values,
    pools: &[PoolConfig],
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Planning {
    let load = file.table("load").expect("has a default: a test reads every one");
    let controller = file.table("controller").expect("has a default: a test reads every one");
    let (mut elastic, mut makers) = (BTreeMap::new(), BTreeMap::new());
    let (mut declared, mut awaited) = (BTreeMap::new(), BTreeSet::new());
    for pool in file.tables("pool") {
        let (Some(name), Some(values)) = (pool.text("name"), pool.table("elastic")) else {
            continue;
        };
        let is_declared = declared::by_controllers(values);
        if is_declared && !declared::is_controller(file) {
            awaited.insert(name.to_string());
            continue;
        }
        let one = elasticity(values);
        if let Err(error) = one.check()
            && !findings.has_error_below(&values.path)
        {
            let option = match &error {
                ElasticityRefused::Bounds { .. } => "max",
                ElasticityRefused::Schedule { .. } => "schedule",
                ElasticityRefused::Value { option, .. } => *option,
                ElasticityRefused::Size { .. } => "sizes",
            };
            findings.error(values.at(option), &values.path_of(option), error.to_string());
        }
        elastic.insert(name.to_string(), one);
        if is_declared {
            declared.extend(declared::declaration(name, values, findings));
        } else if let Some(maker) = maker(values, file.given("cluster"), around, findings) {
            makers.insert(name.to_string(), maker);
        }
    }
    Planning {
        policy: policy(load, findings),
        capacity_max: Some(load.share("capacity-max")),
        link_speeds: link_speeds(load, findings),
        state: controller.text("state").map(PathBuf::from),
        elastic,
        makers,
        declared,
        awaited,
        machines: machines(file, pools),
        names: NamesByLoad::new(),
    }
}

fn link_speeds(load: &Values, findings: &mut Findings<'_>) -> BTreeMap<String, u64> {
    let mut speeds = BTreeMap::new();
    for link in load.tables("links") {
        let (Some(name), Some(LinkSpeed(speed))) = (link.text("interface"), link.parsed("speed"))
        else {
            continue;
        };
        if speeds.insert(name.to_string(), speed).is_some() {
            let text = format!("\"{name}\" is listed twice; accepted: each interface once");
            findings.error(link.at("interface"), &link.path_of("interface"), text);
        }
    }
    speeds
}

fn policy(load: &Values, findings: &mut Findings<'_>) -> Policy {
    let coefficients = Coefficients {
        net: load.share("net"),
        cpu: load.share("cpu"),
        memory: load.share("memory"),
    };
    let policy = Policy {
        smoothing: Smoothing { period: load.duration("period"), ..Smoothing::default() },
        coefficients,
        overload: OverloadRule::with_ratio(load.share("overload-ratio")),
        dispatch: DispatchPolicy { admit: load.share("admit"), ..DispatchPolicy::default() },
        ..Policy::default()
    };
    policy.checked().unwrap_or_else(|error| {
        findings.error(load.at, &load.path, error.to_string());
        Policy::default()
    })
}

fn elasticity(values: &Values) -> Elasticity {
    let size = |size: &Values| {
        let kind = Size { speed: size.share("speed"), price: size.share("price") };
        Some((size.text("name")?.to_string(), kind))
    };
    let paused = chosen(values, "mode", &tables::MODE);
    Elasticity {
        min: values.amount("min"),
        schedule: values.tables("schedule").iter().filter_map(scheduled).collect(),
        // Without `max` the file has errors and is not used.
        max: values.number("max").and_then(|max| max.try_into().ok()).unwrap_or(u32::MAX),
        target: target(values),
        out_cool_down: values.duration("out-cool-down"),
        in_cool_down: values.duration("in-cool-down"),
        warm_up: values.duration("warm-up"),
        growth_max: values.share("growth-max"),
        scale_in_rate: values.share("scale-in-rate"),
        sizes: values.tables("sizes").iter().filter_map(size).collect(),
        mode: if paused { Mode::Paused } else { Mode::Auto },
    }
}

/// Reads one schedule. `None` if the file has errors and is not used.
fn scheduled(values: &Values) -> Option<ScheduledMin> {
    let TimeOfDay(from) = values.parsed("from")?;
    let TimeOfDay(to) = values.parsed("to")?;
    let zone = match values.given("zone") {
        true => values.parsed::<Zone>("zone")?.0,
        false => values.parsed::<UtcOffset>("utc-offset")?.zone(),
    };
    let mut days = [values.texts("days").is_none(); 7];
    for day in values.texts("days").into_iter().flatten() {
        let Weekday(day) = day.parse().ok()?;
        days[day] = true;
    }
    Some(ScheduledMin { days, from, to, zone, min: values.number("min")?.try_into().ok()? })
}

fn target(values: &Values) -> Target {
    let concurrency = values.share_if_any("target-concurrency").map(Target::Concurrency);
    let stated =
        concurrency.or_else(|| values.share_if_any("target-requests").map(Target::Requests));
    stated.unwrap_or_else(|| Target::InUse(values.share("target")))
}

/// Maps backends to machines. Built backends are in the order of the file, so both lists are read
/// in parallel.
fn machines(file: &Values, pools: &[PoolConfig]) -> BTreeMap<(String, String), String> {
    let mut machines = BTreeMap::new();
    let pools: HashMap<&str, _> = pools.iter().map(|pool| (&*pool.name, pool)).collect();
    for pool in file.tables("pool") {
        let Some(built) = pool.text("name").and_then(|name| pools.get(name)) else { continue };
        // If a backend was left out, the file has an error and is not used.
        for (values, backend) in pool.tables("backends").iter().zip(&built.backends) {
            if let Some(node) = values.text("node") {
                let key = (built.name.to_string(), backend.name.to_string());
                machines.insert(key, node.to_string());
            }
        }
    }
    machines
}
