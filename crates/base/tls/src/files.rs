//! Certificates from files, which the caller reads.

use std::io;
use std::path::{Path, PathBuf};

use crate::certificate::{Certificate, CertificateFiles};
use crate::error::{CertificateError, Part};

/// The reason why a certificate could not be taken from its files.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A file could not be read.
    #[error("\"{}\" cannot be read: {error}; accepted: a file of PEM", path.display())]
    Read {
        /// The option at fault.
        part: Part,
        /// The file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// A file has a wrong content.
    #[error("\"{}\" has {error}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The error.
        error: CertificateError,
    },
}

impl FileError {
    /// Whether the file that has the key has none.
    pub fn lacks_key(&self) -> bool {
        matches!(self, FileError::Content { error: CertificateError::NoKey, .. })
    }

    /// The option at fault; [`Part::Chain`] if that has the key, too.
    pub fn part(&self) -> Part {
        match self {
            FileError::Read { part, .. } => *part,
            FileError::Content { error, .. } => error.part(),
        }
    }
}

impl CertificateFiles {
    /// Reads the certificate.
    ///
    /// # Errors
    /// [`FileError`] for the first wrong file.
    pub fn load(
        &self,
        read: impl Fn(&Path) -> io::Result<String>,
    ) -> Result<Certificate, FileError> {
        let text = |part: Part, path: &Path| {
            read(path).map_err(|error| FileError::Read { part, path: path.into(), error })
        };
        let chain = text(Part::Chain, &self.chain)?;
        let certificate = match &self.key {
            None => Certificate::from_pem(&chain, &chain),
            Some(key) => Certificate::from_pem(&chain, &text(Part::Key, key)?),
        };
        let certificate = certificate.map_err(|error| {
            let path = match error.part() {
                Part::Chain => &self.chain,
                Part::Key => self.key.as_ref().unwrap_or(&self.chain),
            };
            FileError::Content { path: path.clone(), error }
        })?;
        Ok(certificate.of_files(self.clone()))
    }
}
