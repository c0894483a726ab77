//! The cluster's own certificate authority.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData,
    SanType, SerialNumber,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{
    CertificateDer, CertificateSigningRequestDer, PrivateKeyDer, PrivatePkcs8KeyDer,
};

use crate::identity::NotCertified;
use crate::{Certified, Fingerprint, FolderError, Identity, Name, Role, StateFile, StateFolder};

const DAY: Duration = Duration::from_secs(86_400);

/// Validity of the authority's certificate. [`Authority::renewed`] makes a new one.
pub const AUTHORITY_LIFETIME: Duration = DAY.saturating_mul(3650);

/// Certificates are valid from a little before their creation, because machines' clocks differ.
const CLOCKS_DIFFER_MAX: Duration = Duration::from_secs(300);

/// The authority cannot be read from its folder.
#[derive(Debug, thiserror::Error)]
pub enum CannotLoadAuthority {
    /// This machine does not have it.
    #[error(
        "this machine does not have the cluster's certificate authority ({path} does not exist): on the first controller, \
         create it with `equipoise cluster init`; to the others, copy ca.pem and ca.key from there"
    )]
    Missing {
        /// The file's path.
        path: PathBuf,
    },
    /// A file cannot be read. The error has its own remedy.
    #[error(transparent)]
    Folder(FolderError),
    /// The files are no authority.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
}

/// Signs the certificates of one cluster.
///
/// Its key can impersonate any node or controller, so only controllers have it. Its `Debug` does
/// not show the key.
pub struct Authority {
    certificate: CertificateDer<'static>,
    key: KeyPair,
    certified: Certified,
}

/// A certificate with its key, ready for TLS.
pub struct Issued {
    /// The certificate, then the authority's.
    pub chain: Vec<CertificateDer<'static>>,
    /// Its key.
    pub key: PrivateKeyDer<'static>,
    /// Content of its certificate.
    pub certified: Certified,
}

/// The reason why a certificate cannot be signed, or the authority not be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The text is not the expected PEM.
    #[error("the authority's {what} is not valid PEM")]
    Pem {
        /// Certificate or key.
        what: &'static str,
    },
    /// The certificate was not made by this program.
    #[error("the authority's certificate was not made by `equipoise cluster init`")]
    Foreign(#[source] NotCertified),
    /// The certificate has another role.
    #[error("the file of the authority's certificate has the certificate of a {0}; check its path")]
    Role(Role),
    /// Certificate and key are of different authorities.
    #[error(
        "the authority's certificate and key do not match; both must be of the same `equipoise cluster init`"
    )]
    Mismatch,
    /// The name cannot be in a certificate.
    #[error("{0:?} cannot be a name in a certificate; accepted: host names and IP addresses")]
    Host(String),
    /// The request is not a signing request, or not signed by its own key.
    #[error(
        "the signing request is not valid; expected PKCS #10, signed by its own key, without unusual extensions"
    )]
    Request,
    /// The library reported an error.
    #[error("cannot make a certificate")]
    Signing(#[from] rcgen::Error),
}

impl Authority {
    /// The authority of a new cluster, with a new key.
    ///
    /// # Errors
    /// [`AuthorityError::Signing`].
    pub fn new(cluster: &Name, now: SystemTime) -> Result<Authority, AuthorityError> {
        Authority::with_key(cluster, KeyPair::generate()?, now)
    }

    fn with_key(
        cluster: &Name,
        key: KeyPair,
        now: SystemTime,
    ) -> Result<Authority, AuthorityError> {
        let name = cluster.clone();
        let identity = Identity { cluster: cluster.clone(), role: Role::Authority, name };
        let mut params = parameters(&identity, &[], now, AUTHORITY_LIFETIME)?;
        // The name depends on the key alone, so that a renewed certificate chains like the first.
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, format!("equipoise cluster {cluster}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?.der().clone();
        let certified = Certified::of(&certificate).map_err(AuthorityError::Foreign)?;
        Ok(Authority { certificate, key, certified })
    }

    /// The authority with the texts of [`Authority::certificate_pem`] and [`Authority::key_pem`].
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn from_pem(certificate: &str, key: &str) -> Result<Authority, AuthorityError> {
        let what = "certificate";
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes())
            .map_err(|_| AuthorityError::Pem { what })?;
        let certified = Certified::of(&certificate).map_err(AuthorityError::Foreign)?;
        if certified.identity.role != Role::Authority {
            return Err(AuthorityError::Role(certified.identity.role));
        }
        let key = KeyPair::from_pem(key).map_err(|_| AuthorityError::Pem { what: "key" })?;
        if Fingerprint::of_key(&key.subject_public_key_info()) != certified.key {
            return Err(AuthorityError::Mismatch);
        }
        Ok(Authority { certificate, key, certified })
    }

    /// Reads the authority from a folder.
    ///
    /// # Errors
    /// A file is missing, cannot be read, or is no authority.
    pub fn load(folder: &StateFolder) -> Result<Authority, CannotLoadAuthority> {
        let read = |file| {
            folder.read(file).map_err(|error| match error {
                FolderError::Missing { path } => CannotLoadAuthority::Missing { path },
                other => CannotLoadAuthority::Folder(other),
            })
        };
        let (certificate, key) =
            (read(StateFile::AuthorityCertificate)?, read(StateFile::AuthorityKey)?);
        Ok(Authority::from_pem(&certificate, &key)?)
    }

    /// The same key in a certificate with a new validity. Earlier signatures stay valid, also in
    /// tokens.
    ///
    /// # Errors
    /// [`AuthorityError::Signing`].
    pub fn renewed(self, now: SystemTime) -> Result<Authority, AuthorityError> {
        Authority::with_key(&self.certified.identity.cluster, self.key, now)
    }

    /// The name of the cluster.
    pub fn cluster(&self) -> &Name {
        &self.certified.identity.cluster
    }

    /// Its certificate.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Content of its certificate.
    pub fn certified(&self) -> &Certified {
        &self.certified
    }

    /// The fingerprint by which joining nodes recognize it.
    pub fn fingerprint(&self) -> Fingerprint {
        self.certified.key
    }

    /// Its certificate, as text.
    pub fn certificate_pem(&self) -> String {
        certificate_pem(&self.certificate)
    }

    /// Its key, as text. It is the cluster's only secret.
    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// A secret that only machines with its key know. It stays the same when the authority is
    /// renewed.
    pub(crate) fn secret(&self, purpose: &str) -> [u8; 32] {
        let mut secret = [0; 32];
        let key = Salt::new(HKDF_SHA256, b"equipoise cluster").extract(self.key.serialized_der());
        let (info, length) = ([purpose.as_bytes()], HKDF_SHA256);
        let filled = key.expand(&info, length).and_then(|it| it.fill(&mut secret));
        filled.expect("32 bytes are the length of SHA-256");
        secret
    }

    /// Issues a controller's certificate with a new key. Nodes reach it by these host names and
    /// addresses.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn issue_controller(
        &self,
        name: &Name,
        hosts: &[String],
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<Issued, AuthorityError> {
        self.issue(Role::Controller, name, hosts, now, lifetime)
    }

    /// A certificate for one command of an operator.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn issue_operator(&self, name: &Name, now: SystemTime) -> Result<Issued, AuthorityError> {
        self.issue(Role::Operator, name, &[], now, Duration::from_secs(300))
    }

    /// Issues a certificate for a controller as a node, with a new key, because it reports to other
    /// controllers as a node.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn issue_node(
        &self,
        name: &Name,
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<Issued, AuthorityError> {
        self.issue(Role::Node, name, &[], now, lifetime)
    }

    fn issue(
        &self,
        role: Role,
        name: &Name,
        hosts: &[String],
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<Issued, AuthorityError> {
        let key = KeyPair::generate()?;
        let certificate = self.sign(role, name, hosts, &key, now, lifetime)?;
        let certified = Certified::of(&certificate).map_err(AuthorityError::Foreign)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Ok(Issued { chain: vec![certificate, self.certificate.clone()], key, certified })
    }

    /// A node's certificate for the key of its signing request (DER). Only the key of the request
    /// is used: the caller has verified the node's identity.
    ///
    /// # Errors
    /// [`AuthorityError::Request`] if it is not a signing request.
    pub fn sign_node(
        &self,
        request: &SigningRequest,
        name: &Name,
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<CertificateDer<'static>, AuthorityError> {
        self.sign(Role::Node, name, &[], &request.0.public_key, now, lifetime)
    }

    fn sign(
        &self,
        role: Role,
        name: &Name,
        hosts: &[String],
        key: &impl PublicKeyData,
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<CertificateDer<'static>, AuthorityError> {
        let identity = Identity { cluster: self.cluster().clone(), role, name: name.clone() };
        // A certificate that outlives its signer is refused everywhere, with a misleading message.
        let left = self.certified.valid_until.duration_since(now).unwrap_or_default();
        let mut params = parameters(&identity, hosts, now, lifetime.min(left))?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = match role {
            // A controller is a client of others where it asks them for members.
            Role::Controller => {
                vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth]
            }
            _ => vec![ExtendedKeyUsagePurpose::ClientAuth],
        };
        params.use_authority_key_identifier_extension = true;
        let issuer = Issuer::from_ca_cert_der(&self.certificate, &self.key)?;
        Ok(params.signed_by(key, &issuer)?.der().clone())
    }
}

/// A checked PKCS #10 request: its sender has the key that it names.
pub struct SigningRequest(CertificateSigningRequestParams);

impl SigningRequest {
    /// Parses DER and checks the signature.
    ///
    /// # Errors
    /// [`AuthorityError::Request`].
    pub fn from_der(der: &[u8]) -> Result<SigningRequest, AuthorityError> {
        let der = CertificateSigningRequestDer::from(der);
        let parsed = CertificateSigningRequestParams::from_der(&der);
        parsed.map(SigningRequest).map_err(|_| AuthorityError::Request)
    }

    /// Of the key in it.
    pub fn key(&self) -> Fingerprint {
        Fingerprint::of_key(&self.0.public_key.subject_public_key_info())
    }
}

fn parameters(
    identity: &Identity,
    hosts: &[String],
    now: SystemTime,
    lifetime: Duration,
) -> Result<CertificateParams, AuthorityError> {
    let mut params = CertificateParams::default();
    params.not_before = (now - CLOCKS_DIFFER_MAX).into();
    params.not_after = (now + lifetime).into();
    params.serial_number = Some(SerialNumber::from_slice(&serial()));
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, identity.name.as_str());
    params.distinguished_name.push(DnType::OrganizationalUnitName, identity.role.to_string());
    params.distinguished_name.push(DnType::OrganizationName, identity.cluster.as_str());
    let uri = identity.to_string();
    let text = |text: &str| text.try_into().map_err(|_| AuthorityError::Host(text.to_string()));
    params.subject_alt_names.push(SanType::URI(text(&uri)?));
    for host in hosts {
        let name = match host.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(text(host)?),
        };
        params.subject_alt_names.push(name);
    }
    Ok(params)
}

/// Positive, and not guessable (CA/Browser Forum, section 7.1: at least 64 random bits).
fn serial() -> [u8; 16] {
    let mut bytes: [u8; 16] = rand::random();
    bytes[0] = bytes[0] & 0x7f | 0x40;
    bytes
}

/// A certificate as PEM text.
pub(crate) fn certificate_pem(certificate: &CertificateDer<'_>) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(certificate);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("certified", &self.certified).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Issued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issued").field("certified", &self.certified).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for SigningRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SigningRequest").field(&self.key()).finish()
    }
}

#[cfg(test)]
mod tests;
