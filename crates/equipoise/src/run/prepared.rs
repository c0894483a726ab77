//! Configurations that reloads have read, and which are not in force yet.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use equipoise_basics::lock;
use equipoise_config::{Config, Loaded};

/// A configuration that a reload has read.
pub(crate) struct Prepared {
    /// The reload's number, in the order in which reading began.
    pub(super) number: u64,
    pub(super) outcome: Result<Loaded, Vec<String>>,
    /// `None`: the file has errors.
    pub(super) learnt: Option<Learnt>,
}

/// The configurations of all reloads between reading and the switch. The addresses that they have
/// learnt are kept, whatever else changes during that time.
#[derive(Clone, Default)]
pub(super) struct Preparing(Arc<Mutex<BTreeMap<u64, Arc<Config>>>>);

/// A place in [`Preparing`], which ends when this is dropped.
pub(super) struct Learnt {
    preparing: Preparing,
    number: u64,
}

impl Preparing {
    /// Adds the configuration of the reload with this number.
    pub(super) fn begin(&self, number: u64, config: &Config) -> Learnt {
        lock(&self.0).insert(number, Arc::new(config.clone()));
        Learnt { preparing: self.clone(), number }
    }

    pub(super) fn configs(&self) -> Vec<Arc<Config>> {
        lock(&self.0).values().cloned().collect()
    }
}

impl Drop for Learnt {
    fn drop(&mut self) {
        lock(&self.preparing.0).remove(&self.number);
    }
}
