//! Elastic pools: a scaler for each makes what the instructions' rosters give this member, and what was made joins the pool.
//!
//! A machine of its own is a cluster of one: its controller is in this process. Where that does not run, pools are held at
//! what they had: `held.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use equipoise_controller::{Edition, Entry, Instructions, Making, Roster, Wanted};
use equipoise_driver::{
    BackendState, DriverOptions, Limits, Opened, PoolView, RecordFile, Scaler, ScalerOptions,
};
use equipoise_planner::elastic::PoolSample;
use equipoise_session::config::{BackendConfig, Concurrency, PoolConfig, SessionConfig};
use equipoise_session::registry::RegistryHandle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::Wish;
use super::held;
use super::rosters;
use crate::config::Maker;
use crate::run::lock;

/// The scalers of this process.
pub(super) struct Scalers {
    /// Where records of what was made are kept.
    folder: PathBuf,
    running: tokio::sync::Mutex<BTreeMap<String, Running>>,
    views: Mutex<BTreeMap<String, View>>,
    /// Without a controller: at how many backends each pool is held.
    held: Mutex<BTreeMap<String, u32>>,
    /// Rises when what exists has changed.
    changes: watch::Sender<u64>,
    /// This member.
    own: Arc<str>,
    is_in_cluster: bool,
    newest: Mutex<Arc<Instructions>>,
    /// Instructions that an earlier process kept: pools go by them, and no driver is told, as nothing is made or taken
    /// away without a leader.
    kept: Option<Edition>,
    /// The instructions that each pool's scaler was told last.
    applied: Mutex<BTreeMap<String, Edition>>,
    /// An operator evicted this node: its processes end, and another member goes on with what outlives it.
    is_evicted: AtomicBool,
}

/// The backends of a scaler, and whether they outlive this process.
struct View {
    now: watch::Receiver<Arc<PoolView>>,
    outlives: bool,
}

struct Running {
    scaler: Scaler,
    /// Sizes of those that an earlier process had, and that went with it.
    lost: Vec<Option<String>>,
    driver: DriverOptions,
    telling: JoinHandle<()>,
}

impl Scalers {
    /// `own`: this member's name.
    /// `kept`: the instructions that an earlier process of its kept.
    pub(super) fn new(
        folder: PathBuf,
        own: Arc<str>,
        is_in_cluster: bool,
        kept: Option<Edition>,
    ) -> Scalers {
        Scalers {
            folder,
            running: tokio::sync::Mutex::default(),
            views: Mutex::default(),
            held: Mutex::default(),
            changes: watch::channel(0).0,
            own,
            is_in_cluster,
            newest: Mutex::default(),
            kept,
            applied: Mutex::default(),
            is_evicted: AtomicBool::new(false),
        }
    }

    pub(super) fn is_in_cluster(&self) -> bool {
        self.is_in_cluster
    }

    /// What exists, and every change of it.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Goes over to these pools. What is elastic no longer loses its backends after its time to drain.
    pub(super) async fn follow(&self, wish: &Wish) {
        let mut running = self.running.lock().await;
        let gone: Vec<String> =
            running.keys().filter(|it| !wish.planning.makers.contains_key(*it)).cloned().collect();
        for pool in gone {
            lock(&self.views).remove(&pool);
            lock(&self.applied).remove(&pool);
            let Some(one) = running.remove(&pool) else { continue };
            tracing::info!(pool, "no longer elastic: its backends drain and go");
            tokio::spawn(async move {
                tokio::time::sleep(Limits::default().drain_timeout).await;
                one.remove_all().await;
            });
        }
        for (pool, maker) in &wish.planning.makers {
            match running.get_mut(pool) {
                Some(one) => {
                    let _ = one.scaler.set_limits(maker.limits).await;
                    if one.driver != maker.driver {
                        self.change(pool, one, maker).await;
                    }
                }
                None => match self.start(pool, maker).await {
                    Ok(one) => drop(running.insert(pool.clone(), one)),
                    Err(error) => tracing::error!(
                        pool,
                        "the pool does not scale: {error:#}; mend it and reload"
                    ),
                },
            }
        }
        self.changes.send_modify(|count| *count += 1);
        drop(running);
        let newest = lock(&self.newest).clone();
        self.obey(newest).await;
    }

    /// Goes over to another driver.
    async fn change(&self, pool: &str, one: &mut Running, maker: &Maker) {
        if let Err(error) = one.scaler.set_driver(maker.driver.clone()).await {
            let error = anyhow::Error::from(error);
            tracing::error!(
                pool,
                "its backends go on being made as before: {error:#}; mend it and reload"
            );
            return;
        }
        one.driver = maker.driver.clone();
        if let Some(view) = lock(&self.views).get_mut(pool) {
            view.outlives = one.scaler.outlives_us();
        }
        tracing::info!(
            pool,
            "its backends are made in another way from now on; those that there are are replaced one by one"
        );
    }

    async fn start(&self, pool: &str, maker: &Maker) -> anyhow::Result<Running> {
        let file = RecordFile::new(self.folder.join(format!("elastic-{pool}.json")));
        if let Err(error) = std::fs::create_dir_all(&self.folder) {
            // Processes need no record: they go with us.
            anyhow::ensure!(!maker.driver.outlives_us(), "{}: {error}", self.folder.display());
            let folder = self.folder.display();
            tracing::warn!(pool, %folder, %error, "what is made is not written down");
        }
        let Opened { record, damage } = file.open(pool)?;
        if let Some(damage) = damage {
            let (has_copy, why) = (damage.has_copy, damage.why);
            let after = after_damage(has_copy, &maker.driver);
            let done = match (damage.unwritten, damage.set_aside) {
                // What its copy says is known, and nothing that outlives us is made until it is kept again.
                (Some(error), _) if has_copy || !maker.driver.outlives_us() => {
                    format!("cannot be written ({:#})", anyhow::Error::from(error))
                }
                (Some(error), _) => return Err(error.into()),
                (None, Some(path)) => format!("set aside as {}", path.display()),
                (None, None) => "written again".to_string(),
            };
            tracing::error!(
                pool,
                "the record of what was made is damaged ({why}) and {done}: {after}"
            );
        }
        let options = ScalerOptions {
            pool: pool.to_string(),
            limits: maker.limits,
            driver: maker.driver.clone(),
            record: record.clone(),
            keeper: Some(Arc::new(file)),
        };
        let scaler = Scaler::start(options).await?;
        let lost = held::lost(record.as_ref(), &scaler.view());
        let mut view = scaler.subscribe();
        let outlives = scaler.outlives_us();
        lock(&self.views).insert(pool.to_string(), View { now: view.clone(), outlives });
        let changes = self.changes.clone();
        let telling = tokio::spawn(async move {
            while view.changed().await.is_ok() {
                changes.send_modify(|count| *count += 1);
            }
        });
        Ok(Running { scaler, lost, driver: maker.driver.clone(), telling })
    }

    /// While no controller runs on a machine of its own: makes what a pool lacks to what it had, or to its least. What went
    /// with an earlier process is made again once.
    pub(super) async fn hold(&self, wish: &Wish) {
        let mut all = BTreeMap::new();
        for (pool, one) in &mut *self.running.lock().await {
            let Some(elastic) = wish.planning.elastic.get(pool) else { continue };
            let listed = wish.listed.get(pool).map_or(0, BTreeSet::len) as u32;
            let (view, lost) = (one.scaler.view(), std::mem::take(&mut one.lost));
            let target = held::target(elastic, &view, listed, lost.len() as u32);
            tracing::warn!(
                pool,
                backends = target,
                "without a controller the pool neither grows nor shrinks"
            );
            let missing = held::missing(elastic, &view, listed, &lost);
            if !missing.is_empty() {
                let _ = one.scaler.make(missing).await;
            }
            all.insert(pool.clone(), target);
        }
        *lock(&self.held) = all;
    }

    /// The controller of a machine of its own has stopped: its rosters are in force no more.
    pub(super) fn forget_rosters(&self) {
        if !self.is_in_cluster {
            *lock(&self.newest) = Arc::default();
            lock(&self.applied).clear();
        }
    }

    /// A controller decides on sizes from now on, or nobody.
    pub(super) fn let_scale(&self) {
        lock(&self.held).clear();
    }

    /// At how many backends pools are held, if no controller runs: for whoever asks why.
    pub(super) fn held_in_words(&self) -> String {
        let held = lock(&self.held);
        let one = |(pool, count): (&String, &u32)| format!("pool {pool} at {count}");
        let all: Vec<String> = held.iter().map(one).collect();
        if all.is_empty() {
            return String::new();
        }
        format!(". Until it does, numbers of backends are held: {}", all.join(", "))
    }

    /// Has what the instructions' rosters give this member, and knows of all the rest. Whether a scaler was told for the first
    /// time: only then it is known what an earlier process had and this one has not.
    pub(super) async fn obey(&self, newest: Arc<Instructions>) -> bool {
        let before = self.install(newest);
        let running = self.running.lock().await;
        // Newer ones may have come while a driver was being started.
        let newest = self.newest();
        let mut is_first = false;
        for (pool, one) in &*running {
            let Some(roster) = newest.rosters.get(pool) else { continue };
            if self.is_kept(&newest) {
                continue;
            }
            let is_shared = self.is_in_cluster && one.scaler.outlives_us();
            let mut desired = rosters::desired(roster, &self.own, &one.scaler.view(), is_shared);
            if self.is_evicted.load(Relaxed) {
                (desired.backends, desired.kept) = (Vec::new(), BTreeSet::new());
            }
            if one.scaler.desire(desired).await.is_ok() {
                let was = lock(&self.applied).insert(pool.clone(), newest.edition());
                is_first |= was.is_none();
            }
        }
        if rosters::places(&before.rosters).ne(rosters::places(&newest.rosters)) {
            self.changes.send_modify(|count| *count += 1);
        }
        is_first
    }

    /// Goes by these instructions, if they are newer than those in force, which it returns.
    fn install(&self, newest: Arc<Instructions>) -> Arc<Instructions> {
        let mut known = lock(&self.newest);
        if newest.is_newer_than(&known) {
            return std::mem::replace(&mut *known, newest);
        }
        Arc::clone(&known)
    }

    /// Follows whether this node is evicted.
    pub(super) async fn set_evicted(&self, is_evicted: bool) {
        if self.is_evicted.swap(is_evicted, Relaxed) == is_evicted {
            return;
        }
        self.obey(self.newest()).await;
        self.changes.send_modify(|count| *count += 1);
    }

    /// For the leader: what this member can make, and has made.
    pub(super) fn making(&self) -> BTreeMap<String, Making> {
        // First what was told, then what is there: the other way round, what was told last would seem to be lost.
        let applied = lock(&self.applied).clone();
        let views = lock(&self.views);
        let one = |(pool, view): (&String, &View)| {
            let edition = applied.get(pool).copied().unwrap_or_default();
            (pool.clone(), rosters::making(&view.now.borrow(), view.outlives, edition))
        };
        views.iter().map(one).collect()
    }

    /// For the leader: who drains and has nothing left here.
    pub(super) fn drained(
        &self,
        registry: &RegistryHandle,
        wish: &Wish,
    ) -> BTreeMap<String, BTreeSet<String>> {
        rosters::drained(&self.newest().rosters, registry, &wish.forwarded)
    }

    /// The instructions with the rosters in force.
    fn newest(&self) -> Arc<Instructions> {
        lock(&self.newest).clone()
    }

    fn is_kept(&self, instructions: &Instructions) -> bool {
        self.kept == Some(instructions.edition())
    }

    /// Samples of pools, with the sizes of what was made.
    pub(super) fn sized(
        &self,
        mut samples: BTreeMap<String, PoolSample>,
    ) -> BTreeMap<String, PoolSample> {
        for (pool, sample) in &mut samples {
            for (backend, size) in self.made(pool) {
                if let Some(one) = sample.backends.get_mut(&*backend.name) {
                    one.size = size;
                }
            }
        }
        samples
    }

    /// The configuration with the backends that were made.
    pub(super) fn with_made(&self, config: &SessionConfig, wish: &Wish) -> SessionConfig {
        let mut config = config.clone();
        for pool in &mut config.pools {
            for (mut backend, size) in self.made(&pool.name) {
                backend.concurrency = of_size(pool, size.as_deref(), wish);
                if pool.backends.iter().all(|it| it.address != backend.address) {
                    pool.backends.push(backend);
                }
            }
        }
        config
    }

    /// The backends that were made, each with its size: of this machine's own those that its scaler has, and of other
    /// members' those of the roster.
    fn made(&self, pool: &str) -> Vec<(BackendConfig, Option<String>)> {
        let (newest, unknown) = (self.newest(), Roster::default());
        let roster = newest.rosters.get(pool).unwrap_or(&unknown);
        let views = lock(&self.views);
        let view = views.get(pool);
        let has = view.map(|view| view.now.borrow().clone()).unwrap_or_default();
        let is_own = |entry: &Entry| entry.executor == *self.own;
        let of_another = |name: &str| roster.backends.get(name).is_some_and(|it| !is_own(it));
        let own = has.backends.iter().filter(|made| !of_another(&made.name));
        let own = own.filter_map(|made| Some((rosters::own(made)?, made.size.clone())));
        let is_unseen = |name: &String| has.backends.iter().all(|made| made.name != *name);
        // In a cluster what outlives a process runs on, whether the scaler here has heard of it, or does not even start.
        let lasts = |entry: &Entry| self.is_in_cluster && entry.outlives;
        let others = roster
            .backends
            .iter()
            .filter(|(name, entry)| !is_own(entry) || lasts(entry) && is_unseen(name));
        let others = others
            .filter_map(|(name, entry)| Some((rosters::joined(name, entry)?, entry.size.clone())));
        own.chain(others).collect()
    }

    /// Those that are to be drained, as (pool, backend): by the roster, or, where no controller runs, by an earlier process.
    pub(super) fn draining(&self) -> Vec<(String, String)> {
        let newest = self.newest();
        let wanted = rosters::places(&newest.rosters).filter(|it| it.3 == Wanted::Drain);
        let mut all: Vec<_> = wanted.map(|(pool, name, ..)| (pool.clone(), name.clone())).collect();
        for (pool, view) in &*lock(&self.views) {
            let view = view.now.borrow();
            let draining = view.backends.iter().filter(|it| it.state == BackendState::Draining);
            all.extend(draining.map(|it| (pool.clone(), it.name.clone())));
        }
        all
    }

    /// Ends all scalers: processes go, what outlives us stays.
    pub(super) async fn stop(&self) {
        let running = std::mem::take(&mut *self.running.lock().await);
        for one in running.into_values() {
            one.stop().await;
        }
    }
}

impl Running {
    async fn stop(self) {
        self.telling.abort();
        self.scaler.stop().await;
    }

    async fn remove_all(self) {
        self.telling.abort();
        self.scaler.remove_all().await;
    }
}

/// What is gone by where a pool's record is damaged.
fn after_damage(has_copy: bool, driver: &DriverOptions) -> &'static str {
    let lists = match driver {
        DriverOptions::Exec(options) => options.list.is_some(),
        DriverOptions::Webhook(options) => options.list.is_some(),
        _ => false,
    };
    match (has_copy, driver.outlives_us()) {
        (true, _) => "its copy, which says the same, is gone by",
        (false, false) => {
            "the pool begins anew; its processes have ended with the one that made them, and what another driver \
             may have made is named in the file that was set aside, to be removed by hand"
        }
        (false, true) if lists => {
            "the pool goes on with what `list` says there is, and what is missing is made anew"
        }
        (false, true) => {
            "the pool begins anew, since without `list` nobody says what there is: remove by hand what is named in the \
             file that was set aside and still runs, by this driver or another"
        }
    }
}

/// The concurrency limit of a backend of a size, where the pool states a number: in proportion to the size's speed.
fn of_size(pool: &PoolConfig, size: Option<&str>, wish: &Wish) -> Option<Concurrency> {
    let limit = pool.concurrency.fixed()?;
    let size = wish.planning.elastic.get(&*pool.name)?.sizes.get(size?)?;
    let limit = (f64::from(limit.get()) * size.speed).round() as u32;
    Some(Concurrency::Fixed(NonZeroU32::new(limit).unwrap_or(NonZeroU32::MIN)))
}
