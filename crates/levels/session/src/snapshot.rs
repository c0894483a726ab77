use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use equipoise_core::load::DispatchTable;
use equipoise_core::{Generation, Prepared};
use equipoise_health::Place;

use crate::config::{FrontDoor, PassiveHealth, PoolOptions, Upstream};
use crate::in_flight::InFlight;
use crate::learning::{Hub, Target};
use crate::limiter::{self, LimitState, Limiter};
use crate::live::BackendLive;
use crate::queue::Queue;
use crate::reason::Reason;
use crate::retry_budget::RetryBudget;
use crate::route::RouteView;
use crate::sni::SniTable;
use crate::stats::{FrontDoorStats, Sharded};
use crate::why::DecisionStep;

/// The whole input of a data-plane thread: immutable, numbered, swapped whole.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Rises with every snapshot.
    pub generation: Generation,
    /// Indexed by [`FrontDoorView::pool`].
    pub pools: Vec<Arc<PoolView>>,
    /// The front doors that are open.
    pub front_doors: Vec<Arc<FrontDoorView>>,
}

/// A front door as the data plane sees it.
#[derive(Debug)]
pub struct FrontDoorView {
    /// Never reused for another front door while the process runs.
    pub id: u32,
    /// Its configuration.
    pub config: FrontDoor,
    /// Index of its pool in [`Snapshot::pools`].
    pub pool: usize,
    /// Indices of its pools by server name.
    pub sni: Arc<SniTable>,
    /// Its routes, in the order of its configuration.
    pub routes: Arc<[RouteView]>,
    /// Whether and how requests are delegated; only HTTP is.
    pub dispatch: Option<DispatchView>,
    /// The counts of its limits on clients; kept across snapshots.
    pub limiter: Arc<Limiter>,
    /// Its clients' requests in flight, in node mode; kept across snapshots.
    pub in_flight: Arc<InFlight>,
    /// Counters, kept across snapshots.
    pub stats: Arc<Sharded<FrontDoorStats>>,
}

/// Node mode of a front door as the data plane sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct DispatchView {
    /// Index of the peers' pool in [`Snapshot::pools`].
    pub peers: usize,
    /// Chooses the node that serves a request. Its peers are the pool's backends, in their order.
    pub table: DispatchTable,
    /// The plan has this node keep nothing: it has no room for what peers ask.
    pub keeps_nothing: bool,
    /// Where peers are, whether they may be picked or not: a marker that comes from there and is
    /// not signed as it should be is a node's with another key, not a client's forgery.
    pub places: Arc<[IpAddr]>,
}

impl FrontDoorView {
    /// Index of the pool for this server name.
    pub(crate) fn pool_for(&self, server_name: Option<&str>) -> usize {
        server_name.and_then(|name| self.sni.pick(name)).unwrap_or(self.pool)
    }

    /// Whether this is the address of a peer, in node mode.
    pub(crate) fn is_of_peer(&self, from: IpAddr) -> bool {
        let from = from.to_canonical();
        self.dispatch.as_ref().is_some_and(|it| it.places.contains(&from))
    }

    /// Adds what the access list says about a client, and the limits about one more connection of
    /// it. Returns false if they refuse it. Counts nothing.
    pub(crate) fn explain_access(&self, client: IpAddr, steps: &mut Vec<DecisionStep>) -> bool {
        let access = &self.config.access;
        if !access.allows(client) {
            steps.push(DecisionStep::Refused(Reason::SourceDenied));
            return false;
        }
        if !access.allows_all() {
            steps.push(DecisionStep::Allowed);
        }
        !is_full(&self.limiter.states(client, b"", false), steps)
    }

    /// Adds what the limits say about one more request or connection of a client; `head` is as the
    /// client sent it, and `route` is the one that it takes. Returns false if they refuse it.
    /// Counts nothing.
    pub(crate) fn explain_limits(
        &self,
        client: IpAddr,
        head: &[u8],
        route: Option<usize>,
        steps: &mut Vec<DecisionStep>,
    ) -> bool {
        let of_route = route.and_then(|at| self.routes.get(at)).map(|route| &*route.limiter);
        limiter::of_request(of_route, &self.limiter).all(|(limiter, is_of_route)| {
            let states = limiter.states(client, head, is_of_route);
            !is_full(&states, steps) && !is_over(states, steps)
        })
    }

    /// Index of the pool of the peers, where requests can be delegated.
    pub(crate) fn peers(&self) -> Option<usize> {
        let may_delegate =
            self.config.dispatch.as_ref().is_some_and(|node| node.delegation.may_delegate());
        self.dispatch.as_ref().filter(|_| may_delegate).map(|dispatch| dispatch.peers)
    }
}

/// Adds the first limit that has no room for one more connection or request, and returns whether
/// there is one.
fn is_full(states: &[LimitState], steps: &mut Vec<DecisionStep>) -> bool {
    let full = states.iter().find_map(|state| Some((state, state.is_full()?)));
    let Some((state, reason)) = full else { return false };
    steps.extend([DecisionStep::Limit(state.clone()), DecisionStep::Refused(reason)]);
    true
}

/// Adds limits up to the first one whose rate is exceeded. Returns whether there is one.
fn is_over(states: Vec<LimitState>, steps: &mut Vec<DecisionStep>) -> bool {
    for state in states {
        let reason = state.is_over();
        steps.push(DecisionStep::Limit(state));
        if let Some(reason) = reason {
            steps.push(DecisionStep::Refused(reason));
            return true;
        }
    }
    false
}

/// Readiness of a pool for one more piece of work, before its scheduler is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// The scheduler may pick a backend.
    Ready,
    /// The work waits in the queue.
    Waits,
    /// No backend may be picked.
    NoBackend,
}

impl PoolView {
    /// Readiness for one more piece of work. `may_wait`: it takes permits, and may wait for them.
    /// `fails_open`: it may go to unhealthy backends.
    #[inline]
    pub(crate) fn readiness(&self, may_wait: bool, fails_open: bool) -> Readiness {
        if self.fails_open && !fails_open {
            return Readiness::NoBackend;
        }
        match self.backends.is_empty() {
            true if self.awaits_backend && may_wait => Readiness::Waits,
            true => Readiness::NoBackend,
            // Waiting requests come first.
            false if may_wait && self.queue.has_waiting() => Readiness::Waits,
            false => Readiness::Ready,
        }
    }

    /// The backend that the value of a sticky cookie names.
    pub(crate) fn sticky_slot(&self, value: Option<u64>) -> Option<usize> {
        let (value, cookie) = (value?, self.options.sticky.as_ref()?);
        self.backends.iter().position(|it| cookie.names(it.address) == value)
    }

    /// Permits that are free once a request with `over` permits has ended; `None` if a backend has
    /// no limit, or if there is no backend.
    pub(crate) fn free_permits(&self, over: u32) -> Option<u32> {
        let free = |backend: &BackendView| backend.live.permits.free();
        let limited = self.backends.iter().map(free).sum::<Option<u32>>()?;
        let waits = self.queue.has_waiting();
        (!self.backends.is_empty()).then_some(if waits { 0 } else { limited + over })
    }
}

/// A pool as the data plane sees it: only backends that may be picked.
#[derive(Debug)]
pub struct PoolView {
    /// Never reused for another pool while the process runs.
    pub id: u32,
    /// Its name.
    pub name: Arc<str>,
    /// Rises when anything below changes; threads then make their scheduler anew.
    pub generation: Generation,
    /// The scheduler's tables over `backends`.
    pub scheduler: Prepared,
    /// Whether the scheduler reads response times.
    pub needs_response_time: bool,
    /// It has no backend because one is being made: requests wait for it.
    pub awaits_backend: bool,
    /// Every backend is unhealthy. They get only the requests that fail open.
    pub fails_open: bool,
    /// The eligible backends; a scheduler's slot is an index into it.
    pub backends: Vec<BackendView>,
    /// Requests that wait for a backend; kept across snapshots.
    pub queue: Arc<Queue>,
    /// Bounds retries; kept across snapshots.
    pub retry_budget: Arc<RetryBudget>,
    /// The upstream side.
    pub options: PoolOptions,
    /// When a row of failures is reported.
    pub passive: PassiveHealth,
}

/// An eligible backend as the data plane sees it.
#[derive(Clone, Debug)]
pub struct BackendView {
    /// Never reused for another backend while the process runs; the key of kept-open sessions.
    pub id: u32,
    /// The name operators use.
    pub name: Arc<str>,
    /// Where it listens, or what identifies it if `place` says otherwise.
    pub address: SocketAddr,
    /// Where it is reached.
    pub place: Place,
    /// Its live state.
    pub live: Arc<BackendLive>,
}

impl PoolView {
    /// Whether one more retry is within the pool's budget. Counts it.
    ///
    /// A request that failed because no connection was made has loaded no backend. To try it again
    /// cannot multiply an overload, and uses no budget.
    pub(crate) fn may_retry(&self, reason: Reason, now: Instant) -> bool {
        if reason.is_not_connected() {
            return true;
        }
        let requests_of =
            |backend: &BackendView| (backend.id, backend.live.stats.sum(|it| it.requests.get()));
        let requests = self.backends.iter().map(requests_of);
        self.retry_budget.try_retry(self.options.retry_budget, requests, now)
    }
}

impl BackendView {
    /// Its name in messages: with the pool's, such as `web/b1`.
    pub(crate) fn label(&self) -> String {
        self.live.label(&self.name)
    }

    /// Logs the likely reason of a malformed answer, which begins with these bytes.
    pub(crate) fn say_wrong_protocol(&self, upstream: Upstream, answer: &[u8]) {
        self.live.wrong_protocol.say(|| self.label(), upstream, answer);
    }

    /// Has the hub look at the backend's limit, if that is learned and the hub does not look
    /// already.
    #[inline]
    pub(crate) fn announce_to(&self, hub: &Hub, queue: &Arc<Queue>) {
        if self.live.learning.is_on() && self.live.learning.begins() {
            let (live, queue) = (Arc::clone(&self.live), Arc::clone(queue));
            hub.announce(Target { id: self.id, live, queue });
        }
    }

    /// Where its datagrams may go: to the first address that a socket can be connected to.
    pub(crate) fn datagram_addresses(&self) -> Vec<SocketAddr> {
        match &self.place {
            Place::Host { resolved, .. } => resolved.ordered().collect(),
            Place::Address | Place::Socket(_) => vec![self.address],
        }
    }
}

/// A report of the data plane to its control side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendEvent {
    /// The backend failed this many times in a row, reaching its pool's passive threshold.
    Failing {
        /// [`PoolView::id`].
        pool: u32,
        /// [`BackendView::id`].
        backend: u32,
        /// The last failure of the row.
        reason: Reason,
    },
}

/// The seed of the hashes that a whole fleet must agree on (`maglev`, `source-hash`).
pub const FLEET_SEED: u64 = 0x6571_7569_706f_6973;
