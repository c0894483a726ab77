//! The folder with a machine's certificates and keys.

use std::fs::DirBuilder;
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use equipoise_basics::files;

use crate::wire::ANSWER_BYTES_MAX;

/// A machine's folder: `ca.pem` everywhere, `ca.key` on controllers, `node.pem` and `node.key` on
/// nodes, with the instructions that they followed last.
///
/// Only the owner can read keys (mode 0600). A key that others can read is refused. Files are
/// replaced atomically.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateFolder {
    path: PathBuf,
}

/// A file of the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateFile {
    /// The authority's certificate.
    AuthorityCertificate,
    /// The authority's key.
    AuthorityKey,
    /// This node's certificate.
    NodeCertificate,
    /// This node's key.
    NodeKey,
    /// The instructions that this node followed last. Secret, because of the signing key in them.
    Instructions,
    /// The newest edition that this node followed.
    Edition,
}

/// A fault of the folder.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A file does not exist.
    #[error("{path} does not exist")]
    Missing {
        /// The file's path.
        path: PathBuf,
    },
    /// A file exists already.
    #[error(
        "{path} exists already and is not overwritten, because a cluster's authority is created once"
    )]
    Exists {
        /// The file's path.
        path: PathBuf,
    },
    /// Other users can read a key.
    #[error(
        "other users can read {path} (mode {mode:o}); run chmod 600, and create a new key if they may have read it"
    )]
    NotPrivate {
        /// The file's path.
        path: PathBuf,
        /// The file's mode.
        mode: u32,
    },
    /// A file is too large to be valid.
    #[error("{path} has more than {bytes_max} bytes, which is too large for this file")]
    TooLarge {
        /// The file's path.
        path: PathBuf,
        /// The limit in bytes.
        bytes_max: u64,
    },
    /// An operation on a file failed.
    #[error("cannot {step} {path}")]
    File {
        /// The failed step.
        step: &'static str,
        /// The file's path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

const FILE_BYTES_MAX: u64 = 64 << 10;

impl StateFile {
    /// The file's name in the folder.
    pub fn name(self) -> &'static str {
        match self {
            StateFile::AuthorityCertificate => "ca.pem",
            StateFile::AuthorityKey => "ca.key",
            StateFile::NodeCertificate => "node.pem",
            StateFile::NodeKey => "node.key",
            StateFile::Instructions => "instructions.json",
            StateFile::Edition => "instructions.edition",
        }
    }

    fn bytes_max(self) -> u64 {
        match self {
            // The data of one event, and the head line.
            StateFile::Instructions => ANSWER_BYTES_MAX as u64 + FILE_BYTES_MAX,
            _ => FILE_BYTES_MAX,
        }
    }

    fn is_secret(self) -> bool {
        matches!(self, StateFile::AuthorityKey | StateFile::NodeKey | StateFile::Instructions)
    }
}

impl StateFolder {
    /// A folder that need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> StateFolder {
        StateFolder { path: path.into() }
    }

    /// The path of a file, existing or not.
    pub fn path_of(&self, file: StateFile) -> PathBuf {
        self.path.join(file.name())
    }

    /// True if the file exists.
    pub fn has(&self, file: StateFile) -> bool {
        self.path_of(file).exists()
    }

    /// Reads the file as text.
    ///
    /// # Errors
    /// [`FolderError`].
    pub fn read(&self, file: StateFile) -> Result<String, FolderError> {
        let path = self.path_of(file);
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => FolderError::Missing { path: path.clone() },
            _ => FolderError::File { step: "read", path: path.clone(), source },
        };
        let open = equipoise_basics::files::open(&path).map_err(failed)?;
        let mode = open.metadata().map_err(failed)?.mode() & 0o777;
        if file.is_secret() && mode & 0o077 != 0 {
            return Err(FolderError::NotPrivate { path, mode });
        }
        let mut text = String::new();
        let bytes_max = file.bytes_max();
        open.take(bytes_max + 1).read_to_string(&mut text).map_err(failed)?;
        if text.len() as u64 > bytes_max {
            return Err(FolderError::TooLarge { path, bytes_max });
        }
        Ok(text)
    }

    /// Renames an unusable file to `NAME.bad`, and replaces an earlier one. Returns the new path.
    ///
    /// # Errors
    /// [`FolderError::File`].
    pub fn set_aside(&self, file: StateFile) -> Result<PathBuf, FolderError> {
        let path = self.path_of(file);
        let aside = self.path.join(format!("{}.bad", file.name()));
        std::fs::rename(&path, &aside).map_err(|source| FolderError::File {
            step: "set aside",
            path,
            source,
        })?;
        Ok(aside)
    }

    /// Creates a file.
    ///
    /// # Errors
    /// [`FolderError`]; [`FolderError::Exists`] leaves the existing file.
    pub fn create(&self, file: StateFile, text: &str) -> Result<(), FolderError> {
        self.write(file, text, files::create).map_err(|error| match error {
            FolderError::File { path, source, .. }
                if source.kind() == io::ErrorKind::AlreadyExists =>
            {
                FolderError::Exists { path }
            }
            other => other,
        })
    }

    /// Writes a file atomically, in place of an existing one.
    ///
    /// # Errors
    /// [`FolderError`].
    pub fn replace(&self, file: StateFile, text: &str) -> Result<(), FolderError> {
        self.write(file, text, files::replace)
    }

    fn write(
        &self,
        file: StateFile,
        text: &str,
        write: impl Fn(&Path, &[u8], u32) -> io::Result<()>,
    ) -> Result<(), FolderError> {
        let path = self.path_of(file);
        let failed = |step| {
            let path = path.clone();
            move |source| FolderError::File { step, path, source }
        };
        let mut folder = DirBuilder::new();
        folder
            .recursive(true)
            .mode(0o700)
            .create(&self.path)
            .map_err(failed("create the folder of"))?;
        let mode = if file.is_secret() { 0o600 } else { 0o644 };
        write(&path, text.as_bytes(), mode).map_err(failed("write"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use StateFile::{AuthorityCertificate, AuthorityKey, NodeKey};

    fn folder(name: &str) -> StateFolder {
        let path = std::env::temp_dir().join(format!("eqp-folder-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        StateFolder::new(path)
    }

    #[test]
    fn key_files_are_created_private_and_refused_if_group_readable() {
        let folder = folder("private");
        folder.create(AuthorityKey, "secret").unwrap();
        folder.create(AuthorityCertificate, "public").unwrap();
        let mode = |file| folder.path_of(file).metadata().unwrap().mode() & 0o777;
        assert_eq!(mode(AuthorityKey), 0o600);
        assert_eq!(folder.read(AuthorityKey).unwrap(), "secret");
        let open = std::fs::Permissions::from_mode(0o640);
        std::fs::set_permissions(folder.path_of(AuthorityKey), open).unwrap();
        let refused = folder.read(AuthorityKey).unwrap_err();
        assert!(matches!(refused, FolderError::NotPrivate { mode: 0o640, .. }), "{refused}");
        assert_eq!(folder.read(AuthorityCertificate).unwrap(), "public");
        std::fs::remove_dir_all(&folder.path).unwrap();
    }

    #[test]
    fn an_authority_key_is_never_overwritten_but_a_node_key_is() {
        let folder = folder("overwritten");
        folder.create(AuthorityKey, "first").unwrap();
        let refused = folder.create(AuthorityKey, "second").unwrap_err();
        assert!(matches!(refused, FolderError::Exists { .. }), "{refused}");
        assert_eq!(folder.read(AuthorityKey).unwrap(), "first");
        folder.replace(NodeKey, "first").unwrap();
        folder.replace(NodeKey, "second").unwrap();
        assert_eq!(folder.read(NodeKey).unwrap(), "second");
        let left = std::fs::read_dir(&folder.path).unwrap().count();
        assert_eq!(left, 2, "nothing is left behind");
        std::fs::remove_dir_all(&folder.path).unwrap();
    }

    #[test]
    fn a_missing_file_and_a_too_large_file_are_distinct_errors() {
        let folder = folder("missing");
        assert!(matches!(folder.read(NodeKey), Err(FolderError::Missing { .. })));
        folder.create(NodeKey, &"x".repeat(FILE_BYTES_MAX as usize + 1)).unwrap();
        assert!(matches!(folder.read(NodeKey), Err(FolderError::TooLarge { .. })));
        std::fs::remove_dir_all(&folder.path).unwrap();
    }
}
