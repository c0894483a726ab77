//! The members and their last reports. Pure, with `now` as an argument.

mod gone;
mod pools;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use equipoise_core::concurrency::Tally;
use equipoise_core::load::{NodeLoad, Reported, Smoothing};
use equipoise_core::{AdminState, Health};
use equipoise_planner::elastic::PoolSample;
use equipoise_planner::{
    History, Inventory, InventoryRefused, NameSpec, NodeSpec, Permits, PoolSpec, Report,
};

use crate::hearing::Witnesses;
use crate::options::Premises;
use crate::report::is_name;
use crate::sources::{SourceRates, together};
use crate::wishes::Wishes;
use crate::{
    Edition, Enrolled, Fault, Making, NodeKind, NodeReport, ReportRefused, SharedBackend, Tallies,
};

/// The members' reports, and the inputs of the planner that follow from them.
#[derive(Debug)]
pub(crate) struct Roll {
    smoothing: Smoothing,
    members_max: usize,
    history: History,
    members: BTreeMap<String, Member>,
    refused: [u64; Fault::ALL.len()],
    signs: gone::Signs,
}

/// A member that has reported.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) enrolled: Enrolled,
    pub(crate) version: String,
    pub(crate) load: Option<Reported>,
    /// CPU utilisation of its whole machine, in per cent.
    pub(crate) machine_cpu: Option<f64>,
    pub(crate) applied: Option<Edition>,
    /// Time of its last sign of life.
    pub(crate) at: Duration,
    /// Time of its last credible report.
    believed_at: Duration,
    pub(crate) refused: u64,
    pools: BTreeMap<String, PoolSample>,
    making: BTreeMap<String, Making>,
    drained: BTreeMap<String, BTreeSet<String>>,
    names: BTreeMap<String, BTreeSet<String>>,
    sources: SourceRates,
    tallies: BTreeMap<SharedBackend, Tally>,
}

/// Tallies older than this are ignored.
const TALLY_AGE_MAX: Duration = Duration::from_secs(3);

/// Reports older than this many periods are ignored for pools.
const FRESH_PERIODS: f64 = 3.0;

impl Roll {
    pub(crate) fn new(smoothing: Smoothing, members_max: usize, now: Duration) -> Roll {
        let history = History::new(smoothing, now);
        let (members, refused) = (BTreeMap::new(), [0; Fault::ALL.len()]);
        let signs = gone::Signs::default();
        Roll { smoothing, members_max, history, members, refused, signs }
    }

    /// Takes a report that arrived at `now`.
    pub(crate) fn take(
        &mut self,
        now: Duration,
        node: &str,
        report: NodeReport,
    ) -> Result<(), ReportRefused> {
        let checked = report.check().and_then(|()| self.check_node(node));
        if let Err(refused) = checked {
            self.refused[refused.fault as usize] += 1;
            // A refused report shows that the member lives, but it does not add a new member.
            if let Some(member) = self.members.get_mut(node) {
                member.refused += 1;
                member.at = now;
                self.history.record_beat(node, now);
            }
            return Err(refused);
        }
        if report.leaves {
            self.signs.leaves(node);
            return Ok(());
        }
        self.signs.reports(node);
        match report.load {
            Some(load) => {
                let (classes, occupancy) = (report.classes, report.occupancy);
                let report = Report { load, classes, occupancy };
                // It was checked above.
                let _ = self.history.record(node, now, &report);
            }
            None => self.history.record_beat(node, now),
        }
        let known = |peer: &String| self.members.contains_key(peer);
        for (peer, is_reachable) in report.reachable.iter().filter(|(peer, _)| known(peer)) {
            self.history.record_sighting(node, peer, now, *is_reachable);
            if *is_reachable {
                self.signs.is_reached(peer);
            }
        }
        // Peers that never reported here count, too: a controller that has just started knows them
        // from the last plan.
        for peer in &report.refused {
            self.signs.is_refused(peer, now, self.members_max);
        }
        let refused = self.members.get(node).map_or(0, |member| member.refused);
        let member = Member {
            enrolled: Enrolled {
                kind: report.kind,
                capacity: report.capacity,
                first_capacity: None,
                dispatches: report.dispatches,
                application_down: report.application_down,
                permits: report.permits.map(Permits::stepped),
                endpoint: report.endpoint,
                addresses: report.addresses,
            },
            version: report.version,
            load: report.load,
            machine_cpu: report.machine_cpu,
            applied: report.applied,
            at: now,
            believed_at: now,
            refused,
            pools: report.pools,
            making: report.making,
            drained: report.drained,
            names: report.names,
            sources: report.sources,
            tallies: report.tallies,
        };
        self.members.insert(node.to_string(), member);
        Ok(())
    }

    fn check_node(&self, node: &str) -> Result<(), ReportRefused> {
        if !is_name(node) {
            let what = "the node's name is empty, too long, or has control characters".to_string();
            return Err(ReportRefused { fault: Fault::Node, what });
        }
        if self.members.len() >= self.members_max && !self.members.contains_key(node) {
            let what = format!("there are {} members, which is the limit", self.members_max);
            return Err(ReportRefused { fault: Fault::TooManyMembers, what });
        }
        Ok(())
    }

    /// Forgets members that are gone and were silent for `after`. Returns their names.
    pub(crate) fn forget_silent(
        &mut self,
        now: Duration,
        after: Duration,
        witnesses: &Witnesses,
    ) -> Vec<String> {
        let is_over = |(name, member): &(&String, &Member)| {
            now.saturating_sub(member.at) > after && self.evidence(now, name, witnesses).is_some()
        };
        let over = self.members.iter().filter(is_over);
        let gone: Vec<String> = over.map(|(name, _)| name.clone()).collect();
        for name in &gone {
            self.members.remove(name);
            self.signs.forget(name);
        }
        if !gone.is_empty() {
            let members = &self.members;
            self.history.retain(|machine| members.contains_key(machine));
        }
        gone
    }

    /// Records the combined observations of all balancers, once a period. `enrolled` are the
    /// members of the last plan.
    ///
    /// A pool without a fresh observation loses its past, because the last values would otherwise
    /// be used for ever. If a balancer that may have the pool is silent and not certainly gone, the
    /// sum of the others is less than the demand.
    pub(crate) fn settle_pools<'a>(
        &mut self,
        now: Duration,
        pools: impl Iterator<Item = &'a String>,
        enrolled: &BTreeMap<String, Enrolled>,
        witnesses: &Witnesses,
    ) {
        let fresh = self.smoothing.period.mul_f64(FRESH_PERIODS);
        let is_heard = |member: &Member| now.saturating_sub(member.believed_at) <= fresh;
        let is_missing = |name: &String| self.evidence(now, name, witnesses).is_none();
        let silent = self.members.iter().filter(|(_, member)| !is_heard(member));
        let missing: BTreeSet<String> =
            silent.map(|(name, _)| name).filter(|name| is_missing(name)).cloned().collect();
        // The pools of a member that has not reported to this controller are not known.
        let is_unknown_missing = enrolled.iter().any(|(name, member)| {
            member.kind == NodeKind::Node && !self.members.contains_key(name) && is_missing(name)
        });
        for pool in pools {
            let having =
                || self.members.iter().filter(|(_, member)| member.pools.contains_key(pool));
            let heard = having().filter(|(_, member)| is_heard(member));
            let samples = heard.filter_map(|(_, member)| member.pools.get(pool));
            let Some(sample) = pools::together(samples) else {
                self.history.forget_pool(pool);
                continue;
            };
            let is_partial = is_unknown_missing || having().any(|(name, _)| missing.contains(name));
            self.history.record_pool(pool, now, &sample);
            if is_partial {
                self.history.doubt_pool(pool);
            }
        }
    }

    /// The members as others need to know them, with those of `before` that have not reported to
    /// this controller yet.
    pub(crate) fn enrolled(
        &self,
        now: Duration,
        before: &BTreeMap<String, Enrolled>,
        forget_after: Duration,
        witnesses: &Witnesses,
    ) -> BTreeMap<String, Enrolled> {
        let mut all = before.clone();
        // `now` is the time for which this controller has been listening.
        if now > forget_after {
            all.retain(|name, _| self.evidence(now, name, witnesses).is_none());
        }
        for (name, member) in &self.members {
            all.insert(name.clone(), member.enrolled.clone());
        }
        all
    }

    /// The planner's inventory: the premises, the members, and the operators' settings.
    pub(crate) fn inventory(
        &self,
        premises: &Premises,
        enrolled: &BTreeMap<String, Enrolled>,
        wishes: &Wishes,
    ) -> Result<Inventory, InventoryRefused> {
        let admin = |name: &String| match self.signs.has_left(name) {
            true => AdminState::Down,
            false => wishes.admins.get(name).copied().unwrap_or(AdminState::Up),
        };
        let spec = |name: &String, member: &Enrolled| NodeSpec {
            admin: admin(name),
            health: if member.application_down { Health::Unhealthy } else { Health::Unknown },
            capacity: member.capacity,
            dispatches: member.dispatches,
            permits: member.permits,
        };
        let nodes = enrolled.iter().filter(|(_, member)| member.kind == NodeKind::Node);
        let mut nodes: BTreeMap<String, NodeSpec> =
            nodes.map(|(name, member)| (name.clone(), spec(name, member))).collect();
        let names = self.names(premises);
        for node in names.values().flat_map(|name| &name.nodes) {
            let admin = admin(node);
            let never_seen = NodeSpec { admin, dispatches: false, ..NodeSpec::default() };
            nodes.entry(node.clone()).or_insert(never_seen);
        }
        let mut pools = premises.pools.clone();
        for (name, pool) in &mut pools {
            if let Some(addresses) = premises.addresses.get(name) {
                find_machines(pool, addresses, enrolled);
            }
            if let (Some(elastic), Some(said)) = (&mut pool.elastic, wishes.sizes.get(name)) {
                elastic.mode = said.mode();
            }
        }
        Inventory::new(nodes, names, pools)
    }

    /// Names of this machine's file and of the members. If two definitions differ, the first
    /// counts.
    fn names(&self, premises: &Premises) -> BTreeMap<String, NameSpec> {
        let mut names = premises.names.clone();
        for (name, nodes) in self.members.values().flat_map(|member| &member.names) {
            names.entry(name.clone()).or_insert_with(|| NameSpec { nodes: nodes.clone() });
        }
        names
    }

    /// Rates of the clients of each prefix at all members with fresh reports. Small changes since
    /// `before` are left out.
    pub(crate) fn sources(&self, now: Duration, before: &SourceRates) -> SourceRates {
        let fresh = self.members.iter().filter(|(name, member)| self.is_fresh(now, name, member));
        together(fresh.map(|(_, member)| &member.sources), before)
    }

    /// Tallies of other members for the backends that `node` reported tallies for.
    pub(crate) fn tallies(&self, now: Duration, node: &str) -> Tallies {
        let Some(own) = self.members.get(node).filter(|own| !own.tallies.is_empty()) else {
            return Tallies::new();
        };
        let is_new = |it: &Member| now.saturating_sub(it.believed_at) <= TALLY_AGE_MAX;
        let others = self
            .members
            .iter()
            .filter(|(name, member)| *name != node && is_new(member) && !self.signs.has_left(name));
        let mut found = Tallies::new();
        for (backend, tally) in others.flat_map(|(_, other)| &other.tallies) {
            if own.tallies.contains_key(backend) {
                found.entry(backend.clone()).or_default().push(*tally);
            }
        }
        found
    }

    /// The reports of members with fresh reports about making a pool's backends.
    pub(crate) fn making(&self, now: Duration, pool: &str) -> BTreeMap<&str, &Making> {
        let fresh = self.members.iter().filter(|(name, member)| self.is_fresh(now, name, member));
        fresh.filter_map(|(name, it)| Some((name.as_str(), it.making.get(pool)?))).collect()
    }

    pub(crate) fn is_member_fresh(&self, now: Duration, name: &str) -> bool {
        self.members.get(name).is_some_and(|member| self.is_fresh(now, name, member))
    }

    /// True if no report of it is missing and it has not left.
    fn is_fresh(&self, now: Duration, name: &str, member: &Member) -> bool {
        now.saturating_sub(member.at) <= self.smoothing.period.mul_f64(FRESH_PERIODS)
            && !self.signs.has_left(name)
    }

    /// True if every node of a pool gives a backend no new work and has none left there. Nodes that
    /// are certainly gone do not count. False before any node is known.
    pub(crate) fn is_drained(
        &self,
        enrolled: &BTreeMap<String, Enrolled>,
        pool: &str,
        backend: &str,
        is_gone: impl Fn(&str) -> bool,
    ) -> bool {
        let agrees = |(name, _): (&String, &Enrolled)| match self.members.get(name) {
            Some(member) => match member.drained.get(pool) {
                Some(drained) => drained.contains(backend) || is_gone(name),
                // This node does not have the pool.
                None => true,
            },
            None => is_gone(name),
        };
        let nodes = enrolled.iter().filter(|(_, member)| member.kind == NodeKind::Node);
        let mut nodes = nodes.peekable();
        nodes.peek().is_some() && nodes.all(agrees)
    }

    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    pub(crate) fn load(&self, node: &str) -> Option<&NodeLoad> {
        self.history.load(node)
    }

    pub(crate) fn members(&self) -> &BTreeMap<String, Member> {
        &self.members
    }

    /// Number of refused reports by fault, in the order of [`Fault::ALL`].
    pub(crate) fn refused(&self) -> impl Iterator<Item = (Fault, u64)> + '_ {
        Fault::ALL.into_iter().zip(self.refused)
    }
}

/// Sets the machine of backends: the member with the backend's address, unless the operator named
/// another.
fn find_machines(
    pool: &mut PoolSpec,
    addresses: &BTreeMap<String, IpAddr>,
    enrolled: &BTreeMap<String, Enrolled>,
) {
    for (name, backend) in &mut pool.backends {
        let Some(address) = addresses.get(name).filter(|_| backend.machine.is_none()) else {
            continue;
        };
        let mut found = enrolled.iter().filter(|(_, member)| member.addresses.contains(address));
        // An address that two members have is ambiguous, such as the loopback address, which all
        // have.
        if let (Some((machine, _)), None) = (found.next(), found.next()) {
            backend.machine = Some(machine.clone());
        }
    }
}

#[cfg(test)]
mod tests;
