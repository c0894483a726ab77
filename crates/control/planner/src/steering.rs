//! Shares that follow load without oscillation.

use std::f64::consts::E;

use crate::policy::Steering;

/// A node or backend of a group with shares.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    /// Its learnt worth, in any unit common to the members.
    pub(crate) learnt: f64,
    /// Its worth by capacity alone, in the same unit.
    pub(crate) nominal: f64,
    /// Part of its share that it gets, 0..=1.
    pub(crate) presence: f64,
    /// Its load in the coming period, in per cent; `None` if it is not measured.
    pub(crate) load: Option<f64>,
}

/// Mean load in per cent below which differences are not urgent.
const CALM: f64 = 20.0;

/// Presence below which a member's load does not show its worth, because it gets less than its
/// share.
const WHOLE: f64 = 0.999;

/// Advances the learnt worths by one period, and returns the probability of each member; they sum
/// to 1, or are all zero if no member is present.
///
/// Each member's worth is multiplied by `exp(gain * (mean - load) / mean)`, that is by the
/// difference of its headroom and the mean one: an integral controller in the logarithm. It is at
/// rest exactly when all loads are equal, for any capacities, and it needs no model of them. The
/// gain is `1 / (e * (settle + 1))`, at which a loop with an effect `settle` periods late returns
/// without overshoot; the step bound and the dead band cover the rest. The mean is weighted by
/// share, so that a member with other load does not shift it.
///
/// A member that is not fully present (joining, late) or not measured keeps its learnt worth,
/// because its low load proves nothing.
///
/// # Source
/// TLLB's level 1 makes the probability of a node proportional to 1/L, as Onedata does. With
/// feedback that is a proportional controller of gain 1: it sends all clients to the idlest node,
/// and with a delay it oscillates for ever (`tests/simulation/` shows it). Hence the deviation. The
/// gain is that of critical damping for an integrator with dead time T: `s + k * exp(-s * T) = 0`
/// has its double root at `k = 1 / (e * T)`.
pub(crate) fn steer(steering: &Steering, members: &mut [Member]) -> Vec<f64> {
    for one in &mut *members {
        // The worth may come from a stored plan.
        let fine = one.learnt.is_finite() && one.learnt > 0.0;
        one.learnt = if fine { one.learnt } else { one.nominal };
        let (least, most) = (one.nominal / steering.spread_max, one.nominal * steering.spread_max);
        one.learnt = one.learnt.clamp(least, most);
    }
    let (mut sum, mut shares) = (0.0, 0.0);
    for one in members.iter() {
        if let Some(load) = steered_load(one) {
            sum += one.learnt * load;
            shares += one.learnt;
        }
    }
    if shares > 0.0 {
        let mean = sum / shares;
        let gain = 1.0 / (E * (steering.settle_periods + 1.0));
        let step_max = steering.step_max.ln_1p();
        for one in &mut *members {
            let Some(load) = steered_load(one) else { continue };
            let step = gain * beyond(mean - load, steering.dead_band) / mean.max(CALM);
            let (least, most) =
                (one.nominal / steering.spread_max, one.nominal * steering.spread_max);
            one.learnt = (one.learnt * step.clamp(-step_max, step_max).exp()).clamp(least, most);
        }
    }
    let total: f64 = members.iter().map(|one| one.learnt * one.presence).sum();
    let share = |one: &Member| if total > 0.0 { one.learnt * one.presence / total } else { 0.0 };
    members.iter().map(share).collect()
}

/// The learnt worth of each member as a multiple of its nominal worth, scaled to a mean of 1. This
/// form is stored.
pub(crate) fn relative(members: &[Member]) -> Vec<f64> {
    let nominal: f64 = members.iter().map(|one| one.nominal).sum();
    let learnt: f64 = members.iter().map(|one| one.learnt).sum();
    members.iter().map(|one| one.learnt / one.nominal * (nominal / learnt)).collect()
}

fn steered_load(one: &Member) -> Option<f64> {
    one.load.filter(|_| one.presence >= WHOLE)
}

/// The part of a difference beyond a band. It is continuous, so the band's edge causes no jump.
fn beyond(difference: f64, band: f64) -> f64 {
    difference.signum() * (difference.abs() - band).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(learnt: f64, load: f64) -> Member {
        Member { learnt, nominal: 1.0, presence: 1.0, load: Some(load) }
    }

    fn quick() -> Steering {
        Steering { settle_periods: 0.0, step_max: 0.5, dead_band: 1.0, spread_max: 8.0 }
    }

    #[test]
    fn more_headroom_earns_a_larger_share() {
        let mut members = [member(1.0, 80.0), member(1.0, 40.0), member(1.0, 60.0)];
        let shares = steer(&quick(), &mut members);
        assert!(shares[1] > shares[2] && shares[2] > shares[0], "{shares:?}");
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn shares_are_constant_at_even_load_or_within_the_dead_band() {
        for loads in [[50.0, 50.0], [50.4, 49.6]] {
            let mut members = loads.map(|load| member(1.0, load));
            assert_eq!(steer(&quick(), &mut members), [0.5, 0.5]);
        }
    }

    #[test]
    fn an_idle_member_is_not_flooded() {
        let steering = Steering { step_max: 0.1, ..quick() };
        let mut members = [member(1.0, 90.0), member(1.0, 0.0)];
        let shares = steer(&steering, &mut members);
        assert!(shares[1] < 0.5 * 1.1 * 1.1, "{shares:?}");
    }

    #[test]
    fn a_partly_present_or_unmeasured_member_keeps_its_learnt_share() {
        let joiner = Member { presence: 0.1, load: Some(1.0), ..member(1.0, 0.0) };
        let unknown = Member { load: None, ..member(1.0, 0.0) };
        let mut members = [member(1.0, 90.0), member(1.0, 50.0), joiner, unknown];
        let shares = steer(&quick(), &mut members);
        assert_eq!((members[2].learnt, members[3].learnt), (1.0, 1.0));
        assert!(shares[2] < shares[3] / 5.0, "{shares:?}");
    }

    #[test]
    fn a_member_that_is_busy_with_something_else_does_not_pull_the_mean() {
        let mut members = [member(0.125, 99.0), member(1.0, 50.0), member(1.0, 50.0)];
        let mut last = steer(&quick(), &mut members);
        for _ in 0..50 {
            last = steer(&quick(), &mut members);
        }
        assert!((last[1] - last[2]).abs() < 1e-9, "{last:?}");
        assert!(last[0] > 0.01, "it keeps enough to be seen recovering: {last:?}");
    }

    #[test]
    fn invalid_numbers_of_a_stored_plan_are_replaced() {
        let mut members = [member(f64::NAN, 50.0), member(-3.0, 50.0), member(1e300, 50.0)];
        let shares = steer(&quick(), &mut members);
        assert!(shares.iter().all(|share| share.is_finite() && *share > 0.0), "{shares:?}");
    }

    #[test]
    fn without_present_members_all_shares_are_zero() {
        let mut members = [Member { presence: 0.0, ..member(1.0, 10.0) }];
        assert_eq!(steer(&quick(), &mut members), [0.0]);
    }
}
