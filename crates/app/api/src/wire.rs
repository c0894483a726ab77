//! The JSON types of the API. Later versions only add fields.
//!
//! Totals count since the start of the process (or since the front door or backend exists). Rates
//! are per second over [`Status::rates_over_seconds`].

/// Defines an enum with words as its values in JSON, tables and metrics.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $word)] $variant),* }

        impl $name {
            /// Every value.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The value's word in JSON, tables and metrics.
            pub const fn word(self) -> &'static str {
                match self { $($name::$variant => $word),* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.word())
            }
        }
    };
}

pub mod backends;
pub mod caller;
pub mod cluster;
pub mod config;
pub mod controller;
pub mod dispatch;
pub mod dns;
pub(crate) mod event_kinds;
pub mod events;
pub mod packet;
pub mod plan;
pub mod slice;
pub mod tls;
pub mod why;

use std::collections::BTreeMap;
use std::fmt;

use equipoise_core::AdminState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

words! {
    /// Operating region of a backend, by its requests in flight and its limit.
    Region {
        /// Requests have not waited long enough to learn the best number in flight.
        NotEnoughSeen = "not-enough-seen",
        /// Fewer than half of the best number are in flight.
        UnderUsed = "under-used",
        /// One more request in flight brings more throughput (learned limits).
        Rising = "rising",
        /// Throughput is at its maximum; with a stated limit, at least half of it is in flight.
        Best = "best",
        /// More requests than the limit are in flight.
        Over = "over",
    }
}

/// Everything that `equipoise status` shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// The instance's name.
    pub instance: String,
    /// The program's version.
    pub version: String,
    /// The process id.
    pub pid: u32,
    /// Whether the process accepts new work.
    pub phase: Phase,
    /// Time since the start of the process.
    pub uptime_seconds: f64,
    /// Data-plane threads.
    pub threads: usize,
    /// The configuration file.
    pub config_file: String,
    /// The last read of that file.
    pub last_reload: Option<LastReload>,
    /// TLS of the API's address; absent without `[api] tls`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_tls: Option<tls::TlsStatus>,
    /// The time over which rates are averaged; 0 before the second sample.
    pub rates_over_seconds: f64,
    /// Front doors in configured order.
    pub front_doors: Vec<FrontDoorStatus>,
    /// Pools in configured order.
    pub pools: Vec<PoolStatus>,
    /// The packet level; absent without a `[[packet]]` table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packet: Option<packet::PacketStatus>,
    /// The node's state in its cluster; absent if it is not a node. On a controller, `equipoise
    /// cluster members` shows the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<cluster::ClusterStanding>,
    /// The controller of this process; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<controller::ControllerStatus>,
    /// The DNS level; absent without a `[[dns]]` table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<dns::DnsStatus>,
    /// Processes that this one has replaced, and that still serve their clients.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<ReplacedProcess>,
    /// Streams of the slice level in configured order; `/v1/slices` has their details.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<slice::StreamSummary>,
}

/// A process that this one has replaced, and that still serves its clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplacedProcess {
    /// The process id.
    pub pid: u32,
    /// Time of the replacement, in seconds since 1970.
    pub since_unix_seconds: u64,
    /// Connections of clients (TCP, HTTP) that it still has.
    pub connections: u64,
}

/// The body of an upgrade.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Upgrade {
    /// Time for the new process to get ready, 0.1 to 25 s; 25 s by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_seconds: Option<f64>,
}

/// The outcome of an upgrade.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Upgraded {
    /// The process id of the new process.
    pub pid: u32,
    /// The process id of the replaced process, which serves its connections to their end.
    pub replaced_pid: u32,
    /// Connections of the replaced process.
    pub connections: u64,
    /// Time from the start of the new process to its readiness.
    pub took_seconds: f64,
}

/// Whether the process accepts new work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// It accepts new work.
    Running,
    /// It finishes its current work, then exits.
    Stopping,
}

/// The outcome of the last reload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LastReload {
    /// Whether the reload took effect.
    pub succeeded: bool,
    /// Time of the reload, in seconds since 1970.
    pub at_unix_seconds: u64,
    /// The errors, if it did not take effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
}

/// A front door.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FrontDoorStatus {
    /// Name, unique.
    pub name: String,
    /// Address and port.
    pub listen: String,
    /// `http`, `tcp` or `udp`.
    pub protocol: String,
    /// The pool behind it.
    pub pool: String,
    /// Every pool that it leads to, those of routes and server names included.
    #[serde(default)]
    pub pools: Vec<String>,
    /// Connections (TCP, HTTP) or client addresses (UDP) open now.
    pub connections_open: u64,
    /// Connections (TCP, HTTP) or client addresses (UDP) since the start.
    pub connections_total: u64,
    /// Requests being served now (HTTP).
    pub requests_in_flight: u64,
    /// Requests with a complete head (HTTP).
    pub requests_total: u64,
    /// Responses sent, by class (HTTP).
    pub responses: ByClass,
    /// Bytes from clients.
    pub bytes_in_total: u64,
    /// Bytes to clients.
    pub bytes_out_total: u64,
    /// Attempts on another backend or session.
    pub retries_total: u64,
    /// Pauses in accepting for lack of file descriptors or room.
    pub accept_pauses_total: u64,
    /// Refusals and losses by reason; reasons that never happened are absent.
    pub drops: BTreeMap<String, u64>,
    /// Recent rates.
    pub rates: Rates,
    /// Delegated requests; absent unless it is a `[[dispatch]]` front door.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch: Option<dispatch::DispatchStatus>,
    /// TLS of its clients; absent if they do not use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<tls::TlsStatus>,
    /// Its routes, in the order in which they are tried; absent without one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RouteStatus>,
}

/// A route of a front door.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RouteStatus {
    /// Name, unique at its front door.
    pub name: String,
    /// Where its requests go: a pool, pools with weights, `redirect STATUS` or `answer STATUS`.
    pub leads_to: String,
    /// Requests that took it.
    pub requests_total: u64,
    /// Copies of its requests; absent without a mirror.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<MirrorStatus>,
}

/// Copies of a route's requests, which another pool gets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MirrorStatus {
    /// Name of the pool.
    pub pool: String,
    /// Copies in flight.
    pub in_flight: u32,
    /// How copies ended (`answered`, `failed`), and requests that were not copied, by reason.
    pub outcomes: BTreeMap<String, u64>,
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PoolStatus {
    /// Name, unique.
    pub name: String,
    /// How a backend is picked.
    pub scheduler: String,
    /// `exclusive`, `multiplexed` or `http2`.
    pub upstream: String,
    /// Backends that may receive new work.
    pub backends_eligible: usize,
    /// Requests (HTTP) or connections (TCP) that wait for a backend with room.
    #[serde(default)]
    pub queued: u64,
    /// Requests that have joined the queue so far.
    #[serde(default)]
    pub queue_waited_total: u64,
    /// Total time that requests spent in the queue, whether or not a backend served them.
    #[serde(default)]
    pub queue_wait_seconds_total: f64,
    /// The source of its backends; absent if the file lists them all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceStatus>,
    /// Backends in configured order.
    pub backends: Vec<BackendStatus>,
}

/// The source of a pool's backends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SourceStatus {
    /// The source, such as `dns _http._tcp.app.internal (SRV)`.
    pub source: String,
    /// Backends of the set in use.
    pub backends: usize,
    /// Time since the source confirmed the set in use; absent before the first answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<f64>,
    /// The reason why the last answer did not confirm the set, or what the answer lacked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Failures so far.
    pub failures_total: u64,
    /// Sets that differed from the one before.
    pub changes_total: u64,
}

/// A backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BackendStatus {
    /// Name, unique in the pool.
    pub name: String,
    /// Address and port as the configuration states them, or `unix:PATH`.
    pub address: String,
    /// The current addresses of a host name; absent if `address` is not a host name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved: Option<Vec<String>>,
    /// Weight.
    pub weight: u16,
    /// Admin state: the operator's wish.
    pub admin: Admin,
    /// Health by checks and traffic.
    pub health: Health,
    /// State that follows from admin state and health.
    pub state: BackendState,
    /// The reason for bad health, as far as known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_detail: Option<String>,
    /// Requests, connections or client addresses in flight.
    pub in_flight: u64,
    /// Whether it was added through the API; absent if the configuration or a source has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added: Option<Added>,
    /// The operator's concurrency limit; absent if the configured one holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Concurrency limit; absent without one. Tunnels, and clients that read or send slowly, are in
    /// flight without counting against the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Limit of all balancers of the cluster together; absent unless they share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_limit: Option<u32>,
    /// Operating region; absent without a limit, and for a learned one before the backend has had
    /// work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<Region>,
    /// Number in flight from which throughput stops growing; absent until it is learned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knee: Option<f64>,
    /// Mean service time, without the wait in the queue: as the limit's learner measures it, or
    /// that of recent responses (HTTP). Absent before the backend has had work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_seconds: Option<f64>,
    /// Mean time that the backend's recent requests had waited in the pool's queue, 0 for those
    /// that did not wait; absent without a recent request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_seconds: Option<f64>,
    /// Flows of the packet level to this backend, over all VIPs of its pool.
    #[serde(default)]
    pub flows: u64,
    /// Requests, connections or client addresses sent to it so far.
    pub requests_total: u64,
    /// Responses by class (HTTP).
    pub responses: ByClass,
    /// Failures by reason; reasons that never happened are absent.
    pub failures: BTreeMap<String, u64>,
    /// Upstream sessions open now, idle ones included.
    pub sessions_open: u64,
    /// Upstream sessions opened.
    pub sessions_opened_total: u64,
    /// Requests over an existing session.
    pub sessions_reused_total: u64,
    /// Responses with ambiguous framing, and unsolicited bytes (multiplexed pools).
    #[serde(default)]
    pub multiplex_faults_total: u64,
    /// Requests on a connection shared with other clients (multiplexed pools).
    #[serde(default)]
    pub multiplex_shared_total: u64,
    /// Requests that could share a connection and got one of their own, because their path has slow
    /// or large responses or all shared ones were full (multiplexed pools).
    #[serde(default)]
    pub multiplex_alone_total: u64,
    /// Shared connections that a late or large response got for itself.
    #[serde(default)]
    pub multiplex_handed_over_total: u64,
    /// Requests sent again because a late or large response was before them, or their shared
    /// connection ended before their turn.
    #[serde(default)]
    pub multiplex_repeated_total: u64,
    /// Such a fault disabled multiplexing: the backend's sessions are exclusive until an operator
    /// undrains or enables it.
    #[serde(default)]
    pub multiplexing_lost: bool,
    /// TLS to the backend, if its pool uses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<tls::BackendTlsStatus>,
    /// Bytes to the backend.
    pub bytes_out_total: u64,
    /// Bytes from the backend.
    pub bytes_in_total: u64,
    /// Recent rates.
    pub rates: Rates,
}

/// Rates per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rates {
    /// Requests (HTTP), connections (TCP) or client addresses (UDP).
    pub requests: f64,
    /// Drops (front door) or failures (backend).
    pub errors: f64,
    /// Bytes towards the backends.
    pub bytes_in: f64,
    /// Bytes towards the clients.
    pub bytes_out: f64,
}

/// Responses by the first digit of their status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ByClass {
    /// 100 to 199.
    #[serde(rename = "1xx")]
    pub informational: u64,
    /// 200 to 299.
    #[serde(rename = "2xx")]
    pub success: u64,
    /// 300 to 399.
    #[serde(rename = "3xx")]
    pub redirection: u64,
    /// 400 to 499.
    #[serde(rename = "4xx")]
    pub client_error: u64,
    /// 500 to 599.
    #[serde(rename = "5xx")]
    pub server_error: u64,
}

impl From<[u64; 5]> for ByClass {
    fn from([informational, success, redirection, client_error, server_error]: [u64; 5]) -> Self {
        ByClass { informational, success, redirection, client_error, server_error }
    }
}

words! {
    /// Origin of a backend that the configuration does not have.
    Added {
        /// It was added through the API.
        Added = "added",
        /// It was added, and is removed as soon as it has no work.
        Removing = "removing",
    }
}

words! {
    /// Admin state of a backend: the operator's wish.
    Admin {
        /// Receives new work.
        Up = "up",
        /// Receives no new work, and finishes its current work.
        Drain = "drain",
        /// Receives no work, and its connections are closed.
        Down = "down",
    }
}

impl From<AdminState> for Admin {
    fn from(state: AdminState) -> Self {
        match state {
            AdminState::Up => Admin::Up,
            AdminState::Drain => Admin::Drain,
            AdminState::Down => Admin::Down,
        }
    }
}

impl From<Admin> for AdminState {
    fn from(admin: Admin) -> Self {
        match admin {
            Admin::Up => AdminState::Up,
            Admin::Drain => AdminState::Drain,
            Admin::Down => AdminState::Down,
        }
    }
}

words! {
    /// The observed health of a backend.
    Health {
        /// Not checked yet, or without checks: treated as healthy.
        Unknown = "unknown",
        /// The last checks passed.
        Healthy = "healthy",
        /// The last checks failed, or traffic ejected it.
        Unhealthy = "unhealthy",
    }
}

words! {
    /// Whether a backend receives new work; if not, the reason.
    BackendState {
        /// It receives new work.
        Up = "up",
        /// It drains (or has weight 0), and still has work in flight.
        Draining = "draining",
        /// It drains, and nothing is in flight any more.
        Drained = "drained",
        /// An operator disabled it.
        Down = "down",
        /// Its checks failed, or traffic ejected it.
        Unhealthy = "unhealthy",
        /// It is a backup, and other backends receive the work.
        Standby = "standby",
    }
}

/// `PUT /v1/pools/{pool}/backends/{backend}/weight`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetWeight {
    /// The new weight; 0 drains.
    #[schemars(range(min = 0, max = 1000))]
    #[serde(deserialize_with = "weight")]
    pub weight: u16,
}

/// JSON does not distinguish 5 and 5.0, so both are accepted.
fn weight<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    let number = f64::deserialize(deserializer)?;
    if number.fract() != 0.0 || !(0.0..=1000.0).contains(&number) {
        let text = "weight is a whole number in 0..=1000; 0 drains the backend, 1 is the default";
        return Err(serde::de::Error::custom(format_args!("{number}: {text}")));
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
    Ok(number as u16)
}

/// The answer to drain, undrain, enable, disable and weight: the resulting state of the backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Changed {
    /// Its pool.
    pub pool: String,
    /// The backend.
    pub backend: BackendStatus,
}

/// The answer to `POST /v1/reload`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reloaded {
    /// The file that was read.
    pub config_file: String,
    /// Number of open front doors.
    pub front_doors: usize,
    /// Number of VIPs.
    #[serde(default)]
    pub vips: usize,
    /// Number of pools.
    pub pools: usize,
    /// Number of backends, over all pools.
    pub backends: usize,
    /// The changes, level by level; empty if nothing changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// Established connections that the change ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<String>,
    /// Options that changed in the file and take effect only after a restart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub need_restart: Vec<String>,
}

/// The answer to `GET /v1/health`: 200 while running, 503 while stopping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Liveness {
    /// Whether the process accepts new work.
    pub phase: Phase,
    /// Parts that have failed although traffic continues; `/v1/status` has the reasons.
    /// `controller`: there are no plans, or plans would not survive a restart. `elastic`: no
    /// controller scales an elastic pool of this node's file. `configuration`: a file that a reload
    /// or a check reads does not respond. `discovery`: the source of a pool's backends fails, so
    /// its last good set is in use.
    #[serde(default)]
    pub degraded: Vec<String>,
}
