//! The parts that only one process can have: the controller's store and addresses, the leadership
//! of streams, the packet level's engine, orders of certificates.

use equipoise_handover::BackendState;
use equipoise_planes::PacketWish;

use crate::run::control::Control;
use crate::run::planning::planning_config;

impl Control {
    /// Stops these parts, so that a new process can start them, and returns the states that it
    /// takes over. The packet level's program goes on forwarding.
    pub(super) async fn release(&self) -> Result<Vec<BackendState>, String> {
        self.levels.orders.follow(None);
        self.levels.planner.stop().await;
        self.levels.slices.stop().await;
        self.upgrades.note_packet(self.packet_status().await);
        self.levels.packet.leave_running().await;
        self.levels.registry.to_inherit().await.map_err(|error| error.to_string())
    }

    /// Starts them again: the new process has failed.
    pub(super) async fn resume(&self) {
        let config = self.config.lock().await;
        let session = self.session(&config.session, &config.discovery);
        let wish = PacketWish::new(config.packet.clone(), session.pools);
        let pools = self.levels.registry.pools().borrow().clone();
        if let Err(error) = self.levels.packet.follow(wish, &pools).await {
            tracing::error!("could not start the packet level again: {error:#}");
        }
        if let Err(error) = self.levels.slices.follow(&config.slices).await {
            tracing::error!("could not start the slice level again: {error:#}");
        }
        self.levels.planner.follow(planning_config(&config)).await;
        self.levels.orders.follow(config.acme.clone());
        self.sync_levels().await;
    }
}
