//! The registry in a file.

use std::cmp::Reverse;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

use equipoise_pog::{KeyHash, Seed, SipHash13};
use thiserror::Error;

use super::{Flow, HEADER_BYTES, Registry, bytes_for};
use crate::memory::Area;

/// First word of the file; the last byte is the version.
const MAGIC: u64 = u64::from_ne_bytes(*b"eqpFLOW1");
/// The file tells which flows there are: for its owner and group alone.
const MODE: u32 = 0o640;
const SEED_OFFSET: usize = 8;
const FLOWS_OFFSET: usize = 16;
pub(super) const INTERVAL_OFFSET: usize = 24;

/// The registry cannot be opened.
#[derive(Debug, Error)]
#[error(
    "the flow registry {} of {bytes} bytes cannot be mapped: give a path on a tmpfs with that much room, or lower \
     [flows] max", path.display()
)]
pub struct RegistryError {
    /// Which file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: usize,
    /// Error of the system call.
    #[source]
    pub source: io::Error,
}

impl Registry {
    /// Opens a registry for `flows` flows in a file (best on tmpfs, because it is written
    /// continuously). Keeps the file's contents if they were written with the same `fleet_seed`,
    /// whatever the capacity; otherwise the registry is empty.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn open(path: &Path, flows: u32, fleet_seed: Seed) -> Result<Registry, RegistryError> {
        let bytes = bytes_for(flows);
        let failed = |source| RegistryError { path: path.to_path_buf(), bytes, source };
        match Registry::existing(path, fleet_seed).map_err(failed)? {
            Some(existing) if existing.flows_max == flows => Ok(existing),
            existing => Registry::created(path, flows, fleet_seed, existing).map_err(failed),
        }
    }

    /// Opens the registry of an earlier process; `None` if there is no usable one.
    fn existing(path: &Path, fleet_seed: Seed) -> io::Result<Option<Registry>> {
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        file.set_permissions(Permissions::from_mode(MODE))?;
        let bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        if bytes < HEADER_BYTES {
            return Ok(None);
        }
        let area = Area::map(&file, bytes)?;
        let word = |offset| area.words(offset, 1)[0].load(Relaxed);
        let flows = word(FLOWS_OFFSET) as u32;
        let is_ours = word(0) == MAGIC && word(SEED_OFFSET) == check_of(fleet_seed);
        if !is_ours || flows == 0 || bytes != bytes_for(flows) {
            return Ok(None);
        }
        let mut registry = Registry::over(Arc::new(area), flows);
        registry.repair();
        Ok(Some(registry))
    }

    /// A new file in the place of the old, with the flows of `existing` that fit.
    fn created(
        path: &Path,
        flows: u32,
        fleet_seed: Seed,
        existing: Option<Registry>,
    ) -> io::Result<Registry> {
        let mut fresh = path.as_os_str().to_owned();
        fresh.push(".new");
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true).mode(MODE);
        let file = options.open(&fresh)?;
        // One that was there keeps its mode otherwise.
        file.set_permissions(Permissions::from_mode(MODE))?;
        file.set_len(bytes_for(flows) as u64)?;
        let area = Area::map(&file, bytes_for(flows))?;
        let put = |offset, word| area.words(offset, 1)[0].store(word, Release);
        put(SEED_OFFSET, check_of(fleet_seed));
        put(FLOWS_OFFSET, u64::from(flows));
        put(INTERVAL_OFFSET, existing.as_ref().map_or(0, |old| old.interval().load(Relaxed)));
        put(0, MAGIC);
        let mut registry = Registry::over(Arc::new(area), flows);
        // First what operators registered. Of the others, first those with evidence, and of these
        // those that the rings would move.
        let mut flows: Vec<Flow> = existing.iter().flat_map(Registry::iter).collect();
        flows.sort_unstable_by_key(|it| Reverse((it.registered, it.evidence, it.pinned)));
        for flow in flows {
            registry.left_out += usize::from(registry.set(flow).is_err());
        }
        std::fs::rename(&fresh, path)?;
        Ok(registry)
    }
}

/// Tells one fleet's digests from another's, and does not give the secret away.
fn check_of(seed: Seed) -> u64 {
    SipHash13::with_seed(seed).hash("equipoise flow registry")
}
