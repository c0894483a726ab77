//! The backends that members make for an elastic pool, as the leader records them. Pure.
//!
//! ```text
//! planner's Scaling --act--> Roster --in the instructions--> executor's driver, and every node's pool
//!                   <-learn-- what executors and nodes report
//! ```
//!
//! The roster is part of the instructions, and is stored with them under the leader's term before
//! any member sees it. So a backend keeps one name and one key, whichever controller leads. An
//! executor that asks its driver twice asks for the same backend, and a member that receives an
//! older roster ignores it. A roster states the target, never a step towards it, so a node may miss
//! instructions.
//!
//! A single machine is a cluster of one: its roster is in the embedded store, and it has every
//! entry.
//!
//! Each entry has one member: its [`Entry::executor`]. If backends outlive their process (scripts,
//! a service), one member has all of them, and another takes over when it is gone. Processes are
//! spread over the members that can make them. They end with their member, and are then replaced.

mod forgotten;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use equipoise_core::{AdminState, Health, Weight};
use equipoise_planner::elastic::Scaling;
use equipoise_planner::{BackendSpec, PoolSpec};
use serde::{Deserialize, Serialize};

pub use self::forgotten::Forgotten;
use crate::options::MadePool;
use crate::{Edition, MadeState, Making};

/// The backends of one pool that members have made or will make.
///
/// Unlike elsewhere in instructions, unknown fields are ignored, here and in entries. So a machine
/// that returns to an earlier version still knows its backends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roster {
    /// The number of the next backend. It never decreases, so that no name repeats.
    pub next_number: u64,
    /// Entries by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub backends: BTreeMap<String, Entry>,
    /// Numbers of an earlier roster that this one does not know.
    #[serde(default, skip_serializing_if = "Forgotten::is_empty")]
    pub forgotten: Forgotten,
}

/// One backend of a [`Roster`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Idempotency key: the same for every attempt to add this backend, and different for every
    /// other.
    pub key: String,
    /// Its size; absent if all backends of the pool are alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// The member that makes and removes it.
    pub executor: String,
    /// The instructions that gave it to this member.
    pub since: Edition,
    /// True if it outlives the process that makes it.
    pub outlives: bool,
    /// The driver that makes and removes it, as in [`Making::driver`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The state that the leader wants.
    pub wanted: Wanted,
    /// Its state by its executor's last report.
    pub state: MadeState,
    /// Its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
    /// The driver's identifier of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// How long it has served, at most [`Entry::AGE_MAX`].
    pub age: Duration,
    /// How long it has been draining.
    #[serde(default)]
    pub draining_for: Duration,
    /// The backend that it replaces when it is warm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
}

/// The result of a scaling step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    /// New backends.
    pub(crate) added: Vec<String>,
    /// Draining backends that serve again.
    pub(crate) revived: Vec<String>,
    /// Backends that leave.
    pub(crate) leaving: Vec<String>,
    /// Number of backends for which there is no room, or no member that can make them.
    pub(crate) refused: u32,
}

/// The state that the leader wants for a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wanted {
    /// It serves.
    Serve,
    /// It finishes its work, and leaves when it has none left at any node.
    Drain,
    /// It is removed.
    Leave,
}

/// Knowledge about members for an update of a roster.
pub(crate) struct Seen<'a> {
    /// The edition of the instructions that are being made.
    pub(crate) edition: Edition,
    /// Time since the previous instructions.
    pub(crate) passed: Duration,
    /// Reports about making this pool's backends, from members with a fresh report.
    pub(crate) making: BTreeMap<&'a str, &'a Making>,
    /// True for members with a fresh report of any content.
    pub(crate) is_fresh: &'a dyn Fn(&str) -> bool,
    /// How certain it is that a member is gone.
    pub(crate) gone: &'a dyn Fn(&str) -> Gone,
    /// True if every node that has the pool reports that a backend has no work left.
    pub(crate) is_drained: &'a dyn Fn(&str) -> bool,
    /// True if an operator drains or disables the member.
    pub(crate) is_leaving: &'a dyn Fn(&str) -> bool,
}

impl Seen<'_> {
    /// True if the member no longer makes backends of the pool.
    fn ends(&self, member: &str) -> bool {
        self.making.get(member).is_some_and(|making| making.ends)
    }
}

/// How certain it is that a member is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    /// It reports.
    No,
    /// It has been silent for so long that another member may take over backends, if none can then
    /// exist twice.
    Silent,
    /// There is evidence that it is gone.
    Surely,
}

impl Entry {
    /// A backend that is to serve and has no address yet, without a key.
    pub fn starting(executor: &str, size: Option<String>) -> Entry {
        Entry {
            key: String::new(),
            size,
            executor: executor.to_string(),
            since: Edition::default(),
            outlives: false,
            driver: None,
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

    /// Greatest recorded age, so that the roster of an unchanged pool stays equal from plan to
    /// plan.
    pub const AGE_MAX: Duration = Duration::from_secs(3600);

    /// The backend as the planner sees it. `seen` are its values from this machine's checks and
    /// operators.
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

    /// The entry without the parts that change with time alone.
    fn settled(&self) -> Entry {
        Entry { age: Duration::ZERO, draining_for: Duration::ZERO, ..self.clone() }
    }
}

impl Roster {
    /// The roster without the parts that change with time alone.
    pub fn settled(&self) -> Roster {
        let backends = self.backends.iter().map(|(name, it)| (name.clone(), it.settled()));
        Roster { backends: backends.collect(), ..self.clone() }
    }

    /// Largest number that a member may claim, so that a false claim leaves numbers for new names.
    const CLAIM_MAX: u64 = 1 << 52;

    /// The first roster of a pool, with the backends that members have.
    pub(crate) fn begin(pool: &str, seen: &Seen<'_>) -> Roster {
        let mut roster = Roster { next_number: 1, ..Roster::default() };
        roster.take_in(pool, seen);
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
        let making = seen.making.get(executor);
        let Edition { term, generation } = seen.edition;
        Entry {
            // The edition distinguishes keys of equal names, if the pool is elastic again later.
            key: format!("{pool}-e{number}-{term:x}-{generation:x}"),
            since: seen.edition,
            outlives: making.is_some_and(|making| making.outlives),
            driver: making.and_then(|making| making.driver.clone()),
            ..Entry::starting(executor, size)
        }
    }

    /// Updates the roster from reports, without decisions of the planner: a drained backend leaves,
    /// one that left is removed, and one without an executor gets another or is removed.
    pub(crate) fn learn(&mut self, pool: &str, spec: &PoolSpec, made: &MadePool, seen: &Seen<'_>) {
        self.hear(seen);
        self.take_in(pool, seen);
        self.pass_on(seen);
        if spec.elastic.is_some() {
            self.succeed(pool, room(spec, made), seen);
        }
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
            for name in all {
                self.leave(&name);
            }
        }
    }

    fn hear(&mut self, seen: &Seen<'_>) {
        self.backends.retain(|name, entry| {
            let Some(making) = seen.making.get(entry.executor.as_str()) else { return true };
            let Some(made) = making.backends.get(name) else {
                // It was removed, or was lost with its process.
                return making.applied < entry.since;
            };
            entry.state = made.state;
            if made.address.is_some() {
                (entry.address, entry.id) = (made.address, made.id.clone());
            }
            entry.problem.clone_from(&made.problem);
            // The executor's driver may have changed since the entry was written.
            if let Some(outlives) = made.outlives {
                entry.outlives = outlives;
                entry.driver.clone_from(&made.driver);
            }
            true
        });
    }

    /// Gives the entries of an executor that is gone or has no driver to another executor, or
    /// removes them. An executor that makes no more backends drains those that no other can take
    /// over.
    fn pass_on(&mut self, seen: &Seen<'_>) {
        let ends = |entry: &Entry| seen.ends(&entry.executor);
        let heir = self.heir(seen);
        let is_without = |entry: &Entry| {
            let has_none =
                (seen.is_fresh)(&entry.executor) && !seen.making.contains_key(&*entry.executor);
            let is_passed = ends(entry) && entry.outlives && heir.is_some();
            if has_none || is_passed { Gone::Surely } else { (seen.gone)(&entry.executor) }
        };
        self.backends.retain(|_, entry| match (is_without(entry), entry.outlives) {
            (Gone::No, _) => true,
            (_, true) => {
                if let Some(heir) = &heir {
                    (entry.executor, entry.since) = (heir.clone(), seen.edition);
                }
                true
            }
            (Gone::Surely, false) => false,
            // Its executor may be unreachable from this controller alone, and then its backends
            // still run.
            (Gone::Silent, false) => true,
        });
        let ending = self.backends.iter().filter(|(_, entry)| ends(entry));
        let ending: Vec<String> = ending.map(|(name, _)| name.clone()).collect();
        for name in ending {
            self.leave(&name);
        }
    }

    /// The member that takes over backends that outlive their process. A member that already has
    /// some comes first.
    fn heir(&self, seen: &Seen<'_>) -> Option<String> {
        let able = |member: &str| {
            seen.making.get(member).is_some_and(|making| making.outlives && !making.ends)
                && !(seen.is_leaving)(member)
        };
        let has = self.backends.values().map(|entry| entry.executor.as_str());
        let has = has.filter(|member| able(member)).min();
        let any = || seen.making.keys().copied().filter(|member| able(member)).min();
        has.or_else(any).map(str::to_string)
    }

    /// Gives each backend of its executor's earlier driver a successor by the new driver, and
    /// drains it when the successor is warm. If the new driver makes none, the earlier backends
    /// stay. At most one backend exists beyond the room of the pool.
    fn succeed(&mut self, pool: &str, room: u32, seen: &Seen<'_>) {
        let is_due = |(name, entry): &(&String, &Entry)| {
            entry.wanted == Wanted::Serve
                && self.is_outdated(name, seen)
                && !self.is_replaced(name)
                && !(seen.is_leaving)(&entry.executor)
        };
        let outdated = self.backends.iter().filter(is_due);
        let outdated: Vec<String> = outdated.map(|(name, _)| name.clone()).collect();
        for name in outdated {
            let has_room = self.backends.len() <= room as usize;
            let Some(entry) = self.backends.get_mut(&name) else { continue };
            let stays = entry.address.is_some() && entry.replaces.is_none();
            if stays && !has_room {
                continue;
            }
            // A successor that is itself outdated passes its task to its own successor.
            let older = entry.replaces.take();
            let replaces = older.or_else(|| stays.then(|| name.clone()));
            let (executor, size) = (entry.executor.clone(), entry.size.clone());
            if has_room {
                self.add(pool, seen, &executor, size, replaces);
            }
            if !stays {
                self.leave(&name);
            }
        }
    }

    /// True if an earlier driver of its executor made it.
    fn is_outdated(&self, name: &str, seen: &Seen<'_>) -> bool {
        let executor = self.backends.get(name).map(|entry| entry.executor.as_str());
        let making = executor.and_then(|executor| seen.making.get(executor));
        making.and_then(|it| it.backends.get(name)).is_some_and(|made| made.is_outdated)
    }

    fn replaced(&mut self, warm_up: Duration) {
        let is_warm = |it: &&mut Entry| it.state == MadeState::Ready && it.age >= warm_up;
        let warm = self.backends.values_mut().filter(|it| it.replaces.is_some()).filter(is_warm);
        let old: Vec<String> = warm.filter_map(|entry| entry.replaces.take()).collect();
        for name in old {
            self.leave(&name);
        }
    }

    /// Makes a backend leave. Returns whether it was wanted until now.
    fn leave(&mut self, name: &str) -> bool {
        let entry = self.backends.get_mut(name).filter(|entry| entry.wanted == Wanted::Serve);
        let Some(entry) = entry else { return false };
        entry.replaces = None;
        let serves = entry.state == MadeState::Ready && entry.address.is_some();
        entry.wanted = if serves { Wanted::Drain } else { Wanted::Leave };
        true
    }

    /// Adds the roster's backends to the pool that the planner sees.
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

    /// Applies a scaling step of the plan in the making.
    pub(crate) fn act(&mut self, pool: &str, step: &Scaling, room: u32, seen: &Seen<'_>) -> Step {
        let mut done = Step::default();
        match step {
            Scaling::Hold => {}
            Scaling::Out { size, count } => {
                for _ in 0..*count {
                    if let Some(name) = self.revive(size.as_ref(), seen) {
                        done.revived.push(name);
                        continue;
                    }
                    let has_room = self.backends.len() < room as usize;
                    let added = has_room.then(|| self.allot(pool, size, seen, None)).flatten();
                    done.refused += u32::from(added.is_none());
                    done.added.extend(added);
                }
            }
            Scaling::In { backends } => {
                for name in backends {
                    let older = self.backends.get(name).and_then(|entry| entry.replaces.clone());
                    // If an earlier driver made the backend that this one replaces, that one leaves
                    // too.
                    let older = older.filter(|older| self.is_outdated(older, seen));
                    let both = [Some(name.clone()), older].into_iter().flatten();
                    done.leaving.extend(both.filter(|name| self.leave(name)));
                }
            }
            Scaling::Replace { size, backend } => {
                let is_up = self.backends.get(backend).map(|it| it.wanted) == Some(Wanted::Serve);
                let may = is_up && self.backends.len() <= room as usize;
                let added = (may && !self.is_replaced(backend))
                    .then(|| self.allot(pool, size, seen, Some(backend.clone())))
                    .flatten();
                done.refused += u32::from(added.is_none());
                done.added.extend(added);
            }
        }
        done
    }

    /// Revives the draining backend of this size that began to drain last, because it has most work
    /// left. Its executor must report that it serves. Backends of an earlier driver, or of a member
    /// that makes no more, stay draining.
    fn revive(&mut self, size: Option<&String>, seen: &Seen<'_>) -> Option<String> {
        let serves = |name: &str, executor: &str| {
            let made = seen.making.get(executor).and_then(|making| making.backends.get(name));
            made.is_some_and(|it| matches!(it.state, MadeState::Ready | MadeState::Draining))
        };
        let is_fit = |(name, it): &(&String, &Entry)| {
            it.wanted == Wanted::Drain
                && it.size.as_ref() == size
                && serves(name, &it.executor)
                && !self.is_outdated(name, seen)
                && !seen.ends(&it.executor)
        };
        let fit = self.backends.iter().filter(is_fit);
        let (name, _) = fit.min_by_key(|(_, it)| it.draining_for)?;
        let name = name.clone();
        let entry = self.backends.get_mut(&name)?;
        (entry.wanted, entry.draining_for) = (Wanted::Serve, Duration::ZERO);
        Some(name)
    }

    /// Adds a backend at the member with the fewest; `None` if no member can make it.
    fn allot(
        &mut self,
        pool: &str,
        size: &Option<String>,
        seen: &Seen<'_>,
        replaces: Option<String>,
    ) -> Option<String> {
        let has = |member: &str| self.backends.values().filter(|it| it.executor == member).count();
        let able = seen.making.iter().filter(|(member, it)| !it.ends && !(seen.is_leaving)(member));
        let spread = able.filter(|(_, making)| !making.outlives).map(|(member, _)| *member);
        let fewest = || spread.min_by_key(|member| (has(member), *member)).map(str::to_string);
        let executor = self.heir(seen).or_else(fewest)?;
        Some(self.add(pool, seen, &executor, size.clone(), replaces))
    }

    /// Adds a backend at this member. Returns its name.
    fn add(
        &mut self,
        pool: &str,
        seen: &Seen<'_>,
        executor: &str,
        size: Option<String>,
        replaces: Option<String>,
    ) -> String {
        let number = self.next_number;
        self.next_number += 1;
        let entry = self.entry(pool, number, seen, executor, size);
        let name = format!("{pool}-e{number}");
        self.backends.insert(name.clone(), Entry { replaces, ..entry });
        name
    }
}

/// Greatest number of backends that members may make for a pool, beside those that the operator
/// listed.
pub(crate) fn room(spec: &PoolSpec, made: &MadePool) -> u32 {
    let is_listed = |(name, it): &(&String, &BackendSpec)| {
        made.listed.contains(*name) && it.admin != AdminState::Down
    };
    let listed = spec.backends.iter().filter(is_listed).count() as u32;
    spec.elastic.as_ref().map_or(0, |elastic| elastic.max).saturating_sub(listed)
}

#[cfg(test)]
mod tests;
