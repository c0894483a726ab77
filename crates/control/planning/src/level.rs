//! The session level of this process, as planning uses it. The binary implements it over the
//! registry, so that planning imports no level.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use equipoise_core::concurrency::Tally;
use equipoise_core::load::{ClassCounts, PerClass, Shares};
use equipoise_core::{AdminState, Health, Weight};

use crate::meter::{BackendCounts, PermitCounts, QueueCounts};

/// The session level of this process.
pub trait SessionLevel: Measured + Steered {}

impl<T: Measured + Steered> SessionLevel for T {}

/// State and counters of the level. Methods read counters, and do not wait.
#[async_trait]
pub trait Measured: Send + Sync + 'static {
    /// The pools; `None` once the level has stopped.
    async fn pools(&self) -> Option<Vec<PoolNow>>;

    /// Counters of the backends and queues of the pools that `counts` accepts.
    fn counted(&self, counts: &dyn Fn(&str) -> bool) -> (Vec<BackendCounts>, Vec<QueueCounts>);

    /// Requests by class so far, of all front doors in node mode.
    fn requests(&self) -> PerClass<ClassCounts>;

    /// Whether any backend of the pool may receive requests.
    fn serves(&self, pool: &str) -> bool;

    /// Requests that wait for a backend of the pool.
    fn waiting(&self, pool: &str) -> usize;

    /// Permits of the pool's backends that may receive requests. `None` if there is no such
    /// backend, or if one of them has no limit.
    fn permits(&self, pool: &str) -> Option<PermitCounts>;

    /// Those of `backends` that take no new work and have none left. `None` if the pool is unknown.
    fn idle(&self, pool: &str, backends: Vec<String>) -> Option<BTreeSet<String>>;

    /// Limits on clients with a rate that the nodes of a cluster share.
    fn shared_limits(&self) -> Vec<LimitDemand>;

    /// Measurements of backends that learn their limit and had work recently.
    fn tallies(&self) -> Vec<(LearningBackend, Tally)>;
}

/// The state of the level that plans change. An unchanged value has no effect.
#[async_trait]
pub trait Steered: Send + Sync + 'static {
    /// Sets the planned weights of a pool.
    async fn set_planned(&self, pool: &str, weights: Vec<(String, Weight)>) -> Result<(), Refused>;

    /// Sets the shares of front doors in node mode.
    async fn set_shares(&self, shares: Arc<Shares>) -> Result<(), Refused>;

    /// Sets a backend's admin state.
    async fn set_admin(&self, pool: &str, backend: &str, admin: AdminState) -> Result<(), Refused>;

    /// Sets the room of the peers that serve for the pool `application`, by name. Responses of a
    /// peer that are newer have precedence. Waiting requests may then be delegated.
    fn set_room(&self, application: &str, rooms: &BTreeMap<String, u32>);

    /// Sets the part of a shared limit's rate that this node admits, 0..=1.
    fn set_limit_share(&self, limit: &str, share: f64);

    /// Gives each backend that learns its limit the measurements of the other balancers. `own` is
    /// the number of this balancer.
    fn hear_balancers(&self, own: u64, others: &mut dyn FnMut(&LearningBackend) -> Vec<Tally>);
}

/// The reason why the level did not apply a change.
pub type Refused = Box<dyn std::error::Error + Send + Sync>;

/// A pool and its backends.
#[derive(Clone, Debug)]
pub struct PoolNow {
    /// Its name.
    pub name: Arc<str>,
    /// Its backends.
    pub backends: Vec<BackendNow>,
}

/// A backend of a pool.
#[derive(Clone, Debug)]
pub struct BackendNow {
    /// Its name.
    pub name: Arc<str>,
    /// The operator's admin state.
    pub admin: AdminState,
    /// The observed health.
    pub health: Health,
    /// The operator's weight, or else the configured one.
    pub weight: Weight,
    /// Its first address; `None` for a socket's path, or before its name is resolved.
    pub address: Option<IpAddr>,
}

/// A limit on clients with a rate that the nodes of a cluster share.
#[derive(Clone, Debug)]
pub struct LimitDemand {
    /// Its name, which is the same on all nodes.
    pub name: String,
    /// The rate of all nodes together, a second.
    pub per_second: f64,
    /// Events of this node so far, refused ones included.
    pub asked: u64,
}

/// A backend that learns its limit.
#[derive(Clone, Debug)]
pub struct LearningBackend {
    /// Its pool.
    pub pool: Arc<str>,
    /// Its address, host name or path, as text.
    pub place: String,
    /// The place means another backend on another machine: a loopback address, or a path.
    pub is_local: bool,
}
