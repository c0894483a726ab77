use std::borrow::Borrow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Instant;

use equipoise_core::load::Shares;
use equipoise_core::{AdminState, Eligibility, Health, Weight, eligibility};

use super::changes::{Changed, Changes};
use super::error::{ApplyError, Known, RegistryError};
use crate::config::{
    BackendConfig, Concurrency, FrontDoor, Place, PoolConfig, Protocol, SessionConfig,
};
use crate::in_flight::InFlight;
use crate::limiter::Limiter;
use crate::live::BackendLive;
use crate::queue::Queue;
use crate::retry_budget::RetryBudget;
use crate::route::{Mirror, MirrorLive, MirrorView, PoolPlace, RouteConfig, RouteView};
use crate::sni::SniTable;
use crate::stats::{FrontDoorStats, Sharded};
use equipoise_health::{BackendHealth, CheckReport, ramp};

/// Everything that is wanted and seen. A clone shares the live counters and nothing else.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inventory {
    pub(crate) pools: Vec<PoolEntry>,
    pub(crate) front_doors: Vec<FrontDoorEntry>,
    ids: Ids,
}

/// The next number of each kind: none is given twice.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ids {
    pool: u32,
    backend: u32,
    front_door: u32,
}

fn take(next: &mut u32) -> u32 {
    *next += 1;
    *next
}

#[derive(Clone, Debug)]
pub(crate) struct PoolEntry {
    pub(crate) id: u32,
    /// The pool's options. Its `backends` are empty here: they are below.
    pub(crate) settings: Arc<PoolConfig>,
    pub(crate) backends: Vec<BackendEntry>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) retry_budget: Arc<RetryBudget>,
    /// Whether any backend was eligible when last looked.
    pub(crate) serving: bool,
    /// Whether only backups were eligible when last looked.
    pub(crate) on_backups: bool,
    /// Time until which it may have no backend, because it is new and elastic backends are
    /// starting.
    pub(crate) starting_until: Option<Instant>,
}

#[derive(Clone, Debug)]
pub(crate) struct BackendEntry {
    pub(crate) id: u32,
    pub(crate) config: BackendConfig,
    pub(crate) admin: AdminState,
    pub(crate) weight_override: Option<Weight>,
    /// The operator's concurrency limit.
    pub(crate) concurrency_override: Option<NonZeroU32>,
    /// The planned weight, if the pool has weights by load.
    pub(crate) weight_planned: Option<Weight>,
    pub(crate) health: BackendHealth,
    pub(crate) last_check: Option<CheckReport>,
    /// [`CheckReport::addresses`] of the last check that passed.
    pub(crate) checked_at: Vec<SocketAddr>,
    /// Where its slow start began, while it lasts.
    pub(crate) ramp_from: Option<Instant>,
    /// Whether it was eligible when last looked.
    pub(crate) was_eligible: bool,
    /// Its checks fail, and that closes its connections.
    pub(crate) is_lost: bool,
    /// Time of the last log line that it fails and cannot be ejected.
    pub(crate) refusal_noted: Option<Instant>,
    pub(crate) live: Arc<BackendLive>,
}

#[derive(Clone, Debug)]
pub(crate) struct FrontDoorEntry {
    pub(crate) id: u32,
    pub(crate) config: FrontDoor,
    /// Index in [`Inventory::pools`].
    pub(crate) pool: usize,
    /// Indices of its pools by server name.
    pub(crate) sni: Arc<SniTable>,
    /// The pools and counters of its routes.
    pub(crate) routes: Arc<[RouteView]>,
    /// Index of its peers' pool, in node mode.
    pub(crate) peers: Option<usize>,
    /// Its planned shares, in node mode; `None` without a plan.
    pub(crate) shares: Option<Arc<Shares>>,
    pub(crate) limiter: Arc<Limiter>,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) stats: Arc<Sharded<FrontDoorStats>>,
}

impl BackendEntry {
    /// The operator's weight, or else the configured one.
    pub(crate) fn weight_wanted(&self) -> Weight {
        self.weight_override.unwrap_or(self.config.weight)
    }

    /// The effective weight: the planned one, which began from the wanted one. A wanted weight of
    /// zero holds at once.
    pub(crate) fn weight(&self) -> Weight {
        let wanted = self.weight_wanted();
        self.weight_planned.filter(|_| wanted.get() > 0).unwrap_or(wanted)
    }

    /// Applies its concurrency limit: the operator's, or else the configured one.
    pub(crate) fn follow_concurrency(&self, pool: &PoolConfig) {
        let stated = self.concurrency_override.map(Concurrency::Fixed);
        let concurrency = stated.or(self.config.concurrency).unwrap_or(pool.concurrency);
        self.live.set_concurrency(concurrency, pool.options.queue.wait);
    }

    /// Its health: unhealthy if it cannot be reached, whatever was seen of it before.
    pub(crate) fn health(&self) -> Health {
        self.if_reachable(self.health.health())
    }

    /// The same without ejections.
    pub(crate) fn verdict(&self) -> Health {
        self.if_reachable(self.health.verdict())
    }

    fn if_reachable(&self, health: Health) -> Health {
        if self.config.place.is_reachable() { health } else { Health::Unhealthy }
    }

    pub(crate) fn eligibility(&self) -> Eligibility {
        self.eligibility_if(self.health.health())
    }

    /// Eligibility if its health were this.
    pub(crate) fn eligibility_if(&self, health: Health) -> Eligibility {
        eligibility(self.admin, self.if_reachable(health), self.weight())
    }

    pub(crate) fn is_eligible(&self) -> bool {
        self.eligibility().is_eligible()
    }

    fn is_called(&self, name: &str) -> bool {
        *self.config.name == *name || self.config.place.text(self.config.address) == name
    }
}

impl PoolEntry {
    pub(crate) fn eligible(&self) -> impl Iterator<Item = &BackendEntry> {
        self.backends.iter().filter(|b| b.is_eligible())
    }

    /// The backends that get new work: those that are eligible, and backups only while no other
    /// kind is.
    pub(crate) fn picked(&self) -> impl Iterator<Item = &BackendEntry> {
        let is_on_backups = !self.eligible().any(|b| !b.config.backup);
        self.eligible().filter(move |b| b.config.backup == is_on_backups)
    }

    /// Whether the pool has no backend because one is being made: none takes work, and none fails
    /// its checks.
    pub(crate) fn awaits_backend(&self) -> bool {
        let fails = |b: &BackendEntry| {
            b.admin == AdminState::Up && b.weight().get() > 0 && b.health() == Health::Unhealthy
        };
        self.settings.options.start_wait.is_some()
            && !self.backends.iter().any(|b| b.is_eligible() || fails(b))
    }

    /// The unhealthy backends of a pool in which no other kind can take work or is being made.
    /// Without those that an operator took out.
    pub(crate) fn last_resort(&self) -> impl Iterator<Item = &BackendEntry> {
        let is_needed = self.eligible().next().is_none() && !self.awaits_backend();
        let if_healthy = |b: &BackendEntry| b.eligibility_if(Health::Healthy).is_eligible();
        self.backends.iter().filter(move |b| is_needed && if_healthy(b))
    }

    /// Whether a backup other than the backend `id` could take the pool's work.
    pub(crate) fn has_backup_beside(&self, id: u32) -> bool {
        self.eligible().any(|b| b.config.backup && b.id != id)
    }

    /// The share of its weight that a backend of this pool gets now.
    pub(crate) fn ramp_permille(&self, backend: &BackendEntry, now: Instant) -> u32 {
        match (self.settings.slow_start, backend.ramp_from) {
            (Some(over), Some(from)) => ramp::permille(now.saturating_duration_since(from), over),
            _ => ramp::FULL_PERMILLE,
        }
    }
}

impl Inventory {
    /// The numbers that a refused configuration was given are not given again.
    pub(crate) fn skip_ids_of(&mut self, other: &Inventory) {
        self.ids = other.ids;
    }

    pub(crate) fn find_pool(&mut self, pool: &str) -> Result<&mut PoolEntry, RegistryError> {
        let Some(at) = self.pools.iter().position(|p| *p.settings.name == *pool) else {
            let known = Known::of(pool, self.pools.iter().map(|p| p.settings.name.clone()));
            return Err(RegistryError::UnknownPool { asked: pool.into(), known });
        };
        Ok(&mut self.pools[at])
    }

    pub(crate) fn find(
        &mut self,
        pool: &str,
        backend: &str,
    ) -> Result<(&Arc<PoolConfig>, &mut BackendEntry), RegistryError> {
        let entry = self.find_pool(pool)?;
        let by_name = entry.backends.iter().position(|b| *b.config.name == *backend);
        let found = by_name.or_else(|| entry.backends.iter().position(|b| b.is_called(backend)));
        let Some(at) = found else {
            return Err(RegistryError::UnknownBackend {
                pool: entry.settings.name.clone(),
                asked: backend.into(),
                known: Known::of(backend, entry.backends.iter().map(|b| b.config.name.clone())),
            });
        };
        Ok((&entry.settings, &mut entry.backends[at]))
    }

    /// The indices of pools of front doors in node mode. Their unhealthy backends get the requests
    /// that no peer can serve.
    pub(crate) fn fail_open(&self) -> HashSet<usize> {
        let in_node_mode = self.front_doors.iter().filter(|door| door.peers.is_some());
        in_node_mode.map(|door| door.pool).collect()
    }

    /// Sets the concurrency limits that the configuration states, and serves requests that wait for
    /// room.
    pub(crate) fn set_limits(&self) {
        for pool in &self.pools {
            for backend in &pool.backends {
                backend.follow_concurrency(&pool.settings);
            }
            pool.queue.look();
        }
    }

    /// The inventory with the configuration `config`. Unchanged objects keep their number,
    /// counters, health and operators' settings.
    pub(crate) fn reloaded(
        &self,
        config: &SessionConfig,
        threads: usize,
        now: Instant,
    ) -> Result<(Inventory, Changes), ApplyError> {
        let mut reload = Reload { ids: self.ids, threads, now, changes: Changes::default() };
        let pools = reload.pools(&self.pools, &config.pools);
        let front_doors = reload.front_doors(&self.front_doors, &config.front_doors, &pools)?;
        Ok((Inventory { pools, front_doors, ids: reload.ids }, reload.changes))
    }
}

struct Reload {
    ids: Ids,
    threads: usize,
    now: Instant,
    changes: Changes,
}

/// Entries of the old inventory, by what tells them apart. Each is claimed once.
struct Claimable<K, T> {
    entries: Vec<Option<T>>,
    places: HashMap<K, VecDeque<usize>>,
}

impl<K: Eq + Hash, T: Clone> Claimable<K, T> {
    fn new(old: &[T], key: impl Fn(&T) -> K) -> Self {
        let mut places: HashMap<K, VecDeque<usize>> = HashMap::with_capacity(old.len());
        for (place, entry) in old.iter().enumerate() {
            places.entry(key(entry)).or_default().push_back(place);
        }
        Claimable { entries: old.iter().cloned().map(Some).collect(), places }
    }

    /// The first entry of this key that is not claimed yet.
    fn claim<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<T>
    where
        K: Borrow<Q>,
    {
        let place = self.places.get_mut(key)?.pop_front()?;
        self.entries[place].take()
    }

    /// Entries that were not claimed, in their order.
    fn left(self) -> impl Iterator<Item = T> {
        self.entries.into_iter().flatten()
    }
}

/// The identity of a front door's sockets: it may change from TCP to HTTP, but not to UDP.
fn sockets(door: &FrontDoor) -> (bool, SocketAddr) {
    (door.protocol == Protocol::Udp, door.listen)
}

impl Reload {
    fn pools(&mut self, old: &[PoolEntry], wanted: &[PoolConfig]) -> Vec<PoolEntry> {
        let mut old = Claimable::new(old, |pool| Arc::clone(&pool.settings.name));
        let mut pools = Vec::with_capacity(wanted.len());
        for config in wanted {
            let before = old.claim(&config.name);
            pools.push(self.pool(before, config));
        }
        for gone in old.left() {
            self.changes.pools.removed.push(gone.settings.name.to_string());
            self.removed_backends(&gone.settings.name, gone.backends);
        }
        pools
    }

    fn pool(&mut self, before: Option<PoolEntry>, config: &PoolConfig) -> PoolEntry {
        let settings = Arc::new(PoolConfig { backends: Vec::new(), ..config.clone() });
        let name = config.name.to_string();
        let Some(before) = before else {
            self.changes.pools.added.push(name);
            // They all start together: no one ramps up behind the others.
            let backends = config.backends.iter().map(|b| self.backend(config, b, true)).collect();
            let within = config.starts_within.filter(|_| config.backends.is_empty());
            let starting_until = within.map(|within| self.now + within);
            let id = take(&mut self.ids.pool);
            let (serving, on_backups) = (true, false);
            let queue = Queue::new(self.threads);
            return PoolEntry {
                id,
                settings,
                backends,
                queue,
                retry_budget: Arc::new(RetryBudget::new(self.now)),
                serving,
                on_backups,
                starting_until,
            };
        };
        if before.settings != settings {
            self.changes.pools.changed.push(name);
        }
        let mut old = Claimable::new(&before.backends, |backend| backend.config.address);
        let mut backends = Vec::with_capacity(config.backends.len());
        for wanted in &config.backends {
            backends.push(match old.claim(&wanted.address) {
                Some(kept) => self.kept_backend(kept, wanted, &before.settings, &settings),
                None => self.backend(config, wanted, false),
            });
        }
        self.removed_backends(&settings.name, old.left().collect());
        let mut pool = PoolEntry { settings, backends, ..before };
        pool.plan_for_the_unplanned();
        pool
    }

    fn backend(
        &mut self,
        pool: &PoolConfig,
        config: &BackendConfig,
        with_pool: bool,
    ) -> BackendEntry {
        self.changes.backends.added.push(format!("{}/{}", pool.name, config.name));
        let live = BackendLive::new(self.threads);
        live.belongs_to(&pool.name);
        let entry = BackendEntry {
            id: take(&mut self.ids.backend),
            config: config.clone(),
            admin: AdminState::Up,
            weight_override: None,
            concurrency_override: None,
            weight_planned: None,
            health: BackendHealth::default(),
            last_check: None,
            checked_at: Vec::new(),
            ramp_from: None,
            was_eligible: with_pool,
            is_lost: false,
            refusal_noted: None,
            live,
        };
        entry.follow_concurrency(pool);
        entry
    }

    fn kept_backend(
        &mut self,
        mut backend: BackendEntry,
        wanted: &BackendConfig,
        before: &PoolConfig,
        after: &PoolConfig,
    ) -> BackendEntry {
        let described = |it: &BackendConfig| BackendConfig { place: Place::Address, ..it.clone() };
        if described(&backend.config) != described(wanted) {
            self.changes.backends.changed.push(format!("{}/{}", after.name, wanted.name));
        }
        // A host name may have other addresses, or another `problem`, than before: it is the same
        // backend.
        backend.config = wanted.clone();
        if !after.weights_by_load {
            backend.weight_planned = None;
        }
        match (&before.health, &after.health) {
            (_, None) => {
                backend.health.unchecked();
                backend.last_check = None;
                backend.checked_at.clear();
            }
            (Some(old), Some(new))
                if (&old.check, old.port, &old.tls) != (&new.check, new.port, &new.tls) =>
            {
                backend.health.check_changed()
            }
            _ => {}
        }
        if after.passive.failures == 0 {
            backend.health.readmit(self.now);
        } else if after.passive.statuses.is_empty() {
            backend.health.readmit_if_for_statuses(self.now);
        }
        backend
    }

    fn removed_backends(&mut self, pool: &str, gone: Vec<BackendEntry>) {
        let names = gone.iter().map(|b| format!("{pool}/{}", b.config.name));
        self.changes.backends.removed.extend(names);
    }

    fn front_doors(
        &mut self,
        old: &[FrontDoorEntry],
        wanted: &[FrontDoor],
        pools: &[PoolEntry],
    ) -> Result<Vec<FrontDoorEntry>, ApplyError> {
        let mut old = Claimable::new(old, |door| sockets(&door.config));
        let places = pools.iter().enumerate().map(|(place, pool)| (&*pool.settings.name, place));
        let places: HashMap<&str, usize> = places.collect();
        let mut front_doors = Vec::with_capacity(wanted.len());
        let changed: &mut Changed = &mut self.changes.front_doors;
        for config in wanted {
            let pool = pool_of(config, &config.pool, pools, &places)?;
            let names = config.sni.iter();
            let routed: Result<Vec<_>, _> =
                names.map(|route| pool_of(config, &route.pool, pools, &places)).collect();
            let sni = Arc::new(SniTable::new(&config.sni, &routed?));
            let before = old.claim(&sockets(config));
            let routes = route_views(config, before.as_ref(), self.threads, |name| {
                let at = pool_of(config, name, pools, &places)?;
                Ok(PoolPlace { at, id: pools[at].id })
            })?;
            let node = config.dispatch.as_ref();
            let peers = node.map(|node| pool_of(config, &node.peers, pools, &places));
            let peers = peers.transpose()?;
            let config = config.clone();
            front_doors.push(match before {
                Some(before) => {
                    if before.config != config {
                        changed.changed.push(config.name.to_string());
                    }
                    let shares = before.shares.clone().filter(|_| peers.is_some());
                    let limiter = before.limiter.update(&config.client_limits);
                    FrontDoorEntry { config, pool, sni, routes, peers, shares, limiter, ..before }
                }
                None => {
                    changed.added.push(config.name.to_string());
                    let stats = Arc::new(Sharded::new(self.threads));
                    let id = take(&mut self.ids.front_door);
                    let limiter = Arc::new(Limiter::new(&config.client_limits));
                    let (shares, in_flight) = (None, Arc::default());
                    FrontDoorEntry {
                        id,
                        config,
                        pool,
                        sni,
                        routes,
                        peers,
                        shares,
                        limiter,
                        in_flight,
                        stats,
                    }
                }
            });
        }
        changed.removed = old.left().map(|d| d.config.name.to_string()).collect();
        Ok(front_doors)
    }
}

/// The views of a front door's routes. Those of a name that it had before keep their counters and
/// the counts of their limits.
fn route_views(
    config: &FrontDoor,
    before: Option<&FrontDoorEntry>,
    threads: usize,
    place: impl Fn(&Arc<str>) -> Result<PoolPlace, ApplyError>,
) -> Result<Arc<[RouteView]>, ApplyError> {
    let old = before.map(|door| (door.config.routes.routes(), &door.routes));
    let old = old.into_iter().flat_map(|(routes, views)| routes.iter().zip(views.iter()));
    let old: HashMap<&str, _> = old.map(|(route, view)| (&*route.name, view)).collect();
    let view = |route: &RouteConfig| {
        let pools: Result<_, _> = route.action.pools().iter().map(&place).collect();
        let (limiter, stats) = match old.get(&*route.name) {
            Some(old) => (old.limiter.update(&route.limits), Arc::clone(&old.stats)),
            None => (Arc::new(Limiter::new(&route.limits)), Arc::new(Sharded::new(threads))),
        };
        let mirror_view = |mirror: &Mirror| -> Result<MirrorView, ApplyError> {
            let before = old.get(&*route.name).and_then(|old| old.mirror.as_ref());
            let live = before.map(|mirror| Arc::clone(&mirror.live));
            let live = live.unwrap_or_else(|| MirrorLive::new(threads));
            Ok(MirrorView { pool: place(&mirror.pool)?, live })
        };
        let mirror = route.mirror.as_ref().map(mirror_view);
        Ok(RouteView { pools: pools?, mirror: mirror.transpose()?, limiter, stats })
    };
    config.routes.routes().iter().map(view).collect()
}

fn pool_of(
    front_door: &FrontDoor,
    name: &Arc<str>,
    pools: &[PoolEntry],
    places: &HashMap<&str, usize>,
) -> Result<usize, ApplyError> {
    places.get(&**name).copied().ok_or_else(|| ApplyError::UnknownPool {
        front_door: front_door.name.clone(),
        asked: name.clone(),
        known: Known::of(name, pools.iter().map(|p| p.settings.name.clone())),
    })
}

#[cfg(test)]
mod tests;
