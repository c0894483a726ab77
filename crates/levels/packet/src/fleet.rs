//! Connections between the balancers of a fleet, over which they share their flows.
//!
//! Each balancer sends the flows that it learns to every peer, so that all of them keep a flow at
//! its backend, whichever of them gets its packets. In: the control side's messages. Out: messages
//! for the peers' control sides. A connection that fails is opened again; what it did not deliver
//! is sent again.

mod channel;
mod exchange;
mod status;

pub use channel::PeerError;
pub use exchange::{Exchange, Tables};
pub use status::{ExchangeStatus, PeerState, PeerStatus};
