//! Host names of backends. They are resolved without holding a lock, again when their records
//! expire, and as long as the configuration has them.
//!
//! Each name has a task. If a name cannot be resolved, its task keeps the last answer and retries.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use equipoise_basics::{LogLimit, Waits, counted, lock};
use equipoise_config::hosts::names;
use equipoise_discovery::dns::{Found, LookupError, Lookups};
use equipoise_session::config::{Place, Resolved, SessionConfig};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Longest time to resolve a name, whatever `resolv.conf` allows.
const LOOKUP_WITHIN: Duration = Duration::from_secs(10);
/// Bounds of a record's time to live: at least this, so that a server cannot cause lookups without
/// a pause; at most this, so that changes of `/etc/hosts` and of records take effect.
const TTL: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(300);
/// Pause after the first failure to resolve a name; doubled with each further one.
const RETRY_MIN: Duration = Duration::from_secs(1);
/// Longest pause between two attempts.
const RETRY_MAX: Duration = Duration::from_secs(30);

/// Host names of backends, and their addresses.
#[derive(Clone)]
pub struct HostNames(Arc<Shared>);

struct Shared {
    names: Mutex<BTreeMap<Arc<str>, Known>>,
    /// Rises with each answer that differs from the previous one.
    changes: watch::Sender<u64>,
    lookups: Lookups,
}

/// A host name of backends.
struct Known {
    resolved: Resolved,
    /// An attempt has ended, with or without an answer.
    was_tried: bool,
    lines: LogLimit,
    /// Wakes the task, so that it resolves the name at once.
    again: Arc<Notify>,
    task: AbortHandle,
}

impl Drop for Known {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl HostNames {
    /// No names yet.
    #[expect(clippy::new_without_default, reason = "names are state of a process")]
    pub fn new() -> HostNames {
        HostNames(Arc::new(Shared {
            names: Mutex::default(),
            changes: watch::Sender::new(0),
            lookups: Lookups::default(),
        }))
    }

    /// Resolves all names now, those of `config` included. Waits for the first attempt at each of
    /// those, at most `patience`.
    pub async fn learn(&self, config: &SessionConfig, patience: Duration) {
        let wanted = names(config);
        self.add(&wanted);
        for known in lock(&self.0.names).values().filter(|known| known.was_tried) {
            known.again.notify_one();
        }
        let mut changes = self.0.changes.subscribe();
        let all_tried = async {
            while !self.are_tried(&wanted) {
                if changes.changed().await.is_err() {
                    return;
                }
            }
        };
        // A name that does not resolve in time joins its pool later.
        let _ = timeout(patience, all_tried).await;
    }

    /// Forgets every name that none of these configurations has.
    pub fn forget_others(&self, configs: &[SessionConfig]) {
        let wanted = configs.iter().flat_map(names).collect();
        // A reload that ended in between may have removed some of these names.
        self.add(&wanted);
        lock(&self.0.names).retain(|name, _| wanted.contains(name));
    }

    /// `config` with the current addresses of its host names.
    pub fn resolved(&self, mut config: SessionConfig) -> SessionConfig {
        let known = lock(&self.0.names);
        for backend in config.pools.iter_mut().flat_map(|pool| &mut pool.backends) {
            if let Place::Host { name, resolved } = &mut backend.place
                && let Some(known) = known.get(name)
            {
                *resolved = known.resolved.clone();
            }
        }
        drop(known);
        config
    }

    /// Changes with each new answer.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    fn add(&self, wanted: &BTreeSet<Arc<str>>) {
        let mut known = lock(&self.0.names);
        for name in wanted {
            if known.contains_key(name) {
                continue;
            }
            let again = Arc::new(Notify::new());
            let task = keep_resolved(Arc::clone(&self.0), Arc::clone(name), Arc::clone(&again));
            let task = tokio::spawn(task).abort_handle();
            let resolved = Resolved::default();
            let lines = LogLimit::default();
            known
                .insert(Arc::clone(name), Known { resolved, was_tried: false, lines, again, task });
        }
    }

    fn are_tried(&self, wanted: &BTreeSet<Arc<str>>) -> bool {
        let known = lock(&self.0.names);
        wanted.iter().all(|name| known.get(name).is_none_or(|known| known.was_tried))
    }
}

/// Resolves a name when its records expire, and when `again` is notified.
async fn keep_resolved(shared: Arc<Shared>, name: Arc<str>, again: Arc<Notify>) {
    let mut retry = Waits::new(RETRY_MIN, RETRY_MAX);
    loop {
        let found = shared.lookups.look_up(&name, LOOKUP_WITHIN).await;
        let pause = match &found {
            Ok(found) => {
                retry.succeeded();
                found.ttl.clamp(*TTL.start(), *TTL.end())
            }
            Err(_) => retry.failed(),
        };
        shared.note(&name, found);
        tokio::select! {
            () = sleep(pause) => {}
            () = again.notified() => {}
        }
    }
}

impl Shared {
    /// Stores an answer, and logs it if it changed.
    fn note(self: &Arc<Self>, name: &Arc<str>, found: Result<Found, LookupError>) {
        let mut names = lock(&self.names);
        let Some(known) = names.get_mut(name) else { return };
        let before = &known.resolved;
        let next = match found {
            Ok(found) => {
                let kept = before.addresses().iter().copied().filter(found.keeps);
                let next = Resolved::new(found.addresses.into_iter().chain(kept));
                // Equal addresses keep the record of which one accepted a connection.
                if next == *before { before.with_problem(None) } else { next.succeeding(before) }
            }
            Err(error) => before.with_problem(Some(error.to_string().into())),
        };
        let is_new = next != *before || next.problem() != before.problem();
        if !is_new {
            // Nothing to log.
        } else if known.lines.may_write(Instant::now().into_std()) {
            log(name, before, &next);
            if known.lines.is_full() {
                tracing::info!(
                    "backend {name}: its addresses change often; further changes of this minute are \
                     counted, and the last one is logged at its end"
                );
            }
        } else if let Some(due) = known.lines.first_left_out() {
            tokio::spawn(log_later(Arc::downgrade(self), Arc::clone(name), due.into()));
        }
        known.resolved = next;
        let is_first = !std::mem::replace(&mut known.was_tried, true);
        drop(names);
        if is_new || is_first {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }
}

/// Logs at `due` how many lines about a name were left out, and its addresses.
async fn log_later(shared: Weak<Shared>, name: Arc<str>, due: Instant) {
    sleep_until(due).await;
    let Some(shared) = shared.upgrade() else { return };
    let mut names = lock(&shared.names);
    let Some(known) = names.get_mut(&name) else { return };
    let left_out = counted(known.lines.take_left_out().into(), "line");
    tracing::info!("backend {name}: {left_out} about its addresses left out; now:");
    log(&name, &Resolved::default(), &known.resolved);
}

fn log(name: &str, before: &Resolved, now: &Resolved) {
    let addresses = listed(now.addresses());
    match now.problem() {
        None if now != before => tracing::info!(
            event = "name.resolved",
            subject = name,
            "backend {name}: resolved to {addresses}"
        ),
        None => tracing::info!(
            event = "name.resolved",
            subject = name,
            "backend {name}: resolved again"
        ),
        Some(problem) if now.addresses().is_empty() => {
            tracing::warn!(
                event = "name.failed",
                subject = name,
                "backend {name}: not resolved; it gets no requests: {problem}"
            );
        }
        Some(problem) => {
            tracing::warn!(
                event = "name.failed",
                subject = name,
                "backend {name}: not resolved; it keeps {addresses}: {problem}"
            );
        }
    }
}

fn listed(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(|address| address.ip().to_string()).collect::<Vec<_>>().join(", ")
}
