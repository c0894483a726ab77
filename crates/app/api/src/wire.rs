//! The JSON types of the API. Fields are only ever added.
//!
//! Totals count since the start of the process (or of that front door or backend); rates are per
//! second over [`Status::rates_over_seconds`].

/// An enum with words as its values in JSON, tables and metrics.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $word)] $variant),* }

        impl $name {
            /// Every value.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// Its name in JSON, in tables and in metrics.
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

pub mod cluster;
pub mod config;
pub mod controller;
pub mod dispatch;
pub mod dns;
pub mod packet;
pub mod plan;
pub mod slice;

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

words! {
    /// Where a backend works, by the requests in flight and what was learnt of its concurrency.
    Region {
        /// Requests have not waited for long enough to learn how many the backend serves best.
        NotEnoughSeen = "not-enough-seen",
        /// Less than half of the best number is in flight.
        UnderUsed = "under-used",
        /// One more request in flight brings more throughput.
        Rising = "rising",
        /// Throughput is at its top.
        Best = "best",
        /// More is in flight than the limit.
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
    /// Its process id.
    pub pid: u32,
    /// Whether it takes new work.
    pub phase: Phase,
    /// Since it started.
    pub uptime_seconds: f64,
    /// Data-plane threads.
    pub threads: usize,
    /// The configuration file.
    pub config_file: String,
    /// The last time that file was read.
    pub last_reload: Option<LastReload>,
    /// The time over which rates are averages; 0 before the second sample.
    pub rates_over_seconds: f64,
    /// In configured order.
    pub front_doors: Vec<FrontDoorStatus>,
    /// In configured order.
    pub pools: Vec<PoolStatus>,
    /// `None`: no `[[packet]]` table is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packet: Option<packet::PacketStatus>,
    /// `None`: it is no node of a cluster; on a controller, `equipoise cluster members` shows all
    /// of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<cluster::ClusterStanding>,
    /// How the controller does that is to run in this process; `None`: none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<controller::ControllerStatus>,
    /// `None`: no `[[dns]]` table is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<dns::DnsStatus>,
    /// The slice level's streams, in configured order; `/v1/slices` has all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<slice::StreamSummary>,
}

/// Whether the process takes new work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// It does.
    Running,
    /// It finishes what it has, then exits.
    Stopping,
}

/// The outcome of the last reload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LastReload {
    /// Whether it took effect.
    pub succeeded: bool,
    /// When, seconds since 1970.
    pub at_unix_seconds: u64,
    /// Why it did not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
}

/// A front door.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FrontDoorStatus {
    /// Unique.
    pub name: String,
    /// Address and port.
    pub listen: String,
    /// `http`, `tcp` or `udp`.
    pub protocol: String,
    /// The pool it sends to.
    pub pool: String,
    /// Connections (TCP, HTTP) or client addresses (UDP) open now.
    pub connections_open: u64,
    /// The same, since the start.
    pub connections_total: u64,
    /// Requests being served now (HTTP).
    pub requests_in_flight: u64,
    /// Requests with a complete head (HTTP).
    pub requests_total: u64,
    /// Responses sent, by class (HTTP).
    pub responses: ByClass,
    /// From clients.
    pub bytes_in_total: u64,
    /// To clients.
    pub bytes_out_total: u64,
    /// Tries on another backend or session.
    pub retries_total: u64,
    /// Times that accepting paused for want of file descriptors or room.
    pub accept_pauses_total: u64,
    /// Refusals and losses by reason; reasons that never happened are absent.
    pub drops: BTreeMap<String, u64>,
    /// Lately.
    pub rates: Rates,
    /// Delegated requests; `None`: not a `[[dispatch]]` front door.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch: Option<dispatch::DispatchStatus>,
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PoolStatus {
    /// Unique.
    pub name: String,
    /// How a backend is picked.
    pub scheduler: String,
    /// `exclusive` or `multiplexed`.
    pub upstream: String,
    /// Backends that may be given new work.
    pub backends_eligible: usize,
    /// Requests (HTTP) or connections (TCP) that wait for a backend with room.
    #[serde(default)]
    pub queued: u64,
    /// Requests that have joined the queue so far.
    #[serde(default)]
    pub queue_waited_total: u64,
    /// Total time that requests spent in the queue, however that ended.
    #[serde(default)]
    pub queue_wait_seconds_total: f64,
    /// In configured order.
    pub backends: Vec<BackendStatus>,
}

/// A backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BackendStatus {
    /// Unique in its pool.
    pub name: String,
    /// Address and port as the configuration states them, or `unix:PATH`.
    pub address: String,
    /// The addresses that a host name has now; absent if `address` is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved: Option<Vec<String>>,
    /// Its share.
    pub weight: u16,
    /// The operator's wish for it.
    pub admin: Admin,
    /// Its health by checks and traffic.
    pub health: Health,
    /// The state that follows from both.
    pub state: BackendState,
    /// Why it is unhealthy, as far as known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_detail: Option<String>,
    /// Requests, connections or client addresses in flight.
    pub in_flight: u64,
    /// The concurrency limit; absent: it has none. Tunnels and clients that read or send slowly are
    /// in flight and do not count against it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Limit of all balancers of the cluster together; absent unless they share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_limit: Option<u32>,
    /// Where the backend works; absent unless its limit is learnt and it has had work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<Region>,
    /// Number in flight from which its throughput stops growing; absent until it was learnt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knee: Option<f64>,
    /// Mean time in service, without the wait in the queue; absent unless its limit is learnt and
    /// it has had work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_seconds: Option<f64>,
    /// Flows of the packet level that go to it, over all VIPs of its pool.
    #[serde(default)]
    pub flows: u64,
    /// Given to it so far.
    pub requests_total: u64,
    /// Its responses by class (HTTP).
    pub responses: ByClass,
    /// Its failures by reason; reasons that never happened are left out.
    pub failures: BTreeMap<String, u64>,
    /// Upstream sessions open now, idle ones included.
    pub sessions_open: u64,
    /// Upstream sessions opened.
    pub sessions_opened_total: u64,
    /// Requests that went over a session already open.
    pub sessions_reused_total: u64,
    /// Responses that could not be framed beyond doubt, and times that bytes came that no request
    /// was due (multiplexed pools).
    #[serde(default)]
    pub multiplex_faults_total: u64,
    /// Such a fault took multiplexing from it: its sessions are exclusive until an operator
    /// undrains or enables it.
    #[serde(default)]
    pub multiplexing_lost: bool,
    /// To it.
    pub bytes_out_total: u64,
    /// From it.
    pub bytes_in_total: u64,
    /// Lately.
    pub rates: Rates,
}

/// Per second.
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
    /// The operator's wish for a backend.
    Admin {
        /// Takes new work.
        Up = "up",
        /// Keeps what it has, takes nothing new.
        Drain = "drain",
        /// Takes nothing, and what it has is cut.
        Down = "down",
    }
}

words! {
    /// The observed health of a backend.
    Health {
        /// Not checked yet, or not checked at all: taken for healthy.
        Unknown = "unknown",
        /// The last checks passed.
        Healthy = "healthy",
        /// The last checks failed, or the traffic ejected it.
        Unhealthy = "unhealthy",
    }
}

words! {
    /// Whether a backend is given new work, and if not, why not.
    BackendState {
        /// It is.
        Up = "up",
        /// It is to be drained (or has weight 0) and still has something in flight.
        Draining = "draining",
        /// It is drained: nothing is in flight any more.
        Drained = "drained",
        /// The operator disabled it.
        Down = "down",
        /// Its checks failed, or the traffic ejected it.
        Unhealthy = "unhealthy",
        /// It is a backup, and other backends take the work.
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

/// JSON does not tell whole numbers apart: 5 and 5.0 are the same one.
fn weight<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    let number = f64::deserialize(deserializer)?;
    if number.fract() != 0.0 || !(0.0..=1000.0).contains(&number) {
        let text = "weight is a whole number in 0..=1000; 0 drains the backend, 1 is the default";
        return Err(serde::de::Error::custom(format_args!("{number}: {text}")));
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
    Ok(number as u16)
}

/// The answer to drain, undrain, enable, disable and weight: the backend as it now is.
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
    /// Front doors now open.
    pub front_doors: usize,
    /// VIPs now served.
    #[serde(default)]
    pub vips: usize,
    /// Pools now known.
    pub pools: usize,
    /// Backends now known, over all pools.
    pub backends: usize,
    /// Options that were changed in the file and need a restart to take effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub need_restart: Vec<String>,
}

/// The answer to `GET /v1/health`: 200 while running, 503 while stopping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Liveness {
    /// Whether the process takes new work.
    pub phase: Phase,
    /// Parts that do not do their work, although traffic goes on; `/v1/status` says why.
    /// `controller`: nothing is planned, or plans would not survive a restart. `elastic`: no
    /// controller scales an elastic pool of this node's file. `configuration`: a file that a reload
    /// or a check reads does not answer.
    #[serde(default)]
    pub degraded: Vec<String>,
}
