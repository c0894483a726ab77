//! TLS 1.3 between the cluster's members, and the certificates that they trust.

use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig,
    SignatureScheme,
};

use crate::{Certified, Fingerprint, Issued, Role};

/// The reason why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Certificate or key is not usable.
    #[error("the certificate and its key cannot be used")]
    Unusable(#[source] rustls::Error),
    /// The authority's certificate is not usable.
    #[error("the authority's certificate cannot be used")]
    Authority(#[source] rustls::Error),
    /// The verifier cannot be created.
    #[error("certificates of nodes cannot be checked")]
    Verifier(#[source] rustls::server::VerifierBuilderError),
}

pub(crate) static PROVIDER: LazyLock<Arc<CryptoProvider>> =
    LazyLock::new(|| Arc::new(aws_lc_rs::default_provider()));

const ALPN: &[u8] = b"http/1.1";

pub(crate) fn roots(authority: &CertificateDer<'_>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone().into_owned()).map_err(TlsError::Authority)?;
    Ok(roots)
}

/// A server's certificate that can be replaced while it serves.
#[derive(Debug)]
pub(crate) struct Renewable(RwLock<Arc<CertifiedKey>>);

impl Renewable {
    pub(crate) fn new(issued: Issued) -> Result<Renewable, TlsError> {
        Ok(Renewable(RwLock::new(certified_key(issued)?)))
    }

    /// Presents the new certificate in handshakes from now on.
    pub(crate) fn replace(&self, issued: Issued) -> Result<(), TlsError> {
        let new = certified_key(issued)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }
}

fn certified_key(issued: Issued) -> Result<Arc<CertifiedKey>, TlsError> {
    showable(issued.chain, issued.key)
}

/// A certificate with its key, as handshakes use it.
pub(crate) fn showable(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<CertifiedKey>, TlsError> {
    CertifiedKey::from_der(chain, key, &PROVIDER).map(Arc::new).map_err(TlsError::Unusable)
}

impl ResolvesServerCert for Renewable {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// The controller's side. Clients may come without a certificate to join; a presented certificate
/// must be signed by the authority.
pub(crate) fn server(
    authority: &CertificateDer<'_>,
    certificate: Arc<Renewable>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let roots = Arc::new(roots(authority)?);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, PROVIDER.clone())
        .allow_unauthenticated()
        .build()
        .map_err(TlsError::Verifier)?;
    let mut config = ServerConfig::builder_with_provider(PROVIDER.clone())
        .with_protocol_versions(&[&TLS13])
        .expect("the provider has TLS 1.3")
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![ALPN.to_vec()];
    // Certificates are checked again for each connection.
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// The certificates that a client accepts as a controller's.
#[derive(Clone, Debug)]
pub(crate) enum Trust {
    /// Certificates signed by this authority, for the requested name.
    Authority(CertificateDer<'static>),
    /// The same, if only the fingerprint of the authority's key is known, from a join token.
    Pinned(Fingerprint),
}

/// The member's side, with its certificate if it has one.
pub(crate) fn client(
    trust: &Trust,
    identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let roots = match trust {
        Trust::Authority(authority) => Some(Arc::new(roots(authority)?)),
        Trust::Pinned(_) => None,
    };
    let pinned = match trust {
        Trust::Pinned(fingerprint) => Some(*fingerprint),
        Trust::Authority(_) => None,
    };
    let builder = ClientConfig::builder_with_provider(PROVIDER.clone())
        .with_protocol_versions(&[&TLS13])
        .expect("the provider has TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(ControllerVerifier { roots, pinned }));
    let mut config = match identity {
        Some((chain, key)) => {
            builder.with_client_auth_cert(chain, key).map_err(TlsError::Unusable)?
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// Checks chain, time, usage and name by webpki, and then that the role is controller.
#[derive(Debug)]
struct ControllerVerifier {
    roots: Option<Arc<RootCertStore>>,
    pinned: Option<Fingerprint>,
}

impl ServerCertVerifier for ControllerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let roots = match (&self.roots, self.pinned) {
            (Some(roots), _) => Arc::clone(roots),
            (None, pinned) => {
                // A controller presents its authority. This checks that it is the one of the token.
                let is_pinned = |shown: &&CertificateDer<'_>| {
                    Certified::of(shown)
                        .is_ok_and(|c| c.identity.role == Role::Authority && Some(c.key) == pinned)
                };
                let authority = intermediates.iter().find(is_pinned);
                let authority = authority.ok_or(CertificateError::UnknownIssuer)?;
                let mut roots = RootCertStore::empty();
                roots.add(authority.clone().into_owned())?;
                Arc::new(roots)
            }
        };
        let webpki = WebPkiServerVerifier::builder_with_provider(roots, PROVIDER.clone())
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        let verified = webpki.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        )?;
        match Certified::of(end_entity) {
            Ok(shown) if shown.identity.role == Role::Controller => Ok(verified),
            _ => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("only TLS 1.3 is spoken here".to_string()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &PROVIDER.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        PROVIDER.signature_verification_algorithms.supported_schemes()
    }
}
