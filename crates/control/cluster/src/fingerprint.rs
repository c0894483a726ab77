use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// SHA-256 of a public key (its SubjectPublicKeyInfo), written in base64 for URLs.
///
/// It identifies the key and not the certificate, so a new certificate for the same key keeps it,
/// as in RFC 7469, section 2.4.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint([u8; 32]);

/// The text is not a [`Fingerprint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the fingerprint of a key; expected 43 characters of base64 (A-Z a-z 0-9 - _)")]
pub struct NotAFingerprint;

impl Fingerprint {
    /// The fingerprint of this SubjectPublicKeyInfo (DER).
    pub fn of_key(subject_public_key_info: &[u8]) -> Fingerprint {
        Fingerprint(sha256(subject_public_key_info))
    }
}

/// SHA-256.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let digest = digest(&SHA256, bytes);
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl FromStr for Fingerprint {
    type Err = NotAFingerprint;

    fn from_str(text: &str) -> Result<Fingerprint, NotAFingerprint> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| NotAFingerprint)?;
        bytes.try_into().map(Fingerprint).map_err(|_| NotAFingerprint)
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = NotAFingerprint;

    fn try_from(text: String) -> Result<Fingerprint, NotAFingerprint> {
        text.parse()
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> String {
        fingerprint.to_string()
    }
}
