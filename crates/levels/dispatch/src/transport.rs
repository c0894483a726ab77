//! How delegated requests travel: encrypted or not, and which are accepted.

use equipoise_core::delegation::Encryption;
use equipoise_tls::PeerTls;

/// How delegated requests travel.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Transport {
    /// As they are: the network between nodes is trusted.
    #[default]
    Plain,
    /// Sent as they are, believed as they are and encrypted: while nodes change from one to the
    /// other.
    Either(Option<PeerTls>),
    /// Encrypted, and accepted only so. Without a certificate nothing is delegated and no peer is
    /// accepted.
    Encrypted(Option<PeerTls>),
}

impl Transport {
    /// With which delegated requests are encrypted, if they are.
    pub fn outgoing(&self) -> Option<&PeerTls> {
        match self {
            Transport::Plain | Transport::Either(_) => None,
            Transport::Encrypted(tls) => tls.as_ref(),
        }
    }

    /// With which peers may come.
    pub fn incoming(&self) -> Option<&PeerTls> {
        match self {
            Transport::Plain => None,
            Transport::Either(tls) | Transport::Encrypted(tls) => tls.as_ref(),
        }
    }

    /// Sets this node's credentials and the check of peers, where they are required and missing.
    pub fn provide(&mut self, found: &PeerTls) {
        match self {
            Transport::Plain => {}
            Transport::Either(tls) | Transport::Encrypted(tls) => {
                tls.get_or_insert_with(|| found.clone());
            }
        }
    }

    /// The state as a value of the status.
    pub(crate) fn encryption(&self) -> Encryption {
        match self {
            Transport::Plain => Encryption::Off,
            Transport::Either(_) => Encryption::Accepted,
            Transport::Encrypted(Some(_)) => Encryption::Required,
            Transport::Encrypted(None) => Encryption::Waiting,
        }
    }

    /// Whether it can be used.
    pub(crate) fn is_ready(&self) -> bool {
        !matches!(self, Transport::Encrypted(None))
    }

    /// Whether a marker of `source` may be accepted if it is signed. `nodes` are those in the
    /// certificate of the sender; `None`: it came unencrypted.
    pub(crate) fn admits(&self, nodes: Option<&[String]>, source: &str) -> bool {
        match (self, nodes) {
            (_, Some(nodes)) => nodes.iter().any(|node| node == source),
            (Transport::Plain | Transport::Either(_), None) => true,
            (Transport::Encrypted(_), None) => false,
        }
    }
}
