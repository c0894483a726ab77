//! Elastic pools. A scaler for each pool creates the backends that the roster assigns to this
//! member, and these join the pool.
//!
//! A single machine is a cluster of one, with its controller in this process. While that does not
//! run, `held.rs` keeps pools at their size.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use equipoise_basics::{lock, with_causes};
use equipoise_controller::{Edition, Entry, Instructions, Making, Roster, Wanted};
use equipoise_driver::{
    BackendState, DriverOptions, Limits, OptionRefused, PoolView, Scaler, ScalerOptions,
};
use equipoise_planner::elastic::PoolSample;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::Maker;
use crate::held;
use crate::level::Measured;
use crate::planning_config::PlanningConfig;
use crate::rosters::{self, JoinedBackend, Rosters};
use crate::saved::{self, Drivers, Saved, Writer};

/// The scalers of this process.
pub(crate) struct Scalers {
    /// The rosters and drivers that were saved last.
    saved: Mutex<Saved>,
    writer: Writer,
    /// The failure to save was logged.
    is_unsaved: AtomicBool,
    /// Drivers of this machine's file, and earlier drivers that may still have backends.
    drivers: Mutex<Drivers>,
    running: tokio::sync::Mutex<BTreeMap<String, Running>>,
    views: Mutex<BTreeMap<String, View>>,
    /// Without a controller: the number of backends that each pool is fixed at.
    held: Mutex<BTreeMap<String, u32>>,
    /// Rises with each change of the existing backends.
    changes: watch::Sender<u64>,
    /// Name of this member.
    own: Arc<str>,
    is_in_cluster: bool,
    /// The instructions in force. Before the first ones arrive, they have no edition and the
    /// rosters that an earlier process used last.
    newest: Mutex<Arc<Instructions>>,
    /// Instructions that an earlier process saved. Pools follow them; drivers do not, because
    /// without a leader nothing is created or removed.
    kept: Option<Edition>,
    /// Edition of the last instructions that each pool's scaler received.
    applied: Mutex<BTreeMap<String, Edition>>,
    /// An operator evicted this node: its processes end, and another member takes over the backends
    /// that outlive them.
    is_evicted: AtomicBool,
}

/// The state of a scaler.
struct View {
    now: watch::Receiver<Arc<PoolView>>,
    /// The pool is not elastic here any more: the scaler stops when its last backend is gone.
    ends: bool,
}

struct Running {
    scaler: Scaler,
    driver: DriverOptions,
    telling: JoinHandle<()>,
}

impl Scalers {
    /// `own` is this member's name. `kept` is the edition of instructions that an earlier process
    /// saved.
    pub(crate) fn new(
        folder: PathBuf,
        own: Arc<str>,
        is_in_cluster: bool,
        kept: Option<Edition>,
    ) -> Scalers {
        let saved = saved::load(&folder, &own);
        let newest = Instructions { rosters: saved.rosters.clone(), ..Instructions::default() };
        Scalers {
            writer: Writer::new(folder),
            is_unsaved: AtomicBool::new(false),
            drivers: Mutex::new(saved.drivers.clone()),
            saved: Mutex::new(saved),
            running: tokio::sync::Mutex::default(),
            views: Mutex::default(),
            held: Mutex::default(),
            changes: watch::channel(0).0,
            own,
            is_in_cluster,
            newest: Mutex::new(Arc::new(newest)),
            kept,
            applied: Mutex::default(),
            is_evicted: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_in_cluster(&self) -> bool {
        self.is_in_cluster
    }

    /// Changes of the existing backends.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Whether a pool that is not elastic any more still has backends.
    pub(crate) fn is_ending(&self) -> bool {
        lock(&self.views).values().any(|view| view.ends)
    }

    /// Applies the pools of a new configuration. The leader drains and removes the backends of
    /// pools that are not elastic any more.
    pub(crate) async fn follow(&self, wish: &PlanningConfig) {
        let mut running = self.running.lock().await;
        let makers = &wish.planning.makers;
        for (pool, view) in &mut *lock(&self.views) {
            let ends = !makers.contains_key(pool);
            if ends && !view.ends {
                tracing::info!(
                    event = "plan.ended",
                    pool,
                    "the pool is not elastic any more: its backends drain and are removed"
                );
            }
            view.ends = ends;
        }
        for (pool, maker) in makers {
            match running.get_mut(pool) {
                Some(one) => {
                    let _ = one.scaler.set_limits(maker.limits).await;
                    if one.driver != maker.driver {
                        self.change(pool, one, maker).await;
                    }
                }
                None => self.start(&mut running, pool, maker, false).await,
            }
        }
        for (pool, maker) in self.left_over(&running) {
            self.start(&mut running, &pool, &maker, true).await;
        }
        self.changes.send_modify(|count| *count += 1);
        drop(running);
        let newest = self.newest();
        self.obey(newest).await;
    }

    /// Pools of an earlier process that the file no longer has, and whose backends outlived that
    /// process.
    fn left_over(&self, running: &BTreeMap<String, Running>) -> Vec<(String, Maker)> {
        let (newest, drivers) = (self.newest(), lock(&self.drivers).clone());
        let left = newest.rosters.iter().filter(|(pool, _)| !running.contains_key(*pool));
        let maker = |(pool, roster): (&String, &Roster)| {
            let mut own = rosters::of_member(roster, &self.own).filter(|it| it.outlives);
            let driver = own.find_map(|one| drivers.get(pool)?.get(&one.driver?).cloned())?;
            Some((pool.clone(), Maker { driver, limits: Limits::default() }))
        };
        left.filter_map(maker).collect()
    }

    /// Switches a pool to another driver.
    async fn change(&self, pool: &str, one: &mut Running, maker: &Maker) {
        if let Err(error) = one.scaler.set_driver(maker.driver.clone()).await {
            tracing::error!(
                event = "plan.failed",
                pool,
                "kept the pool's earlier driver: {}; fix the file and reload",
                with_causes(&error)
            );
            return;
        }
        one.driver = maker.driver.clone();
        self.know(pool, &maker.driver);
        tracing::info!(
            event = "plan.driver",
            pool,
            "the pool's driver changed; existing backends are replaced one by one"
        );
    }

    /// Stores a driver under the name that rosters use for it.
    fn know(&self, pool: &str, driver: &DriverOptions) {
        if let Some(name) = driver.fingerprint() {
            let mut drivers = lock(&self.drivers);
            drivers.entry(pool.to_string()).or_default().insert(name, driver.clone());
        }
    }

    async fn start(
        &self,
        running: &mut BTreeMap<String, Running>,
        pool: &str,
        maker: &Maker,
        ends: bool,
    ) {
        match self.started(pool, maker).await {
            Ok(one) => {
                let now = one.scaler.subscribe();
                lock(&self.views).insert(pool.to_string(), View { now, ends });
                running.insert(pool.to_string(), one);
            }
            Err(error) => {
                tracing::error!(
                    event = "plan.failed",
                    pool,
                    "the pool does not scale: {error}; fix the file and reload"
                );
            }
        }
    }

    async fn started(&self, pool: &str, maker: &Maker) -> Result<Running, OptionRefused> {
        let (newest, unknown) = (self.newest(), Roster::default());
        let roster = newest.rosters.get(pool).unwrap_or(&unknown);
        let has = rosters::of_member(roster, &self.own).filter(|it| it.outlives).collect();
        let earlier = lock(&self.drivers).get(pool).cloned().unwrap_or_default();
        let scaler = Scaler::start(ScalerOptions {
            pool: pool.to_string(),
            limits: maker.limits,
            driver: maker.driver.clone(),
            earlier,
            has,
            next_number: roster.next_number.max(1),
        });
        let scaler = scaler.await?;
        self.know(pool, &maker.driver);
        let (mut view, changes) = (scaler.subscribe(), self.changes.clone());
        let telling = tokio::spawn(async move {
            while view.changed().await.is_ok() {
                changes.send_modify(|count| *count += 1);
            }
        });
        Ok(Running { scaler, driver: maker.driver.clone(), telling })
    }

    /// Saves this member's part of the rosters and the drivers of its backends, if they changed.
    /// Returns whether they are saved.
    async fn save(&self, rosters: &Rosters) -> bool {
        let mut drivers = lock(&self.drivers).clone();
        for (pool, known) in &mut drivers {
            let current = lock(&self.views).get(pool).and_then(|it| it.now.borrow().driver.clone());
            let entries = || rosters.get(pool).into_iter().flat_map(|it| it.backends.values());
            known.retain(|name, _| {
                current.as_ref() == Some(name)
                    || entries().any(|entry| entry.driver.as_ref() == Some(name))
            });
        }
        drivers.retain(|_, known| !known.is_empty());
        let before = lock(&self.saved).rosters.clone();
        let is_there = |pool: &str, name: &str| {
            let views = lock(&self.views);
            views
                .get(pool)
                .is_none_or(|view| view.now.borrow().backends.iter().any(|made| made.name == name))
        };
        let own = rosters::to_save(rosters, &before, &self.own, is_there);
        let now = Saved { rosters: own, drivers };
        if *lock(&self.saved) == now {
            return true;
        }
        let problem = self.writer.write(now.clone()).await.err();
        let was_unsaved = self.is_unsaved.swap(problem.is_some(), Relaxed);
        match problem {
            None => *lock(&self.saved) = now,
            Some(problem) if !was_unsaved => tracing::warn!(
                "could not save rosters of elastic pools ({problem}); they are lost only if the store is lost too"
            ),
            Some(_) => {}
        }
        !self.is_unsaved.load(Relaxed)
    }

    /// Keeps pools at their size while no controller runs on a single machine: creates backends up
    /// to the earlier number, or the minimum. Backends that ended with an earlier process are
    /// created again once. No backend that outlives this process is created unless the roster is
    /// saved.
    pub(crate) async fn hold(&self, wish: &PlanningConfig) {
        let running = self.running.lock().await;
        let mut rosters = self.newest().rosters.clone();
        let mut all = BTreeMap::new();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        for (pool, one) in &*running {
            let Some(elastic) = wish.planning.elastic.get(pool) else { continue };
            let listed = wish.listed.get(pool).map_or(0, BTreeSet::len) as u32;
            let view = one.scaler.view();
            // Without a known number, the minutes since 1970 exceed every number that was given: a
            // pool creates fewer backends than one a minute.
            let next_number = if view.outlives { since.as_secs() / 60 } else { 1 };
            let unknown = Roster::unknown_before(next_number);
            let before = rosters.get(pool).unwrap_or(&unknown);
            let nonce = format!("{:x}", since.as_millis());
            let held = held::hold(before, &self.own, &view, elastic, listed, &nonce);
            tracing::warn!(
                event = "plan.held",
                pool,
                backends = held.target,
                "the pool keeps its size, because no controller runs"
            );
            all.insert(pool.clone(), held.target);
            rosters.insert(pool.clone(), held.roster);
        }
        let is_saved = self.save(&rosters).await;
        for (pool, one) in running.iter().filter(|(pool, _)| all.contains_key(*pool)) {
            let view = one.scaler.view();
            if is_saved || !view.outlives {
                let _ = one.scaler.desire(rosters::desired(&rosters[pool], &self.own, &view)).await;
            }
        }
        *lock(&self.newest) = Arc::new(Instructions { rosters, ..Instructions::default() });
        *lock(&self.held) = all;
    }

    /// Forgets the edition of the instructions after the controller of a single machine stopped, so
    /// that the next ones count whatever their edition.
    pub(crate) fn forget_edition(&self) {
        if !self.is_in_cluster {
            let rosters = self.newest().rosters.clone();
            *lock(&self.newest) = Arc::new(Instructions { rosters, ..Instructions::default() });
            lock(&self.applied).clear();
        }
    }

    /// Ends the fixed sizes: a controller decides, or the pool does not scale.
    pub(crate) fn let_scale(&self) {
        lock(&self.held).clear();
    }

    /// A clause about the fixed sizes of pools, for errors; empty if a controller runs.
    pub(crate) fn held_in_words(&self) -> String {
        let held = lock(&self.held);
        let one = |(pool, count): (&String, &u32)| format!("pool {pool} at {count}");
        let all: Vec<String> = held.iter().map(one).collect();
        if all.is_empty() {
            return String::new();
        }
        format!(". Until it runs, pools keep their number of backends: {}", all.join(", "))
    }

    /// Applies the rosters of instructions to the scalers and to pools. Returns whether a scaler
    /// received its first roster: only then it is known which backends of an earlier process are
    /// lost.
    pub(crate) async fn obey(&self, newest: Arc<Instructions>) -> bool {
        let before = self.install(self.corrected(newest));
        let mut running = self.running.lock().await;
        // Newer instructions may have arrived while a driver was started.
        let newest = self.newest();
        self.save(&newest.rosters).await;
        let mut is_first = false;
        if !newest.is_blank() && self.kept != Some(newest.edition()) {
            for (pool, one) in &*running {
                let Some(roster) = newest.rosters.get(pool) else { continue };
                let view = one.scaler.view();
                let is_evicted = self.is_evicted.load(Relaxed);
                let desired = match is_evicted {
                    true => rosters::desired_of_evicted(roster, &view),
                    false => rosters::desired(roster, &self.own, &view),
                };
                if one.scaler.desire(desired).await.is_ok() {
                    let mut applied = lock(&self.applied);
                    if is_evicted {
                        // The view of an evicted member leaves out backends that outlive it.
                        // Without an edition, the leader does not take them for lost.
                        applied.remove(pool);
                    } else {
                        is_first |= applied.insert(pool.clone(), newest.edition()).is_none();
                    }
                }
            }
            self.end(&mut running, &newest).await;
        }
        if rosters::places(&before.rosters).ne(rosters::places(&newest.rosters)) {
            self.changes.send_modify(|count| *count += 1);
        }
        is_first
    }

    /// Stops scalers of pools that are not elastic any more and have no backends left.
    async fn end(&self, running: &mut BTreeMap<String, Running>, newest: &Instructions) {
        let has_some = |pool: &str| {
            let roster = newest.rosters.get(pool);
            roster.is_some_and(|it| rosters::of_member(it, &self.own).next().is_some())
        };
        let is_over = |(pool, view): (&String, &View)| {
            let is_over = view.ends && view.now.borrow().backends.is_empty() && !has_some(pool);
            is_over.then(|| pool.clone())
        };
        let over: Vec<String> = lock(&self.views).iter().filter_map(is_over).collect();
        for pool in over {
            lock(&self.views).remove(&pool);
            lock(&self.applied).remove(&pool);
            if let Some(one) = running.remove(&pool) {
                one.stop().await;
            }
            tracing::info!(event = "plan.ended", pool, "the last backend of the pool is removed");
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// On a single machine: the instructions without backends that the machine has removed since.
    fn corrected(&self, newest: Arc<Instructions>) -> Arc<Instructions> {
        if self.is_in_cluster {
            return newest;
        }
        match rosters::without_outlived(&newest.rosters, &lock(&self.saved).rosters) {
            Some(rosters) => Arc::new(Instructions { rosters, ..Instructions::clone(&newest) }),
            None => newest,
        }
    }

    /// Installs instructions if they are newer than those in force. Returns the previous ones.
    fn install(&self, newest: Arc<Instructions>) -> Arc<Instructions> {
        let mut known = lock(&self.newest);
        if newest.is_newer_than(&known) {
            return std::mem::replace(&mut *known, newest);
        }
        Arc::clone(&known)
    }

    /// Applies the eviction of this node, or its end.
    pub(crate) async fn set_evicted(&self, is_evicted: bool) {
        if self.is_evicted.swap(is_evicted, Relaxed) == is_evicted {
            return;
        }
        self.obey(self.newest()).await;
        self.changes.send_modify(|count| *count += 1);
    }

    /// For the leader: the backends that this member can create, and those that it has.
    pub(crate) fn making(&self) -> BTreeMap<String, Making> {
        // The order matters: read after the views, the editions could be newer, and the newest
        // backends would seem lost.
        let applied = lock(&self.applied).clone();
        let views = lock(&self.views);
        let one = |(pool, view): (&String, &View)| {
            let edition = applied.get(pool).copied().unwrap_or_default();
            (pool.clone(), rosters::making(&view.now.borrow(), view.ends, edition))
        };
        views.iter().map(one).collect()
    }

    /// For the leader: draining backends without work left here.
    pub(crate) fn drained(
        &self,
        level: &dyn Measured,
        wish: &PlanningConfig,
    ) -> BTreeMap<String, BTreeSet<String>> {
        rosters::drained(&self.newest().rosters, level, &wish.forwarded)
    }

    /// The instructions in force.
    fn newest(&self) -> Arc<Instructions> {
        lock(&self.newest).clone()
    }

    /// Adds the sizes of elastic backends to the samples of pools.
    pub(crate) fn sized(
        &self,
        mut samples: BTreeMap<String, PoolSample>,
    ) -> BTreeMap<String, PoolSample> {
        for (pool, sample) in &mut samples {
            for backend in self.made(pool) {
                if let Some(one) = sample.backends.get_mut(&backend.name) {
                    one.size = backend.size;
                }
            }
        }
        samples
    }

    /// Elastic backends of a pool: this machine's from its scaler, those of other members from the
    /// roster.
    pub(crate) fn made(&self, pool: &str) -> Vec<JoinedBackend> {
        let (newest, unknown) = (self.newest(), Roster::default());
        let roster = newest.rosters.get(pool).unwrap_or(&unknown);
        let views = lock(&self.views);
        let view = views.get(pool);
        let has = view.map(|view| view.now.borrow().clone()).unwrap_or_default();
        let is_own = |entry: &Entry| entry.executor == *self.own;
        let of_another = |name: &str| roster.backends.get(name).is_some_and(|it| !is_own(it));
        let own = has.backends.iter().filter(|made| !of_another(&made.name));
        let own = own.filter_map(rosters::own);
        let is_unseen = |name: &String| has.backends.iter().all(|made| made.name != *name);
        // A backend that outlives its process keeps running, even if the scaler does not know it or
        // cannot start.
        let others = roster
            .backends
            .iter()
            .filter(|(name, entry)| !is_own(entry) || entry.outlives && is_unseen(name));
        let others = others.filter_map(|(name, entry)| rosters::joined(name, entry));
        own.chain(others).collect()
    }

    /// Backends to drain, as (pool, backend): by the roster, or by an earlier process if no
    /// controller runs.
    pub(crate) fn draining(&self) -> Vec<(String, String)> {
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

    /// Stops all scalers: processes end; backends that outlive this process stay.
    pub(crate) async fn stop(&self) {
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
}
