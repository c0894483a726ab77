//! The backends of a pool on this machine, and the next tasks: a state machine without I/O. `now`
//! is an argument everywhere.
//!
//! ```text
//!            Serve                       Drain              Leave, or time-out
//!   (none) ---> Wanted --> Adding --> Ready --> Draining ---------------> Unwanted --> Removing --> (none)
//!                  ^  fails  |         | ^  <-- Serve                        ^  fails     |
//!                  '---------'    Down v | Up                                '------------'
//!                                     Broken   (Leave goes from every phase to Unwanted without a drain)
//! ```
//!
//! The desired state comes from the leader: `desire.rs`. The pool's drivers, of which the latest
//! adds: `change.rs`.
//!
//! Failures to add count by size. After a failure there is at most one attempt at a time for that
//! size, with a wait that doubles. So a size that cannot be had neither delays the others nor is
//! requested in a loop.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::Limits;
use super::change::Maker;
use super::desire::Listings;
use super::view::BackendState;
use crate::driver::{Added, Ask, Event};

/// A request to a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Add(Ask),
    Remove(Ask),
}

impl Task {
    /// The name of the backend.
    pub(crate) fn name(&self) -> &str {
        match self {
            Task::Add(ask) | Task::Remove(ask) => &ask.name,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Phase {
    /// The driver will be asked to add it, at this time or later.
    Wanted {
        not_before: Duration,
    },
    /// The driver is adding it. `is_unwanted`: remove it as soon as that has ended.
    Adding {
        is_unwanted: bool,
    },
    Ready,
    /// The driver reports that it is down, and starts it again.
    Broken,
    /// The backend is removed at this time at the latest.
    Draining {
        until: Duration,
    },
    /// The driver will be asked to remove it, at this time or later.
    Unwanted {
        not_before: Duration,
    },
    /// The driver is removing it.
    Removing,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Member {
    pub(super) number: u64,
    /// Number of the driver that made it or will make it, and that removes it.
    pub(super) maker: u32,
    pub(super) size: Option<String>,
    pub(super) key: String,
    /// The backend that it replaces, by the leader's roster.
    pub(super) replaces: Option<String>,
    pub(super) phase: Phase,
    /// True if a driver may have been asked for it, here or at another member.
    pub(super) may_exist: bool,
    /// Failed attempts to add or to remove it.
    pub(super) failures: u32,
    pub(super) added: Option<Added>,
    pub(super) problem: Option<String>,
}

/// Failures in a row to add a size.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gate {
    failures: u32,
    not_before: Duration,
}

#[derive(Debug)]
pub(crate) struct Roster {
    pub(super) pool: String,
    pub(super) limits: Limits,
    pub(super) next_number: u64,
    pub(super) members: BTreeMap<String, Member>,
    /// The pool's drivers.
    pub(super) makers: BTreeMap<u32, Maker>,
    /// Numbers of drivers by their names in rosters.
    pub(super) names: BTreeMap<String, u32>,
    /// The driver that adds.
    pub(super) maker: u32,
    pub(super) gates: BTreeMap<Option<String>, Gate>,
    /// The drivers' lists of the start of this process, until the first roster arrives.
    pub(super) listing: Option<(Duration, Listings)>,
}

impl Roster {
    /// A roster without backends. The driver that adds is `maker`.
    pub(crate) fn new(pool: &str, limits: Limits, maker: Maker) -> Roster {
        let mut roster = Roster {
            pool: pool.to_string(),
            limits,
            next_number: 1,
            members: BTreeMap::new(),
            makers: BTreeMap::new(),
            names: BTreeMap::new(),
            maker: 0,
            gates: BTreeMap::new(),
            listing: None,
        };
        roster.maker = roster.know(maker);
        roster
    }

    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Removes all backends of these drivers at once, drained or not.
    pub(crate) fn remove_all(&mut self, now: Duration, of: impl Fn(u32) -> bool) {
        self.members.retain(|_, one| one.may_exist || !of(one.maker));
        for member in self.members.values_mut().filter(|one| of(one.maker)) {
            match member.phase {
                Phase::Adding { .. } => member.phase = Phase::Adding { is_unwanted: true },
                Phase::Removing => {}
                _ => member.unwanted(now),
            }
        }
    }

    /// The tasks that are due. A backend has no further task until the outcome of this one is
    /// reported.
    pub(crate) fn due(&mut self, now: Duration) -> Vec<Task> {
        let mut tasks = Vec::new();
        let mut order: Vec<(u32, u64, String)> = self
            .members
            .iter()
            .map(|(name, one)| (one.failures, one.number, name.clone()))
            .collect();
        // Backends with the fewest failures first, so that one that cannot be added does not delay
        // the others.
        order.sort();
        for (_, _, name) in order {
            let member = &self.members[&name];
            match member.phase {
                Phase::Wanted { not_before } if not_before <= now && self.may_add(now, member) => {
                    let member = self.member(&name);
                    (member.phase, member.may_exist) = (Phase::Adding { is_unwanted: false }, true);
                    tasks.push(Task::Add(self.ask(&name)));
                }
                Phase::Draining { until } if until <= now => {
                    let member = self.member(&name);
                    member.problem =
                        Some("still had work when the drain time-out ended".to_string());
                    member.phase = Phase::Removing;
                    tasks.push(Task::Remove(self.ask(&name)));
                }
                Phase::Unwanted { not_before } if not_before <= now => {
                    self.member(&name).phase = Phase::Removing;
                    tasks.push(Task::Remove(self.ask(&name)));
                }
                _ => {}
            }
        }
        tasks
    }

    fn may_add(&self, now: Duration, member: &Member) -> bool {
        let gate = self.gates.get(&member.size).copied().unwrap_or_default();
        gate.not_before <= now && !self.waits(member)
    }

    /// True if the passing of time alone does not make it due. It waits for the end of another
    /// addition, or for the leader: after a change of driver the leader replaces backends that no
    /// driver was asked for.
    fn waits(&self, member: &Member) -> bool {
        if member.maker != self.maker && !member.may_exist {
            return true;
        }
        let adding =
            || self.members.values().filter(|one| matches!(one.phase, Phase::Adding { .. }));
        let gate = self.gates.get(&member.size).copied().unwrap_or_default();
        adding().count() >= self.limits.parallel as usize
            || gate.failures > 0 && adding().any(|one| one.size == member.size)
    }

    /// When [`Self::due`] will have a task, if no outcome and no command comes before.
    pub(crate) fn next_at(&self) -> Option<Duration> {
        let at = |one: &Member| match one.phase {
            Phase::Wanted { .. } if self.waits(one) => None,
            Phase::Wanted { not_before } => {
                let gate = self.gates.get(&one.size).copied().unwrap_or_default();
                Some(not_before.max(gate.not_before))
            }
            Phase::Draining { until: at } | Phase::Unwanted { not_before: at } => Some(at),
            _ => None,
        };
        self.members.values().filter_map(at).min()
    }

    /// Takes the outcome of adding a backend.
    pub(crate) fn added(&mut self, now: Duration, name: &str, outcome: Result<Added, String>) {
        let retry = self.limits.retry;
        let Some(member) = self.members.get_mut(name) else { return };
        let Phase::Adding { is_unwanted } = member.phase else { return };
        let gate = self.gates.entry(member.size.clone()).or_default();
        match outcome {
            Ok(added) => {
                *gate = Gate::default();
                member.added = Some(added);
                (member.failures, member.problem) = (0, None);
                member.phase = Phase::Ready;
            }
            Err(problem) => {
                member.failures = member.failures.saturating_add(1);
                gate.failures = gate.failures.saturating_add(1);
                gate.not_before = now + retry.after(gate.failures);
                let not_before = now + retry.after(member.failures);
                let wait = gate.not_before.max(not_before) - now;
                member.problem =
                    Some(format!("{problem}; next attempt in {wait:.0?} at the earliest"));
                member.phase = Phase::Wanted { not_before };
            }
        }
        if is_unwanted {
            // Even after a failure, parts of the backend may exist.
            member.unwanted(now);
        }
    }

    /// Takes the outcome of removing a backend.
    pub(crate) fn removed(&mut self, now: Duration, name: &str, outcome: Result<(), String>) {
        let retry = self.limits.retry;
        let Some(member) = self.members.get_mut(name) else { return };
        if member.phase != Phase::Removing {
            return;
        }
        match outcome {
            Ok(()) => {
                self.members.remove(name);
            }
            Err(problem) => {
                member.failures = member.failures.saturating_add(1);
                let wait = retry.after(member.failures);
                member.problem =
                    Some(format!("cannot remove it: {problem}; next attempt in {wait:.0?}"));
                member.phase = Phase::Unwanted { not_before: now + wait };
            }
        }
    }

    /// Takes an event of a driver.
    pub(crate) fn noticed(&mut self, event: &Event) {
        let Some(member) = self.members.get_mut(event.name()) else { return };
        match event {
            Event::Down { reason, again_in, is_loop, .. } => {
                let often = if *is_loop { "went down repeatedly: " } else { "" };
                member.problem = Some(format!("{often}{reason}; next start in {again_in:.1?}"));
                if member.phase == Phase::Ready {
                    member.phase = Phase::Broken;
                }
            }
            Event::Up { id, .. } => {
                member.problem = None;
                if let Some(added) = &mut member.added {
                    added.id.clone_from(id);
                }
                if member.phase == Phase::Broken {
                    member.phase = Phase::Ready;
                }
            }
        }
    }

    pub(super) fn member(&mut self, name: &str) -> &mut Member {
        self.members.get_mut(name).expect("names are taken from the members themselves")
    }

    fn ask(&self, name: &str) -> Ask {
        let one = &self.members[name];
        Ask {
            pool: self.pool.clone(),
            name: name.to_string(),
            size: one.size.clone(),
            key: one.key.clone(),
            attempt: one.failures.saturating_add(1),
            address: one.added.as_ref().map(|added| added.address),
            id: one.added.as_ref().map(|added| added.id.clone()),
        }
    }

    /// The backends with their names, in the order of their numbers.
    pub(crate) fn members(&self) -> Vec<(&String, &Member)> {
        let mut members: Vec<_> = self.members.iter().collect();
        members.sort_by_key(|(_, one)| one.number);
        members
    }
}

impl Member {
    pub(super) fn new(number: u64, size: Option<String>, key: String, phase: Phase) -> Member {
        let (added, problem, replaces) = (None, None, None);
        let (may_exist, failures, maker) = (false, 0, 0);
        Member { number, maker, size, key, replaces, phase, may_exist, failures, added, problem }
    }

    pub(super) fn unwanted(&mut self, now: Duration) {
        self.failures = 0;
        self.phase = Phase::Unwanted { not_before: now };
    }

    /// True if the backend is wanted and not draining.
    pub(super) fn is_up(&self) -> bool {
        use Phase::{Adding, Broken, Ready, Wanted};
        matches!(self.phase, Wanted { .. } | Adding { is_unwanted: false } | Ready | Broken)
    }

    pub(crate) fn state(&self) -> BackendState {
        match self.phase {
            Phase::Wanted { .. } | Phase::Adding { is_unwanted: false } if self.failures > 0 => {
                BackendState::Failed
            }
            Phase::Wanted { .. } | Phase::Adding { is_unwanted: false } => BackendState::Starting,
            Phase::Ready => BackendState::Ready,
            Phase::Broken => BackendState::Failed,
            Phase::Draining { .. } => BackendState::Draining,
            Phase::Adding { is_unwanted: true } | Phase::Unwanted { .. } | Phase::Removing => {
                BackendState::Leaving
            }
        }
    }

    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.added.as_ref().map(|added| added.address)
    }

    pub(crate) fn id(&self) -> Option<&String> {
        self.added.as_ref().map(|added| &added.id)
    }

    pub(crate) fn size(&self) -> Option<&String> {
        self.size.as_ref()
    }

    pub(crate) fn problem(&self) -> Option<&String> {
        self.problem.as_ref()
    }
}

#[cfg(test)]
mod tests;
