//! Why the file is not opened, in words that say what to do.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::backup::Copied;
use super::file::FORMAT;

/// Why the embedded store does not start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file system says no.
    #[error("cannot {doing} {path}", path = .path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// Another process has it.
    #[error("the store's file {path} is in use by another process: one file serves one controller", path = .0.display())]
    InUse(PathBuf),
    /// What is in the file is not what was written.
    #[error("the store's file {path} is damaged ({what}). It is left as it is. {}", advice(.path, .backup.as_ref()))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// How it was seen.
        what: String,
        /// The newest copy that is whole, if there is one.
        backup: Option<Copied>,
    },
    /// A later version wrote it.
    #[error("the store's file {path} has format {format}; this version knows {FORMAT}: start the version that wrote it", path = .path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: u64,
    },
}

fn advice(path: &Path, backup: Option<&Copied>) -> String {
    let path = path.display();
    let Some(Copied { path: copy, revision, made }) = backup else {
        return format!("There is no copy. To start with an empty store: mv {path} {path}.damaged");
    };
    let made = made.map_or_else(String::new, |made| format!(", of {}", at(made)));
    format!(
        "To go back to its newest copy (revision {revision}{made}): mv {path} {path}.damaged && cp -p {} {path}",
        copy.display()
    )
}

/// In UTC, to the second.
pub(super) fn at(time: SystemTime) -> String {
    let time = OffsetDateTime::from(time);
    let time = time.replace_nanosecond(0).unwrap_or(time);
    time.format(&Rfc3339).unwrap_or_default()
}
