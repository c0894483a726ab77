//! Registered state: flows that an operator or application pinned to a backend.

use std::net::{IpAddr, SocketAddr};

use crate::snapshot::{BackendId, VipId};

/// What a flow is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FlowId {
    /// The client, and the VIP's address and port.
    FiveTuple(SocketAddr, SocketAddr),
    /// The client's address.
    SourceAddress(IpAddr),
    /// The sender's MAC address.
    SourceMac([u8; 6]),
}

/// A registered flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisteredPin {
    /// Of which VIP.
    pub vip: VipId,
    /// Which flow.
    pub flow: FlowId,
    /// Where it belongs.
    pub backend: BackendId,
    /// Whether it goes there: the backend has a slot and there is room.
    pub in_force: bool,
}
