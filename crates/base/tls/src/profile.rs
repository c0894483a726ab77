//! Versions, suites and groups by Mozilla's profiles (Server Side TLS 5.8).

use std::sync::{Arc, LazyLock};

use rustls::SupportedProtocolVersion;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::version::{TLS12, TLS13};

/// The clients to be served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// TLS 1.2 and 1.3: nearly every client of the last ten years.
    #[default]
    Intermediate,
    /// TLS 1.3 only.
    Modern,
}

static INTERMEDIATE: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];
static MODERN: &[&SupportedProtocolVersion] = &[&TLS13];

impl Profile {
    pub(crate) fn versions(self) -> &'static [&'static SupportedProtocolVersion] {
        match self {
            Profile::Intermediate => INTERMEDIATE,
            Profile::Modern => MODERN,
        }
    }
}

/// The suites of rustls are those of the profiles: AEAD with ephemeral keys. The groups are in
/// Mozilla's order, which begins with the hybrid that withstands quantum computers.
pub(crate) static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
    use aws_lc_rs::kx_group::{SECP256R1, SECP384R1, X25519, X25519MLKEM768};
    let kx_groups = vec![X25519MLKEM768, X25519, SECP256R1, SECP384R1];
    Arc::new(CryptoProvider { kx_groups, ..aws_lc_rs::default_provider() })
});
