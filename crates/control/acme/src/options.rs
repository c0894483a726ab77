//! The directory, and the names to order certificates for.

use async_trait::async_trait;

use crate::folder::AcmeFolder;

/// A directory, and the names for which it issues certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acme {
    /// URL of the directory, `https://`.
    pub directory: String,
    /// The address to which the directory may write.
    pub email: Option<String>,
    /// The authorities, in PEM, that the directory's own certificate must come from. `None`: those
    /// of the system.
    pub ca: Option<String>,
    /// The folder of account and certificates.
    pub folder: AcmeFolder,
    /// Each name once.
    pub names: Vec<OrderedName>,
    /// Those of `names` that a controller gives to nodes.
    pub for_nodes: Vec<String>,
    /// A node takes them from the controllers, and orders none.
    pub from_controllers: bool,
}

/// A name to order a certificate for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderedName {
    /// In lower case. A wildcard begins with `*.`.
    pub name: String,
    /// Ways to verify it, the best first. If it fails, the next one is tried.
    pub methods: Vec<Method>,
}

/// A way in which the directory verifies a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// A request to port 80 of the name.
    Http01,
    /// A TLS handshake with port 443 of the name.
    TlsAlpn01,
    /// A TXT record below the name, which the DNS level of this process answers.
    Dns01,
}

impl Method {
    /// The name in RFC 8555 and RFC 8737.
    pub const fn name(self) -> &'static str {
        match self {
            Method::Http01 => "http-01",
            Method::TlsAlpn01 => "tls-alpn-01",
            Method::Dns01 => "dns-01",
        }
    }
}

/// TXT records of the DNS level of this process.
#[async_trait]
pub trait TextRecords: Send + Sync {
    /// Answers with the TXT records that [`Challenges`](equipoise_tls::Challenges) has now.
    async fn publish(&self);
}
