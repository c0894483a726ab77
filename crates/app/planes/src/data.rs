//! The session level of one process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use equipoise_basics::lock;
use equipoise_core::SourcePrefix;
use equipoise_handover::Listening;
use equipoise_session::registry::Publish;
use equipoise_session::why::Explainer;
use equipoise_session::{BindError, Engine, LogLines, Snapshot, UdpHandover};

/// The data plane. The registry publishes snapshots to it until it is taken and stopped. The
/// registry continues after that, so that status and metrics show how the remaining work finishes.
#[derive(Clone)]
pub struct DataPlane(Arc<Mutex<Option<Engine>>>);

impl DataPlane {
    /// The data plane of an engine that runs.
    pub fn new(engine: Engine) -> DataPlane {
        DataPlane(Arc::new(Mutex::new(Some(engine))))
    }

    /// Takes the engine; `None` if it was taken before.
    pub fn take(&self) -> Option<Engine> {
        self.lock().take()
    }

    /// Work of clients since the last call, by prefix; `None` once the engine is taken.
    pub fn take_sources(&self) -> Option<HashMap<SourcePrefix, u64>> {
        self.lock().as_ref().map(Engine::take_sources)
    }

    /// Explains where requests and connections go; `None` once the engine is taken.
    pub fn explainer(&self) -> Option<Explainer> {
        self.lock().as_ref().map(Engine::explainer)
    }

    /// The access log for lines of another level; `None` once the engine is taken.
    pub fn log_lines(&self) -> Option<LogLines> {
        self.lock().as_ref().map(Engine::log_lines)
    }

    /// Duplicates of the listening sockets, for a successor.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub fn listening(&self) -> std::io::Result<Vec<Listening>> {
        self.lock().as_ref().map_or_else(|| Ok(Vec::new()), Engine::listening)
    }

    /// Has the front doors accept, with the clients of a predecessor.
    pub fn begin(&self, given: Vec<UdpHandover>) {
        if let Some(engine) = &*self.lock() {
            engine.begin(given);
        }
    }

    /// Stops accepting in favour of a successor, and returns the clients of UDP front doors.
    pub async fn hand_over(&self) -> Vec<UdpHandover> {
        let given = self.lock().as_ref().map(Engine::hand_over);
        match given {
            Some(given) => given.await,
            None => Vec::new(),
        }
    }

    /// Connections and UDP clients that are being served.
    pub async fn work(&self) -> usize {
        let work = self.lock().as_ref().map(Engine::work);
        match work {
            Some(work) => work.await,
            None => 0,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Engine>> {
        lock(&self.0)
    }
}

impl Publish for DataPlane {
    fn publish(&self, snapshot: Arc<Snapshot>) -> Result<(), BindError> {
        match &*self.lock() {
            Some(engine) => engine.publish(snapshot),
            None => Ok(()),
        }
    }

    fn wake(&self) {
        if let Some(engine) = &*self.lock() {
            engine.wake();
        }
    }
}
