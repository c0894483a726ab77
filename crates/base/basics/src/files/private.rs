//! Folders for this user only.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

/// Creates a folder that only this user may enter, in the user's runtime folder if there is one,
/// otherwise in the temporary folder. `prefix` begins its name.
///
/// # Errors
/// The system cannot create it.
pub fn create_private_folder(prefix: &str) -> io::Result<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let parent = runtime.filter(|it| it.is_dir()).unwrap_or_else(std::env::temp_dir);
    // Process ids are reused, and a process that was killed leaves its folder behind.
    for attempt in 0..100 {
        let path = parent.join(format!("{prefix}-{}-{attempt}", std::process::id()));
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}
