use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use equipoise_core::concurrency::{Region, Report};
use equipoise_core::delegation::{Delegation, Encryption};
use equipoise_core::load::{ClassCounts, PerClass};
use equipoise_core::{AdminState, Eligibility, Generation, Health, SchedulerKind, Weight};

use super::inventory::{BackendEntry, FrontDoorEntry, Inventory, PoolEntry};
use crate::Reason;
use crate::config::{Place, Protocol, ServerTls, Upstream, UpstreamTls};
use crate::limiter::SharedLimit;
use crate::live::BackendLive;
use crate::queue::Queue;
use crate::route::{Action, RouteConfig, RouteView};
use crate::stats::{BackendStats, ClassStats, Counter, FrontDoorStats, Sharded};

/// The state of all front doors and pools at one moment. Rates follow from two of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// Generation of the data plane's snapshot.
    pub generation: Generation,
    /// Front doors, in configured order.
    pub front_doors: Vec<FrontDoorStatus>,
    /// Pools, in configured order.
    pub pools: Vec<PoolStatus>,
}

/// State of a front door.
#[derive(Clone, Debug, PartialEq)]
pub struct FrontDoorStatus {
    /// Its name.
    pub name: Arc<str>,
    /// The address on which it listens.
    pub listen: SocketAddr,
    /// The protocol.
    pub protocol: Protocol,
    /// The pool's name.
    pub pool: Arc<str>,
    /// Connections (TCP, HTTP) or client addresses (UDP) so far.
    pub connections: u64,
    /// Number of those that are open now.
    pub connections_open: u64,
    /// Requests so far (HTTP).
    pub requests: u64,
    /// Number of requests that are being served now.
    pub requests_in_flight: u64,
    /// Responses by class, 1xx to 5xx (HTTP).
    pub responses: [u64; 5],
    /// Bytes from clients.
    pub bytes_in: u64,
    /// Bytes to clients.
    pub bytes_out: u64,
    /// Attempts on another backend or session.
    pub retries: u64,
    /// Dropped requests by reason, without zeros.
    pub drops: Vec<(Reason, u64)>,
    /// Delegation, in node mode.
    pub dispatch: Option<DispatchStatus>,
    /// TLS of its clients.
    pub tls: Option<DoorTlsStatus>,
    /// Its routes, in the order of the configuration.
    pub routes: Vec<RouteStatus>,
    /// Its pools by server name.
    pub sni_pools: Vec<Arc<str>>,
}

impl FrontDoorStatus {
    /// Whether it serves requests from this pool.
    pub fn leads_to(&self, pool: &str) -> bool {
        self.pools().any(|it| **it == *pool)
    }

    /// Every pool that it serves requests from; some may come twice.
    pub fn pools(&self) -> impl Iterator<Item = &Arc<str>> {
        let routed = self.routes.iter().flat_map(|route| route.action.pools());
        std::iter::once(&self.pool).chain(&self.sni_pools).chain(routed)
    }
}

/// State of a route.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteStatus {
    /// Its name.
    pub name: Arc<str>,
    /// Where its requests go.
    pub action: Action,
    /// Requests that took it so far.
    pub requests: u64,
    /// Copies of its requests.
    pub mirror: Option<MirrorStatus>,
}

/// Copies of a route's requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorStatus {
    /// The pool that gets them.
    pub pool: Arc<str>,
    /// Copies in flight.
    pub in_flight: u32,
    /// How they ended so far, or why there is none, by name, with zeros.
    pub outcomes: Vec<(&'static str, u64)>,
}

/// TLS of a front door.
#[derive(Clone, Debug, PartialEq)]
pub struct DoorTlsStatus {
    /// Its certificates.
    pub tls: ServerTls,
    /// Complete handshakes so far.
    pub handshakes: u64,
    /// Of those, resumed sessions.
    pub resumed: u64,
}

/// Delegation of a front door in node mode.
#[derive(Clone, Debug, PartialEq)]
pub struct DispatchStatus {
    /// The part of each class to keep, 0..=1. The front door keeps more if no peer is available.
    pub keep: PerClass<f64>,
    /// The part of each class that is refused, 0..=1.
    pub refuse: PerClass<f64>,
    /// True if a plan set these parts, and not the configuration.
    pub is_planned: bool,
    /// Requests so far, by class.
    pub classes: PerClass<ClassCounts>,
    /// Requests that a peer failed and that were served here.
    pub returned: u64,
    /// Requests that unhealthy backends were given, because no other place was left.
    pub failed_open: u64,
    /// Markers with an invalid signature, or without encryption where it is required.
    pub markers_refused: u64,
    /// Encryption between nodes.
    pub encryption: Encryption,
}

/// State of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolStatus {
    /// Its name.
    pub name: Arc<str>,
    /// The scheduler.
    pub scheduler: SchedulerKind,
    /// The way in which requests share sessions.
    pub upstream: Upstream,
    /// Requests (HTTP) or connections (TCP) that wait for a backend with room.
    pub queued: usize,
    /// Requests that have joined the queue so far.
    pub waited: u64,
    /// Total time that requests spent in the queue.
    pub wait: Duration,
    /// Backends, in configured order.
    pub backends: Vec<BackendStatus>,
}

/// State of a backend.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendStatus {
    /// Its name.
    pub name: Arc<str>,
    /// The address on which it listens, or its identity if `place` differs.
    pub address: SocketAddr,
    /// The place at which it is reached.
    pub place: Place,
    /// The configured weight.
    pub weight_configured: Weight,
    /// The operator's weight, or else the configured one.
    pub weight_wanted: Weight,
    /// The effective weight: the planned one if the pool asks for it, otherwise the wanted one.
    pub weight: Weight,
    /// The share of the weight by slow start now, permille; 1000 without slow start.
    pub ramp_permille: u32,
    /// The operator's wish.
    pub admin: AdminState,
    /// The observed health.
    pub health: Health,
    /// The resulting eligibility.
    pub eligibility: Eligibility,
    /// True if it is an eligible backup, while other backends take the work.
    pub is_standby: bool,
    /// The last active check.
    pub last_check: Option<LastCheck>,
    /// TLS to it, if its pool has any.
    pub tls: Option<UpstreamTlsStatus>,
    /// The rest of its ejection, if it is ejected.
    pub ejection_left: Option<Duration>,
    /// Requests (HTTP), connections (TCP) or client addresses (UDP) in flight.
    pub in_flight: u32,
    /// The concurrency limit, if it has one.
    pub limit: Option<u32>,
    /// The operator's concurrency limit.
    pub concurrency: Option<u32>,
    /// The learnt state, if the limit is learnt and it has had work.
    pub learned: Option<Report>,
    /// Where it works, if its limit is stated, or learnt and it has had work.
    pub region: Option<Region>,
    /// Number of them that it was given so far.
    pub requests: u64,
    /// Total time that these had waited in the pool's queue.
    pub queue_wait: Duration,
    /// Number of complete responses (HTTP).
    pub answers: u64,
    /// Total time for which the requests with those responses held permits.
    pub permit_time: Duration,
    /// Responses by class, 1xx to 5xx (HTTP).
    pub responses: [u64; 5],
    /// Failures by reason, without zeros.
    pub failures: Vec<(Reason, u64)>,
    /// Open upstream sessions.
    pub sessions_open: u64,
    /// Sessions opened so far.
    pub sessions_opened: u64,
    /// Requests over a session that was open already.
    pub sessions_reused: u64,
    /// Responses that could not be framed beyond doubt, and times of unsolicited bytes.
    pub multiplex_faults: u64,
    /// Requests that were put on a shared session.
    pub multiplex_shared: u64,
    /// Requests that could share a session and got one of their own.
    pub multiplex_alone: u64,
    /// Shared sessions that a late or large response got for itself.
    pub multiplex_handed_over: u64,
    /// Requests that were sent again because a late or large response was before them, or their
    /// shared session ended before their turn.
    pub multiplex_repeated: u64,
    /// True if such a fault disabled its multiplexing.
    pub multiplexing_lost: bool,
    /// Bytes sent to it.
    pub bytes_out: u64,
    /// Bytes received from it.
    pub bytes_in: u64,
}

/// TLS to a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamTlsStatus {
    /// Complete handshakes so far, without those of checks.
    pub handshakes: u64,
    /// Of those, resumed sessions.
    pub resumed: u64,
    /// End of the validity of its certificate, once one was seen.
    pub valid_until: Option<SystemTime>,
    /// Why the last handshake failed, if it did.
    pub failure: Option<String>,
}

/// A completed active check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastCheck {
    /// Time since its beginning.
    pub ago: Duration,
    /// Its duration.
    pub took: Duration,
    /// The reason of a failure, in words.
    pub result: Result<(), String>,
}

/// The live counters, by front door and pool.
#[derive(Clone, Debug, Default)]
pub struct StatsView {
    /// Front doors, in configured order.
    pub front_doors: Vec<FrontDoorSeries>,
    /// Pools, in configured order.
    pub pools: Vec<PoolSeries>,
}

/// A front door's counters.
#[derive(Clone, Debug)]
pub struct FrontDoorSeries {
    /// The front door's name.
    pub name: Arc<str>,
    /// The protocol, which decides which counters are used.
    pub protocol: Protocol,
    /// The pool's name.
    pub pool: Arc<str>,
    /// The counters.
    pub stats: Arc<Sharded<FrontDoorStats>>,
    /// Limits of it and its routes with a rate that nodes share. Names are the same on all nodes.
    pub shared_limits: Vec<(String, SharedLimit)>,
}

/// A pool's counters.
#[derive(Clone, Debug)]
pub struct PoolSeries {
    /// The pool's name.
    pub name: Arc<str>,
    /// Its backends.
    pub backends: Vec<BackendSeries>,
    /// The pool's queue.
    pub queue: Arc<Queue>,
}

/// A backend's counters.
#[derive(Clone, Debug)]
pub struct BackendSeries {
    /// The backend's name.
    pub name: Arc<str>,
    /// The address on which it listens, or its identity if `place` differs.
    pub address: SocketAddr,
    /// The place at which it is reached.
    pub place: Place,
    /// The counters, and the number in flight.
    pub live: Arc<BackendLive>,
}

impl Inventory {
    pub(crate) fn status(&self, generation: Generation, now: Instant) -> Status {
        Status {
            generation,
            front_doors: self.front_doors.iter().map(front_door).collect(),
            pools: self.pools.iter().map(|p| pool(p, now)).collect(),
        }
    }

    pub(crate) fn stats(&self) -> StatsView {
        let front_door = |door: &FrontDoorEntry| FrontDoorSeries {
            name: door.config.name.clone(),
            protocol: door.config.protocol,
            pool: door.config.pool.clone(),
            stats: Arc::clone(&door.stats),
            shared_limits: shared_limits(door),
        };
        let backend = |backend: &BackendEntry| BackendSeries {
            name: backend.config.name.clone(),
            address: backend.config.address,
            place: backend.config.place.clone(),
            live: Arc::clone(&backend.live),
        };
        let pool = |pool: &PoolEntry| PoolSeries {
            name: pool.settings.name.clone(),
            backends: pool.backends.iter().map(backend).collect(),
            queue: Arc::clone(&pool.queue),
        };
        StatsView {
            front_doors: self.front_doors.iter().map(front_door).collect(),
            pools: self.pools.iter().map(pool).collect(),
        }
    }
}

fn front_door(door: &FrontDoorEntry) -> FrontDoorStatus {
    let sum = |of: fn(&FrontDoorStats) -> &Counter| door.stats.sum(|shard| of(shard).get());
    FrontDoorStatus {
        name: door.config.name.clone(),
        listen: door.config.listen,
        protocol: door.config.protocol,
        pool: door.config.pool.clone(),
        connections: sum(|s| &s.connections),
        connections_open: sum(|s| &s.connections_open),
        requests: sum(|s| &s.requests),
        requests_in_flight: sum(|s| &s.requests_in_flight),
        responses: std::array::from_fn(|class| door.stats.sum(|s| s.responses[class].get())),
        bytes_in: sum(|s| &s.bytes_in),
        bytes_out: sum(|s| &s.bytes_out),
        retries: sum(|s| &s.retries),
        drops: by_reason(|reason| door.stats.sum(|s| s.drops[reason as usize].get())),
        dispatch: door.config.dispatch.as_ref().map(|node| dispatch(door, &*node.delegation)),
        tls: door.config.tls.as_ref().map(|tls| DoorTlsStatus {
            tls: tls.clone(),
            handshakes: sum(|s| &s.tls_handshakes),
            resumed: sum(|s| &s.tls_resumed),
        }),
        routes: routes(door),
        sni_pools: door.config.sni.iter().map(|route| route.pool.clone()).collect(),
    }
}

/// The limits of a front door and its routes with a shared rate. A pool has no name like these.
fn shared_limits(door: &FrontDoorEntry) -> Vec<(String, SharedLimit)> {
    let name = |route: &str, limit: &SharedLimit| {
        format!("[limit] {} {route} {}", door.config.name, limit.name())
    };
    let of_door = door.limiter.shared().map(|limit| (name("", &limit), limit));
    let routes = door.config.routes.routes().iter().zip(door.routes.iter());
    let of_routes = routes.flat_map(|(route, view)| {
        view.limiter.shared().map(|limit| (name(&route.name, &limit), limit))
    });
    of_door.chain(of_routes).collect()
}

fn routes(door: &FrontDoorEntry) -> Vec<RouteStatus> {
    let routes = door.config.routes.routes().iter().zip(door.routes.iter());
    let status = |(route, view): (&RouteConfig, &RouteView)| RouteStatus {
        name: route.name.clone(),
        action: route.action.clone(),
        requests: view.stats.sum(|shard| shard.requests.get()),
        mirror: route.mirror.as_ref().zip(view.mirror.as_ref()).map(|(mirror, view)| {
            MirrorStatus {
                pool: mirror.pool.clone(),
                in_flight: view.live.in_flight(),
                outcomes: view.live.outcomes().collect(),
            }
        }),
    };
    routes.map(status).collect()
}

fn dispatch(door: &FrontDoorEntry, delegation: &dyn Delegation) -> DispatchStatus {
    DispatchStatus {
        keep: delegation.keep(door.shares.as_deref()),
        refuse: door.shares.as_ref().map(|shares| shares.refuse).unwrap_or_default(),
        is_planned: door.shares.is_some(),
        classes: class_counts(&door.stats),
        returned: door.stats.sum(|s| s.returned.get()),
        failed_open: door.stats.sum(|s| s.failed_open.get()),
        markers_refused: door.stats.sum(|s| s.markers_refused.get()),
        encryption: delegation.encryption(),
    }
}

/// A front door's requests by class, over all threads. [`ClassStats`] describes the counters.
pub fn class_counts(stats: &Sharded<FrontDoorStats>) -> PerClass<ClassCounts> {
    PerClass::from_fn(|class| {
        let sum = |of: fn(&ClassStats) -> &Counter| {
            stats.sum(|shard| of(&shard.classes[class as usize]).get())
        };
        ClassCounts {
            arrived: sum(|it| &it.arrived),
            delegated: sum(|it| &it.delegated),
            given: sum(|it| &it.given),
            refused: sum(|it| &it.refused),
            taken: sum(|it| &it.taken),
            handed_back: sum(|it| &it.handed_back),
            bytes: sum(|it| &it.bytes),
        }
    })
}

fn pool(pool: &PoolEntry, now: Instant) -> PoolStatus {
    PoolStatus {
        name: pool.settings.name.clone(),
        scheduler: pool.settings.scheduler,
        upstream: pool.settings.options.upstream,
        queued: pool.queue.len(),
        waited: pool.queue.stats.sum(|shard| shard.waited.get()),
        wait: Duration::from_micros(pool.queue.stats.histogram(|shard| &shard.wait).sum_us),
        backends: {
            let is_on_backups = pool.picked().any(|b| b.config.backup);
            pool.backends.iter().map(|b| backend(pool, b, is_on_backups, now)).collect()
        },
    }
}

fn backend(
    pool: &PoolEntry,
    backend: &BackendEntry,
    is_on_backups: bool,
    now: Instant,
) -> BackendStatus {
    let stats = &backend.live.stats;
    let sum = |of: fn(&BackendStats) -> &Counter| stats.sum(|shard| of(shard).get());
    BackendStatus {
        name: backend.config.name.clone(),
        address: backend.config.address,
        place: backend.config.place.clone(),
        weight_configured: backend.config.weight,
        weight_wanted: backend.weight_wanted(),
        weight: backend.weight(),
        ramp_permille: pool.ramp_permille(backend, now),
        admin: backend.admin,
        health: backend.health(),
        eligibility: backend.eligibility(),
        is_standby: backend.is_eligible() && backend.config.backup && !is_on_backups,
        last_check: backend.last_check.as_ref().map(|check| LastCheck {
            ago: now.saturating_duration_since(check.when),
            took: check.took,
            result: check.result.clone().map_err(|error| error.to_string()),
        }),
        tls: match &pool.settings.options.tls {
            Some(UpstreamTls::Server(_)) => Some(UpstreamTlsStatus {
                handshakes: sum(|s| &s.tls_handshakes),
                resumed: sum(|s| &s.tls_resumed),
                valid_until: backend.live.tls.valid_until(),
                failure: backend.live.tls.failure(),
            }),
            Some(UpstreamTls::Peer(_)) | None => None,
        },
        ejection_left: backend
            .health
            .ejected_until()
            .map(|until| until.saturating_duration_since(now)),
        in_flight: backend.live.in_flight(),
        limit: backend.live.limit(),
        concurrency: backend.concurrency_override.map(NonZeroU32::get),
        learned: backend.live.learned(),
        region: backend.live.region(),
        requests: sum(|s| &s.requests),
        queue_wait: Duration::from_micros(sum(|s| &s.queue_wait_us)),
        answers: stats.histogram(|s| &s.response_time).counts.iter().sum(),
        permit_time: Duration::from_micros(sum(|s| &s.permit_time_us)),
        responses: std::array::from_fn(|class| stats.sum(|s| s.responses[class].get())),
        failures: by_reason(|reason| stats.sum(|s| s.failures[reason as usize].get())),
        sessions_open: sum(|s| &s.sessions_open),
        sessions_opened: sum(|s| &s.sessions_opened),
        sessions_reused: sum(|s| &s.sessions_reused),
        multiplex_faults: sum(|s| &s.multiplex_faults),
        multiplex_shared: sum(|s| &s.multiplex_shared),
        multiplex_alone: sum(|s| &s.multiplex_alone),
        multiplex_handed_over: sum(|s| &s.multiplex_handed_over),
        multiplex_repeated: sum(|s| &s.multiplex_repeated),
        multiplexing_lost: backend.live.is_multiplexing_lost(),
        bytes_out: sum(|s| &s.bytes_out),
        bytes_in: sum(|s| &s.bytes_in),
    }
}

fn by_reason(count: impl Fn(Reason) -> u64) -> Vec<(Reason, u64)> {
    let counted = Reason::ALL.iter().map(|reason| (*reason, count(*reason)));
    counted.filter(|(_, count)| *count > 0).collect()
}
