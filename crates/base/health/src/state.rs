use std::time::Instant;

use equipoise_core::Health;

use crate::{ActiveHealth, PassiveHealth};

/// Health of one backend: the verdict of its active checks, and its passive ejections.
///
/// Active: the first check decides immediately (HAProxy's `init-state up`), so that a backend that
/// is down at the start does not cost `fall` intervals of failed requests. Afterwards, `rise`
/// passes or `fall` failures in a row change the verdict.
/// Passive: [`BackendHealth::eject`] takes the backend out for `ejection`, twice as long each time,
/// up to `ejection_max`. After `ejection_max` without an ejection, the duration starts over. A
/// passed active check ends an ejection for statuses (as in Envoy), but not one for a failed
/// connection, because the check may use another path than the requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackendHealth {
    verdict: Health,
    /// Number of consecutive results that contradict the verdict.
    contrary: u32,
    ejection: Option<Ejection>,
    /// Number of ejections since the backend was last stable: the exponent of the back-off.
    ejections: u32,
    returned: Option<Instant>,
}

/// A current ejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ejection {
    until: Instant,
    cause: EjectionCause,
}

/// Kind of the last failure before the ejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EjectionCause {
    /// The connection failed, or the response was missing or not HTTP.
    Connection,
    /// A response had one of [`PassiveHealth::statuses`].
    Status,
}

/// A new verdict of the active checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// [`Health::Healthy`] or [`Health::Unhealthy`].
    pub health: Health,
    /// Number of consecutive results behind it; 1 if the first check decided.
    pub checks: u32,
    /// Whether it results from the backend's first check.
    pub first: bool,
}

impl BackendHealth {
    /// Returns the health that schedulers use: unhealthy while ejected, otherwise the verdict of
    /// the checks.
    pub fn health(&self) -> Health {
        if self.ejection.is_some() { Health::Unhealthy } else { self.verdict }
    }

    /// Records the result of one active check. Returns the new verdict if it changed.
    pub fn checked(&mut self, passed: bool, rules: &ActiveHealth) -> Option<Verdict> {
        let seen = if passed { Health::Healthy } else { Health::Unhealthy };
        if self.verdict == seen {
            self.contrary = 0;
            return None;
        }
        self.contrary += 1;
        let first = self.verdict == Health::Unknown;
        let needed = match seen {
            _ if first => 1,
            Health::Healthy => rules.rise,
            _ => rules.fall,
        };
        if self.contrary < needed {
            return None;
        }
        let checks = std::mem::take(&mut self.contrary);
        self.verdict = seen;
        Some(Verdict { health: seen, checks, first })
    }

    /// Takes over the verdict that an earlier process had, unless checks have decided already, and
    /// the end of its ejection.
    pub fn inherit(&mut self, verdict: Health, ejected_until: Option<Instant>) {
        if self.verdict == Health::Unknown {
            self.verdict = verdict;
        }
        if let Some(until) = ejected_until {
            self.ejection = Some(Ejection { until, cause: EjectionCause::Connection });
        }
    }

    /// Resets the verdict, when active checks are switched off.
    pub fn unchecked(&mut self) {
        self.verdict = Health::Unknown;
        self.contrary = 0;
    }

    /// Resets the count of results after a change of the check. The verdict stays until the new
    /// check changes it.
    pub fn check_changed(&mut self) {
        self.contrary = 0;
    }

    /// Ejects the backend and returns the end of the ejection. Has no effect on an ejected backend.
    pub fn eject(&mut self, rules: &PassiveHealth, cause: EjectionCause, now: Instant) -> Instant {
        if let Some(ejection) = self.ejection {
            return ejection.until;
        }
        let stable =
            self.returned.is_some_and(|at| now.saturating_duration_since(at) >= rules.ejection_max);
        if stable {
            self.ejections = 0;
        }
        // 2^31 seconds exceed any configured maximum, so the clamp has no effect.
        let factor = 1u32 << self.ejections.min(31);
        let lasts = rules.ejection.saturating_mul(factor).min(rules.ejection_max);
        let until = now + lasts;
        self.ejections = self.ejections.saturating_add(1);
        self.ejection = Some(Ejection { until, cause });
        until
    }

    /// Ends an ejection that has expired. Returns whether one ended.
    pub fn expire(&mut self, now: Instant) -> bool {
        self.ejected_until().is_some_and(|until| until <= now) && self.readmit(now)
    }

    /// Ends an ejection for statuses. Returns whether there was one.
    pub fn readmit_if_for_statuses(&mut self, now: Instant) -> bool {
        let for_statuses = |ejection: Ejection| ejection.cause == EjectionCause::Status;
        self.ejection.is_some_and(for_statuses) && self.readmit(now)
    }

    /// Ends an ejection early. Returns whether there was one.
    pub fn readmit(&mut self, now: Instant) -> bool {
        let was = self.ejection.take().is_some();
        if was {
            self.returned = Some(now);
        }
        was
    }

    /// Returns the end of the current ejection.
    pub fn ejected_until(&self) -> Option<Instant> {
        self.ejection.map(|ejection| ejection.until)
    }

    /// Returns the verdict of the active checks, without ejections.
    pub fn verdict(&self) -> Health {
        self.verdict
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use equipoise_core::Health::{Healthy, Unhealthy, Unknown};

    use super::EjectionCause::{Connection, Status};
    use super::*;

    fn rules(rise: u32, fall: u32) -> ActiveHealth {
        ActiveHealth { rise, fall, ..ActiveHealth::default() }
    }

    fn passive() -> PassiveHealth {
        PassiveHealth {
            ejection: Duration::from_secs(10),
            ejection_max: Duration::from_secs(60),
            ..PassiveHealth::default()
        }
    }

    #[test]
    fn each_check_result_changes_the_state_as_in_the_table() {
        // rise 2, fall 3: all reachable pairs of verdict and consecutive contrary results.
        let rules = rules(2, 3);
        let table = [
            // before            pass                  fail
            ((Unknown, 0), ((Healthy, 0), true), ((Unhealthy, 0), true)),
            ((Healthy, 0), ((Healthy, 0), false), ((Healthy, 1), false)),
            ((Healthy, 1), ((Healthy, 0), false), ((Healthy, 2), false)),
            ((Healthy, 2), ((Healthy, 0), false), ((Unhealthy, 0), true)),
            ((Unhealthy, 0), ((Unhealthy, 1), false), ((Unhealthy, 0), false)),
            ((Unhealthy, 1), ((Healthy, 0), true), ((Unhealthy, 0), false)),
        ];
        for ((verdict, contrary), on_pass, on_fail) in table {
            for (passed, (after, turned)) in [(true, on_pass), (false, on_fail)] {
                let mut state = BackendHealth { verdict, contrary, ..BackendHealth::default() };
                let said = state.checked(passed, &rules);
                let row = format!("{verdict:?}/{contrary} passed={passed}");
                assert_eq!((state.verdict, state.contrary), after, "{row}");
                assert_eq!(said.map(|v| v.health), turned.then_some(after.0), "{row}");
            }
        }
    }

    #[test]
    fn every_sequence_of_checks_agrees_with_the_definition() {
        // The definition as naive code: the first result decides; then the last `rise` (`fall`)
        // equal results since the verdict change it.
        fn naive(results: &[bool], rise: usize, fall: usize) -> Health {
            let Some((first, rest)) = results.split_first() else { return Unknown };
            let (mut up, mut since) = (*first, 0);
            for end in 1..=rest.len() {
                let need = if up { fall } else { rise };
                let seen = &rest[since..end];
                if seen.len() >= need && seen[seen.len() - need..].iter().all(|r| *r != up) {
                    (up, since) = (!up, end);
                }
            }
            if up { Healthy } else { Unhealthy }
        }
        for (rise, fall) in [(1, 1), (1, 3), (2, 1), (2, 3), (3, 2)] {
            for bits in 0u32..1 << 9 {
                let results: Vec<bool> = (0..9).map(|i| bits >> i & 1 == 1).collect();
                for length in 0..=results.len() {
                    let mut state = BackendHealth::default();
                    for passed in &results[..length] {
                        state.checked(*passed, &rules(rise, fall));
                    }
                    let want = naive(&results[..length], rise as usize, fall as usize);
                    assert_eq!(state.health(), want, "rise {rise} fall {fall} {results:?}");
                }
            }
        }
    }

    #[test]
    fn an_ejection_overrides_the_verdict_of_checks_until_it_expires() {
        let start = Instant::now();
        for (verdict, after) in [(Unknown, Unknown), (Healthy, Healthy), (Unhealthy, Unhealthy)] {
            let mut state = BackendHealth { verdict, ..BackendHealth::default() };
            let until = state.eject(&passive(), Connection, start);
            assert_eq!(state.health(), Unhealthy);
            assert!(!state.expire(until - Duration::from_nanos(1)));
            assert_eq!(state.health(), Unhealthy);
            assert!(state.expire(until));
            assert_eq!(state.health(), after);
        }
    }

    #[test]
    fn checks_are_counted_during_an_ejection() {
        let mut state = BackendHealth::default();
        let until = state.eject(&passive(), Connection, Instant::now());
        assert_eq!(state.checked(false, &rules(1, 1)).map(|v| v.health), Some(Unhealthy));
        state.expire(until);
        assert_eq!(state.health(), Unhealthy);
        state.checked(true, &rules(1, 1));
        assert_eq!(state.health(), Healthy);
    }

    #[test]
    fn ejections_double_up_to_the_maximum() {
        let mut state = BackendHealth::default();
        let mut now = Instant::now();
        for seconds in [10, 20, 40, 60, 60, 60] {
            let until = state.eject(&passive(), Connection, now);
            assert_eq!((until - now).as_secs(), seconds);
            assert!(state.expire(until));
            now = until + Duration::from_secs(1);
        }
    }

    #[test]
    fn the_back_off_starts_over_after_a_stable_time() {
        for (stable, seconds) in [(59, 40), (60, 10)] {
            let mut state = BackendHealth::default();
            let mut now = Instant::now();
            for _ in 0..2 {
                now = state.eject(&passive(), Connection, now);
                state.expire(now);
            }
            now += Duration::from_secs(stable);
            assert_eq!(
                (state.eject(&passive(), Connection, now) - now).as_secs(),
                seconds,
                "{stable}"
            );
        }
    }

    #[test]
    fn a_hundred_ejections_do_not_overflow() {
        let mut state = BackendHealth::default();
        let mut now = Instant::now();
        for _ in 0..100 {
            now = state.eject(&passive(), Connection, now);
            state.expire(now);
        }
        assert_eq!((state.eject(&passive(), Connection, now) - now).as_secs(), 60);
    }

    #[test]
    fn ejecting_an_ejected_backend_neither_prolongs_nor_escalates() {
        let mut state = BackendHealth::default();
        let start = Instant::now();
        let until = state.eject(&passive(), Connection, start);
        let before = state.clone();
        assert_eq!(state.eject(&passive(), Connection, start + Duration::from_secs(5)), until);
        assert_eq!(state, before);
    }

    #[test]
    fn only_an_ejection_for_statuses_can_end_with_a_check() {
        let start = Instant::now();
        for (cause, ends) in [(Connection, false), (Status, true)] {
            let mut state = BackendHealth::default();
            assert!(!state.readmit_if_for_statuses(start), "it is not ejected");
            let until = state.eject(&passive(), cause, start);
            assert_eq!(state.readmit_if_for_statuses(start), ends, "{cause:?}");
            assert_eq!(state.ejected_until(), (!ends).then_some(until), "{cause:?}");
        }
    }

    #[test]
    fn without_checks_health_is_unknown_unless_the_backend_is_ejected() {
        let mut state = BackendHealth::default();
        state.checked(false, &rules(1, 1));
        state.unchecked();
        assert_eq!(state.health(), Unknown);
        state.eject(&passive(), Connection, Instant::now());
        state.unchecked();
        assert_eq!(state.health(), Unhealthy);
    }

    #[test]
    fn a_changed_check_resets_the_count_and_keeps_the_verdict() {
        let mut state = BackendHealth::default();
        state.checked(true, &rules(1, 2));
        state.checked(false, &rules(1, 2));
        state.check_changed();
        assert_eq!(state.checked(false, &rules(1, 2)), None);
        assert_eq!(state.verdict(), Healthy);
        assert!(state.checked(false, &rules(1, 2)).is_some());
    }
}
