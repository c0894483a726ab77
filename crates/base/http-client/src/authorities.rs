//! The certificates that a client trusts.

use std::io;
use std::path::Path;
use std::sync::Arc;

use equipoise_basics::files;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Largest file of certificates, in bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Authorities that sign for servers.
#[derive(Clone)]
pub struct Authorities(TlsConnector);

/// The reason why there are no authorities.
#[derive(Debug, thiserror::Error)]
pub enum AuthoritiesError {
    /// The file cannot be read.
    #[error("{path} cannot be read")]
    File {
        /// The file.
        path: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The text is not PEM.
    #[error("{from} has a damaged certificate; accepted: PEM")]
    Damaged {
        /// The origin of the text.
        from: String,
        /// The cause.
        #[source]
        source: pem::Error,
    },
    /// There is no certificate, or none of a known kind.
    #[error("{0} has no certificate that can be used; accepted: PEM")]
    None(String),
}

impl Authorities {
    /// Those of a file in PEM, or those of this system. Reads files.
    ///
    /// # Errors
    /// [`AuthoritiesError`].
    pub fn load(file: Option<&Path>) -> Result<Authorities, AuthoritiesError> {
        let Some(path) = file else { return Authorities::of_system() };
        let from = path.display().to_string();
        match files::read(path, FILE_BYTES_MAX) {
            Ok(pem) => Authorities::from_pem(&pem, &from),
            Err(source) => Err(AuthoritiesError::File { path: from, source }),
        }
    }

    /// Those of this system. Reads files.
    ///
    /// # Errors
    /// [`AuthoritiesError::None`].
    pub fn of_system() -> Result<Authorities, AuthoritiesError> {
        Authorities::new(rustls_native_certs::load_native_certs().certs, "this system")
    }

    /// The certificates in a text of PEM. `from` is its origin, for errors.
    ///
    /// # Errors
    /// [`AuthoritiesError::Damaged`], [`AuthoritiesError::None`].
    pub fn from_pem(pem: &[u8], from: &str) -> Result<Authorities, AuthoritiesError> {
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let damaged = |source| AuthoritiesError::Damaged { from: from.into(), source };
        Authorities::new(all.map_err(damaged)?, from)
    }

    fn new(
        trusted: Vec<CertificateDer<'static>>,
        from: &str,
    ) -> Result<Authorities, AuthoritiesError> {
        let mut roots = RootCertStore::empty();
        // A system may have certificates of kinds that rustls does not know.
        let (known, _) = roots.add_parsable_certificates(trusted);
        if known == 0 {
            return Err(AuthoritiesError::None(from.into()));
        }
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        Ok(Authorities(TlsConnector::from(Arc::new(config))))
    }

    /// Performs the handshake with a server of this name.
    pub(crate) async fn encrypt(
        &self,
        name: &str,
        stream: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(name.to_string()).map_err(io::Error::other)?;
        self.0.connect(name, stream).await
    }
}
