//! Elastic pools: a scaler for each, told the plan's steps; what it has made joins the pool.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use equipoise_controller::Instructions;
use equipoise_core::{AdminState, Weight};
use equipoise_driver::{
    BackendState, DriverOptions, ElasticBackend, Limits, PoolView, RecordFile, Scaler,
    ScalerOptions,
};
use equipoise_planner::elastic::{PoolSample, Scaling};
use equipoise_session::config::{BackendConfig, SessionConfig};
use equipoise_session::registry::RegistryHandle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::Wish;
use crate::config::Maker;
use crate::run::lock;

/// The scalers of this process.
pub(super) struct Scalers {
    /// Where records of what was made are kept.
    folder: PathBuf,
    running: tokio::sync::Mutex<BTreeMap<String, Running>>,
    views: Mutex<BTreeMap<String, watch::Receiver<Arc<PoolView>>>>,
    /// Rises when what exists has changed.
    changes: watch::Sender<u64>,
}

struct Running {
    scaler: Scaler,
    driver: DriverOptions,
    telling: JoinHandle<()>,
}

impl Scalers {
    pub(super) fn new(folder: PathBuf) -> Scalers {
        Scalers {
            folder,
            running: tokio::sync::Mutex::default(),
            views: Mutex::default(),
            changes: watch::channel(0).0,
        }
    }

    /// What exists, and every change of it.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// What exists of a pool; `None` without a scaler.
    pub(super) fn view(&self, pool: &str) -> Option<Arc<PoolView>> {
        lock(&self.views).get(pool).map(|view| view.borrow().clone())
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
                .saturating_sub(wish.listed.get(pool).copied().unwrap_or(0));
            let limits = Limits { max: room as u32, ..maker.limits };
            match running.get(pool) {
                Some(one) => {
                    if one.driver != maker.driver {
                        tracing::warn!(
                            pool,
                            "what makes its backends changed: that takes a restart"
                        );
                    }
                    let _ = one.scaler.set_limits(limits).await;
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
    }

    async fn start(&self, pool: &str, maker: &Maker, limits: Limits) -> anyhow::Result<Running> {
        std::fs::create_dir_all(&self.folder)?;
        let file = RecordFile::new(self.folder.join(format!("elastic-{pool}.json")));
        let options = ScalerOptions {
            pool: pool.to_string(),
            limits,
            driver: maker.driver.clone(),
            record: file.load()?,
            keeper: Some(Arc::new(file)),
        };
        let scaler = Scaler::start(options).await?;
        let mut view = scaler.subscribe();
        lock(&self.views).insert(pool.to_string(), view.clone());
        let changes = self.changes.clone();
        let telling = tokio::spawn(async move {
            while view.changed().await.is_ok() {
                changes.send_modify(|count| *count += 1);
            }
        });
        Ok(Running { scaler, driver: maker.driver.clone(), telling })
    }

    /// Takes the steps of a plan that was made in this process just now; each plan once.
    pub(super) async fn scale(&self, instructions: &Instructions) {
        for (pool, one) in &*self.running.lock().await {
            let plan = instructions.plan.pools.get(pool);
            let Some(scaling) = plan.and_then(|plan| plan.scaling.as_ref()) else { continue };
            if scaling.action != Scaling::Hold {
                tracing::info!(pool, action = ?scaling.action, "scaling: {}", scaling.reason);
            }
            let _ = one.scaler.scale(&scaling.action).await;
        }
    }

    /// Lets go who drains and has nothing left. Pools of the packet level wait for the whole time to drain: their flows
    /// are not known here.
    pub(super) async fn let_go(&self, registry: &RegistryHandle, wish: &Wish) {
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
                let in_flight = live.map_or(0, |live| live.live.in_flight.load(Relaxed));
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

    /// The configuration with what was made.
    pub(super) fn with_made(&self, config: &SessionConfig) -> SessionConfig {
        let mut config = config.clone();
        for pool in &mut config.pools {
            let Some(view) = self.view(&pool.name) else { continue };
            for made in &view.backends {
                let Some(backend) = joined(made) else { continue };
                if pool.backends.iter().all(|it| it.address != backend.address) {
                    pool.backends.push(backend);
                }
            }
        }
        config
    }

    /// Those that are to be drained, as (pool, backend).
    pub(super) fn draining(&self) -> Vec<(String, String)> {
        let views: Vec<_> = lock(&self.views).values().map(|view| view.borrow().clone()).collect();
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

/// A backend that serves, or still has work, as the pool is to have it.
fn joined(made: &ElasticBackend) -> Option<BackendConfig> {
    let serves = matches!(made.state, BackendState::Ready | BackendState::Draining);
    let address = made.address.filter(|_| serves)?;
    let (name, weight) = (made.name.as_str().into(), Weight::DEFAULT);
    Some(BackendConfig { name, address, socket: None, weight })
}
