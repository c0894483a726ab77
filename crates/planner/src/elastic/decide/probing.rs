//! Probes as a part of the decision: what of a pool is not known, and one backend more to find it out.

use std::time::Duration;

use super::{Backend, Scaling, ScalingPlan, State};
use crate::elastic::probe::{IN_FLIGHT_MIN, Look, PROBE_MAX};
use crate::elastic::sizes::cover;
use crate::elastic::{Elasticity, Learnt, PoolHistory, Probe};

impl State<'_> {
    /// Takes what was seen in a period into the probe that there is, begins one, or ends it.
    pub(super) fn look(&self, learnt: &mut Learnt, past: Option<&PoolHistory>, passed: Duration) {
        let Some(past) = past else { return };
        learnt.probe = match learnt.probe.take() {
            Some(probe) if probe.after.is_some() => self.compare(probe, learnt, past, passed),
            before => self.prepare(before, learnt, past),
        };
    }

    fn prepare(&self, before: Option<Probe>, learnt: &Learnt, past: &PoolHistory) -> Option<Probe> {
        let size = self.unknown(learnt, past)?.spec.size.clone();
        let before = before.filter(|probe| probe.size == size && probe.count == self.count());
        let mut probe = before.unwrap_or_else(|| Probe::new(size, self.count()));
        let window = probe.window();
        let look = self.look_at(&probe.size, past).filter(|_| !self.is_warming());
        look.into_iter().for_each(|look| probe.before.add(look, window));
        Some(probe)
    }

    fn compare(
        &self,
        mut probe: Probe,
        learnt: &mut Learnt,
        past: &PoolHistory,
        passed: Duration,
    ) -> Option<Probe> {
        probe.since += passed;
        // Something else happened to the pool.
        if self.count() != probe.count + 1 {
            return None;
        }
        if probe.since > PROBE_MAX {
            learnt.settle(probe.given_up());
            return None;
        }
        if self.is_warming() {
            probe.settled = Duration::ZERO;
            return Some(probe);
        }
        let look = self.look_at(&probe.size, past);
        match look.and_then(|look| probe.compare(look, passed)) {
            Some(known) => {
                learnt.settle(known);
                None
            }
            None => Some(probe),
        }
    }

    /// The backend with most in flight of those of which it is not known whether that waits for them.
    fn unknown(&self, learnt: &Learnt, past: &PoolHistory) -> Option<&Backend<'_>> {
        let is_unknown = |one: &&Backend| {
            let size = one.spec.size.as_deref();
            one.in_use.is_some()
                && !past.has_limit(one.name)
                && learnt.of(size).is_none()
                && past.profile(size).is_some_and(|profile| profile.is_blind())
        };
        let in_flight = |one: &&Backend| past.in_flight(one.name).unwrap_or(0.0);
        let unknown = self.backends.iter().filter(is_unknown);
        let fullest = unknown.max_by(|a, b| in_flight(a).total_cmp(&in_flight(b)));
        fullest.filter(|one| in_flight(one) >= IN_FLIGHT_MIN)
    }

    /// The mean over measured backends of a size that answered.
    fn look_at(&self, size: &Option<String>, past: &PoolHistory) -> Option<Look> {
        let measured =
            self.backends.iter().filter(|one| one.in_use.is_some() && one.spec.size == *size);
        let looks: Vec<Look> = measured.filter_map(|one| past.look(one.name)).collect();
        let mean = |of: fn(&Look) -> f64| looks.iter().map(of).sum::<f64>() / looks.len() as f64;
        (!looks.is_empty())
            .then(|| Look { in_flight: mean(|it| it.in_flight), speed: mean(|it| it.speed) })
    }

    /// What a pool does of which it is not known whether it is full; `None` if that is known. It does not shrink meanwhile.
    pub(super) fn probe(
        &self,
        elastic: &Elasticity,
        plan: &ScalingPlan,
    ) -> Option<(Scaling, String)> {
        let probe = plan.learnt.probe.as_ref()?;
        let why = format!(
            "probing: it isn't known yet whether the {:.1} requests in flight at each backend wait for it",
            probe.before.in_flight
        );
        let hold = |more: String| Some((Scaling::Hold, format!("{why}; {more}")));
        if let Some(after) = &probe.after {
            let cold = self.why_not_warm(elastic);
            return hold(cold.unwrap_or_else(|| looks(after.count, probe.window())));
        }
        if self.count() >= elastic.max {
            return hold(format!("no backend can be added to see: max = {}", elastic.max));
        }
        if !probe.is_prepared() {
            return hold(looks(probe.before.count, probe.window()));
        }
        let cooling = elastic.out_cool_down.saturating_sub(plan.since_out);
        if !cooling.is_zero() {
            return hold(format!("the last step out is cooling down, {cooling:.0?} left"));
        }
        // One of a size that cannot be had is compared with what can.
        let same = self.kinds.iter().find(|kind| kind.name == probe.size);
        let kind =
            same.or_else(|| cover(&self.kinds, f64::MIN_POSITIVE, 1).map(|(kind, _)| kind))?;
        let step = Scaling::Out { size: kind.name.clone(), count: 1 };
        Some((step, format!("{why}, or it for something else: one more shows it")))
    }
}

/// How far a comparison is.
fn looks(count: u32, window: u32) -> String {
    format!("looked {count} of {window} times")
}
