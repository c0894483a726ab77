use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::Line;

/// Destination of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum AuditTarget {
    /// The process's log, as events of the target `audit`.
    #[default]
    Log,
    /// A file with one line of JSON for each entry.
    File {
        /// Path of the file. If it does not exist, it is created with mode 0600.
        path: PathBuf,
        /// Size at which the file is renamed to `PATH.1`, which replaces the previous one.
        bytes_max: u64,
    },
}

/// Reasons why the audit log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The file cannot be opened.
    #[error("cannot write the audit log {} (option `api.audit-log`)", path.display())]
    File {
        /// The file's path.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The operating system refuses a thread.
    #[error("cannot start the thread of the audit log")]
    Thread(#[source] io::Error),
}

#[derive(Debug)]
pub(super) enum Opened {
    Log,
    File {
        path: PathBuf,
        file: File,
        bytes: u64,
        bytes_max: u64,
    },
    /// A file system that hangs until the test sends something or ends.
    #[cfg(test)]
    Hanging(std::sync::mpsc::Receiver<()>),
}

impl Opened {
    pub(super) fn open(target: &AuditTarget) -> Result<Opened, AuditError> {
        let AuditTarget::File { path, bytes_max } = target else { return Ok(Opened::Log) };
        let (file, bytes) =
            append_to(path).map_err(|source| AuditError::File { path: path.clone(), source })?;
        Ok(Opened::File { path: path.clone(), file, bytes, bytes_max: *bytes_max })
    }

    pub(super) fn write(&mut self, line: &Line) -> io::Result<()> {
        match self {
            Opened::Log => {
                line.to_log();
                Ok(())
            }
            #[cfg(test)]
            Opened::Hanging(go_on) => go_on.recv().map_err(|_| io::ErrorKind::BrokenPipe.into()),
            Opened::File { path, file, bytes, bytes_max } => {
                let mut text = line.to_json();
                text.push('\n');
                if *bytes > 0 && *bytes + text.len() as u64 > *bytes_max {
                    let mut old = path.clone().into_os_string();
                    old.push(".1");
                    std::fs::rename(&*path, old)?;
                    (*file, *bytes) = append_to(path)?;
                }
                // One write for each line, so that a reader never sees an incomplete line.
                file.write_all(text.as_bytes())?;
                *bytes += text.len() as u64;
                Ok(())
            }
        }
    }
}

fn append_to(path: &Path) -> io::Result<(File, u64)> {
    // Without O_NONBLOCK, opening a FIFO blocks until another process reads it.
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let bytes = file.metadata()?.len();
    Ok((file, bytes))
}
