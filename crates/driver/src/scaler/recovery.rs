//! A record that is damaged: its copy, or else a new one whose names come after those that may be in use.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::record::{Record, RecordError, RecordFile, replace, sync_folder, written_beside};

/// What there was of a record.
#[derive(Debug)]
pub struct Opened {
    /// What to go on with; `None` if there is neither a file nor its copy.
    pub record: Option<Record>,
    /// That it was damaged, and what was done about it.
    pub damage: Option<Damage>,
}

/// A record that was damaged, or missing beside its copy.
#[derive(Debug)]
pub struct Damage {
    /// Where the damaged file is now; `None` if there was none, or nothing could be written.
    pub set_aside: Option<PathBuf>,
    /// What is wrong with it.
    pub why: String,
    /// Whether its copy was whole, which says the same. If not, nothing is known of what was made.
    pub has_copy: bool,
    /// Why the files are still as they were. What is there is set aside before anything else is kept.
    pub unwritten: Option<RecordError>,
}

/// Damaged files of one record that are kept; later ones take the place of the last.
const SET_ASIDE_MAX: u32 = 10;
/// No backend has a number as large: what says so is damaged.
const NUMBER_MAX: u64 = 1 << 52;

impl RecordFile {
    /// What the file holds. One that is damaged is set aside (`FILE.bad`), and has the content of its copy from now on, as
    /// has one that is missing; if that cannot be read either, it is a record of nothing, whose next backend has a number
    /// that none has had. Where nothing can be written it is the same, and [`Damage::unwritten`] says why.
    ///
    /// # Errors
    /// [`RecordError::Version`] if it is of a later version, or its copy is, which would be needed.
    pub fn open(&self, pool: &str) -> Result<Opened, RecordError> {
        *self.damaged() = None;
        let loaded = self.load();
        let is_missing = matches!(loaded, Ok(None));
        let (why, unread) = match loaded {
            Ok(Some(record)) => return Ok(Opened { record: Some(record), damage: None }),
            Ok(None) => ("missing".to_string(), None),
            Err(RecordError::Content { source, .. }) => (source.to_string(), None),
            Err(RecordError::Read { path, source }) => {
                (source.to_string(), Some(RecordError::Read { path, source }))
            }
            Err(error) => return Err(error),
        };
        let copy = RecordFile::new(self.beside(".copy"));
        let known = match copy.load() {
            Ok(None) if is_missing => return Ok(Opened { record: None, damage: None }),
            Err(error @ RecordError::Version { .. }) => return Err(error),
            copy => copy.ok().flatten().filter(|record| record.pool == pool),
        };
        let has_copy = known.is_some();
        let left = match (is_missing, has_copy) {
            (false, _) => Some(self.path.clone()),
            (true, false) => Some(copy.path.clone()),
            (true, true) => None,
        };
        let record = known.unwrap_or_else(|| self.begun_anew(&copy, pool));
        let written = match unread.filter(|_| !has_copy) {
            // It may be whole, and be read the next time.
            Some(unread) => Err(unread),
            None => self
                .set_aside(left.as_deref(), &record)
                .map_err(|source| RecordError::SetAside { path: self.path.clone(), source }),
        };
        let (set_aside, unwritten) = match written {
            Ok(set_aside) => (set_aside, None),
            Err(error) => {
                *self.damaged() = left;
                (None, Some(error))
            }
        };
        let damage = Damage { set_aside, why, has_copy, unwritten };
        Ok(Opened { record: Some(record), damage: Some(damage) })
    }

    /// Writes the record once what is left has another name. There is a whole file at each moment, the damaged one or the
    /// new one; and what fails leaves nothing behind, as it is tried again and again.
    pub(super) fn set_aside(
        &self,
        left: Option<&Path>,
        record: &Record,
    ) -> io::Result<Option<PathBuf>> {
        let bytes = serde_json::to_vec_pretty(record)?;
        let Some(left) = left else { return replace(&self.path, &bytes).map(|()| None) };
        let new = written_beside(&self.path, &bytes)?;
        let numbered = |number: u32| match number {
            0 => self.beside(".bad"),
            number => self.beside(&format!(".bad.{number}")),
        };
        let is_free = |path: &PathBuf| fs::symlink_metadata(path).is_err();
        let free = (0..SET_ASIDE_MAX).map(numbered).find(is_free);
        let path = free.unwrap_or_else(|| numbered(SET_ASIDE_MAX - 1));
        if !is_free(&path) {
            fs::remove_file(&path)?;
        }
        // Not every file system has links.
        let linked = fs::hard_link(left, &path).or_else(|_| fs::copy(left, &path).map(drop));
        let renamed = linked.and_then(|()| fs::rename(&new, &self.path));
        renamed.inspect_err(|_| drop(fs::remove_file(&path)))?;
        sync_folder(&self.path).map(|()| Some(path))
    }

    fn begun_anew(&self, copy: &RecordFile, pool: &str) -> Record {
        let left = [self, copy].map(|file| fs::read(&file.path).unwrap_or_default());
        // Where none is left that was to be the next: there are fewer backends than minutes since 1970.
        let minutes = || {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            since.as_secs() / 60
        };
        let next = left.iter().flat_map(|bytes| numbers_after(bytes, "\"next_number\": ", ','));
        let names = format!("\"{pool}-e");
        let named = left.iter().flat_map(|bytes| numbers_after(bytes, &names, '"'));
        let after_named = named.max().map_or(0, |number| number + 1);
        let next_number = next.max().unwrap_or_else(minutes).max(after_named);
        Record { next_number, ..Record::empty(pool) }
    }
}

/// The numbers that are left between some words and a sign; without the sign, digits may be missing.
fn numbers_after(bytes: &[u8], words: &str, sign: char) -> Vec<u64> {
    let text = String::from_utf8_lossy(bytes);
    let number = |rest: &str| {
        let (digits, _) = rest.split_once(sign)?;
        digits.parse().ok().filter(|number| *number < NUMBER_MAX)
    };
    text.split(words).skip(1).filter_map(number).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::record::{RecordKeeper, Recorded, RecordedState};
    use super::*;

    fn record() -> Record {
        let backend = Recorded {
            name: "web-e7".into(),
            size: None,
            key: "k".into(),
            state: RecordedState::Ready,
            address: Some(([192, 0, 2, 7], 80).into()),
            id: Some("vm-7".into()),
            maker: 0,
        };
        Record { next_number: 9, backends: vec![backend], ..Record::empty("web") }
    }

    async fn kept(folder: &Path) -> RecordFile {
        let file = RecordFile::new(folder.join("web.json"));
        file.keep(&record()).await.unwrap();
        file
    }

    #[tokio::test]
    async fn a_damaged_record_is_set_aside_and_its_copy_gone_on_with() {
        let folder = tempfile::tempdir().unwrap();
        let file = kept(folder.path()).await;
        for bad in ["web.json.bad", "web.json.bad.1"] {
            fs::write(&file.path, b"{ \"version\"").unwrap();
            let opened = file.open("web").unwrap();
            assert_eq!(opened.record, Some(record()));
            let damage = opened.damage.unwrap();
            assert!(damage.has_copy && damage.unwritten.is_none());
            assert_eq!(damage.set_aside, Some(folder.path().join(bad)));
            assert_eq!(fs::read(folder.path().join(bad)).unwrap(), b"{ \"version\"");
            assert_eq!(file.load().unwrap(), Some(record()), "it is whole again");
        }
        let whole = file.open("web").unwrap();
        assert!(whole.record == Some(record()) && whole.damage.is_none());
        let none = RecordFile::new(folder.path().join("none.json")).open("web").unwrap();
        assert!(none.record.is_none() && none.damage.is_none());
    }

    #[tokio::test]
    async fn a_record_that_is_missing_is_its_copy() {
        let folder = tempfile::tempdir().unwrap();
        let file = kept(folder.path()).await;
        fs::remove_file(&file.path).unwrap();
        let opened = file.open("web").unwrap();
        assert_eq!(opened.record, Some(record()));
        let damage = opened.damage.unwrap();
        assert_eq!((damage.why.as_str(), damage.has_copy), ("missing", true));
        assert!(damage.set_aside.is_none() && damage.unwritten.is_none());
        assert_eq!(file.load().unwrap(), Some(record()), "it is there again");

        // Nor is a copy overwritten that cannot be read.
        fs::remove_file(&file.path).unwrap();
        fs::write(file.beside(".copy"), "{").unwrap();
        let damage = file.open("web").unwrap().damage.unwrap();
        assert_eq!((damage.has_copy, damage.set_aside), (false, Some(file.beside(".bad"))));
        assert_eq!(fs::read(file.beside(".bad")).unwrap(), b"{");
    }

    #[tokio::test]
    async fn where_nothing_can_be_written_the_copy_is_gone_by_and_the_damaged_file_stays() {
        for has_copy in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let file = kept(folder.path()).await;
            fs::write(&file.path, "{").unwrap();
            if !has_copy {
                fs::remove_file(file.beside(".copy")).unwrap();
            }
            // Root writes to folders that are read-only, too.
            fs::create_dir(file.beside(".new")).unwrap();
            let mut opened = file.open("web").unwrap();
            for _ in 0..3 {
                opened = file.open("web").unwrap();
                assert!(file.keep(&record()).await.is_err());
            }
            let damage = opened.damage.unwrap();
            assert!(matches!(damage.unwritten, Some(RecordError::SetAside { .. })));
            assert_eq!((damage.has_copy, damage.set_aside), (has_copy, None));
            assert_eq!(opened.record == Some(record()), has_copy);
            assert_eq!(fs::read(&file.path).unwrap(), b"{");
            assert!(!file.beside(".bad").exists(), "no try leaves a name behind");

            fs::remove_dir(file.beside(".new")).unwrap();
            for _ in 0..2 {
                file.keep(&record()).await.unwrap();
            }
            assert_eq!(file.load().unwrap(), Some(record()));
            assert_eq!(fs::read(file.beside(".bad")).unwrap(), b"{", "set aside before");
            assert!(!file.beside(".bad.1").exists());
        }
    }

    #[tokio::test]
    async fn of_a_record_that_cannot_be_read_the_copy_is_gone_by() {
        let folder = tempfile::tempdir().unwrap();
        let file = kept(folder.path()).await;
        fs::remove_file(&file.path).unwrap();
        fs::create_dir(&file.path).unwrap();
        let opened = file.open("web").unwrap();
        assert_eq!(opened.record, Some(record()));
        assert!(opened.damage.unwrap().has_copy && !file.beside(".bad").exists());

        fs::remove_file(file.beside(".copy")).unwrap();
        let damage = file.open("web").unwrap().damage.unwrap();
        assert!(matches!(damage.unwritten, Some(RecordError::Read { .. })), "{damage:?}");
    }

    #[tokio::test]
    async fn without_a_whole_copy_no_name_comes_twice() {
        let folder = tempfile::tempdir().unwrap();
        let file = kept(folder.path()).await;
        let whole = fs::read(&file.path).unwrap();
        let copy = file.beside(".copy");
        let end = whole.len();
        let at = |words: &[u8]| whole.windows(words.len()).position(|it| it == words).unwrap();
        let (named, in_number) = (at(b"\"web-e7\""), at(b"9,") + 1);
        for (file_left, copy_left, next) in [
            (&whole[..end - 1], &b""[..], Some(9)),
            (&b""[..], &whole[..end / 2], Some(9)),
            // A name that is left says nothing of later ones, and a digit nothing of those that followed.
            (&whole[named..], &b"\0\0"[..], None),
            (&whole[..in_number], &b""[..], None),
            (&[0; 64], &[0; 64], None),
        ] {
            fs::write(&file.path, file_left).unwrap();
            fs::write(&copy, copy_left).unwrap();
            let opened = file.open("web").unwrap();
            assert!(!opened.damage.unwrap().has_copy);
            let found = opened.record.unwrap();
            let is_expected =
                next.map_or(found.next_number > 20_000_000, |it| found.next_number == it);
            assert!(is_expected, "{} {}", found.next_number, String::from_utf8_lossy(file_left));
            assert_eq!(found, Record { next_number: found.next_number, ..Record::empty("web") });
        }
    }

    #[tokio::test]
    async fn what_a_later_version_wrote_or_another_pool_is_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = kept(folder.path()).await;
        let later = r#"{"version": 3, "pool": "web", "next_number": 1, "backends": []}"#;
        fs::write(&file.path, later).unwrap();
        assert!(matches!(file.open("web"), Err(RecordError::Version { found: 3, .. })));
        assert_eq!(fs::read_to_string(&file.path).unwrap(), later);
        for left in [Some(""), None] {
            fs::write(file.beside(".copy"), later).unwrap();
            match left {
                Some(left) => fs::write(&file.path, left).unwrap(),
                None => fs::remove_file(&file.path).unwrap(),
            }
            assert!(matches!(file.open("web"), Err(RecordError::Version { found: 3, .. })));
        }
        file.keep(&record()).await.unwrap();
        fs::write(&file.path, "").unwrap();
        let opened = file.open("other").unwrap();
        assert!(!opened.damage.unwrap().has_copy, "the copy is of pool web");
    }
}
