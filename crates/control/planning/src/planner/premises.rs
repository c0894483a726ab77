//! Inputs of the planner from this process: the file and the pools.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use equipoise_basics::lock;
use equipoise_controller::{MadePool, Premises, Source};
use equipoise_planner::{BackendSpec, NameSpec, PoolSpec};
use tokio::sync::watch;

use crate::level::{BackendNow, Measured, PoolNow};
use crate::planning_config::PlanningConfig;
use crate::scaling::Scalers;

/// Source of the inputs.
pub(super) struct Here {
    level: Arc<dyn Measured>,
    wish: watch::Receiver<Arc<PlanningConfig>>,
    scalers: Arc<Scalers>,
    ages: Mutex<Ages>,
}

/// Times at which backends were first seen. Backends that existed at the start have the largest
/// age.
#[derive(Debug, Default)]
struct Ages {
    began: bool,
    first: HashMap<(Arc<str>, Arc<str>), Option<Instant>>,
}

impl Here {
    pub(super) fn new(
        level: Arc<dyn Measured>,
        wish: watch::Receiver<Arc<PlanningConfig>>,
        scalers: Arc<Scalers>,
    ) -> Here {
        Here { level, wish, scalers, ages: Mutex::default() }
    }
}

#[async_trait]
impl Source for Here {
    async fn premises(&self) -> Premises {
        let wish = self.wish.borrow().clone();
        let policy = wish.planning.policy.clone();
        let (names, capacity_max) = (names(&wish), wish.planning.capacity_max);
        let made = made(&wish);
        let texts = wish.planning.declared.iter();
        let declared: BTreeMap<String, String> =
            texts.map(|(pool, one)| (pool.clone(), one.text.clone())).collect();
        let alone = (!self.scalers.is_in_cluster()).then(|| self.scalers.making());
        let Some(pools) = self.level.pools().await else {
            let none = Premises::default();
            return Premises { policy, capacity_max, names, made, declared, alone, ..none };
        };
        let planned: Vec<&PoolNow> = pools.iter().filter(|pool| wish.plans(&pool.name)).collect();
        let ages = lock(&self.ages).of(&planned, Instant::now());
        let places = |pool: &PoolNow| -> BTreeMap<String, IpAddr> {
            let place = |it: &BackendNow| Some((it.name.to_string(), it.address?));
            pool.backends.iter().filter_map(place).collect()
        };
        let addresses = planned.iter().map(|pool| (pool.name.to_string(), places(pool))).collect();
        let pool = |it: &&PoolNow| (it.name.to_string(), pool(it, &wish, &ages));
        let pools = planned.iter().map(pool).collect();
        Premises { policy, capacity_max, names, pools, addresses, made, declared, alone }
    }
}

/// Zones with answers by load.
fn names(wish: &PlanningConfig) -> BTreeMap<String, NameSpec> {
    let name = |(zone, nodes)| (zone, NameSpec { nodes });
    wish.names().into_iter().map(name).collect()
}

/// Elastic pools for which the leader keeps rosters.
fn made(wish: &PlanningConfig) -> BTreeMap<String, MadePool> {
    let pool = |pool: &String| {
        let (maker, declared) = (wish.planning.makers.get(pool), wish.planning.declared.get(pool));
        let limits = maker.map(|it| it.limits).or(declared.map(|it| it.limits)).unwrap_or_default();
        let listed = wish.listed.get(pool).cloned().unwrap_or_default();
        (pool.clone(), MadePool { listed, drain_timeout: limits.drain_timeout })
    };
    wish.planning.elastic.keys().map(pool).collect()
}

fn pool(status: &PoolNow, wish: &PlanningConfig, ages: &HashMap<Name, Duration>) -> PoolSpec {
    let backend = |it: &BackendNow| {
        let named = (status.name.to_string(), it.name.to_string());
        let age = ages.get(&(status.name.clone(), it.name.clone()));
        let spec = BackendSpec {
            admin: it.admin,
            health: it.health,
            weight: it.weight,
            machine: wish.planning.machines.get(&named).cloned(),
            size: None,
            is_elastic: false,
            age: age.copied().unwrap_or(Duration::MAX),
        };
        (it.name.to_string(), spec)
    };
    PoolSpec {
        backends: status.backends.iter().map(backend).collect(),
        weights_by_load: wish.weighs(&status.name),
        is_forwarded: wish.forwarded.contains(&*status.name),
        elastic: wish.planning.elastic.get(&*status.name).map(|elastic| elastic.at(now())),
    }
}

/// Time since the UNIX epoch.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

type Name = (Arc<str>, Arc<str>);

impl Ages {
    /// The age of each backend. Backends that no longer exist are forgotten.
    fn of(&mut self, pools: &[&PoolNow], now: Instant) -> HashMap<Name, Duration> {
        let first = if self.began { Some(now) } else { None };
        self.began = true;
        let mut seen = HashMap::new();
        for pool in pools {
            for backend in &pool.backends {
                let name = (pool.name.clone(), backend.name.clone());
                let since = self.first.get(&name).copied().unwrap_or(first);
                seen.insert(name, since);
            }
        }
        self.first = seen;
        let age = |since: Option<Instant>| {
            since.map_or(Duration::MAX, |since| now.saturating_duration_since(since))
        };
        self.first.iter().map(|(name, since)| (name.clone(), age(*since))).collect()
    }
}
