//! The reason, in words, why a pool stays as it is: the first that applies, in the order of the
//! decision.

use std::time::Duration;

use equipoise_core::AdminState;

use super::{Backend, SHRINK_TO, ScalingPlan, State};
use crate::elasticity::Elasticity;
use crate::inventory::PoolSpec;

impl State<'_> {
    /// The demand is unknown.
    pub(super) fn why_unknown(&self, elastic: &Elasticity) -> String {
        if self.is_forwarded {
            return "names or VIPs lead clients past the balancers that count requests, so the pool does not scale by \
                    itself (`plan pin` sets its size)"
                .to_string();
        }
        match self.backends.len() {
            0 => format!("there is no backend, and no request waits (min = {})", elastic.min),
            count if self.backends.iter().all(|one| !one.is_healthy) => {
                format!("none of its {} passes its checks", backends(count))
            }
            _ if self.demand.is_none() => {
                "no balancer with the pool reports, so the pool's use is not known".to_string()
            }
            _ => self.why_not_warm(elastic).unwrap_or_else(|| {
                "no backend has a concurrency limit, so the pool's use is not known".to_string()
            }),
        }
    }

    /// It is below its target, but neither fewer nor cheaper backends would suffice.
    pub(super) fn why_all_needed(&self, elastic: &Elasticity) -> String {
        let why = self.why_not_fewer(elastic);
        // Where only the number is at its limit, a cheaper size may still suffice.
        match self.count() <= elastic.min {
            true => {
                self.why_not_cheaper(elastic).map_or(why.clone(), |more| format!("{why}; {more}"))
            }
            false => why,
        }
    }

    fn why_not_fewer(&self, elastic: &Elasticity) -> String {
        if self.count() <= elastic.min {
            let (count, min) = (backends(self.backends.len()), elastic.min);
            return format!("the pool is at its smallest: {count}, min = {min}");
        }
        let Some(leaver) = self.leavers().first().copied() else {
            return "its driver created none of the backends, so it removes none".to_string();
        };
        if self.is_partial {
            return "a balancer of the pool does not report, and may have requests for all of them"
                .to_string();
        }
        if let Some(why) = self.why_not_warm(elastic) {
            return why;
        }
        if self.is_standing {
            return format!("{:.1} requests wait in a standing queue", self.queued);
        }
        let (left, name) = (self.without(leaver), leaver.name);
        let (share, limit) = (self.target.share(), SHRINK_TO * self.target.share());
        if let Some(full) = self.full.filter(|_| left > 0.0 && self.was_full(left)) {
            return format!(
                "its backends' limits are not learnt yet, and {:.0?} ago a queue stood at {:.1} \
                 requests a second for each; without {name} there would be {:.1} for each",
                full.age,
                full.rate,
                self.rate / self.speed(left),
            );
        }
        match self.expected() {
            Some(demand) if left > 0.0 => format!(
                "without {name} it would be {:.2}, and a pool shrinks to at most {limit:.2} \
                 (target = {share:.2})",
                demand / left,
            ),
            _ if self.is_quiet && self.open > 0 => format!(
                "{name} is the last serving backend, and {} tunnels or slow requests are open",
                self.open
            ),
            _ => format!("{name} is the last serving backend, and requests arrive"),
        }
    }

    /// `None` if there is only one size.
    fn why_not_cheaper(&self, elastic: &Elasticity) -> Option<String> {
        if self.kinds.len() < 2 {
            return None;
        }
        let why = self.why_not_warm(elastic);
        Some(why.unwrap_or_else(|| "no cheaper size would suffice".to_string()))
    }

    /// Names a backend that is new; `None` if none is.
    pub(super) fn why_not_warm(&self, elastic: &Elasticity) -> Option<String> {
        let new = self.backends.iter().filter(|one| one.is_healthy && !one.is_warm);
        let left = |one: &Backend| elastic.warm_up.saturating_sub(one.spec.age);
        let newest = new.max_by_key(|one| left(one))?;
        Some(match left(newest) {
            left if left.is_zero() => format!("{} does not serve yet", newest.name),
            left => format!("{} is warming up, {left:.0?} left", newest.name),
        })
    }
}

/// Why a pool that could cost less, by `what`, does not change now; `None` if nothing prevents it.
pub(super) fn why_not_yet(elastic: &Elasticity, plan: &ScalingPlan, what: &str) -> Option<String> {
    let left = |since: Duration| elastic.in_cool_down.saturating_sub(since);
    let cooling = [
        (left(plan.low_for), "if it lasts"),
        (left(plan.since_out), "but the last step out is cooling down for"),
        (left(plan.since_in), "but the last step in is cooling down for"),
    ];
    // Of two with the same end, the step is the more useful reason.
    let longest = cooling.into_iter().max_by_key(|(left, _)| *left);
    let (left, why) = longest.filter(|(left, _)| !left.is_zero())?;
    Some(format!("{what} would suffice, {why} {left:.0?} more"))
}

/// Beside the reason for which nothing is done: backends that drain, and backends that fail.
pub(super) fn beside(state: &State<'_>, pool: &PoolSpec) -> String {
    let drains = pool.backends.iter().filter(|(_, spec)| spec.admin == AdminState::Drain);
    let drains: Vec<&str> = drains.map(|(name, _)| name.as_str()).collect();
    let failing = state.backends.iter().filter(|one| !one.is_healthy).count();
    let mut text = String::new();
    // If all fail, that is the reason itself.
    if failing > 0 && failing < state.backends.len() {
        text.push_str(&format!("; {failing} of {} fail their checks", state.backends.len()));
    }
    match drains.as_slice() {
        [] => {}
        [one] => text.push_str(&format!("; {one} is still draining")),
        [one, others @ ..] => {
            text.push_str(&format!("; {one} and {} more are still draining", others.len()));
        }
    }
    text
}

/// A number of backends, in words.
fn backends(count: usize) -> String {
    format!("{count} backend{}", if count == 1 { "" } else { "s" })
}
