//! State that survives a restart of this machine: the rosters that it used last, and the drivers
//! that its file named.
//!
//! The roster in the store is authoritative. This copy bridges the time until a leader sends it. It
//! is also the last resort if the store is restored from an older copy, created anew or unreadable.

mod records;
mod writer;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use equipoise_basics::with_causes;
use equipoise_driver::DriverOptions;
use serde::{Deserialize, Serialize};

pub(crate) use self::writer::Writer;
use crate::rosters::Rosters;

/// Drivers of pools, by pool and by the name that rosters use for them.
pub(crate) type Drivers = BTreeMap<String, BTreeMap<String, DriverOptions>>;

/// The content of the file. Fields of later versions are ignored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Saved {
    /// Rosters without fields that change by themselves.
    pub(crate) rosters: Rosters,
    /// The drivers. A roster has only their names, because drivers may contain secrets such as a
    /// token.
    #[serde(default)]
    pub(crate) drivers: Drivers,
}

/// The file cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {path}")]
pub(crate) struct CannotSave {
    path: PathBuf,
    source: io::Error,
}

/// Largest size of the file, in bytes.
const BYTES_MAX: u64 = 64 << 20;

/// The path of the file in an instance's folder.
pub(crate) fn place(folder: &Path) -> PathBuf {
    folder.join("elastic.json")
}

/// Reads the file. Without it, imports the records of earlier versions for `own`, this member. A
/// damaged file is renamed and kept.
pub(crate) fn load(folder: &Path, own: &str) -> Saved {
    let path = place(folder);
    let read = match equipoise_basics::files::read(&path, BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return import(folder, own),
        read => read,
    };
    let parsed = read.and_then(|bytes| Ok(serde_json::from_slice::<Saved>(&bytes)?));
    parsed.unwrap_or_else(|error| {
        let aside = path.with_extension("json.bad");
        let done = match fs::rename(&path, &aside) {
            Ok(()) => format!("set aside as {}", aside.display()),
            Err(error) => format!("left where it is ({error})"),
        };
        tracing::error!(
            "{} cannot be used ({error}) and is {done}: elastic pools follow the roster in the store. Remove backends \
             that the file names and `equipoise plan` does not show",
            path.display()
        );
        Saved::default()
    })
}

/// Imports the records of earlier versions, and removes them once the new file is saved.
fn import(folder: &Path, own: &str) -> Saved {
    let (saved, files) = records::read(folder, own);
    if !files.is_empty() {
        match save(folder, &saved) {
            Ok(()) => {
                tracing::info!(?files, "imported the records of an earlier version");
                files.iter().for_each(|file| drop(fs::remove_file(file)));
            }
            Err(error) => tracing::warn!(
                "kept the records of an earlier version, which could not be imported: {}",
                with_causes(&error)
            ),
        }
    }
    saved
}

/// Replaces the content of the file durably.
pub(crate) fn save(folder: &Path, saved: &Saved) -> Result<(), CannotSave> {
    let path = place(folder);
    replace(folder, &path, saved).map_err(|source| CannotSave { path, source })
}

fn replace(folder: &Path, path: &Path, saved: &Saved) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o750).create(folder)?;
    let new = path.with_extension("json.new");
    let mut options = File::options();
    let mut file = options.create(true).truncate(true).write(true).mode(0o600).open(&new)?;
    file.write_all(&serde_json::to_vec_pretty(saved)?)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use equipoise_controller::Roster;
    use equipoise_testkit::Folder;

    use super::*;

    fn saved() -> Saved {
        let roster = Roster { next_number: 7, ..Roster::default() };
        let driver = DriverOptions::Webhook(Default::default());
        let drivers = [(driver.fingerprint().expect("it has a name"), driver)].into();
        Saved {
            rosters: [("web".to_string(), roster)].into(),
            drivers: [("web".to_string(), drivers)].into(),
        }
    }

    #[test]
    fn saved_state_reads_back_equal_and_has_mode_0600() {
        let scratch = Folder::new("saved");
        let folder = scratch.path("new");
        assert_eq!(load(&folder, "a"), Saved::default());
        for _ in 0..2 {
            save(&folder, &saved()).expect("the folder is ours");
            assert_eq!(load(&folder, "a"), saved());
        }
        let mode = fs::metadata(place(&folder)).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_file_is_set_aside_and_one_of_a_later_version_is_read() {
        let scratch = Folder::new("saved");
        let folder = &scratch.path("state");
        fs::create_dir(folder).expect("the folder is ours");
        let path = place(folder);
        for content in ["", "{\"rosters\": {\"web\"", "[]"] {
            fs::write(&path, content).expect("the folder is ours");
            assert_eq!(load(folder, "a"), Saved::default());
            let aside = fs::read_to_string(folder.join("elastic.json.bad"));
            assert_eq!(aside.expect("it is there"), content);
            assert!(!path.exists());
        }
        let mut later = serde_json::to_value(saved()).expect("it is JSON");
        later["surprise"] = 1.into();
        fs::write(&path, later.to_string()).expect("the folder is ours");
        assert_eq!(load(folder, "a"), saved());
    }
}
