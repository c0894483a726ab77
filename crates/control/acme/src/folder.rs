//! The files of account and certificates: readable only by their owner, replaced whole or not at
//! all.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use equipoise_basics::files;
use equipoise_tls::{Certificate, CertificateFiles};

/// Largest file that is read, in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// Only the owner may read keys.
const MODE: u32 = 0o600;

/// The folder of one directory's account and certificates. Another directory, such as one for
/// tests, has another folder, so that its certificates do not take the place of real ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AcmeFolder(PathBuf);

impl AcmeFolder {
    /// The folder for this directory below `state`.
    pub fn of(state: &Path, directory: &str) -> AcmeFolder {
        let url = directory.trim_start_matches("https://");
        let fits = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
        let name: String = url.chars().map(fits).take(200).collect();
        AcmeFolder(state.join("acme").join(name.trim_matches(['.', '-'])))
    }

    /// The name of the folder.
    pub(crate) fn name(&self) -> &str {
        self.0.file_name().and_then(|name| name.to_str()).unwrap_or("directory")
    }

    /// The file with chain and key of this name.
    pub fn certificate(&self, name: &str) -> CertificateFiles {
        // A wildcard would be one in a shell, too.
        let file = format!("{}.pem", name.replace('*', "_"));
        CertificateFiles { chain: self.0.join(file), key: None, ocsp: None }
    }

    /// Reads the certificate for this name. `None`: there is none yet.
    pub(crate) fn load(&self, name: &str) -> Result<Option<Certificate>, String> {
        let files = self.certificate(name);
        let loaded = files.load(|path| files::read_text(path, BYTES_MAX));
        match loaded {
            Ok(certificate) => Ok(Some(certificate)),
            Err(_) if !files.chain.exists() => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Whether the file with chain and key of this name has this content.
    pub(crate) fn has(&self, name: &str, pem: &str) -> bool {
        let read = files::read_text(&self.certificate(name).chain, BYTES_MAX);
        read.is_ok_and(|text| text == pem)
    }

    /// Replaces the file with chain and key of this name.
    pub(crate) fn save(&self, name: &str, pem: &str) -> io::Result<()> {
        self.write(&self.certificate(name).chain, pem)
    }

    /// The account's file.
    pub(crate) fn account(&self) -> PathBuf {
        self.0.join("account.json")
    }

    /// Reads the account. `None`: there is none yet.
    pub(crate) fn load_account(&self) -> io::Result<Option<String>> {
        match files::read_text(&self.account(), BYTES_MAX) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces the account's file.
    pub(crate) fn save_account(&self, text: &str) -> io::Result<()> {
        self.write(&self.account(), text)
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
        files::replace(path, text.as_bytes(), MODE)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn each_directory_has_a_folder_with_a_plain_name() {
        let of = |url: &str| AcmeFolder::of(Path::new("/s"), url).0;
        assert_eq!(
            of("https://acme-v02.api.letsencrypt.org/directory"),
            Path::new("/s/acme/acme-v02.api.letsencrypt.org-directory")
        );
        assert_eq!(of("https://[::1]:14000/dir"), Path::new("/s/acme/1--14000-dir"));
        assert_eq!(of("https://../../etc"), Path::new("/s/acme/etc"));
    }

    #[test]
    fn files_are_private() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = AcmeFolder::of(folder.path(), "https://a.example/dir");
        assert_eq!(folder.load_account().expect("no error"), None);
        assert!(matches!(folder.load("a.example"), Ok(None)));
        folder.save_account("{}").expect("it is written");
        assert_eq!(folder.load_account().expect("no error").as_deref(), Some("{}"));
        let mode = |path: &Path| path.metadata().expect("it exists").permissions().mode() & 0o777;
        assert_eq!((mode(&folder.0), mode(&folder.account())), (0o700, 0o600));
        folder.save("a.example", "damaged").expect("it is written");
        assert!(folder.load("a.example").is_err_and(|it| it.contains("has no certificate")));
    }
}
