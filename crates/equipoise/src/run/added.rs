//! Backends that operators added to pools through the API.

use std::io;
use std::num::NonZeroU32;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use equipoise_api::OperateError;
use equipoise_api::wire;
use equipoise_api::wire::backends::AddBackend;
use equipoise_basics::{files, lock};
use equipoise_config::Config;
use equipoise_core::Weight;
use equipoise_discovery::HostPort;
use equipoise_handover::AddedBackend;
use equipoise_session::config::{BackendConfig, Concurrency, PoolConfig, SessionConfig};

use crate::run::discovered::place;

/// Largest number of added backends of a process.
const ADDED_MAX: usize = 1000;

/// Largest size of the file with those that outlive the process, in bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The added backends. They last until they are removed, until the file names them, and until the
/// end of the process, unless they are kept; an upgrade passes all on.
#[derive(Debug)]
pub(crate) struct Added {
    all: Mutex<Vec<AddedBackend>>,
    /// Has those that outlive the process.
    file: PathBuf,
    /// Its content, as far as this process knows.
    written: Mutex<Vec<u8>>,
}

/// Longest time for a write of the file.
const WRITTEN_WITHIN: Duration = Duration::from_secs(5);

impl Added {
    /// The backends that an earlier process kept. A file that cannot be used is reported.
    pub(crate) fn kept(config: &Config) -> Added {
        let file = file(config);
        let read = files::read(&file, FILE_BYTES_MAX);
        let kept = read.and_then(|bytes| Ok(serde_json::from_slice(&bytes)?));
        let kept = kept.unwrap_or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                let file = file.display();
                tracing::warn!(
                    "{file} with the added backends cannot be used: {error}; add them again"
                );
            }
            Vec::new()
        });
        Added::inherited(kept, config)
    }

    /// Those of a predecessor, without those that this configuration has no place for.
    pub(crate) fn inherited(added: Vec<AddedBackend>, config: &Config) -> Added {
        // The process that passes them on has written them.
        let written = Mutex::new(kept_of(&added));
        let added = Added { all: Mutex::new(added), file: file(config), written };
        added.follow(config);
        added
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.all).is_empty()
    }

    /// Writes the backends that outlive the process, if they have changed.
    ///
    /// # Errors
    /// The file cannot be written, or not within [`WRITTEN_WITHIN`].
    pub(crate) async fn save(&self) -> io::Result<()> {
        let bytes = kept_of(&lock(&self.all));
        if *lock(&self.written) == bytes {
            return Ok(());
        }
        let (file, content) = (self.file.clone(), bytes.clone());
        let write = tokio::task::spawn_blocking(move || {
            if let Some(folder) = file.parent() {
                std::fs::DirBuilder::new().recursive(true).mode(0o750).create(folder)?;
            }
            files::replace(&file, &content, 0o600)
        });
        tokio::time::timeout(WRITTEN_WITHIN, write).await???;
        *lock(&self.written) = bytes;
        Ok(())
    }

    /// All, for a successor.
    pub(crate) fn all(&self) -> Vec<AddedBackend> {
        lock(&self.all).clone()
    }

    /// `config` with the added backends. A backend of the file has precedence.
    pub(crate) fn join(&self, mut config: SessionConfig) -> SessionConfig {
        for added in &*lock(&self.all) {
            let Some(backend) = backend(added) else { continue };
            let mut pools = config.pools.iter_mut();
            if let Some(pool) = pools.find(|pool| *pool.name == *added.pool)
                && !names(pool, &backend)
            {
                pool.backends.push(backend);
            }
        }
        config
    }

    /// Forgets the backends that this configuration names, and those of pools that are gone or get
    /// their backends otherwise.
    pub(crate) fn follow(&self, config: &Config) {
        lock(&self.all).retain(|added| {
            let pool = config.session.pools.iter().find(|pool| *pool.name == *added.pool);
            let has_place = |pool: &PoolConfig| {
                backend(added).is_some_and(|backend| !names(pool, &backend))
                    && other_source(config, &added.pool).is_none()
            };
            pool.is_some_and(has_place)
        });
    }

    /// Adds a backend, in the place of the one with its name. Returns the one that was replaced.
    pub(crate) fn put(&self, new: AddedBackend) -> Result<Option<AddedBackend>, OperateError> {
        let mut all = lock(&self.all);
        let is_same = |it: &&mut AddedBackend| it.pool == new.pool && it.name == new.name;
        if let Some(there) = all.iter_mut().find(is_same) {
            return Ok(Some(std::mem::replace(there, new)));
        }
        if all.len() >= ADDED_MAX {
            return Err(OperateError::Conflict(format!(
                "{ADDED_MAX} backends have been added already: name them in the configuration file"
            )));
        }
        all.push(new);
        Ok(None)
    }

    /// Forgets a backend.
    pub(crate) fn take(&self, pool: &str, name: &str) {
        lock(&self.all).retain(|it| it.pool != pool || it.name != name);
    }

    /// Forgets a backend that is leaving. `false` if it is not, for example because it was added
    /// again.
    pub(crate) fn take_leaving(&self, pool: &str, name: &str) -> bool {
        let mut all = lock(&self.all);
        let before = all.len();
        all.retain(|it| !it.is_leaving || it.pool != pool || it.name != name);
        all.len() < before
    }

    /// Marks a backend as leaving. `false` if it was not added.
    pub(crate) fn leave(&self, pool: &str, name: &str) -> bool {
        let mut all = lock(&self.all);
        let found = all.iter_mut().find(|it| it.pool == pool && it.name == name);
        found.map(|it| it.is_leaving = true).is_some()
    }

    /// Pool and name of each backend that is leaving.
    pub(crate) fn leaving(&self) -> Vec<(String, String)> {
        let all = lock(&self.all);
        let leaving = all.iter().filter(|it| it.is_leaving);
        leaving.map(|it| (it.pool.clone(), it.name.clone())).collect()
    }

    /// The origin of a backend, for its status.
    pub(crate) fn origin(&self, pool: &str, name: &str) -> Option<wire::Added> {
        let all = lock(&self.all);
        let found = all.iter().find(|it| it.pool == pool && it.name == name)?;
        Some(if found.is_leaving { wire::Added::Removing } else { wire::Added::Added })
    }
}

/// The content of the file.
fn kept_of(all: &[AddedBackend]) -> Vec<u8> {
    let kept: Vec<_> = all.iter().filter(|it| it.keep && !it.is_leaving).collect();
    serde_json::to_vec(&kept).expect("names and numbers have a JSON form")
}

fn file(config: &Config) -> PathBuf {
    config.state_folder().join("added.json")
}

/// Whether the pool has a backend with the name or the address of this one.
fn names(pool: &PoolConfig, backend: &BackendConfig) -> bool {
    pool.backends.iter().any(|it| it.name == backend.name || it.address == backend.address)
}

/// The reason why operators cannot add backends to this pool.
fn other_source(config: &Config, pool: &str) -> Option<String> {
    let planning = &config.planning;
    if config.discovery.iter().any(|source| *source.pool == *pool) {
        return Some(format!(
            "the backends of pool `{pool}` come from its source (option `discover`): add and remove them there"
        ));
    }
    if planning.elastic.contains_key(pool) || planning.awaited.contains(pool) {
        return Some(format!(
            "pool `{pool}` is elastic, and gets its backends from its driver: `equipoise plan pin {pool} N` sets their number"
        ));
    }
    let modes = config.session.front_doors.iter().filter_map(|door| door.dispatch.as_ref());
    let mut peers = modes.map(|mode| &mode.peers);
    peers.any(|peers| **peers == *pool).then(|| {
        format!("the backends of pool `{pool}` are the peers of this node: the cluster knows them")
    })
}

/// The session level's form; `None` if the address is wrong.
fn backend(added: &AddedBackend) -> Option<BackendConfig> {
    let (address, place) = place(&added.address.parse().ok()?);
    Some(BackendConfig {
        name: added.name.as_str().into(),
        address,
        place,
        weight: Weight::new(added.weight).ok()?,
        backup: added.backup,
        concurrency: added.concurrency.and_then(NonZeroU32::new).map(Concurrency::Fixed),
    })
}

/// Checks a backend that an operator wants in a pool. `there` are the pool's backends: name,
/// address, and whether it was added.
///
/// # Errors
/// The configuration has no place for it.
pub(super) fn checked(
    config: &Config,
    (pool, name): (&str, &str),
    wish: AddBackend,
    there: &[(String, String, bool)],
) -> Result<AddedBackend, OperateError> {
    if let Some(other) = other_source(config, pool) {
        return Err(OperateError::Conflict(other));
    }
    let AddBackend { address, weight, backup, concurrency, keep } = wish;
    if name.parse::<HostPort>().is_err() {
        equipoise_config::name(name).map_err(|error| {
            OperateError::Refused(format!("the backend's name: {error}; or an address"))
        })?;
    }
    let address = address.unwrap_or_else(|| name.to_owned());
    let address: HostPort =
        address.parse().map_err(|error| OperateError::Refused(format!("address {error}")))?;
    let address = address.to_string();
    for (other, at, is_added) in there {
        if other == name && !is_added {
            return Err(OperateError::Conflict(format!(
                "the configuration file has backend `{name}`: change its address there, and reload; PATCH changes its \
                 weight and concurrency"
            )));
        }
        if *at == address && other != name {
            return Err(OperateError::Conflict(format!(
                "backend `{other}` of pool `{pool}` has the address {address}; accepted: each address once"
            )));
        }
    }
    let (pool, name, is_leaving) = (pool.to_owned(), name.to_owned(), false);
    Ok(AddedBackend { pool, name, address, weight, backup, concurrency, keep, is_leaving })
}
