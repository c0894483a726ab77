use std::net::SocketAddr;

/// State of an elastic backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BackendState {
    /// Being added; it does not serve yet.
    Starting,
    /// Serving.
    Ready,
    /// Receives no new work; it is removed when it has none left.
    Draining,
    /// Being removed.
    Leaving,
    /// Could not be added, or went down. The driver is asked again.
    Failed,
}

impl BackendState {
    /// The state's name in metrics and API responses.
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

/// A backend that a driver made or makes.
#[derive(Clone, Debug, PartialEq)]
pub struct ElasticBackend {
    /// The name, unique in the pool for ever.
    pub name: String,
    /// The backend's address; `None` before it was added.
    pub address: Option<SocketAddr>,
    /// The size; `None` if all backends of the pool are alike.
    pub size: Option<String>,
    /// The backend's state.
    pub state: BackendState,
    /// The driver's identifier of it.
    pub id: Option<String>,
    /// The last failure, and the next step.
    pub problem: Option<String>,
    /// True if an earlier driver made it, or will. The present driver replaces it.
    pub is_outdated: bool,
    /// The driver that made it, or will: [`crate::DriverOptions::fingerprint`].
    pub driver: Option<String>,
    /// True if it outlives this process.
    pub outlives: bool,
    /// The backend that it replaces, by the leader's roster.
    pub replaces: Option<String>,
    /// The key under which the driver is asked for it; `None` if it is known from a listing alone.
    pub key: Option<String>,
}

/// The elastic backends of a pool on this machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolView {
    /// The pool's name.
    pub pool: String,
    /// The backends, in the order of their numbers.
    pub backends: Vec<ElasticBackend>,
    /// Larger than the numbers of all names that the pool ever had, as far as this process knows.
    pub next_number: u64,
    /// The driver that adds: [`crate::DriverOptions::fingerprint`].
    pub driver: Option<String>,
    /// True if its backends outlive this process.
    pub outlives: bool,
}
