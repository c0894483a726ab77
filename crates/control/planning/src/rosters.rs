//! Derives from rosters what this machine's pools and drivers need. No I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use equipoise_controller::{Edition, Entry, Made, MadeState, Making, Roster, Wanted};
use equipoise_driver::{
    Added, BackendState, Desired, DesiredState, ElasticBackend, PoolView, Wish,
};

use crate::level::Measured;

/// An elastic backend that has joined its pool.
#[derive(Clone, Debug, PartialEq)]
pub struct JoinedBackend {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: SocketAddr,
    /// Its size, if the pool has sizes.
    pub size: Option<String>,
}

/// Rosters by pool.
pub(crate) type Rosters = BTreeMap<String, Roster>;

/// The part of rosters that affects pools: names, addresses, and whether a backend drains.
pub(crate) fn places(
    rosters: &Rosters,
) -> impl Iterator<Item = (&String, &String, Option<SocketAddr>, Wanted)> {
    rosters.iter().flat_map(|(pool, roster)| {
        let place = move |(name, entry)| {
            let entry: &Entry = entry;
            (pool, name, entry.address, entry.wanted)
        };
        roster.backends.iter().map(place)
    })
}

/// On a single machine: the store's rosters without backends that the machine has removed since, or
/// `None` if nothing changes. The store may have been restored from an older copy. `saved` has the
/// rosters that the machine used last.
pub(crate) fn without_outlived(stored: &Rosters, saved: &Rosters) -> Option<Rosters> {
    let is_gone = |pool: &str, name: &str, entry: &Entry| {
        entry.outlives && saved.get(pool).is_some_and(|saved| saved.has_outlived(pool, name))
    };
    let has_gone = |(pool, roster): (&String, &Roster)| {
        roster.backends.iter().any(|(name, entry)| is_gone(pool, name, entry))
    };
    stored.iter().any(has_gone).then(|| {
        let mut rosters = stored.clone();
        for (pool, roster) in &mut rosters {
            roster.backends.retain(|name, entry| !is_gone(pool, name, entry));
        }
        rosters
    })
}

/// The rosters to save: the backends of `own`, this member, and backends of `saved` that the store
/// has forgotten and this machine still has.
pub(crate) fn to_save(
    rosters: &Rosters,
    saved: &Rosters,
    own: &str,
    is_there: impl Fn(&str, &str) -> bool,
) -> Rosters {
    let mut all: Rosters =
        rosters.iter().map(|(pool, roster)| (pool.clone(), roster.settled())).collect();
    for (pool, before) in saved {
        let is_known = all.contains_key(pool);
        let roster = all
            .entry(pool.clone())
            .or_insert_with(|| Roster { next_number: 1, ..Roster::default() });
        roster.keep_forgotten(pool, before, |name| is_there(pool, name));
        if !is_known && roster.backends.is_empty() {
            all.remove(pool);
        }
    }
    for roster in all.values_mut() {
        roster.backends.retain(|_, entry| entry.executor == own);
    }
    all
}

/// The entry of a roster as a backend of its pool. `None` before it serves, and once it leaves.
pub(crate) fn joined(name: &str, entry: &Entry) -> Option<JoinedBackend> {
    let address = entry.address.filter(|_| entry.wanted != Wanted::Leave)?;
    Some(JoinedBackend { name: name.to_string(), address, size: entry.size.clone() })
}

/// A backend of this machine as a backend of its pool, if it serves or still has work.
pub(crate) fn own(made: &ElasticBackend) -> Option<JoinedBackend> {
    let serves = matches!(made.state, BackendState::Ready | BackendState::Draining);
    let address = made.address.filter(|_| serves)?;
    Some(JoinedBackend { name: made.name.clone(), address, size: made.size.clone() })
}

/// The backends that a member should have, for its scaler, which has `view` now.
pub(crate) fn desired(roster: &Roster, member: &str, view: &PoolView) -> DesiredState {
    let there = view.backends.iter().map(|made| &made.name);
    let kept = there.filter(|name| roster.has_forgotten(&view.pool, name)).cloned().collect();
    let others = roster.backends.iter().filter(|(_, entry)| entry.executor != member);
    DesiredState {
        backends: of_member(roster, member).collect(),
        kept,
        others: others.map(|(name, _)| name.clone()).collect(),
        next_number: roster.next_number,
    }
}

/// The same for an evicted member: its processes end, and other members take over the backends that
/// outlive them.
pub(crate) fn desired_of_evicted(roster: &Roster, view: &PoolView) -> DesiredState {
    let left = view.backends.iter().filter(|made| made.outlives);
    let others = left.map(|made| made.name.clone()).collect();
    DesiredState { others, next_number: roster.next_number, ..DesiredState::default() }
}

/// The backends that a roster assigns to a member.
pub(crate) fn of_member(roster: &Roster, member: &str) -> impl Iterator<Item = Desired> {
    let own = roster.backends.iter().filter(move |(_, entry)| entry.executor == member);
    own.map(|(name, entry)| Desired {
        name: name.clone(),
        key: entry.key.clone(),
        size: entry.size.clone(),
        wish: match entry.wanted {
            Wanted::Serve => Wish::Serve,
            Wanted::Drain => Wish::Drain,
            Wanted::Leave => Wish::Leave,
        },
        added: entry.address.zip(entry.id.clone()).map(|(address, id)| Added { address, id }),
        driver: entry.driver.clone(),
        outlives: entry.outlives,
        replaces: entry.replaces.clone(),
    })
}

/// The state of a scaler, for the leader. `ends`: this machine's file has no driver for the pool
/// any more.
pub(crate) fn making(view: &PoolView, ends: bool, applied: Edition) -> Making {
    let backends = view.backends.iter().map(|made| {
        let state = match made.state {
            BackendState::Starting => MadeState::Starting,
            BackendState::Ready => MadeState::Ready,
            BackendState::Draining => MadeState::Draining,
            BackendState::Leaving => MadeState::Leaving,
            BackendState::Failed => MadeState::Failed,
        };
        let problem = made.problem.as_ref();
        let made_now = Made {
            state,
            address: made.address,
            id: made.id.clone(),
            problem: problem.map(|text| text.chars().take(PROBLEM_CHARS_MAX).collect()),
            size: made.size.clone(),
            is_outdated: made.is_outdated,
            outlives: Some(made.outlives),
            driver: made.driver.clone(),
            replaces: made.replaces.clone(),
            key: made.key.clone(),
        };
        (made.name.clone(), made_now)
    });
    let (outlives, driver, next_number) = (view.outlives, view.driver.clone(), view.next_number);
    Making { outlives, driver, ends, applied, next_number, backends: backends.collect() }
}

/// Longest problem text in a report. A longer text is cut, so that no report is refused for it.
const PROBLEM_CHARS_MAX: usize = 300;

/// Draining backends without work left here, by pool. In pools behind VIPs and names (`forwarded`)
/// the remaining work is unknown, so their backends drain for the whole drain time.
pub(crate) fn drained(
    rosters: &Rosters,
    level: &dyn Measured,
    forwarded: &BTreeSet<String>,
) -> BTreeMap<String, BTreeSet<String>> {
    let mut all = BTreeMap::new();
    for (pool, roster) in rosters {
        let draining = roster.backends.iter().filter(|(_, it)| it.wanted == Wanted::Drain);
        let draining = draining.map(|(name, _)| name).filter(|_| !forwarded.contains(pool));
        if let Some(idle) = level.idle(pool, draining.cloned().collect()) {
            all.insert(pool.clone(), idle);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn entry(outlives: bool) -> Entry {
        Entry {
            key: "k".to_string(),
            size: None,
            executor: "a".to_string(),
            since: Edition::default(),
            outlives,
            driver: None,
            wanted: Wanted::Serve,
            state: MadeState::Ready,
            address: Some(([192, 0, 2, 1], 80).into()),
            id: Some("i".to_string()),
            problem: None,
            age: Duration::ZERO,
            draining_for: Duration::ZERO,
            replaces: None,
        }
    }

    fn rosters(next_number: u64, numbers: &[u64]) -> Rosters {
        let one = |number: &u64| (format!("web-e{number}"), entry(true));
        let backends = numbers.iter().map(one).collect();
        [("web".to_string(), Roster { next_number, backends, ..Roster::default() })].into()
    }

    fn names(rosters: &Rosters) -> Vec<&str> {
        rosters.values().flat_map(|it| it.backends.keys()).map(String::as_str).collect()
    }

    #[test]
    fn a_removed_backend_does_not_return_with_an_older_store() {
        let (older, saved) = (rosters(4, &[1, 3]), rosters(6, &[3, 5]));
        let corrected = without_outlived(&older, &saved).expect("one is gone");
        assert_eq!(names(&corrected), ["web-e3"]);
        assert_eq!(
            without_outlived(&rosters(7, &[3, 6]), &saved),
            None,
            "newer than what is saved"
        );
        assert_eq!(without_outlived(&older, &Rosters::new()), None, "nothing is saved");
        // Backends that are processes end with this one; the scaler knows which exist.
        let mut processes = older.clone();
        for entry in processes.get_mut("web").expect("it is there").backends.values_mut() {
            entry.outlives = false;
        }
        assert_eq!(without_outlived(&processes, &saved), None);
        // Without a store and a saved roster, numbers begin above any that were given.
        let mut held = rosters(1000, &[]);
        held.insert("web".to_string(), Roster::unknown_before(1000));
        assert_eq!(without_outlived(&older, &held), None);
    }

    #[test]
    fn a_backend_missing_from_an_older_store_is_saved_while_present() {
        let (older, saved) = (rosters(4, &[3]), rosters(6, &[3, 4, 5]));
        let kept = to_save(&older, &saved, "a", |_, name| name != "web-e4");
        assert_eq!((names(&kept), kept["web"].next_number), (vec!["web-e3", "web-e5"], 6));
        // A store from a time before the pool existed.
        let kept = to_save(&Rosters::new(), &saved, "a", |_, _| true);
        assert_eq!(names(&kept), ["web-e3", "web-e4", "web-e5"]);
        assert!(to_save(&Rosters::new(), &saved, "a", |_, _| false).is_empty());
        // The store has taken over number 5, and removed number 4.
        let newer = rosters(6, &[3, 5]);
        assert_eq!(to_save(&newer, &saved, "a", |_, _| true), newer);
    }
}
