//! Errors of certificates and keys.

/// The text at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The certificates.
    Chain,
    /// The private key.
    Key,
}

/// The reason why a certificate cannot be used. The texts continue "the file has".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// The text has no certificate.
    #[error("no certificate in PEM (-----BEGIN CERTIFICATE-----)")]
    NoCertificate,
    /// A block of PEM is damaged.
    #[error("a block of PEM that cannot be decoded")]
    Pem,
    /// A certificate is not X.509.
    #[error("a certificate (number {number} in the file) that cannot be decoded")]
    Encoding {
        /// Its place in the text, from 1.
        number: usize,
    },
    /// A certificate is not followed by that of its issuer.
    #[error(
        "a chain that does not match: certificate {number} was issued by `{issuer}`, and the next one is that of `{next}`; \
         accepted: the server's certificate, then the certificate of each issuer"
    )]
    Chain {
        /// The place of the certificate, from 1.
        number: usize,
        /// Its issuer.
        issuer: String,
        /// The subject of the next certificate.
        next: String,
    },
    /// A certificate is not signed by the one that follows.
    #[error(
        "a chain that does not match: certificate {number} names `{issuer}` as its issuer, and the next one has that name, but \
         another key than the one that signed it; accepted: the certificate of the issuer that has this key"
    )]
    Signature {
        /// The place of the certificate, from 1.
        number: usize,
        /// Its issuer.
        issuer: String,
    },
    /// The text has no private key.
    #[error("no private key in PEM (-----BEGIN PRIVATE KEY-----)")]
    NoKey,
    /// The private key needs a passphrase.
    #[error("an encrypted private key; accepted: a key without a passphrase")]
    EncryptedKey,
    /// The private key is of a kind that TLS does not use.
    #[error(
        "a private key that cannot be used; accepted: ECDSA (P-256, P-384, P-521), Ed25519, RSA of 2048 bits or more"
    )]
    UnusableKey,
    /// Key and certificate do not belong together.
    #[error("a key ({key}) that does not match the certificate `{subject}` ({certificate})")]
    KeyMismatch {
        /// The kind of the key.
        key: String,
        /// The kind of the certificate's key.
        certificate: String,
        /// The subject of the certificate.
        subject: String,
    },
    /// The key is that of another certificate of the chain.
    #[error("the key of certificate {number} in the chain; accepted: that certificate first")]
    KeyOfOther {
        /// The place of the certificate, from 1.
        number: usize,
    },
    /// rustls rejects the certificate.
    #[error("a certificate that cannot be used: {0}")]
    Unusable(String),
}

impl CertificateError {
    /// The text at fault.
    pub fn part(&self) -> Part {
        match self {
            CertificateError::NoKey
            | CertificateError::EncryptedKey
            | CertificateError::UnusableKey
            | CertificateError::KeyMismatch { .. }
            | CertificateError::KeyOfOther { .. } => Part::Key,
            _ => Part::Chain,
        }
    }
}
