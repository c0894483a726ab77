//! The DNS level: an authoritative server that spreads clients over nodes with its answers.
//!
//! **In**: queries over UDP and TCP; a [`Snapshot`] of zones, names and nodes with their shares;
//! the loads of resolvers ([`ResolverLoads`]). **Out**: answers and counters. **Fails** by dropping
//! a message with a counted [`Reason`], never by waiting. If no new snapshot comes, the last one
//! stays in force.
//!
//! The message path ([`Responder`]) is pure: bytes, an address and the time in, bytes out. The
//! snapshot holds prepared answers as bytes, so that a query costs a parse, a pick and a copy.
//! [`engine`] has the sockets and threads.
//!
//! Not implemented yet, but planned for: DNSSEC (signatures are further records of a tail, chosen
//! by the DO bit that queries already carry) and RFC 2136 (an update makes the next snapshot).

pub mod config;
mod cookie;
pub mod engine;
#[cfg(test)]
mod fixture;
mod loads;
mod message;
mod now;
mod preview;
mod query_log;
mod rate_limit;
mod reason;
mod respond;
mod snapshot;
mod spread;
mod standing;
pub mod stats;
mod top;
pub mod zone;

pub use config::{DnsConfig, Mode, Name};
pub use cookie::{CookieSecret, CookieSecrets, NotASecret};
pub use loads::{Layout, LoadTable, ResolverLoads, Source};
pub use now::Now;
pub use preview::{Preview, PreviewError};
pub use query_log::{Fill, QueryLog};
pub use rate_limit::RateLimit;
pub use reason::Reason;
pub use respond::{Published, Responder, TCP_MESSAGE_MAX};
pub use snapshot::{NameStatus, NodeKey, NodeStatus, NodeTallies, Snapshot};
pub use standing::{NodeState, Standing};
pub use stats::Transport;
pub use zone::{SnapshotInput, ZoneError, build};
