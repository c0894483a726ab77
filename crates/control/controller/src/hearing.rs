//! Compares the members from which this controller receives reports with those of the other
//! controllers. Pure, without a clock.
//!
//! A member *hears* another if it receives its reports. Silence is evidence about a member only
//! while reports of similar members arrive. If all are silent at once, the cause is more likely at
//! the controller: a firewall, a cable, a clock at which certificates are not valid. So each
//! controller writes into its record in the store which members it hears. A controller that hears
//! fewer members than another does not campaign, and one that is [deaf](Verdict::Deaf) plans
//! nothing.
//!
//! Clocks of machines are never compared. A record counts while its controller's lease holds, and
//! all times are on this controller's clock.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// A controller's record in the store. It has the controller's lease, and expires with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HearingRecord {
    /// The controller's version of equipoise.
    pub(crate) version: String,
    /// True if the controller has listened for so long that a member's silence means something.
    pub(crate) is_settled: bool,
    /// Members that the controller hears, without itself.
    pub(crate) hears: BTreeSet<String>,
    /// Members that it knows to be controllers, so that a controller that starts later also knows
    /// them.
    #[serde(default)]
    pub(crate) controllers: BTreeSet<String>,
}

impl HearingRecord {
    /// Decodes a record. `None` for one of an older version, which does not list the members.
    pub(crate) fn read(value: &[u8]) -> Option<HearingRecord> {
        serde_json::from_slice(value).ok()
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// The number of members that a controller hears, ordered by nodes and agents first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Heard {
    pub(crate) nodes: usize,
    pub(crate) controllers: usize,
}

/// The other controllers' records.
#[derive(Clone, Debug, Default)]
pub(crate) struct Witnesses {
    /// Records by controller; `None` if a record cannot be decoded.
    pub(crate) records: BTreeMap<String, Option<HearingRecord>>,
    /// Members that are controllers, or were when they last reported.
    pub(crate) controllers: BTreeSet<String>,
}

impl Witnesses {
    /// Takes the present records of the store, except that of `own`.
    pub(crate) fn see(&mut self, own: &str, records: BTreeMap<String, Option<HearingRecord>>) {
        self.records = records;
        self.controllers.extend(self.records.keys().cloned());
        let known = self.records.values().flatten().flat_map(|one| one.controllers.iter().cloned());
        self.controllers.extend(known.collect::<Vec<_>>());
        self.controllers.insert(own.to_string());
        self.records.remove(own);
    }

    pub(crate) fn is_controller(&self, member: &str) -> bool {
        self.controllers.contains(member)
    }

    /// True if the store has a record of this controller.
    pub(crate) fn is_there(&self, controller: &str) -> bool {
        self.records.contains_key(controller)
    }

    /// True if no other controller hears a member that is in no record. A controller that has
    /// just started makes this false.
    pub(crate) fn all_settled(&self) -> bool {
        self.records.values().all(|one| one.as_ref().is_some_and(|one| one.is_settled))
    }

    /// Members that another controller hears.
    pub(crate) fn hears(&self) -> BTreeSet<&str> {
        let all = self.records.values().flatten().flat_map(|one| &one.hears);
        all.map(String::as_str).collect()
    }

    pub(crate) fn count<'a>(&self, members: impl IntoIterator<Item = &'a String>) -> Heard {
        let mut heard = Heard::default();
        for member in members {
            match self.is_controller(member) {
                true => heard.controllers += 1,
                false => heard.nodes += 1,
            }
        }
        heard
    }

    /// The controller other than `except` that hears most.
    pub(crate) fn best(&self, except: Option<&str>) -> Option<(&str, Heard)> {
        let others = self.records.iter().filter(|(name, _)| Some(name.as_str()) != except);
        let known = others
            .filter_map(|(name, one)| Some((name.as_str(), self.count(&one.as_ref()?.hears))));
        known.max_by_key(|(_, heard)| *heard)
    }

    /// Judges what this controller hears. `heard` are members that reported recently enough not to
    /// be silent, `fresh` are those without a missing report, and `expected` are all that are not
    /// known to be gone. The controller itself is in none of them.
    pub(crate) fn judge(
        &self,
        heard: &BTreeSet<String>,
        fresh: &BTreeSet<String>,
        expected: &BTreeSet<String>,
    ) -> Verdict {
        let (own, fresh, there) = (self.count(heard), self.count(fresh), self.count(expected));
        let best = self.best(None);
        let other = best.map(|(name, _)| name.to_string());
        let most = best.map(|(_, heard)| heard).unwrap_or_default();
        let deaf = |hears, other| Verdict::Deaf { hears, expected: there, other };
        let hears_much_less = 2 * own.nodes < most.nodes
            || own == Heard::default() && most > own && there > Heard::default();
        if hears_much_less {
            return deaf(own, other);
        }
        let hears_one = match there.nodes {
            0 => there.controllers == 0 || fresh.controllers > 0,
            _ => fresh.nodes > 0,
        };
        match (hears_one, most.nodes > 0, fresh.controllers > 0) {
            (true, ..) => Verdict::Hears,
            (false, true, _) => deaf(fresh, other),
            (false, false, true) => Verdict::Unheard { nodes: there.nodes },
            (false, false, false) => deaf(fresh, None),
        }
    }
}

/// The conclusion from the members that a controller hears.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It hears nodes, or there are none.
    #[default]
    Hears,
    /// No controller hears a node, but controllers hear each other. It plans, and leaves the sizes
    /// of pools.
    Unheard {
        /// Number of nodes that should report.
        nodes: usize,
    },
    /// It hears no member, or far fewer than another controller does. It plans nothing.
    Deaf {
        /// The members that it hears; without those with missing reports, if that is the reason.
        hears: Heard,
        /// The members that should report.
        expected: Heard,
        /// A controller that hears more.
        other: Option<String>,
    },
}

impl Verdict {
    /// A description of the problem; `None` if there is none.
    pub(crate) fn problem(&self) -> Option<String> {
        match self {
            Verdict::Hears => None,
            Verdict::Unheard { nodes } => Some(format!(
                "no controller receives reports from any of the {nodes} nodes; pools keep their sizes"
            )),
            Verdict::Deaf { hears, expected, other } => {
                let there = expected.nodes + expected.controllers;
                let heard = hears.nodes + hears.controllers;
                let heard = match heard.min(there) {
                    0 => "none".to_string(),
                    some => some.to_string(),
                };
                let other = other.as_ref().map(|it| format!(", and {it} from more"));
                Some(format!(
                    "this controller receives reports from {heard} of the {there} other members{}; it plans nothing new, and the last plan \
                     stays in force",
                    other.unwrap_or_default()
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> BTreeSet<String> {
        text.split_whitespace().map(str::to_string).collect()
    }

    /// The other controllers, each with the members that it hears. `?` before a name: it has just
    /// started.
    fn witnesses(records: &[(&str, &str)]) -> Witnesses {
        let mut all = Witnesses::default();
        let record = |(name, hears): &(&str, &str)| {
            let record = HearingRecord {
                is_settled: !name.starts_with('?'),
                hears: names(hears),
                ..HearingRecord::default()
            };
            (name.trim_start_matches('?').to_string(), Some(record))
        };
        all.see("c1", records.iter().map(record).collect());
        all.controllers.extend(names("c1 c2 c3"));
        all
    }

    #[test]
    fn silence_of_all_nodes_at_once_is_attributed_to_the_controller() {
        let deaf = |nodes, controllers, other: &str| Some((nodes, controllers, other.to_string()));
        let (all, none) = ("n1 n2 n3 c2 c3", "");
        let others = [("c2", "n1 n2 n3 c1 c3"), ("c3", "n1 n2 n3 c1 c2")];
        let quiet = [("c2", "c1 c3"), ("c3", "c1 c2")];
        // other controllers, members that report, fresh ones, expected ones; deaf, sizes left alone
        let rows = [
            (&others[..], all, all, all, None, false),
            (&others, none, none, all, deaf(0, 0, "c3"), false),
            // Within the first ten seconds: reports are missing, so it hears none now.
            (&others, all, none, all, deaf(0, 0, "c3"), false),
            (&others, "c2 c3", "c2 c3", all, deaf(0, 2, "c3"), false),
            (&others, "n1", "n1", all, deaf(1, 0, "c3"), false),
            (&others, "n1 n2 c2 c3", "n1 n2 c2 c3", all, None, false),
            // No other controller hears nodes either.
            (&quiet, "c2 c3", "c2 c3", all, None, true),
            (&quiet, none, none, all, deaf(0, 0, "c3"), false),
            (&[], none, none, all, deaf(0, 0, ""), false),
            (&[], none, none, none, None, false),
            (&[], "n1", "n1", "n1 n2", None, false),
            // A cluster without nodes.
            (&quiet, "c3", "c3", "c2 c3", None, false),
            (&[("c2", "")], none, none, "c2", deaf(0, 0, ""), false),
        ];
        for (records, heard, fresh, expected, is_deaf, is_unheard) in rows {
            let verdict = witnesses(records).judge(&names(heard), &names(fresh), &names(expected));
            let found = match &verdict {
                Verdict::Deaf { hears, other, .. } => {
                    Some((hears.nodes, hears.controllers, other.clone().unwrap_or_default()))
                }
                _ => None,
            };
            assert_eq!(found, is_deaf, "{heard:?} of {expected:?} beside {records:?}");
            let leaves_sizes = matches!(verdict, Verdict::Unheard { .. });
            assert_eq!(leaves_sizes, is_unheard, "{heard:?} of {expected:?} beside {records:?}");
            assert_eq!(verdict.problem().is_none(), verdict == Verdict::Hears);
        }
    }

    #[test]
    fn ranking_prefers_node_reports_to_controllers_and_skips_the_last_leader() {
        let all = witnesses(&[("c2", "n1 n2 c1"), ("c3", "n1 c1 c2")]);
        let heard = |nodes, controllers| Heard { nodes, controllers };
        assert_eq!(all.best(None), Some(("c2", heard(2, 1))));
        assert_eq!(all.best(Some("c2")), Some(("c3", heard(1, 2))));
        assert!(heard(1, 0) > heard(0, 5));
    }

    #[test]
    fn witnesses_with_a_new_or_outdated_controller_are_not_settled() {
        assert!(witnesses(&[("c2", ""), ("c3", "")]).all_settled());
        assert!(!witnesses(&[("c2", ""), ("?c3", "")]).all_settled());
        let mut older = witnesses(&[("c2", "n1")]);
        older.records.insert("c3".to_string(), HearingRecord::read(b"0.1.0"));
        assert!(!older.all_settled());
        assert_eq!(older.hears(), ["n1"].into());
    }

    #[test]
    fn a_hearing_record_reads_back_and_names_absent_controllers() {
        let (hears, controllers) = (names("n1"), names("c1 c4"));
        let version = "0.1.0".to_string();
        let record = HearingRecord { version, is_settled: true, hears, controllers };
        let read = HearingRecord::read(&record.write());
        assert_eq!(read.as_ref(), Some(&record));
        let mut all = Witnesses::default();
        all.see("c2", [("c1".to_string(), read)].into());
        assert!(all.is_controller("c4") && !all.is_there("c4") && all.is_there("c1"));
    }
}
