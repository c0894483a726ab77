//! Node mode of a front door: the local application serves a request, or a peer does.
//!
//! In: a [`NodeDoor`] (the file's part) and [`Shares`] (the plan's part: keep shares and the peers'
//! weights). The choice is core's [`DispatchTable`] over the snapshot and the node's own requests
//! in flight ([`InFlight`], and each peer's count). A delegated request carries a [`marker`], so
//! that the peer does not delegate it again; it travels over mutual TLS ([`Transport`]) unless
//! that is off. Failures: a peer that fails before it sent anything leaves the request to the local
//! application, under the rules of retries; everything else as at any front door.

mod in_flight;
mod marker;
mod room;
mod transport;

use std::net::IpAddr;
use std::sync::Arc;

use equipoise_core::load::{ClassRules, DispatchTable, PerClass};

pub use equipoise_core::load::Shares;

pub(crate) use in_flight::Counted;
pub use in_flight::InFlight;
pub use marker::{DelegationKeys, KeysRefused};
pub(crate) use marker::{FIELD, UNDONE, Whose, giver_of, write_marker};
pub(crate) use room::{
    PeerRoom, ROOM_FIELD, announced_room, read_question, write_question, write_room,
};
pub use transport::{Encryption, Transport};

/// Node mode, as the configuration has it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeDoor {
    /// Name of the pool of peers; each backend has the name of its node.
    pub peers: Arc<str>,
    /// This node, as its peers call it.
    pub node: Arc<str>,
    /// Keys of markers. Without keys nothing is delegated, and no marker is accepted.
    pub keys: DelegationKeys,
    /// Encryption between nodes. The peers' pool has it too, for the requests that this node sends
    /// ([`PoolOptions::tls`](crate::config::PoolOptions::tls)).
    pub transport: Transport,
    /// Which requests are of which class.
    pub classes: ClassRules,
    /// The keep shares without a plan, by class, 0..=1. Peers share the rest by weight.
    pub keep: PerClass<f64>,
}

/// Node mode as the data plane sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct DispatchView {
    /// Index of the peers' pool in [`Snapshot::pools`](crate::Snapshot::pools).
    pub peers: usize,
    /// Chooses the node that serves a request. Its peers are the pool's backends, in their order.
    pub table: DispatchTable,
    /// The plan has this node keep nothing: it has no room for what peers ask.
    pub keeps_nothing: bool,
    /// Where peers are, whether they may be picked or not: a marker that comes from there and is
    /// not signed as it should be is a node's with another key, not a client's forgery.
    pub places: Arc<[IpAddr]>,
}

impl NodeDoor {
    /// Whether anything can be delegated.
    pub(crate) fn may_delegate(&self) -> bool {
        !self.keys.is_empty() && self.transport.is_ready()
    }

    /// The table without a plan, for peers of these weights.
    pub(crate) fn stated(&self, weights: impl Iterator<Item = u32>) -> DispatchTable {
        DispatchTable::new(self.keep, weights.map(f64::from))
    }
}
