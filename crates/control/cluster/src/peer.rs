//! Mutual TLS 1.3 between nodes, without the controllers.
//!
//! In a cluster every node presents its own certificate and accepts those of the cluster's other
//! nodes, except evicted keys. Without a cluster, files state the certificate and the authorities
//! of peers. In both cases a renewed certificate is used from the next handshake on: the
//! configurations stay the same.

mod files;
mod members;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::client::ResolvesClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore,
    ServerConfig, SignatureScheme,
};

use crate::tls::PROVIDER;
pub use files::PeerFilesError;
pub(crate) use members::Members;

/// The protocol name. A connection for another protocol ends in the handshake.
const ALPN: &[u8] = b"equipoise-peer/1";

/// The source of a node's certificate, and the check of peers' certificates.
trait Fleet: fmt::Debug + Send + Sync {
    /// The certificate of this node, if it has one.
    fn own(&self) -> Option<Arc<CertifiedKey>>;
    /// The authorities that sign for peers.
    fn authorities(&self) -> Option<Arc<RootCertStore>>;
    /// The nodes that a peer's certificate names.
    fn read(&self, certificate: &CertificateDer<'_>) -> Result<PeerNames, CertificateError>;
    /// Increases when `read` may have another result.
    fn epoch(&self) -> u64;
}

/// Content of a peer's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerNames {
    /// The nodes for which it is valid.
    pub nodes: Vec<String>,
    /// End of its validity.
    pub valid_until: SystemTime,
}

/// The credentials of a node towards its peers, and the check of theirs.
#[derive(Clone, Debug)]
pub struct PeerCredentials {
    identity: u64,
    fleet: Arc<dyn Fleet>,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl PeerCredentials {
    fn new(identity: u64, fleet: Arc<dyn Fleet>) -> PeerCredentials {
        let end = Arc::new(End(Arc::clone(&fleet)));
        let mut server = ServerConfig::builder_with_provider(PROVIDER.clone())
            .with_protocol_versions(&[&TLS13])
            .expect("the provider has TLS 1.3")
            .with_client_cert_verifier(Arc::clone(&end) as Arc<dyn ClientCertVerifier>)
            .with_cert_resolver(Arc::clone(&end) as Arc<dyn ResolvesServerCert>);
        server.alpn_protocols = vec![ALPN.to_vec()];
        // Sessions stay open, so there is little to resume; and certificates are checked for each.
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let mut client = ClientConfig::builder_with_provider(PROVIDER.clone())
            .with_protocol_versions(&[&TLS13])
            .expect("the provider has TLS 1.3")
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&end) as Arc<dyn ServerCertVerifier>)
            .with_client_cert_resolver(end);
        client.alpn_protocols = vec![ALPN.to_vec()];
        client.resumption = rustls::client::Resumption::disabled();
        client.enable_sni = false;
        PeerCredentials { identity, fleet, client: Arc::new(client), server: Arc::new(server) }
    }

    /// Equal for equal sources, so that a reload of unchanged files changes nothing.
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// For sessions to peers. The caller identifies the peer with [`PeerCredentials::read`].
    pub fn client(&self) -> &Arc<ClientConfig> {
        &self.client
    }

    /// For sessions of peers.
    pub fn server(&self) -> &Arc<ServerConfig> {
        &self.server
    }

    /// The names in a certificate with a chain that TLS has verified; `None` if it is not a peer's.
    pub fn read(&self, certificate: &CertificateDer<'_>) -> Option<PeerNames> {
        self.fleet.read(certificate).ok()
    }

    /// Increases when [`PeerCredentials::read`] may have another result.
    pub fn epoch(&self) -> u64 {
        self.fleet.epoch()
    }
}

impl PeerNames {
    /// Time until the end of its validity.
    pub fn valid_for(&self) -> Duration {
        self.valid_until.duration_since(SystemTime::now()).unwrap_or_default()
    }
}

/// Either end of a session between nodes. Both present a certificate and check the other's in the
/// same way.
#[derive(Debug)]
struct End(Arc<dyn Fleet>);

impl End {
    /// Checks chain, time and usage, and that it is a peer's certificate. Both ends have client
    /// certificates, as nodes have in a cluster.
    fn verify(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        let general = |text: String| rustls::Error::General(text);
        let roots = self.0.authorities();
        let roots = roots.ok_or_else(|| general("this node has not joined yet".to_string()))?;
        WebPkiClientVerifier::builder_with_provider(roots, PROVIDER.clone())
            .build()
            .map_err(|error| general(error.to_string()))?
            .verify_client_cert(end_entity, intermediates, now)?;
        self.0.read(end_entity).map(|_| ()).map_err(rustls::Error::from)
    }

    fn verify_signature(
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &PROVIDER.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn schemes() -> Vec<SignatureScheme> {
        PROVIDER.signature_verification_algorithms.supported_schemes()
    }
}

fn not_spoken() -> rustls::Error {
    rustls::Error::General("only TLS 1.3 is spoken here".to_string())
}

impl ResolvesServerCert for End {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.own()
    }
}

impl ResolvesClientCert for End {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.own()
    }

    fn has_certs(&self) -> bool {
        self.0.own().is_some()
    }
}

impl ClientCertVerifier for End {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.verify(end_entity, intermediates, now).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(not_spoken())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        End::verify_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        End::schemes()
    }
}

impl ServerCertVerifier for End {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.verify(end_entity, intermediates, now).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(not_spoken())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        End::verify_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        End::schemes()
    }
}
