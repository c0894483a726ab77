//! Applies instructions to this node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use equipoise_controller::{ControllerHandle, Edition, Enrolled, Instructions};
use equipoise_core::load::{PerClass, Shares};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::level::Steered;
use crate::peers::{Learnt, shares};
use crate::planning_config::PlanningConfig;
use crate::scaling::Scalers;

/// Applies the rosters of all instructions to the scalers, and forwards the newest instructions to
/// `newest`. After the first application it is known which backends the machine lost; `controller`,
/// the machine's own, then plans at once.
pub(crate) async fn rosters(
    scalers: Arc<Scalers>,
    mut instructions: watch::Receiver<Arc<Instructions>>,
    newest: Option<watch::Sender<Arc<Instructions>>>,
    controller: Option<ControllerHandle>,
) {
    // Instructions that arrived before this task started count too.
    instructions.mark_changed();
    while instructions.changed().await.is_ok() {
        let now = instructions.borrow_and_update().clone();
        if now.is_blank() {
            continue;
        }
        let is_first = scalers.obey(Arc::clone(&now)).await;
        if let Some(controller) = controller.as_ref().filter(|_| is_first) {
            controller.plan_soon();
        }
        if let Some(newest) = &newest {
            newest.send_replace(now);
        }
    }
}

/// Follows whether this node is evicted.
pub(crate) async fn evictions(scalers: Arc<Scalers>, mut is_evicted: watch::Receiver<bool>) {
    is_evicted.mark_changed();
    while is_evicted.changed().await.is_ok() {
        let now = *is_evicted.borrow_and_update();
        scalers.set_evicted(now).await;
    }
}

/// Periods without a newer plan after which refused requests are admitted again. The overload may
/// have ended, and without controllers no plan would say so. A standby controller takes over sooner
/// than this.
const REFUSAL_PERIODS: u32 = 15;

/// Applies plans to this node, whichever controller made them.
pub(crate) struct Follower {
    /// Name of this node in the plan.
    pub(crate) node: Arc<str>,
    pub(crate) level: Arc<dyn Steered>,
    pub(crate) wish: watch::Receiver<Arc<PlanningConfig>>,
    pub(crate) applied: watch::Sender<Option<Edition>>,
    pub(crate) learnt: watch::Sender<Learnt>,
}

impl Follower {
    /// Runs until no controller sends instructions any more. The last plan stays in effect, except
    /// for its refusals.
    pub(crate) async fn follow(self, mut instructions: watch::Receiver<Arc<Instructions>>) {
        // Instructions that arrived before this task started count too.
        instructions.mark_changed();
        let mut refusing: Option<Refusing> = None;
        loop {
            let news = match &refusing {
                None => Some(instructions.changed().await),
                Some(it) => timeout(it.period * REFUSAL_PERIODS, instructions.changed()).await.ok(),
            };
            let Some(Ok(())) = news else {
                if let Some(refusing) = refusing.take() {
                    self.let_in(&refusing.shares).await;
                }
                match news {
                    None => continue,
                    Some(_) => return,
                }
            };
            let now = instructions.borrow_and_update().clone();
            if now.is_blank() {
                continue;
            }
            let wish = self.wish.borrow().clone();
            self.weights(&now, &wish).await;
            refusing = match &wish.application {
                Some(application) => {
                    self.set_room(&now, application);
                    self.dispatch(&now).await
                }
                None => None,
            };
            self.applied.send_replace(Some(now.edition()));
        }
    }

    /// Stops refusing requests; keeps and delegates as before.
    async fn let_in(&self, shares: &Shares) {
        tracing::warn!(
            event = "plan.missing",
            "no plan for {REFUSAL_PERIODS} periods: this node admits refused requests again. Check that a controller runs"
        );
        let shares = Shares { refuse: PerClass::default(), ..shares.clone() };
        if let Err(error) = self.level.set_shares(Arc::new(shares)).await {
            tracing::debug!(%error, "could not admit refused requests again");
        }
    }

    /// Sets the planned weights of pools.
    async fn weights(&self, now: &Instructions, wish: &PlanningConfig) {
        for (pool, plan) in now.plan.pools.iter().filter(|(pool, _)| wish.weighs(pool)) {
            let weights = plan.weights.iter().map(|(name, it)| (name.clone(), it.weight));
            if let Err(error) = self.level.set_planned(pool, weights.collect()).await {
                tracing::debug!(%error, "planned weights name a pool that a reload removed");
            }
        }
    }

    /// Applies the room that peers reported.
    fn set_room(&self, now: &Instructions, application: &str) {
        let room = |(name, member): (&String, &Enrolled)| {
            member.permits.map(|permits| (name.clone(), permits.room()))
        };
        let rooms: BTreeMap<String, u32> = now.members.iter().filter_map(room).collect();
        self.level.set_room(application, &rooms);
    }

    /// Applies the planned shares: keep, delegate, refuse. Returns the refusals, if there are any.
    /// The receiver of `learnt` adds new peers to the configuration.
    async fn dispatch(&self, now: &Instructions) -> Option<Refusing> {
        let learnt = Learnt::of(now, &self.node);
        self.learnt.send_if_modified(|known| {
            let is_new = *known != learnt;
            *known = learnt;
            is_new
        });
        // A node that the plan does not know yet continues as before.
        let shares = shares(now, &self.node)?;
        if let Err(error) = self.level.set_shares(Arc::clone(&shares)).await {
            tracing::debug!(%error, "could not apply the planned shares");
        }
        let refuses = shares.refuse != PerClass::default();
        refuses.then_some(Refusing { shares, period: now.period })
    }
}

/// Shares with refusals, and the period after which the next plan is due.
struct Refusing {
    shares: Arc<Shares>,
    period: Duration,
}

#[cfg(test)]
mod tests;
