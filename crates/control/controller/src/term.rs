//! A leader's term, above all that nodes were ever told: also when the store was put back from an older copy, or made
//! anew, and its revisions begin again. Pure.
//!
//! Nodes never go back to older instructions, and say in every report which they go by. So a leader that hears of later
//! ones than its own has a store that forgot: it takes a term above theirs.
//!
//! A node may lie. It is believed once by each leader, and no further than [`AHEAD_MAX`]: terms cannot be used up, and
//! each time is in the log with the node's name.

use std::collections::BTreeSet;

use crate::Edition;

/// More revisions than a store comes to between a copy and its loss: at a thousand a second, seven weeks.
const AHEAD_MAX: u64 = 1 << 32;

/// The term of one who leads.
#[derive(Debug)]
pub(crate) struct OfficeTerm {
    term: u64,
    is_stored: bool,
    believed: BTreeSet<String>,
    disbelieved: BTreeSet<String>,
}

/// What a claim to later instructions comes to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Claim<'a> {
    /// The store forgot: the term is above it now.
    Overtaken { node: &'a str, claimed: Edition },
    /// It cannot be so. Said once of each node.
    Disbelieved { node: &'a str, claimed: Edition },
}

impl OfficeTerm {
    /// For who came to the office at revision `created`, when the newest instructions that are known have term `newest`.
    pub(crate) fn after(created: u64, newest: u64) -> OfficeTerm {
        let (believed, disbelieved) = (BTreeSet::new(), BTreeSet::new());
        let term = created.max(newest.saturating_add(u64::from(newest >= created)));
        OfficeTerm { term, is_stored: term == created, believed, disbelieved }
    }

    pub(crate) fn get(&self) -> u64 {
        self.term
    }

    /// Whether the next leader will know of it: its own revision is above that of every leader before, and what is above
    /// that must be in the store before anybody is told.
    pub(crate) fn is_stored(&self) -> bool {
        self.is_stored
    }

    pub(crate) fn stored(&mut self) {
        self.is_stored = true;
    }

    /// Takes in what nodes say that they go by, when this leader's own newest instructions are `own`.
    pub(crate) fn hear<'a>(
        &mut self,
        own: Edition,
        said: impl Iterator<Item = (&'a str, Edition)>,
    ) -> Vec<Claim<'a>> {
        let term = self.term;
        let next = Edition { term, generation: 0 }.max(own);
        let mut claims = Vec::new();
        for (node, claimed) in said.filter(|(_, claimed)| *claimed > next) {
            let is_near = claimed.term - term <= AHEAD_MAX;
            if is_near && self.believed.insert(node.to_string()) {
                self.term = self.term.max(claimed.term.saturating_add(1));
                self.is_stored = false;
                claims.push(Claim::Overtaken { node, claimed });
            } else if self.disbelieved.insert(node.to_string()) {
                claims.push(Claim::Disbelieved { node, claimed });
            }
        }
        claims
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(term: u64, generation: u64) -> Edition {
        Edition { term, generation }
    }

    #[test]
    fn a_term_is_the_revision_of_coming_to_the_office_unless_more_was_told() {
        for (created, newest, term, is_stored) in
            [(9, 0, 9, true), (9, 7, 9, true), (9, 9, 10, false), (9, 1000, 1001, false)]
        {
            let office = OfficeTerm::after(created, newest);
            assert_eq!((office.get(), office.is_stored()), (term, is_stored), "{created} {newest}");
        }
    }

    #[test]
    fn what_this_leader_said_itself_is_no_claim() {
        let mut office = OfficeTerm::after(9, 7);
        let said = [("a", of(9, 40)), ("b", of(7, 900)), ("c", of(0, 0))];
        assert_eq!(office.hear(of(9, 40), said.into_iter()), []);
        // Before it has planned anything, what was planned before it is what it goes on from.
        assert_eq!(office.hear(of(7, 900), [("b", of(7, 900))].into_iter()), []);
        assert_eq!(office.get(), 9);
    }

    #[test]
    fn later_instructions_than_ones_own_are_overtaken() {
        // Of the same term, and of a later one.
        for claimed in [of(9, 41), of(5000, 3)] {
            let mut office = OfficeTerm::after(9, 7);
            let heard = office.hear(of(9, 40), [("a", claimed)].into_iter());
            assert_eq!(heard, [Claim::Overtaken { node: "a", claimed }]);
            assert_eq!((office.get(), office.is_stored()), (claimed.term + 1, false));
            // It goes by it until it is told the next.
            let own = of(claimed.term + 1, 41);
            assert_eq!(office.hear(own, [("a", claimed)].into_iter()), []);
            office.stored();
            assert!(office.is_stored());
        }
    }

    #[test]
    fn a_liar_is_believed_once_and_not_far() {
        let mut office = OfficeTerm::after(9, 7);
        let far = of(u64::MAX, 1);
        let heard = office.hear(of(9, 40), [("liar", far)].into_iter());
        assert_eq!(heard, [Claim::Disbelieved { node: "liar", claimed: far }]);
        assert_eq!(office.hear(of(9, 40), [("liar", far)].into_iter()), [], "said once");
        let near = of(9 + AHEAD_MAX, 1);
        let heard = office.hear(of(9, 40), [("liar", near)].into_iter());
        assert_eq!(heard, [Claim::Overtaken { node: "liar", claimed: near }]);
        let again = of(office.get() + 1, 1);
        assert_eq!(office.hear(of(office.get(), 41), [("liar", again)].into_iter()), []);
        assert_eq!(office.get(), near.term + 1);
    }
}
