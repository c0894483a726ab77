//! Certificates of clients: their verification, and their content for backends.

use std::fmt::Write;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::certificate::read_chain;
use crate::error::CertificateError;
use crate::profile::PROVIDER;

/// The client certificates that a listener asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clients {
    authorities: Vec<CertificateDer<'static>>,
    required: bool,
}

impl Clients {
    /// Certificates signed by one of these authorities, in PEM. Unless they are `required`, a
    /// client may have none.
    ///
    /// # Errors
    /// [`CertificateError`] if the text has no certificates of authorities.
    pub fn from_pem(authorities: &str, required: bool) -> Result<Clients, CertificateError> {
        let clients = Clients { authorities: read_chain(authorities)?, required };
        clients.verifier().map(|_| clients)
    }

    pub(crate) fn verifier(&self) -> Result<Arc<dyn ClientCertVerifier>, CertificateError> {
        let unusable = |error: String| CertificateError::Unusable(error);
        let mut roots = RootCertStore::empty();
        for one in &self.authorities {
            roots.add(one.clone()).map_err(|error| unusable(error.to_string()))?;
        }
        let builder =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), PROVIDER.clone());
        let builder = if self.required { builder } else { builder.allow_unauthenticated() };
        builder.build().map_err(|error| unusable(error.to_string()))
    }
}

/// Content of a client's certificate, as text for headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The subject: `CN=alice, O=Example`. Bytes other than printable ASCII, and `%`, are written
    /// as `%` and two hexadecimal digits.
    pub subject: String,
    /// SHA-256 of the certificate (DER), in hexadecimal digits.
    pub sha256: String,
}

impl ClientIdentity {
    /// Reads a certificate that was verified.
    pub fn of(certificate: &CertificateDer<'_>) -> ClientIdentity {
        let parsed = X509Certificate::from_der(certificate);
        let subject = parsed.map(|(_, it)| it.subject().to_string()).unwrap_or_default();
        let (mut escaped, mut sha256) = (String::new(), String::new());
        // Here and below: writing to a string cannot fail.
        for byte in subject.bytes() {
            let _ = match byte {
                b'%' => escaped.write_str("%25"),
                b' '..=b'~' => escaped.write_char(char::from(byte)),
                _ => write!(escaped, "%{byte:02X}"),
            };
        }
        for byte in digest(&SHA256, certificate).as_ref() {
            let _ = write!(sha256, "{byte:02x}");
        }
        ClientIdentity { subject: escaped, sha256 }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    fn certificate(name: &str) -> rcgen::Certificate {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, "Example");
        params.self_signed(&KeyPair::generate().unwrap()).unwrap()
    }

    #[test]
    fn a_subject_cannot_end_its_header() {
        for (name, subject) in [
            ("alice", "CN=alice, O=Example"),
            ("50%", "CN=50%25, O=Example"),
            ("a\r\nX-Admin: yes", "CN=a%0D%0AX-Admin: yes, O=Example"),
            ("é", "CN=%C3%A9, O=Example"),
        ] {
            let identity = ClientIdentity::of(certificate(name).der());
            assert_eq!(identity.subject, subject);
            assert_eq!(identity.sha256.len(), 64);
        }
    }

    #[test]
    fn authorities_have_to_be_certificates() {
        let pem = certificate("ca").pem();
        assert!(Clients::from_pem(&pem, true).is_ok());
        assert_eq!(Clients::from_pem("", true), Err(CertificateError::NoCertificate));
    }
}
