use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::DriverOptions;

/// What a scaler made, as it must outlive this process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Of this layout; [`Record::VERSION`].
    pub version: u32,
    /// The pool.
    pub pool: String,
    /// The number of the next backend's name. Never goes back, so that no name comes twice.
    pub next_number: u64,
    /// The driver that adds, by its number.
    #[serde(default)]
    pub maker: u32,
    /// The drivers whose backends these are: who made one takes it away. `None`: what it made died with its process.
    #[serde(default)]
    pub drivers: BTreeMap<u32, Option<DriverOptions>>,
    /// What there is, or may be.
    pub backends: Vec<Recorded>,
}

/// One backend of a [`Record`]. Fields that earlier versions wrote are not used: the age, and the backend that it replaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// Its name.
    pub name: String,
    /// Its size.
    pub size: Option<String>,
    /// Under which it was asked for.
    pub key: String,
    /// How far it was.
    pub state: RecordedState,
    /// Where it serves.
    pub address: Option<SocketAddr>,
    /// What the driver calls it.
    pub id: Option<String>,
    /// The number of the driver that made it or is to make it.
    #[serde(default)]
    pub maker: u32,
}

/// How far a recorded backend was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordedState {
    /// The driver was or will be asked for it.
    Adding,
    /// It served.
    Ready,
    /// It was to leave when it has nothing left.
    Draining,
    /// The driver was or will be asked to take it away.
    Leaving,
}

impl Record {
    /// The layout that this version writes; it reads those before, too, which know one driver.
    pub const VERSION: u32 = 2;

    /// Of a pool that has nothing yet.
    pub fn empty(pool: &str) -> Record {
        Record {
            version: Record::VERSION,
            pool: pool.to_string(),
            next_number: 1,
            maker: 0,
            drivers: BTreeMap::new(),
            backends: Vec::new(),
        }
    }
}

/// Where a record is kept. It is asked before a backend is made, and after each change.
#[async_trait]
pub trait RecordKeeper: Send + Sync + 'static {
    /// Keeps the record durably, in the place of the one before.
    ///
    /// # Errors
    /// Why not, in words. Nothing is added until it works.
    async fn keep(&self, record: &Record) -> Result<(), String>;
}

/// A record in a JSON file that is replaced as a whole, and its copy beside it (`FILE.copy`): both are written before
/// anything is done that they say, so that whichever can be read is enough.
#[derive(Clone, Debug)]
pub struct RecordFile {
    pub(super) path: PathBuf,
    /// What is to be set aside before anything is written: all that says what was made.
    damaged: Arc<Mutex<Option<PathBuf>>>,
}

/// A record that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file system says no.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is no record.
    #[error(
        "{path} does not hold the record of an elastic pool. If it cannot be repaired, remove the backends that it \
         names by hand and delete it and {path}.copy"
    )]
    Content {
        /// The file.
        path: PathBuf,
        /// Where and why.
        #[source]
        source: serde_json::Error,
    },
    /// It is damaged and stays where it is.
    #[error(
        "{path} is damaged, and cannot be set aside and begun anew; its folder must be writable"
    )]
    SetAside {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another version's.
    #[error("{path} has layout {found}; this version reads up to {}", Record::VERSION)]
    Version {
        /// The file.
        path: PathBuf,
        /// Its layout.
        found: u32,
    },
}

impl RecordFile {
    /// At a path; its folder must exist.
    pub fn new(path: impl Into<PathBuf>) -> RecordFile {
        RecordFile { path: path.into(), damaged: Arc::default() }
    }

    /// What the file holds; `None` if there is no file.
    ///
    /// # Errors
    /// [`RecordError`] if there is one that cannot be understood: to go on without it would leak what it names.
    pub fn load(&self) -> Result<Option<Record>, RecordError> {
        let path = || self.path.clone();
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(RecordError::Read { path: path(), source }),
        };
        let record: Record = serde_json::from_slice(&bytes)
            .map_err(|source| RecordError::Content { path: path(), source })?;
        if !(1..=Record::VERSION).contains(&record.version) {
            return Err(RecordError::Version { path: path(), found: record.version });
        }
        Ok(Some(record))
    }

    pub(super) fn damaged(&self) -> MutexGuard<'_, Option<PathBuf>> {
        self.damaged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file whose name is this one's and some more.
    pub(super) fn beside(&self, more: &str) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(more);
        PathBuf::from(name)
    }
}

#[async_trait]
impl RecordKeeper for RecordFile {
    async fn keep(&self, record: &Record) -> Result<(), String> {
        let bytes = serde_json::to_vec_pretty(record).map_err(|error| error.to_string())?;
        let (file, record, copy) = (self.clone(), record.clone(), self.beside(".copy"));
        let write = move || {
            let mut damaged = file.damaged();
            if let Some(left) = &*damaged {
                file.set_aside(Some(left), &record)
                    .map_err(|error| format!("cannot set {} aside: {error}", left.display()))?;
            }
            *damaged = None;
            for path in [&copy, &file.path] {
                replace(path, &bytes)
                    .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
            }
            Ok(())
        };
        tokio::task::spawn_blocking(write).await.map_err(|error| error.to_string())?
    }
}

/// The new content or the old one, whatever happens.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::rename(written_beside(path, bytes)?, path)?;
    sync_folder(path)
}

/// Where the new content is, durably, before it takes the place of the old one.
pub(super) fn written_beside(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    // It may have the token of a service.
    let mut options = File::options();
    let mut file = options.create(true).truncate(true).write(true).mode(0o600).open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(beside)
}

pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_kept_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = RecordFile::new(folder.path().join("web.json"));
        assert_eq!(file.load().unwrap(), None);
        let mut record = Record::empty("web");
        let webhook = crate::WebhookOptions {
            token: Some(crate::Token::new("secret")),
            ..crate::WebhookOptions::default()
        };
        let made = [DriverOptions::Exec(Default::default()), DriverOptions::Webhook(webhook)];
        record.drivers = (1..).zip(made.map(Some)).chain([(0, None)]).collect();
        for number in 1..4 {
            record.next_number = number;
            file.keep(&record).await.unwrap();
            assert_eq!(file.load().unwrap().as_ref(), Some(&record));
        }
        let mode = fs::metadata(&file.path).unwrap().permissions();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
    }

    #[test]
    fn a_record_of_the_version_before_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.json");
        let one = r#"{"name": "web-e1", "size": null, "key": "k", "state": "adding", "address": null, "id": null,
                      "ready_unix_ms": null}"#;
        let text =
            format!(r#"{{"version": 1, "pool": "web", "next_number": 2, "backends": [{one}]}}"#);
        fs::write(&path, text).unwrap();
        let record = RecordFile::new(&path).load().unwrap().unwrap();
        assert_eq!((record.maker, record.drivers.len(), record.backends[0].maker), (0, 0, 0));
    }

    #[tokio::test]
    async fn a_broken_record_is_refused_and_not_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.json");
        let file = RecordFile::new(&path);
        let rows = [
            ("{\"version\": 1, \"pool\"", "remove the backends that it names by hand"),
            ("{\"version\": 3, \"pool\": \"w\", \"next_number\": 1, \"backends\": []}", "layout 3"),
        ];
        for (content, expected) in rows {
            fs::write(&path, content).unwrap();
            let found = file.load().unwrap_err().to_string();
            assert!(found.contains(expected), "{found}");
        }
        let nowhere = RecordFile::new(folder.path().join("none/web.json"));
        let refused = nowhere.keep(&Record::empty("web")).await.unwrap_err();
        assert!(refused.contains("none/web.json"), "{refused}");
    }
}
