//! Decides which members are gone. This needs evidence, because the backends of a gone member are
//! removed or replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Roll;
use crate::hearing::Witnesses;
use crate::roster::Gone;

/// A silent member may be gone after this many periods, and at least this time.
const SILENT_PERIODS: u32 = 10;
const SILENT_MIN: Duration = Duration::from_secs(10);
/// The same if the member's kernel refuses connections, so that no process listens.
const REFUSED_PERIODS: u32 = 5;
const REFUSED_MIN: Duration = Duration::from_secs(1);

/// Evidence that a member is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// An operator evicted it.
    Evicted,
    /// It reported that it leaves.
    Left,
    /// It is silent, and its kernel refuses connections.
    Refused,
    /// No controller receives its reports, while those of similar members arrive; or it is a
    /// controller, and its lease has expired.
    Missed,
}

/// Signs that members are gone, other than their silence.
#[derive(Debug, Default)]
pub(super) struct Signs {
    evicted: BTreeSet<String>,
    left: BTreeSet<String>,
    /// When its kernel last refused a connection, if no connection succeeded since.
    refused: BTreeMap<String, Duration>,
    /// When another controller last received a report of it.
    heard_elsewhere: BTreeMap<String, Duration>,
    /// Since when this controller has received reports of nodes or agents without a break; `None`
    /// while it receives none.
    hears_since: Option<Duration>,
}

impl Signs {
    /// Notes a report of this member.
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

    /// Notes a refused connection. `members_max` limits the number of stored names.
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

    /// True if it reported that it leaves, or an operator evicted it.
    pub(super) fn has_left(&self, member: &str) -> bool {
        self.left.contains(member) || self.is_evicted(member)
    }

    pub(super) fn is_evicted(&self, member: &str) -> bool {
        self.evicted.contains(member)
    }
}

impl Roll {
    /// Sets the members that operators have evicted. Returns whether the set changed.
    pub(crate) fn set_evicted(&mut self, evicted: BTreeSet<String>) -> bool {
        let is_new = self.signs.evicted != evicted;
        self.signs.evicted = evicted;
        is_new
    }

    /// Updates the signs from the other controllers' records. Called once a period.
    pub(crate) fn hear_of(&mut self, now: Duration, witnesses: &Witnesses) {
        let since = self.signs.hears_since.unwrap_or(now);
        self.signs.hears_since = self.hears_another(now, "", witnesses).then_some(since);
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

    /// Time since any controller received a report of a member; since the start if it never
    /// reported.
    fn silence(&self, now: Duration, member: &str) -> Duration {
        let here = self.members.get(member).map(|member| member.at);
        let elsewhere = self.signs.heard_elsewhere.get(member).copied();
        now.saturating_sub(here.max(elsewhere).unwrap_or_default())
    }

    /// The members that report here, without `own`: those that are not silent, and of these the
    /// ones without a missing report.
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

    /// True if a node has been silent for long enough while this controller received reports of
    /// other nodes. After a time without any reports, the first node that returns proves nothing
    /// about the others.
    fn is_missed(&self, now: Duration, name: &str, witnesses: &Witnesses) -> bool {
        let listened = self.signs.hears_since.map(|since| now.saturating_sub(since));
        listened.is_some_and(|listened| listened >= self.silent_after())
            && witnesses.all_settled()
            && self.hears_another(now, name, witnesses)
    }

    /// The evidence that a member is gone, if there is any.
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
            false => self.is_missed(now, name, witnesses),
        };
        is_missed.then_some(Evidence::Missed)
    }

    /// True if this controller receives reports of another node or agent.
    fn hears_another(&self, now: Duration, name: &str, witnesses: &Witnesses) -> bool {
        let mut others = self.members.iter().filter(|(other, _)| other.as_str() != name);
        others.any(|(other, member)| {
            !witnesses.is_controller(other) && self.is_fresh(now, other, member)
        })
    }

    /// How certain it is that a member is gone.
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
    use std::ops::RangeInclusive;

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

    /// A roll with these reports at these seconds. `c1` (this one) and `c2` are controllers.
    fn roll(reports: &[(&str, u64)]) -> Roll {
        let mut roll = Roll::new(Smoothing::default(), 100, Duration::ZERO);
        for (name, at) in reports {
            roll.take(second(*at), name, report()).unwrap();
        }
        roll
    }

    /// The record of controller `c2` with the members that it hears; `None`: it is away.
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

    /// These members report in each of these seconds, and the controller judges.
    fn listen(roll: &mut Roll, members: &[&str], seconds: RangeInclusive<u64>, others: &Witnesses) {
        for at in seconds {
            for name in members {
                roll.take(second(at), name, report()).unwrap();
            }
            roll.hear_of(second(at), others);
        }
    }

    #[test]
    fn a_node_silent_at_every_controller_is_missed_while_others_report() {
        let missed = Some(Evidence::Missed);
        // nodes that reported once, nodes that report until the end, members that c2 hears, whether
        // c2 has listened for long; evidence that n1 is gone
        let rows = [
            (&["n1"][..], &["n2", "c2"][..], Some(&["n2"][..]), true, missed),
            (&["n1"], &["n2", "c2"], Some(&["n1", "n2"]), true, None),
            (&["n1"], &["n2", "c2"], Some(&["n2"]), false, None),
            (&["n1"], &["n2", "c2"], None, true, missed),
            (&["n1", "n2"], &["c2"], Some(&[]), true, None),
            (&["n1", "n2"], &["c2"], Some(&["n1", "n2"]), true, None),
            (&["n1", "n2"], &["c2"], None, true, None),
            (&["n1"], &[], None, true, None),
            (&[], &[], None, true, None),
            (&[], &["n2"], Some(&["n2"]), true, missed),
        ];
        for (once, always, hears, is_settled, evidence) in rows {
            let (mut roll, witnesses) = (roll(&[]), c2(hears, is_settled));
            listen(&mut roll, once, 5..=5, &witnesses);
            listen(&mut roll, always, 6..=30, &witnesses);
            let found = roll.evidence(second(30), "n1", &witnesses);
            assert_eq!(found, evidence, "{once:?} {always:?} {hears:?} {is_settled}");
        }
    }

    #[test]
    fn after_total_silence_each_node_has_full_time_to_report_again() {
        let witnesses = c2(Some(&[]), true);
        let mut roll = roll(&[]);
        listen(&mut roll, &["n1", "n2", "n3"], 0..=20, &witnesses);
        listen(&mut roll, &[], 21..=80, &witnesses);
        listen(&mut roll, &["n2"], 81..=84, &witnesses);
        for gone in ["n1", "n3"] {
            assert_eq!(roll.evidence(second(84), gone, &witnesses), None, "{gone}");
        }
        listen(&mut roll, &["n1", "n2"], 85..=90, &witnesses);
        assert_eq!(roll.evidence(second(90), "n3", &witnesses), None);
        listen(&mut roll, &["n1", "n2"], 91..=91, &witnesses);
        assert_eq!(roll.evidence(second(91), "n1", &witnesses), None);
        assert_eq!(roll.evidence(second(91), "n3", &witnesses), Some(Evidence::Missed));
    }

    #[test]
    fn silence_counts_from_the_last_report_to_any_controller() {
        let mut roll = roll(&[("n1", 5)]);
        listen(&mut roll, &["n2"], 6..=30, &c2(Some(&["n1"]), true));
        let away = c2(None, true);
        listen(&mut roll, &["n2"], 31..=40, &away);
        assert_eq!(roll.gone(second(39), "n1", &away), Gone::No);
        assert_eq!(roll.gone(second(40), "n1", &away), Gone::Surely);
    }

    #[test]
    fn a_silent_controller_is_missed_once_its_lease_has_expired() {
        let roll = roll(&[("c2", 5)]);
        assert_eq!(roll.evidence(second(30), "c2", &c2(Some(&[]), true)), None);
        assert_eq!(roll.evidence(second(30), "c2", &c2(None, true)), Some(Evidence::Missed));
        assert_eq!(roll.evidence(second(7), "c2", &c2(None, true)), None);
    }

    #[test]
    fn a_refused_connection_is_evidence_only_with_silence_until_contact() {
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
    fn leaving_and_eviction_are_immediate_evidence_and_can_be_reversed() {
        let alone = Witnesses::default();
        let mut roll = roll(&[("n1", 5)]);
        roll.take(second(6), "n1", NodeReport { leaves: true, ..report() }).unwrap();
        let none = (BTreeSet::new(), BTreeSet::new());
        let n1 = || BTreeSet::from(["n1".to_string()]);
        assert_eq!(roll.evidence(second(6), "n1", &alone), Some(Evidence::Left));
        assert_eq!(roll.gone(second(6), "n1", &alone), Gone::Surely, "without any silence");
        assert_eq!(roll.heard(second(6), "c1"), none);
        // It returns with its next report.
        roll.take(second(7), "n1", report()).unwrap();
        assert_eq!(roll.evidence(second(7), "n1", &alone), None);
        assert_eq!(roll.gone(second(7), "n1", &alone), Gone::No);
        assert_eq!(roll.heard(second(7), "c1"), (n1(), n1()));
        assert!(roll.set_evicted(n1()));
        // A report does not readmit an evicted member; only the operator does.
        for at in [7, 8] {
            assert_eq!(roll.evidence(second(at), "n1", &alone), Some(Evidence::Evicted));
            assert_eq!(roll.gone(second(at), "n1", &alone), Gone::Surely);
            assert_eq!(roll.heard(second(at), "c1"), none);
            roll.take(second(8), "n1", report()).unwrap();
        }
        assert!(!roll.set_evicted(n1()));
        assert!(roll.set_evicted(BTreeSet::new()));
        assert_eq!(roll.evidence(second(8), "n1", &alone), None);
        assert_eq!(roll.gone(second(8), "n1", &alone), Gone::No);
        assert_eq!(roll.heard(second(8), "c1"), (n1(), n1()));
    }
}
