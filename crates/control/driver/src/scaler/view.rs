use std::net::SocketAddr;

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
    /// An earlier driver made it, or is to: the present one is to replace it.
    pub is_outdated: bool,
    /// The driver that made it, or is to: [`crate::DriverOptions::fingerprint`].
    pub driver: Option<String>,
    /// Whether it outlives this process.
    pub outlives: bool,
    /// The backend that it replaces, by the leader's roster.
    pub replaces: Option<String>,
    /// The key under which the driver is asked for it; `None` if it was found in a listing alone.
    pub key: Option<String>,
}

/// The backends that a pool's scaler made, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolView {
    /// The pool.
    pub pool: String,
    /// In the order of their making.
    pub backends: Vec<ElasticBackend>,
    /// Above the numbers of all names that the pool ever had, as far as this process knows.
    pub next_number: u64,
    /// The driver that adds: [`crate::DriverOptions::fingerprint`].
    pub driver: Option<String>,
    /// Whether what it makes outlives this process.
    pub outlives: bool,
}
