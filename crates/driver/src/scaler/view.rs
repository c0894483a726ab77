use std::net::SocketAddr;
use std::time::Duration;

use equipoise_core::{AdminState, Health, Weight};
use equipoise_planner::BackendSpec;
use tokio::time::Instant;

/// How far a backend is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BackendState {
    /// Asked for; it does not serve yet.
    Starting,
    /// Serves.
    Ready,
    /// Keeps what it has and takes nothing new; it leaves when it has nothing left.
    Draining,
    /// Is being taken away.
    Leaving,
    /// Could not be added, or went down. It is tried again.
    Failed,
}

impl BackendState {
    /// Its name in metrics and answers.
    pub fn name(self) -> &'static str {
        match self {
            BackendState::Starting => "starting",
            BackendState::Ready => "ready",
            BackendState::Draining => "draining",
            BackendState::Leaving => "leaving",
            BackendState::Failed => "failed",
        }
    }
}

/// A backend that the scaler made.
#[derive(Clone, Debug, PartialEq)]
pub struct ElasticBackend {
    /// Unique in its pool for ever.
    pub name: String,
    /// Where it serves; `None` before it was added.
    pub address: Option<SocketAddr>,
    /// Which of the pool's sizes.
    pub size: Option<String>,
    /// How far it is.
    pub state: BackendState,
    /// What the driver calls it.
    pub id: Option<String>,
    /// What went wrong last, and what is done about it.
    pub problem: Option<String>,
    /// Whether another one comes in its stead. It still serves, and is not counted.
    pub is_replaced: bool,
    /// Since when it serves, and how old it was then (adopted ones are not new).
    pub(super) served: Option<(Instant, Duration)>,
}

/// The backends that a pool's scaler made, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolView {
    /// The pool.
    pub pool: String,
    /// In the order of their making.
    pub backends: Vec<ElasticBackend>,
    /// The steps that were taken, which the backends show; counted from a number that no scaler before it had.
    pub steps: u64,
    /// Why the record of them could not be kept, if so. Nothing is added meanwhile.
    pub record_problem: Option<String>,
}

impl ElasticBackend {
    /// How long it has been serving; zero before.
    pub fn age(&self, now: Instant) -> Duration {
        self.served.map_or(Duration::ZERO, |(since, before)| {
            before.saturating_add(now.saturating_duration_since(since))
        })
    }

    /// What is wanted of it where load is spread. New work goes to one that is ready, until it drains; one that failed is
    /// wanted too, and the health checks know that it cannot be had.
    pub fn admin(&self) -> AdminState {
        match self.state {
            BackendState::Starting | BackendState::Ready | BackendState::Failed => AdminState::Up,
            BackendState::Draining => AdminState::Drain,
            BackendState::Leaving => AdminState::Down,
        }
    }

    /// What the planner is to be told of it. `health` is what the checks see, `weight` the pool's.
    ///
    /// One that is being replaced is told as drained already, as the planner's own step means it: else the planner
    /// would count both, and shrink the pool again.
    pub fn spec(&self, health: Health, weight: Weight, now: Instant) -> BackendSpec {
        let health = match self.state {
            BackendState::Failed => Health::Unhealthy,
            BackendState::Starting => Health::Unknown,
            _ => health,
        };
        let admin = if self.is_replaced { AdminState::Drain } else { self.admin() };
        let (size, age) = (self.size.clone(), self.age(now));
        BackendSpec { admin, health, weight, machine: None, size, is_elastic: true, age }
    }
}
