//! Peers of a list. Their certificates are signed by an authority of the operator, and contain
//! their names.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{Context, SHA256};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, RootCertStore};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{Fleet, PeerCredentials, PeerNames};
use crate::tls::PROVIDER;

/// An error in the files.
#[derive(Debug, thiserror::Error)]
pub enum PeerFilesError {
    /// A certificate is missing.
    #[error("no certificate in PEM")]
    NoCertificate,
    /// A key is missing.
    #[error("no private key in PEM")]
    NoKey,
    /// A certificate cannot be that of an authority.
    #[error("a certificate that cannot be an authority's ({0})")]
    Authority(rustls::Error),
    /// Certificate and key do not match.
    #[error("a key that does not go with the certificate, or is of an unknown kind ({0})")]
    Unusable(rustls::Error),
    /// The certificate is not this node's.
    #[error(
        "a certificate for {named}, and this node is `{node}`; accepted: one whose subjectAltName has a DNS name `{node}`"
    )]
    OtherNode {
        /// The name in the certificate.
        named: String,
        /// `instance.name`.
        node: String,
    },
}

#[derive(Debug)]
struct Files {
    own: Arc<CertifiedKey>,
    authorities: Arc<RootCertStore>,
}

impl PeerCredentials {
    /// Credentials from PEM: this node's certificate chain, its key, and the authorities that sign
    /// for peers.
    ///
    /// # Errors
    /// [`PeerFilesError`], with the number of the text that it concerns: 0 to 2.
    pub fn from_pem(
        certificate: &str,
        key: &str,
        authorities: &str,
        node: &str,
    ) -> Result<PeerCredentials, (usize, PeerFilesError)> {
        let chain = certificates(certificate).map_err(|error| (0, error))?;
        let named = chain.first().map(names).unwrap_or_default();
        if !named.iter().any(|it| it == node) {
            let named = if named.is_empty() { "nobody".to_string() } else { named.join(", ") };
            return Err((0, PeerFilesError::OtherNode { named, node: node.to_string() }));
        }
        let private = PrivateKeyDer::from_pem_slice(key.as_bytes());
        let private = private.map_err(|_| (1, PeerFilesError::NoKey))?;
        let own = CertifiedKey::from_der(chain, private, &PROVIDER);
        let own = Arc::new(own.map_err(|error| (1, PeerFilesError::Unusable(error)))?);
        let mut roots = RootCertStore::empty();
        for one in certificates(authorities).map_err(|error| (2, error))? {
            roots.add(one).map_err(|error| (2, PeerFilesError::Authority(error)))?;
        }
        let mut of_all = Context::new(&SHA256);
        for text in [certificate, key, authorities] {
            of_all.update(&(text.len() as u64).to_be_bytes());
            of_all.update(text.as_bytes());
        }
        let digest = of_all.finish();
        let first = digest.as_ref().first_chunk().expect("SHA-256 has 32 bytes");
        let fleet = Files { own, authorities: Arc::new(roots) };
        Ok(PeerCredentials::new(u64::from_be_bytes(*first), Arc::new(fleet)))
    }
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, PeerFilesError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    all.ok().filter(|all| !all.is_empty()).ok_or(PeerFilesError::NoCertificate)
}

/// The DNS names and addresses of a certificate, without wildcards, because each node has its own.
fn names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { return Vec::new() };
    let Ok(Some(names)) = parsed.subject_alternative_name() else { return Vec::new() };
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_string()),
        GeneralName::IPAddress([a, b, c, d]) => Some(format!("{a}.{b}.{c}.{d}")),
        GeneralName::IPAddress(bytes) => {
            let bytes: [u8; 16] = (*bytes).try_into().ok()?;
            Some(std::net::Ipv6Addr::from(bytes).to_string())
        }
        _ => None,
    };
    names.value.general_names.iter().filter_map(name).collect()
}

impl Fleet for Files {
    fn own(&self) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.own))
    }

    fn authorities(&self) -> Option<Arc<RootCertStore>> {
        Some(Arc::clone(&self.authorities))
    }

    fn read(&self, certificate: &CertificateDer<'_>) -> Result<PeerNames, CertificateError> {
        let (_, parsed) =
            X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
        let until = u64::try_from(parsed.validity().not_after.timestamp()).unwrap_or(0);
        let valid_until = UNIX_EPOCH.checked_add(Duration::from_secs(until));
        let valid_until = valid_until.unwrap_or_else(SystemTime::now);
        Ok(PeerNames { nodes: names(certificate), valid_until })
    }

    fn epoch(&self) -> u64 {
        0
    }
}
