//! The session level as planning uses it: counters and states of its registry, and changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use equipoise_config::peers_of;
use equipoise_core::concurrency::Tally;
use equipoise_core::load::{ClassCounts, PerClass, Shares};
use equipoise_core::{AdminState, Weight, eligibility};
use equipoise_planning::{
    BackendCounts, BackendNow, LearningBackend, LimitDemand, Measured, PermitCounts, PoolNow,
    QueueCounts, Refused, Steered,
};
use equipoise_session::SharedLimit;
use equipoise_session::config::{Place, ips};
use equipoise_session::registry::{
    BackendSeries, BackendState, BackendStatus, PoolStatus, RegistryHandle, class_counts,
};

/// The session level, through its registry.
pub(super) struct Level(pub(super) RegistryHandle);

impl Level {
    /// Names of the pool's backends that may receive requests.
    fn able(&self, pool: &str) -> Vec<Arc<str>> {
        let pools = self.0.pools().borrow().clone();
        let pool = pools.iter().find(|it| *it.name == *pool);
        let fit = |it: &&BackendState| eligibility(it.admin, it.health, it.weight).is_eligible();
        let able = pool.into_iter().flat_map(|pool| &pool.backends).filter(fit);
        able.map(|backend| Arc::clone(&backend.name)).collect()
    }
}

#[async_trait]
impl Measured for Level {
    async fn pools(&self) -> Option<Vec<PoolNow>> {
        let backend = |it: &BackendStatus| BackendNow {
            name: Arc::clone(&it.name),
            admin: it.admin,
            health: it.health,
            weight: it.weight_wanted,
            address: ips(&it.place, &it.address).next(),
        };
        let pool = |it: &PoolStatus| PoolNow {
            name: Arc::clone(&it.name),
            backends: it.backends.iter().map(backend).collect(),
        };
        Some(self.0.status().await.ok()?.pools.iter().map(pool).collect())
    }

    fn counted(&self, counts: &dyn Fn(&str) -> bool) -> (Vec<BackendCounts>, Vec<QueueCounts>) {
        let view = self.0.stats();
        let (mut counted, mut queues) = (Vec::new(), Vec::new());
        for pool in view.pools.iter().filter(|pool| counts(&pool.name)) {
            queues.push(QueueCounts {
                pool: pool.name.clone(),
                waiting: pool.queue.len(),
                unserved: pool.queue.stats.sum(|shard| shard.unserved.get()),
            });
            for backend in &pool.backends {
                let (stats, held) = (&backend.live.stats, backend.live.permits_held());
                let answers = stats.histogram(|shard| &shard.response_time).counts;
                let permit_time_us = stats.sum(|shard| shard.permit_time_us.get());
                counted.push(BackendCounts {
                    pool: pool.name.clone(),
                    backend: backend.name.clone(),
                    in_flight: held,
                    open: backend.live.in_flight().saturating_sub(held),
                    limit: backend.live.best_in_flight(),
                    is_guess: backend.live.is_limit_guess(),
                    given: stats.sum(|shard| shard.requests.get()),
                    answers: answers.iter().sum(),
                    permit_time: Duration::from_micros(permit_time_us),
                });
            }
        }
        (counted, queues)
    }

    fn requests(&self) -> PerClass<ClassCounts> {
        let view = self.0.stats();
        let doors: Vec<_> = view.front_doors.iter().map(|door| class_counts(&door.stats)).collect();
        PerClass::from_fn(|class| {
            let sum = |of: fn(&ClassCounts) -> u64| doors.iter().map(|door| of(&door[class])).sum();
            ClassCounts {
                arrived: sum(|it| it.arrived),
                delegated: sum(|it| it.delegated),
                given: sum(|it| it.given),
                refused: sum(|it| it.refused),
                taken: sum(|it| it.taken),
                handed_back: sum(|it| it.handed_back),
                bytes: sum(|it| it.bytes),
            }
        })
    }

    fn serves(&self, pool: &str) -> bool {
        // Without a local application the node would look idle and attract delegated requests.
        !self.able(pool).is_empty()
    }

    fn waiting(&self, pool: &str) -> usize {
        let view = self.0.stats();
        let pool = view.pools.iter().find(|it| *it.name == *pool);
        pool.map_or(0, |pool| pool.queue.len())
    }

    fn permits(&self, pool: &str) -> Option<PermitCounts> {
        let (view, able) = (self.0.stats(), self.able(pool));
        let pool = view.pools.iter().find(|it| *it.name == *pool)?;
        let mut all = PermitCounts::default();
        for backend in pool.backends.iter().filter(|backend| able.contains(&backend.name)) {
            let (limit, free) = (backend.live.limit()?, backend.live.permits_free()?);
            all.limit = all.limit.saturating_add(limit);
            all.free = all.free.saturating_add(free);
            all.is_guess |= backend.live.is_limit_guess();
        }
        (!able.is_empty()).then_some(all)
    }

    fn idle(&self, pool: &str, backends: Vec<String>) -> Option<BTreeSet<String>> {
        let (states, stats) = (self.0.pools().borrow().clone(), self.0.stats());
        let state = states.iter().find(|it| *it.name == *pool)?;
        let series = stats.pools.iter().find(|it| *it.name == *pool);
        let has_nothing = |name: &String| {
            let takes_work =
                state.backends.iter().any(|it| *it.name == **name && it.admin == AdminState::Up);
            let live = series.and_then(|it| it.backends.iter().find(|b| *b.name == **name));
            let in_flight = live.map_or(0, |live| live.live.in_flight());
            !takes_work && in_flight == 0
        };
        Some(backends.into_iter().filter(has_nothing).collect())
    }

    fn shared_limits(&self) -> Vec<LimitDemand> {
        let view = self.0.stats();
        let limits = view.front_doors.iter().flat_map(|door| &door.shared_limits);
        let demand = |(name, limit): &(String, SharedLimit)| LimitDemand {
            name: name.clone(),
            per_second: limit.per_second(),
            asked: limit.asked(),
        };
        limits.map(demand).collect()
    }

    fn tallies(&self) -> Vec<(LearningBackend, Tally)> {
        let view = self.0.stats();
        let all = view
            .pools
            .iter()
            .flat_map(|pool| pool.backends.iter().map(move |backend| (&pool.name, backend)));
        all.filter_map(|(pool, it)| Some((learning(pool, it), it.live.tally()?))).collect()
    }
}

#[async_trait]
impl Steered for Level {
    async fn set_planned(&self, pool: &str, weights: Vec<(String, Weight)>) -> Result<(), Refused> {
        Ok(self.0.set_planned(pool, weights).await?)
    }

    async fn set_shares(&self, shares: Arc<Shares>) -> Result<(), Refused> {
        Ok(self.0.set_shares(Some(shares)).await?)
    }

    async fn set_admin(&self, pool: &str, backend: &str, admin: AdminState) -> Result<(), Refused> {
        Ok(self.0.set_admin(pool, backend, admin).await?)
    }

    fn set_room(&self, application: &str, rooms: &BTreeMap<String, u32>) {
        let view = self.0.stats();
        let pool = |name: &str| view.pools.iter().find(|pool| &*pool.name == name);
        let Some(peers) = pool(&peers_of(application)) else { return };
        for peer in &peers.backends {
            if let Some(room) = rooms.get(&*peer.name) {
                peer.live.set_reported_room(*room);
            }
        }
        if let Some(pool) = pool(application) {
            pool.queue.look();
        }
    }

    fn set_limit_share(&self, limit: &str, share: f64) {
        let view = self.0.stats();
        let limits = view.front_doors.iter().flat_map(|door| &door.shared_limits);
        limits.filter(|(name, _)| name == limit).for_each(|(_, limit)| limit.set_share(share));
    }

    fn hear_balancers(&self, own: u64, others: &mut dyn FnMut(&LearningBackend) -> Vec<Tally>) {
        let view = self.0.stats();
        for pool in &view.pools {
            for backend in pool.backends.iter().filter(|it| it.live.is_learning()) {
                backend.live.hear_balancers(own, others(&learning(&pool.name, backend)));
            }
        }
    }
}

fn learning(pool: &Arc<str>, backend: &BackendSeries) -> LearningBackend {
    let mut addresses = backend.place.addresses(&backend.address).iter();
    let is_local = matches!(backend.place, Place::Socket(_))
        || addresses.any(|address| address.ip().to_canonical().is_loopback());
    let place = backend.place.text(backend.address);
    LearningBackend { pool: Arc::clone(pool), place, is_local }
}
