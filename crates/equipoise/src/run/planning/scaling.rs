//! Elastic pools: a scaler for each, and what was made joins the pool.
//!
//! On a machine of its own the scalers are told the plan's steps, and what exists is what they have. In a cluster they
//! are told what the instructions' rosters give this member, and what exists is in the rosters: `rosters.rs`. Where no
//! controller runs on a machine of its own, pools are held at what they had: `held.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use equipoise_controller::{Edition, Entry, Instructions, Making, Wanted};
use equipoise_core::{AdminState, Weight};
use equipoise_driver::{
    BackendState, DriverOptions, ElasticBackend, Limits, Opened, PoolView, RecordFile, Scaler,
    ScalerOptions,
};
use equipoise_planner::elastic::{PoolSample, Scaling};
use equipoise_session::config::{BackendConfig, Concurrency, Place, PoolConfig, SessionConfig};
use equipoise_session::registry::RegistryHandle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::Wish;
use super::held;
use super::rosters::{self, Rosters};
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
    /// `None` on a machine of its own.
    cluster: Option<InCluster>,
}

/// What a member of a cluster knows beside that.
struct InCluster {
    /// This member.
    own: Arc<str>,
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
    /// `member`: what the cluster calls this machine, if there is one.
    /// `kept`: the instructions that an earlier process of its kept.
    pub(super) fn new(folder: PathBuf, member: Option<Arc<str>>, kept: Option<Edition>) -> Scalers {
        let (newest, applied) = (Mutex::default(), Mutex::default());
        let is_evicted = AtomicBool::new(false);
        let cluster = |own| InCluster { own, newest, kept, applied, is_evicted };
        Scalers {
            cluster: member.map(cluster),
            folder,
            running: tokio::sync::Mutex::default(),
            views: Mutex::default(),
            held: Mutex::default(),
            changes: watch::channel(0).0,
        }
    }

    pub(super) fn is_in_cluster(&self) -> bool {
        self.cluster.is_some()
    }

    /// What exists, and every change of it.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// What this machine has made of a pool; `None` without a scaler.
    pub(super) fn view(&self, pool: &str) -> Option<Arc<PoolView>> {
        lock(&self.views).get(pool).map(|view| view.now.borrow().clone())
    }

    /// Goes over to these pools. What is elastic no longer loses its backends after its time to drain.
    pub(super) async fn follow(&self, wish: &Wish) {
        let mut running = self.running.lock().await;
        let gone: Vec<String> =
            running.keys().filter(|it| !wish.planning.makers.contains_key(*it)).cloned().collect();
        for pool in gone {
            lock(&self.views).remove(&pool);
            let Some(one) = running.remove(&pool) else { continue };
            tracing::info!(pool, "no longer elastic: its backends drain and go");
            tokio::spawn(async move {
                tokio::time::sleep(Limits::default().drain_timeout).await;
                one.remove_all().await;
            });
        }
        for (pool, maker) in &wish.planning.makers {
            let room = (maker.limits.max as usize)
                .saturating_sub(wish.listed.get(pool).map_or(0, BTreeSet::len));
            let limits = Limits { max: room as u32, ..maker.limits };
            match running.get_mut(pool) {
                Some(one) => {
                    let _ = one.scaler.set_limits(limits).await;
                    if one.driver != maker.driver {
                        self.change(pool, one, maker).await;
                    }
                }
                None => match self.start(pool, maker, limits).await {
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
        if let Some(cluster) = &self.cluster {
            let newest = lock(&cluster.newest).clone();
            self.obey(newest).await;
        }
    }

    /// Goes over to another driver. In a cluster the leader says who leaves, and nobody is replaced before.
    async fn change(&self, pool: &str, one: &mut Running, maker: &Maker) {
        let replace = self.cluster.is_none();
        if let Err(error) = one.scaler.set_driver(maker.driver.clone(), replace).await {
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
        let those_there = match replace {
            true => "those that there are are replaced one by one",
            false => "those that there are stay until they leave",
        };
        tracing::info!(pool, "its backends are made in another way from now on; {those_there}");
    }

    async fn start(&self, pool: &str, maker: &Maker, limits: Limits) -> anyhow::Result<Running> {
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
            limits,
            driver: maker.driver.clone(),
            replace: self.cluster.is_none(),
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
            // One after the other, and none if others were quicker.
            for (after, step) in (view.steps..).zip(held::steps(elastic, &view, listed, &lost)) {
                let _ = one.scaler.scale(&step, Some(after)).await;
            }
            all.insert(pool.clone(), target);
        }
        *lock(&self.held) = all;
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

    /// Takes the steps of a plan that was made in this process, but for those that another plan was quicker with.
    pub(super) async fn scale(&self, instructions: &Instructions) {
        for (pool, one) in &*self.running.lock().await {
            let plan = instructions.plan.pools.get(pool);
            let Some(scaling) = plan.and_then(|plan| plan.scaling.as_ref()) else { continue };
            // What was planned without this scaler's count was planned before it was there.
            let after = scaling.after.filter(|after| *after == one.scaler.view().steps);
            if scaling.action == Scaling::Hold || after.is_none() {
                continue;
            }
            tracing::info!(pool, action = ?scaling.action, "scaling: {}", scaling.reason);
            let _ = one.scaler.scale(&scaling.action, after).await;
        }
    }

    /// In a cluster: has what the instructions' rosters give this member, and knows of all the rest.
    pub(super) async fn obey(&self, newest: Arc<Instructions>) {
        let Some(cluster) = &self.cluster else { return };
        let before = std::mem::replace(&mut *lock(&cluster.newest), Arc::clone(&newest));
        for (pool, one) in &*self.running.lock().await {
            let Some(roster) = newest.rosters.get(pool) else { continue };
            if cluster.is_kept(&newest) {
                continue;
            }
            let desired = match cluster.is_evicted.load(Relaxed) {
                true => Vec::new(),
                false => rosters::desired(roster, &cluster.own),
            };
            if one.scaler.desire(desired).await.is_ok() {
                lock(&cluster.applied).insert(pool.clone(), newest.edition());
            }
        }
        if rosters::places(&before.rosters).ne(rosters::places(&newest.rosters)) {
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// Follows whether this node is evicted.
    pub(super) async fn set_evicted(&self, is_evicted: bool) {
        let Some(cluster) = &self.cluster else { return };
        if cluster.is_evicted.swap(is_evicted, Relaxed) == is_evicted {
            return;
        }
        let newest = lock(&cluster.newest).clone();
        self.obey(newest).await;
        self.changes.send_modify(|count| *count += 1);
    }

    /// For the leader: what this member can make, and has made.
    pub(super) fn making(&self) -> BTreeMap<String, Making> {
        let Some(cluster) = &self.cluster else { return BTreeMap::new() };
        // First what was told, then what is there: the other way round, what was told last would seem to be lost.
        let applied = lock(&cluster.applied).clone();
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
        match self.rosters() {
            Some(newest) => rosters::drained(&newest.rosters, registry, &wish.forwarded),
            None => BTreeMap::new(),
        }
    }

    /// In a cluster, the instructions with the rosters in force.
    fn rosters(&self) -> Option<Arc<Instructions>> {
        self.cluster.as_ref().map(|cluster| lock(&cluster.newest).clone())
    }

    /// Lets go who drains and has nothing left. Pools of the packet level, and those that names are spread over, wait for
    /// the whole time to drain: their flows, and who has their addresses, are not known here.
    pub(super) async fn let_go(&self, registry: &RegistryHandle, wish: &Wish) {
        // In a cluster the leader says when: other nodes use it, too.
        if self.cluster.is_some() {
            return;
        }
        // Reports do not wait for a driver that is just being started.
        let Ok(running) = self.running.try_lock() else { return };
        if running.is_empty() {
            return;
        }
        let (states, stats) = (registry.pools().borrow().clone(), registry.stats());
        for (pool, one) in running.iter().filter(|(pool, _)| !wish.forwarded.contains(*pool)) {
            let states = states.iter().find(|it| *it.name == **pool);
            let series = stats.pools.iter().find(|it| *it.name == **pool);
            let view = one.scaler.view();
            let draining = |it: &&ElasticBackend| it.state == BackendState::Draining;
            for backend in view.backends.iter().filter(draining) {
                let state =
                    states.and_then(|it| it.backends.iter().find(|b| *b.name == *backend.name));
                let live =
                    series.and_then(|it| it.backends.iter().find(|b| *b.name == *backend.name));
                let takes_work = state.is_some_and(|state| state.admin == AdminState::Up);
                let in_flight = live.map_or(0, |live| live.live.in_flight());
                if !takes_work && in_flight == 0 {
                    let _ = one.scaler.drained(&backend.name).await;
                }
            }
        }
    }

    /// Samples of pools, with the sizes of what was made.
    pub(super) fn sized(
        &self,
        mut samples: BTreeMap<String, PoolSample>,
    ) -> BTreeMap<String, PoolSample> {
        if let Some(newest) = self.rosters() {
            size_by(&newest.rosters, &mut samples);
            return samples;
        }
        for (pool, sample) in &mut samples {
            let Some(view) = self.view(pool) else { continue };
            for made in &view.backends {
                if let Some(one) = sample.backends.get_mut(&made.name) {
                    one.size.clone_from(&made.size);
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

    /// The backends that were made, each with its size.
    fn made(&self, pool: &str) -> Vec<(BackendConfig, Option<String>)> {
        if let Some(cluster) = &self.cluster {
            let newest = lock(&cluster.newest).clone();
            let backends = newest.rosters.get(pool).into_iter().flat_map(|it| &it.backends);
            // The processes of an earlier process died with it; those of an evicted node are ended.
            let has_none = cluster.is_kept(&newest) || cluster.is_evicted.load(Relaxed);
            let outlived = || lock(&self.views).get(pool).is_some_and(|view| view.outlives);
            let may_be_there =
                |entry: &Entry| !has_none || entry.executor != *cluster.own || outlived();
            let backends = backends.filter(|(_, entry)| may_be_there(entry));
            let sized = |(name, entry): (&String, &Entry)| {
                Some((rosters::joined(name, entry)?, entry.size.clone()))
            };
            return backends.filter_map(sized).collect();
        }
        let Some(view) = self.view(pool) else { return Vec::new() };
        let sized = |made: &ElasticBackend| Some((joined(made)?, made.size.clone()));
        view.backends.iter().filter_map(sized).collect()
    }

    /// Those that are to be drained, as (pool, backend).
    pub(super) fn draining(&self) -> Vec<(String, String)> {
        if let Some(newest) = self.rosters() {
            let draining = rosters::places(&newest.rosters).filter(|it| it.3 == Wanted::Drain);
            return draining.map(|(pool, name, ..)| (pool.clone(), name.clone())).collect();
        }
        let views: Vec<_> =
            lock(&self.views).values().map(|view| view.now.borrow().clone()).collect();
        let of = |view: &Arc<PoolView>| {
            let draining = view.backends.iter().filter(|it| it.state == BackendState::Draining);
            draining.map(|it| (view.pool.clone(), it.name.clone())).collect::<Vec<_>>()
        };
        views.iter().flat_map(of).collect()
    }

    /// Ends all scalers: processes go, what outlives us stays.
    pub(super) async fn stop(&self) {
        let running = std::mem::take(&mut *self.running.lock().await);
        for one in running.into_values() {
            one.stop().await;
        }
    }
}

impl InCluster {
    fn is_kept(&self, instructions: &Instructions) -> bool {
        self.kept == Some(instructions.edition())
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

fn size_by(rosters: &Rosters, samples: &mut BTreeMap<String, PoolSample>) {
    for (pool, sample) in samples {
        let Some(roster) = rosters.get(pool) else { continue };
        for (name, entry) in &roster.backends {
            if let Some(one) = sample.backends.get_mut(name) {
                one.size.clone_from(&entry.size);
            }
        }
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

/// A backend that serves, or still has work, as the pool is to have it.
fn joined(made: &ElasticBackend) -> Option<BackendConfig> {
    let serves = matches!(made.state, BackendState::Ready | BackendState::Draining);
    let address = made.address.filter(|_| serves)?;
    let (name, weight) = (made.name.as_str().into(), Weight::DEFAULT);
    let (place, backup, concurrency) = (Place::Address, false, None);
    Some(BackendConfig { name, address, place, weight, backup, concurrency })
}
