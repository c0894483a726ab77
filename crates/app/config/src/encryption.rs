//! Converts the cluster's credentials to the form that the session level needs.

use equipoise_cluster::PeerCredentials;
use equipoise_tls::{PeerCertificate, PeerCertificates, PeerTls};
use rustls::pki_types::CertificateDer;

#[derive(Debug)]
struct Certificates(PeerCredentials);

impl PeerCertificates for Certificates {
    fn read(&self, certificate: &CertificateDer<'_>) -> Option<PeerCertificate> {
        let names = self.0.read(certificate)?;
        let valid_for = names.valid_for();
        Some(PeerCertificate { nodes: names.nodes, valid_for })
    }

    fn epoch(&self) -> u64 {
        self.0.epoch()
    }
}

/// TLS between nodes with these credentials.
pub fn peer_tls(credentials: PeerCredentials) -> PeerTls {
    let (client, server) = (credentials.client().clone(), credentials.server().clone());
    PeerTls::new(
        credentials.identity(),
        client,
        server,
        std::sync::Arc::new(Certificates(credentials)),
    )
}
