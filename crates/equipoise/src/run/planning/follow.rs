//! What this node does of its instructions.

use std::sync::Arc;
use std::time::Duration;

use equipoise_controller::{ControllerHandle, Edition, Instructions};
use equipoise_core::load::PerClass;
use equipoise_session::dispatch::Shares;
use equipoise_session::registry::RegistryHandle;
use tokio::sync::watch;
use tokio::time::timeout;

use super::Wish;
use super::peers::{Learnt, shares};
use super::scaling::Scalers;
use crate::config::peers_of;

/// Makes what rosters say, whoever leads, and gives the newest instructions to `newest`. The machine's own controller, if it
/// is given, plans at once after what the machine has lost is known.
pub(super) async fn rosters(
    scalers: Arc<Scalers>,
    mut instructions: watch::Receiver<Arc<Instructions>>,
    newest: Option<watch::Sender<Arc<Instructions>>>,
    controller: Option<ControllerHandle>,
) {
    // Those that came before this began, too.
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

/// Follows whether operators have evicted this node.
pub(super) async fn evictions(scalers: Arc<Scalers>, mut is_evicted: watch::Receiver<bool>) {
    is_evicted.mark_changed();
    while is_evicted.changed().await.is_ok() {
        let now = *is_evicted.borrow_and_update();
        scalers.set_evicted(now).await;
    }
}

/// What is refused is let in again after so many periods without a newer plan: the crowd may have gone long ago, and with the
/// controllers gone nobody would say so. Another controller takes a lost one's place sooner.
const REFUSAL_PERIODS: u32 = 15;

/// Does what is planned of this node, whoever plans it.
pub(super) struct Follower {
    /// This node, as the plan has it.
    pub(super) node: Arc<str>,
    pub(super) registry: RegistryHandle,
    pub(super) wish: watch::Receiver<Arc<Wish>>,
    pub(super) applied: watch::Sender<Option<Edition>>,
    pub(super) learnt: watch::Sender<Learnt>,
}

impl Follower {
    /// Ends when nobody plans any more; what was planned last stays, but for what is refused.
    pub(super) async fn follow(self, mut instructions: watch::Receiver<Arc<Instructions>>) {
        // Those that came before this began, too.
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

    /// Refuses nobody any more; keeps and delegates as before.
    async fn let_in(&self, shares: &Shares) {
        tracing::warn!(
            "nothing was planned for {REFUSAL_PERIODS} periods: what was refused is let in again. Is a controller there?"
        );
        let shares = Shares { refuse: PerClass::default(), ..shares.clone() };
        if let Err(error) = self.registry.set_shares(Some(Arc::new(shares))).await {
            tracing::debug!(%error, "what was refused is not let in again");
        }
    }

    /// Gives pools the weights that are planned.
    async fn weights(&self, now: &Instructions, wish: &Wish) {
        for (pool, plan) in now.plan.pools.iter().filter(|(pool, _)| wish.weighs(pool)) {
            let weights = plan.weights.iter().map(|(name, it)| (name.clone(), it.weight));
            // Nothing follows from what is so already.
            if let Err(error) = self.registry.set_planned(pool, weights.collect()).await {
                tracing::debug!(%error, "planned weights have no pool: a reload took it away");
            }
        }
    }

    /// Uses the room that peers reported, where no response of theirs says more. What waits may then leave.
    fn set_room(&self, now: &Instructions, application: &str) {
        let view = self.registry.stats();
        let pool = |name: &str| view.pools.iter().find(|pool| &*pool.name == name);
        let Some(peers) = pool(&peers_of(application)) else { return };
        for peer in &peers.backends {
            if let Some(permits) = now.members.get(&*peer.name).and_then(|member| member.permits) {
                peer.live.set_reported_room(permits.room());
            }
        }
        if let Some(pool) = pool(application) {
            pool.queue.look();
        }
    }

    /// Keeps, delegates and refuses as planned; what is refused, if anything is. Whoever is told of new peers puts them into the
    /// configuration.
    async fn dispatch(&self, now: &Instructions) -> Option<Refusing> {
        let learnt = Learnt::of(now, &self.node);
        self.learnt.send_if_modified(|known| {
            let is_new = *known != learnt;
            *known = learnt;
            is_new
        });
        // A node that the plan does not know yet goes on as before.
        let shares = shares(now, &self.node)?;
        if let Err(error) = self.registry.set_shares(Some(Arc::clone(&shares))).await {
            tracing::debug!(%error, "planned shares were not followed");
        }
        let refuses = shares.refuse != PerClass::default();
        refuses.then_some(Refusing { shares, period: now.period })
    }
}

/// Shares by which something is refused, of a plan that is followed by another after this period.
struct Refusing {
    shares: Arc<Shares>,
    period: Duration,
}

#[cfg(test)]
mod tests;
