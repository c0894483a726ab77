//! The controller's side: issues certificates and tokens, receives reports, sends instructions.

mod connections;
mod evictions;
mod join;
mod noting;
mod office;
mod operator;
mod peers;
mod routes;
mod stream;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use equipoise_admission::{Admission, Limits};
use equipoise_basics::{Transport, explain_listen, lock};
use equipoise_controller::{Intake, NodeReport};
use equipoise_store::{SealedStore, Store};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::attempts::{AttemptLimits, Attempts};
use crate::certificates::{CertificateDesk, NoCertificates};
use crate::peer::Members;
use crate::tls::{Renewable, TlsError, server};
use crate::{Authority, AuthorityError, Journal, Name, NoJournal, PeerCredentials, Tokens};
use evictions::Evictions;
pub use office::{Office, OfficeError};
use stream::Encoded;
pub(crate) use stream::edition;

/// Options of a controller's cluster API.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The address on which to listen.
    pub listen: SocketAddr,
    /// Name of the controller.
    pub name: Name,
    /// Host names and addresses by which nodes reach it.
    pub hosts: Vec<String>,
    /// The host by which other controllers reach it, one of `hosts`, so that each of their own
    /// nodes reports to all. `None`: it is the only controller.
    pub advertise: Option<String>,
    /// Validity of a node's certificate. It is renewed after two thirds.
    pub node_lifetime: Duration,
    /// Validity of the controller's own certificate; likewise.
    pub own_lifetime: Duration,
    /// Interval between comments on a quiet stream of instructions.
    pub keep_alive: Duration,
    /// Limits of load.
    pub limits: ServerLimits,
    /// The journal of changes.
    pub journal: Arc<dyn Journal>,
    /// Certificates of front doors for nodes.
    pub certificates: Arc<dyn CertificateDesk>,
}

impl ServerOptions {
    /// Options with certificates of a day, a comment each second, and no journal.
    pub fn new(listen: SocketAddr, name: Name, hosts: Vec<String>) -> ServerOptions {
        ServerOptions {
            listen,
            name,
            hosts,
            advertise: None,
            node_lifetime: Duration::from_secs(86_400),
            own_lifetime: Duration::from_secs(86_400),
            keep_alive: Duration::from_secs(1),
            limits: ServerLimits::default(),
            journal: Arc::new(NoJournal),
            certificates: Arc::new(NoCertificates),
        }
    }
}

/// Limits and timeouts of a controller's cluster API.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServerLimits {
    /// Greatest number of connections.
    pub connections_max: usize,
    /// Largest number of connections without a certificate, or before the handshake.
    pub unproven_max: usize,
    /// Of those, the greatest number from one address, or from one IPv6 /64.
    pub unproven_by_address_max: usize,
    /// Greatest number of connections of one member.
    pub by_member_max: usize,
    /// Timeout of the TLS handshake.
    pub handshake_timeout: Duration,
    /// Longest lifetime of a connection without a certificate.
    pub unproven_lifetime: Duration,
    /// Timeout of the head of the next request, idle time included.
    pub head_timeout: Duration,
    /// Timeout of a request's body.
    pub body_timeout: Duration,
    /// Time in which sent bytes must be acknowledged.
    pub send_timeout: Duration,
    /// Limits of attempts to join.
    pub attempts: AttemptLimits,
}

impl ServerLimits {
    fn admission(&self) -> Limits {
        Limits {
            connections_max: self.connections_max,
            unproven_max: self.unproven_max,
            unproven_by_source_max: self.unproven_by_address_max,
            by_member_max: self.by_member_max,
        }
    }
}

impl Default for ServerLimits {
    fn default() -> ServerLimits {
        ServerLimits {
            connections_max: 8192,
            unproven_max: 256,
            unproven_by_address_max: 64,
            by_member_max: 16,
            handshake_timeout: Duration::from_secs(5),
            unproven_lifetime: Duration::from_secs(15),
            head_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(10),
            send_timeout: Duration::from_secs(20),
            attempts: AttemptLimits::default(),
        }
    }
}

/// The reason why a controller cannot serve the cluster.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is not available.
    #[error("cannot listen for the cluster on {address} (option `cluster.listen`)")]
    Listen {
        /// The configured address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The certificate cannot be made.
    #[error("cannot make the controller's certificate")]
    Authority(#[from] AuthorityError),
    /// TLS does not accept the certificates.
    #[error("cannot set up TLS for the cluster")]
    Tls(#[from] TlsError),
}

/// State shared by all connections.
pub(crate) struct Shared {
    pub(crate) options: ServerOptions,
    pub(crate) authority: Arc<Authority>,
    pub(crate) tokens: Tokens,
    pub(crate) intake: Arc<dyn Intake>,
    pub(crate) encoded: watch::Receiver<Option<Encoded>>,
    pub(crate) evictions: watch::Receiver<Evictions>,
    pub(crate) stopping: watch::Receiver<bool>,
    pub(crate) admission: Admission<IpAddr, Name>,
    attempts: Mutex<Attempts>,
    /// Limit of journal lines about refused callers.
    lines: Mutex<Attempts>,
    counts: Mutex<BTreeMap<&'static str, u64>>,
    /// Bytes of events sent to nodes.
    sent_bytes: AtomicU64,
    started: Instant,
}

impl Shared {
    /// Increments the counter with this name.
    pub(crate) fn count(&self, what: &'static str) {
        let mut counts = lock(&self.counts);
        *counts.entry(what).or_default() += 1;
    }

    pub(crate) fn count_sent(&self, bytes: usize) {
        self.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn may_attempt(&self, from: IpAddr) -> bool {
        let mut attempts = lock(&self.attempts);
        attempts.take(from, self.started.elapsed())
    }

    /// True if a refused caller gets a line in the journal. The limit is that of attempts to join,
    /// so that a caller cannot fill the log.
    pub(crate) fn may_be_noted(&self, from: IpAddr) -> bool {
        let mut lines = lock(&self.lines);
        lines.take(from, self.started.elapsed())
    }

    pub(crate) fn journal(&self) -> &dyn Journal {
        &*self.options.journal
    }

    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        let counts = lock(&self.counts);
        counts.iter().map(|(what, count)| ((*what).to_string(), *count)).collect()
    }
}

/// The cluster API of a controller, until it is stopped or dropped.
pub struct ClusterServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    peers: peers::Peers,
    tasks: Vec<JoinHandle<()>>,
}

impl ClusterServer {
    /// Starts to listen, with a certificate made now.
    ///
    /// # Errors
    /// [`ServeError`].
    pub async fn start(
        options: ServerOptions,
        authority: Authority,
        store: Arc<dyn Store>,
        intake: Arc<dyn Intake>,
    ) -> Result<ClusterServer, ServeError> {
        let own = issue(&options, &authority)?;
        let renew_at = renewal(&own.certified, options.own_lifetime);
        let certificate = Arc::new(Renewable::new(own)?);
        let config = server(authority.certificate(), Arc::clone(&certificate))?;
        let failed = |source| ServeError::Listen {
            address: options.listen,
            source: explain_listen(source, options.listen, Transport::Tcp),
        };
        let listener = TcpListener::bind(options.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let authority = Arc::new(authority);
        let tokens = Tokens::new(Arc::clone(&store));
        let (peers, meeting) = peers::meet(&options, Arc::clone(&authority), store, address.port());
        let (stop, stopping) = watch::channel(false);
        let (encoding, encoded) = stream::encode(intake.instructions());
        let (watching, evictions) = evictions::follow(tokens.clone());
        let shared = Arc::new(Shared {
            admission: Admission::new(options.limits.admission()),
            attempts: Mutex::new(Attempts::new(options.limits.attempts)),
            lines: Mutex::new(Attempts::new(options.limits.attempts)),
            options,
            authority,
            tokens,
            intake,
            encoded,
            evictions,
            stopping,
            counts: Mutex::default(),
            sent_bytes: AtomicU64::new(0),
            started: Instant::now(),
        });
        let accepting = connections::accept(listener, config, Arc::clone(&shared));
        let renewing = keep_certified(Arc::clone(&shared), certificate, renew_at);
        let tasks = vec![
            tokio::spawn(accepting),
            tokio::spawn(renewing),
            tokio::spawn(encoding),
            tokio::spawn(watching),
            tokio::spawn(meeting),
            tokio::spawn(tell_evicted(Arc::clone(&shared))),
        ];
        Ok(ClusterServer { address, shared, stop, peers, tasks })
    }

    /// The address on which it listens, with the chosen port if 0 was configured.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends a report of the controller's own node to the other controllers, as a node would.
    pub fn tell_peers(&self, report: &NodeReport) {
        self.peers.report(report);
    }

    /// The credentials of the controller's own node towards its peers, renewed while this serves,
    /// and the check of theirs.
    pub fn peer_credentials(&self) -> PeerCredentials {
        Members::credentials(self.peers.credentials(), self.shared.evictions.clone())
    }

    /// The store, with a secret of the controllers for the private keys of certificates.
    pub fn sealed(&self, store: Arc<dyn Store>) -> SealedStore {
        SealedStore::new(store, &self.shared.authority.secret("certificates"))
    }

    /// Numbers of accepted, refused and dropped requests, by name.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.shared.counts()
    }

    /// Bytes of instructions that were sent to nodes.
    pub fn sent_bytes(&self) -> u64 {
        self.shared.sent_bytes.load(Ordering::Relaxed)
    }

    /// Accepts no more connections, and ends streams, so that nodes change to another controller at
    /// once.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        let accepting = self.tasks.swap_remove(0);
        let _ = accepting.await;
    }
}

impl Drop for ClusterServer {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Sends the names of evicted nodes to the controller.
async fn tell_evicted(shared: Arc<Shared>) {
    let mut evictions = shared.evictions.clone();
    evictions.mark_changed();
    while evictions.changed().await.is_ok() {
        let evicted = evictions.borrow_and_update().clone();
        if evicted.is_known() {
            shared.intake.shut_out(evicted.shut_out().clone());
        }
    }
}

fn issue(options: &ServerOptions, authority: &Authority) -> Result<crate::Issued, AuthorityError> {
    let ServerOptions { name, hosts, own_lifetime, .. } = options;
    authority.issue_controller(name, hosts, SystemTime::now(), *own_lifetime)
}

/// Time until a certificate made now must be renewed: two thirds of its validity.
fn renewal(certified: &crate::Certified, lifetime: Duration) -> Duration {
    let left = certified.valid_until.duration_since(SystemTime::now()).unwrap_or_default();
    left.min(lifetime) * 2 / 3
}

/// Renews the controller's certificate in time.
async fn keep_certified(shared: Arc<Shared>, certificate: Arc<Renewable>, first: Duration) {
    let mut pause = first;
    loop {
        // At least a second, even if the authority's own validity is almost over.
        tokio::time::sleep(pause.max(Duration::from_secs(1))).await;
        let issued = issue(&shared.options, &shared.authority);
        pause = match issued.map(|issued| {
            let next = renewal(&issued.certified, shared.options.own_lifetime);
            certificate.replace(issued).map(|()| next)
        }) {
            Ok(Ok(next)) => {
                shared.count("own_certificate_renewed");
                next
            }
            Ok(Err(error)) => {
                tracing::error!(%error, "the controller's certificate is not renewed");
                Duration::from_secs(60)
            }
            Err(error) => {
                tracing::error!(%error, "the controller's certificate is not renewed");
                Duration::from_secs(60)
            }
        };
    }
}

impl std::fmt::Debug for ClusterServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterServer").field("address", &self.address).finish_non_exhaustive()
    }
}
