//! A record that is damaged: its copy, or else a new one whose names come after those that may be in use.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use super::record::{Record, RecordError, RecordFile, replace};

/// What there was of a record.
#[derive(Debug)]
pub struct Opened {
    /// What to go on with; `None` if there is no file.
    pub record: Option<Record>,
    /// That it was damaged, and what was done about it.
    pub damage: Option<Damage>,
}

/// A record that was damaged.
#[derive(Debug)]
pub struct Damage {
    /// Where the damaged file is now.
    pub set_aside: PathBuf,
    /// What is wrong with it.
    pub why: String,
    /// Whether its copy was whole, which says the same. If not, nothing is known of what was made.
    pub has_copy: bool,
}

/// Damaged files of one record that are kept; later ones take the place of the last.
const SET_ASIDE_MAX: u32 = 10;
/// No backend has a number as large: what says so is damaged.
const NUMBER_MAX: u64 = 1 << 53;

impl RecordFile {
    /// What the file holds. One that is damaged is set aside (`FILE.bad`), and has the content of its copy from now on; if
    /// that cannot be read either, it is a record of nothing, whose next backend has a number that none has had.
    ///
    /// # Errors
    /// [`RecordError`] if it cannot be read or is of a later version, or is damaged and nothing can be written.
    pub fn open(&self, pool: &str) -> Result<Opened, RecordError> {
        let why = match self.load() {
            Ok(record) => return Ok(Opened { record, damage: None }),
            Err(RecordError::Content { source, .. }) => source.to_string(),
            Err(error) => return Err(error),
        };
        let copy = RecordFile::new(self.beside(".copy"));
        let known = copy.load().ok().flatten().filter(|record| record.pool == pool);
        let has_copy = known.is_some();
        let record = known.unwrap_or_else(|| self.begun_anew(&copy, pool));
        let set_aside = self.set_aside(&record);
        let set_aside = set_aside
            .map_err(|source| RecordError::SetAside { path: self.path.clone(), source })?;
        Ok(Opened { record: Some(record), damage: Some(Damage { set_aside, why, has_copy }) })
    }

    /// There is a whole file at each moment, the damaged one or the new one.
    fn set_aside(&self, record: &Record) -> io::Result<PathBuf> {
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
        fs::hard_link(&self.path, &path).or_else(|_| fs::copy(&self.path, &path).map(drop))?;
        replace(&self.path, &serde_json::to_vec_pretty(record)?)?;
        Ok(path)
    }

    fn begun_anew(&self, copy: &RecordFile, pool: &str) -> Record {
        let left = [self, copy].map(|file| fs::read(&file.path).unwrap_or_default());
        let free = left.iter().filter_map(|bytes| free_number(bytes, pool)).max();
        // Where nothing is left of the numbers: there are fewer backends than minutes since 1970.
        let minutes = || {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            since.as_secs() / 60
        };
        Record { next_number: free.unwrap_or_else(minutes), ..Record::empty(pool) }
    }
}

/// A number above all that are left of a record's names, and no less than that for the next one.
fn free_number(bytes: &[u8], pool: &str) -> Option<u64> {
    let text = String::from_utf8_lossy(bytes);
    let numbers_after = |words: &str| -> Vec<u64> {
        let after = text.split(words).skip(1);
        let number = |rest: &str| {
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            rest[..end].parse().ok().filter(|number| *number < NUMBER_MAX)
        };
        after.filter_map(number).collect()
    };
    let names = numbers_after(&format!("\"{pool}-e")).into_iter().map(|number| number + 1);
    names.chain(numbers_after("\"next_number\": ")).max()
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
            ready_unix_ms: None,
            maker: 0,
            replaces: None,
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
            assert_eq!((damage.has_copy, damage.set_aside), (true, folder.path().join(bad)));
            assert_eq!(fs::read(folder.path().join(bad)).unwrap(), b"{ \"version\"");
            assert_eq!(file.load().unwrap(), Some(record()), "it is whole again");
        }
        let whole = file.open("web").unwrap();
        assert!(whole.record == Some(record()) && whole.damage.is_none());
        let none = RecordFile::new(folder.path().join("none.json")).open("web").unwrap();
        assert!(none.record.is_none() && none.damage.is_none());
    }

    #[tokio::test]
    async fn without_a_whole_copy_no_name_comes_twice() {
        let folder = tempfile::tempdir().unwrap();
        let file = kept(folder.path()).await;
        let whole = fs::read(&file.path).unwrap();
        let copy = file.beside(".copy");
        let end = whole.len();
        let named = whole.windows(8).position(|at| at == b"\"web-e7\"").unwrap();
        for (file_left, copy_left, next) in [
            (&whole[..end - 1], &b""[..], 9),
            (&b""[..], &whole[..end / 2], 9),
            (&whole[named..], &b"\0\0"[..], 8),
        ] {
            fs::write(&file.path, file_left).unwrap();
            fs::write(&copy, copy_left).unwrap();
            let opened = file.open("web").unwrap();
            assert!(!opened.damage.unwrap().has_copy);
            let expected = Record { next_number: next, ..Record::empty("web") };
            assert_eq!(opened.record, Some(expected), "{}", String::from_utf8_lossy(file_left));
        }
        fs::write(&file.path, [0; 64]).unwrap();
        fs::write(&copy, [0; 64]).unwrap();
        let record = file.open("web").unwrap().record.unwrap();
        assert!(record.next_number > 20_000_000, "{}", record.next_number);
    }

    #[tokio::test]
    async fn what_a_later_version_wrote_or_another_pool_is_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = kept(folder.path()).await;
        let later = r#"{"version": 3, "pool": "web", "next_number": 1, "backends": []}"#;
        fs::write(&file.path, later).unwrap();
        assert!(matches!(file.open("web"), Err(RecordError::Version { found: 3, .. })));
        assert_eq!(fs::read_to_string(&file.path).unwrap(), later);
        fs::write(&file.path, "").unwrap();
        let opened = file.open("other").unwrap();
        assert!(!opened.damage.unwrap().has_copy, "the copy is of pool web");
    }
}
