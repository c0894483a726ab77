use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::snapshot::{BackendEvent, Snapshot};

/// How the data plane is started.
pub struct EngineOptions {
    /// Data-plane threads, at least 1.
    pub threads: usize,
    /// The instance's name: `Via`'s and `Proxy-Status`'s pseudonym.
    pub instance: Arc<str>,
    /// Where failing backends are reported; a full channel loses the report, the next failure repeats it.
    pub events: mpsc::Sender<BackendEvent>,
    /// Where sampled access-log lines go, written by a thread of their own.
    pub access_log: Box<dyn io::Write + Send>,
}

/// A front door's address could not be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} (front door `{front_door}`, option `listen`)")]
pub struct BindError {
    /// Its name.
    pub front_door: Arc<str>,
    /// The address asked for.
    pub address: SocketAddr,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// What a stop cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StopReport {
    /// Requests, connections and client addresses that were still being served when the grace period ended.
    pub cut: u64,
}

/// The data plane: its threads, their listeners, the snapshot that they go by.
pub struct Engine {}

impl Engine {
    /// Starts the threads, with no front door open.
    ///
    /// # Errors
    /// What the operating system says when it denies a thread or an event queue.
    pub fn start(options: EngineOptions) -> io::Result<Engine> {
        let _ = options;
        Ok(Engine {})
    }

    /// Makes `snapshot` what every thread goes by: binds the front doors that are new by
    /// [`FrontDoorView::id`](crate::FrontDoorView::id), swaps, then closes those that are gone. Established
    /// connections stay. A snapshot whose generation is not newer is ignored.
    ///
    /// # Errors
    /// [`BindError`]; then nothing has changed.
    pub fn publish(&self, snapshot: Arc<Snapshot>) -> Result<(), BindError> {
        let _ = snapshot;
        Ok(())
    }

    /// Stops accepting, lets what is in flight finish for at most `grace`, cuts the rest, ends the threads.
    pub async fn stop(self, grace: Duration) -> StopReport {
        let _ = grace;
        StopReport::default()
    }
}
