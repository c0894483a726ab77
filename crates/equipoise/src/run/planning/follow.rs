//! What this node does of its instructions.

use std::sync::Arc;

use equipoise_controller::{ControllerHandle, Edition, Instructions, Intake};
use equipoise_session::registry::RegistryHandle;
use tokio::sync::watch;

use super::Wish;
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

/// In a cluster: does what rosters say, and tells the newest instructions to whoever wants to know.
pub(super) async fn rosters(
    scalers: Arc<Scalers>,
    mut instructions: watch::Receiver<Arc<Instructions>>,
    newest: watch::Sender<Arc<Instructions>>,
) {
    // Those that came before this began, too.
    instructions.mark_changed();
    while instructions.changed().await.is_ok() {
        let now = instructions.borrow_and_update().clone();
        if !now.is_blank() {
            scalers.obey(Arc::clone(&now)).await;
            newest.send_replace(now);
        }
    }
}

/// Gives pools the weights that are planned, whoever plans them; ends when nobody plans any more, and they stay.
pub(super) async fn weights(
    registry: RegistryHandle,
    wish: watch::Receiver<Arc<Wish>>,
    mut instructions: watch::Receiver<Arc<Instructions>>,
    applied: watch::Sender<Option<Edition>>,
) {
    // Those that came before this began, too.
    instructions.mark_changed();
    while instructions.changed().await.is_ok() {
        let now = instructions.borrow_and_update().clone();
        if now.is_blank() {
            continue;
        }
        let wish = wish.borrow().clone();
        for (pool, plan) in now.plan.pools.iter().filter(|(pool, _)| wish.weighs(pool)) {
            let weights = plan.weights.iter().map(|(name, it)| (name.clone(), it.weight));
            // Nothing follows from what is so already.
            if let Err(error) = registry.set_planned(pool, weights.collect()).await {
                tracing::debug!(%error, "planned weights have no pool: a reload took it away");
            }
        }
        applied.send_replace(Some(now.edition()));
    }
}
