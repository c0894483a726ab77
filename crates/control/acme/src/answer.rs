//! Answers to challenges, as members of a cluster pass them on.

use equipoise_tls::{ChallengeAnswer, Challenges};
use instant_acme::KeyAuthorization;
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use serde::{Deserialize, Serialize};

use crate::options::Method;

/// The answer to a challenge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The body of a response.
    Http01 { token: String, key_authorization: String },
    /// The digest of the key authorization, in a certificate for this name.
    TlsAlpn01 { name: String, digest: [u8; 32] },
    /// A TXT record.
    Dns01 { name: String, text: String },
}

impl Answer {
    /// The answer to a challenge of `name` with this token.
    pub(crate) fn new(
        method: Method,
        name: &str,
        token: &str,
        expected: &KeyAuthorization,
    ) -> Answer {
        let name = name.to_string();
        match method {
            Method::Http01 => {
                let key_authorization = expected.as_str().into();
                Answer::Http01 { token: token.into(), key_authorization }
            }
            Method::TlsAlpn01 => {
                let digest = expected.digest();
                let digest = digest.as_ref().try_into().expect("SHA-256 has 32 bytes");
                Answer::TlsAlpn01 { name, digest }
            }
            Method::Dns01 => {
                // A wildcard is verified at the name behind it (RFC 8555, section 8.4).
                let name = format!("_acme-challenge.{}", name.trim_start_matches("*."));
                Answer::Dns01 { name, text: expected.dns_value() }
            }
        }
    }

    /// Answers with it, until the guard is dropped. A TXT record has to be published, too.
    ///
    /// # Errors
    /// The certificate of the answer cannot be made.
    pub(crate) fn give(&self, challenges: &Challenges) -> Result<ChallengeAnswer, String> {
        match self {
            Answer::Http01 { token, key_authorization } => {
                Ok(challenges.answer_http(token, key_authorization))
            }
            Answer::TlsAlpn01 { name, digest } => handshake(challenges, name, digest),
            Answer::Dns01 { name, text } => Ok(challenges.answer_query(name, text)),
        }
    }
}

/// Answers TLS-ALPN-01 with a certificate that has the digest of the key authorization in a
/// critical extension (RFC 8737, section 3).
fn handshake(
    challenges: &Challenges,
    name: &str,
    digest: &[u8; 32],
) -> Result<ChallengeAnswer, String> {
    let made = CertificateParams::new(vec![name.to_string()]).and_then(|mut params| {
        params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
        let key = KeyPair::generate()?;
        Ok((params.self_signed(&key)?, key))
    });
    let (certificate, key) = made.map_err(|error| error.to_string())?;
    let given = challenges.answer_tls(name, certificate.der().clone(), key.into());
    given.map_err(|error| error.to_string())
}
