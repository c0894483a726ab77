//! The mark beside the file records the store's revision. It reveals an older copy or a new file in
//! the file's place.
//!
//! The mark is written after each batch, without a sync. A killed process loses nothing. After a
//! power cut the mark may be behind the file, which has no consequence.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::file::beside;
use crate::Revision;

/// Number of decimal digits of the largest revision.
const DIGITS: usize = 20;

/// The highest revision that the store has reported.
#[derive(Debug)]
pub(super) struct Mark {
    path: PathBuf,
    file: Option<File>,
    has_failed: bool,
}

/// Reads the mark beside the store at `path`. `None` if it is missing or unreadable.
pub(super) fn read(path: &Path) -> Option<Revision> {
    let text = std::fs::read_to_string(beside(path, ".mark")).ok()?;
    text.trim().parse().ok().map(Revision)
}

impl Mark {
    /// The mark of the store at `path`.
    pub(super) fn of(path: &Path) -> Mark {
        Mark { path: beside(path, ".mark"), file: None, has_failed: false }
    }

    /// Records the store's revision.
    pub(super) fn note(&mut self, revision: Revision) {
        let noted = self.put(revision);
        if let Err(error) = &noted
            && !self.has_failed
        {
            let path = self.path.display();
            tracing::warn!(%error, "{path} cannot be written: an older copy of the store in its place would not be seen");
        }
        self.has_failed = noted.is_err();
    }

    fn put(&mut self, revision: Revision) -> io::Result<()> {
        if self.file.is_none() {
            let mut options = File::options();
            let opened = options.create(true).truncate(false).write(true).open(&self.path);
            self.file = Some(opened?);
        }
        let Some(file) = &self.file else { return Ok(()) };
        // All texts have the same length and are written at once, so that the mark is never
        // incomplete.
        file.write_all_at(format!("{:0DIGITS$}\n", revision.0).as_bytes(), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_noted_revision_reads_back_and_malformed_text_is_ignored() {
        let folder = equipoise_testkit::Folder::new("mark");
        let path = folder.path("state");
        assert_eq!(read(&path), None);
        let mut mark = Mark::of(&path);
        for revision in [7, u64::MAX, 12] {
            mark.note(Revision(revision));
            assert_eq!(read(&path), Some(Revision(revision)));
        }
        std::fs::write(beside(&path, ".mark"), "12x").unwrap();
        assert_eq!(read(&path), None);
    }
}
