//! Requests that a front door in node mode serves itself or delegates to peers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Delegation at one front door.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DispatchStatus {
    /// Whether a controller plans the kept shares; otherwise the file states them.
    pub planned: bool,
    /// In the order `light`, `small-transfer`, `large-transfer`, `computing`.
    pub classes: Vec<ClassStatus>,
    /// Requests that a peer failed before anything was sent back, and that were done here.
    pub returned_total: u64,
    /// Requests with a marker that no peer has signed; clients have no business with it.
    pub markers_refused_total: u64,
    /// Encryption between nodes: `required`, `accepted`, `off`; or `waiting`, while this node has
    /// no certificate and delegates nothing.
    #[serde(default)]
    pub peer_tls: String,
}

/// One class of requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClassStatus {
    /// Its name.
    pub class: String,
    /// The part that is to be kept, 0 to 1.
    pub keep: f64,
    /// The part that is to be refused, 0 to 1: the whole cluster has more to do than it can.
    #[serde(default)]
    pub refuse: f64,
    /// Requests from clients.
    pub arrived_total: u64,
    /// Of those, requests that peers did, or failed for good.
    pub delegated_total: u64,
    /// Of those, requests that were refused.
    #[serde(default)]
    pub refused_total: u64,
    /// Requests from peers.
    pub taken_total: u64,
    /// Of those, requests that went back to the peer because there was no room here.
    #[serde(default)]
    pub handed_back_total: u64,
    /// Bytes of requests and responses that were done here, but for those over shared sessions.
    pub bytes_total: u64,
}
