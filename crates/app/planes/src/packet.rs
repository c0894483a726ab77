//! The packet level of a running process: an engine while the file has VIPs, and its input.

mod empty_places;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use equipoise_core::{AdminState, Generation, Health, Weight};
use equipoise_packet::config::{PacketConfig, VipConfig};
use equipoise_packet::engine::{Engine, EngineOptions, Leave, Role, TunnelCheck, Wanted, sweep};
use equipoise_packet::{
    BackendId, BackendSpec, Ports, Protocol, Quic, Snapshot, VipId, VipSpec, privileges,
};
use equipoise_session::config::{BackendConfig, Place, PoolConfig};
use equipoise_session::registry::{BackendState, PoolState};
use tokio::sync::Mutex;
use tokio::task::{JoinError, spawn_blocking};

use self::empty_places::EmptyPlacesLog;
pub use self::empty_places::{EmptyPlace, EmptyPlaces};

/// The desired state of the packet level: the `[[packet]]` tables and the pools that they name.
#[derive(Clone, Debug, Default)]
pub struct PacketWish {
    /// The `[[packet]]` tables.
    pub config: PacketConfig,
    /// The pools, with resolved names.
    pub pools: Vec<PoolConfig>,
    /// Backends that get no packets because of the addresses of their names.
    pub empty: EmptyPlaces,
}

impl PacketWish {
    /// The VIPs of `config`, over `pools` with resolved names.
    pub fn new(config: PacketConfig, pools: Vec<PoolConfig>) -> PacketWish {
        PacketWish { config, pools, empty: EmptyPlaces::new() }.with_empty_places()
    }

    fn with_empty_places(mut self) -> PacketWish {
        self.empty = empty_places::find(&self.config.vips, &self.pools);
        self
    }

    /// The connection ids of the servers of a VIP, if it has any.
    pub fn quic(&self, vip: &VipConfig) -> Option<Arc<Quic>> {
        let pool = self.pools.iter().find(|pool| pool.name == vip.pool);
        let backends = pool.into_iter().flat_map(|pool| &pool.backends);
        let placed: Vec<_> = backends.filter(|backend| self.has_place(vip, backend)).collect();
        quic(vip, &placed)
    }

    /// Whether packets of `vip` can go to `backend`.
    fn has_place(&self, vip: &VipConfig, backend: &BackendConfig) -> bool {
        let is_empty = self.empty.contains_key(&(vip.vip, backend.address));
        !is_empty && destination(vip, backend).is_some()
    }

    /// Puts the address that checks use first in each host name's list, since packets go to the
    /// first address of a family.
    fn beginning_where_checked(mut self, pools: &[PoolState]) -> PacketWish {
        let states: HashMap<&str, _> = pools.iter().map(|state| (&*state.name, state)).collect();
        for pool in &mut self.pools {
            let seen = states.get(&*pool.name).into_iter().flat_map(|state| &state.backends);
            let checked: HashMap<_, _> = seen.map(|it| (it.address, &it.checked_at)).collect();
            for backend in &mut pool.backends {
                if let Place::Host { resolved, .. } = &mut backend.place
                    && let Some(checked_at) = checked.get(&backend.address)
                {
                    *resolved = resolved.beginning_with(checked_at);
                }
            }
        }
        self.with_empty_places()
    }
}

/// The packet level. Its engine runs while the file has VIPs.
pub struct PacketPlane {
    instance: Arc<str>,
    run_folder: PathBuf,
    leave: Leave,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    engine: Option<Arc<Engine>>,
    wish: PacketWish,
    generation: Generation,
    /// The input that the engine applied last.
    told: Option<Wanted>,
    log: EmptyPlacesLog,
}

impl PacketPlane {
    /// The level without an engine. `leave` says whether the program stays loaded when the process
    /// stops.
    pub fn new(instance: Arc<str>, run_folder: PathBuf, leave: Leave) -> PacketPlane {
        PacketPlane { instance, run_folder, leave, state: Arc::default() }
    }

    /// Applies a configuration completely or not at all. Starts the engine with the first VIP, and
    /// stops it with the last one.
    ///
    /// # Errors
    /// The engine does not start, or refuses the configuration.
    pub async fn follow(&self, wish: PacketWish, pools: &[PoolState]) -> anyhow::Result<()> {
        let mut state = self.state.lock().await;
        if wish.config.vips.is_empty() {
            state.wish = wish;
            return self.end(&mut state).await;
        }
        let wish = wish.beginning_where_checked(pools);
        let wanted = state.wanted(&wish, pools);
        match &state.engine {
            Some(engine) => tell(engine, state.with_departed(&wish, &wanted, pools)).await?,
            None => {
                let options = EngineOptions {
                    instance: Arc::clone(&self.instance),
                    flows: wish.config.flows.clone(),
                    run_folder: self.run_folder.clone(),
                };
                let first = wanted.clone();
                let started = privileged(move || Engine::start(options, first)).await?;
                state.engine = Some(Arc::new(started.context("cannot start the packet level")?));
            }
        }
        state.log.forget_others(&wish.config.vips);
        state.go_over_to(wish, wanted);
        Ok(())
    }

    /// Sends the current state of pools to the engine, if it changed.
    pub async fn sync(&self, pools: &[PoolState]) {
        let mut state = self.state.lock().await;
        let Some(engine) = state.engine.clone() else { return };
        let wish = state.wish.clone().beginning_where_checked(pools);
        let wanted = state.wanted(&wish, pools);
        let same = state.told.as_ref().is_some_and(|told| {
            told.snapshot.vips == wanted.snapshot.vips
                && told.interfaces == wanted.interfaces
                && told.macs == wanted.macs
                && told.checks == wanted.checks
                && wish.empty == state.wish.empty
        });
        if same {
            return;
        }
        match tell(&engine, state.with_departed(&wish, &wanted, pools)).await {
            Ok(()) => state.go_over_to(wish, wanted),
            Err(error) => {
                tracing::error!("could not apply a change of pools to the packet level: {error:#}")
            }
        }
    }

    /// Writes the lines about empty places that were too many when they were due.
    pub fn log_left_out(&self) {
        // A change that is being applied logs for itself.
        if let Ok(mut state) = self.state.try_lock() {
            let State { log, wish, .. } = &mut *state;
            log.note(&wish.empty);
        }
    }

    /// The engine, if one runs, and its last input.
    pub async fn running(&self) -> Option<(Arc<Engine>, PacketWish)> {
        let state = self.state.lock().await;
        state.engine.clone().map(|engine| (engine, state.wish.clone()))
    }

    /// Stops the engine as the command line says. Without one, a program that was left to a next
    /// process, which has failed, is detached.
    pub async fn stop(&self) {
        let mut state = self.state.lock().await;
        match state.engine.take() {
            Some(engine) => stop(engine, self.leave).await,
            None if self.leave == Leave::Nothing && !state.wish.config.vips.is_empty() => {
                log_end(self.sweep().await);
            }
            None => {}
        }
    }

    /// Stops the engine, and leaves its program and tables to the next one, which adopts them.
    ///
    /// If the future is dropped, the engine still ends, and other calls wait for that.
    pub async fn leave_running(&self) {
        let mut state = Arc::clone(&self.state).lock_owned().await;
        state.told = None;
        if let Some(engine) = state.engine.take() {
            let ended = spawn_blocking(move || {
                engine.stop(Leave::Running);
                drop(state);
            });
            log_end(ended.await);
        }
    }

    /// Removes everything of the packet level: the configuration has no VIPs.
    async fn end(&self, state: &mut State) -> anyhow::Result<()> {
        state.told = None;
        if let Some(engine) = state.engine.take() {
            stop(engine, Leave::Nothing).await;
            return Ok(());
        }
        Ok(self.sweep().await?)
    }

    /// Detaches the programs that an earlier process has left.
    async fn sweep(&self) -> Result<(), JoinError> {
        let (instance, run_folder) = (Arc::clone(&self.instance), self.run_folder.clone());
        for interface in privileged(move || sweep(&instance, &run_folder)).await? {
            tracing::info!(
                "packet: interface {interface}: detached the program of an earlier process"
            );
        }
        Ok(())
    }
}

/// Runs `job` with the capabilities of the packet level. It may block.
async fn privileged<R: Send + 'static>(
    job: impl FnOnce() -> R + Send + 'static,
) -> Result<R, JoinError> {
    spawn_blocking(move || privileges::run(job)).await
}

async fn tell(engine: &Arc<Engine>, wanted: Wanted) -> anyhow::Result<()> {
    let engine = Arc::clone(engine);
    spawn_blocking(move || engine.apply(wanted)).await??.context("the packet level was not changed")
}

async fn stop(engine: Arc<Engine>, leave: Leave) {
    log_end(spawn_blocking(move || engine.stop(leave)).await);
}

fn log_end(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!("the packet level did not stop in order: {error}");
    }
}

impl State {
    fn wanted(&mut self, wish: &PacketWish, pools: &[PoolState]) -> Wanted {
        self.generation = self.generation.next().max(unix_microseconds());
        let wanted: HashMap<&str, _> = wish.pools.iter().map(|pool| (&*pool.name, pool)).collect();
        let states: HashMap<&str, _> = pools.iter().map(|state| (&*state.name, state)).collect();
        let vips = wish.config.vips.iter().map(|vip| {
            spec(wish, vip, wanted.get(&*vip.pool).copied(), states.get(&*vip.pool).copied())
        });
        Wanted {
            snapshot: Snapshot { generation: self.generation, vips: vips.collect() },
            interfaces: interfaces(&wish.config.vips),
            macs: macs(&wish.config.vips),
            checks: tunnel_checks(wish, &wanted),
            fleet: wish.config.fleet.clone(),
        }
    }

    /// Adds to `wanted` the addresses of host names that checks have left since the last time
    /// because they failed. They are added as unhealthy, so that flows leave them too (`when-down =
    /// "move"`). An address that the name lost is not added: its flows drain.
    fn with_departed(&self, wish: &PacketWish, wanted: &Wanted, pools: &[PoolState]) -> Wanted {
        let mut wanted = wanted.clone();
        let Some(told) = &self.told else { return wanted };
        let before: HashMap<VipId, &VipSpec> =
            told.snapshot.vips.iter().map(|vip| (vip.id(), vip)).collect();
        let configs: HashMap<&str, _> = wish.pools.iter().map(|pool| (&*pool.name, pool)).collect();
        let states: HashMap<&str, _> = pools.iter().map(|state| (&*state.name, state)).collect();
        for (vip, spec) in wish.config.vips.iter().zip(&mut wanted.snapshot.vips) {
            let Some(before) = before.get(&spec.id()) else { continue };
            let (Some(config), Some(state)) = (configs.get(&*vip.pool), states.get(&*vip.pool))
            else {
                continue;
            };
            let failed = failed_addresses(vip, config, state);
            let kept: HashSet<BackendId> = spec.backends.iter().map(BackendSpec::id).collect();
            let departed = before.backends.iter().filter(|it| !kept.contains(&it.id()));
            let departed = departed.filter(|it| failed.contains(&it.id())).cloned();
            spec.backends.extend(departed.map(|it| BackendSpec {
                health: Health::Unhealthy,
                on_down: vip.when_down,
                ..it
            }));
        }
        wanted
    }

    /// Stores the input that the engine has applied.
    fn go_over_to(&mut self, wish: PacketWish, wanted: Wanted) {
        self.log.note(&wish.empty);
        self.wish = wish;
        self.told = Some(wanted);
    }
}

/// A generation that rises from one process to the next, because a later process adopts the tables
/// of the earlier one.
fn unix_microseconds() -> Generation {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Generation(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

fn interfaces(vips: &[VipConfig]) -> BTreeMap<Arc<str>, Role> {
    let replies = vips.iter().filter(|vip| vip.forward.translates());
    let replies = replies.flat_map(|vip| &vip.reply_interfaces).map(|name| (name, Role::Replies));
    let clients = vips.iter().flat_map(|vip| &vip.interfaces).map(|name| (name, Role::Clients));
    // For an interface in both roles, the later entry counts: a client interface sees replies too.
    replies.chain(clients).map(|(name, role)| (Arc::clone(name), role)).collect()
}

/// MAC addresses of the VIPs on an interface. A shared interface accepts those of all its VIPs.
fn macs(vips: &[VipConfig]) -> BTreeMap<Arc<str>, BTreeSet<[u8; 6]>> {
    let mut macs = BTreeMap::<_, BTreeSet<_>>::new();
    for vip in vips {
        for name in vip.interfaces.iter().chain(&vip.reply_interfaces) {
            let of_interface = macs.entry(Arc::clone(name)).or_default();
            of_interface.extend(vip.accepted_macs.iter().map(|mac| mac.0));
        }
    }
    macs
}

fn spec(
    wish: &PacketWish,
    vip: &VipConfig,
    pool: Option<&PoolConfig>,
    state: Option<&PoolState>,
) -> VipSpec {
    let by_address: HashMap<SocketAddr, &BackendState> =
        state.into_iter().flat_map(|pool| &pool.backends).map(|b| (b.address, b)).collect();
    let mut ids = HashSet::new();
    // Two host names may have the same address.
    let backends = pool.into_iter().flat_map(|pool| &pool.backends);
    let backends = backends.filter(|b| wish.has_place(vip, b) && ids.insert(id(vip, b)));
    let backends: Vec<_> = backends.collect();
    let quic = quic(vip, &backends);
    let backends = backends.into_iter();
    let backends = backends.map(|b| backend(vip, b, by_address.get(&b.address).copied())).collect();
    VipSpec {
        address: vip.vip.address,
        ports: vip.vip.ports,
        protocol: vip.vip.protocol,
        forward: vip.forward,
        key: vip.key,
        scheduler: vip.scheduler,
        access: vip.access.clone(),
        timeouts: vip.timeouts,
        quic,
        second_chance: vip.second_chance,
        sources: vip.sources.clone(),
        backends,
    }
}

/// The connection ids of a VIP with these backends.
fn quic(vip: &VipConfig, backends: &[&BackendConfig]) -> Option<Arc<Quic>> {
    let mut all = Quic::default();
    for ids in &vip.quic {
        let placed = backends.iter().map(|it| (&*it.name, id(vip, it)));
        let of = ids.server_ids(placed).0.into_iter();
        all.servers.extend(of.map(|(backend, id)| ((ids.config.rotation, backend), id)));
        all.configs.push(ids.config.clone());
    }
    (!all.configs.is_empty()).then(|| Arc::new(all))
}

/// One check through the tunnel for each backend of a TCP VIP with health checks in its pool, at
/// the interval of those checks.
fn tunnel_checks(wish: &PacketWish, pools: &HashMap<&str, &PoolConfig>) -> Vec<TunnelCheck> {
    let is_tunnel = |vip: &&VipConfig| vip.forward.is_tunnel();
    let is_checked = |vip: &&VipConfig| vip.check_tunnel && vip.vip.protocol == Protocol::Tcp;
    let mut checks = Vec::new();
    for vip in wish.config.vips.iter().filter(is_tunnel).filter(is_checked) {
        let Some(pool) = pools.get(&*vip.pool) else { continue };
        let Some(rules) = &pool.health else { continue };
        for backend in &pool.backends {
            let Some(port) = checked_port(vip, backend) else { continue };
            if !wish.has_place(vip, backend) {
                continue;
            }
            let (rules, forward) = (rules.clone(), vip.forward);
            let (vip, backend) = (vip.vip, id(vip, backend));
            checks.push(TunnelCheck { vip, port, forward, backend, rules });
        }
    }
    checks
}

/// The port of a VIP to check at a backend. If the VIP has several, it is the port of the backend's
/// address.
fn checked_port(vip: &VipConfig, backend: &BackendConfig) -> Option<u16> {
    let (first, last) = vip.vip.ports.bounds();
    match vip.vip.ports {
        Ports::One(port) => Some(port),
        _ => Some(backend.address.port()).filter(|port| (first.max(1)..=last).contains(port)),
    }
}

fn backend(vip: &VipConfig, config: &BackendConfig, state: Option<&BackendState>) -> BackendSpec {
    let unknown = (config.weight, AdminState::Up, Health::Unknown);
    let (weight, admin, health): (Weight, _, _) =
        state.map_or(unknown, |state| (state.weight, state.admin, state.health));
    let BackendId { address, port } = id(vip, config);
    let (on_down, backup) = (vip.when_down, config.backup);
    BackendSpec { address, port, weight, admin, health, on_down, backup }
}

/// The packet level's id of a backend of a VIP.
pub fn id(vip: &VipConfig, backend: &BackendConfig) -> BackendId {
    vip.backend_id(destination(vip, backend).unwrap_or(backend.address))
}

/// Addresses of host names that failed their checks. Within a family, checks move to the next
/// address only when one fails. If packets go to the other family, a passing address of this one
/// has not failed.
fn failed_addresses(vip: &VipConfig, config: &PoolConfig, state: &PoolState) -> HashSet<BackendId> {
    let checked: HashMap<_, _> =
        state.backends.iter().map(|it| (it.address, &it.checked_at)).collect();
    let failed_of = |backend: &BackendConfig| {
        let Place::Host { resolved, .. } = &backend.place else { return Vec::new() };
        let to = destination(vip, backend);
        let passes =
            checked.get(&backend.address).is_some_and(|it| it.iter().any(|at| Some(*at) == to));
        if !passes {
            return Vec::new();
        }
        let failed =
            resolved.addresses().iter().filter(|at| !checked[&backend.address].contains(at));
        failed.map(|at| vip.backend_id(*at)).collect()
    };
    config.backends.iter().flat_map(failed_of).collect()
}

/// The destination of a VIP's packets for a backend. For a host name it is the first address of the
/// VIP's family, which is the one that checks use ([`PacketWish::beginning_where_checked`]).
/// Tunnels may use the other family, if the name has no address of this one. `None` while no
/// address fits.
fn destination(vip: &VipConfig, backend: &BackendConfig) -> Option<SocketAddr> {
    let Place::Host { resolved, .. } = &backend.place else { return Some(backend.address) };
    let any_family = vip.forward.is_tunnel();
    let of_family = |it: &SocketAddr| it.is_ipv4() == vip.vip.address.is_ipv4();
    let all = resolved.addresses();
    all.iter().find(|it| of_family(it)).or_else(|| all.first().filter(|_| any_family)).copied()
}

#[cfg(test)]
mod tests;
