//! The backends that are made for an elastic pool of a cluster, as the leader keeps them: pure.
//!
//! ```text
//! planner's Scaling --act--> Roster --in the instructions--> executor's driver, and every node's pool
//!                   <-learn-- what executors and nodes report
//! ```
//!
//! The roster is part of the instructions, and stored with them under the leader's term before anybody sees it. So a
//! backend has one name and one key for ever, whoever leads; an executor that asks its driver twice asks for the same
//! backend; and whoever gets an older roster than it has ignores it. What is to be is said, never a step towards it, so
//! that instructions which a node misses do no harm.
//!
//! One member has each entry: its [`Entry::executor`]. Of a driver whose backends outlive it (scripts, a service), one
//! member has all, and another takes over when it is gone. Processes are spread over the members that can make them;
//! they end with their member, and others are made then.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use equipoise_core::{AdminState, Health, Weight};
use equipoise_planner::elastic::Scaling;
use equipoise_planner::{BackendSpec, PoolSpec};
use serde::{Deserialize, Serialize};

use crate::options::MadePool;
use crate::{Edition, MadeState, Making};

/// The backends of one pool that were made, or are to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Roster {
    /// The number of the next backend's name. Never goes back, so that no name comes twice.
    pub next_number: u64,
    /// By name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub backends: BTreeMap<String, Entry>,
}

/// One backend of a [`Roster`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The same for every try to add it, and no other's.
    pub key: String,
    /// Which of the pool's sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// The member that makes it and takes it away.
    pub executor: String,
    /// The instructions in which that member was given it.
    pub since: Edition,
    /// Whether it outlives its executor's process.
    pub outlives: bool,
    /// What is to become of it.
    pub wanted: Wanted,
    /// How far it is, as its executor said last.
    pub state: MadeState,
    /// Where it serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
    /// What the driver calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What went wrong last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// How long it has served; no more than [`Entry::AGE_MAX`].
    pub age: Duration,
    /// How long it has been draining.
    #[serde(default)]
    pub draining_for: Duration,
    /// Whom it replaces when it is warm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
}

/// What is to become of a made backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wanted {
    /// It is to serve.
    Serve,
    /// It is to finish what it has, and leave when every node has nothing left there.
    Drain,
    /// It is to be taken away.
    Leave,
}

/// What there is to know of members while a roster is brought up to date.
pub(crate) struct Seen<'a> {
    /// The instructions that are being made.
    pub(crate) edition: Edition,
    /// Since those before.
    pub(crate) passed: Duration,
    /// What members whose reports are fresh say of making this pool's backends.
    pub(crate) making: BTreeMap<&'a str, &'a Making>,
    /// Members with a fresh report, whatever it says.
    pub(crate) is_fresh: &'a dyn Fn(&str) -> bool,
    /// How sure it is that a member is gone.
    pub(crate) gone: &'a dyn Fn(&str) -> Gone,
    /// Whether every node that has the pool says that a backend has nothing left.
    pub(crate) is_drained: &'a dyn Fn(&str) -> bool,
    /// Whether an operator wants no more of a member.
    pub(crate) is_leaving: &'a dyn Fn(&str) -> bool,
}

/// How sure it is that a member is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    /// It reports.
    No,
    /// It has been silent for long: enough to ask another for what cannot come out double.
    Silent,
    /// There is evidence.
    Surely,
}

impl Entry {
    /// Age is not counted further: a pool that does not change is the same from plan to plan.
    pub const AGE_MAX: Duration = Duration::from_secs(3600);

    /// What the planner is to be told; `seen` is what this machine's checks and operators have of it.
    fn spec(&self, seen: Option<BackendSpec>, is_replaced: bool) -> BackendSpec {
        let seen = seen.unwrap_or(BackendSpec { weight: Weight::DEFAULT, ..Default::default() });
        let admin = match self.wanted {
            Wanted::Serve if is_replaced => AdminState::Drain,
            Wanted::Serve => seen.admin,
            Wanted::Drain => AdminState::Drain,
            Wanted::Leave => AdminState::Down,
        };
        let health = match self.state {
            MadeState::Failed => Health::Unhealthy,
            MadeState::Starting => Health::Unknown,
            _ => seen.health,
        };
        let (size, age) = (self.size.clone(), self.age);
        BackendSpec { admin, health, size, age, is_elastic: true, ..seen }
    }

    /// Without what changes from plan to plan of itself.
    fn settled(&self) -> Entry {
        Entry { age: Duration::ZERO, draining_for: Duration::ZERO, ..self.clone() }
    }
}

impl Roster {
    /// Without what changes from plan to plan of itself.
    pub(crate) fn settled(&self) -> Roster {
        let backends = self.backends.iter().map(|(name, it)| (name.clone(), it.settled()));
        Roster { next_number: self.next_number, backends: backends.collect() }
    }

    /// The first of a pool: what members had made before there was one is taken over, or nobody would remove it.
    pub(crate) fn begin(pool: &str, seen: &Seen<'_>) -> Roster {
        let mut roster = Roster { next_number: 1, backends: BTreeMap::new() };
        for (member, making) in &seen.making {
            for (name, made) in &making.backends {
                let number = name.strip_prefix(pool).and_then(|it| it.strip_prefix("-e"));
                let Some(number) = number.and_then(|it| it.parse::<u64>().ok()) else { continue };
                roster.next_number = roster.next_number.max(number.saturating_add(1));
                let leaves = matches!(made.state, MadeState::Draining | MadeState::Leaving);
                let wanted = if leaves { Wanted::Leave } else { Wanted::Serve };
                let entry = Entry { wanted, ..roster.entry(pool, number, seen, member, None) };
                roster.backends.insert(name.clone(), entry);
            }
        }
        roster
    }

    fn entry(
        &self,
        pool: &str,
        number: u64,
        seen: &Seen<'_>,
        executor: &str,
        size: Option<String>,
    ) -> Entry {
        Entry {
            key: format!("{pool}-e{number}-{:x}", seen.edition.term),
            size,
            executor: executor.to_string(),
            since: seen.edition,
            outlives: seen.making.get(executor).is_some_and(|making| making.outlives),
            wanted: Wanted::Serve,
            state: MadeState::Starting,
            address: None,
            id: None,
            problem: None,
            age: Duration::ZERO,
            draining_for: Duration::ZERO,
            replaces: None,
        }
    }

    /// Takes in what members report, and what follows without a decision: who has drained leaves, who has left is struck
    /// off, who lost its executor gets another or is struck off.
    pub(crate) fn learn(&mut self, spec: &PoolSpec, made: &MadePool, seen: &Seen<'_>) {
        self.hear(seen);
        self.pass_on(seen);
        let warm_up = spec.elastic.as_ref().map_or(Duration::ZERO, |it| it.warm_up);
        for entry in self.backends.values_mut() {
            if entry.state == MadeState::Ready && entry.wanted == Wanted::Serve {
                entry.age = (entry.age + seen.passed).min(Entry::AGE_MAX);
            }
            if entry.wanted == Wanted::Drain {
                entry.draining_for += seen.passed;
            }
        }
        self.replaced(warm_up);
        for (name, entry) in &mut self.backends {
            let is_over = entry.draining_for >= made.drain_timeout;
            if entry.wanted == Wanted::Drain && (is_over || (seen.is_drained)(name)) {
                entry.wanted = Wanted::Leave;
            }
        }
        if spec.elastic.is_none() {
            let all: Vec<String> = self.backends.keys().cloned().collect();
            all.iter().for_each(|name| self.leave(name));
        }
    }

    fn hear(&mut self, seen: &Seen<'_>) {
        self.backends.retain(|name, entry| {
            let Some(making) = seen.making.get(entry.executor.as_str()) else { return true };
            let Some(made) = making.backends.get(name) else {
                // Removed; or lost with the process that had it.
                return making.applied < entry.since;
            };
            entry.state = made.state;
            if made.address.is_some() {
                (entry.address, entry.id) = (made.address, made.id.clone());
            }
            entry.problem.clone_from(&made.problem);
            true
        });
    }

    /// Entries whose executor is gone, or has no driver any more, go to another executor or are struck off.
    fn pass_on(&mut self, seen: &Seen<'_>) {
        let is_without = |entry: &Entry| {
            let has_none =
                (seen.is_fresh)(&entry.executor) && !seen.making.contains_key(&*entry.executor);
            if has_none { Gone::Surely } else { (seen.gone)(&entry.executor) }
        };
        let heir = self.heir(seen);
        self.backends.retain(|_, entry| match (is_without(entry), entry.outlives) {
            (Gone::No, _) => true,
            (_, true) => {
                if let Some(heir) = &heir {
                    (entry.executor, entry.since) = (heir.clone(), seen.edition);
                }
                true
            }
            (Gone::Surely, false) => false,
            // Its executor may be cut off from this controller alone, and so may what it has made.
            (Gone::Silent, false) => true,
        });
    }

    /// Who has all that outlives its maker: whoever has it already, if it is there.
    fn heir(&self, seen: &Seen<'_>) -> Option<String> {
        let able = |member: &str| {
            seen.making.get(member).is_some_and(|making| making.outlives)
                && !(seen.is_leaving)(member)
        };
        let has = self.backends.values().map(|entry| entry.executor.as_str());
        let has = has.filter(|member| able(member)).min();
        let any = || seen.making.keys().copied().filter(|member| able(member)).min();
        has.or_else(any).map(str::to_string)
    }

    fn replaced(&mut self, warm_up: Duration) {
        let is_warm = |it: &&mut Entry| it.state == MadeState::Ready && it.age >= warm_up;
        let warm = self.backends.values_mut().filter(|it| it.replaces.is_some()).filter(is_warm);
        let old: Vec<String> = warm.filter_map(|entry| entry.replaces.take()).collect();
        old.iter().for_each(|name| self.leave(name));
    }

    fn leave(&mut self, name: &str) {
        let Some(entry) = self.backends.get_mut(name) else { return };
        if entry.wanted == Wanted::Serve {
            entry.replaces = None;
            let serves = entry.state == MadeState::Ready && entry.address.is_some();
            entry.wanted = if serves { Wanted::Drain } else { Wanted::Leave };
        }
    }

    /// The pool as the planner is to see it: listed backends, and these.
    pub(crate) fn add_to(&self, spec: &mut PoolSpec, made: &MadePool) {
        spec.backends
            .retain(|name, _| made.listed.contains(name) || self.backends.contains_key(name));
        for (name, entry) in &self.backends {
            let seen = spec.backends.remove(name);
            let one = entry.spec(seen, self.is_replaced(name));
            spec.backends.insert(name.clone(), one);
        }
    }

    fn is_replaced(&self, name: &str) -> bool {
        self.backends.values().any(|it| it.replaces.as_deref() == Some(name))
    }

    /// Takes a step of the plan that is being made; how many backends there was no room or nobody for.
    pub(crate) fn act(&mut self, pool: &str, step: &Scaling, room: u32, seen: &Seen<'_>) -> u32 {
        let mut refused = 0;
        match step {
            Scaling::Hold => {}
            Scaling::Out { size, count } => {
                for _ in 0..*count {
                    let is_done = self.revive(size.as_ref())
                        || self.backends.len() < room as usize
                            && self.allot(pool, size, seen, None);
                    refused += u32::from(!is_done);
                }
            }
            Scaling::In { backends } => {
                backends.iter().for_each(|name| self.leave(name));
            }
            Scaling::Replace { size, backend } => {
                let is_up = self.backends.get(backend).map(|it| it.wanted) == Some(Wanted::Serve);
                let may = is_up && self.backends.len() <= room as usize;
                let is_done = may
                    && !self.is_replaced(backend)
                    && self.allot(pool, size, seen, Some(backend.clone()));
                refused += u32::from(!is_done);
            }
        }
        refused
    }

    /// Wants the draining one of this size again that began last: it has most left to do.
    fn revive(&mut self, size: Option<&String>) -> bool {
        let draining = self.backends.values_mut();
        let draining = draining
            .filter(|it| it.wanted == Wanted::Drain && it.size.as_ref() == size)
            .min_by_key(|it| it.draining_for);
        let Some(entry) = draining else { return false };
        (entry.wanted, entry.draining_for) = (Wanted::Serve, Duration::ZERO);
        true
    }

    /// A new one, for the member that has fewest; whether there is a member for it.
    fn allot(
        &mut self,
        pool: &str,
        size: &Option<String>,
        seen: &Seen<'_>,
        replaces: Option<String>,
    ) -> bool {
        let has = |member: &str| self.backends.values().filter(|it| it.executor == member).count();
        let able = seen.making.iter().filter(|(member, _)| !(seen.is_leaving)(member));
        let spread = able.filter(|(_, making)| !making.outlives).map(|(member, _)| *member);
        let fewest = || spread.min_by_key(|member| (has(member), *member)).map(str::to_string);
        let Some(executor) = self.heir(seen).or_else(fewest) else { return false };
        let number = self.next_number;
        let entry = self.entry(pool, number, seen, &executor, size.clone());
        self.next_number += 1;
        self.backends.insert(format!("{pool}-e{number}"), Entry { replaces, ..entry });
        true
    }
}

#[cfg(test)]
mod tests;
