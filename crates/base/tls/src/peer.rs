//! TLS between nodes: both sides show a certificate, and each checks the other's.
//!
//! TLS verifies chains, by the configurations in [`PeerTls`]. A [`PeerCertificates`] reads the
//! nodes in a certificate and whether they are still peers: when a session begins, and again after
//! its epoch rose.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ServerConfig};

/// The check of peers' certificates after their chain was verified.
pub trait PeerCertificates: fmt::Debug + Send + Sync {
    /// Content of the certificate; `None` if its holder is not a peer, or no longer.
    fn read(&self, certificate: &CertificateDer<'_>) -> Option<PeerCertificate>;

    /// Rises when [`PeerCertificates::read`] may have another answer than before.
    fn epoch(&self) -> u64;
}

/// Content of a peer's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCertificate {
    /// The nodes that it speaks for, as peers call them.
    pub nodes: Vec<String>,
    /// How long it does so yet.
    pub valid_for: Duration,
}

/// How this node encrypts what goes between it and its peers. Two are equal if they are the same
/// one or of equal `identity`.
#[derive(Clone)]
pub struct PeerTls {
    identity: u64,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    certificates: Arc<dyn PeerCertificates>,
}

impl PeerTls {
    /// By these configurations, which must demand and show certificates. A change of what they show
    /// needs no other one: `identity` stands for where it comes from.
    pub fn new(
        identity: u64,
        client: Arc<ClientConfig>,
        server: Arc<ServerConfig>,
        certificates: Arc<dyn PeerCertificates>,
    ) -> PeerTls {
        PeerTls { identity, client, server, certificates }
    }

    /// For sessions to peers.
    pub fn client(&self) -> &Arc<ClientConfig> {
        &self.client
    }

    /// For sessions of peers.
    pub fn server(&self) -> &Arc<ServerConfig> {
        &self.server
    }
}

impl PartialEq for PeerTls {
    fn eq(&self, other: &PeerTls) -> bool {
        self.identity == other.identity
    }
}

impl Eq for PeerTls {}

impl fmt::Debug for PeerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerTls({:x})", self.identity)
    }
}

/// The peer at the other end of an encrypted session.
#[derive(Debug)]
pub struct PeerIdentity {
    tls: PeerTls,
    certificate: CertificateDer<'static>,
    nodes: Vec<String>,
    until: Option<Instant>,
    /// The certificates' when this was looked at.
    epoch: Cell<u64>,
}

impl PeerIdentity {
    /// The peer with this certificate, which it showed in the handshake.
    ///
    /// # Errors
    /// If it is not a peer.
    pub fn new(
        certificate: Option<CertificateDer<'static>>,
        tls: &PeerTls,
    ) -> Result<PeerIdentity, NotThePeer> {
        let epoch = Cell::new(tls.certificates.epoch());
        let certificate = certificate.ok_or_else(|| refused("no certificate"))?;
        let read = tls.certificates.read(&certificate);
        let PeerCertificate { nodes, valid_for } =
            read.ok_or_else(|| refused("a certificate that is not a peer's"))?;
        let until = Instant::now().checked_add(valid_for);
        Ok(PeerIdentity { tls: tls.clone(), certificate, nodes, until, epoch })
    }

    /// Whether it is this node.
    ///
    /// # Errors
    /// That it is another.
    pub fn is(&self, node: &str) -> Result<(), NotThePeer> {
        let nodes = self.nodes.join(", ");
        let other = || refused(&format!("the certificate of {nodes} in the place of {node}'s"));
        if self.speaks_for(node) { Ok(()) } else { Err(other()) }
    }

    /// The nodes that it speaks for.
    pub fn nodes(&self) -> &[String] {
        &self.nodes
    }

    fn speaks_for(&self, node: &str) -> bool {
        self.nodes.iter().any(|it| it == node)
    }

    /// Whether a session uses this TLS, with a peer that has not been evicted since.
    pub fn is_good_for(&self, tls: &PeerTls) -> bool {
        self.tls == *tls && !self.is_out()
    }

    /// Whether it has been shut out since.
    pub fn is_out(&self) -> bool {
        let epoch = self.tls.certificates.epoch();
        if epoch == self.epoch.get() {
            return false;
        }
        let is_out = self.tls.certificates.read(&self.certificate).is_none();
        if !is_out {
            self.epoch.set(epoch);
        }
        is_out
    }

    /// True if its certificate has expired, so that a new session is needed.
    pub fn has_ended(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }
}

/// The other end is not the expected peer.
#[derive(Debug, thiserror::Error)]
#[error("the other side has {0}")]
pub struct NotThePeer(String);

fn refused(what: &str) -> NotThePeer {
    NotThePeer(what.to_string())
}

impl From<NotThePeer> for io::Error {
    fn from(error: NotThePeer) -> io::Error {
        io::Error::new(io::ErrorKind::PermissionDenied, error)
    }
}
