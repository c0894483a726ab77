//! The file: created atomically, verified before it is opened, and written one batch at a time.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use equipoise_basics::files;
use redb::backends::InMemoryBackend;
use redb::{
    Database, DatabaseError, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition,
};

use super::mark::Mark;
use super::open_error::OpenError;
use super::row;
use super::state::{Staged, Stamp};
use crate::{Entry, Revision};

/// Version of the file's tables and rows. A version of equipoise that changes them increments it.
pub(super) const FORMAT: u64 = 1;
const ENTRIES: TableDefinition<&str, &[u8]> = TableDefinition::new("entries");
const NUMBERS: TableDefinition<&str, u64> = TableDefinition::new("numbers");
/// Time of the last write, seconds since 1970. Versions that do not know the row leave it
/// unchanged.
const WRITTEN: &str = "written_unix_s";
/// redb's cache, bytes. It only serves the pages that a write changes, because the state is in
/// memory.
const CACHE_BYTES: usize = 4 << 20;

/// Contents of an undamaged file.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) stamp: Stamp,
    /// Time of the last write; `None` if the file's version does not record it.
    pub(super) written: Option<SystemTime>,
    pub(super) entries: Vec<Entry>,
}

/// Appends a suffix to the file name of `path`.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(suffix);
    name.into()
}

pub(super) fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OpenError {
    move |source| OpenError::Io { doing, path: path.to_path_buf(), source }
}

/// Locks a file beside the store for the life of the result. redb's own lock would be too late: it
/// is taken when the file is opened for writing, after we have read it.
pub(super) fn lock(path: &Path) -> Result<Lock, OpenError> {
    let lock = beside(path, ".lock");
    let mut options = File::options();
    let opened = options.create(true).truncate(false).write(true).open(&lock);
    let file = opened.map_err(io_error("open", &lock))?;
    match file.try_lock() {
        Ok(()) => Ok(Lock(file)),
        Err(fs::TryLockError::WouldBlock) => Err(OpenError::InUse(path.to_path_buf())),
        Err(fs::TryLockError::Error(source)) => Err(io_error("lock", &lock)(source)),
    }
}

/// Unlocks when dropped. Closing the file is not enough: a child process between fork and exec has
/// a copy of the descriptor, and with it the lock.
#[derive(Debug)]
pub(super) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// Creates an empty store in a temporary file and renames it, so that an incomplete file is never
/// visible.
pub(super) fn create(path: &Path) -> Result<(), OpenError> {
    let new = beside(path, ".new");
    let empty = Content { stamp: Stamp::default(), written: None, entries: Vec::new() };
    make(&new, &empty)?;
    move_into_place(&new, path)
}

/// Creates a file with this content, replacing an existing one.
pub(super) fn make(new: &Path, content: &Content) -> Result<(), OpenError> {
    match fs::remove_file(new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(io_error("remove", new)(error));
        }
        _ => {}
    }
    let database = builder().create(new).map_err(|error| match io_kind(&error) {
        Some(kind) => io_error("make", new)(kind.into()),
        None => io_error("make", new)(io::Error::other(error)),
    })?;
    fill(&database, content).map_err(|error| io_error("write", new)(io::Error::other(error)))
}

/// Writes all rows.
fn fill(database: &Database, content: &Content) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut entries = transaction.open_table(ENTRIES)?;
        for entry in &content.entries {
            entries.insert(entry.key.as_str(), row::encode(entry).as_slice())?;
        }
        let mut numbers = transaction.open_table(NUMBERS)?;
        numbers.insert("format", FORMAT)?;
        numbers.insert("revision", content.stamp.revision.0)?;
        numbers.insert("digest", content.stamp.digest)?;
        if let Some(written) = content.written {
            numbers.insert(WRITTEN, unix_s(written))?;
        }
    }
    Ok(transaction.commit()?)
}

/// Writes the rows of an empty store.
#[cfg(test)]
pub(super) fn set_up(database: &Database) -> Result<(), redb::Error> {
    fill(database, &Content { stamp: Stamp::default(), written: None, entries: Vec::new() })
}

fn unix_s(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

pub(super) fn move_into_place(from: &Path, to: &Path) -> Result<(), OpenError> {
    files::move_into_place(from, to).map_err(io_error("make", to))
}

/// Reads and verifies the file without changing it.
///
/// redb repairs a file on opening and discards damaged parts. Therefore it opens a copy in memory.
/// Verified are redb's page checksums and the sum of the entries' digests.
pub(super) fn inspect(path: &Path) -> Result<Content, OpenError> {
    let bytes = fs::read(path).map_err(io_error("read", path))?;
    let damaged =
        |what: String| OpenError::Damaged { path: path.to_path_buf(), what, backup: None };
    if bytes.is_empty() {
        return Err(damaged("it is empty".to_string()));
    }
    match inspect_bytes(&bytes) {
        Ok((format, _)) if format > FORMAT => {
            Err(OpenError::Newer { path: path.to_path_buf(), format })
        }
        Ok((_, content)) => Ok(content),
        Err(what) => Err(damaged(what)),
    }
}

/// Returns the format and content of a file's bytes, or a description of the damage.
pub(super) fn inspect_bytes(bytes: &[u8]) -> Result<(u64, Content), String> {
    // redb trusts some of its input: a damaged file may make it panic.
    let read = std::panic::catch_unwind(|| read_copy(bytes));
    read.unwrap_or_else(|_| Err("its structure is broken".to_string()))
}

fn read_copy(bytes: &[u8]) -> Result<(u64, Content), String> {
    let memory = InMemoryBackend::new();
    let copied = memory.set_len(bytes.len() as u64).and_then(|()| memory.write(0, bytes));
    copied.map_err(|error| error.to_string())?;
    let mut database = builder().create_with_backend(memory).map_err(|error| error.to_string())?;
    if !database.check_integrity().map_err(|error| error.to_string())? {
        return Err("its checksums are wrong".to_string());
    }
    read(&database)
}

fn read(database: &Database) -> Result<(u64, Content), String> {
    let text = |error: redb::Error| error.to_string();
    let (format, stamp, written) = read_numbers(database).map_err(text)?;
    if format > FORMAT {
        return Ok((format, Content { stamp, written, entries: Vec::new() }));
    }
    let mut entries = Vec::new();
    let transaction = database.begin_read().map_err(|error| text(error.into()))?;
    let table = transaction.open_table(ENTRIES).map_err(|error| text(error.into()))?;
    for row in table.iter().map_err(|error| text(error.into()))? {
        let (key, row) = row.map_err(|error| text(error.into()))?;
        let entry = row::decode(key.value(), row.value());
        entries.push(entry.ok_or_else(|| format!("the row of {:?} is broken", key.value()))?);
    }
    let sum = entries.iter().map(row::digest).fold(0, u64::wrapping_add);
    if sum != stamp.digest {
        return Err("its entries are not those that were written".to_string());
    }
    Ok((format, Content { stamp, written, entries }))
}

type Numbers = (u64, Stamp, Option<SystemTime>);

fn read_numbers(database: &Database) -> Result<Numbers, redb::Error> {
    let numbers = database.begin_read()?.open_table(NUMBERS)?;
    let number = |name: &str| -> Result<u64, redb::Error> {
        let found = numbers.get(name)?.map(|number| number.value());
        found.ok_or_else(|| redb::Error::Corrupted(format!("it has no {name}")))
    };
    let stamp = Stamp { revision: Revision(number("revision")?), digest: number("digest")? };
    let written = numbers.get(WRITTEN)?.map(|at| Duration::from_secs(at.value()));
    let written = written.and_then(|at| UNIX_EPOCH.checked_add(at));
    Ok((number("format")?, stamp, written))
}

fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

/// Storage of the database: a file, or a failing disk in tests.
pub(super) trait Medium: std::fmt::Debug + Send + 'static {
    /// Opens the database.
    fn open(&self, builder: redb::Builder) -> Result<Database, DatabaseError>;
    /// Returns the name for messages.
    fn name(&self) -> String;
}

impl Medium for PathBuf {
    fn open(&self, builder: redb::Builder) -> Result<Database, DatabaseError> {
        builder.open(self)
    }

    fn name(&self) -> String {
        self.display().to_string()
    }
}

/// The file of a running store. After a failed write, redb is unusable until the file is opened
/// again.
#[derive(Debug)]
pub(super) struct Ledger {
    medium: Box<dyn Medium>,
    database: Option<Database>,
    /// The failed write, which the file may have.
    unsure: Option<Staged>,
    /// Mark of the file's revision.
    mark: Option<Mark>,
}

impl Ledger {
    pub(super) fn new(medium: impl Medium) -> Result<Ledger, redb::Error> {
        let database = medium.open(builder())?;
        let (unsure, mark) = (None, None);
        Ok(Ledger { medium: Box::new(medium), database: Some(database), unsure, mark })
    }

    /// Records the file's revision in `mark` from now on.
    pub(super) fn marked(self, mark: Mark) -> Ledger {
        Ledger { mark: Some(mark), ..self }
    }

    /// Skips to a later revision than the file's.
    pub(super) fn skip_to(&mut self, stamp: Stamp) -> Result<(), redb::Error> {
        let Some(database) = &self.database else { return Err(redb::Error::PreviousIo) };
        let mut transaction = database.begin_write()?;
        transaction.set_two_phase_commit(true);
        transaction.open_table(NUMBERS)?.insert("revision", stamp.revision.0)?;
        transaction.commit()?;
        self.note(stamp.revision);
        Ok(())
    }

    fn note(&mut self, revision: Revision) {
        if let Some(mark) = &mut self.mark {
            mark.note(revision);
        }
    }

    pub(super) fn name(&self) -> String {
        self.medium.name()
    }

    /// Whether [`Ledger::recover`] must precede the next write.
    pub(super) fn is_failed(&self) -> bool {
        self.database.is_none()
    }

    /// Opens the file again after a failed write. Returns that write if the file has it.
    pub(super) fn recover(&mut self, known: Stamp) -> Result<Option<Staged>, redb::Error> {
        let database = self.medium.open(builder())?;
        let (_, found, _) = read_numbers(&database)?;
        let written = self.unsure.as_ref().is_some_and(|unsure| unsure.stamp() == found);
        if !written && found != known {
            let what = "it is not the file that was written: somebody replaced it";
            return Err(redb::Error::Corrupted(what.to_string()));
        }
        self.database = Some(database);
        self.note(found.revision);
        Ok(self.unsure.take().filter(|_| written))
    }

    /// Writes a batch and waits until it is on disk.
    pub(super) fn write(&mut self, staged: &Staged) -> Result<(), redb::Error> {
        let Some(database) = &self.database else { return Err(redb::Error::PreviousIo) };
        let written = write(database, staged);
        match written {
            Ok(()) => self.note(staged.stamp().revision),
            Err(_) => {
                self.database = None;
                self.unsure = Some(staged.clone());
            }
        }
        written
    }
}

fn write(database: &Database, staged: &Staged) -> Result<(), redb::Error> {
    let mut transaction = database.begin_write()?;
    // Two-phase commit: the new root becomes valid with a second sync. With a single sync, a
    // damaged root looks like an interrupted write, and redb would silently revert to the state
    // before the last acknowledged write.
    transaction.set_two_phase_commit(true);
    {
        let mut entries = transaction.open_table(ENTRIES)?;
        for (key, entry) in staged.writes() {
            match entry {
                Some(entry) => entries.insert(key.as_str(), row::encode(entry).as_slice())?,
                None => entries.remove(key.as_str())?,
            };
        }
        let mut numbers = transaction.open_table(NUMBERS)?;
        numbers.insert("revision", staged.stamp().revision.0)?;
        numbers.insert("digest", staged.stamp().digest)?;
        numbers.insert(WRITTEN, unix_s(SystemTime::now()))?;
    }
    Ok(transaction.commit()?)
}

fn io_kind(error: &DatabaseError) -> Option<io::ErrorKind> {
    match error {
        DatabaseError::Storage(redb::StorageError::Io(error)) => Some(error.kind()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_still_has_the_lock_file_does_not_keep_the_lock() {
        let path = std::env::temp_dir().join(format!("equipoise-lock-{}", std::process::id()));
        let first = lock(&path).unwrap();
        assert!(matches!(lock(&path), Err(OpenError::InUse(_))));
        // Simulates a fork, which duplicates the descriptor.
        let child = first.0.try_clone().unwrap();
        drop(first);
        let second = lock(&path);
        drop(child);
        fs::remove_file(beside(&path, ".lock")).unwrap();
        assert!(second.is_ok(), "{second:?}");
    }
}
