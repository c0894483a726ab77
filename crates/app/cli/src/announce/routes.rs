//! The addresses that are announced: withdrawn at once, given back with a delay.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

use super::Seen;

/// A change of the announced addresses.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    Announced(IpAddr),
    /// With the reason.
    Withdrawn(IpAddr, String),
}

/// The announced addresses.
#[derive(Debug)]
pub(super) struct Routes {
    announced: BTreeSet<IpAddr>,
    /// Since when the others are served.
    served_since: BTreeMap<IpAddr, Instant>,
    back_after: Duration,
    /// An address that was never withdrawn is announced without the delay.
    withdrawn: BTreeSet<IpAddr>,
}

impl Routes {
    /// `kept` are announced already, by an earlier process.
    pub(super) fn new(kept: BTreeSet<IpAddr>, back_after: Duration) -> Routes {
        let (served_since, withdrawn) = (BTreeMap::new(), BTreeSet::new());
        Routes { announced: kept, served_since, back_after, withdrawn }
    }

    pub(super) fn announced(&self) -> &BTreeSet<IpAddr> {
        &self.announced
    }

    /// Takes note of what was seen at `now`.
    pub(super) fn update(&mut self, now: Instant, seen: Seen) -> Vec<Change> {
        let (seen, why) = match seen {
            Seen::Addresses(seen) => (seen, "no part of equipoise has it any more".to_owned()),
            Seen::Nothing(why) => (Vec::new(), why),
        };
        let mut problems: BTreeMap<_, _> = seen
            .iter()
            .filter_map(|(address, problem)| Some((*address, problem.clone()?)))
            .collect();
        let is_served = |address: &IpAddr| seen.contains(&(*address, None));
        let lost: Vec<_> = self.announced.iter().filter(|it| !is_served(it)).copied().collect();
        let mut changes = Vec::new();
        for address in lost {
            self.announced.remove(&address);
            self.withdrawn.insert(address);
            let why = problems.remove(&address).unwrap_or_else(|| why.clone());
            changes.push(Change::Withdrawn(address, why));
        }
        self.served_since.retain(|address, _| is_served(address));
        for (address, problem) in &seen {
            if problem.is_some() || self.announced.contains(address) {
                continue;
            }
            let since = *self.served_since.entry(*address).or_insert(now);
            let is_new = !self.withdrawn.contains(address);
            if is_new || now.duration_since(since) >= self.back_after {
                self.served_since.remove(address);
                self.announced.insert(*address);
                changes.push(Change::Announced(*address));
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "192.0.2.1";
    const TWO: &str = "2001:db8::2";

    fn ip(address: &str) -> IpAddr {
        address.parse().unwrap()
    }

    fn seen(served: &[&str], not: &[&str]) -> Seen {
        let served = served.iter().map(|it| (ip(it), None));
        let not = not.iter().map(|it| (ip(it), Some("down".to_owned())));
        Seen::Addresses(served.chain(not).collect())
    }

    fn withdrawn(address: &str, why: &str) -> Change {
        Change::Withdrawn(ip(address), why.into())
    }

    #[test]
    fn a_failed_route_is_withdrawn_at_once_and_restored_with_delay() {
        let (begin, second) = (Instant::now(), Duration::from_secs(1));
        let mut routes = Routes::new(BTreeSet::new(), second);
        assert_eq!(
            routes.update(begin, seen(&[ONE, TWO], &[])),
            [Change::Announced(ip(ONE)), Change::Announced(ip(TWO))]
        );
        assert_eq!(routes.update(begin, seen(&[TWO], &[ONE])), [withdrawn(ONE, "down")]);
        assert_eq!(routes.update(begin + second, seen(&[TWO, ONE], &[])), []);
        // It fails again during the delay, which begins anew.
        assert_eq!(routes.update(begin + second * 3 / 2, seen(&[TWO], &[ONE])), []);
        assert_eq!(routes.update(begin + 2 * second, seen(&[TWO, ONE], &[])), []);
        let back = routes.update(begin + 3 * second, seen(&[TWO, ONE], &[]));
        assert_eq!(back, [Change::Announced(ip(ONE))]);
        assert_eq!(routes.announced(), &BTreeSet::from([ip(ONE), ip(TWO)]));
    }

    #[test]
    fn routes_of_removed_addresses_and_of_a_dead_process_are_withdrawn() {
        let begin = Instant::now();
        let kept = BTreeSet::from([ip(ONE), ip(TWO)]);
        let mut routes = Routes::new(kept, Duration::from_secs(1));
        let gone = withdrawn(TWO, "no part of equipoise has it any more");
        assert_eq!(routes.update(begin, seen(&[ONE], &[])), [gone]);
        assert_eq!(routes.update(begin, Seen::Nothing("dead".into())), [withdrawn(ONE, "dead")]);
        assert!(routes.announced().is_empty());
    }
}
