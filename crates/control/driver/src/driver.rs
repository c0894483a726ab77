use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;

use crate::{ExecError, ProcessError, WebhookError};

/// Creates and removes backends. Several tasks call it at once, each about one backend.
#[async_trait]
pub trait Driver: Send + Sync + 'static {
    /// True if the backends survive the end of this process, so that the next process adopts them.
    fn outlives_us(&self) -> bool;

    /// Creates a backend. When this returns, the backend accepts connections.
    ///
    /// A repeated call with the same [`Ask::key`] means the same backend: the first answer may have
    /// been lost.
    ///
    /// # Errors
    /// The backend was not created. Parts of it may exist; the caller calls [`Self::remove`] before
    /// it forgets the name.
    async fn add(&self, ask: &Ask) -> Result<Added, DriverError>;

    /// Removes a backend. A backend that does not exist is not an error.
    ///
    /// # Errors
    /// The backend may still exist.
    async fn remove(&self, ask: &Ask) -> Result<(), DriverError>;

    /// Lists the backends of the pool that exist. `None` if the driver cannot list.
    ///
    /// # Errors
    /// The list is not known.
    async fn list(&self) -> Result<Option<Vec<Listed>>, DriverError> {
        Ok(None)
    }
}

/// A request to add or remove one backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The name of the pool.
    pub pool: String,
    /// The name of the backend, unique in the pool for ever: `web-e1`.
    pub name: String,
    /// The size of the backend; `None` if all backends of the pool are alike.
    pub size: Option<String>,
    /// Idempotency key: the same for every attempt to add this backend, and different for every
    /// other.
    pub key: String,
    /// Number of this attempt; the first is 1.
    pub attempt: u32,
    /// The backend's address, if it was added.
    pub address: Option<SocketAddr>,
    /// The driver's identifier of the backend, if it was added.
    pub id: Option<String>,
}

/// A backend that a driver created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
    /// The backend's address.
    pub address: SocketAddr,
    /// The driver's identifier: a process id, or an instance's name.
    pub id: String,
}

/// A backend in a driver's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name under which it was added.
    pub name: String,
    /// The backend's address and identifier.
    pub added: Added,
    /// The size with which it was added.
    pub size: Option<String>,
}

/// An event that a driver reports by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A backend went down; the driver starts it again.
    Down {
        /// The backend's name.
        name: String,
        /// The cause, as far as it is known.
        reason: String,
        /// Time until the next start.
        again_in: Duration,
        /// True if the backend went down repeatedly.
        is_loop: bool,
    },
    /// A backend runs again, at the same address.
    Up {
        /// The backend's name.
        name: String,
        /// The new identifier of the backend.
        id: String,
    },
}

impl Event {
    /// The name of the backend.
    pub fn name(&self) -> &str {
        match self {
            Event::Down { name, .. } | Event::Up { name, .. } => name,
        }
    }
}

/// A driver's failure.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// A failure of the process driver.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A failure of the exec driver.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// A failure of the webhook driver.
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    /// A failure of another driver.
    #[error("{0}")]
    Other(String),
}
