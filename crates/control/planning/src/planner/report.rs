//! The report of this node in each period: to the controller of this process, or to those of its
//! cluster.

use std::sync::Arc;
use std::time::{Duration, Instant};

use equipoise_basics::lock;
use equipoise_controller::{Intake, NodeReport, Pressure};
use equipoise_monitor::Sample;
use equipoise_planner::Permits;

use super::{Active, Planner};
use crate::meter::{
    BackendCounts, ClassMeter, Meter, OccupancyMeter, PermitCounts, QueueCounts, QueueMeter,
};
use crate::monitor::capacity;

/// Glances at requests in flight in each period.
const GLANCES: u32 = 10;
/// Shortest interval between glances.
const GLANCE_MIN: Duration = Duration::from_millis(10);

/// Longest time that a process waits at its end until the controllers confirm that it leaves.
pub const LEAVE_PATIENCE: Duration = Duration::from_secs(1);

impl Planner {
    /// Reports each period: to the controllers, or at least to the history.
    pub(super) async fn report(self: Arc<Self>) {
        let mut utilisation = self.utilisation.clone();
        let (mut meter, mut classes) = (Meter::default(), ClassMeter::default());
        let (mut queue, mut occupancy) = (QueueMeter::default(), OccupancyMeter::default());
        let mut glances = tokio::time::interval((self.period / GLANCES).max(GLANCE_MIN));
        glances.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let newest = self.newest.subscribe();
        let seen = self.seat.look_out(&self.instance, newest, self.period);
        loop {
            let controller = self.controller().ok();
            let reports = controller.is_some() || self.seat.client().is_some();
            let glancing = reports && self.wish.borrow().counts_anything();
            tokio::select! {
                changed = utilisation.changed() => if changed.is_err() { return },
                _ = glances.tick(), if glancing => {
                    let (backends, queues) = self.counted();
                    meter.glance(&backends, &queues);
                    queue.glance(self.waiting());
                    occupancy.glance(self.permits(), self.waiting());
                    continue;
                }
            }
            let Some(used) = utilisation.borrow_and_update().clone() else { continue };
            if !reports {
                self.recorder.record(&self.instance, Sample::from(&used));
                continue;
            }
            let wish = self.wish.borrow().clone();
            let place = self.seat.place().await;
            let requests = self.level.requests();
            let (backends, queues) = self.counted();
            let pools = self.scalers.sized(meter.settle(Instant::now(), &backends, &queues));
            let capacity = capacity(Some(&used));
            let serves = wish.application.as_ref().map(|pool| self.level.serves(pool));
            let queued = queue.settle(self.waiting());
            let permits = self.permits();
            let sightings = seen.as_ref().map(|seen| seen.borrow().clone()).unwrap_or_default();
            let report = NodeReport {
                dispatches: serves == Some(true),
                application_down: serves == Some(false),
                permits: permits.map(|it| with_queue(it, queued)),
                occupancy: occupancy.settle(permits, self.waiting()),
                classes: classes.settle(Instant::now(), &requests),
                version: env!("CARGO_PKG_VERSION").into(),
                capacity,
                load: NodeReport::load_of(&used),
                machine_cpu: used.cpu_machine_percent,
                pressure: Pressure::of(&used),
                pools,
                applied: *self.applied.borrow(),
                making: self.scalers.making(),
                drained: self.scalers.drained(&*self.level, &wish),
                names: wish.names(),
                sources: lock(&self.sources).clone(),
                reachable: sightings.reachable,
                refused: sightings.refused,
                tallies: self.tallies(),
                ..place
            };
            if let Some(client) = self.seat.client() {
                client.report(&report);
            }
            self.tell_peers(&report);
            let Some(controller) = controller else { continue };
            if let Err(error) = controller.report(&self.instance, report).await {
                tracing::debug!(%error, "the controller did not accept this node's report");
            }
            self.hear_balancers(controller.tallies(&self.instance));
        }
    }

    /// Reports to the controllers that this node leaves: the backends that it created have ended.
    pub async fn leave(&self) {
        if let Some(client) = self.seat.client() {
            let version = env!("CARGO_PKG_VERSION").into();
            let last = NodeReport { version, capacity: capacity(None), ..NodeReport::default() };
            client.leave(&last, LEAVE_PATIENCE).await;
        }
    }

    /// Stops reports without announcing that the node leaves: another process continues as this
    /// node.
    pub fn hand_over(&self) {
        if let Some(client) = self.seat.client() {
            client.stop_reports();
        }
    }

    /// Sends the report to the cluster's other controllers.
    fn tell_peers(&self, report: &NodeReport) {
        if let Active::Running(running) = &*lock(&self.active)
            && let Some(server) = &running.server
        {
            server.tell_peers(report);
        }
    }

    /// Requests that wait for the application, if this node dispatches.
    fn waiting(&self) -> usize {
        let application = self.wish.borrow().application.clone();
        application.map_or(0, |pool| self.level.waiting(&pool))
    }

    /// The permits of the application, if this node dispatches. `None` if it has no backend, or a
    /// backend without a limit.
    fn permits(&self) -> Option<PermitCounts> {
        let application = self.wish.borrow().application.clone();
        self.level.permits(&application?)
    }

    /// Counters of backends and queues of planned pools behind front doors. In pools that only
    /// names or VIPs use, the counters would be 0 under any load.
    fn counted(&self) -> (Vec<BackendCounts>, Vec<QueueCounts>) {
        let wish = self.wish.borrow().clone();
        self.level.counted(&|pool| wish.counts(pool))
    }
}

/// Permits for peers, with `queued` requests in the application's queue.
fn with_queue(permits: PermitCounts, queued: usize) -> Permits {
    Permits { free: permits.free, queued: u32::try_from(queued).unwrap_or(u32::MAX) }
}
