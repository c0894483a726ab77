use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;

use crate::{ExecError, ProcessError, WebhookError};

/// What adds and removes backends. It is asked about one backend at a time, by several tasks at once.
#[async_trait]
pub trait Driver: Send + Sync + 'static {
    /// Whether what it made goes on when this process ends, and is to be adopted by the next.
    fn outlives_us(&self) -> bool;

    /// Makes a backend that accepts connections when this returns.
    ///
    /// Asking again with the same [`Ask::key`] means the same backend: a first answer may have been lost.
    ///
    /// # Errors
    /// Why there is none. Something may have been left of it; [`Self::remove`] is asked before its name is forgotten.
    async fn add(&self, ask: &Ask) -> Result<Added, DriverError>;

    /// Takes a backend away. One that is not there is no error.
    ///
    /// # Errors
    /// Why it may still be there.
    async fn remove(&self, ask: &Ask) -> Result<(), DriverError>;

    /// What there is of the pool; `None` if the driver cannot say.
    ///
    /// # Errors
    /// Why it could not be found out.
    async fn list(&self) -> Result<Option<Vec<Listed>>, DriverError> {
        Ok(None)
    }
}

/// A backend that is to be added or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Its pool.
    pub pool: String,
    /// Its name, unique in the pool for ever: `web-e1`.
    pub name: String,
    /// Which of the pool's sizes; `None` if all are alike.
    pub size: Option<String>,
    /// The same for every try to add this backend, and no other's.
    pub key: String,
    /// 1 for the first try.
    pub attempt: u32,
    /// Where it serves, if it was added.
    pub address: Option<SocketAddr>,
    /// What the driver calls it, if it was added.
    pub id: Option<String>,
}

/// What was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
    /// Where it serves.
    pub address: SocketAddr,
    /// What the driver calls it: a process id, an instance's name.
    pub id: String,
}

/// A backend that a driver says is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// As it was asked for.
    pub name: String,
    /// Where and as what.
    pub added: Added,
    /// As it was asked for.
    pub size: Option<String>,
}

/// What a driver notices by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A backend went down; the driver starts it again.
    Down {
        /// Which.
        name: String,
        /// Why, as far as it is known.
        reason: String,
        /// When it is tried again.
        again_in: Duration,
        /// Whether it went down again and again.
        is_loop: bool,
    },
    /// It is there again, at the same address.
    Up {
        /// Which.
        name: String,
        /// What it is called now.
        id: String,
    },
}

impl Event {
    /// Which backend it is about.
    pub fn name(&self) -> &str {
        match self {
            Event::Down { name, .. } | Event::Up { name, .. } => name,
        }
    }
}

/// What a driver could not do.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The process driver.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The exec driver.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// The webhook driver.
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    /// Another driver.
    #[error("{0}")]
    Other(String),
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}
