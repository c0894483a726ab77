//! Elastic pools: a scaler for each makes what the instructions' rosters give this member, and what was made joins the pool.
//!
//! A machine of its own is a cluster of one: its controller is in this process. Where that does not run, pools are held at
//! what they had: `held.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use equipoise_controller::{Edition, Entry, Instructions, Making, Roster, Wanted};
use equipoise_driver::{
    BackendState, DriverOptions, Limits, OptionRefused, PoolView, Scaler, ScalerOptions,
};
use equipoise_planner::elastic::PoolSample;
use equipoise_session::config::{BackendConfig, Concurrency, PoolConfig, SessionConfig};
use equipoise_session::registry::RegistryHandle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::Wish;
use super::held;
use super::rosters::{self, Rosters};
use super::saved::{self, Drivers, Saved, Writer};
use crate::config::Maker;
use crate::run::lock;

/// The scalers of this process.
pub(super) struct Scalers {
    /// The saved rosters.
    saved: Mutex<Saved>,
    writer: Writer,
    /// That it cannot be saved was logged.
    is_unsaved: AtomicBool,
    /// The drivers of this machine's file, and those before them whose backends may be there.
    drivers: Mutex<Drivers>,
    running: tokio::sync::Mutex<BTreeMap<String, Running>>,
    views: Mutex<BTreeMap<String, View>>,
    /// Without a controller: at how many backends each pool is held.
    held: Mutex<BTreeMap<String, u32>>,
    /// Rises when what exists has changed.
    changes: watch::Sender<u64>,
    /// This member.
    own: Arc<str>,
    is_in_cluster: bool,
    /// Before there are any, without an edition, with the rosters that an earlier process used last.
    newest: Mutex<Arc<Instructions>>,
    /// Instructions that an earlier process kept: pools go by them, and no driver is told, as nothing is made or taken
    /// away without a leader.
    kept: Option<Edition>,
    /// The instructions that each pool's scaler was told last.
    applied: Mutex<BTreeMap<String, Edition>>,
    /// An operator evicted this node: its processes end, and another member goes on with what outlives it.
    is_evicted: AtomicBool,
}

/// What a scaler has.
struct View {
    now: watch::Receiver<Arc<PoolView>>,
    /// The pool is elastic no more here: the scaler stops when it has nothing left.
    ends: bool,
}

struct Running {
    scaler: Scaler,
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

    pub(super) fn is_in_cluster(&self) -> bool {
        self.is_in_cluster
    }

    /// What exists, and every change of it.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Whether a pool that is elastic no more still has backends.
    pub(super) fn is_ending(&self) -> bool {
        lock(&self.views).values().any(|view| view.ends)
    }

    /// Goes over to these pools. The backends of one that is elastic no more leave as the leader says, which drains them.
    pub(super) async fn follow(&self, wish: &Wish) {
        let mut running = self.running.lock().await;
        let makers = &wish.planning.makers;
        for (pool, view) in &mut *lock(&self.views) {
            let ends = !makers.contains_key(pool);
            if ends && !view.ends {
                tracing::info!(pool, "no longer elastic: its backends drain and go");
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

    /// Pools that an earlier process had, whose backends outlived it and which the file has no more.
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
        self.know(pool, &maker.driver);
        tracing::info!(
            pool,
            "its backends are made in another way from now on; those that there are are replaced one by one"
        );
    }

    /// Has a driver by the name that rosters will have for it.
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
                tracing::error!(pool, "the pool does not scale: {error}; mend it and reload");
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

    /// Saves what these rosters give this member, and the drivers that made what they have, if that has changed. Whether it is
    /// saved.
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
                "rosters of elastic pools are not saved ({problem}): while the store is whole nothing is lost by that"
            ),
            Some(_) => {}
        }
        !self.is_unsaved.load(Relaxed)
    }

    /// While no controller runs on a machine of its own: makes what a pool lacks to what it had, or to its least. What went
    /// with an earlier process is made again once. Nothing is made that outlives this process and cannot be saved.
    pub(super) async fn hold(&self, wish: &Wish) {
        let running = self.running.lock().await;
        let mut rosters = self.newest().rosters.clone();
        let mut all = BTreeMap::new();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        for (pool, one) in &*running {
            let Some(elastic) = wish.planning.elastic.get(pool) else { continue };
            let listed = wish.listed.get(pool).map_or(0, BTreeSet::len) as u32;
            let view = one.scaler.view();
            // Where nothing is known, no number comes twice: there are fewer backends than minutes since 1970.
            let next_number = if view.outlives { since.as_secs() / 60 } else { 1 };
            let unknown = Roster::unknown_before(next_number);
            let before = rosters.get(pool).unwrap_or(&unknown);
            let nonce = format!("{:x}", since.as_millis());
            let held = held::hold(before, &self.own, &view, elastic, listed, &nonce);
            tracing::warn!(
                pool,
                backends = held.target,
                "without a controller the pool neither grows nor shrinks"
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

    /// The controller of a machine of its own has stopped: whichever rosters come next count.
    pub(super) fn forget_edition(&self) {
        if !self.is_in_cluster {
            let rosters = self.newest().rosters.clone();
            *lock(&self.newest) = Arc::new(Instructions { rosters, ..Instructions::default() });
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
        let before = self.install(self.corrected(newest));
        let mut running = self.running.lock().await;
        // Newer ones may have come while a driver was being started.
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
                        // Its view leaves out what outlives this process, and so says of no backend
                        // that it is gone.
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

    /// Stops scalers of pools that are elastic no more and have nothing left.
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
            tracing::info!(pool, "its backends are gone");
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// Instructions without backends that this machine has removed since, on a machine of its own.
    fn corrected(&self, newest: Arc<Instructions>) -> Arc<Instructions> {
        if self.is_in_cluster {
            return newest;
        }
        match rosters::without_outlived(&newest.rosters, &lock(&self.saved).rosters) {
            Some(rosters) => Arc::new(Instructions { rosters, ..Instructions::clone(&newest) }),
            None => newest,
        }
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
            (pool.clone(), rosters::making(&view.now.borrow(), view.ends, edition))
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
        // What outlives a process runs on, whether the scaler here has heard of it, or does not even start.
        let others = roster
            .backends
            .iter()
            .filter(|(name, entry)| !is_own(entry) || entry.outlives && is_unseen(name));
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
}

/// The concurrency limit of a backend of a size, where the pool states a number: in proportion to the size's speed.
fn of_size(pool: &PoolConfig, size: Option<&str>, wish: &Wish) -> Option<Concurrency> {
    let limit = pool.concurrency.fixed()?;
    let size = wish.planning.elastic.get(&*pool.name)?.sizes.get(size?)?;
    let limit = (f64::from(limit.get()) * size.speed).round() as u32;
    Some(Concurrency::Fixed(NonZeroU32::new(limit).unwrap_or(NonZeroU32::MIN)))
}
