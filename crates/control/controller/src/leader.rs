//! The work of a leader in a period: it plans, writes the plan and publishes it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use equipoise_planner::elastic::Scaling;
use equipoise_planner::{Plan, Standing};
use equipoise_store::{Committed, Leadership, StoreError, Transaction};
use tokio::time::{Instant, timeout};

use crate::draft::Draft;
use crate::failing::Late;
use crate::options::Premises;
use crate::roster::Step;
use crate::shared::{Shared, read_instructions};
use crate::term::{Claim, OfficeTerm};
use crate::{Instructions, Roster, Secret};

/// State held while leading.
pub(crate) struct Office {
    pub(crate) leadership: Leadership,
    pub(crate) term: OfficeTerm,
    /// When this leader last planned.
    pub(crate) planned: Option<Instant>,
    /// The instructions last written, and when.
    pub(crate) written: Option<(Instant, Arc<Instructions>)>,
    /// Instructions of a write without an answer: the store may have them or not.
    pub(crate) unsure: Option<Arc<Instructions>>,
    /// Pools of which a step was refused in the last plan, which was logged.
    pub(crate) refused: BTreeSet<String>,
}

/// Plans, writes and publishes. Returns whether this controller still leads.
pub(crate) async fn lead(shared: &Shared, office: &mut Office, premises: &Premises) -> bool {
    if !office.leadership.is_held() {
        return false;
    }
    let before = shared.instructions.borrow().clone();
    overtake(shared, office, &before);
    let rosters = settle(shared, office, premises, &before).await;
    let period = shared.options.smoothing.period;
    let began = Instant::now();
    let passed = office.planned.map_or(period, |planned| began - planned);
    let term = office.term.get();
    let base = rosters.as_ref().unwrap_or(&before.rosters);
    let Some(draft) = shared.draft(premises, &before, base, term, passed) else { return true };
    shared.counts.planned(began.elapsed());
    office.planned = Some(began);
    let steps = draft.steps.clone();
    let mut instructions = instructions(shared, term, draft, &before);
    instructions.pools.clone_from(&premises.declared);
    let leaves_sizes = shared.leaves_sizes();
    if leaves_sizes {
        hold(&mut instructions, &before, base, "no node reports; sizes stay as they are", |_| true);
    }
    let is_sure = rosters.is_some();
    let mut is_written = is_sure;
    if is_sure && is_to_be_written(office, &instructions, shared.options.write_every) {
        let new = Arc::new(instructions.clone());
        match write(shared, &office.leadership, &new).await {
            Ok(true) => {
                office.term.stored();
                office.written = Some((Instant::now(), new));
            }
            Ok(false) => return false,
            // No other controller can lead while the lease certainly holds, so instructions need
            // not wait for the store.
            Err(()) if office.leadership.is_held() => {
                office.unsure = Some(new);
                is_written = false;
            }
            Err(()) => return false,
        }
    }
    let is_held = |pool: &str| {
        let lasts = lasts(premises, pool, base) || lasts(premises, pool, &instructions.rosters);
        leaves_sizes || !is_written && lasts
    };
    let held: BTreeSet<String> = instructions
        .plan
        .pools
        .keys()
        .chain(base.keys())
        .chain(instructions.rosters.keys())
        .filter(|pool| is_held(pool))
        .cloned()
        .collect();
    if !is_written {
        hold(&mut instructions, &before, base, UNANSWERED, |pool| held.contains(pool));
    }
    if office.term.is_stored() {
        let steps = steps.into_iter().filter(|(pool, _)| !held.contains(pool)).collect();
        log_steps(&instructions, &steps, &mut office.refused);
        log_standings(&before.plan, &instructions.plan);
        shared.publish(instructions);
    }
    true
}

/// True if the loss of the pool's roster would do harm: one of its backends outlives this process,
/// or another process makes its backends.
fn lasts(premises: &Premises, pool: &str, rosters: &BTreeMap<String, Roster>) -> bool {
    let Some(making) = &premises.alone else { return true };
    let mut entries = rosters.get(pool).into_iter().flat_map(|roster| roster.backends.values());
    making.get(pool).is_some_and(|it| it.outlives) || entries.any(|entry| entry.outlives)
}

fn log_steps(
    instructions: &Instructions,
    steps: &BTreeMap<String, Step>,
    known: &mut BTreeSet<String>,
) {
    for (pool, refused) in newly_refused(steps, known) {
        tracing::warn!(
            event = "plan.refused",
            pool,
            refused,
            "cannot add backends: no room, or no member that can make them"
        );
    }
    for (pool, step) in steps.iter().filter(|(_, step)| **step != Step::default()) {
        let Step { added, revived, leaving, refused } = step;
        let scaling = instructions.plan.pools.get(pool).and_then(|plan| plan.scaling.as_ref());
        let reason = scaling.map_or("", |scaling| scaling.reason.as_str());
        if *refused == 0 || !(added.is_empty() && revived.is_empty()) {
            tracing::info!(
                event = "plan.scaled",
                pool,
                ?added,
                ?revived,
                ?leaving,
                "scaling: {reason}"
            );
        }
    }
}

/// Logs the nodes that are silent or unhealthy now, and those that are not any more.
fn log_standings(before: &Plan, now: &Plan) {
    for (node, standing) in changed_standings(before, now) {
        if is_out(standing) {
            tracing::warn!(event = "node.standing", subject = node, node, "{standing}");
        } else {
            tracing::info!(event = "node.standing", subject = node, node, "{standing}");
        }
    }
}

fn changed_standings<'a>(before: &Plan, now: &'a Plan) -> Vec<(&'a str, Standing)> {
    let was = |node: &str| before.nodes.get(node).map(|it| it.standing);
    let all = now.nodes.iter().map(|(node, it)| (node.as_str(), it.standing));
    let is_changed = |(node, now): &(&str, Standing)| {
        let was = was(node);
        was != Some(*now) && (is_out(*now) || was.is_some_and(is_out))
    };
    all.filter(is_changed).collect()
}

/// The node is out, or will be, and no operator wants that.
fn is_out(standing: Standing) -> bool {
    matches!(standing, Standing::Late | Standing::Gone | Standing::Unhealthy)
}

/// Pools with the number of backends that the last step did not get. Pools in `known` are left out:
/// their previous step was refused, too.
fn newly_refused(
    steps: &BTreeMap<String, Step>,
    known: &mut BTreeSet<String>,
) -> Vec<(String, u32)> {
    let refused = steps.iter().filter(|(_, step)| step.refused > 0);
    let refused: BTreeMap<&String, u32> = refused.map(|(pool, it)| (pool, it.refused)).collect();
    known.retain(|pool| refused.contains_key(pool));
    let new = refused.into_iter().filter(|(pool, _)| known.insert((*pool).clone()));
    new.map(|(pool, count)| (pool.clone(), count)).collect()
}

/// Takes a later term if nodes follow later instructions than any that this leader knows.
fn overtake(shared: &Shared, office: &mut Office, before: &Instructions) {
    let roll = shared.roll();
    let said = roll.members().iter();
    let said = said.filter_map(|(node, member)| Some((node.as_str(), member.applied?)));
    for claim in office.term.hear(before.edition(), said) {
        match claim {
            Claim::Overtaken { node, claimed } => {
                office.written = None;
                let term = office.term.get();
                tracing::warn!(event = "controller.overtaken", subject = node,
                    node, %claimed, term,
                    "a node follows later instructions than this store knows. Unless the node lies, the store was restored \
                     from an older copy or created again. Plans continue in a later term. Changes that the store lost are \
                     undone: nodes evicted since then may return, and tokens used or revoked since then are valid again. Evict and \
                     revoke them again (see the audit log)"
                );
            }
            Claim::Disbelieved { node, claimed } => {
                tracing::warn!(node, %claimed, "a node reports impossible instructions; ignoring its claim");
            }
        }
    }
    drop(roll);
    shared.known().leads_in = Some(office.term.get());
}

fn instructions(shared: &Shared, term: u64, draft: Draft, before: &Instructions) -> Instructions {
    let Draft { plan, members, rosters, sources, steps: _ } = draft;
    Instructions {
        term,
        generation: plan.generation.0,
        leader: shared.options.name.clone(),
        period: shared.options.smoothing.period,
        members,
        plan,
        rosters,
        pools: BTreeMap::new(),
        sources,
        // The secret stays the same as long as the cluster exists, because nodes change to newer
        // instructions one after the other.
        dispatch_secret: Some(before.dispatch_secret.clone().unwrap_or_else(Secret::random)),
    }
}

/// The rosters on which the next plan builds. After a write without an answer, these are the
/// store's. `None` while the store does not answer: then no pool is scaled, because other
/// controllers may have read a roster that this one does not know to be stored.
async fn settle(
    shared: &Shared,
    office: &mut Office,
    premises: &Premises,
    before: &Instructions,
) -> Option<BTreeMap<String, Roster>> {
    let Some(unsure) = &office.unsure else { return Some(before.rosters.clone()) };
    let patience = shared.options.smoothing.period.max(Duration::from_millis(500));
    let read = match timeout(patience, shared.store.get(&shared.keys.plan)).await {
        Ok(read) => read,
        Err(_) => {
            shared.note_failure(&Late(patience));
            return None;
        }
    };
    shared.note_store(&read);
    let stored = read.ok()?.as_ref().and_then(read_instructions);
    let is_there = stored.is_some_and(|stored| stored.edition() == unsure.edition());
    let unsure = office.unsure.take()?;
    let mut rosters = before.rosters.clone();
    if is_there {
        office.term.stored();
        // Pools without lasting backends did not wait for this answer, and keep their newer
        // rosters.
        rosters.retain(|pool, _| !lasts(premises, pool, &before.rosters));
        let lasting = |pool: &String| lasts(premises, pool, &unsure.rosters);
        let stored = unsure.rosters.iter().filter(|(pool, _)| lasting(pool));
        rosters.extend(stored.map(|(pool, roster)| (pool.clone(), roster.clone())));
        office.written = Some((Instant::now(), unsure));
    }
    Some(rosters)
}

/// Reason of unchanged pool sizes while a plan cannot be written.
const UNANSWERED: &str = "the store does not answer; sizes stay as they are";

/// Leaves the sizes of these pools as they were, with the store's rosters. No backend is created or
/// removed without a stored roster, or on doubtful evidence.
fn hold(
    instructions: &mut Instructions,
    before: &Instructions,
    stored: &BTreeMap<String, Roster>,
    reason: &str,
    is_held: impl Fn(&str) -> bool,
) {
    instructions.rosters.retain(|pool, _| !is_held(pool));
    let held = stored.iter().filter(|(pool, _)| is_held(pool));
    instructions.rosters.extend(held.map(|(pool, roster)| (pool.clone(), roster.clone())));
    let pools = instructions.plan.pools.iter_mut();
    for (name, pool) in pools.filter(|(name, _)| stored.contains_key(*name) && is_held(name)) {
        pool.scaling = before.plan.pools.get(name).and_then(|was| was.scaling.clone());
        if let Some(scaling) = &mut pool.scaling {
            scaling.action = Scaling::Hold;
            scaling.reason = reason.to_string();
        }
    }
}

/// Writes the instructions. `Ok(false)`: the store has another leader.
async fn write(
    shared: &Shared,
    leadership: &Leadership,
    instructions: &Instructions,
) -> Result<bool, ()> {
    let value = match serde_json::to_vec(instructions) {
        Ok(value) => value,
        Err(error) => {
            shared.note_unwritten(&error);
            return Err(());
        }
    };
    let put = Transaction::new().put(shared.keys.plan.clone(), value);
    let commit = shared.store.commit(leadership.fence(put));
    let patience = shared.options.smoothing.period.max(Duration::from_millis(500));
    let committed: Result<Committed, StoreError> = match timeout(patience, commit).await {
        Ok(committed) => committed,
        Err(_) => {
            shared.note_unwritten(&Late(patience));
            return Err(());
        }
    };
    match committed.map_err(|error| shared.note_unwritten(&error))? {
        Committed::Done(_) => {
            shared.note_written();
            shared.counts.wrote();
            Ok(true)
        }
        Committed::Refused(refusal) => {
            shared.note_read();
            tracing::warn!(event = "controller.fenced-off", %refusal, "the store has another leader");
            shared.counts.fenced_off();
            Ok(false)
        }
    }
}

fn is_to_be_written(office: &Office, now: &Instructions, every: Duration) -> bool {
    match &office.written {
        None => true,
        Some((at, written)) => at.elapsed() >= every || does_otherwise(written, now),
    }
}

/// Rosters without the parts that change with time alone.
fn settled(rosters: &BTreeMap<String, Roster>) -> BTreeMap<&String, Roster> {
    rosters.iter().map(|(pool, roster)| (pool, roster.settled())).collect()
}

/// True if the new instructions differ by more than small changes of shares.
fn does_otherwise(written: &Instructions, now: &Instructions) -> bool {
    let standing = |plan: &Plan| -> BTreeMap<String, _> {
        plan.nodes.iter().map(|(name, node)| (name.clone(), node.standing)).collect()
    };
    let acts = |plan: &Plan| {
        let scaling = plan.pools.values().filter_map(|pool| pool.scaling.as_ref());
        scaling.into_iter().any(|scaling| scaling.action != Scaling::Hold)
    };
    let pools = |plan: &Plan| plan.pools.keys().cloned().collect::<Vec<_>>();
    acts(&now.plan)
        || acts(&written.plan)
        || settled(&written.rosters) != settled(&now.rosters)
        || written.members != now.members
        || standing(&written.plan) != standing(&now.plan)
        || pools(&written.plan) != pools(&now.plan)
}

#[cfg(test)]
mod tests {
    use equipoise_planner::NodePlan;

    use super::*;

    fn plan(nodes: &[(&str, Standing)]) -> Plan {
        let planned = |standing| NodePlan::new(standing, 1.0);
        let nodes = nodes.iter().map(|(node, it)| (node.to_string(), planned(*it))).collect();
        Plan { nodes, ..Plan::default() }
    }

    #[test]
    fn a_node_that_falls_silent_or_returns_is_reported_each_time() {
        use Standing::{Draining, Gone, Joining, Late, Present};
        let mut before = plan(&[]);
        for (now, named) in [
            (Joining, false),
            (Present, false),
            (Late, true),
            (Late, false),
            (Gone, true),
            (Joining, true),
            (Present, false),
            (Draining, false),
        ] {
            let plan = plan(&[("n1", now)]);
            let expected: &[(&str, Standing)] = if named { &[("n1", now)] } else { &[] };
            assert_eq!(changed_standings(&before, &plan), expected);
            before = plan;
        }
    }

    #[test]
    fn a_repeatedly_refused_scaling_step_is_reported_once() {
        let mut known = BTreeSet::new();
        for (refused, is_said) in [(2, true), (2, false), (1, false), (0, false), (1, true)] {
            let step = Step { refused, ..Step::default() };
            let steps = [("web".to_string(), step)].into();
            let said = newly_refused(&steps, &mut known);
            let expected = if is_said { vec![("web".to_string(), refused)] } else { Vec::new() };
            assert_eq!(said, expected);
        }
    }
}
