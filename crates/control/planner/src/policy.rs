use std::time::Duration;

use equipoise_core::load::{
    Coefficients, CoefficientsRefused, OverloadRule, OverloadRuleRefused, Smoothing,
    SmoothingRefused,
};
use serde::{Deserialize, Serialize};

/// The operator's settings of planning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Smoothing of measurements; its period is the planner's.
    pub smoothing: Smoothing,
    /// Coefficients of loads.
    pub coefficients: Coefficients,
    /// The overload rule.
    pub overload: OverloadRule,
    /// How the shares of names follow load.
    pub names: Steering,
    /// How the weights of pools follow load, in pools that ask for it.
    pub pools: Steering,
    /// How overloaded nodes delegate.
    pub dispatch: DispatchPolicy,
    /// The rule of participation.
    pub liveness: Liveness,
}

/// How shares follow load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Steering {
    /// Periods from a change of shares until the measured load shows it: for names their TTL, for
    /// pools the lifetime of connections. Too small a value makes loads oscillate.
    pub settle_periods: f64,
    /// Greatest change of a share in one period, as a part of itself, above 0 and at most 1.
    pub step_max: f64,
    /// Differences of load to the mean, in per cent points, that cause no change.
    pub dead_band: f64,
    /// Greatest factor, up or down, between a share and the share of its capacity.
    pub spread_max: f64,
}

/// How overloaded nodes delegate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DispatchPolicy {
    /// Least part of every class that a node keeps, 0..=1.
    pub keep_min: f64,
    /// Greatest change of the kept part in one period, above 0 and at most 1.
    pub step_max: f64,
    /// Part of all nodes' CPU up to which requests are admitted, above 0. Demand beyond it is
    /// refused, expensive classes first.
    pub admit: f64,
}

/// Which nodes take part, and with which part of their share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Liveness {
    /// Missed reports from which a node is late and its share decays.
    pub late_beats: f64,
    /// Missed reports from which a node leaves, if a second observer cannot reach it either.
    pub gone_beats: f64,
    /// Part of its share that a late node keeps for each further period, 0..=1.
    pub decay: f64,
    /// Part of its share with which a joining node begins, and below which a late node does not
    /// decay; above 0 and at most 1.
    pub presence_min: f64,
    /// Time in which a joining node rises to its whole share.
    pub warm_up: Duration,
    /// Part of the wanted nodes of a name that stay in its answers in any case, and part that must
    /// be timely for lateness to count, 0..=1.
    pub panic_share: f64,
}

/// An invalid policy.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum PolicyRefused {
    /// A number outside its range.
    #[error("{option} is {value}; accepted: {accepted}")]
    Value {
        /// The option's place in the policy.
        option: &'static str,
        /// The refused value.
        value: f64,
        /// The accepted values.
        accepted: &'static str,
    },
    /// Invalid smoothing.
    #[error(transparent)]
    Smoothing(#[from] SmoothingRefused),
    /// Invalid coefficients.
    #[error(transparent)]
    Coefficients(#[from] CoefficientsRefused),
    /// An invalid overload rule.
    #[error(transparent)]
    Overload(#[from] OverloadRuleRefused),
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            smoothing: Smoothing::default(),
            coefficients: Coefficients::default(),
            overload: OverloadRule::default(),
            names: Steering { settle_periods: 60.0, ..Steering::default() },
            pools: Steering::default(),
            dispatch: DispatchPolicy::default(),
            liveness: Liveness::default(),
        }
    }
}

impl Default for Steering {
    fn default() -> Self {
        Steering { settle_periods: 3.0, step_max: 0.1, dead_band: 2.0, spread_max: 8.0 }
    }
}

impl Default for DispatchPolicy {
    fn default() -> Self {
        DispatchPolicy { keep_min: 0.1, step_max: 0.25, admit: 0.95 }
    }
}

impl Default for Liveness {
    fn default() -> Self {
        Liveness {
            late_beats: 2.0,
            gone_beats: 5.0,
            decay: 0.5,
            presence_min: 0.1,
            warm_up: Duration::from_secs(30),
            panic_share: 0.5,
        }
    }
}

impl Policy {
    /// Returns the policy if it is valid.
    ///
    /// # Errors
    /// [`PolicyRefused`] names the first option that is wrong.
    pub fn checked(self) -> Result<Policy, PolicyRefused> {
        self.smoothing.checked()?;
        self.coefficients.checked()?;
        self.overload.checked()?;
        for steering in [&self.names, &self.pools] {
            at_least("settle-periods", steering.settle_periods, 0.0, "0 or more")?;
            part("step-max", steering.step_max)?;
            at_least("dead-band", steering.dead_band, 0.0, "0 or more points")?;
            at_least("spread-max", steering.spread_max, 1.0, "1 or more")?;
        }
        share("dispatch.keep-min", self.dispatch.keep_min)?;
        part("dispatch.step-max", self.dispatch.step_max)?;
        at_least("load.admit", self.dispatch.admit, 0.01, "0.01 or more")?;
        let live = &self.liveness;
        at_least("liveness.late-beats", live.late_beats, 1.0, "1 or more")?;
        at_least("liveness.gone-beats", live.gone_beats, live.late_beats, "late-beats or more")?;
        share("liveness.decay", live.decay)?;
        part("liveness.presence-min", live.presence_min)?;
        share("liveness.panic-share", live.panic_share)?;
        Ok(self)
    }

    /// The time between two plans.
    pub fn period(&self) -> Duration {
        self.smoothing.period
    }
}

fn at_least(
    option: &'static str,
    value: f64,
    least: f64,
    accepted: &'static str,
) -> Result<(), PolicyRefused> {
    let fine = value.is_finite() && value >= least;
    if fine { Ok(()) } else { Err(PolicyRefused::Value { option, value, accepted }) }
}

fn share(option: &'static str, value: f64) -> Result<(), PolicyRefused> {
    let fine = (0.0..=1.0).contains(&value);
    if fine { Ok(()) } else { Err(PolicyRefused::Value { option, value, accepted: "0 to 1" }) }
}

fn part(option: &'static str, value: f64) -> Result<(), PolicyRefused> {
    let fine = value > 0.0 && value <= 1.0;
    let accepted = "above 0 and at most 1";
    if fine { Ok(()) } else { Err(PolicyRefused::Value { option, value, accepted }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_policy_is_valid() {
        assert_eq!(Policy::default().checked(), Ok(Policy::default()));
    }

    #[test]
    fn an_invalid_policy_is_refused_with_the_option_and_accepted_values() {
        let with = |change: fn(&mut Policy)| {
            let mut policy = Policy::default();
            change(&mut policy);
            policy.checked().unwrap_err().to_string()
        };
        let rows = [
            (with(|p| p.names.step_max = 0.0), "step-max is 0; accepted: above 0"),
            (with(|p| p.pools.spread_max = 0.5), "spread-max is 0.5; accepted: 1 or more"),
            (with(|p| p.names.settle_periods = f64::NAN), "settle-periods is NaN"),
            (with(|p| p.liveness.gone_beats = 1.0), "gone-beats is 1; accepted: late-beats"),
            (with(|p| p.liveness.panic_share = 1.5), "panic-share is 1.5; accepted: 0 to 1"),
            (with(|p| p.coefficients.cpu = -1.0), "load.cpu is -1"),
            (with(|p| p.overload.leave = 9.0), "accepted: 1 <= leave <= enter"),
        ];
        for (found, expected) in rows {
            assert!(found.contains(expected), "{found:?} lacks {expected:?}");
        }
    }
}
