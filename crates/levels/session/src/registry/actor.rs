use std::collections::HashMap;
use std::future;
use std::sync::{Arc, RwLock};
use std::time::Instant;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant as TokioInstant, sleep_until};

use super::build::{Published, build};
use super::changes::Changes;
use super::error::{ApplyError, RegistryError};
use super::inventory::{BackendEntry, Inventory};
use super::notice::{Notice, What};
use super::{
    Command, PoolState, Publish, RegistryHandle, RegistryOptions, RegistryView, StatsView,
};
use crate::BackendEvent;
use crate::config::{ActiveHealth, SessionConfig};
use equipoise_health::{CheckReport, Checker};

/// Largest number of waiting commands; the sender of a further one waits.
const COMMANDS_WAITING: usize = 64;
/// Check results that may wait; a checker that has another one waits with it. Also the most that
/// are taken in before the snapshot that follows from them is built.
const REPORTS_WAITING: usize = 256;

/// The owner of the inventory: see the [module](super).
pub struct Registry<P> {
    options: RegistryOptions,
    publisher: P,
    inventory: Inventory,
    published: Published,
    stats: Arc<RwLock<Arc<StatsView>>>,
    pools: watch::Sender<Arc<Vec<PoolState>>>,
    commands: mpsc::Receiver<Command>,
    events: mpsc::Receiver<BackendEvent>,
    reports: mpsc::Receiver<CheckReport>,
    reporting: mpsc::Sender<CheckReport>,
    /// By backend, with what they were started for.
    checkers: HashMap<u32, (ActiveHealth, Checker)>,
    /// When something is due without anybody asking.
    wake: Option<Instant>,
}

impl<P: Publish> Registry<P> {
    /// An empty inventory. `events` is the other end of
    /// [`EngineOptions::events`](crate::EngineOptions::events).
    pub fn new(
        options: RegistryOptions,
        publisher: P,
        events: mpsc::Receiver<BackendEvent>,
    ) -> (Registry<P>, RegistryHandle) {
        let (asking, commands) = mpsc::channel(COMMANDS_WAITING);
        let (reporting, reports) = mpsc::channel(REPORTS_WAITING);
        let stats = Arc::default();
        let (pools, seen) = watch::channel(Arc::default());
        let handle = RegistryHandle { commands: asking, stats: Arc::clone(&stats), pools: seen };
        let registry = Registry {
            options,
            publisher,
            inventory: Inventory::default(),
            published: Published::default(),
            stats,
            pools,
            commands,
            events,
            reports,
            reporting,
            checkers: HashMap::new(),
            wake: None,
        };
        (registry, handle)
    }

    /// Serves its handles until [`RegistryHandle::stop`] is called or the last one is dropped, then
    /// gives back the publisher. Runs on a tokio runtime with time and I/O, where it spawns its
    /// checks.
    pub async fn run(mut self) -> P {
        loop {
            let wake = self.wake;
            tokio::select! {
                command = self.commands.recv() => match command {
                    None | Some(Command::Stop) => return self.publisher,
                    Some(command) => self.obey(command),
                },
                Some(event) = self.events.recv() => {
                    if self.hear(event) {
                        self.refresh();
                    }
                }
                Some(report) = self.reports.recv() => self.take_in(report),
                () = at(wake) => self.refresh(),
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Apply(config, reply) => answer(reply, self.apply(&config)),
            Command::SetAdmin(target, admin, reply) => {
                let set = self.inventory.set_admin(&target.pool, &target.backend, admin);
                answer(reply, self.follow(set));
            }
            Command::SetWeight(target, weight, reply) => {
                let set = self.inventory.set_weight(&target.pool, &target.backend, weight);
                answer(reply, self.follow(set));
            }
            Command::SetConcurrency(target, limit, reply) => {
                let set = self.inventory.set_concurrency(&target.pool, &target.backend, limit);
                let done = self.follow(set);
                self.inventory.set_limits();
                answer(reply, done);
            }
            Command::SetPlanned(pool, weights, reply) => {
                let set = self.inventory.set_planned(&pool, &weights).map(|changed| {
                    if changed {
                        self.refresh();
                    }
                });
                answer(reply, set);
            }
            Command::SetShares(shares, reply) => {
                if self.inventory.set_shares(shares) {
                    self.refresh();
                }
                answer(reply, ());
            }
            Command::Status(reply) => {
                let generation = self.published.snapshot.generation;
                answer(reply, self.inventory.status(generation, now()));
            }
            Command::View(reply) => {
                let snapshot = Arc::clone(&self.published.snapshot);
                let status = self.inventory.status(snapshot.generation, now());
                answer(reply, RegistryView { snapshot, status });
            }
            Command::ToInherit(reply) => answer(reply, self.inventory.to_inherit(now())),
            Command::Inherit(states, reply) => {
                self.inventory.inherit(&states, now());
                self.refresh();
                answer(reply, ());
            }
            Command::Stop => {}
        }
    }

    fn apply(&mut self, config: &SessionConfig) -> Result<Changes, ApplyError> {
        let now = now();
        let is_first = self.inventory.pools.is_empty() && self.inventory.front_doors.is_empty();
        let (mut next, changes) = self.inventory.reloaded(config, self.options.threads, now)?;
        let notices = next.settle(now);
        if let Some(built) = build(&next, &self.published, self.options.scheduler_seed, now) {
            if let Err(error) = self.publisher.publish(Arc::clone(&built.snapshot)) {
                self.inventory.skip_ids_of(&next);
                return Err(error.into());
            }
            self.published = built;
        }
        self.inventory = next;
        self.inventory.set_limits();
        let stats = Arc::new(self.inventory.stats());
        *self.stats.write().expect("whoever reads it cannot panic") = stats;
        self.wake = self.inventory.next_wake(now);
        self.tell_pools();
        self.follow_checks();
        // Elastic backends and learnt values are applied repeatedly; the caller reports an
        // operator's reload.
        if !changes.is_empty() {
            tracing::info!(event = "configuration.applied", "configuration applied: {changes}");
        }
        if !is_first {
            changes.emit();
        }
        notices.iter().for_each(Notice::log);
        Ok(changes)
    }

    /// Makes an operator's wish come true.
    fn follow(&mut self, set: Result<Option<Notice>, RegistryError>) -> Result<(), RegistryError> {
        if let Some(notice) = set? {
            notice.log();
            self.refresh();
            self.publisher.wake();
        }
        Ok(())
    }

    /// Returns whether anything follows: while a whole pool fails and the panic threshold keeps it,
    /// each failure is reported and none changes anything.
    fn hear(&mut self, event: BackendEvent) -> bool {
        let notice = self.inventory.heard(event, now());
        notice.inspect(Notice::log).is_some_and(|n| matches!(n.what, What::Ejected { .. }))
    }

    /// Takes in this result and those that wait behind it, so that a whole pool that goes or comes
    /// at once costs one snapshot.
    fn take_in(&mut self, report: CheckReport) {
        let mut next = Some(report);
        let mut turned = false;
        for _ in 0..REPORTS_WAITING {
            let Some(report) = next else { break };
            turned |= self.inventory.note_addresses(&report);
            let notices = self.inventory.checked(report);
            notices.iter().for_each(Notice::log);
            turned |= !notices.is_empty();
            next = self.reports.try_recv().ok();
        }
        if turned {
            self.refresh();
        }
    }

    /// Performs due changes, then publishes the resulting snapshot, if it differs, and cuts the
    /// backends that it takes out.
    fn refresh(&mut self) {
        let now = now();
        self.inventory.settle(now).iter().for_each(Notice::log);
        self.wake = self.inventory.next_wake(now);
        self.tell_pools();
        let seed = self.options.scheduler_seed;
        if let Some(built) = build(&self.inventory, &self.published, seed, now) {
            match self.publisher.publish(Arc::clone(&built.snapshot)) {
                Ok(()) => self.published = built,
                // It opens no front door, so there is nothing that could be denied. If it is all
                // the same, the next change tries again.
                Err(error) => tracing::error!("a change did not reach the data plane: {error}"),
            }
        }
        if self.inventory.cut_downed() {
            self.publisher.wake();
        }
    }

    /// Tells other levels, if there is something new to tell.
    fn tell_pools(&self) {
        let states = self.inventory.pool_states();
        self.pools.send_if_modified(|told| {
            let new = **told != states;
            if new {
                *told = Arc::new(states);
            }
            new
        });
    }

    /// Starts and stops checkers, so that each backend with active checks has one.
    fn follow_checks(&mut self) {
        let mut running = std::mem::take(&mut self.checkers);
        for pool in &self.inventory.pools {
            let Some(health) = &pool.settings.health else { continue };
            // A host name without an address has nothing that could be checked.
            let reachable = |backend: &&BackendEntry| backend.config.place.is_reachable();
            for backend in pool.backends.iter().filter(reachable) {
                let checker = match running.remove(&backend.id) {
                    Some((same, checker)) if same == *health => {
                        checker.follow(backend.config.place.clone());
                        checker
                    }
                    _ => Checker::start(
                        backend.id,
                        backend.config.address,
                        backend.config.place.clone(),
                        health,
                        backend.live.tls.seen.clone(),
                        self.options.jitter_seed ^ u64::from(backend.id),
                        self.reporting.clone(),
                    ),
                };
                self.checkers.insert(backend.id, (health.clone(), checker));
            }
        }
    }
}

fn answer<R>(reply: oneshot::Sender<R>, result: R) {
    // The caller may have stopped waiting; the command is executed all the same.
    let _ = reply.send(result);
}

/// The runtime's clock, which tests may stop.
fn now() -> Instant {
    TokioInstant::now().into_std()
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant.into()).await,
        None => future::pending().await,
    }
}

#[cfg(test)]
mod tests;
