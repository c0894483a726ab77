//! One certificate: its chain, its key and its content.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use rustls::SignatureAlgorithm;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SigningKey};
use x509_parser::error::X509Error;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::public_key::PublicKey;
use x509_parser::x509::{SubjectPublicKeyInfo, X509Name};

use crate::error::CertificateError;
use crate::fault::is_visible;
use crate::ocsp::{self, OcspError, Validity, time};
use crate::profile::PROVIDER;

/// The kind of a key, in the order of preference: ECDSA and Ed25519 cost a fraction of the CPU time
/// of RSA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyKind {
    /// On a curve of NIST.
    Ecdsa,
    /// On Curve25519.
    Ed25519,
    /// Of any length.
    Rsa,
}

impl KeyKind {
    /// The name in status and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            KeyKind::Ecdsa => "ecdsa",
            KeyKind::Ed25519 => "ed25519",
            KeyKind::Rsa => "rsa",
        }
    }
}

/// The time before the end of a certificate from which on there are warnings.
const EXPIRES_SOON: Duration = Duration::from_secs(21 * 86_400);

/// The files of a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CertificateFiles {
    /// The certificate, then those of its issuers.
    pub chain: PathBuf,
    /// The private key; `None`: `chain` has it.
    pub key: Option<PathBuf>,
    /// An OCSP response to staple.
    pub ocsp: Option<PathBuf>,
}

impl CertificateFiles {
    /// Every file once.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let all = [Some(&self.chain), self.key.as_ref(), self.ocsp.as_ref()];
        all.into_iter().flatten().map(PathBuf::as_path)
    }
}

/// A certificate chain with its key.
#[derive(Clone)]
pub struct Certificate {
    key: Arc<CertifiedKey>,
    kind: KeyKind,
    subject: String,
    names: Vec<String>,
    has_other_names: bool,
    valid_from: SystemTime,
    valid_until: SystemTime,
    files: Option<Arc<CertificateFiles>>,
    /// The response of `files.ocsp`, or the reason why there is none.
    staple: Option<Result<Staple, OcspError>>,
}

/// An OCSP response that goes with a certificate.
#[derive(Clone)]
struct Staple {
    /// The certificate and its key, with the response.
    key: Arc<CertifiedKey>,
    validity: Validity,
}

impl PartialEq for Staple {
    fn eq(&self, other: &Staple) -> bool {
        self.key.ocsp == other.key.ocsp
    }
}

impl Certificate {
    /// Reads the chain, the server's certificate first, and the key. Both may be in one text.
    ///
    /// # Errors
    /// [`CertificateError`], for the text that [`CertificateError::part`] names.
    pub fn from_pem(chain: &str, key: &str) -> Result<Certificate, CertificateError> {
        let chain = read_chain(chain)?;
        let mut parsed = Vec::with_capacity(chain.len());
        for (place, der) in chain.iter().enumerate() {
            let (_, one) = X509Certificate::from_der(der)
                .map_err(|_| CertificateError::Encoding { number: place + 1 })?;
            parsed.push(one);
        }
        check_order(&parsed)?;
        let private = read_key(key)?;
        let private = PROVIDER.key_provider.load_private_key(private);
        let private = private.map_err(|_| CertificateError::UnusableKey)?;
        check_key(&*private, &parsed)?;
        let kind = match private.algorithm() {
            SignatureAlgorithm::ECDSA => KeyKind::Ecdsa,
            SignatureAlgorithm::ED25519 => KeyKind::Ed25519,
            SignatureAlgorithm::RSA => KeyKind::Rsa,
            _ => return Err(CertificateError::UnusableKey),
        };
        let leaf = &parsed[0];
        let subject = subject_of(leaf);
        let names = dns_names(leaf);
        let has_other_names = names.len() != alternative_names(leaf);
        let valid_from = time(leaf.validity().not_before.timestamp());
        let valid_until = time(leaf.validity().not_after.timestamp());
        drop(parsed);
        let key = CertifiedKey::new(chain, private);
        match key.keys_match() {
            Ok(()) | Err(rustls::Error::InconsistentKeys(_)) => {}
            Err(error) => return Err(CertificateError::Unusable(error.to_string())),
        }
        let key = Arc::new(key);
        let (files, staple) = (None, None);
        Ok(Certificate {
            key,
            kind,
            subject,
            names,
            has_other_names,
            valid_from,
            valid_until,
            files,
            staple,
        })
    }

    pub(crate) fn of_files(self, files: CertificateFiles) -> Certificate {
        Certificate { files: Some(Arc::new(files)), ..self }
    }

    /// The files that it was read from.
    pub fn files(&self) -> Option<&CertificateFiles> {
        self.files.as_deref()
    }

    /// The same with the OCSP response of its files, as `read` reads it.
    pub fn stapled(self, read: impl Fn(&Path) -> io::Result<Vec<u8>>) -> Certificate {
        let path = self.files.as_ref().and_then(|files| files.ocsp.as_deref());
        let staple = path.map(|path| match read(path) {
            Ok(response) => self.staple(response),
            Err(error) => Err(OcspError::Read(error.to_string())),
        });
        Certificate { staple, ..self }
    }

    fn staple(&self, response: Vec<u8>) -> Result<Staple, OcspError> {
        let chain: Vec<&[u8]> = self.key.cert.iter().map(AsRef::as_ref).collect();
        let validity = ocsp::validity(&response, &chain)?;
        let mut key = CertifiedKey::clone(&self.key);
        key.ocsp = Some(response);
        Ok(Staple { key: Arc::new(key), validity })
    }

    /// The reason why the OCSP response of its files is not stapled; `None`: it is, or there is no
    /// such file. The text begins with the file.
    pub fn staple_problem(&self, now: SystemTime) -> Option<String> {
        let error = match self.staple.as_ref()? {
            Ok(staple) => staple.validity.fault(now)?,
            Err(error) => error.clone(),
        };
        let path = self.files.as_ref().and_then(|files| files.ocsp.as_deref())?;
        Some(format!("\"{}\" {error}", path.display()))
    }

    /// The chain and the key.
    pub(crate) fn key(&self) -> &Arc<CertifiedKey> {
        &self.key
    }

    /// The chain and the key for a handshake, with the OCSP response while that is valid.
    pub(crate) fn presented(&self, now: SystemTime) -> &Arc<CertifiedKey> {
        match &self.staple {
            Some(Ok(staple)) if staple.validity.fault(now).is_none() => &staple.key,
            _ => &self.key,
        }
    }

    /// The kind of its key.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// Its first DNS name, otherwise its subject.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// The names that a ticket is for: those in DNS; with other names, or without any, also the
    /// digest of the certificate.
    pub(crate) fn ticket_names(&self) -> Vec<String> {
        let mut names = self.names.clone();
        if names.is_empty() || self.has_other_names {
            names.push(format!("sha256:{}", fingerprint(&self.key.cert[0])));
        }
        names
    }

    /// The DNS names of its subjectAltName in lower case, wildcards included.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The reason to warn about its validity. The text continues "a certificate".
    pub fn doubt(&self, now: SystemTime) -> Option<String> {
        match self.valid_from > now {
            true => Some(format!("that becomes valid in {} days", days(now, self.valid_from))),
            false => expiry(self.valid_until, now)
                .filter(|_| self.expires_soon(now))
                .map(|text| format!("that {text}")),
        }
    }

    /// Certificates of six days are renewed every four: for them the last quarter is soon.
    fn expires_soon(&self, now: SystemTime) -> bool {
        let lifetime = self.valid_until.duration_since(self.valid_from).unwrap_or_default();
        self.valid_until < now + EXPIRES_SOON.min(lifetime / 4)
    }

    /// Beginning of its validity.
    pub fn valid_from(&self) -> SystemTime {
        self.valid_from
    }

    /// End of its validity.
    pub fn valid_until(&self) -> SystemTime {
        self.valid_until
    }
}

/// The reason to warn about a certificate that is valid until then. The text continues "it".
pub fn expiry(valid_until: SystemTime, now: SystemTime) -> Option<String> {
    if valid_until < now {
        Some(format!("expired {} days ago", days(valid_until, now)))
    } else if valid_until < now + EXPIRES_SOON {
        Some(format!("expires in {} days", days(now, valid_until)))
    } else {
        None
    }
}

/// The end of the validity of a certificate that a peer presented; `None` if it cannot be decoded.
pub fn valid_until(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    Some(time(parsed.validity().not_after.timestamp()))
}

fn days(from: SystemTime, to: SystemTime) -> u64 {
    to.duration_since(from).unwrap_or_default().as_secs() / 86_400
}

impl PartialEq for Certificate {
    /// The chain determines the key, because they match.
    fn eq(&self, other: &Certificate) -> bool {
        self.key.cert == other.key.cert && self.files == other.files && self.staple == other.staple
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificate({}, {})", self.subject, self.kind.name())
    }
}

/// The DNS names of the first certificate of a chain in PEM, in lower case.
///
/// # Errors
/// [`CertificateError`] if the text has no certificate.
pub fn chain_names(pem: &str) -> Result<Vec<String>, CertificateError> {
    let chain = read_chain(pem)?;
    let parsed = X509Certificate::from_der(&chain[0]);
    let (_, leaf) = parsed.map_err(|_| CertificateError::Encoding { number: 1 })?;
    Ok(dns_names(&leaf))
}

pub(crate) fn read_chain(pem: &str) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    // Editors of other systems begin a text with this mark.
    let pem = pem.trim_start_matches('\u{feff}');
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let all = all.map_err(|_| CertificateError::Pem)?;
    if all.is_empty() { Err(CertificateError::NoCertificate) } else { Ok(all) }
}

fn read_key(pem: &str) -> Result<PrivateKeyDer<'static>, CertificateError> {
    let pem = pem.trim_start_matches('\u{feff}');
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| {
        let is_encrypted = pem.contains("ENCRYPTED");
        if is_encrypted { CertificateError::EncryptedKey } else { CertificateError::NoKey }
    })
}

/// Checks that each certificate is followed by that of its issuer, and signed with its key.
fn check_order(chain: &[X509Certificate<'_>]) -> Result<(), CertificateError> {
    for (place, pair) in chain.windows(2).enumerate() {
        if pair[0].issuer().as_raw() != pair[1].subject().as_raw() {
            let (number, issuer) = (place + 1, shown(pair[0].issuer()));
            return Err(CertificateError::Chain { number, issuer, next: shown(pair[1].subject()) });
        }
        if !may_be_signed_by(&pair[0], pair[1].public_key()) {
            let (number, issuer) = (place + 1, shown(pair[0].issuer()));
            return Err(CertificateError::Signature { number, issuer });
        }
    }
    Ok(())
}

/// False if a key has not signed a certificate. Signatures of kinds that this process does not
/// verify pass.
fn may_be_signed_by(certificate: &X509Certificate<'_>, key: &SubjectPublicKeyInfo<'_>) -> bool {
    let is_short = matches!(key.parsed(), Ok(PublicKey::RSA(rsa)) if rsa.key_size() < 2048);
    let verified = certificate.verify_signature(Some(key));
    is_short || !matches!(verified, Err(X509Error::SignatureVerificationError))
}

/// Checks that the key is that of the first certificate.
fn check_key(key: &dyn SigningKey, chain: &[X509Certificate<'_>]) -> Result<(), CertificateError> {
    let Some(public) = key.public_key() else { return Ok(()) };
    let is_of = |one: &X509Certificate<'_>| one.public_key().raw == public.as_ref();
    match chain.iter().position(is_of) {
        Some(0) => Ok(()),
        Some(place) => Err(CertificateError::KeyOfOther { number: place + 1 }),
        None => {
            let leaf = &chain[0];
            let of_key = SubjectPublicKeyInfo::from_der(&public);
            Err(CertificateError::KeyMismatch {
                key: of_key.map_or_else(|_| "of an unknown kind".into(), |(_, it)| describe(&it)),
                certificate: describe(leaf.public_key()),
                subject: subject_of(leaf),
            })
        }
    }
}

/// The kind and the length of a public key.
fn describe(key: &SubjectPublicKeyInfo<'_>) -> String {
    match key.parsed() {
        Ok(PublicKey::RSA(key)) => format!("RSA, {} bits", key.key_size()),
        Ok(PublicKey::EC(key)) => format!("ECDSA, {} bits", key.key_size()),
        _ if key.algorithm.algorithm.to_id_string() == "1.3.101.112" => "Ed25519".into(),
        _ => "of an unknown kind".into(),
    }
}

fn subject_of(certificate: &X509Certificate<'_>) -> String {
    let name = dns_names(certificate).into_iter().next();
    name.unwrap_or_else(|| shown(certificate.subject()))
}

fn shown(name: &X509Name<'_>) -> String {
    match name.to_string() {
        empty if empty.is_empty() => "(no name)".into(),
        text => text.chars().filter(is_visible).take(200).collect(),
    }
}

/// The SHA-256 digest of a certificate in hexadecimal digits.
pub(crate) fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    digest(&SHA256, certificate).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn alternative_names(certificate: &X509Certificate<'_>) -> usize {
    let names = certificate.subject_alternative_name().ok().flatten();
    names.map_or(0, |it| it.value.general_names.len())
}

fn dns_names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return Vec::new() };
    let dns = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    };
    names.value.general_names.iter().filter_map(dns).collect()
}

#[cfg(test)]
mod tests;
