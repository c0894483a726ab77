//! Copies of the store's file, for recovery from damage.
//!
//! `PATH.backup` is the newest copy; `PATH.backup.1` and higher are a day apart. A copy is made
//! from memory, so that damage of the file is not copied. It is written to a temporary file and
//! renamed after a sync, so that a copy is always complete.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::OpenError;
use super::file::{Content, beside, inspect, io_error, make, move_into_place};
use super::state::{Stamp, State};
use crate::Revision;

/// Number of copies besides the newest.
const OLDER: u32 = 3;
/// Age difference of these copies.
const APART: Duration = Duration::from_secs(24 * 3600);

fn place(path: &Path, number: u32) -> PathBuf {
    match number {
        0 => beside(path, ".backup"),
        _ => beside(path, &format!(".backup.{number}")),
    }
}

/// A copy that can replace the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Path of the copy.
    pub path: PathBuf,
    /// Revision of the store in the copy.
    pub revision: Revision,
    /// Time of the copy; `None` if its version does not record it.
    pub made: Option<SystemTime>,
}

/// Returns the newest undamaged copy.
pub(super) fn newest(path: &Path) -> Option<Copied> {
    let whole = |number| {
        let path = place(path, number);
        let content = inspect(&path).ok()?;
        Some(Copied { path, revision: content.stamp.revision, made: content.written })
    };
    (0..=OLDER).find_map(whole)
}

/// Makes the newest copy. Keeps the previous one as an older copy if the latest older copy is a day
/// old.
pub(super) fn write(path: &Path, content: &Content) -> Result<(), OpenError> {
    let new = beside(path, ".backup.new");
    make(&new, content)?;
    let mode = fs::metadata(path).map(|of| of.permissions());
    mode.and_then(|mode| fs::set_permissions(&new, mode)).map_err(io_error("make", &new))?;
    keep_older(path).map_err(io_error("keep", &place(path, 1)))?;
    move_into_place(&new, &place(path, 0))
}

fn keep_older(path: &Path) -> io::Result<()> {
    let Some(newest) = age_of(&place(path, 0))? else { return Ok(()) };
    if let Some(older) = age_of(&place(path, 1))?
        && newest.duration_since(older).unwrap_or_default() < APART
    {
        return Ok(());
    }
    for number in (1..OLDER).rev() {
        match fs::rename(place(path, number), place(path, number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    // A hard link, which stays when the newest copy is replaced.
    fs::hard_link(place(path, 0), place(path, 1))
}

fn age_of(path: &Path) -> io::Result<Option<SystemTime>> {
    match fs::metadata(path) {
        Ok(of) => of.modified().map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Intervals of copies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rhythm {
    /// Maximum interval if anything has changed. The first intervals are shorter, starting with a
    /// sixtieth, because a new cluster changes a lot.
    pub(super) every: Duration,
    /// Number of revisions after which a copy is made earlier, but not before a sixtieth of
    /// `every`.
    pub(super) revisions: u64,
}

/// Makes copies of a store while it runs.
#[derive(Debug)]
pub(super) struct Backups {
    path: PathBuf,
    rhythm: Rhythm,
    copied: Revision,
    at: Instant,
    /// Current interval.
    wait: Duration,
    making: Option<JoinHandle<Result<(), OpenError>>>,
    has_failed: bool,
}

impl Backups {
    /// Starts after a copy of the content at revision `copied`.
    pub(super) fn new(path: PathBuf, rhythm: Rhythm, copied: Revision) -> Backups {
        let (at, wait) = (Instant::now(), rhythm.every / 60);
        Backups { path, rhythm, copied, at, wait, making: None, has_failed: false }
    }

    /// Returns when the next copy is due, for a store at stamp `now`. `None` without changes, and
    /// while a copy is being [made](Backups::ended).
    pub(super) fn due(&self, now: Stamp) -> Option<Instant> {
        if self.making.is_some() {
            return None;
        }
        let changes = now.revision.0.saturating_sub(self.copied.0);
        let wait = match changes {
            0 => return None,
            many if many >= self.rhythm.revisions => self.rhythm.every / 60,
            _ => self.wait,
        };
        Some(self.at + wait)
    }

    /// Starts a copy if one is due.
    pub(super) fn turn(&mut self, state: &std::sync::RwLock<State>) {
        let content = {
            let state = state.read().unwrap_or_else(std::sync::PoisonError::into_inner);
            let is_due = self.due(state.stamp()).is_some_and(|due| due <= Instant::now());
            if !is_due {
                return;
            }
            let (stamp, written) = (state.stamp(), Some(SystemTime::now()));
            Content { stamp, written, entries: state.entries().cloned().collect() }
        };
        // Also after a failure, the next attempt waits for the interval.
        self.begins(content.stamp.revision);
        let path = self.path.clone();
        self.making = Some(tokio::task::spawn_blocking(move || write(&path, &content)));
    }

    fn begins(&mut self, revision: Revision) {
        (self.copied, self.at) = (revision, Instant::now());
        self.wait = (2 * self.wait).min(self.rhythm.every);
    }

    /// Waits for the current copy, if there is one.
    pub(super) async fn end(&mut self) {
        if self.making.is_some() {
            self.ended().await;
        }
    }

    /// Waits until the current copy is finished, and logs a failure. Never resolves while there is
    /// no copy. Cancel-safe.
    pub(super) async fn ended(&mut self) {
        let Some(making) = &mut self.making else { return std::future::pending().await };
        let ended = making.await;
        self.making = None;
        let problem = match ended {
            Ok(made) => made.err().map(|error| with_cause(&error)),
            Err(error) => Some(error.to_string()),
        };
        match &problem {
            Some(problem) if !self.has_failed => {
                tracing::warn!("the store could not be copied: {problem}; the older copies stay");
            }
            None if self.has_failed => tracing::info!("the store is copied again"),
            _ => {}
        }
        self.has_failed = problem.is_some();
    }
}

fn with_cause(error: &OpenError) -> String {
    let cause = std::error::Error::source(error);
    cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Revision;

    fn content(revision: u64) -> Content {
        let stamp = Stamp { revision: Revision(revision), digest: 0 };
        Content { stamp, written: Some(SystemTime::now()), entries: Vec::new() }
    }

    fn kept(path: &Path) -> Vec<Option<u64>> {
        let revision = |number| Some(inspect(&place(path, number)).ok()?.stamp.revision.0);
        (0..=OLDER + 1).map(revision).collect()
    }

    #[test]
    fn older_copies_are_a_day_apart_and_few() {
        let folder = equipoise_testkit::Folder::new("copies");
        let path = folder.path("state");
        make(&path, &content(0)).unwrap();
        let mut day = SystemTime::now();
        for revision in 1..=12 {
            write(&path, &content(revision)).unwrap();
            // Three copies a day.
            day += APART / 3 + Duration::from_secs(1);
            let newest = fs::File::options().write(true).open(place(&path, 0)).unwrap();
            newest.set_modified(day).unwrap();
        }
        assert_eq!(kept(&path), [Some(12), Some(10), Some(7), Some(4), None]);
        // The folder has only the store and its copies.
        assert_eq!(fs::read_dir(folder.root()).unwrap().count(), 5);
    }

    #[test]
    fn the_first_copies_come_sooner() {
        let rhythm = Rhythm { every: Duration::from_secs(3600), revisions: 10_000 };
        let mut backups = Backups::new(PathBuf::from("store"), rhythm, Revision(1));
        let stamp = |revision| Stamp { revision: Revision(revision), ..Stamp::default() };
        assert_eq!(backups.due(stamp(1)), None, "nothing has changed");
        let mut waits = Vec::new();
        for revision in 2..10 {
            waits.push((backups.due(stamp(revision)).unwrap() - backups.at).as_secs());
            backups.begins(Revision(revision));
        }
        assert_eq!(waits, [60, 120, 240, 480, 960, 1920, 3600, 3600]);
    }

    #[test]
    fn a_copy_that_is_damaged_is_passed_over() {
        let folder = equipoise_testkit::Folder::new("copies-damaged");
        let path = folder.path("state");
        make(&path, &content(0)).unwrap();
        write(&path, &content(1)).unwrap();
        write(&path, &content(2)).unwrap();
        assert_eq!(newest(&path).unwrap().revision, Revision(2));
        fs::write(place(&path, 0), b"noise").unwrap();
        let found = newest(&path).unwrap();
        assert_eq!((found.revision, found.path), (Revision(1), place(&path, 1)));
        fs::remove_file(place(&path, 1)).unwrap();
        assert_eq!(newest(&path), None);
    }
}
