//! The dispatch level: which requests a node delegates to its peers, and which of theirs it serves.
//!
//! In: a [`NodeDoor`] (the file's part) and [`Shares`](equipoise_core::load::Shares) (the plan's
//! part). Out: to the session level, which serves the requests and knows this level as a
//! [`Delegation`](equipoise_core::delegation::Delegation): the class of a request, the table of the
//! decision, and the marker of a delegated request, so that the peer does not delegate it again.
//! Delegated requests travel over mutual TLS ([`Transport`]) unless that is off. Failures: a marker
//! without a valid signature of a trusted peer is refused, and the request is a client's. Pure.

mod marker;
mod node;
mod transport;

pub use marker::{DelegationKeys, KeysRefused};
pub use node::NodeDoor;
pub use transport::Transport;
