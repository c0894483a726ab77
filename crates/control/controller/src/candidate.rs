//! The main task of a controller. Each period it processes the reports that arrived; it campaigns
//! for leadership, takes it and gives it up.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use equipoise_store::{Election, Leadership, StoreError};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::failing::Late;
use crate::leader::{Office, lead};
use crate::options::Premises;
use crate::shared::{Shared, read_instructions};
use crate::term::OfficeTerm;

/// Interval between campaigns that the store did not accept.
const RETRY: Duration = Duration::from_secs(1);
/// Timeout of reading the plan of the previous leader.
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
    let mut campaign: Option<Campaign<'_>> = None;
    loop {
        campaign = match office.is_none() && shared.may_stand() {
            true => campaign.or_else(|| Some(Box::pin(stand(&shared, &election)))),
            // A pending campaign is dropped; its lease expires.
            false => None,
        };
        tokio::select! {
            () = stopped(&mut stopping) => break,
            _ = ticks.tick() => period(&shared, &mut office).await,
            () = shared.wake.notified(), if office.is_some() => {
                let premises = shared.source.premises().await;
                go_on(&shared, &mut office, premises).await;
            }
            // A change at other controllers may change whether this one campaigns.
            () = shared.others_hear.notified(), if office.is_none() => {}
            leadership = won(&mut campaign) => {
                office = Some(enter(&shared, leadership).await);
                period(&shared, &mut office).await;
            }
            () = lost(&mut office), if office.is_some() => leave(&shared, &mut office),
        }
    }
    shared.known().leads_in = None;
    drop(campaign);
    if let Some(office) = office.take() {
        resign(&shared, office).await;
    }
}

/// A campaign for leadership.
type Campaign<'a> = Pin<Box<dyn Future<Output = Leadership> + Send + 'a>>;

async fn won(campaign: &mut Option<Campaign<'_>>) -> Leadership {
    match campaign {
        Some(campaign) => campaign.await,
        None => std::future::pending().await,
    }
}

async fn resign(shared: &Shared, office: Office) {
    let _ = timeout(shared.options.time_to_live, office.leadership.resign()).await;
}

/// Returns when the controller is stopped.
pub(crate) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stop| *stop).await;
}

/// Campaigns until this controller is leader, whatever errors the store returns.
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
    tracing::warn!(
        event = "controller.leadership-lost",
        "this controller lost leadership; nodes keep their instructions"
    );
    *office = None;
    shared.known().leads_in = None;
    shared.note_no_writer();
}

/// Starts a leadership, from the last plan in the store.
async fn enter(shared: &Shared, leadership: Leadership) -> Office {
    let created = leadership.term();
    tracing::info!(event = "controller.leads", term = %created, "this controller leads");
    let read = timeout(READING, shared.store.get(&shared.keys.plan)).await;
    match read {
        Ok(read) => {
            shared.note_store(&read);
            if let Some(instructions) = read.ok().flatten().as_ref().and_then(read_instructions) {
                let edition = instructions.edition();
                tracing::info!(%edition, leader = instructions.leader, "continuing from the stored plan");
                shared.publish(instructions);
            }
        }
        Err(_) => tracing::warn!("the store did not return the last plan; continuing from memory"),
    }
    let term = OfficeTerm::after(created.0.0, shared.instructions.borrow().term);
    shared.known().leads_in = Some(term.get());
    Office {
        leadership,
        term,
        planned: None,
        written: None,
        unsure: None,
        refused: BTreeSet::new(),
    }
}

/// The work of one period.
async fn period(shared: &Shared, office: &mut Option<Office>) {
    let premises = shared.source.premises().await;
    let now = shared.now();
    let witnesses = Arc::clone(&shared.known().hearing.witnesses);
    let enrolled = shared.instructions.borrow().members.clone();
    let forgotten = {
        let mut roll = shared.roll();
        roll.settle_pools(now, premises.pools.keys(), &enrolled, &witnesses);
        roll.forget_silent(now, shared.options.forget_after, &witnesses)
    };
    for node in &forgotten {
        tracing::info!(
            event = "node.forgotten",
            subject = node,
            node,
            "forgot a member that was silent for too long"
        );
        shared.recorder.forget(node);
    }
    go_on(shared, office, premises).await;
}

/// Plans, if this controller leads. It also runs between periods when there is a reason: a plan's
/// rosters contain its scaling steps, so the next plan sees them.
async fn go_on(shared: &Shared, office: &mut Option<Office>, premises: Premises) {
    shared.known().premises = premises.clone();
    shared.listen();
    if shared.is_to_resign()
        && let Some(office) = office.take()
    {
        tracing::warn!(
            event = "controller.resigned",
            "this controller resigned, because another receives more reports"
        );
        shared.known().leads_in = None;
        shared.note_no_writer();
        resign(shared, office).await;
    }
    let still_leads = match office {
        // A deaf leader publishes nothing, and the last plan stays in force.
        Some(office) if shared.is_deaf() => office.leadership.is_held(),
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

/// Reads from the store, so that a controller that does not lead also notices when the store fails.
async fn probe(shared: &Shared) {
    let patience = shared.options.smoothing.period;
    match timeout(patience, shared.store.get(&shared.keys.plan)).await {
        Ok(answer) => shared.note_store(&answer),
        Err(_) => shared.note_failure(&Late(patience)),
    }
}
