//! Errors of opening the file, with advice.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::backup::Copied;
use super::file::FORMAT;

/// Reason why the embedded store does not start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file operation failed.
    #[error("cannot {doing} {path}", path = .path.display())]
    Io {
        /// The operation.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Error of the system call.
        #[source]
        source: io::Error,
    },
    /// Another process uses the file.
    #[error("the store's file {path} is in use by another process: one file serves one controller", path = .0.display())]
    InUse(PathBuf),
    /// The file is damaged.
    #[error("the store's file {path} is damaged ({what}). It is left as it is. {}", advice(.path, .backup.as_ref()))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Description of the damage.
        what: String,
        /// The newest undamaged copy, if there is one.
        backup: Option<Copied>,
    },
    /// A later version wrote the file.
    #[error("the store's file {path} has format {format}; this version knows {FORMAT}: start the version that wrote it", path = .path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Format of the file.
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

/// Formats a time in UTC, to the second.
pub(super) fn at(time: SystemTime) -> String {
    let time = OffsetDateTime::from(time);
    let time = time.replace_nanosecond(0).unwrap_or(time);
    time.format(&Rfc3339).unwrap_or_default()
}
