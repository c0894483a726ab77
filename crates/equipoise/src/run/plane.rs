use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use equipoise_core::SourcePrefix;
use equipoise_session::registry::Publish;
use equipoise_session::{BindError, Engine, LogLines, Snapshot};

/// The data plane, which the registry publishes to until it is taken away to be stopped. The
/// registry goes on after that, so that status and metrics show how the rest is finished.
#[derive(Clone)]
pub(crate) struct DataPlane(Arc<Mutex<Option<Engine>>>);

impl DataPlane {
    pub(crate) fn new(engine: Engine) -> DataPlane {
        DataPlane(Arc::new(Mutex::new(Some(engine))))
    }

    /// The engine, the first time.
    pub(crate) fn take(&self) -> Option<Engine> {
        self.lock().take()
    }

    /// The work since the last time by the clients' prefixes, until the engine is taken.
    pub(crate) fn take_sources(&self) -> Option<HashMap<SourcePrefix, u64>> {
        self.lock().as_ref().map(Engine::take_sources)
    }

    /// The access log, for lines of another level, until the engine is taken.
    pub(crate) fn log_lines(&self) -> Option<LogLines> {
        self.lock().as_ref().map(Engine::log_lines)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Engine>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
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
