//! TLS of a front door, and to a backend.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// TLS of one front door.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TlsStatus {
    /// Complete handshakes, resumed sessions included.
    pub handshakes_total: u64,
    /// Of those, resumed sessions.
    pub resumed_total: u64,
    /// The certificates in the order of the file, the default first.
    pub certificates: Vec<CertificateStatus>,
    /// The names for which this process obtains certificates itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub automatic: Vec<AutomaticStatus>,
}

/// A name for which this process obtains certificates itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AutomaticStatus {
    /// The name.
    pub name: String,
    /// `waiting` for the next attempt, without a certificate; `ordering`; or `issued`.
    pub stage: String,
    /// Failed attempts since the last success.
    pub failures: u32,
    /// The error of the last attempt, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Time of the next attempt or renewal, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try_unix_seconds: Option<u64>,
}

/// TLS to one backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BackendTlsStatus {
    /// Complete handshakes, resumed sessions included, checks not.
    pub handshakes_total: u64,
    /// Of those, resumed sessions.
    pub resumed_total: u64,
    /// End of the validity of the backend's certificate, in seconds since 1970; absent until one
    /// was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_until_unix_seconds: Option<u64>,
    /// Whole days until then; negative after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub days_left: Option<i64>,
    /// Why the last handshake failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// A certificate that a front door presents.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CertificateStatus {
    /// Its first DNS name, otherwise its subject.
    pub subject: String,
    /// Its DNS names.
    pub names: Vec<String>,
    /// The key type: `ecdsa`, `ed25519` or `rsa`.
    pub key: String,
    /// The file with the chain.
    pub chain: String,
    /// End of its validity, in seconds since 1970.
    pub valid_until_unix_seconds: u64,
    /// Whole days until then; negative after it.
    pub days_left: i64,
    /// The error of newer files, because of which this certificate is still in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The reason why the OCSP response of `ocsp` is not stapled; absent if it is, or if there is
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_stapled: Option<String>,
}
