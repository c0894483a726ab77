//! TLS of checks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use equipoise_tls::{ClientTls, Fault, valid_until};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::{CheckError, Place};

/// The end of the validity of the certificate that a backend presented last. Shared by those that
/// connect to it.
#[derive(Clone, Debug, Default)]
pub struct CertificateSeen(Arc<AtomicU64>);

impl CertificateSeen {
    /// Notes a certificate of the backend.
    pub fn note(&self, valid_until: SystemTime) {
        let seconds = valid_until.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.0.store(seconds.max(1), Relaxed);
    }

    /// The end of its validity; `None` if no certificate was seen.
    pub fn valid_until(&self) -> Option<SystemTime> {
        let seconds = self.0.load(Relaxed);
        let after = std::time::Duration::from_secs(seconds);
        (seconds > 0).then(|| UNIX_EPOCH.checked_add(after)).flatten()
    }
}

/// TLS of the checks of one backend.
pub(crate) struct CheckTls {
    connector: TlsConnector,
    name: ServerName<'static>,
    seen: CertificateSeen,
}

impl CheckTls {
    /// For the backend at `place`, with `ip` as its own address.
    pub(crate) fn new(
        tls: &ClientTls,
        place: &Place,
        ip: std::net::IpAddr,
        seen: CertificateSeen,
    ) -> CheckTls {
        let name = place.server_name(tls, ip);
        CheckTls { connector: TlsConnector::from(Arc::clone(tls.config())), name, seen }
    }

    /// Performs the handshake.
    pub(crate) async fn over<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> Result<TlsStream<S>, CheckError> {
        let done = self.connector.connect(self.name.clone(), stream).await;
        let stream = done.map_err(|error| CheckError::Tls(Fault::of_handshake(&error).text))?;
        let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
        if let Some(until) = certificates.first().and_then(valid_until) {
            self.seen.note(until);
        }
        Ok(stream)
    }
}
