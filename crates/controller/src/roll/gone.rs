//! Which members are gone: on evidence alone, since what a gone member has made is taken away.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Roll;
use crate::hearing::Witnesses;
use crate::roster::Gone;

/// A member may be gone after this many periods of silence, and at least this time.
const SILENT_PERIODS: u32 = 10;
const SILENT_MIN: Duration = Duration::from_secs(10);
/// The same if the member's kernel refuses connections: its process does not listen any more.
const REFUSED_PERIODS: u32 = 5;
const REFUSED_MIN: Duration = Duration::from_secs(1);

/// Evidence that a member is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// An operator evicted it.
    Evicted,
    /// It said that it leaves.
    Left,
    /// It is silent, and its kernel refuses connections.
    Refused,
    /// It is silent for every controller, and others like it are heard; or it is a controller, and its lease has ended.
    Missed,
}

/// Signs that members are gone, beside their silence.
#[derive(Debug, Default)]
pub(super) struct Signs {
    evicted: BTreeSet<String>,
    left: BTreeSet<String>,
    /// When its kernel last refused a connection, if nothing has reached it since.
    refused: BTreeMap<String, Duration>,
    /// When another controller last heard it.
    heard_elsewhere: BTreeMap<String, Duration>,
}

impl Signs {
    /// A report has come from this member.
    pub(super) fn reports(&mut self, member: &str) {
        self.left.remove(member);
        self.refused.remove(member);
    }

    pub(super) fn leaves(&mut self, member: &str) {
        self.left.insert(member.to_string());
    }

    pub(super) fn is_reached(&mut self, member: &str) {
        self.refused.remove(member);
    }

    /// `members_max` bounds the names that are kept.
    pub(super) fn is_refused(&mut self, member: &str, now: Duration, members_max: usize) {
        if self.refused.len() < members_max || self.refused.contains_key(member) {
            self.refused.insert(member.to_string(), now);
        }
    }

    pub(super) fn forget(&mut self, member: &str) {
        self.left.remove(member);
        self.refused.remove(member);
        self.heard_elsewhere.remove(member);
    }

    /// Whether it has left, by its own word or an operator's.
    pub(super) fn has_left(&self, member: &str) -> bool {
        self.left.contains(member) || self.is_evicted(member)
    }

    pub(super) fn is_evicted(&self, member: &str) -> bool {
        self.evicted.contains(member)
    }
}

impl Roll {
    /// The members that operators have evicted, all of them; whether that is new.
    pub(crate) fn set_evicted(&mut self, evicted: BTreeSet<String>) -> bool {
        let is_new = self.signs.evicted != evicted;
        self.signs.evicted = evicted;
        is_new
    }

    /// Takes in what the other controllers hear now.
    pub(crate) fn hear_of(&mut self, now: Duration, witnesses: &Witnesses) {
        for member in witnesses.hears() {
            match self.signs.heard_elsewhere.get_mut(member) {
                Some(at) => *at = now,
                None => drop(self.signs.heard_elsewhere.insert(member.to_string(), now)),
            }
        }
    }

    /// The time after which a member's silence counts.
    pub(crate) fn silent_after(&self) -> Duration {
        SILENT_MIN.max(self.smoothing.period * SILENT_PERIODS)
    }

    /// For how long neither this controller nor another has heard a member; since the start for one that never reported.
    fn silence(&self, now: Duration, member: &str) -> Duration {
        let here = self.members.get(member).map(|member| member.at);
        let elsewhere = self.signs.heard_elsewhere.get(member).copied();
        now.saturating_sub(here.max(elsewhere).unwrap_or_default())
    }

    /// The members that report here, without `own`: first those that reported before their silence counts,
    /// then those that miss no report.
    pub(crate) fn heard(&self, now: Duration, own: &str) -> (BTreeSet<String>, BTreeSet<String>) {
        let (mut heard, mut fresh) = (BTreeSet::new(), BTreeSet::new());
        for (name, member) in &self.members {
            if name == own || self.signs.has_left(name) {
                continue;
            }
            if self.is_fresh(now, name, member) {
                fresh.insert(name.clone());
            }
            if now.saturating_sub(member.at) < self.silent_after() {
                heard.insert(name.clone());
            }
        }
        (heard, fresh)
    }

    /// Evidence that a member is gone.
    pub(crate) fn evidence(
        &self,
        now: Duration,
        name: &str,
        witnesses: &Witnesses,
    ) -> Option<Evidence> {
        if self.signs.is_evicted(name) {
            return Some(Evidence::Evicted);
        }
        if self.signs.left.contains(name) {
            return Some(Evidence::Left);
        }
        let silence = self.silence(now, name);
        let refused = self.signs.refused.get(name);
        let is_refused = refused.is_some_and(|at| now.saturating_sub(*at) < self.silent_after());
        if is_refused && silence >= REFUSED_MIN.max(self.smoothing.period * REFUSED_PERIODS) {
            return Some(Evidence::Refused);
        }
        if silence < self.silent_after() {
            return None;
        }
        let is_missed = match witnesses.is_controller(name) {
            true => !witnesses.is_there(name),
            false => witnesses.all_settled() && self.hears_another(now, name, witnesses),
        };
        is_missed.then_some(Evidence::Missed)
    }

    /// Whether a node or agent is heard here, other than this one.
    fn hears_another(&self, now: Duration, name: &str, witnesses: &Witnesses) -> bool {
        let mut others = self.members.iter().filter(|(other, _)| other.as_str() != name);
        others.any(|(other, member)| {
            !witnesses.is_controller(other) && self.is_fresh(now, other, member)
        })
    }

    /// How sure it is that a member is gone.
    pub(crate) fn gone(&self, now: Duration, name: &str, witnesses: &Witnesses) -> Gone {
        if self.evidence(now, name, witnesses).is_some() {
            return Gone::Surely;
        }
        match self.silence(now, name) >= self.silent_after() {
            true => Gone::Silent,
            false => Gone::No,
        }
    }
}

#[cfg(test)]
mod tests {
    use equipoise_core::load::Smoothing;

    use super::*;
    use crate::NodeReport;
    use crate::hearing::HearingRecord;

    fn second(at: u64) -> Duration {
        Duration::from_secs(at)
    }

    fn report() -> NodeReport {
        NodeReport { version: "0.1.0".into(), capacity: 2.0, ..NodeReport::default() }
    }

    /// A roll in which these reported in these seconds, beside controllers `c1`, its own, and `c2`.
    fn roll(reports: &[(&str, u64)]) -> Roll {
        let mut roll = Roll::new(Smoothing::default(), 100, Duration::ZERO);
        for (name, at) in reports {
            roll.take(second(*at), name, report()).unwrap();
        }
        roll
    }

    /// The controller `c2` with what it hears; `None`: it is away.
    fn c2(hears: Option<&[&str]>, is_settled: bool) -> Witnesses {
        let mut witnesses = Witnesses::default();
        let record = |hears: &[&str]| HearingRecord {
            is_settled,
            hears: hears.iter().map(|it| it.to_string()).collect(),
            controllers: ["c2".to_string()].into(),
            ..HearingRecord::default()
        };
        witnesses
            .see("c1", hears.map(|it| ("c2".to_string(), Some(record(it)))).into_iter().collect());
        witnesses.controllers.insert("c2".to_string());
        witnesses
    }

    #[test]
    fn a_silent_node_is_gone_only_while_another_is_heard_and_no_controller_hears_it() {
        let one_silent = [("n1", 5), ("n2", 30), ("c2", 30)];
        let all_silent = [("n1", 5), ("n2", 6), ("c2", 30)];
        let missed = Some(Evidence::Missed);
        // reports, what c2 hears, whether c2 has listened for long; evidence that n1 is gone
        let rows = [
            (&one_silent[..], Some(&["n2"][..]), true, missed),
            (&one_silent, Some(&["n1", "n2"]), true, None),
            (&one_silent, Some(&["n2"]), false, None),
            (&one_silent, None, true, missed),
            (&all_silent, Some(&[]), true, None),
            (&all_silent, Some(&["n1", "n2"]), true, None),
            (&all_silent, None, true, None),
            (&[("n1", 5)], None, true, None),
            (&[], None, true, None),
            (&[("n2", 30)], Some(&["n2"]), true, missed),
        ];
        for (reports, hears, is_settled, evidence) in rows {
            let (mut roll, witnesses) = (roll(reports), c2(hears, is_settled));
            roll.hear_of(second(30), &witnesses);
            let found = roll.evidence(second(30), "n1", &witnesses);
            assert_eq!(found, evidence, "{reports:?} {hears:?} {is_settled}");
        }
    }

    #[test]
    fn a_member_that_another_controller_heard_is_silent_only_from_then_on() {
        let mut roll = roll(&[("n1", 5), ("n2", 44)]);
        roll.hear_of(second(30), &c2(Some(&["n1"]), true));
        let away = c2(None, true);
        assert_eq!(roll.gone(second(39), "n1", &away), Gone::No);
        assert_eq!(roll.gone(second(45), "n1", &away), Gone::Surely);
    }

    #[test]
    fn a_silent_controller_is_gone_when_its_lease_has_ended() {
        let roll = roll(&[("c2", 5)]);
        assert_eq!(roll.evidence(second(30), "c2", &c2(Some(&[]), true)), None);
        assert_eq!(roll.evidence(second(30), "c2", &c2(None, true)), Some(Evidence::Missed));
        assert_eq!(roll.evidence(second(7), "c2", &c2(None, true)), None);
    }

    #[test]
    fn a_refusal_by_the_kernel_counts_with_silence_and_until_something_reaches_it() {
        let alone = Witnesses::default();
        let refused = NodeReport { refused: ["n1".to_string()].into(), ..report() };
        let mut seen = roll(&[("n1", 5)]);
        seen.take(second(7), "c1", refused.clone()).unwrap();
        assert_eq!(seen.evidence(second(9), "n1", &alone), None, "not silent for long enough");
        assert_eq!(seen.evidence(second(10), "n1", &alone), Some(Evidence::Refused));
        assert_eq!(seen.evidence(second(20), "n1", &alone), None, "it was refused too long ago");
        let reached = NodeReport { reachable: [("n1".to_string(), true)].into(), ..report() };
        seen.take(second(8), "c1", reached).unwrap();
        assert_eq!(seen.evidence(second(10), "n1", &alone), None);
        seen.take(second(9), "c1", refused).unwrap();
        seen.take(second(9), "n1", report()).unwrap();
        assert_eq!(seen.evidence(second(15), "n1", &alone), None, "it reported since");
    }

    #[test]
    fn a_member_that_leaves_or_is_evicted_is_gone_at_once_and_back_with_its_next_report() {
        let alone = Witnesses::default();
        let mut roll = roll(&[("n1", 5)]);
        roll.take(second(6), "n1", NodeReport { leaves: true, ..report() }).unwrap();
        assert_eq!(roll.evidence(second(6), "n1", &alone), Some(Evidence::Left));
        assert!(roll.heard(second(6), "c1").1.is_empty());
        roll.take(second(9), "n1", report()).unwrap();
        assert_eq!(roll.evidence(second(9), "n1", &alone), None);
        assert!(roll.set_evicted(["n1".to_string()].into()));
        assert_eq!(roll.evidence(second(9), "n1", &alone), Some(Evidence::Evicted));
        assert!(!roll.set_evicted(["n1".to_string()].into()));
        assert!(roll.set_evicted(BTreeSet::new()));
        assert_eq!(roll.gone(second(9), "n1", &alone), Gone::No);
    }
}
