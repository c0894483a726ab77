//! Replaces the text of a configuration file, and keeps the earlier text beside it.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use super::{FileKind, files};

/// A text that was replaced.
#[derive(Debug)]
pub struct Replacement {
    file: PathBuf,
    text: String,
    earlier: Option<String>,
}

/// An error with the path that could not be written.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} cannot be written: {source}; the process replaces the file in its folder: give its user \
     the folder, and with systemd add `ReadWritePaths={}`",
    .path.display(), .path.parent().unwrap_or(.path).display()
)]
pub(crate) struct WriteError {
    path: PathBuf,
    source: io::Error,
}

/// Replaces the text of `file`, which keeps its mode, and its owner if this process may give files
/// away. A crash leaves the old text or the new one.
pub(super) fn replace(file: &Path, text: &str) -> Result<Replacement, WriteError> {
    let failed = |source| WriteError { path: file.to_owned(), source };
    // The file that a symbolic link names, not the link.
    let file = file.canonicalize().map_err(failed)?;
    let old = files::read(&file, FileKind::Config).map_err(failed)?;
    let earlier = earlier(&file).map_err(failed)?;
    let replaced = Replacement { file: file.clone(), text: old, earlier };
    write(&earlier_name(&file), &replaced.text, &file)?;
    write(&file, text, &file)?;
    Ok(replaced)
}

/// The text of `file` before its last replacement.
pub(super) fn earlier(file: &Path) -> io::Result<Option<String>> {
    let name = earlier_name(&file.canonicalize()?);
    match files::read(&name, FileKind::Config) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl Replacement {
    /// Restores the file and its earlier text.
    pub(super) fn take_back(self) -> Result<(), WriteError> {
        let Replacement { file, text, earlier } = self;
        write(&file, &text, &file)?;
        let name = earlier_name(&file);
        match earlier {
            Some(earlier) => write(&name, &earlier, &file),
            None => fs::remove_file(&name).map_err(|source| WriteError { path: name, source }),
        }
    }
}

fn earlier_name(file: &Path) -> PathBuf {
    with_suffix(file, ".earlier")
}

fn with_suffix(file: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(file);
    name.push(suffix);
    name.into()
}

/// Writes a file completely or not at all, with the mode and owner of `like`.
fn write(path: &Path, text: &str, like: &Path) -> Result<(), WriteError> {
    let new = with_suffix(path, ".new");
    let written = write_new(&new, text, like).and_then(|()| fs::rename(&new, path));
    written.map_err(|source| {
        // It may not exist.
        let _ = fs::remove_file(&new);
        WriteError { path: path.to_owned(), source }
    })?;
    // Without this, a loss of power may bring the old text back; the process has the new one.
    let folder = path.parent().map(File::open);
    if let Some(Ok(folder)) = folder {
        let _ = folder.sync_all();
    }
    Ok(())
}

fn write_new(new: &Path, text: &str, like: &Path) -> io::Result<()> {
    let like = fs::metadata(like)?;
    // A crash may have left one.
    match fs::remove_file(new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(new)?;
    file.write_all(text.as_bytes())?;
    // Only root may give files away. The owner comes first: a change of it clears mode bits.
    let _ = fchown(&file, Some(like.uid()), Some(like.gid()));
    file.set_permissions(like.permissions())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use equipoise_testkit::Folder;

    use super::*;

    fn read(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn a_replaced_file_keeps_its_mode_its_link_and_its_earlier_text() {
        let folder = Folder::new("replace");
        let (file, link) = (folder.path("a.toml"), folder.path("link.toml"));
        fs::write(&file, "one").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        symlink(&file, &link).unwrap();
        assert_eq!(earlier(&link).unwrap(), None);
        replace(&link, "two").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!((read(&file), earlier(&link).unwrap()), ("two".into(), Some("one".into())));
        for name in ["a.toml", "a.toml.earlier"] {
            assert_eq!(fs::metadata(folder.path(name)).unwrap().mode() & 0o777, 0o640, "{name}");
        }
        let replaced = replace(&link, "three").unwrap();
        assert_eq!(earlier(&file).unwrap(), Some("two".into()));
        replaced.take_back().unwrap();
        assert_eq!((read(&file), earlier(&file).unwrap()), ("two".into(), Some("one".into())));
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 3, "nothing is left");
    }

    #[test]
    fn the_first_replacement_taken_back_leaves_no_earlier_text() {
        let folder = Folder::new("take-back");
        let file = folder.path("a.toml");
        fs::write(&file, "one").unwrap();
        replace(&file, "two").unwrap().take_back().unwrap();
        assert_eq!((read(&file), earlier(&file).unwrap()), ("one".into(), None));
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named_with_the_remedy_and_the_text_stays() {
        let folder = Folder::new("unwritable");
        let file = folder.path("a.toml");
        fs::write(&file, "one").unwrap();
        // Also for root, a folder cannot be replaced by a file.
        fs::create_dir(folder.path("a.toml.earlier.new")).unwrap();
        let error = replace(&file, "two").unwrap_err().to_string();
        assert!(error.contains("a.toml.earlier cannot be written"), "{error}");
        assert!(error.contains("ReadWritePaths="), "{error}");
        assert_eq!(read(&file), "one");
    }
}
