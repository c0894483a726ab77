//! Builds a plan and the rest of the instructions from reports and the previous instructions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use equipoise_planner::{Plan, Tick, plan};

use crate::capacity;
use crate::hearing::Witnesses;
use crate::options::{MadePool, Premises};
use crate::roll::Roll;
use crate::roster::{Gone, Seen, Step, room};
use crate::shared::Shared;
use crate::sources::SourceRates;
use crate::{Edition, Enrolled, Instructions, Making, Roster};

/// The content of new instructions.
pub(crate) struct Draft {
    pub(crate) plan: Plan,
    /// The members that the plan covers.
    pub(crate) members: BTreeMap<String, Enrolled>,
    pub(crate) rosters: BTreeMap<String, Roster>,
    pub(crate) sources: SourceRates,
    /// The plan's scaling steps as the rosters took them, by pool.
    pub(crate) steps: BTreeMap<String, Step>,
}

/// Drain timeout of backends of a pool that is no longer elastic.
const LAST_DRAIN: Duration = Duration::from_secs(60);

impl Shared {
    /// The draft that follows `before` and these rosters; `None` if the inputs are contradictory.
    pub(crate) fn draft(
        &self,
        premises: &Premises,
        before: &Instructions,
        rosters: &BTreeMap<String, Roster>,
        term: u64,
        passed: Duration,
    ) -> Option<Draft> {
        let (wishes, witnesses) = {
            let known = self.known();
            (known.wishes.clone(), Arc::clone(&known.hearing.witnesses))
        };
        let roll = self.roll();
        let now = self.now();
        let forget_after = self.options.forget_after;
        let mut members = roll.enrolled(now, &before.members, forget_after, &witnesses);
        let periods = passed.as_secs_f64() / self.options.smoothing.period.as_secs_f64();
        capacity::bound(&mut members, &before.members, premises.capacity_max, periods);
        let own = premises.alone.as_ref().map(|making| (self.options.name.as_str(), making));
        let context = Context {
            own,
            roll: &roll,
            witnesses: &witnesses,
            members: &members,
            before,
            now,
            passed,
            term,
        };
        let (mut premises, mut rosters) = (premises.clone(), rosters.clone());
        context.learn(&mut premises, &mut rosters);
        let inventory = match roll.inventory(&premises, &members, &wishes) {
            Ok(inventory) => inventory,
            Err(error) => {
                self.counts.not_planned();
                tracing::error!(%error, "no plan, because its inputs are contradictory");
                return None;
            }
        };
        let policy = equipoise_planner::Policy {
            smoothing: self.options.smoothing,
            ..premises.policy.clone()
        };
        let was = (before.edition() > Edition::default()).then_some(&before.plan);
        let tick = Tick { now, passed };
        let plan = plan(&policy, &inventory, roll.history(), was, tick);
        let steps = context.act(&premises, &plan, &mut rosters);
        let sources = roll.sources(now, &before.sources);
        drop(roll);
        Some(Draft { plan, members, rosters, sources, steps })
    }
}

struct Context<'a> {
    /// On a single machine: its name, and the backends that it makes.
    own: Option<(&'a str, &'a BTreeMap<String, Making>)>,
    roll: &'a Roll,
    witnesses: &'a Witnesses,
    members: &'a BTreeMap<String, Enrolled>,
    before: &'a Instructions,
    now: Duration,
    passed: Duration,
    term: u64,
}

impl Context<'_> {
    fn is_own(&self, member: &str) -> bool {
        self.own.is_some_and(|(own, _)| own == member)
    }

    fn gone(&self, member: &str) -> Gone {
        match self.is_own(member) {
            true => Gone::No,
            false => self.roll.gone(self.now, member, self.witnesses),
        }
    }

    fn making(&self, pool: &str) -> BTreeMap<&str, &Making> {
        let mut all = self.roll.making(self.now, pool);
        if let Some((own, making)) = self.own {
            all.remove(own);
            all.extend(making.get(pool).map(|making| (own, making)));
        }
        all
    }

    fn with_seen<T>(&self, pool: &str, work: impl FnOnce(&Seen<'_>) -> T) -> T {
        let gone = |member: &str| self.gone(member);
        let is_gone = |member: &str| self.gone(member) == Gone::Surely;
        let is_drained = |backend: &str| self.roll.is_drained(self.members, pool, backend, is_gone);
        let is_leaving = |member: &str| {
            let node = self.before.plan.nodes.get(member);
            // On a single machine no other member could replace its backends.
            !self.is_own(member) && node.is_some_and(|node| !node.standing.is_wanted())
        };
        let is_fresh =
            |member: &str| self.is_own(member) || self.roll.is_member_fresh(self.now, member);
        work(&Seen {
            edition: Edition { term: self.term, generation: self.before.generation + 1 },
            passed: self.passed,
            making: self.making(pool),
            is_fresh: &is_fresh,
            gone: &gone,
            is_drained: &is_drained,
            is_leaving: &is_leaving,
        })
    }

    /// Updates the rosters from reports, and adds their backends to the pools.
    fn learn(&self, premises: &mut Premises, rosters: &mut BTreeMap<String, Roster>) {
        for (name, made) in &premises.made {
            let Some(spec) = premises.pools.get_mut(name) else { continue };
            self.with_seen(name, |seen| {
                if !rosters.contains_key(name) {
                    // Without a member that can make backends there is no roster.
                    if seen.making.is_empty() {
                        return;
                    }
                    rosters.insert(name.clone(), Roster::begin(name, seen));
                }
                if let Some(roster) = rosters.get_mut(name) {
                    roster.learn(name, spec, made, seen);
                    roster.add_to(spec, made);
                }
            });
        }
        // Backends of pools that are no longer elastic are removed.
        let gone: Vec<String> =
            rosters.keys().filter(|it| !premises.made.contains_key(*it)).cloned().collect();
        for name in gone {
            let Some(roster) = rosters.get_mut(&name) else { continue };
            let spec = premises.pools.get(&name).cloned().unwrap_or_default();
            let spec = equipoise_planner::PoolSpec { elastic: None, ..spec };
            let made = MadePool { drain_timeout: LAST_DRAIN, ..MadePool::default() };
            self.with_seen(&name, |seen| roster.learn(&name, &spec, &made, seen));
            if roster.backends.is_empty() {
                rosters.remove(&name);
            }
        }
    }

    /// Applies the plan's scaling steps to the rosters.
    fn act(
        &self,
        premises: &Premises,
        plan: &Plan,
        rosters: &mut BTreeMap<String, Roster>,
    ) -> BTreeMap<String, Step> {
        let mut steps = BTreeMap::new();
        for (name, roster) in rosters {
            let pool = plan.pools.get(name).and_then(|pool| pool.scaling.as_ref());
            let (Some(scaling), Some(spec)) = (pool, premises.pools.get(name)) else { continue };
            let Some(made) = premises.made.get(name) else { continue };
            let room = room(spec, made);
            let step = self.with_seen(name, |seen| roster.act(name, &scaling.action, room, seen));
            steps.insert(name.clone(), step);
        }
        steps
    }
}
