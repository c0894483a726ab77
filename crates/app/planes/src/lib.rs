//! The levels of one process.
//!
//! **In**: the configuration, and the pools as the registry of the session level has them
//! ([`PoolState`](equipoise_session::registry::PoolState)). **Out**: each level's engine while the
//! configuration needs it, with its newest input. **Fails**: a configuration is applied to a level
//! completely or not at all, with an error for the operator; a change of pools that cannot be
//! applied is logged.

mod data;
mod dns;
mod hosts;
mod packet;
#[cfg(feature = "slice")]
mod slice;
#[cfg(not(feature = "slice"))]
#[path = "slice_absent.rs"]
mod slice;
mod sources;

pub use data::DataPlane;
pub use dns::{DnsPlane, RunningDns};
pub use hosts::HostNames;
pub use packet::{EmptyPlace, EmptyPlaces, PacketPlane, PacketWish, id};
#[cfg(feature = "slice")]
pub use slice::RunningStream;
pub use slice::SlicePlane;
pub use sources::{LEARN_PERIOD, Seen, rates};
