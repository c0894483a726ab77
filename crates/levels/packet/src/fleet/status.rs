//! Status of the connections.

use std::collections::BTreeMap;
use std::net::SocketAddr;

/// State of the connection to a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PeerState {
    /// Not connected yet.
    #[default]
    Connecting,
    /// Connected.
    Connected,
    /// The address is that of this balancer.
    Own,
    /// The connection failed; it is tried again.
    Failed(String),
}

/// Status of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// Its address.
    pub address: SocketAddr,
    /// State of the connection to it.
    pub state: PeerState,
    /// Whether it has acknowledged all flows of this balancer.
    pub has_all: bool,
    /// Whether this balancer has received all its flows.
    pub gave_all: bool,
    /// Flows sent, since the start.
    pub flows_sent: u64,
    /// Bytes of messages sent, since the start.
    pub bytes_sent: u64,
    /// Flows sent without a place at the peer, since the start.
    pub unplaced: u64,
    /// Flows and pins sent for which the peer had no room, since the start.
    pub full: u64,
}

/// Status of the exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExchangeStatus {
    /// Its address; `None` while it cannot be bound.
    pub listens: Option<SocketAddr>,
    /// The peers, in the order of the configuration.
    pub peers: Vec<PeerStatus>,
    /// Peers that are connected to this balancer.
    pub incoming: usize,
    /// Connections that were refused: another secret or protocol, or too many at once.
    pub refused: u64,
}

/// State of all connections.
#[derive(Default)]
pub(super) struct State {
    pub(super) listens: Option<SocketAddr>,
    pub(super) peers: Vec<Peer>,
    /// By node: connections, and the last of our requests that it has fulfilled.
    pub(super) incoming: BTreeMap<u64, (usize, u64)>,
    pub(super) refused: u64,
}

/// State of a peer.
#[derive(Clone, Default)]
pub(super) struct Peer {
    pub(super) state: PeerState,
    pub(super) node: Option<u64>,
    pub(super) has_all: bool,
    pub(super) flows_sent: u64,
    pub(super) bytes_sent: u64,
    pub(super) unplaced: u64,
    pub(super) full: u64,
}

impl State {
    /// Returns the status of the peers at these addresses. `asks` is the number of the last request
    /// for all flows.
    pub(super) fn status(&self, addresses: &[SocketAddr], asks: u64) -> ExchangeStatus {
        let gave_all = |node: Option<u64>| {
            node.and_then(|node| self.incoming.get(&node)).is_some_and(|(_, swept)| *swept >= asks)
        };
        let status = |(address, peer): (&SocketAddr, &Peer)| PeerStatus {
            address: *address,
            state: peer.state.clone(),
            has_all: peer.has_all,
            gave_all: gave_all(peer.node),
            flows_sent: peer.flows_sent,
            bytes_sent: peer.bytes_sent,
            unplaced: peer.unplaced,
            full: peer.full,
        };
        ExchangeStatus {
            listens: self.listens,
            peers: addresses.iter().zip(&self.peers).map(status).collect(),
            incoming: self.incoming.len(),
            refused: self.refused,
        }
    }
}
