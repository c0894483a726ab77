//! Files: those that a configuration names are read within bounds, and our own are written durably.
//!
//! A path of a configuration may name anything: a FIFO, a terminal, `/dev/zero`, a file of 100 GB.
//! Opening or reading one of those can block or fill the memory. Therefore this module reads
//! regular files only, opens them with `O_NONBLOCK`, and limits the size.
//!
//! A regular file can block, too, if its file system hangs (NFS, FUSE). No flag prevents that: a
//! caller that must not block reads on a separate thread, with a deadline.

mod denied;
mod durable;
mod private;

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

pub use denied::explain_denied;
pub use durable::{create, move_into_place, replace, replace_like, replace_volatile};
pub use private::create_private_folder;

/// Opens a regular file for reading. Follows symbolic links.
///
/// # Errors
/// Those of `open(2)`, with an explanation if permission is denied ([`explain_denied`]), and
/// [`io::ErrorKind::InvalidInput`] if the path does not name a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    opened(path).map_err(|error| explain_denied(error, path))
}

fn opened(path: &Path) -> io::Result<File> {
    // Opening a device can have side effects (rewinding a tape, arming a watchdog), so the path is
    // checked first. The descriptor is checked again, because the path may have been replaced in
    // between.
    regular(std::fs::metadata(path)?)?;
    let file =
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    regular(file.metadata()?)?;
    Ok(file)
}

/// Reads a regular file of at most `bytes_max` bytes.
///
/// # Errors
/// As [`open`] and `read(2)`; [`io::ErrorKind::FileTooLarge`] if the file is larger.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let too_large = || {
        let text = format!("larger than {}", shown(bytes_max));
        io::Error::new(io::ErrorKind::FileTooLarge, text)
    };
    let length = file.metadata()?.len();
    if length > bytes_max {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
    // Files of /proc report a length of 0, and others grow while they are read.
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(too_large());
    }
    Ok(bytes)
}

/// Reads a regular file of at most `bytes_max` bytes of UTF-8.
///
/// # Errors
/// As [`read`]; [`io::ErrorKind::InvalidData`] if the bytes are not UTF-8.
pub fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    String::from_utf8(read(path, bytes_max)?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let text = format!("not UTF-8 at byte {at}; save it as UTF-8");
        io::Error::new(io::ErrorKind::InvalidData, text)
    })
}

fn regular(metadata: Metadata) -> io::Result<()> {
    if metadata.is_file() {
        return Ok(());
    }
    let text = format!("{}; accepted: a regular file", noun(metadata.file_type()));
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

fn noun(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a FIFO",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

fn shown(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        bytes if bytes >= 1 << 10 => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn said(path: &Path) -> String {
        read(path, 100).unwrap_err().to_string()
    }

    #[test]
    fn only_regular_files_are_read_and_nothing_else_blocks() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        let name = CString::new(fifo.as_os_str().as_bytes()).unwrap();
        // SAFETY: mkfifo reads the path, which ends in NUL, and a number.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        assert_eq!(said(&fifo), "a FIFO; accepted: a regular file");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&fifo, &link).unwrap();
        assert_eq!(said(&link), "a FIFO; accepted: a regular file");
        let socket = folder.path().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        assert_eq!(said(&socket), "a socket; accepted: a regular file");
        assert_eq!(said(folder.path()), "a directory; accepted: a regular file");
        assert_eq!(said(Path::new("/dev/zero")), "a device; accepted: a regular file");
        let missing = read(&folder.path().join("none"), 100).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_file_is_read_up_to_its_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, [b'x'; 100]).unwrap();
        assert_eq!(read(&path, 100).unwrap().len(), 100);
        assert_eq!(read(&path, 99).unwrap_err().to_string(), "larger than 99 bytes");
        // Its reported length is 0.
        let endless = read_text(Path::new("/proc/self/maps"), 10).unwrap_err();
        assert_eq!(endless.kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn text_is_utf_8() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"ab\xff").unwrap();
        let wrong = read_text(&path, 100).unwrap_err().to_string();
        assert_eq!(wrong, "not UTF-8 at byte 2; save it as UTF-8");
        std::fs::write(&path, "ab").unwrap();
        assert_eq!(read_text(&path, 100).unwrap(), "ab");
    }
}
