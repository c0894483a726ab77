//! Arguments that several commands have.

use std::path::Path;
use std::str::FromStr;

/// Default path of the configuration file.
pub const DEFAULT_CONFIG: &str = "/etc/equipoise/equipoise.toml";

/// Warns on standard error if other users can read a token file, which is used nevertheless.
pub fn warn_of_token_file(file: &Path) {
    if let Some(text) = equipoise_config::token_file_too_open(file) {
        eprintln!("equipoise: warning: {text}");
    }
}

/// A backend as operators name it: `POOL/BACKEND`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendName {
    /// The pool.
    pub pool: String,
    /// The backend.
    pub backend: String,
}

/// The text does not name a backend.
#[derive(Debug, thiserror::Error)]
#[error(
    "a backend is named POOL/BACKEND, for example web/10.0.0.11:8080; `equipoise status` lists them"
)]
pub struct NotABackendName;

impl FromStr for BackendName {
    type Err = NotABackendName;

    fn from_str(text: &str) -> Result<BackendName, NotABackendName> {
        match text.split_once('/') {
            Some((pool, backend)) if !pool.is_empty() && !backend.is_empty() => {
                Ok(BackendName { pool: pool.into(), backend: backend.into() })
            }
            _ => Err(NotABackendName),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_is_named_after_its_pool() {
        let name: BackendName = "web/[::1]:80".parse().unwrap();
        assert_eq!((name.pool.as_str(), name.backend.as_str()), ("web", "[::1]:80"));
        for bad in ["web", "/b", "web/", ""] {
            assert!(bad.parse::<BackendName>().is_err(), "{bad}");
        }
    }
}
