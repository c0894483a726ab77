//! The decisions about a request or connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use equipoise_core::load::RequestClass;
use equipoise_routes::Unmet;

use crate::Reason;
use crate::affinity::HashBy;
use crate::config::Protocol;
use crate::limiter::LimitState;
use crate::route::Action;

/// One decision.
#[derive(Clone, Debug, PartialEq)]
pub enum DecisionStep {
    /// No front door takes it. The last step.
    NoFrontDoor {
        /// Name of the front door that was asked for.
        asked: Option<String>,
        /// All front doors of its transport.
        known: Vec<DoorStep>,
    },
    /// The front door that takes it.
    FrontDoor(DoorStep),
    /// Name of another front door at the port, at another address.
    OtherFrontDoor(Arc<str>),
    /// The certificate that the client gets.
    Certificate(CertificateStep),
    /// There is no certificate for this name: the handshake fails. The last step.
    NoCertificate {
        /// The first one was ordered.
        is_awaited: bool,
    },
    /// The client speaks TLS, and the front door does not. The last step.
    NoTls,
    /// A TCP connection to an HTTP front door, which decides for each request. The last step.
    NeedsRequest,
    /// It is refused for this reason. The last step.
    Refused(Reason),
    /// An answer of the proxy to an ACME directory. The last step.
    Challenge,
    /// The client's address is allowed.
    Allowed,
    /// The state of a limit on clients.
    Limit(LimitState),
    /// A route of the front door.
    Route(RouteStep),
    /// Number of further routes that it does not meet, and that are left out.
    OtherRoutes(usize),
    /// No route is met: the front door's pool serves it.
    NoRoute,
    /// Copies of the route's requests.
    Mirror(MirrorStep),
    /// Target and host as the backend gets them.
    Rewritten {
        /// Path and query.
        target: String,
        /// The host.
        host: String,
    },
    /// The server name leads to this pool.
    ServerName(Option<String>, Arc<str>),
    /// A redirect with this status. The last step.
    Redirect(u16),
    /// A fixed answer with this status. The last step.
    Answer(u16),
    /// Delegation to peers, in node mode.
    Dispatch(DispatchStep),
    /// A pool that serves it. The steps after it are about this pool.
    Pool(PoolStep),
    /// Affinity of the client to a backend.
    Affinity(AffinityStep),
    /// A backend of the pool that may be picked.
    Backend(BackendStep),
    /// The pool's queue.
    Queue(QueueStep),
    /// The pool has no backend that may take it.
    NoBackend,
}

/// A front door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoorStep {
    /// Its name.
    pub name: Arc<str>,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its clients speak TLS.
    pub is_tls: bool,
}

/// The certificate of a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateStep {
    /// The server name that the client asks for.
    pub asked: Option<String>,
    /// First name of the certificate, or else its subject.
    pub subject: String,
    /// Its names.
    pub names: Vec<String>,
    /// It is valid for the name; otherwise it is the default one.
    pub fits: bool,
}

/// A route.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteStep {
    /// Its place in the configuration, from 1.
    pub number: usize,
    /// Its name.
    pub name: Arc<str>,
    /// The first condition that is not met; `None`: the request takes the route.
    pub unmet: Option<Unmet>,
    /// The header or parameter of `unmet` is missing, rather than another.
    pub is_missing: bool,
    /// Where its requests go.
    pub action: Action,
}

/// The mirror of a route.
#[derive(Clone, Debug, PartialEq)]
pub struct MirrorStep {
    /// Name of the pool that gets the copies.
    pub pool: Arc<str>,
    /// The share of requests that are copied.
    pub share: f64,
    /// The request is not copied: it is an upgrade, or its body is too large.
    pub is_left_out: bool,
}

/// Delegation of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct DispatchStep {
    /// Class of the request.
    pub class: RequestClass,
    /// The part of the class that is refused.
    pub refuse: f64,
    /// The part of the class that the instructions keep here.
    pub keep: f64,
    /// The share of requests that this node would serve now.
    pub here: f64,
    /// The shares of peers.
    pub peers: Vec<(Arc<str>, f64)>,
}

/// A pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolStep {
    /// Its name.
    pub name: Arc<str>,
    /// The share of requests that it serves of those that the route takes.
    pub share: f64,
    /// The part by which one of the route's several pools is chosen; `None`: it has one pool, or
    /// the choice is random.
    pub by: Option<HashBy>,
    /// All backends are unhealthy, and are picked because no other place is left.
    pub fails_open: bool,
}

/// Affinity of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AffinityStep {
    /// The request has no value of this sticky cookie.
    NoCookie(Arc<str>),
    /// The sticky cookie names this backend.
    Cookie {
        /// Name of the cookie.
        cookie: Arc<str>,
        /// Name of the backend; `None`: none that may be picked.
        backend: Option<Arc<str>>,
        /// The backend has room.
        has_room: bool,
    },
    /// The scheduler hashes this part of the request.
    Hash {
        /// The part.
        by: HashBy,
        /// The request has it; otherwise the client's address is hashed.
        is_found: bool,
    },
}

/// A backend of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendStep {
    /// Its name.
    pub name: Arc<str>,
    /// Its address, which identifies it in its pool.
    pub address: SocketAddr,
    /// The share of the pool's requests like this one that it would get now.
    pub share: f64,
    /// The share of those that it would get after the first backend has failed; `None`: the first
    /// backend is not certain, or nothing is tried again.
    pub share_of_retries: Option<f64>,
    /// It has no free permit.
    pub is_full: bool,
}

/// The queue of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueStep {
    /// The request would wait.
    pub waits: bool,
    /// Requests that wait now.
    pub waiting: usize,
    /// The most requests that may wait.
    pub length: usize,
    /// How long a request waits.
    pub wait: Duration,
    /// The pool has no backend yet, and one is being made.
    pub awaits_backend: bool,
}
