//! Weights of a pool's backends by the load of their machines.

use std::collections::BTreeMap;

use equipoise_core::Weight;

use crate::history::History;
use crate::inventory::{BackendSpec, PoolSpec};
use crate::plan::{BackendPlan, PoolPlan};
use crate::policy::Policy;
use crate::room;
use crate::steering::{Member, relative, steer};

/// The mean weight by load, large enough for steps of one per cent. It is larger if the smallest
/// weight would be zero, and smaller if the largest would exceed the maximum.
const WEIGHT_MEAN: f64 = 100.0;

/// The load, in per cent, that stands for the mean number of requests in flight if no machine
/// reports.
const CROWD_MEAN: f64 = 50.0;
/// Mean requests in flight per backend below which differences between backends are random.
const CROWD_MIN: f64 = 0.5;
/// Requests in flight in the whole pool below which it is idle.
const IDLE: f64 = 0.01;

/// A weight for each eligible backend. Weights begin in proportion to the operator's.
///
/// A backend's load is the load that requests cause, by the first of these that is known:
/// 1. its requests in flight over its concurrency limit. Weights settle in proportion to capacity,
///    the throughput at the limit;
/// 2. the CPU and network of its machine, while requests are in flight in the pool;
/// 3. its requests in flight relative to the others'. Weights settle in proportion to speed.
///
/// Memory does not move with requests and never counts. Without requests, weights do not change.
pub(crate) fn by_load(
    policy: &Policy,
    history: &History,
    name: &str,
    spec: &PoolSpec,
    was: Option<&PoolPlan>,
) -> BTreeMap<String, BackendPlan> {
    let before = |name: &String| was.and_then(|was| was.weights.get(name));
    let backends: Vec<(&String, &BackendSpec)> =
        spec.backends.iter().filter(|(_, it)| it.is_eligible()).collect();
    let total: f64 = backends.iter().map(|(_, it)| f64::from(it.weight.get())).sum();
    let mean = total / backends.len().max(1) as f64;
    let loads = loads(policy, history, name, spec, &backends);
    let member = |((name, spec), load): (&(&String, &BackendSpec), Option<f64>)| {
        let nominal = f64::from(spec.weight.get()) / mean;
        let learnt = before(name).map_or(1.0, |was| was.learnt);
        Member { learnt: learnt * nominal, nominal, presence: 1.0, load }
    };
    let mut members: Vec<Member> = backends.iter().zip(loads).map(member).collect();
    let shares = steer(&policy.pools, &mut members);
    let largest = shares.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let smallest = shares.iter().copied().fold(1.0, f64::min).max(f64::MIN_POSITIVE);
    let wanted = (WEIGHT_MEAN * shares.len() as f64).max(1.0 / smallest);
    let scale = wanted.min(f64::from(Weight::MAX) / largest);
    let plan = |((name, _), (share, learnt)): (&(&String, &BackendSpec), (&f64, f64))| {
        let now = ((share * scale).round() as u16).clamp(1, Weight::MAX);
        let kept = before(name).map(|was| was.weight.get()).filter(|was| is_alike(*was, now));
        let weight = Weight::new(kept.unwrap_or(now)).unwrap_or_default();
        ((*name).clone(), BackendPlan { weight, learnt })
    };
    backends.iter().zip(shares.iter().zip(relative(&members))).map(plan).collect()
}

fn loads(
    policy: &Policy,
    history: &History,
    name: &str,
    spec: &PoolSpec,
    backends: &[(&String, &BackendSpec)],
) -> Vec<Option<f64>> {
    // Counters see only a part of the requests that reach backends through VIPs or names.
    let pool = history.pool(name).filter(|_| !spec.is_forwarded);
    let in_flight = |name: &String| pool.and_then(|pool| pool.in_flight(name));
    let crowds: Vec<Option<f64>> = backends.iter().map(|(name, _)| in_flight(name)).collect();
    let sum = crowds.iter().flatten().sum::<f64>();
    // If no balancer counts the pool's requests, zero in flight means nothing.
    if pool.is_some() && sum < IDLE {
        return vec![None; backends.len()];
    }
    let of_limit = |((name, _), crowd): (&(&String, &BackendSpec), &Option<f64>)| {
        Some((100.0 * (*crowd)? / pool?.limit(name)?).min(100.0))
    };
    let of_limits: Option<Vec<f64>> = backends.iter().zip(&crowds).map(of_limit).collect();
    if let Some(of_limits) = of_limits {
        return of_limits.into_iter().map(Some).collect();
    }
    let of_machine = |(_, spec): &(&String, &BackendSpec)| {
        let load = history.load(spec.machine.as_ref()?)?;
        room::in_use(&policy.coefficients, load, false)
    };
    let reported: Vec<Option<f64>> = backends.iter().map(of_machine).collect();
    if reported.iter().any(Option::is_some) {
        return reported;
    }
    let known = crowds.iter().flatten().count().max(1) as f64;
    let mean = sum / known;
    let load = |crowd: f64| (CROWD_MEAN * crowd / mean.max(CROWD_MIN)).min(100.0);
    crowds.into_iter().map(|crowd| crowd.map(load)).collect()
}

/// True if the new weight is so close to the old one that a new snapshot is not worthwhile.
fn is_alike(was: u16, now: u16) -> bool {
    was.abs_diff(now) <= (was / 50).max(1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use equipoise_core::AdminState;
    use equipoise_core::load::Reported;

    use super::*;
    use crate::elastic::{BackendSample, PoolSample};
    use crate::history::Report;

    fn pool(weights: &[(&str, u16)]) -> PoolSpec {
        let backend = |(name, weight): &(&str, u16)| {
            let weight = Weight::new(*weight).unwrap();
            let machine = Some(format!("machine-of-{name}"));
            (name.to_string(), BackendSpec { weight, machine, ..BackendSpec::default() })
        };
        let backends = weights.iter().map(backend).collect();
        PoolSpec { backends, weights_by_load: true, ..PoolSpec::default() }
    }

    /// The weights after `periods` in which machines report CPU and memory, and each backend has
    /// `in_flight` requests.
    fn planned(
        pool: &PoolSpec,
        machines: &[(&str, f64, f64)],
        in_flight: f64,
        periods: u64,
    ) -> Vec<u16> {
        let policy = Policy::default();
        let mut history = History::new(policy.smoothing, Duration::ZERO);
        let mut was: Option<PoolPlan> = None;
        for at in 1..=periods {
            let now = Duration::from_secs(at);
            for (name, cpu, memory) in machines {
                let load = Reported { cpu: *cpu, memory: *memory, net: None };
                let report = Report { load, ..Report::default() };
                history.record(&format!("machine-of-{name}"), now, &report).unwrap();
            }
            let sample = |name: &String| {
                (name.clone(), BackendSample { in_flight, ..BackendSample::default() })
            };
            let backends = pool.backends.keys().map(sample).collect();
            let sample = PoolSample { backends, ..PoolSample::default() };
            history.record_pool("pool", now, &sample);
            let weights = by_load(&policy, &history, "pool", pool, was.as_ref());
            was = Some(PoolPlan { weights, scaling: None });
        }
        was.unwrap().weights.values().map(|it| it.weight.get()).collect()
    }

    const HOUR: u64 = 3600;

    #[test]
    fn weights_of_an_idle_pool_ignore_machine_load_for_an_hour() {
        let pool = pool(&[("a", 1), ("b", 1)]);
        let machines = [("a", 60.0, 94.0), ("b", 2.0, 12.0)];
        assert_eq!(planned(&pool, &machines, 0.0, HOUR), [100, 100]);
    }

    #[test]
    fn memory_use_does_not_change_weights() {
        let pool = pool(&[("a", 1), ("b", 1)]);
        for cpu in [5.0, 60.0] {
            let machines = [("a", cpu, 94.0), ("b", cpu, 12.0)];
            let found = planned(&pool, &machines, 3.0, HOUR);
            assert!(found.iter().all(|weight| (95..=105).contains(weight)), "{cpu}: {found:?}");
        }
    }

    #[test]
    fn weights_of_a_forwarded_pool_follow_its_machines() {
        let pool = PoolSpec { is_forwarded: true, ..pool(&[("a", 1), ("b", 1)]) };
        let found = planned(&pool, &[("a", 90.0, 0.0), ("b", 30.0, 0.0)], 0.0, 12);
        assert!(found[0] < 95 && found[1] > 105, "{found:?}");
    }

    #[test]
    fn weights_of_a_forwarded_pool_ignore_front_door_requests() {
        let pool = PoolSpec { is_forwarded: true, ..pool(&[("a", 1), ("b", 1)]) };
        let policy = Policy::default();
        let mut history = History::new(policy.smoothing, Duration::ZERO);
        let mut was: Option<PoolPlan> = None;
        for at in 1..=12 {
            let now = Duration::from_secs(at);
            for (machine, cpu) in [("machine-of-a", 90.0), ("machine-of-b", 30.0)] {
                let load = Reported { cpu, memory: 50.0, net: None };
                history.record(machine, now, &Report { load, ..Report::default() }).unwrap();
            }
            let sample = |(name, in_flight): (&str, f64)| {
                let limit = Some(10.0);
                (name.to_string(), BackendSample { in_flight, limit, ..BackendSample::default() })
            };
            let backends = [("a", 1.0), ("b", 9.0)].map(sample).into();
            history.record_pool("web", now, &PoolSample { backends, ..PoolSample::default() });
            let weights = by_load(&policy, &history, "web", &pool, was.as_ref());
            was = Some(PoolPlan { weights, ..PoolPlan::default() });
        }
        let found = ["a", "b"].map(|name| was.as_ref().unwrap().weights[name].weight.get());
        assert!(found[0] < 95 && found[1] > 105, "{found:?}");
    }

    #[test]
    fn weights_converge_in_proportion_to_throughput_at_the_limit() {
        let pool = pool(&[("large", 1), ("small", 1)]);
        let policy = Policy::default();
        let mut history = History::new(policy.smoothing, Duration::ZERO);
        let mut was: Option<PoolPlan> = None;
        // 40 slots of 10 ms and 10 slots of 10 ms: 4000 and 1000 requests a second. Machines say
        // the opposite.
        let limit = |name: &str| if name == "large" { 40.0 } else { 10.0 };
        for at in 1..=600 {
            let now = Duration::from_secs(at);
            for (machine, cpu) in [("machine-of-large", 90.0), ("machine-of-small", 10.0)] {
                let load = Reported { cpu, memory: 50.0, net: None };
                history.record(machine, now, &Report { load, ..Report::default() }).unwrap();
            }
            let weight = |name: &str| {
                was.as_ref().map_or(1.0, |was| f64::from(was.weights[name].weight.get()))
            };
            let total: f64 = pool.backends.keys().map(|name| weight(name.as_str())).sum();
            let sample = |name: &String| {
                let in_flight = (3000.0 * weight(name) / total * 0.01).min(limit(name));
                let limit = Some(limit(name));
                (name.clone(), BackendSample { in_flight, limit, ..BackendSample::default() })
            };
            let backends = pool.backends.keys().map(sample).collect();
            let sample = PoolSample { backends, ..PoolSample::default() };
            history.record_pool("pool", now, &sample);
            let weights = by_load(&policy, &history, "pool", &pool, was.as_ref());
            was = Some(PoolPlan { weights, scaling: None });
        }
        let was = was.unwrap();
        let [large, small] = ["large", "small"].map(|it| f64::from(was.weights[it].weight.get()));
        assert!((3.5..4.5).contains(&(large / small)), "{large} to {small}");
    }

    #[test]
    fn weights_begin_as_the_operator_set_them() {
        assert_eq!(planned(&pool(&[("a", 1), ("b", 3)]), &[], 1.0, 1), [50, 150]);
        assert_eq!(planned(&pool(&[("a", 1), ("b", 1000)]), &[], 1.0, 1), [1, 1000]);
    }

    #[test]
    fn a_busier_backend_weighs_less_and_an_unmeasured_backend_keeps_its_weight() {
        let pool = pool(&[("a", 1), ("b", 1), ("c", 1)]);
        let found = planned(&pool, &[("a", 90.0, 0.0), ("b", 30.0, 0.0)], 1.0, 12);
        assert!(found[0] < found[2] && found[2] < found[1], "{found:?}");
        assert!(found[2].abs_diff(100) <= 5, "{found:?}");
    }

    /// The weights after `periods` in which a backend of the first kind takes ten times as long to
    /// respond, and requests are spread by weight.
    fn planned_by_crowd(pool: &PoolSpec, rate: f64, periods: u64) -> Vec<u16> {
        let policy = Policy::default();
        let mut history = History::new(policy.smoothing, Duration::ZERO);
        let mut was: Option<PoolPlan> = None;
        for at in 1..=periods {
            let weight = |name: &str| {
                was.as_ref().map_or(1.0, |was: &PoolPlan| f64::from(was.weights[name].weight.get()))
            };
            let total: f64 = pool.backends.keys().map(|name| weight(name.as_str())).sum();
            let sample = |name: &String| {
                let response_s = if name == "slow" { 0.1 } else { 0.01 };
                let in_flight = rate * weight(name.as_str()) / total * response_s;
                let response = Some(Duration::from_secs_f64(response_s));
                (name.clone(), BackendSample { in_flight, response, ..BackendSample::default() })
            };
            let backends = pool.backends.keys().map(sample).collect();
            let sample = PoolSample { backends, ..PoolSample::default() };
            history.record_pool("pool", Duration::from_secs(at), &sample);
            let weights = by_load(&policy, &history, "pool", pool, was.as_ref());
            was = Some(PoolPlan { weights, scaling: None });
        }
        was.unwrap().weights.values().map(|it| it.weight.get()).collect()
    }

    #[test]
    fn without_agents_weights_converge_in_proportion_to_speed() {
        let mut pool = pool(&[("fast", 1), ("slow", 1)]);
        pool.backends.values_mut().for_each(|it| it.machine = None);
        let found = planned_by_crowd(&pool, 200.0, 120);
        let ratio = f64::from(found[0]) / f64::from(found[1]);
        assert!((7.0..12.0).contains(&ratio), "{found:?}");
        let idle = planned_by_crowd(&pool, 1.0, 120);
        assert!(idle[0].abs_diff(idle[1]) < 30, "too little to tell: {idle:?}");
    }

    #[test]
    fn steps_too_small_to_matter_are_not_sent() {
        let pool = pool(&[("a", 1), ("b", 1)]);
        assert_eq!(planned(&pool, &[("a", 52.0, 0.0), ("b", 48.0, 0.0)], 1.0, 3), [100, 100]);
    }

    #[test]
    fn a_drained_backend_has_no_weight_by_load() {
        let mut pool = pool(&[("a", 1), ("b", 1)]);
        pool.backends.get_mut("a").unwrap().admin = AdminState::Drain;
        assert_eq!(planned(&pool, &[], 1.0, 1), [100]);
    }
}
