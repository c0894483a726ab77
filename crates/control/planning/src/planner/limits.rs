//! Shares learned concurrency limits, and limits on clients, between the balancers of a cluster.
//! Each reports its measurements, and receives those of the others in the answers.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant as StdInstant};

use equipoise_basics::lock;
use equipoise_controller::{NodeReport, SharedBackend, Tallies};
use equipoise_core::concurrency::Tally;
use tokio::time::{Instant, timeout};

use super::Planner;
use super::client_limits::Demands;
use crate::level::{LearningBackend, Measured, Steered};

/// Largest age of an answer that is used. Without a recent answer each balancer learns alone.
const AGE_MAX: Duration = Duration::from_secs(3);

/// Longest reporting period with which limits are shared. The learner takes the age of reports into
/// account.
const PERIOD_MAX: Duration = Duration::from_secs(1);

/// The identity of this process among the balancers that share limits.
#[derive(Debug)]
pub(super) struct Balancer {
    /// A random number that identifies the process.
    id: u64,
    /// Machine and network namespace: within one, a loopback address is the same backend.
    machine: String,
    /// Demands for limits on clients.
    demands: Mutex<Demands>,
}

impl Balancer {
    pub(super) fn new() -> Balancer {
        Balancer { id: rand::random(), machine: machine(), demands: Mutex::default() }
    }

    /// The name of a backend that is the same in all balancers.
    fn name(&self, backend: &LearningBackend) -> SharedBackend {
        let LearningBackend { pool, place, is_local } = backend;
        match is_local {
            true => format!("{pool} {place} at {}", self.machine),
            false => format!("{pool} {place}"),
        }
    }

    /// Tallies of shared limits on clients, and of backends that had work recently and learn their
    /// limit.
    fn tallies(&self, level: &dyn Measured) -> BTreeMap<SharedBackend, Tally> {
        let own = level.tallies().into_iter();
        let one = |(backend, tally)| (self.name(&backend), Tally { balancer: self.id, ..tally });
        let mut tallies = lock(&self.demands).measure(level, self.id, StdInstant::now());
        tallies.extend(own.map(one));
        while tallies.len() > NodeReport::TALLIES_MAX {
            tallies.pop_last();
        }
        tallies
    }

    /// Sets the shares of limits on clients.
    fn share_limits(&self, level: &dyn Steered, tallies: &Tallies) {
        lock(&self.demands).share(level, tallies);
    }

    /// Gives each backend the tallies of other balancers.
    fn hear(&self, level: &dyn Steered, mut tallies: Tallies) {
        let mut others =
            |backend: &LearningBackend| tallies.remove(&self.name(backend)).unwrap_or_default();
        level.hear_balancers(self.id, &mut others);
    }
}

/// A text that differs between machines, boots and network namespaces.
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

    /// Tallies of backends that other balancers may use too.
    pub(super) fn tallies(&self) -> BTreeMap<SharedBackend, Tally> {
        match self.shares_limits() {
            true => self.balancer.tallies(&*self.level),
            false => BTreeMap::new(),
        }
    }

    /// Applies the tallies of other balancers in a recent answer of a controller.
    pub(super) fn hear_balancers(&self, tallies: Tallies) {
        if self.shares_limits() {
            self.balancer.share_limits(&*self.level, &tallies);
            self.balancer.hear(&*self.level, tallies);
        }
    }

    /// On a node: applies the tallies in the controllers' answers. While no controller answers,
    /// each backend's limit is learned alone, and limits on clients keep their shares: together,
    /// nodes that are cut off admit no more than before.
    pub(super) async fn follow_balancers(self: Arc<Self>) {
        let Some(mut heard) = self.seat.client().map(|client| client.tallies()) else { return };
        let mut last: Option<Instant> = None;
        loop {
            if let Ok(Err(_)) = timeout(AGE_MAX, heard.changed()).await {
                return;
            }
            // Every controller answers every report; one answer for each period is enough.
            if last.is_some_and(|last| last.elapsed() < self.period / 2) {
                continue;
            }
            last = Some(Instant::now());
            let now = Instant::now();
            let heard = heard.borrow_and_update();
            match heard.is_recent(now, AGE_MAX) {
                true => self.hear_balancers(heard.newest(now, AGE_MAX)),
                false if self.shares_limits() => {
                    self.balancer.hear(&*self.level, Tallies::new());
                }
                false => {}
            }
        }
    }
}
