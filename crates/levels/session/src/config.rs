//! Options of front doors and pools: plain values, already validated.
//!
//! The configuration file's option table (names, defaults, bounds, help) lives in the binary; the
//! defaults here are those that it shows.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

pub use crate::client_limit::{ClientLimit, LimitBy};
use equipoise_core::delegation::Delegation;
use equipoise_core::{SchedulerKind, Weight};
pub use equipoise_health::{
    ActiveHealth, HealthCheck, PassiveHealth, Place, Resolved, checks, ips, is_stand_in, stand_in,
};
pub use equipoise_limits::{AccessList, Rate, SourceMask};
pub use equipoise_tls::{Certificate, CertificateFiles, Challenges, ClientTls, PeerTls, ServerTls};

pub use crate::affinity::{HashBy, StickyCookie};
pub use crate::backend_tls::UpstreamTls;
use crate::route::{RetryOn, RouteConfig, Routes, SecurityHeaders};
pub use crate::trust::TrustedSources;

/// Protocol of a front door.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Bytes, connection by connection.
    Tcp,
    /// Datagrams, client address by client address.
    Udp,
    /// HTTP/1.0 and HTTP/1.1, request by request.
    Http,
}

/// How requests share upstream sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Upstream {
    /// One request at a time on a kept-open session.
    #[default]
    Exclusive,
    /// Idempotent requests of many clients pipelined over few sessions.
    Multiplexed,
    /// Requests of many clients as streams on few connections of HTTP/2, by ALPN or by prior
    /// knowledge.
    Http2,
    /// As `Http2` at backends that choose it by ALPN, else as `Exclusive`.
    Auto,
}

/// The header fields that a front door writes to tell backends where a request came from. A
/// sender's own fields are dropped unless [`FrontDoor::trusted`] has its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forwarded {
    /// `X-Forwarded-For`: the client's address.
    pub x_forwarded_for: bool,
    /// `X-Forwarded-Proto`: the client's protocol.
    pub x_forwarded_proto: bool,
    /// `X-Forwarded-Host`: the `Host` that the client asked for.
    pub x_forwarded_host: bool,
    /// `X-Real-IP`: the client's address, as nginx writes it. A trusted sender's own is kept.
    pub x_real_ip: bool,
    /// `Forwarded` (RFC 7239): all three.
    pub forwarded: bool,
}

impl Forwarded {
    /// No field.
    pub const NONE: Forwarded = Forwarded {
        x_forwarded_for: false,
        x_forwarded_proto: false,
        x_forwarded_host: false,
        x_real_ip: false,
        forwarded: false,
    };

    /// Every field.
    pub const ALL: Forwarded =
        Forwarded { x_real_ip: true, forwarded: true, ..Forwarded::X_FORWARDED };

    /// The `X-Forwarded` family. Frameworks prefer `Forwarded` where both exist, and a TLS
    /// terminator in front may write `X-Forwarded-Proto` alone.
    pub const X_FORWARDED: Forwarded = Forwarded {
        x_forwarded_for: true,
        x_forwarded_proto: true,
        x_forwarded_host: true,
        x_real_ip: false,
        forwarded: false,
    };
}

impl Default for Forwarded {
    fn default() -> Self {
        Forwarded::X_FORWARDED
    }
}

/// The scheme of the URLs of a front door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

impl Scheme {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }

    /// The port that an authority may omit, with its colon.
    pub(crate) const fn default_port(self) -> &'static [u8] {
        match self {
            Scheme::Http => b":80",
            Scheme::Https => b":443",
        }
    }
}

/// How a front door treats header fields with an underscore in their name. Applications that take
/// `_` for `-` (CGI, WSGI and others) cannot tell `X_User` from `X-User`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Underscores {
    /// The field is dropped.
    #[default]
    Drop,
    /// The field passes.
    Keep,
    /// The request is answered 400.
    Refuse,
}

/// A PROXY protocol version to send upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// The text form.
    V1,
    /// The binary form.
    V2,
}

/// The most header fields that [`Limits::headers_max`] may allow.
pub const HEADERS_MAX: usize = 256;

/// Limits of client requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Request line and headers together, bytes; more is answered 431.
    pub head_bytes_max: usize,
    /// Header fields in a request; more is answered 431.
    pub headers_max: usize,
    /// Request body, bytes; more is answered 413. `None`: any size.
    pub body_bytes_max: Option<u64>,
    /// Open connections (TCP, HTTP) or client addresses (UDP) on this front door, per data-plane
    /// thread; beyond it accepting pauses (TCP, HTTP) or datagrams of new clients are dropped
    /// (UDP).
    pub connections_max: usize,
    /// Requests in flight on an HTTP/2 connection. At least 1.
    pub streams_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            head_bytes_max: 32 << 10,
            headers_max: 100,
            body_bytes_max: None,
            connections_max: 100_000,
            streams_max: 100,
        }
    }
}

/// How long a client may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTimeouts {
    /// From the first byte of a request to the end of its head; then 408. With TLS also from the
    /// connection (or its PROXY header) to the end of the handshake.
    pub header: Duration,
    /// Nothing in either direction: between requests (HTTP), within a body (HTTP), on a connection
    /// (TCP), from or to a client address (UDP).
    pub idle: Duration,
    /// From the end of the request's head to the last byte of the response. `None`: no bound.
    pub request: Option<Duration>,
    /// As `idle`, after an upgrade to another protocol. `None`: as `idle`.
    pub tunnel: Option<Duration>,
}

impl Default for ClientTimeouts {
    fn default() -> Self {
        ClientTimeouts {
            header: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            request: None,
            tunnel: None,
        }
    }
}

/// The server names of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SniRoute {
    /// Names, and wildcards as `*.example.com`, which stand for one label.
    pub names: Vec<String>,
    /// The name of the pool.
    pub pool: Arc<str>,
}

/// One front door.
#[derive(Clone, Debug, PartialEq)]
pub struct FrontDoor {
    /// Unique; its address and protocol unless the configuration names it.
    pub name: Arc<str>,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Its protocol.
    pub protocol: Protocol,
    /// The name of its pool.
    pub pool: Arc<str>,
    /// Bounds.
    pub limits: Limits,
    /// Client-side time-outs.
    pub timeouts: ClientTimeouts,
    /// Clients speak TLS. TCP and HTTP only; not in node mode. `None`: they do not.
    pub tls: Option<ServerTls>,
    /// Pools by the server name of the clients' TLS, which passes to the backend. TCP only, without
    /// [`FrontDoor::tls`]. Other names, and clients that send none, go to `pool`. Empty: clients
    /// need no TLS.
    pub sni: Arc<[SniRoute]>,
    /// Routes to other pools and answers, which go before `pool`. HTTP only; not in node mode.
    pub routes: Arc<Routes>,
    /// Senders that are believed about clients: their `X-Forwarded-*` and `Forwarded` are appended
    /// to, and their PROXY protocol headers accepted.
    pub trusted: TrustedSources,
    /// The `X-Forwarded-*` and `Forwarded` fields that backends get.
    pub forwarded: Forwarded,
    /// Header fields with an underscore in their name.
    pub underscores: Underscores,
    /// Protocols that a client may upgrade to.
    pub upgrades: Arc<[String]>,
    /// Accept HTTP/2 beside HTTP/1.1 from clients that begin with its preface. HTTP only. With TLS,
    /// [`ServerTls`] offers it.
    pub http2: bool,
    /// The line of `Alt-Svc` (RFC 7838) of responses, with its end: HTTP/3 is served, too, at the
    /// same address. HTTP with TLS only, and a build with [`crate::HTTP3`].
    pub http3: Option<Arc<str>>,
    /// Requests are redirected to https, at this port. HTTP without TLS only.
    pub redirect: Option<u16>,
    /// The line of `Strict-Transport-Security` (RFC 6797) of responses, with its end. HTTP with TLS
    /// only.
    pub hsts: Option<Arc<str>>,
    /// Headers that protect browsers, in responses of backends without them. HTTP only.
    pub security: Option<SecurityHeaders>,
    /// Responses of backends say how long the request waited for them: `Server-Timing`. HTTP only.
    pub server_timing: bool,
    /// Pages in HTML in the place of the proxy's own text, by status. HTTP only.
    pub error_pages: Arc<BTreeMap<u16, String>>,
    /// Bytes a second of each response of a backend, without tunnels. `None`: no bound. HTTP only.
    pub bandwidth: Option<u64>,
    /// Add a `Via` header in both directions.
    pub via: bool,
    /// Require a PROXY protocol header (v1 or v2) from every connection, which must come from a
    /// trusted sender.
    pub accept_proxy: bool,
    /// Datagrams that a backend answers to each one of a client's; then the client is forgotten.
    /// `None`: it is forgotten when idle. UDP only.
    pub responses: Option<u32>,
    /// The share of requests or connections written to the access log, `0.0..=1.0`.
    pub access_log: f64,
    /// Its requests stand in the queue before those of front doors with a lower one.
    pub priority: u8,
    /// Decides by a client's address whether it is served.
    pub access: AccessList,
    /// Limits on each client.
    pub client_limits: Arc<[ClientLimit]>,
    /// Node mode: the pool is the local application's, and requests may be delegated. HTTP only.
    pub dispatch: Option<NodeMode>,
}

impl FrontDoor {
    /// The names of its pools, some of them repeatedly.
    pub fn pools(&self) -> impl Iterator<Item = &Arc<str>> {
        let named = self.sni.iter().map(|route| &route.pool);
        let routed = self.routes.routes().iter().flat_map(RouteConfig::pools);
        std::iter::once(&self.pool).chain(named).chain(routed)
    }

    /// The scheme of its URLs.
    pub(crate) fn scheme(&self) -> Scheme {
        if self.tls.is_some() { Scheme::Https } else { Scheme::Http }
    }

    /// A front door with the defaults.
    pub fn new(listen: SocketAddr, protocol: Protocol, pool: &str) -> FrontDoor {
        let scheme = match protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Http => "http",
        };
        FrontDoor {
            name: format!("{scheme}:{listen}").into(),
            listen,
            protocol,
            pool: pool.into(),
            limits: Limits::default(),
            timeouts: ClientTimeouts::default(),
            tls: None,
            sni: Arc::default(),
            routes: Arc::default(),
            trusted: TrustedSources::default(),
            forwarded: Forwarded::default(),
            underscores: Underscores::default(),
            upgrades: [String::from("websocket")].into(),
            http2: false,
            http3: None,
            redirect: None,
            hsts: None,
            security: None,
            bandwidth: None,
            server_timing: false,
            error_pages: Arc::default(),
            via: false,
            accept_proxy: false,
            responses: None,
            access_log: 0.0,
            priority: 0,
            access: AccessList::default(),
            client_limits: Arc::default(),
            dispatch: None,
        }
    }
}

/// Node mode of a front door: a peer may serve its requests, and it serves those of peers.
#[derive(Clone, Debug)]
pub struct NodeMode {
    /// Name of the pool of peers; each backend has the name of its node.
    pub peers: Arc<str>,
    /// The rules of delegation.
    pub delegation: Arc<dyn Delegation>,
    /// TLS with which peers may connect. The peers' pool has it too, for the requests that this
    /// node sends ([`PoolOptions::tls`]).
    pub peers_tls: Option<PeerTls>,
}

impl PartialEq for NodeMode {
    fn eq(&self, other: &NodeMode) -> bool {
        self.peers == other.peers
            && self.peers_tls == other.peers_tls
            && self.delegation.equals(&*other.delegation)
    }
}

/// How many requests (HTTP), connections (TCP) or client addresses (UDP) a backend is given at
/// once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Concurrency {
    /// No limit.
    #[default]
    None,
    /// This number, over all data-plane threads. Further requests wait in the pool's queue.
    Fixed(NonZeroU32),
    /// The number at which the backend does the most, learned from what passes
    /// ([`Learner`](equipoise_core::concurrency::Learner)).
    Learnt,
}

impl Concurrency {
    /// The limit, if it is stated as a number.
    pub fn fixed(self) -> Option<NonZeroU32> {
        match self {
            Concurrency::None | Concurrency::Learnt => None,
            Concurrency::Fixed(limit) => Some(limit),
        }
    }
}

/// How requests wait while every backend of a pool is at its concurrency limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// How long a request waits in all; then 503.
    pub wait: Duration,
    /// Requests that wait at once, at most; beyond it 503.
    pub length: usize,
}

impl Default for QueueOptions {
    fn default() -> Self {
        QueueOptions { wait: Duration::from_secs(1), length: 1000 }
    }
}

/// After how long a request that waits for its response is put to a second backend, too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Hedge {
    /// After this time.
    After(Duration),
    /// After the time within which this share (0 to 1) of the pool's responses have begun lately.
    Share(f64),
}

/// How the upstream side of a pool behaves.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolOptions {
    /// One request at a time on a session, or many.
    pub upstream: Upstream,
    /// Multiplexed: sessions per data-plane thread and backend.
    pub multiplex_sessions: usize,
    /// Multiplexed: requests in flight on one session at the most.
    pub multiplex_depth: usize,
    /// Multiplexed: a response that takes longer is late, however long others take. It gets the
    /// session for itself, and those behind it are sent again elsewhere.
    pub multiplex_slow: Duration,
    /// HTTP/2: streams on one connection at the most. At least 1.
    pub streams_max: usize,
    /// The part of requests that the scheduler `source-hash` hashes.
    pub hash_by: HashBy,
    /// A cookie that brings clients back to their backend. HTTP only.
    pub sticky: Option<StickyCookie>,
    /// To open a session to a backend; then another is tried, or 504.
    pub connect_timeout: Duration,
    /// From the request's last byte to the first of the response; then 504.
    pub response_timeout: Duration,
    /// A kept-open session unused for this long is closed.
    pub session_idle_timeout: Duration,
    /// Kept-open sessions per data-plane thread and backend.
    pub idle_sessions_max: usize,
    /// Tries on another backend after a failure that permits one.
    pub retries: u32,
    /// The failures after which a request is tried again.
    pub retry_on: RetryOn,
    /// The share of recent requests that may be retried or hedged, beside 10 a second; 1.0: no
    /// bound.
    pub retry_budget: f64,
    /// When an idempotent request is put to a second backend, too, because no response has come.
    /// `None`: never.
    pub hedge: Option<Hedge>,
    /// PROXY protocol header sent on each TCP session.
    pub send_proxy: Option<ProxyProtocol>,
    /// Value of `Retry-After` when no backend can take a request.
    pub retry_after: Duration,
    /// How requests wait for a backend with room.
    pub queue: QueueOptions,
    /// How long a request waits while the pool has no backend because one is being made; then 503.
    /// `None`: backends are not made for this pool, and the request is refused at once.
    pub start_wait: Option<Duration>,
    /// A session to a backend that has fallen silent for so long is lost, and so are idempotent
    /// requests that wait for one that its checks find unhealthy. `None`: only time-outs end the
    /// wait. Of a peers' pool.
    pub lost_after: Option<Duration>,
    /// Sessions are encrypted, and each backend has to prove its name.
    pub tls: Option<UpstreamTls>,
}

impl Default for PoolOptions {
    fn default() -> Self {
        PoolOptions {
            upstream: Upstream::Exclusive,
            multiplex_sessions: 4,
            multiplex_depth: 32,
            multiplex_slow: Duration::from_millis(50),
            streams_max: 100,
            hash_by: HashBy::Source,
            sticky: None,
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(60),
            session_idle_timeout: Duration::from_secs(30),
            idle_sessions_max: 256,
            retries: 1,
            retry_on: RetryOn::default(),
            retry_budget: 0.1,
            hedge: None,
            send_proxy: None,
            retry_after: Duration::from_secs(5),
            queue: QueueOptions::default(),
            start_wait: None,
            lost_after: None,
            tls: None,
        }
    }
}

/// One backend as the configuration states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendConfig {
    /// Unique in its pool; the address unless given.
    pub name: Arc<str>,
    /// Where it listens, or what identifies it if `place` says otherwise.
    pub address: SocketAddr,
    /// Where it is reached.
    pub place: Place,
    /// Its share.
    pub weight: Weight,
    /// It gets new work only while no other kind of backend of the pool can take any; backups share
    /// that work.
    pub backup: bool,
    /// Its concurrency limit; `None`: the pool's.
    pub concurrency: Option<Concurrency>,
}

/// One pool as the configuration states it.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolConfig {
    /// Unique.
    pub name: Arc<str>,
    /// How a backend is picked.
    pub scheduler: SchedulerKind,
    /// In configured order.
    pub backends: Vec<BackendConfig>,
    /// The concurrency limit of each backend that does not state its own.
    pub concurrency: Concurrency,
    /// The upstream side.
    pub options: PoolOptions,
    /// Active checks; `None`: every backend is taken for healthy until the traffic shows otherwise.
    pub health: Option<ActiveHealth>,
    /// Ejection by traffic.
    pub passive: PassiveHealth,
    /// A backend that comes back ramps its weight up over this long. `None`: at once.
    pub slow_start: Option<Duration>,
    /// Weights are planned by load, and come from outside
    /// ([`RegistryHandle::set_planned`](crate::registry::RegistryHandle::set_planned)); they begin
    /// as configured.
    pub weights_by_load: bool,
    /// Its backends are made for it and come later: until one has served, for at most this long,
    /// that none does is expected. `None`: they are there from the beginning.
    pub starts_within: Option<Duration>,
}

/// Everything the session level is configured with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionConfig {
    /// All pools.
    pub pools: Vec<PoolConfig>,
    /// All front doors; each names one of the pools.
    pub front_doors: Vec<FrontDoor>,
}
