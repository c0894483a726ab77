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
use super::key::Key;
use super::problem::Findings;
use super::tables::{
    Backend, Controller, Elastic, ElasticSize, File, Link, Load, PlanMode, Pool, Schedule,
};
use super::text::{LinkSpeed, TimeOfDay, Weekday, Zone};
use super::view::View;

/// Builds the configuration from values that were read. A policy that the planner rejects is an
/// error.
pub(super) fn config(
    file: View<'_, File>,
    pools: &[PoolConfig],
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Planning {
    let load = file.get(File::LOAD);
    let controller = file.get(File::CONTROLLER);
    let (mut elastic, mut makers) = (BTreeMap::new(), BTreeMap::new());
    let (mut declared, mut awaited) = (BTreeMap::new(), BTreeSet::new());
    for pool in file.get(File::POOL) {
        let (Some(name), Some(values)) = (pool.get(Pool::NAME), pool.get(Pool::ELASTIC)) else {
            continue;
        };
        let is_declared = declared::by_controllers(values);
        if is_declared && !declared::is_controller(file) {
            awaited.insert(name.to_string());
            continue;
        }
        let one = elasticity(values);
        if let Err(error) = one.check()
            && !findings.has_error_below(values.path())
        {
            let option = match &error {
                ElasticityRefused::Bounds { .. } => Elastic::MAX.any(),
                ElasticityRefused::Schedule { .. } => Elastic::SCHEDULE.any(),
                ElasticityRefused::Value { option, .. } => {
                    Key::named(option).expect("the planner names options of [pool.elastic]")
                }
                ElasticityRefused::Size { .. } => Elastic::SIZES.any(),
            };
            findings.error(values.at(option), &values.path_of(option), error.to_string());
        }
        elastic.insert(name.to_string(), one);
        if is_declared {
            declared.extend(declared::declaration(name, values, findings));
        } else if let Some(maker) = maker(values, file.given(File::CLUSTER), around, findings) {
            makers.insert(name.to_string(), maker);
        }
    }
    Planning {
        policy: policy(load, findings),
        capacity_max: Some(load.get(Load::CAPACITY_MAX)),
        link_speeds: link_speeds(load, findings),
        state: controller.get(Controller::STATE).map(PathBuf::from),
        elastic,
        makers,
        declared,
        awaited,
        machines: machines(file, pools),
        names: NamesByLoad::new(),
    }
}

fn link_speeds(load: View<'_, Load>, findings: &mut Findings<'_>) -> BTreeMap<String, u64> {
    let mut speeds = BTreeMap::new();
    for link in load.get(Load::LINKS) {
        let (Some(name), Some(LinkSpeed(speed))) =
            (link.get(Link::INTERFACE), link.get(Link::SPEED))
        else {
            continue;
        };
        if speeds.insert(name.to_string(), speed).is_some() {
            let text = format!("\"{name}\" is listed twice; accepted: each interface once");
            findings.error(link.at(Link::INTERFACE), &link.path_of(Link::INTERFACE), text);
        }
    }
    speeds
}

fn policy(load: View<'_, Load>, findings: &mut Findings<'_>) -> Policy {
    let coefficients = Coefficients {
        net: load.get(Load::NET),
        cpu: load.get(Load::CPU),
        memory: load.get(Load::MEMORY),
    };
    let policy = Policy {
        smoothing: Smoothing { period: load.get(Load::PERIOD), ..Smoothing::default() },
        coefficients,
        overload: OverloadRule::with_ratio(load.get(Load::OVERLOAD_RATIO)),
        dispatch: DispatchPolicy { admit: load.get(Load::ADMIT), ..DispatchPolicy::default() },
        ..Policy::default()
    };
    policy.checked().unwrap_or_else(|error| {
        findings.error(load.start(), load.path(), error.to_string());
        Policy::default()
    })
}

fn elasticity(values: View<'_, Elastic>) -> Elasticity {
    let size = |size: View<'_, ElasticSize>| {
        let kind =
            Size { speed: size.get(ElasticSize::SPEED), price: size.get(ElasticSize::PRICE) };
        Some((size.get(ElasticSize::NAME)?.to_string(), kind))
    };
    Elasticity {
        min: values.get(Elastic::MIN),
        schedule: values.get(Elastic::SCHEDULE).iter().filter_map(scheduled).collect(),
        // Without `max` the file has errors and is not used.
        max: values.get(Elastic::MAX).unwrap_or(u32::MAX),
        target: target(values),
        out_cool_down: values.get(Elastic::OUT_COOL_DOWN),
        in_cool_down: values.get(Elastic::IN_COOL_DOWN),
        warm_up: values.get(Elastic::WARM_UP),
        growth_max: values.get(Elastic::GROWTH_MAX),
        scale_in_rate: values.get(Elastic::SCALE_IN_RATE),
        sizes: values.get(Elastic::SIZES).iter().filter_map(size).collect(),
        mode: match values.get(Elastic::MODE) {
            PlanMode::Auto => Mode::Auto,
            PlanMode::Paused => Mode::Paused,
        },
    }
}

/// Reads one schedule. `None` if the file has errors and is not used.
fn scheduled(values: View<'_, Schedule>) -> Option<ScheduledMin> {
    let TimeOfDay(from) = values.get(Schedule::FROM)?;
    let TimeOfDay(to) = values.get(Schedule::TO)?;
    let zone = match values.get(Schedule::ZONE) {
        Some(Zone(zone)) => zone,
        // A wrong zone is an error of the file.
        None => values.get(Schedule::UTC_OFFSET).zone(),
    };
    let stated = values.get(Schedule::DAYS);
    let mut days = [stated.is_none(); 7];
    for Weekday(day) in stated.into_iter().flatten() {
        days[day] = true;
    }
    Some(ScheduledMin { days, from, to, zone, min: values.get(Schedule::MIN)? })
}

fn target(values: View<'_, Elastic>) -> Target {
    let concurrency = values.get(Elastic::TARGET_CONCURRENCY).map(Target::Concurrency);
    let stated = concurrency.or_else(|| values.get(Elastic::TARGET_REQUESTS).map(Target::Requests));
    stated.unwrap_or_else(|| Target::InUse(values.get(Elastic::TARGET)))
}

/// Maps backends to machines. Built backends are in the order of the file, so both lists are read
/// in parallel.
fn machines(file: View<'_, File>, pools: &[PoolConfig]) -> BTreeMap<(String, String), String> {
    let mut machines = BTreeMap::new();
    let pools: HashMap<&str, _> = pools.iter().map(|pool| (&*pool.name, pool)).collect();
    for pool in file.get(File::POOL) {
        let Some(built) = pool.get(Pool::NAME).and_then(|name| pools.get(name)) else { continue };
        // If a backend was left out, the file has an error and is not used.
        for (values, backend) in pool.get(Pool::BACKENDS).iter().zip(&built.backends) {
            if let Some(node) = values.get(Backend::NODE) {
                let key = (built.name.to_string(), backend.name.to_string());
                machines.insert(key, node.to_string());
            }
        }
    }
    machines
}
