//! What this machine goes on with after a restart: the rosters that it used last, and the drivers that its file has named.
//!
//! The roster in the store is what counts. This copy bridges the time until a leader says it, and it is what is left where
//! the store was put back from an older copy, made anew, or cannot be read.

mod records;
mod writer;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use equipoise_driver::DriverOptions;
use serde::{Deserialize, Serialize};

pub(super) use self::writer::Writer;
use super::rosters::Rosters;

/// Drivers of pools, by pool and by the names that rosters have for them.
pub(super) type Drivers = BTreeMap<String, BTreeMap<String, DriverOptions>>;

/// The content of the file. Fields of later versions are ignored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Saved {
    /// Without what changes by itself.
    pub(super) rosters: Rosters,
    /// A roster has only their names: they may have secrets, such as a service's token.
    #[serde(default)]
    pub(super) drivers: Drivers,
}

/// Larger ones are not read.
const BYTES_MAX: u64 = 64 << 20;

/// The file, in the folder of an instance.
pub(super) fn place(folder: &Path) -> PathBuf {
    folder.join("elastic.json")
}

/// The content of the file, or what records of earlier versions say of the backends of `own`, this member. A file that is
/// damaged is set aside.
pub(super) fn load(folder: &Path, own: &str) -> Saved {
    let path = place(folder);
    let read = match equipoise_files::read(&path, BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return import(folder, own),
        read => read,
    };
    let parsed =
        read.map_err(anyhow::Error::from).and_then(|bytes| Ok(serde_json::from_slice(&bytes)?));
    parsed.unwrap_or_else(|error| {
        let aside = path.with_extension("json.bad");
        let done = match fs::rename(&path, &aside) {
            Ok(()) => format!("set aside as {}", aside.display()),
            Err(error) => format!("left where it is ({error})"),
        };
        tracing::error!(
            "{} cannot be used ({error:#}) and is {done}: elastic pools go on by the roster in the store. Backends that \
             the file names and `equipoise plan` does not show are yours to remove",
            path.display()
        );
        Saved::default()
    })
}

/// Goes over from the records of earlier versions, which are removed when what they say is saved.
fn import(folder: &Path, own: &str) -> Saved {
    let (saved, files) = records::read(folder, own);
    if !files.is_empty() {
        match save(folder, &saved) {
            Ok(()) => {
                tracing::info!(?files, "records of an earlier version are taken over");
                files.iter().for_each(|file| drop(fs::remove_file(file)));
            }
            Err(error) => tracing::warn!("records of an earlier version stay: {error:#}"),
        }
    }
    saved
}

/// Puts new content in the place of the old, durably.
pub(super) fn save(folder: &Path, saved: &Saved) -> anyhow::Result<()> {
    let path = place(folder);
    replace(folder, &path, saved).with_context(|| format!("cannot write {}", path.display()))
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
    fn what_is_saved_is_read_again_by_its_owner_alone() {
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
