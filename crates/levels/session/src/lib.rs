//! The session level: the virtual client.
//!
//! In: [`Snapshot`]s (pools with their eligible backends, front doors with their limits), published
//! atomically. Out: [`BackendEvent`]s and counters ([`stats`]). Failures: every refusal and loss
//! has a [`Reason`], counted under that name.

mod access_log;
mod affinity;
mod backend_tls;
mod buffer;
mod challenge;
mod client_hello;
mod client_limit;
pub mod config;
mod deadline;
mod descriptors;
mod door;
mod engine;
mod explain;
mod handover;
mod handshake;
mod hedge_delay;
mod http;
mod in_flight;
mod learning;
mod lease;
mod lent;
mod limiter;
mod linger;
mod listener;
mod live;
mod lookout;
mod memory;
mod pace;
mod peer_room;
mod permits;
mod proxy_protocol;
mod quantile;
mod queue;
mod reason;
pub mod registry;
mod relay;
mod retry_budget;
pub mod route;
mod snapshot;
mod sni;
mod socket;
mod sources;
mod splice;
pub mod stats;
mod tcp;
mod tls;
mod trust;
mod udp;
mod upstream;
pub mod why;
mod worker;
mod wrong_protocol;

/// Whether this build serves HTTP/3.
pub const HTTP3: bool = cfg!(feature = "http3");

pub use access_log::{LogLines, LogOutput};
pub use backend_tls::BackendTls;
pub use engine::{BindError, Engine, EngineOptions, StopReport};
pub use handover::{GivenClient, UdpHandover};
pub use in_flight::InFlight;
pub use limiter::{LimitState, Limiter, SharedLimit};
pub use live::BackendLive;
pub use memory::MemoryBound;
pub use queue::{Queue, QueueStats};
pub use reason::Reason;
pub use retry_budget::RetryBudget;
pub use snapshot::{
    BackendEvent, BackendView, DispatchView, FLEET_SEED, FrontDoorView, PoolView, Snapshot,
};
pub use sni::SniTable;
