//! Learned limits of backends that several balancers of the cluster share: each reports what it
//! knows, and hears of the others in the answers.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use equipoise_controller::{NodeReport, SharedBackend, Tallies};
use equipoise_core::concurrency::Tally;
use equipoise_session::config::Place;
use equipoise_session::registry::{BackendSeries, StatsView};
use tokio::time::{Instant, timeout};

use super::Planner;

/// Answers that are older count as none: then each balancer learns alone.
const AGE_MAX: Duration = Duration::from_secs(3);

/// Limits are shared if nodes report this often. The learner takes into account how old reports
/// are.
const PERIOD_MAX: Duration = Duration::from_secs(1);

/// This process among those that share limits.
#[derive(Debug)]
pub(super) struct Balancer {
    /// Its number, unlike that of any other process.
    id: u64,
    /// Its machine and network namespace: where a loopback address is the same backend.
    machine: String,
}

impl Balancer {
    pub(super) fn new() -> Balancer {
        Balancer { id: rand::random(), machine: machine() }
    }

    /// The backend as all balancers name it.
    fn name(&self, pool: &str, backend: &BackendSeries) -> SharedBackend {
        let place = backend.place.text(backend.address);
        let mut addresses = backend.place.addresses(&backend.address).iter();
        let is_local = matches!(backend.place, Place::Socket(_))
            || addresses.any(|address| address.ip().to_canonical().is_loopback());
        match is_local {
            true => format!("{pool} {place} at {}", self.machine),
            false => format!("{pool} {place}"),
        }
    }

    /// Tallies of the backends that have had work lately and whose limits are learned.
    fn tallies(&self, view: &StatsView) -> BTreeMap<SharedBackend, Tally> {
        let mut tallies = BTreeMap::new();
        for pool in &view.pools {
            for backend in &pool.backends {
                let Some(tally) = backend.live.tally() else { continue };
                let tally = Tally { balancer: self.id, ..tally };
                tallies.insert(self.name(&pool.name, backend), tally);
            }
        }
        while tallies.len() > NodeReport::TALLIES_MAX {
            tallies.pop_last();
        }
        tallies
    }

    /// Gives each backend what other balancers know of it.
    fn hear(&self, view: &StatsView, mut tallies: Tallies) {
        for pool in &view.pools {
            for backend in pool.backends.iter().filter(|it| it.live.tally().is_some()) {
                let others = tallies.remove(&self.name(&pool.name, backend));
                backend.live.hear_balancers(self.id, others.unwrap_or_default());
            }
        }
    }
}

/// A text that differs between machines, between boots and between network namespaces.
fn machine() -> String {
    let mut hasher = DefaultHasher::new();
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().hash(&mut hasher);
    let space = std::fs::metadata("/proc/self/ns/net").ok();
    space.map(|it| (it.dev(), it.ino())).hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

impl Planner {
    fn shares_limits(&self) -> bool {
        self.is_in_cluster() && self.period <= PERIOD_MAX
    }

    /// Tallies of backends that other balancers may have, too.
    pub(super) fn tallies(&self) -> BTreeMap<SharedBackend, Tally> {
        match self.shares_limits() {
            true => self.balancer.tallies(&self.registry.stats()),
            false => BTreeMap::new(),
        }
    }

    /// Takes tallies that this controller has of other balancers, as a node takes the answers of
    /// controllers.
    pub(super) fn hear_balancers(&self, tallies: Tallies) {
        if self.shares_limits() {
            self.balancer.hear(&self.registry.stats(), tallies);
        }
    }

    /// On a node: takes what controllers answer of other balancers, and none while they do not
    /// answer.
    pub(super) async fn follow_balancers(self: Arc<Self>) {
        let Some(mut heard) = self.seat.client().map(|client| client.tallies()) else { return };
        let mut last: Option<Instant> = None;
        loop {
            if let Ok(Err(_)) = timeout(AGE_MAX, heard.changed()).await {
                return;
            }
            // Each controller answers each report.
            if last.is_some_and(|last| last.elapsed() < self.period / 2) {
                continue;
            }
            last = Some(Instant::now());
            let newest = heard.borrow_and_update().newest(Instant::now(), AGE_MAX);
            self.hear_balancers(newest);
        }
    }
}
