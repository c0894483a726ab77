//! The condition of a running controller: whether it gets plans, and if not, why.

use std::time::Duration;

use equipoise_store::StoreError;
use tokio::time::Instant;

use crate::failing::{Failing, Refused};
use crate::shared::{ControllerHandle, Shared};
use crate::{ControllerOptions, Edition, StoreView};
use equipoise_basics::with_causes;

/// A running controller, as its operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The controller's name.
    pub name: String,
    /// True if it leads.
    pub leads: bool,
    /// The leader, as far as this controller knows.
    pub leader: Option<String>,
    /// The newest instructions; `None` before the first.
    pub instructions: Option<Edition>,
    /// Time since the newest instructions were planned or received here; without instructions,
    /// since the start of the controller.
    pub plan_age: Duration,
    /// Time between two plans.
    pub period: Duration,
    /// State of the store.
    pub store: StoreView,
    /// The error of the last campaign, if the store refused it.
    pub cannot_lead: Option<String>,
    /// The problem of too few received reports, and how long it has lasted.
    pub unheard: Option<(Duration, String)>,
}

/// Plans are late after this many periods without one,
const LATE_PERIODS: u32 = 5;
/// and after this time, because an election takes its time, however short the period is.
const LATE_MIN: Duration = Duration::from_secs(5);

impl Condition {
    pub(crate) fn of(shared: &Shared) -> Condition {
        let newest = shared.instructions.borrow().edition();
        let failures = shared.counts.read().store_failures;
        let known = shared.known();
        let ControllerOptions { name, smoothing, .. } = &shared.options;
        Condition {
            name: name.clone(),
            leads: known.leads_in.is_some(),
            leader: known.leader.as_ref().map(|leader| leader.name.clone()),
            instructions: (newest > Edition::default()).then_some(newest),
            plan_age: known.published.unwrap_or(shared.began).elapsed(),
            period: smoothing.period,
            store: StoreView {
                failing_for: known.failing.as_ref().map(|failing| failing.since.elapsed()),
                failure: known.failing.as_ref().map(|failing| failing.last.clone()),
                failures,
            },
            cannot_lead: known
                .cannot_lead
                .as_ref()
                .filter(|it| it.holds())
                .map(|it| it.said.clone()),
            unheard: known.hearing.problem(),
        }
    }

    /// True if plans should have arrived and have not.
    pub fn is_late(&self) -> bool {
        self.plan_age > LATE_MIN.max(self.period * LATE_PERIODS)
    }

    /// A description of the problem; `None` if there is none.
    pub fn problem(&self) -> Option<String> {
        let store = self.store.failing_for.map(|time| {
            let failure = self.store.failure.as_deref().unwrap_or("it does not answer");
            (time, format!("the store fails: {failure}"))
        });
        let unheard = self.unheard.as_ref().filter(|(time, _)| *time > LATE_MIN);
        if let (Some((time, what)), false) = (unheard, self.is_late() && self.cannot_lead.is_some())
        {
            return Some(format!("for {}: {what}", seconds(*time)));
        }
        if !self.is_late() {
            // A short failure is not a problem.
            let (time, failure) = store.filter(|(time, _)| *time > LATE_MIN)?;
            return Some(format!(
                "for {}: {failure}; plans are followed, and would not survive a restart",
                seconds(time)
            ));
        }
        let why = match (&self.cannot_lead, store, &self.leader) {
            (Some(failure), ..) => format!("it cannot become leader: {failure}"),
            (None, Some((_, failure)), _) => failure,
            (None, None, None) => "no controller leads".to_string(),
            (None, None, Some(_)) if self.leads => {
                "the inputs of the plan are contradictory; see the log".to_string()
            }
            (None, None, Some(leader)) => format!("{leader} leads, but none of its plans arrives"),
        };
        Some(format!("no plan for {}: {why}", seconds(self.plan_age)))
    }
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs())
}

impl Shared {
    /// Notes that the store answered a read.
    pub(crate) fn note_read(&self) {
        let mut known = self.known();
        if known.failing.as_ref().is_some_and(|failing| !failing.is_unwritten) {
            answers_again(known.failing.take());
        }
    }

    /// Notes that the store accepted a plan.
    pub(crate) fn note_written(&self) {
        answers_again(self.known().failing.take());
    }

    /// Counts a failure of the store, and logs the first.
    pub(crate) fn note_failure(&self, error: &dyn std::error::Error) {
        self.fails(error, false);
    }

    /// Counts a failure to write a plan, and logs the first.
    pub(crate) fn note_unwritten(&self, error: &dyn std::error::Error) {
        self.fails(error, true);
    }

    /// A controller that lost leadership writes no plans, so its write failure ends.
    pub(crate) fn note_no_writer(&self) {
        if let Some(failing) = &mut self.known().failing {
            failing.is_unwritten = false;
        }
    }

    fn fails(&self, error: &dyn std::error::Error, is_unwritten: bool) {
        self.counts.store_failed();
        let last = with_causes(error);
        match &mut self.known().failing {
            Some(failing) => {
                failing.last = last;
                failing.is_unwritten |= is_unwritten;
            }
            none => {
                tracing::warn!(
                    event = "controller.store-failed",
                    error = last,
                    "the store failed; nodes keep their instructions"
                );
                *none = Some(Failing { since: Instant::now(), last, is_unwritten });
            }
        }
    }

    /// Counts a refused campaign. Campaigns are retried all the time, so only the first refusal of
    /// each reason is logged.
    pub(crate) fn note_no_candidate(&self, error: &StoreError) {
        self.counts.store_failed();
        let said = with_causes(error);
        let mut known = self.known();
        if known.cannot_lead.as_ref().is_none_or(|it| it.said != said || !it.holds()) {
            tracing::warn!(
                event = "controller.cannot-lead",
                error = said,
                "this controller cannot become leader; it keeps trying"
            );
        }
        known.cannot_lead = Some(Refused { at: Instant::now(), said });
    }
}

fn answers_again(failing: Option<Failing>) {
    if let Some(failing) = failing {
        tracing::info!(event = "controller.store-answers", after = ?failing.since.elapsed(), "the store answers again");
    }
}

impl ControllerHandle {
    /// The controller's condition.
    pub fn condition(&self) -> Condition {
        Condition::of(&self.shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> Condition {
        Condition {
            name: "c1".into(),
            leads: true,
            leader: Some("c1".into()),
            instructions: None,
            plan_age: Duration::from_millis(400),
            period: Duration::from_secs(1),
            store: StoreView::default(),
            cannot_lead: None,
            unheard: None,
        }
    }

    fn failing(seconds: u64) -> StoreView {
        let failing_for = Some(Duration::from_secs(seconds));
        StoreView { failing_for, failure: Some("no space left".into()), failures: 3 }
    }

    #[test]
    fn late_plans_and_lasting_store_failures_are_reported_with_their_reason() {
        let late = Condition { plan_age: Duration::from_secs(43), ..sound() };
        let (nobody, other) = (None, Some("c2".to_string()));
        let cases = [
            (sound(), None),
            (Condition { store: failing(3), ..sound() }, None),
            (
                Condition { store: failing(9), ..sound() },
                Some(
                    "for 9 s: the store fails: no space left; plans are followed, and would not survive a restart",
                ),
            ),
            (Condition { leads: false, leader: nobody.clone(), ..sound() }, None),
            (
                Condition { leads: false, leader: nobody.clone(), ..late.clone() },
                Some("no plan for 43 s: no controller leads"),
            ),
            (
                Condition { leads: false, leader: other, ..late.clone() },
                Some("no plan for 43 s: c2 leads, but none of its plans arrives"),
            ),
            (
                Condition { store: failing(43), ..late.clone() },
                Some("no plan for 43 s: the store fails: no space left"),
            ),
            (
                Condition {
                    cannot_lead: Some("the store is closed".into()),
                    leader: nobody,
                    ..late.clone()
                },
                Some("no plan for 43 s: it cannot become leader: the store is closed"),
            ),
            (
                Condition {
                    unheard: Some((Duration::from_secs(43), "it is deaf".into())),
                    ..late.clone()
                },
                Some("for 43 s: it is deaf"),
            ),
            (
                Condition {
                    unheard: Some((Duration::from_secs(2), "it is deaf".into())),
                    ..sound()
                },
                None,
            ),
            (late, Some("no plan for 43 s: the inputs of the plan are contradictory; see the log")),
        ];
        for (condition, said) in cases {
            assert_eq!(condition.problem().as_deref(), said, "{condition:?}");
        }
    }

    #[test]
    fn plans_are_late_after_five_periods_and_at_least_five_seconds() {
        let aged = |age_ms: u64, period_ms: u64| Condition {
            plan_age: Duration::from_millis(age_ms),
            period: Duration::from_millis(period_ms),
            ..sound()
        };
        for (age_ms, period_ms, late) in
            [(4900, 100, false), (5100, 100, true), (9900, 2000, false), (10_100, 2000, true)]
        {
            assert_eq!(aged(age_ms, period_ms).is_late(), late, "{age_ms} {period_ms}");
        }
    }
}
