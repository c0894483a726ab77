//! Replaces the text of a configuration file, and keeps the previous text beside it.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use equipoise_basics::files;

use super::FileKind;

/// A replacement, which is taken back when this is dropped, unless it was kept.
pub struct Replacement {
    undo: Option<Undo>,
    /// The lock of the file. It outlives a write that ends after its deadline.
    _lock: Box<dyn Send>,
}

/// The conditions of a replacement.
#[derive(Clone, Debug, Default)]
pub struct Basis {
    /// The text that the caller has seen; `None`: any.
    pub seen: Option<String>,
    /// The new text is the previous one, and must still be it.
    pub restores: bool,
}

#[derive(Debug)]
struct Undo {
    file: PathBuf,
    /// The file's new content.
    new: Vec<u8>,
    /// Its content before; `None`: there was no file.
    old: Option<(Vec<u8>, Metadata)>,
    /// The content of the previous file before.
    previous: Option<Vec<u8>>,
}

/// Reasons why a file was not replaced, or a replacement not taken back.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplaceError {
    #[error("it was changed during the replacement, and keeps that change; its text before is in {}", .0.display())]
    ChangedAgain(PathBuf),
    #[error("{} cannot be read: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} cannot be written: {source}{}", path.display(), remedy(path, source))]
    Write { path: PathBuf, source: io::Error },
}

/// Replaces the text of `file`, with its permissions. Follows symbolic links. A crash leaves the
/// old text or the new one. Writes nothing if the text is the same. `None`: the file, or its
/// previous text, is not as `basis` says.
pub(super) fn replace(
    file: &Path,
    text: &str,
    basis: &Basis,
    lock: Box<dyn Send>,
) -> Result<Option<Replacement>, ReplaceError> {
    let file = resolved(file)?;
    let old = read(&file)?;
    let content = old.as_ref().map(|(content, _)| &content[..]);
    if basis.seen.as_ref().is_some_and(|seen| content != Some(seen.as_bytes())) {
        return Ok(None);
    }
    let previous = read(&previous_name(&file))?.map(|(content, _)| content);
    if basis.restores && previous.as_deref() != Some(text.as_bytes()) {
        return Ok(None);
    }
    if content == Some(text.as_bytes()) {
        return Ok(Some(Replacement { undo: None, _lock: lock }));
    }
    let undo = Undo { file, new: text.into(), old, previous };
    let written = undo.put_new();
    if written.is_err() {
        // The file has its text still. The first error is the one to report.
        let _ = undo.put_previous();
    }
    written.map(|()| Some(Replacement { undo: Some(undo), _lock: lock }))
}

/// The text of `file` before its last replacement.
pub(super) fn previous(file: &Path) -> Result<Option<String>, ReplaceError> {
    let path = previous_name(&resolved(file)?);
    match files::read_text(&path, FileKind::Config.bytes_max()) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ReplaceError::Read { path, source }),
    }
}

impl Replacement {
    /// Makes the replacement permanent.
    pub fn keep(mut self) {
        self.undo = None;
    }

    /// Restores the file and its previous text.
    pub(super) fn take_back(mut self) -> Result<(), ReplaceError> {
        self.undo.take().map_or(Ok(()), |undo| undo.put_old())
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        // The write ended after its deadline, when its failure had been reported.
        let Some(undo) = self.undo.take() else { return };
        if let Err(error) = undo.put_old() {
            tracing::error!(
                "{} was replaced after its deadline, and could not be restored: {error}",
                undo.file.display()
            );
        }
    }
}

impl Undo {
    fn put_new(&self) -> Result<(), ReplaceError> {
        if let Some((content, _)) = &self.old {
            self.write(&previous_name(&self.file), content)?;
        }
        self.write(&self.file, &self.new)
    }

    fn put_old(&self) -> Result<(), ReplaceError> {
        let now = read(&self.file)?;
        if now.is_some_and(|(content, _)| content != self.new) {
            return Err(ReplaceError::ChangedAgain(previous_name(&self.file)));
        }
        self.put(&self.file, self.old.as_ref().map(|(content, _)| &content[..]))?;
        self.put_previous()
    }

    fn put_previous(&self) -> Result<(), ReplaceError> {
        self.put(&previous_name(&self.file), self.previous.as_deref())
    }

    fn put(&self, path: &Path, content: Option<&[u8]>) -> Result<(), ReplaceError> {
        if let Some(content) = content {
            return self.write(path, content);
        }
        match fs::remove_file(path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(ReplaceError::Write { path: path.to_owned(), source })
            }
            _ => Ok(()),
        }
    }

    /// Writes a file with the permissions of the configuration file.
    fn write(&self, path: &Path, content: &[u8]) -> Result<(), ReplaceError> {
        let written = match &self.old {
            Some((_, like)) => files::replace_like(path, content, like),
            None => files::replace(path, content, 0o600),
        };
        written.map_err(|source| ReplaceError::Write { path: path.to_owned(), source })
    }
}

/// The file that a symbolic link names; a missing file itself, unless it is a link.
fn resolved(file: &Path) -> Result<PathBuf, ReplaceError> {
    match file.canonicalize() {
        Ok(file) => Ok(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !file.is_symlink() => {
            Ok(file.to_owned())
        }
        Err(source) => Err(ReplaceError::Read { path: file.to_owned(), source }),
    }
}

fn previous_name(file: &Path) -> PathBuf {
    let mut name = OsString::from(file);
    name.push(".previous");
    name.into()
}

/// The content and metadata of a file; `None`: there is none.
fn read(path: &Path) -> Result<Option<(Vec<u8>, Metadata)>, ReplaceError> {
    let content = files::read(path, FileKind::Config.bytes_max())
        .and_then(|content| Ok((content, fs::metadata(path)?)));
    match content {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ReplaceError::Read { path: path.to_owned(), source }),
    }
}

fn remedy(path: &Path, error: &io::Error) -> String {
    let folder = path.parent().unwrap_or(path).display();
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => format!(
            "; the process renames a new file in its folder: let its user write to {folder}, and with systemd add \
             `ReadWritePaths={folder}`"
        ),
        io::ErrorKind::ResourceBusy => {
            "; it is mounted alone and cannot be renamed: mount its folder in its place".into()
        }
        io::ErrorKind::StorageFull => "; its file system needs free space".into(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use equipoise_testkit::Folder;

    use super::*;

    /// The file and its previous text.
    fn texts(file: &Path) -> (String, Option<String>) {
        (fs::read_to_string(file).unwrap(), previous(file).unwrap())
    }

    fn replaced(file: &Path, text: &str, seen: Option<&str>) -> Result<Replacement, ReplaceError> {
        let basis = Basis { seen: seen.map(Into::into), restores: false };
        Ok(replace(file, text, &basis, Box::new(()))?.expect("the file is as it was seen"))
    }

    fn names(folder: &Folder) -> Vec<String> {
        let all = fs::read_dir(folder.path("")).unwrap();
        let mut names: Vec<_> =
            all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_replaced_file_keeps_its_mode_its_link_and_its_previous_text() {
        let folder = Folder::new("replace");
        let (file, link) = (folder.path("a.toml"), folder.path("link.toml"));
        fs::write(&file, "one").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        symlink(&file, &link).unwrap();
        assert_eq!(previous(&link).unwrap(), None);
        replaced(&link, "two", Some("one")).unwrap().keep();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(texts(&link), ("two".into(), Some("one".into())));
        for name in ["a.toml", "a.toml.previous"] {
            assert_eq!(fs::metadata(folder.path(name)).unwrap().mode() & 0o777, 0o640, "{name}");
        }
        let third = replaced(&link, "three", None).unwrap();
        assert_eq!(texts(&file), ("three".into(), Some("two".into())));
        third.take_back().unwrap();
        assert_eq!(texts(&file), ("two".into(), Some("one".into())));
        drop(replaced(&file, "four", None).unwrap());
        assert_eq!(texts(&file), ("two".into(), Some("one".into())), "not kept");
        replaced(&file, "two", None).unwrap().keep();
        assert_eq!(texts(&file), ("two".into(), Some("one".into())), "the same text");
        assert_eq!(names(&folder), ["a.toml", "a.toml.previous", "link.toml"]);
    }

    #[test]
    fn the_first_replacement_taken_back_leaves_no_previous_text_and_a_missing_file_no_file() {
        let folder = Folder::new("take-back");
        let file = folder.path("a.toml");
        replaced(&file, "zero", None).unwrap().take_back().unwrap();
        assert!(names(&folder).is_empty());
        fs::write(&file, "one").unwrap();
        replaced(&file, "two", None).unwrap().take_back().unwrap();
        assert_eq!(texts(&file), ("one".into(), None));
    }

    #[test]
    fn changes_by_others_are_kept() {
        let folder = Folder::new("others");
        let file = folder.path("a.toml");
        fs::write(&file, "theirs").unwrap();
        for basis in [
            Basis { seen: Some("seen".into()), restores: false },
            Basis { seen: None, restores: true },
        ] {
            assert!(replace(&file, "ours", &basis, Box::new(())).unwrap().is_none(), "{basis:?}");
        }
        assert_eq!(texts(&file), ("theirs".into(), None));

        let ours = replaced(&file, "ours", None).unwrap();
        fs::write(&file, "theirs again").unwrap();
        let error = ours.take_back().unwrap_err().to_string();
        assert!(
            error.contains("keeps that change") && error.contains("a.toml.previous"),
            "{error}"
        );
        assert_eq!(texts(&file), ("theirs again".into(), Some("theirs".into())));
    }

    #[test]
    fn a_failed_write_changes_neither_text() {
        let folder = Folder::new("unwritable");
        let file = folder.path("a.toml");
        for blocked in ["a.toml.previous", "a.toml"] {
            fs::write(&file, "one").unwrap();
            // Also for root, a folder cannot be replaced by a file.
            let new = format!(".{blocked}.{}", std::process::id());
            fs::create_dir(folder.path(&new)).unwrap();
            let error = replaced(&file, "two", None).err().unwrap().to_string();
            assert!(error.contains(&format!("{blocked} cannot be written")), "{error}");
            assert_eq!(texts(&file), ("one".into(), None), "{blocked}");
            fs::remove_dir(folder.path(&new)).unwrap();
        }
        let link = folder.path("link.toml");
        symlink(folder.path("missing.toml"), &link).unwrap();
        assert!(replaced(&link, "two", None).is_err());
        assert!(link.is_symlink(), "a link to a missing file stays");
        let denied = remedy(Path::new("/etc/e/a.toml"), &io::ErrorKind::PermissionDenied.into());
        assert!(denied.contains("`ReadWritePaths=/etc/e`"), "{denied}");
    }
}
