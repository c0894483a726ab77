//! Kinds of files that a configuration names, each with its largest size.

use std::io;
use std::path::Path;

/// The purpose of a file that a configuration names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// The configuration itself.
    Config,
    /// A zone file.
    Zone,
    /// A token, a password, or secrets shared by nodes.
    Secret,
    /// Certificates or keys in PEM.
    Certificates,
    /// An OCSP response in DER. The text has a character for each byte, with the same number.
    Ocsp,
    /// Settings of Cyclone DDS in XML.
    DdsSettings,
    /// Types in IDL.
    Idl,
    /// A body for clients.
    Page,
}

impl FileKind {
    /// Largest size of a file of this kind, in bytes.
    pub const fn bytes_max(self) -> u64 {
        match self {
            FileKind::Config => 64 << 20,
            FileKind::Zone => 256 << 20,
            FileKind::Secret | FileKind::Ocsp => 64 << 10,
            FileKind::Page => 1 << 20,
            FileKind::Certificates | FileKind::DdsSettings | FileKind::Idl => 4 << 20,
        }
    }
}

/// Reads a regular file up to the largest size of its kind.
pub(super) fn read(path: &Path, kind: FileKind) -> io::Result<String> {
    match kind {
        FileKind::Ocsp => {
            let bytes = equipoise_basics::files::read(path, kind.bytes_max())?;
            Ok(bytes.into_iter().map(char::from).collect())
        }
        _ => equipoise_basics::files::read_text(path, kind.bytes_max()),
    }
}
