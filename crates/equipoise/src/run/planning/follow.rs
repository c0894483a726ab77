//! What this node does of its instructions.

use std::sync::Arc;

use equipoise_controller::{ControllerHandle, Edition, Instructions, Intake};
use equipoise_session::registry::RegistryHandle;
use tokio::sync::watch;

use super::Wish;
use super::peers::{Learnt, shares};
use super::scaling::Scalers;

/// Takes the steps of elastic pools that this process plans, each plan's once. What a leader before it planned has been
/// done already, or has not: the first plan of one's own says what is still to be done.
pub(super) async fn steps(controller: ControllerHandle, scalers: Arc<Scalers>) {
    let mut instructions = controller.instructions();
    while instructions.changed().await.is_ok() {
        let now = instructions.borrow_and_update().clone();
        let view = controller.cluster();
        if view.leads && view.term == Some(now.term) {
            scalers.scale(&now).await;
        }
    }
}

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
    /// Ends when nobody plans any more; what was planned last stays.
    pub(super) async fn follow(self, mut instructions: watch::Receiver<Arc<Instructions>>) {
        // Those that came before this began, too.
        instructions.mark_changed();
        while instructions.changed().await.is_ok() {
            let now = instructions.borrow_and_update().clone();
            if now.is_blank() {
                continue;
            }
            let wish = self.wish.borrow().clone();
            self.weights(&now, &wish).await;
            if wish.dispatches {
                self.dispatch(&now).await;
            }
            self.applied.send_replace(Some(now.edition()));
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

    /// Keeps and delegates as planned. Whoever is told of new peers puts them into the configuration.
    async fn dispatch(&self, now: &Instructions) {
        let learnt = Learnt::of(now, &self.node);
        self.learnt.send_if_modified(|known| {
            let is_new = *known != learnt;
            *known = learnt;
            is_new
        });
        // A node that the plan does not know yet goes on as before.
        if let Some(shares) = shares(now, &self.node)
            && let Err(error) = self.registry.set_shares(Some(shares)).await
        {
            tracing::debug!(%error, "planned shares were not followed");
        }
    }
}
