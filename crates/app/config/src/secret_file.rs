//! Reads files with secrets, and warns if other users can read them.

use std::path::Path;

use super::key::{Has, Key};
use super::problem::Findings;
use super::view::{Typed, View};
use super::{FileKind, Surroundings};

/// Users that may read a file with a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readers {
    /// Only its owner.
    Owner,
    /// Its owner and its group: services and their operators often share a group.
    OwnerAndGroup,
}

/// For these readers: the mode bits that must be clear, the accepted mode, and the command that
/// sets it.
const fn rule(readers: Readers) -> (u32, &'static str, &'static str) {
    match readers {
        Readers::Owner => (0o077, "0600", "chmod 600"),
        Readers::OwnerAndGroup => (0o027, "0600 or 0640", "chmod o-rwx,g-w"),
    }
}

/// Reports that a file's mode admits more users than `readers`, and how to fix it. `secret` names
/// the content.
pub(super) fn too_open(path: &Path, mode: u32, readers: Readers, secret: &str) -> Option<String> {
    let (others, accepted, chmod) = rule(readers);
    let path = path.display();
    let whom = match readers {
        Readers::Owner => "its owner",
        Readers::OwnerAndGroup => "its owner and group",
    };
    (mode & others != 0).then(|| {
        format!(
            "\"{path}\" has the mode {:04o}, so users besides {whom} have access to {secret}; accepted: {accepted} ({chmod} {path})",
            mode & 0o7777
        )
    })
}

/// Bytes of a secret of which one is enough for all.
const LONG: usize = 16;

/// Reads a secret of 16 bytes or more, without the white space around it.
///
/// # Errors
/// Why it is not used, as a message.
pub(super) fn read_long(file: &str, around: &Surroundings<'_>) -> Result<String, String> {
    match (around.read)(Path::new(file), FileKind::Secret) {
        Ok(text) if text.trim().len() >= LONG => Ok(text.trim().to_string()),
        Ok(text) => Err(format!(
            "\"{file}\" holds {} characters; accepted: {LONG} or more (try: openssl rand -hex 16)",
            text.trim().len()
        )),
        Err(error) => {
            Err(format!("\"{file}\" cannot be read: {error}; accepted: a file with the secret"))
        }
    }
}

/// Warns if other users can read the file that an option names. A missing file causes no warning.
pub(super) fn warn<'v, T: Has<G>, G, V>(
    values: View<'v, T>,
    option: Key<G, V>,
    readers: Readers,
    secret: &str,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) where
    V: Typed,
    V::Read<'v>: Into<Option<&'v str>>,
{
    let path: Option<&str> = values.get(option).into();
    let Some(path) = path.map(Path::new) else { return };
    let Ok(mode) = (around.mode)(path) else { return };
    // A mode without type bits is taken for a regular file.
    let kind = mode & libc::S_IFMT;
    if kind != 0 && kind != libc::S_IFREG {
        let text = format!(
            "\"{}\" is not a regular file, so {secret} cannot be read from it",
            path.display()
        );
        let text = text + "; accepted: a regular file (not a FIFO, a device or a directory)";
        findings.warning(values.at(option), &values.path_of(option), text);
        return;
    }
    if let Some(text) = too_open(path, mode, readers, secret) {
        findings.warning(values.at(option), &values.path_of(option), text);
    }
}
