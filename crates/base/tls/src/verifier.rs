//! The verification of a server's certificate.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError as Invalid, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::certificate::read_chain;
use crate::error::CertificateError;
use crate::profile::PROVIDER;

/// The servers that are trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Servers with a certificate for their name that is signed by one of these authorities, or is
    /// one of these.
    Authorities(Vec<CertificateDer<'static>>),
    /// Any: a server may be an impostor.
    Anyone,
}

impl Trust {
    /// Trusts the authorities of a text in PEM.
    ///
    /// # Errors
    /// [`CertificateError`] if it has no certificates.
    pub fn from_pem(authorities: &str) -> Result<Trust, CertificateError> {
        Ok(Trust::Authorities(read_chain(authorities)?))
    }
}

/// Verifies servers by authorities, or not at all. A certificate that is listed itself is trusted
/// although it is also that of an authority: so are most self-signed certificates.
#[derive(Debug)]
pub(crate) struct ServerVerifier {
    /// `None`: any certificate is accepted. Its holder has to have its key all the same.
    chains: Option<Arc<WebPkiServerVerifier>>,
    listed: Vec<CertificateDer<'static>>,
}

impl ServerVerifier {
    pub(crate) fn new(trust: &Trust) -> Result<ServerVerifier, CertificateError> {
        let Trust::Authorities(authorities) = trust else {
            return Ok(ServerVerifier { chains: None, listed: Vec::new() });
        };
        let unusable = |error: String| CertificateError::Unusable(error);
        let mut roots = RootCertStore::empty();
        let (_, wrong) = roots.add_parsable_certificates(authorities.iter().cloned());
        if wrong > 0 && roots.is_empty() {
            return Err(CertificateError::Encoding { number: 1 });
        }
        let builder =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), PROVIDER.clone());
        let chains = builder.build().map_err(|error| unusable(error.to_string()))?;
        Ok(ServerVerifier { chains: Some(chains), listed: authorities.clone() })
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chains) = &self.chains else { return Ok(ServerCertVerified::assertion()) };
        let verified =
            chains.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            // The second is that of an authority of the same name; others are such as a self-signed
            // certificate of an authority.
            Err(Error::InvalidCertificate(
                Invalid::UnknownIssuer | Invalid::BadSignature | Invalid::Other(_),
            )) => {
                if !self.listed.iter().any(|listed| listed == end_entity) {
                    return Err(Invalid::UnknownIssuer.into());
                }
                verify_dates(end_entity, now)?;
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &PROVIDER.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &PROVIDER.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        PROVIDER.signature_verification_algorithms.supported_schemes()
    }
}

fn verify_dates(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| Invalid::BadEncoding)?;
    let unix = |seconds: i64| {
        UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
    };
    let not_before = unix(parsed.validity().not_before.timestamp());
    let not_after = unix(parsed.validity().not_after.timestamp());
    if now < not_before {
        return Err(Invalid::NotValidYetContext { time: now, not_before }.into());
    }
    if now > not_after {
        return Err(Invalid::ExpiredContext { time: now, not_after }.into());
    }
    Ok(())
}
