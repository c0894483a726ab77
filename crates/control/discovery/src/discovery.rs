//! The sources of all pools, each with a task that reads it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use equipoise_basics::{LogLimit, Waits, counted, lock, with_causes};
use equipoise_store::place;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::backend::{Found, settled};
use crate::background::Background;
use crate::kept::Kept;
use crate::open::open;
use crate::options::Discover;
use crate::saved::{self, Set, Sets};
use crate::source::{Read, SourceError};

/// Longest time to read a source.
const READ_WITHIN: Duration = Duration::from_secs(30);
/// Shortest time between two reads of a source. Changes in this time are applied together.
const DEBOUNCE: Duration = Duration::from_millis(250);
/// Shortest time between two writes of the file.
const SAVE_PAUSE: Duration = Duration::from_secs(1);
/// Pause after the first failure of a source; doubled with each further one, up to
/// [`crate::Source::retry_max`].
const RETRY_MIN: Duration = Duration::from_secs(1);

/// The sources of pools, and the last good set of each.
#[derive(Clone)]
pub struct Discovery(Arc<Shared>);

struct Shared {
    pools: Mutex<Vec<Followed>>,
    /// Sets of an earlier process.
    before: Sets,
    /// Rises with each change of a set, and when a source was tried for the first time.
    changes: watch::Sender<u64>,
}

/// A pool with its source. During a reload, a pool may have two.
struct Followed {
    options: Arc<Discover>,
    kept: Kept,
    /// A read has ended, with or without an answer.
    was_tried: bool,
    failures_total: u64,
    changes_total: u64,
    /// Those of changes and of problems: a failure is logged although sets change often.
    lines: [LogLimit; 2],
    /// Wakes the task, so that it reads the source at once.
    again: Arc<Notify>,
    task: AbortHandle,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The state of a pool's source.
#[derive(Clone, Debug, PartialEq)]
pub struct DiscoveryState {
    /// The pool's name.
    pub pool: Arc<str>,
    /// The source, in a line.
    pub source: String,
    /// Number of backends of the set in use.
    pub backends: usize,
    /// Time since a read confirmed the set in use; `None` before the first.
    pub age: Option<Duration>,
    /// The reason why the last read did not confirm the set, or what its answer lacked.
    pub problem: Option<String>,
    /// Failures so far.
    pub failures_total: u64,
    /// Sets that differed from the one before.
    pub changes_total: u64,
}

impl Discovery {
    /// No sources yet. The last good sets are kept in a file of the instance's folder, which is in
    /// the stated folder or in the user's state folder. An earlier process may have left the file.
    pub fn new(stated: Option<&Path>, instance: &str) -> Discovery {
        let path = place::folder(stated, instance).join("discovered.json");
        let before = saved::load(&path);
        let shared = Shared { pools: Mutex::default(), before, changes: watch::Sender::new(0) };
        let shared = Arc::new(shared);
        tokio::spawn(keep_saved(Arc::downgrade(&shared), shared.changes.subscribe(), path));
        Discovery(shared)
    }

    /// Follows these sources too, and reads all sources now. Waits for the first read of each of
    /// `wanted`, at most `patience`.
    ///
    /// A pool with other options than before begins with the set that it had.
    pub async fn learn(&self, wanted: &[Discover], patience: Duration) {
        self.add(wanted);
        for followed in lock(&self.0.pools).iter().filter(|it| it.was_tried) {
            followed.again.notify_one();
        }
        let mut changes = self.0.changes.subscribe();
        let all_tried = async {
            while !self.are_tried(wanted) {
                if changes.changed().await.is_err() {
                    return;
                }
            }
        };
        // A source that does not answer in time fills its pool later.
        let _ = timeout(patience, all_tried).await;
    }

    /// Follows these sources and no others.
    pub fn forget_others(&self, wanted: &[Discover]) {
        // A reload that ended in between may have removed some of these.
        self.add(wanted);
        lock(&self.0.pools).retain(|it| wanted.contains(&it.options));
    }

    /// The sets in use of these sources, by pool.
    pub fn backends(&self, wanted: &[Discover]) -> BTreeMap<Arc<str>, Arc<[Found]>> {
        let pools = lock(&self.0.pools);
        let wanted = pools.iter().filter(|it| wanted.contains(&it.options));
        wanted.map(|it| (Arc::clone(&it.options.pool), Arc::clone(&it.kept.set))).collect()
    }

    /// Changes with each new set.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// The state of every source.
    pub fn states(&self) -> Vec<DiscoveryState> {
        let now = Instant::now().into_std();
        let state = |it: &Followed| DiscoveryState {
            pool: Arc::clone(&it.options.pool),
            source: it.options.source.to_string(),
            backends: it.kept.set.len(),
            age: it.kept.good_at.map(|at| now.saturating_duration_since(at)),
            problem: it.kept.problem.clone(),
            failures_total: it.failures_total,
            changes_total: it.changes_total,
        };
        lock(&self.0.pools).iter().map(state).collect()
    }

    fn add(&self, wanted: &[Discover]) {
        let mut pools = lock(&self.0.pools);
        for options in wanted {
            if pools.iter().any(|it| *it.options == *options) {
                continue;
            }
            let before = pools.iter().find(|it| it.options.pool == options.pool);
            let kept = before.map(|it| it.kept.clone());
            let kept = kept.or_else(|| self.0.of_before(options)).unwrap_or_default();
            let (options, again) = (Arc::new(options.clone()), Arc::new(Notify::new()));
            let task = follow(Arc::clone(&self.0), Arc::clone(&options), Arc::clone(&again));
            pools.push(Followed {
                options,
                kept,
                was_tried: false,
                failures_total: 0,
                changes_total: 0,
                lines: Default::default(),
                again,
                task: tokio::spawn(task).abort_handle(),
            });
        }
    }

    fn are_tried(&self, wanted: &[Discover]) -> bool {
        let pools = lock(&self.0.pools);
        let tried = |options: &Discover| {
            pools.iter().find(|it| *it.options == *options).is_none_or(|it| it.was_tried)
        };
        wanted.iter().all(tried)
    }
}

/// Reads a source whenever it may have changed, and when `again` is notified.
async fn follow(shared: Arc<Shared>, options: Arc<Discover>, again: Arc<Notify>) {
    let mut source = open(&options.source);
    let mut retry = Waits::new(RETRY_MIN, source.retry_max());
    loop {
        let read = timeout(READ_WITHIN, source.read()).await;
        let read = read.unwrap_or_else(|_| {
            Err(format!("no answer within {} s", READ_WITHIN.as_secs()).into())
        });
        let failed = match shared.note(&options, read) {
            Some(due) => {
                let is_due = async {
                    match due {
                        Some(due) => sleep_until(due.into()).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    changed = source.changed() => changed.err(),
                    () = again.notified() => None,
                    () = is_due => None,
                }
            }
            None => {
                wait(retry.failed(), &again).await;
                continue;
            }
        };
        match failed {
            None => {
                retry.succeeded();
                sleep(DEBOUNCE).await;
            }
            Some(error) => {
                shared.note(&options, Err(error));
                wait(retry.failed(), &again).await;
            }
        }
    }
}

async fn wait(pause: Duration, again: &Notify) {
    tokio::select! {
        () = sleep(pause) => {}
        () = again.notified() => {}
    }
}

/// Writes the file when a set has changed, until the sources are dropped.
async fn keep_saved(shared: Weak<Shared>, mut changes: watch::Receiver<u64>, path: PathBuf) {
    let mut background = Background::new();
    let mut was_written = true;
    while changes.changed().await.is_ok() {
        let Some(sets) = shared.upgrade().map(|shared| shared.sets()) else { return };
        let path = path.clone();
        let written = background.run(move || saved::save(&path, &sets).map_err(|it| (path, it)));
        let is_written = match written.await {
            Ok(Ok(())) => true,
            Ok(Err((path, error))) if was_written => {
                let path = path.display();
                tracing::warn!(
                    "{path} cannot be written: {error}; the next process begins without the last sets of backends"
                );
                false
            }
            Ok(Err(_)) | Err(_) => false,
        };
        was_written = is_written;
        sleep(SAVE_PAUSE).await;
    }
}

impl Shared {
    /// The set that an earlier process had of this source.
    fn of_before(&self, options: &Discover) -> Option<Kept> {
        let set = self.before.get(&*options.pool)?;
        if set.source != options.source.to_string() {
            return None;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let age = now.saturating_sub(Duration::from_secs(set.good_unix_seconds));
        let good_at = Instant::now().into_std().checked_sub(age);
        let set = settled(set.backends.clone(), &options.labels, options.backends_max).ok()?;
        Some(Kept::of_before(set, good_at))
    }

    /// All sets, for the file.
    fn sets(&self) -> Sets {
        let (wall, now) = (SystemTime::now(), Instant::now().into_std());
        let mut sets = Sets::new();
        for followed in lock(&self.pools).iter() {
            let Some(good_at) = followed.kept.good_at else { continue };
            let at = wall.checked_sub(now.saturating_duration_since(good_at)).unwrap_or(wall);
            let set = Set {
                source: followed.options.source.to_string(),
                good_unix_seconds: at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
                backends: followed.kept.set.to_vec(),
            };
            sets.insert(followed.options.pool.to_string(), set);
        }
        sets
    }

    /// Stores the outcome of a read, and logs it if it is new. `None` if the read failed, otherwise
    /// the time at which an empty set may be applied.
    fn note(
        self: &Arc<Self>,
        options: &Arc<Discover>,
        read: Result<Read, SourceError>,
    ) -> Option<Option<std::time::Instant>> {
        let set = read.and_then(|Read { backends, missing }| {
            Ok((settled(backends, &options.labels, options.backends_max)?, missing))
        });
        let now = Instant::now().into_std();
        let mut pools = lock(&self.pools);
        let followed = pools.iter_mut().find(|it| Arc::ptr_eq(&it.options, options))?;
        let (had_problem, is_good) = (followed.kept.problem.clone(), set.is_ok());
        let is_new = match set {
            Ok((set, missing)) => followed.kept.take(set, missing, options.empty_after, now),
            Err(error) => {
                followed.failures_total += 1;
                followed.kept.failed(with_causes(&*error));
                false
            }
        };
        followed.changes_total += u64::from(is_new);
        let is_first = !std::mem::replace(&mut followed.was_tried, true);
        let is_other = followed.kept.problem != had_problem;
        let of = usize::from(is_other);
        let limit = &mut followed.lines[of];
        if !is_new && !is_other {
            // Nothing to log.
        } else if limit.may_write(now) {
            log(options, &followed.kept, is_new);
            if limit.is_full() {
                tracing::info!(
                    "pool {}: its source changes often; further changes of this minute are counted, \
                     and the last state is logged at its end",
                    options.pool
                );
            }
        } else if let Some(due) = limit.first_left_out() {
            tokio::spawn(log_later(Arc::downgrade(self), Arc::downgrade(options), of, due.into()));
        }
        let due = is_good.then(|| followed.kept.due(options.empty_after));
        drop(pools);
        if is_new || is_first {
            self.changes.send_modify(|changes| *changes += 1);
        }
        due
    }
}

/// Logs at `due` how many lines of a limit were left out, and the state of the source.
async fn log_later(shared: Weak<Shared>, options: Weak<Discover>, of: usize, due: Instant) {
    sleep_until(due).await;
    let (Some(shared), Some(options)) = (shared.upgrade(), options.upgrade()) else { return };
    let mut pools = lock(&shared.pools);
    let followed = pools.iter_mut().find(|it| Arc::ptr_eq(&it.options, &options));
    let Some(followed) = followed else { return };
    let left_out = counted(followed.lines[of].take_left_out().into(), "line");
    tracing::info!("pool {}: {left_out} about its source left out; now:", options.pool);
    log(&options, &followed.kept, true);
}

fn log(options: &Discover, kept: &Kept, is_new: bool) {
    let (pool, source) = (&*options.pool, &options.source);
    let backends = counted(kept.set.len() as u64, "backend");
    let stay = if kept.set.len() == 1 { "stays" } else { "stay" };
    match &kept.problem {
        None => tracing::info!(
            event = "source.set",
            subject = pool,
            "pool {pool}: {source} has {backends}"
        ),
        Some(problem) if is_new => {
            tracing::warn!(
                event = "source.failed",
                subject = pool,
                "pool {pool}: {source} has {backends}: {problem}"
            )
        }
        Some(problem) if kept.set.is_empty() => {
            tracing::warn!(
                event = "source.failed",
                subject = pool,
                "pool {pool}: {source} gives no backend: {problem}"
            );
        }
        Some(problem) => {
            tracing::warn!(
                event = "source.failed",
                subject = pool,
                "pool {pool}: {source} is not used, and the last {backends} {stay}: {problem}"
            );
        }
    }
}

#[cfg(test)]
mod tests;
