//! The report of this node in each period: to the controller of this process, or to those of its
//! cluster.

use std::sync::Arc;
use std::time::{Duration, Instant};

use equipoise_controller::{Intake, NodeReport, Pressure};
use equipoise_core::eligibility;
use equipoise_core::load::PerClass;
use equipoise_monitor::{Sample, Utilisation};
use equipoise_planner::Permits;
use equipoise_session::registry::{BackendState, ClassCounts, class_counts};

use super::meter::{ClassMeter, Counted, CountedQueue, Meter, QueueMeter};
use super::{Active, Planner};
use equipoise_basics::lock;

/// Glances at requests in flight in each period.
const GLANCES: u32 = 10;
/// Shortest interval between glances.
const GLANCE_MIN: Duration = Duration::from_millis(10);

/// Longest time that a process waits at its end until the controllers confirm that it leaves.
pub(in crate::run) const LEAVE_PATIENCE: Duration = Duration::from_secs(1);

impl Planner {
    /// Reports each period: to the controllers, or at least to the history.
    pub(super) async fn report(self: Arc<Self>) {
        let mut utilisation = self.utilisation.clone();
        let (mut meter, mut classes) = (Meter::default(), ClassMeter::default());
        let mut queue = QueueMeter::default();
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
            let requests = self.requests();
            let (backends, queues) = self.counted();
            let pools = self.scalers.sized(meter.settle(Instant::now(), &backends, &queues));
            let capacity = capacity(Some(&used));
            let serves = wish.application.as_ref().map(|pool| self.serves(pool));
            let queued = queue.settle(self.waiting());
            let permits = wish.application.as_ref().and_then(|pool| self.permits(pool, queued));
            let sightings = seen.as_ref().map(|seen| seen.borrow().clone()).unwrap_or_default();
            let report = NodeReport {
                dispatches: serves == Some(true),
                application_down: serves == Some(false),
                permits,
                classes: classes.settle(Instant::now(), &requests),
                version: env!("CARGO_PKG_VERSION").into(),
                capacity,
                load: NodeReport::load_of(&used),
                machine_cpu: used.cpu_machine_percent,
                pressure: Pressure::of(&used),
                pools,
                applied: *self.applied.borrow(),
                making: self.scalers.making(),
                drained: self.scalers.drained(&self.registry, &wish),
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
    pub(crate) async fn leave(&self) {
        if let Some(client) = self.seat.client() {
            let version = env!("CARGO_PKG_VERSION").into();
            let last = NodeReport { version, capacity: capacity(None), ..NodeReport::default() };
            client.leave(&last, LEAVE_PATIENCE).await;
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

    /// Requests by class so far, if this node dispatches.
    fn requests(&self) -> PerClass<ClassCounts> {
        let view = self.registry.stats();
        let doors: Vec<_> = view.front_doors.iter().map(|door| class_counts(&door.stats)).collect();
        PerClass::from_fn(|class| {
            let sum = |of: fn(&ClassCounts) -> u64| doors.iter().map(|door| of(&door[class])).sum();
            ClassCounts {
                arrived: sum(|it| it.arrived),
                delegated: sum(|it| it.delegated),
                given: sum(|it| it.given),
                refused: sum(|it| it.refused),
                taken: sum(|it| it.taken),
                handed_back: sum(|it| it.handed_back),
                bytes: sum(|it| it.bytes),
            }
        })
    }

    /// Whether the local application can serve. Without it the node would look idle and attract
    /// delegated requests.
    fn serves(&self, application: &str) -> bool {
        !self.able(application).is_empty()
    }

    /// Names of the application's backends that may receive requests.
    fn able(&self, application: &str) -> Vec<Arc<str>> {
        let pools = self.registry.pools().borrow().clone();
        let pool = pools.iter().find(|pool| &*pool.name == application);
        let fit = |it: &&BackendState| eligibility(it.admin, it.health, it.weight).is_eligible();
        let able = pool.into_iter().flat_map(|pool| &pool.backends).filter(fit);
        able.map(|backend| Arc::clone(&backend.name)).collect()
    }

    /// Requests that wait for the application, if this node dispatches.
    fn waiting(&self) -> usize {
        let Some(application) = self.wish.borrow().application.clone() else { return 0 };
        let view = self.registry.stats();
        let pool = view.pools.iter().find(|pool| pool.name == application);
        pool.map_or(0, |pool| pool.queue.len())
    }

    /// The permits of the application, with `queued` requests in its queue. `None` if it has no
    /// backend, or a backend without a limit.
    fn permits(&self, application: &str, queued: usize) -> Option<Permits> {
        let (view, able) = (self.registry.stats(), self.able(application));
        let pool = view.pools.iter().find(|pool| &*pool.name == application)?;
        let backends = pool.backends.iter().filter(|backend| able.contains(&backend.name));
        let free = backends.map(|it| it.live.permits_free());
        let free = free.sum::<Option<u32>>().filter(|_| !able.is_empty())?;
        Some(Permits { free, queued: u32::try_from(queued).unwrap_or(u32::MAX) })
    }

    /// Counters of backends and queues of planned pools behind front doors. In pools that only
    /// names or VIPs use, the counters would be 0 under any load.
    fn counted(&self) -> (Vec<Counted>, Vec<CountedQueue>) {
        let (view, wish) = (self.registry.stats(), self.wish.borrow().clone());
        let (mut counted, mut queues) = (Vec::new(), Vec::new());
        for pool in view.pools.iter().filter(|pool| wish.counts(&pool.name)) {
            queues.push(CountedQueue {
                pool: pool.name.clone(),
                waiting: pool.queue.len(),
                unserved: pool.queue.stats.sum(|shard| shard.unserved.get()),
            });
            for backend in &pool.backends {
                let (stats, held) = (&backend.live.stats, backend.live.permits_held());
                let answers = stats.histogram(|shard| &shard.response_time).counts;
                let permit_time_us = stats.sum(|shard| shard.permit_time_us.get());
                counted.push(Counted {
                    pool: pool.name.clone(),
                    backend: backend.name.clone(),
                    in_flight: held,
                    open: backend.live.in_flight().saturating_sub(held),
                    limit: backend.live.best_in_flight(),
                    is_guess: backend.live.is_limit_guess(),
                    given: stats.sum(|shard| shard.requests.get()),
                    answers: answers.iter().sum(),
                    permit_time: Duration::from_micros(permit_time_us),
                });
            }
        }
        (counted, queues)
    }
}

/// Processors that this process may use, a fraction within a quota. Before the monitor's first
/// sample, the standard library's number.
pub(in crate::run) fn capacity(used: Option<&Utilisation>) -> f64 {
    let whole = || std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
    used.and_then(|used| used.processors).filter(|it| *it > 0.0).unwrap_or_else(whole)
}
