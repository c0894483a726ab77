//! Weights of a pool's backends by the load of their machines.

use std::collections::BTreeMap;

use equipoise_core::Weight;

use crate::history::History;
use crate::inventory::{BackendSpec, PoolSpec};
use crate::plan::{BackendPlan, PoolPlan};
use crate::policy::Policy;
use crate::steering::{Member, relative, steer};

/// The mean weight by load, fine enough for steps of one per cent; more if the smallest would be none, less if the
/// largest would be too large.
const WEIGHT_MEAN: f64 = 100.0;

/// A weight for each backend that may be given new work. They begin in proportion to the operator's.
pub(crate) fn by_load(
    policy: &Policy,
    history: &History,
    spec: &PoolSpec,
    was: Option<&PoolPlan>,
) -> BTreeMap<String, BackendPlan> {
    let before = |name: &String| was.and_then(|was| was.weights.get(name));
    let backends: Vec<(&String, &BackendSpec)> =
        spec.backends.iter().filter(|(_, it)| it.is_eligible()).collect();
    let total: f64 = backends.iter().map(|(_, it)| f64::from(it.weight.get())).sum();
    let mean = total / backends.len().max(1) as f64;
    let member = |(name, spec): &(&String, &BackendSpec)| {
        let nominal = f64::from(spec.weight.get()) / mean;
        let learnt = before(name).map_or(1.0, |was| was.learnt);
        let load = spec.machine.as_ref().and_then(|machine| history.load(machine));
        let load = load.map(|load| policy.coefficients.l1(&load.coming()).get());
        Member { learnt: learnt * nominal, nominal, presence: 1.0, load }
    };
    let mut members: Vec<Member> = backends.iter().map(member).collect();
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

/// A weight that is so near the old one that a new snapshot is not worth it.
fn is_alike(was: u16, now: u16) -> bool {
    was.abs_diff(now) <= (was / 50).max(1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use equipoise_core::AdminState;
    use equipoise_core::load::Reported;

    use super::*;
    use crate::history::Report;

    fn pool(weights: &[(&str, u16)]) -> PoolSpec {
        let backend = |(name, weight): &(&str, u16)| {
            let weight = Weight::new(*weight).unwrap();
            let machine = Some(format!("machine-of-{name}"));
            (name.to_string(), BackendSpec { weight, machine, ..BackendSpec::default() })
        };
        let backends = weights.iter().map(backend).collect();
        PoolSpec { backends, weights_by_load: true, elastic: None }
    }

    /// The weights after `periods` of these loads.
    fn planned(pool: &PoolSpec, cpu: &[(&str, f64)], periods: u64) -> Vec<u16> {
        let policy = Policy::default();
        let mut history = History::new(policy.smoothing, Duration::ZERO);
        let mut was: Option<PoolPlan> = None;
        for at in 1..=periods {
            for (name, cpu) in cpu {
                let load = Reported { cpu: *cpu, memory: 0.0, net: None };
                let report = Report { load, ..Report::default() };
                history
                    .record(&format!("machine-of-{name}"), Duration::from_secs(at), &report)
                    .unwrap();
            }
            let weights = by_load(&policy, &history, pool, was.as_ref());
            was = Some(PoolPlan { weights, scaling: None });
        }
        was.unwrap().weights.values().map(|it| it.weight.get()).collect()
    }

    #[test]
    fn weights_begin_as_the_operator_set_them() {
        assert_eq!(planned(&pool(&[("a", 1), ("b", 3)]), &[], 1), [50, 150]);
        assert_eq!(planned(&pool(&[("a", 1), ("b", 1000)]), &[], 1), [1, 1000]);
    }

    #[test]
    fn the_busier_backend_gets_less_and_one_without_an_agent_what_it_had() {
        let pool = pool(&[("a", 1), ("b", 1), ("c", 1)]);
        let found = planned(&pool, &[("a", 90.0), ("b", 30.0)], 12);
        assert!(found[0] < found[2] && found[2] < found[1], "{found:?}");
    }

    #[test]
    fn steps_too_small_to_matter_are_not_sent() {
        let pool = pool(&[("a", 1), ("b", 1)]);
        assert_eq!(planned(&pool, &[("a", 52.0), ("b", 48.0)], 3), [100, 100]);
    }

    #[test]
    fn a_drained_backend_has_no_weight_by_load() {
        let mut pool = pool(&[("a", 1), ("b", 1)]);
        pool.backends.get_mut("a").unwrap().admin = AdminState::Drain;
        assert_eq!(planned(&pool, &[], 1), [100]);
    }
}
