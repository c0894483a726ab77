//! Encryption between nodes: mutual TLS, and the check of the certificate at the other end.
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

use crate::socket::Socket;

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
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
    certificates: Arc<dyn PeerCertificates>,
}

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

/// How a node stands to encryption, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// Requests are delegated unencrypted.
    Off,
    /// It does, and is believed encrypted, too.
    Accepted,
    /// It is encrypted.
    Required,
    /// Encryption is required, and there is no certificate yet, so nothing is delegated.
    Waiting,
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

impl Transport {
    /// With which delegated requests are encrypted, if they are.
    pub fn outgoing(&self) -> Option<&PeerTls> {
        match self {
            Transport::Plain | Transport::Either(_) => None,
            Transport::Encrypted(tls) => tls.as_ref(),
        }
    }

    /// With which peers may come.
    pub(crate) fn incoming(&self) -> Option<&PeerTls> {
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

    /// Whether a marker of `giver` that came from `shown`, or in the clear, may be believed if it
    /// is signed.
    pub(crate) fn admits(&self, shown: Option<&Shown>, giver: &str) -> bool {
        match (self, shown) {
            (_, Some(shown)) => shown.speaks_for(giver),
            (Transport::Plain | Transport::Either(_), None) => true,
            (Transport::Encrypted(_), None) => false,
        }
    }
}

/// The peer at the other end of an encrypted session.
#[derive(Debug)]
pub(crate) struct Shown {
    tls: PeerTls,
    certificate: CertificateDer<'static>,
    nodes: Vec<String>,
    until: Option<Instant>,
    /// The certificates' when this was looked at.
    epoch: Cell<u64>,
}

impl Shown {
    /// The peer at the other end of a socket, after the handshake.
    ///
    /// # Errors
    /// If it is not a peer.
    pub(crate) fn at(socket: &Socket, tls: &PeerTls) -> io::Result<Shown> {
        let epoch = Cell::new(tls.certificates.epoch());
        let certificate = socket.tls().and_then(|it| it.borrow().certificate());
        let certificate = certificate.ok_or_else(|| refused("no certificate"))?;
        let read = tls.certificates.read(&certificate);
        let PeerCertificate { nodes, valid_for } =
            read.ok_or_else(|| refused("a certificate that is not a peer's"))?;
        let until = Instant::now().checked_add(valid_for);
        Ok(Shown { tls: tls.clone(), certificate, nodes, until, epoch })
    }

    /// Whether it is this node.
    ///
    /// # Errors
    /// That it is another.
    pub(crate) fn is(&self, node: &str) -> io::Result<()> {
        let nodes = self.nodes.join(", ");
        let other = || refused(&format!("the certificate of {nodes} in the place of {node}'s"));
        if self.speaks_for(node) { Ok(()) } else { Err(other()) }
    }

    pub(crate) fn speaks_for(&self, node: &str) -> bool {
        self.nodes.iter().any(|it| it == node)
    }

    /// Whether a session uses this TLS, with a peer that has not been evicted since.
    pub(crate) fn is_good_for(&self, tls: &PeerTls) -> bool {
        self.tls == *tls && !self.is_out()
    }

    /// Whether it has been shut out since.
    pub(crate) fn is_out(&self) -> bool {
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
    pub(crate) fn has_ended(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }
}

/// The other end is not the expected peer.
#[derive(Debug, thiserror::Error)]
#[error("the other side has {0}")]
struct NotThePeer(String);

fn refused(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, NotThePeer(what.to_string()))
}

/// True if a session failed because of the certificate, not of the connection.
pub(crate) fn is_distrust(error: &io::Error) -> bool {
    crate::tls::is_tls_failure(error)
        || error.get_ref().is_some_and(|inner| inner.is::<NotThePeer>())
}
