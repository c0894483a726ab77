//! One task of a controller: each period it takes in what members said, and plans if it leads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use equipoise_planner::Plan;
use equipoise_planner::elastic::Scaling;
use equipoise_store::{Committed, Election, Leadership, StoreError, Transaction};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use crate::controller::{Shared, read_instructions};
use crate::draft::Draft;
use crate::options::Premises;
use crate::term::{Claim, OfficeTerm};
use crate::{Instructions, Roster, Secret};

/// Being leader, with what that needs.
struct Office {
    leadership: Leadership,
    term: OfficeTerm,
    /// When this leader planned last.
    planned: Option<Instant>,
    /// What it wrote last, and when.
    written: Option<(Instant, Arc<Instructions>)>,
    /// What the store may have, or not: its answer was lost.
    unsure: Option<Arc<Instructions>>,
}

/// Between two campaigns of which the store wants nothing to hear.
const RETRY: Duration = Duration::from_secs(1);
/// For the store to say what the leader before had planned.
const READING: Duration = Duration::from_secs(2);

/// Runs until it is stopped.
pub(crate) async fn run(
    shared: Arc<Shared>,
    election: Election,
    mut stopping: watch::Receiver<bool>,
) {
    let mut ticks = interval(shared.options.smoothing.period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut office: Option<Office> = None;
    let mut campaign = Box::pin(stand(&shared, &election));
    loop {
        tokio::select! {
            () = stopped(&mut stopping) => break,
            _ = ticks.tick() => period(&shared, &mut office).await,
            () = shared.wake.notified(), if office.is_some() => {
                let premises = shared.source.premises().await;
                go_on(&shared, &mut office, premises).await;
            }
            leadership = &mut campaign, if office.is_none() => {
                office = Some(enter(&shared, leadership).await);
                period(&shared, &mut office).await;
                campaign = Box::pin(stand(&shared, &election));
            }
            () = lost(&mut office), if office.is_some() => leave(&shared, &mut office),
        }
    }
    shared.known().leads_in = None;
    drop(campaign);
    if let Some(office) = office.take() {
        let _ = timeout(shared.options.time_to_live, office.leadership.resign()).await;
    }
}

/// Returns when the controller is told to stop.
pub(crate) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stop| *stop).await;
}

/// Becomes leader, however long that takes and however often the store says no.
async fn stand(shared: &Shared, election: &Election) -> Leadership {
    let refused = |error: &StoreError| shared.note_no_candidate(error);
    loop {
        match election.campaign_telling(&shared.options.name, refused).await {
            Ok(leadership) => {
                shared.known().cannot_lead = None;
                return leadership;
            }
            Err(error) => {
                refused(&error);
                sleep(RETRY).await;
            }
        }
    }
}

async fn lost(office: &mut Option<Office>) {
    match office {
        Some(office) => office.leadership.lost().await,
        None => std::future::pending().await,
    }
}

fn leave(shared: &Shared, office: &mut Option<Office>) {
    tracing::warn!("this controller leads no more; instructions go on");
    *office = None;
    shared.known().leads_in = None;
    shared.note_no_writer();
}

/// Takes over: what was planned last is in the store.
async fn enter(shared: &Shared, leadership: Leadership) -> Office {
    let created = leadership.term();
    tracing::info!(term = %created, "this controller leads");
    let read = timeout(READING, shared.store.get(&shared.keys.plan)).await;
    match read {
        Ok(read) => {
            shared.note_store(&read);
            if let Some(instructions) = read.ok().flatten().as_ref().and_then(read_instructions) {
                let edition = instructions.edition();
                tracing::info!(%edition, leader = instructions.leader, "going on from its plan");
                shared.publish(instructions);
            }
        }
        Err(_) => tracing::warn!("the store does not say what was planned; going on from memory"),
    }
    let term = OfficeTerm::after(created.0.0, shared.instructions.borrow().term);
    shared.known().leads_in = Some(term.get());
    Office { leadership, term, planned: None, written: None, unsure: None }
}

/// What is done each period.
async fn period(shared: &Shared, office: &mut Option<Office>) {
    let premises = shared.source.premises().await;
    let now = shared.now();
    let forgotten = {
        let mut roll = shared.roll();
        roll.settle_pools(now, premises.pools.keys());
        roll.forget_silent(now, shared.options.forget_after)
    };
    for node in &forgotten {
        tracing::info!(node, "silent for too long: forgotten");
        shared.recorder.forget(node);
    }
    go_on(shared, office, premises).await;
}

/// Plans, if it leads. As often as there is a reason to: a plan's steps are taken once, however many plans say them.
async fn go_on(shared: &Shared, office: &mut Option<Office>, premises: Premises) {
    shared.known().premises = premises.clone();
    let still_leads = match office {
        Some(office) => lead(shared, office, &premises).await,
        None => {
            probe(shared).await;
            return;
        }
    };
    if !still_leads {
        leave(shared, office);
    }
}

/// Who does not lead asks the store something now and then, so as to say when it is gone.
async fn probe(shared: &Shared) {
    let asked = timeout(shared.options.smoothing.period, shared.store.get(&shared.keys.plan)).await;
    match asked {
        Ok(answer) => shared.note_store(&answer),
        Err(late) => shared.note_failure(&late),
    }
}

/// Plans, writes, publishes. Returns whether it still leads.
async fn lead(shared: &Shared, office: &mut Office, premises: &Premises) -> bool {
    if !office.leadership.is_held() {
        return false;
    }
    let before = shared.instructions.borrow().clone();
    overtake(shared, office, &before);
    let rosters = settle(shared, office, &before).await;
    let period = shared.options.smoothing.period;
    let began = Instant::now();
    let passed = office.planned.map_or(period, |planned| began - planned);
    let term = office.term.get();
    let base = rosters.as_ref().unwrap_or(&before.rosters);
    let Some(draft) = shared.draft(premises, &before, base, term, passed) else { return true };
    shared.counts.planned(began.elapsed());
    office.planned = Some(began);
    let mut instructions = instructions(shared, term, draft, &before);
    let is_sure = rosters.is_some();
    if is_sure && is_to_be_written(office, &instructions, shared.options.write_every) {
        let new = Arc::new(instructions.clone());
        match write(shared, &office.leadership, &new).await {
            Ok(true) => {
                office.term.stored();
                office.written = Some((Instant::now(), new));
            }
            Ok(false) => return false,
            // Nobody else can lead while the lease is surely held, so instructions need not wait for the store.
            Err(()) if office.leadership.is_held() => {
                office.unsure = Some(new);
                hold(&mut instructions, &before);
            }
            Err(()) => return false,
        }
    } else if !is_sure {
        hold(&mut instructions, &before);
    }
    if office.term.is_stored() {
        shared.publish(instructions);
    }
    true
}

/// Takes a later term if nodes go by later instructions than any that this leader knows.
fn overtake(shared: &Shared, office: &mut Office, before: &Instructions) {
    let roll = shared.roll();
    let said = roll.members().iter();
    let said = said.filter_map(|(node, member)| Some((node.as_str(), member.applied?)));
    for claim in office.term.hear(before.edition(), said) {
        match claim {
            Claim::Overtaken { node, claimed } => {
                office.written = None;
                let term = office.term.get();
                tracing::warn!(
                    node, %claimed, term,
                    "a node goes by later instructions than this store knows of: unless that node lies, the store was put back \
                     from an older copy, or made anew. Plans go on in a later term. What the store has forgotten is undone: nodes that were \
                     evicted since may come back, and tokens that were used or revoked since are good again. Evict and \
                     revoke again (the audit log has what was done), and see to backends that scripts or a service made since"
                );
            }
            Claim::Disbelieved { node, claimed } => {
                tracing::warn!(node, %claimed, "a node says that it goes by instructions that cannot be: not believed");
            }
        }
    }
    drop(roll);
    shared.known().leads_in = Some(office.term.get());
}

fn instructions(shared: &Shared, term: u64, draft: Draft, before: &Instructions) -> Instructions {
    let Draft { plan, members, rosters, sources } = draft;
    Instructions {
        term,
        generation: plan.generation.0,
        leader: shared.options.name.clone(),
        period: shared.options.smoothing.period,
        members,
        plan,
        rosters,
        sources,
        // For as long as the cluster lives: nodes go over to newer instructions one after the other.
        dispatch_secret: Some(before.dispatch_secret.clone().unwrap_or_else(Secret::random)),
    }
}

/// The rosters to go on from. After a write whose answer was lost, those that the store has; `None` while it does not
/// say: then no pool is scaled, since others may have read what we do not know to be there.
async fn settle(
    shared: &Shared,
    office: &mut Office,
    before: &Instructions,
) -> Option<BTreeMap<String, Roster>> {
    let Some(unsure) = &office.unsure else { return Some(before.rosters.clone()) };
    let patience = shared.options.smoothing.period.max(Duration::from_millis(500));
    let read = match timeout(patience, shared.store.get(&shared.keys.plan)).await {
        Ok(read) => read,
        Err(late) => {
            shared.note_failure(&late);
            return None;
        }
    };
    shared.note_store(&read);
    let stored = read.ok()?.as_ref().and_then(read_instructions);
    let is_there = stored.is_some_and(|stored| stored.edition() == unsure.edition());
    let rosters = if is_there { unsure.rosters.clone() } else { before.rosters.clone() };
    office.unsure = None;
    Some(rosters)
}

/// Leaves the sizes of pools as they were before: nothing is made or taken away that is not written down.
fn hold(instructions: &mut Instructions, before: &Instructions) {
    instructions.rosters.clone_from(&before.rosters);
    for (name, pool) in &mut instructions.plan.pools {
        if before.rosters.contains_key(name) {
            pool.scaling = before.plan.pools.get(name).and_then(|was| was.scaling.clone());
            if let Some(scaling) = &mut pool.scaling {
                scaling.action = Scaling::Hold;
                scaling.reason = "the store does not answer: nothing is changed".to_string();
            }
        }
    }
}

/// Whether the store has it: `Ok(false)` if it has another leader.
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
        Err(late) => {
            shared.note_unwritten(&late);
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
            tracing::warn!(%refusal, "the store has another leader");
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

/// Rosters without what changes of itself.
fn settled(rosters: &BTreeMap<String, Roster>) -> BTreeMap<&String, Roster> {
    rosters.iter().map(|(pool, roster)| (pool, roster.settled())).collect()
}

/// Whether something else is done than was written: more than shares that have moved a little.
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
