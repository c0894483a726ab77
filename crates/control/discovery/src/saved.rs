//! The last good sets in a file, for the next process: its sources may be down when it starts.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use equipoise_basics::files;
use serde::{Deserialize, Serialize};

use crate::backend::Found;

/// Largest size of the file, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Sets by pool.
pub(crate) type Sets = BTreeMap<String, Set>;

/// A set of a source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Set {
    /// The source, in a line. A pool with another source does not begin with this set.
    pub(crate) source: String,
    /// Time at which a read confirmed the set, in seconds since 1970.
    pub(crate) good_unix_seconds: u64,
    /// The backends.
    pub(crate) backends: Vec<Found>,
}

/// Reads the file. Without it, or if it cannot be used, there are no sets.
pub(crate) fn load(path: &Path) -> Sets {
    let read = files::read(path, FILE_BYTES_MAX);
    let parsed = read.and_then(|bytes| Ok(serde_json::from_slice(&bytes)?));
    parsed.unwrap_or_else(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            let path = path.display();
            tracing::warn!("{path} with the last sets of backends cannot be used: {error}");
        }
        Sets::new()
    })
}

/// Replaces the file.
///
/// # Errors
/// Those of creating the folder and of [`files::replace`].
pub(crate) fn save(path: &Path, sets: &Sets) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o750).create(folder)?;
    }
    files::replace(path, &serde_json::to_vec(sets)?, 0o600)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn sets_are_read_as_they_were_written_and_a_damaged_file_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/discovered.json");
        assert_eq!(load(&path), Sets::new());
        let backends = ["10.0.0.1:80", "app.internal:80"].map(|it| Found::at(it.parse().unwrap()));
        let set = Set { source: "file /x".into(), good_unix_seconds: 7, backends: backends.into() };
        let sets = Sets::from([("web".to_string(), set)]);
        for _ in 0..2 {
            save(&path, &sets).unwrap();
            assert_eq!(load(&path), sets);
        }
        std::fs::write(&path, "{\"web\": {\"backends\": [\"nonsense\"]}}").unwrap();
        assert_eq!(load(&path), Sets::new());
    }
}
