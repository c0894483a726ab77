//! A leader's term, which is above every term that nodes know. This holds even if the store was
//! restored from an older copy or created again, so that its revisions began again. Pure.
//!
//! Nodes never go back to older instructions, and report which they follow. A leader that learns of
//! later instructions than its own has a store that lost them, and takes a term above theirs.
//!
//! A node may lie. Each leader believes a node once, and no further than [`AHEAD_MAX`], so terms
//! cannot be used up. Every such claim is logged with the node's name.

use std::collections::BTreeSet;

use crate::Edition;

/// More revisions than a store reaches between a copy and its loss: at a thousand a second, seven
/// weeks.
const AHEAD_MAX: u64 = 1 << 32;

/// The term of a leader.
#[derive(Debug)]
pub(crate) struct OfficeTerm {
    term: u64,
    is_stored: bool,
    believed: BTreeSet<String>,
    disbelieved: BTreeSet<String>,
}

/// A node's claim to later instructions.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Claim<'a> {
    /// The store lost them. The term is now above the claim.
    Overtaken { node: &'a str, claimed: Edition },
    /// The claim is not possible. It is reported once for each node.
    Disbelieved { node: &'a str, claimed: Edition },
}

impl OfficeTerm {
    /// The term of a leader elected at revision `created`, if the newest known instructions have
    /// term `newest`.
    pub(crate) fn after(created: u64, newest: u64) -> OfficeTerm {
        let (believed, disbelieved) = (BTreeSet::new(), BTreeSet::new());
        let term = created.max(newest.saturating_add(u64::from(newest >= created)));
        OfficeTerm { term, is_stored: term == created, believed, disbelieved }
    }

    pub(crate) fn get(&self) -> u64 {
        self.term
    }

    /// True if the next leader will know this term. The next leader's revision is above that of all
    /// earlier leaders. A term above its own revision must be in the store before it is published.
    pub(crate) fn is_stored(&self) -> bool {
        self.is_stored
    }

    pub(crate) fn stored(&mut self) {
        self.is_stored = true;
    }

    /// Takes the editions that nodes report. `own` are this leader's newest instructions.
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
    fn a_term_is_the_election_revision_or_above_the_newest_known() {
        for (created, newest, term, is_stored) in
            [(9, 0, 9, true), (9, 7, 9, true), (9, 9, 10, false), (9, 1000, 1001, false)]
        {
            let office = OfficeTerm::after(created, newest);
            assert_eq!((office.get(), office.is_stored()), (term, is_stored), "{created} {newest}");
        }
    }

    #[test]
    fn editions_up_to_the_leaders_own_are_no_claims() {
        let mut office = OfficeTerm::after(9, 7);
        let said = [("a", of(9, 40)), ("b", of(7, 900)), ("c", of(0, 0))];
        assert_eq!(office.hear(of(9, 40), said.into_iter()), []);
        // Before its first plan, the leader continues from the previous plan.
        assert_eq!(office.hear(of(7, 900), [("b", of(7, 900))].into_iter()), []);
        assert_eq!(office.get(), 9);
    }

    #[test]
    fn a_leader_takes_a_term_above_later_reported_instructions() {
        // Claims of the same term and of a later one.
        for claimed in [of(9, 41), of(5000, 3)] {
            let mut office = OfficeTerm::after(9, 7);
            let heard = office.hear(of(9, 40), [("a", claimed)].into_iter());
            assert_eq!(heard, [Claim::Overtaken { node: "a", claimed }]);
            assert_eq!((office.get(), office.is_stored()), (claimed.term + 1, false));
            // The node follows them until it receives newer ones.
            let own = of(claimed.term + 1, 41);
            assert_eq!(office.hear(own, [("a", claimed)].into_iter()), []);
            office.stored();
            assert!(office.is_stored());
        }
    }

    #[test]
    fn a_nodes_claim_raises_the_term_once_and_within_a_bound() {
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
