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
    /// Requests that a peer failed before anything was sent back, and that were served here.
    pub returned_total: u64,
    /// Requests that neither a healthy backend here nor a peer could serve, and that unhealthy
    /// backends were given.
    #[serde(default)]
    pub failed_open_total: u64,
    /// Requests with a marker that no peer has signed. Clients must not send markers.
    pub markers_refused_total: u64,
    /// Encryption between nodes: `required`, `accepted` or `off`; `waiting` while this node has no
    /// certificate and delegates nothing.
    #[serde(default)]
    pub peer_tls: String,
}

/// One class of requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClassStatus {
    /// Its name.
    pub class: String,
    /// The share that this node keeps, 0 to 1.
    pub keep: f64,
    /// The share that is refused, 0 to 1, because the whole cluster is overloaded.
    #[serde(default)]
    pub refuse: f64,
    /// Requests from clients.
    pub arrived_total: u64,
    /// Of those, requests that peers served, or failed for good.
    pub delegated_total: u64,
    /// Of those, requests that were refused.
    #[serde(default)]
    pub refused_total: u64,
    /// Requests from peers.
    pub taken_total: u64,
    /// Of those, requests that were handed back because there was no room here.
    #[serde(default)]
    pub handed_back_total: u64,
    /// Bytes of requests and responses that were served here, except for those over shared
    /// sessions.
    pub bytes_total: u64,
}
