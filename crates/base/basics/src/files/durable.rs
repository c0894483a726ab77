//! Files that are replaced whole or not at all, also if the machine fails in between.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// Writes a file with these permissions, in the place of another or of none.
///
/// # Errors
/// Those of creating, writing, synchronizing and renaming. The old content stays.
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    install(path, bytes, Access::Mode(mode), Sync::Disk, |new| fs::rename(new, path))
}

/// As [`replace`], with the permissions of another file, and with its owner and group as far as
/// this process may give files away. Without its group, the new one has no rights of a group.
///
/// # Errors
/// As [`replace`].
pub fn replace_like(path: &Path, bytes: &[u8], like: &Metadata) -> io::Result<()> {
    install(path, bytes, Access::Like(like), Sync::Disk, |new| fs::rename(new, path))
}

/// As [`replace`], for a folder that does not outlive the machine's run, such as `/run`: whole or
/// not at all, without waiting for a disk.
///
/// # Errors
/// As [`replace`].
pub fn replace_volatile(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    install(path, bytes, Access::Mode(mode), Sync::Nothing, |new| fs::rename(new, path))
}

/// Writes a file with these permissions that must not exist yet.
///
/// # Errors
/// As [`replace`], and [`io::ErrorKind::AlreadyExists`].
pub fn create(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    install(path, bytes, Access::Mode(mode), Sync::Disk, |new| fs::hard_link(new, path))
}

/// Moves a complete file to its place in the same file system.
///
/// # Errors
/// Those of synchronizing and renaming.
pub fn move_into_place(from: &Path, to: &Path) -> io::Result<()> {
    File::open(from)?.sync_all()?;
    fs::rename(from, to)?;
    // The name lasts as soon as the folder does.
    File::open(folder(to))?.sync_all()
}

/// Whether a write waits until the disk has it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sync {
    Disk,
    Nothing,
}

impl Sync {
    fn file(self, file: &File) -> io::Result<()> {
        if self == Sync::Disk { file.sync_all() } else { Ok(()) }
    }
}

/// The permissions of a new file.
#[derive(Clone, Copy)]
enum Access<'a> {
    Mode(u32),
    Like(&'a Metadata),
}

impl Access<'_> {
    /// The mode until [`Access::give`].
    fn at_first(self) -> u32 {
        match self {
            Access::Mode(mode) => mode,
            Access::Like(_) => 0o600,
        }
    }

    fn give(self, file: &File) -> io::Result<()> {
        let Access::Like(like) = self else { return Ok(()) };
        let has_group = fchown(file, None, Some(like.gid())).is_ok();
        let mode = if has_group { like.mode() } else { like.mode() & !0o070 };
        // Root alone may do this. Others own the file then.
        let _ = fchown(file, Some(like.uid()), None);
        // Last, since a change of the owner clears bits of the mode.
        file.set_permissions(Permissions::from_mode(mode & 0o777))
    }
}

fn install(
    path: &Path,
    bytes: &[u8],
    access: Access<'_>,
    sync: Sync,
    place: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    // The name has our process in it. If a process was killed before its rename, the next one of
    // that number overwrites the file.
    let new = beside(path);
    let _ = fs::remove_file(&new);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(access.at_first())
        .open(&new)
        .and_then(|mut open| {
            open.write_all(bytes)?;
            access.give(&open)?;
            sync.file(&open)
        })
        .and_then(|()| place(&new))
        .and_then(|()| sync.file(&File::open(folder(path))?));
    // Gone already after a rename.
    let _ = fs::remove_file(&new);
    written
}

fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    path.with_file_name(name)
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<OsString> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn a_file_is_replaced_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        replace(&path, b"one", 0o600).unwrap();
        replace(&path, b"two", 0o644).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(names(folder.path()), ["state"]);
    }

    #[test]
    fn a_file_like_another_has_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let (path, like) = (folder.path().join("new"), folder.path().join("like"));
        fs::write(&like, "one").unwrap();
        fs::set_permissions(&like, Permissions::from_mode(0o646)).unwrap();
        let metadata = fs::metadata(&like).unwrap();
        replace_like(&path, b"two", &metadata).unwrap();
        let new = fs::metadata(&path).unwrap();
        let access = |it: &Metadata| (it.uid(), it.gid(), it.mode());
        assert_eq!(access(&new), access(&metadata));
    }

    #[test]
    fn a_file_that_exists_is_not_created_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        create(&path, b"one", 0o600).unwrap();
        let error = create(&path, b"two", 0o600).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert_eq!(names(folder.path()), ["key"]);
    }

    #[test]
    fn a_failed_replacement_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("taken");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("inside"), "x").unwrap();
        assert!(replace(&path, b"new", 0o600).is_err());
        assert_eq!(names(folder.path()), ["taken"]);
    }
}
