//! What exists of a pool here, and what is to be done about it: a state machine without I/O. `now` is an argument everywhere.
//!
//! ```text
//!            Serve                       Drain              Leave, or time-out
//!   (none) ---> Wanted --> Adding --> Ready --> Draining ---------------> Unwanted --> Removing --> (none)
//!                  ^  fails  |         | ^  <-- Serve                        ^  fails     |
//!                  '---------'    Down v | Up                                '------------'
//!                                     Broken   (Leave goes from every phase to Unwanted without a drain)
//! ```
//!
//! The leader says what is to exist: `desire.rs`. Another driver takes over: `change.rs`.
//!
//! Adding fails by size: after a failure there is at most one try at a time for that size, with a wait that doubles, so
//! that a size which cannot be had does not hold up the others, nor is asked for without end.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::Limits;
use super::view::BackendState;
use crate::driver::{Added, Ask, Event};

/// What the driver is to be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Add(Ask),
    Remove(Ask),
}

impl Task {
    /// Which backend it is about.
    pub(crate) fn name(&self) -> &str {
        match self {
            Task::Add(ask) | Task::Remove(ask) => &ask.name,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Phase {
    /// To be added, not before this.
    Wanted {
        not_before: Duration,
    },
    /// The driver has been asked. `is_unwanted`: it is to leave as soon as that has ended.
    Adding {
        is_unwanted: bool,
    },
    Ready,
    /// The driver says it is down and starts it again.
    Broken,
    /// Until this at most.
    Draining {
        until: Duration,
    },
    /// To be removed, not before this.
    Unwanted {
        not_before: Duration,
    },
    /// The driver has been asked.
    Removing,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Member {
    pub(super) number: u64,
    /// Which of the pool's drivers, by age, has made it or is to make it, and takes it away.
    pub(super) maker: u32,
    pub(super) size: Option<String>,
    pub(super) key: String,
    pub(super) phase: Phase,
    /// Whether a driver was ever asked for it.
    pub(super) may_exist: bool,
    /// Tries that failed, to add it or to remove it.
    pub(super) failures: u32,
    pub(super) added: Option<Added>,
    pub(super) problem: Option<String>,
}

/// Failures to add a size, one after the other.
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
    /// What makes keys of this pool's backends unlike those of an earlier one with the same names.
    pub(super) nonce: String,
    pub(super) members: BTreeMap<String, Member>,
    /// The driver that adds.
    pub(super) maker: u32,
    pub(super) gates: BTreeMap<Option<String>, Gate>,
}

impl Roster {
    /// Without backends. `nonce` goes into keys, and is unlike any before.
    pub(crate) fn new(pool: &str, limits: Limits, nonce: String) -> Roster {
        let (members, gates) = (BTreeMap::new(), BTreeMap::new());
        let (pool, next_number, maker) = (pool.to_string(), 1, 0);
        Roster { pool, limits, next_number, nonce, members, maker, gates }
    }

    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Wants another backend of this size, without a leader who names it; its name.
    pub(crate) fn want(&mut self, now: Duration, size: Option<String>) -> String {
        let number = self.next_number;
        self.next_number += 1;
        let name = format!("{}-e{number}", self.pool);
        let key = format!("{name}-{}", self.nonce);
        let phase = Phase::Wanted { not_before: now };
        let maker = self.maker;
        let member = Member { maker, ..Member::new(number, size, key, phase) };
        self.members.insert(name.clone(), member);
        name
    }

    /// All that these drivers made is to go at once, drained or not.
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

    /// What the driver is to be asked now. Each is asked for once until its outcome is told.
    pub(crate) fn due(&mut self, now: Duration) -> Vec<Task> {
        let mut tasks = Vec::new();
        let mut order: Vec<(u32, u64, String)> = self
            .members
            .iter()
            .map(|(name, one)| (one.failures, one.number, name.clone()))
            .collect();
        // Those that failed least first: one that cannot be added does not hold up the others.
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
        gate.not_before <= now && !self.waits_for_outcome(member)
    }

    /// Whether it is added only when another's adding has ended.
    fn waits_for_outcome(&self, member: &Member) -> bool {
        let adding =
            || self.members.values().filter(|one| matches!(one.phase, Phase::Adding { .. }));
        let gate = self.gates.get(&member.size).copied().unwrap_or_default();
        adding().count() >= self.limits.parallel as usize
            || gate.failures > 0 && adding().any(|one| one.size == member.size)
    }

    /// When [`Self::due`] will have something that no outcome or step brings about.
    pub(crate) fn next_at(&self) -> Option<Duration> {
        let at = |one: &Member| match one.phase {
            Phase::Wanted { .. } if self.waits_for_outcome(one) => None,
            Phase::Wanted { not_before } => {
                let gate = self.gates.get(&one.size).copied().unwrap_or_default();
                Some(not_before.max(gate.not_before))
            }
            Phase::Draining { until: at } | Phase::Unwanted { not_before: at } => Some(at),
            _ => None,
        };
        self.members.values().filter_map(at).min()
    }

    /// How adding a backend ended.
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
                    Some(format!("{problem}; tried again in {wait:.0?} at the earliest"));
                member.phase = Phase::Wanted { not_before };
            }
        }
        if is_unwanted {
            // Failed or not, something may have been left of it.
            member.unwanted(now);
        }
    }

    /// How removing a backend ended.
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
                    Some(format!("it could not be removed: {problem}; tried again in {wait:.0?}"));
                member.phase = Phase::Unwanted { not_before: now + wait };
            }
        }
    }

    /// What the driver noticed by itself.
    pub(crate) fn noticed(&mut self, event: &Event) {
        let Some(member) = self.members.get_mut(event.name()) else { return };
        match event {
            Event::Down { reason, again_in, is_loop, .. } => {
                let often = if *is_loop { "goes down again and again: " } else { "" };
                member.problem = Some(format!("{often}{reason}; started again in {again_in:.1?}"));
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

    /// Whether an earlier driver made it, or is to, and it is wanted all the same.
    pub(crate) fn is_outdated(&self, name: &str) -> bool {
        self.members.get(name).is_some_and(|one| one.maker != self.maker && one.is_up())
    }

    /// Whether there is anything that this driver made or is to make.
    pub(crate) fn has_of(&self, maker: u32) -> bool {
        self.members.values().any(|one| one.maker == maker)
    }

    /// The driver that a backend is the business of.
    pub(crate) fn maker_of(&self, name: &str) -> u32 {
        self.members.get(name).map_or(self.maker, |one| one.maker)
    }

    /// Names with what they are, in the order of their making.
    pub(crate) fn members(&self) -> Vec<(&String, &Member)> {
        let mut members: Vec<_> = self.members.iter().collect();
        members.sort_by_key(|(_, one)| one.number);
        members
    }
}

impl Member {
    pub(super) fn new(number: u64, size: Option<String>, key: String, phase: Phase) -> Member {
        let (added, problem) = (None, None);
        let (may_exist, failures, maker) = (false, 0, 0);
        Member { number, maker, size, key, phase, may_exist, failures, added, problem }
    }

    pub(super) fn unwanted(&mut self, now: Duration) {
        self.failures = 0;
        self.phase = Phase::Unwanted { not_before: now };
    }

    /// Whether it is wanted.
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
