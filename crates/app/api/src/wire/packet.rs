//! The packet level's part of the API.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Health;

/// The packet level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketStatus {
    /// Where packets arrive.
    pub interfaces: Vec<InterfaceStatus>,
    /// In configured order.
    pub vips: Vec<VipStatus>,
    /// Flows that are known, over all VIPs.
    pub flows: u64,
    /// Flows that there is room for (`[flows] max`).
    pub flows_max: u64,
    /// Flows for which the registry had no room, or which gave way to a flow with more evidence
    /// (`registry_full`).
    pub flows_not_learnt_total: u64,
    /// Flows that lost their backend and went to another.
    pub flows_moved_total: u64,
    /// Flows with a backend that differs from their VIP's table.
    pub pins: u64,
    /// Pins that there is room for (`[flows] pins-max`).
    pub pins_max: u64,
    /// Flows that found no room among the pins.
    pub pins_full_total: u64,
    /// Flows that the program has recorded itself.
    pub pending: u64,
    /// Times that tables were published.
    pub publications_total: u64,
    /// Since the last time.
    pub published_seconds_ago: Option<f64>,
    /// Memory of the flow registry.
    pub registry_bytes: u64,
    /// Memory of the program's maps in the kernel.
    pub kernel_bytes: u64,
    /// Packets of no VIP that were dropped, by reason.
    pub drops: BTreeMap<String, u64>,
    /// Packets of no VIP of which something was noted.
    pub notes: BTreeMap<String, u64>,
}

/// An interface and the program on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InterfaceStatus {
    /// Its name.
    pub name: String,
    /// The packets that arrive on it: `clients` or `replies`.
    pub role: String,
    /// `native`, `generic`, `absent` or `failed`.
    pub state: String,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// A VIP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VipStatus {
    /// Address, ports, protocol: `192.0.2.10:443/tcp`.
    pub vip: String,
    /// Its pool.
    pub pool: String,
    /// How packets reach the backends.
    pub forward: String,
    /// How a new flow's backend is picked.
    pub scheduler: String,
    /// The fields that identify a flow.
    pub key: String,
    /// `steady`, or how far a change of the pool is: `waiting`, `transition`, `absorbing`.
    pub phase: String,
    /// Flows that are known.
    pub flows: u64,
    /// Packets forwarded.
    pub packets_total: u64,
    /// Their bytes, as received.
    pub bytes_total: u64,
    /// Packets by what named their backend: `ring`, `pin`, `pending`, `turn`, `fallback`,
    /// `fragment`.
    pub decisions: BTreeMap<String, u64>,
    /// Packets dropped, by reason; reasons that never happened are left out.
    pub drops: BTreeMap<String, u64>,
    /// Packets of which something was noted that did not drop them.
    pub notes: BTreeMap<String, u64>,
    /// Those included that left the configuration and still drain.
    pub backends: Vec<VipBackendStatus>,
}

/// A backend of a VIP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VipBackendStatus {
    /// Its name in its pool; its address if it is no longer there.
    pub name: String,
    /// Its address, with a port where nat changes it.
    pub address: String,
    /// `up`: takes new flows; `draining`: keeps those it has; `gone`: takes nothing.
    pub state: String,
    /// Whether the configuration has it.
    pub listed: bool,
    /// Whether the MAC address of the next hop to it is known.
    pub reachable: bool,
    /// The reason for which it gets no packets, if its name resolves to an address that this VIP
    /// cannot use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The verdict of its checks through the tunnel; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<Health>,
    /// The failure of the last check through the tunnel, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel_detail: Option<String>,
    /// Flows open.
    pub flows: u64,
    /// Flows closing.
    pub flows_closing: u64,
    /// Packets forwarded to it.
    pub packets_total: u64,
    /// Their bytes, as received.
    pub bytes_total: u64,
}

/// `GET /v1/flow`: a flow, which need not exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowQuestion {
    /// The client's address and port: `198.51.100.7:40000`.
    #[schemars(example = &"198.51.100.7:40000")]
    pub source: String,
    /// Address, port and protocol that it talks to: `192.0.2.10:443/tcp`.
    #[schemars(example = &"192.0.2.10:443/tcp")]
    pub vip: String,
    /// The sender's MAC address, for VIPs with the key `source-mac`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
}

/// Where the next packet of a flow would go, if it opened no connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FlowAnswer {
    /// `forwarded`, `dropped`, or `passed` to the kernel.
    pub verdict: String,
    /// The VIP that serves it.
    pub vip: Option<String>,
    /// That VIP's pool.
    pub pool: Option<String>,
    /// The backend's name in the pool. None if the flow is not known and the VIP's scheduler is no
    /// hash: the first packet decides.
    pub backend: Option<String>,
    /// Its address, with a port where nat changes it.
    pub address: Option<String>,
    /// The table that chose the backend: `ring`, `pin`, `pending`, `turn`, `fallback`.
    pub by: Option<String>,
    /// Why it is dropped.
    pub reason: Option<String>,
    /// The flow's digest, hexadecimal.
    pub digest: Option<String>,
    /// Where an operator or application pinned the flow.
    pub pinned_to: Option<String>,
    /// All that in a sentence.
    pub why: String,
}

/// A flow that an operator or application pinned to a backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// The VIP: `192.0.2.10:443/tcp`.
    #[schemars(example = &"192.0.2.10:443/tcp")]
    pub vip: String,
    /// The flow, by the VIP's key: `198.51.100.7:40000` (with `/PORT` of the VIP if it has
    /// several), `198.51.100.7`, or `02:00:00:00:00:01`.
    #[schemars(example = &"198.51.100.7:40000")]
    pub flow: String,
    /// The backend's name or address.
    #[schemars(example = &"b1")]
    pub backend: String,
    /// Whether the flow goes there. Not if the backend takes no packets.
    #[serde(default = "yes")]
    pub in_force: bool,
}

fn yes() -> bool {
    true
}

/// A pin to remove.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PinKey {
    /// As in [`Pin`].
    #[schemars(example = &"192.0.2.10:443/tcp")]
    pub vip: String,
    /// As in [`Pin`].
    #[schemars(example = &"198.51.100.7:40000")]
    pub flow: String,
}

/// `GET /v1/pins`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pins {
    /// By VIP and flow.
    pub pins: Vec<Pin>,
}
