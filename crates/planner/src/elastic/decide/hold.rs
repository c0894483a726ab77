//! Why a pool stays as it is, in words: the first of what keeps it, in the order in which it is decided.

use std::time::Duration;

use equipoise_core::AdminState;

use super::{Backend, MEMORY_TIGHT, SHRINK_TO, ScalingPlan, State};
use crate::elastic::Elasticity;
use crate::inventory::PoolSpec;

impl State<'_> {
    /// Nothing is known of what is in use.
    pub(super) fn why_unknown(&self, elastic: &Elasticity) -> String {
        match self.backends.len() {
            0 => format!(
                "there is no backend and none is asked for (min = {}), so no load shows",
                elastic.min
            ),
            count if self.backends.iter().all(|one| !one.is_serving) => {
                format!("none of its {} passes its checks, so no load shows", backends(count))
            }
            _ => self.why_not_warm(elastic).unwrap_or_else(|| {
                "no backend has shown its speed yet: no request was answered".to_string()
            }),
        }
    }

    /// It has headroom, and neither fewer nor cheaper backends would do.
    pub(super) fn why_all_needed(&self, elastic: &Elasticity) -> String {
        let why = self.why_not_fewer(elastic);
        // Where only the number is at its end, a cheaper size may still do.
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
        let Some(leaver) = self.leaver() else {
            return "its driver made none of the backends, so it takes none away".to_string();
        };
        if self.queued > 0.0 {
            return format!("{:.1} requests wait for a backend", self.queued);
        }
        if let Some(why) = self.why_not_warm(elastic) {
            return why;
        }
        let left = self.speed - if leaver.is_serving { leaver.speed } else { 0.0 };
        let (name, limit) = (leaver.name, SHRINK_TO * (1.0 - elastic.headroom));
        match self.used() {
            Some(used) if left > 0.0 => format!(
                "without {name} it would be {:.2}, and a pool shrinks to at most {limit:.2} \
                 (headroom = {})",
                used / left,
                elastic.headroom
            ),
            _ => format!("without {name} nobody would serve"),
        }
    }

    /// `None` if there is only one size.
    fn why_not_cheaper(&self, elastic: &Elasticity) -> Option<String> {
        if self.kinds.len() < 2 {
            return None;
        }
        let unknown = self.backends.iter().find(|one| one.is_serving && !one.is_use_known);
        Some(match unknown {
            _ if self.queued > 0.0 => format!("{:.1} requests wait for a backend", self.queued),
            Some(one) => format!(
                "whether a cheaper size would do is not known, since {} has not shown its top speed",
                one.name
            ),
            None => self
                .why_not_warm(elastic)
                .unwrap_or_else(|| "there is no cheaper size that would do".to_string()),
        })
    }

    /// Who is too new to be measured; `None` if nobody is.
    pub(super) fn why_not_warm(&self, elastic: &Elasticity) -> Option<String> {
        let mut cold = self.backends.iter().filter(|one| one.is_serving && one.in_use.is_none());
        let left = |one: &Backend| elastic.warm_up.saturating_sub(one.spec.age);
        let newest = cold.clone().max_by_key(|one| left(one)).filter(|one| !left(one).is_zero());
        match newest {
            Some(one) => Some(format!("{} is warming up, {:.0?} left", one.name, left(one))),
            None if self.in_use.is_some() => {
                cold.next().map(|one| format!("{} has not shown its speed yet", one.name))
            }
            None => None,
        }
    }

    /// What keeps a pool that could cost less, by `what`, from it now; `None` if nothing does.
    pub(super) fn why_not_yet(
        &self,
        elastic: &Elasticity,
        plan: &ScalingPlan,
        what: &str,
    ) -> Option<String> {
        if let Some(memory) = self.memory.filter(|memory| *memory >= MEMORY_TIGHT) {
            return Some(format!("{what} would do, but memory is at {memory:.0} %"));
        }
        let left = |since: Duration| elastic.in_cool_down.saturating_sub(since);
        let cooling = [
            (left(plan.low_for), "if it lasts"),
            (left(plan.since_out), "but the last step out is cooling down for"),
            (left(plan.since_in), "but the last step in is cooling down for"),
        ];
        // Of two that end together, a step says more.
        let longest = cooling.into_iter().max_by_key(|(left, _)| *left);
        let (left, why) = longest.filter(|(left, _)| !left.is_zero())?;
        Some(format!("{what} would do, {why} {left:.0?} more"))
    }
}

/// What an operator should know beside the reason for which nothing is done: who drains, and who fails.
pub(super) fn beside(state: &State<'_>, pool: &PoolSpec) -> String {
    let drains = pool.backends.iter().filter(|(_, spec)| spec.admin == AdminState::Drain);
    let drains: Vec<&str> = drains.map(|(name, _)| name.as_str()).collect();
    let failing = state.backends.iter().filter(|one| !one.is_serving).count();
    let mut text = String::new();
    // Where all fail, that is the reason.
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

/// Counted.
fn backends(count: usize) -> String {
    format!("{count} backend{}", if count == 1 { "" } else { "s" })
}
