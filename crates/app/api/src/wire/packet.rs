//! The packet level's part of the API.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Health;

/// The packet level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketStatus {
    /// The interfaces of the packet level.
    pub interfaces: Vec<InterfaceStatus>,
    /// VIPs in configured order.
    pub vips: Vec<VipStatus>,
    /// Known flows, over all VIPs.
    pub flows: u64,
    /// Largest number of known flows (`[flows] max`).
    pub flows_max: u64,
    /// Flows that were not registered for lack of room, or replaced by a flow with more evidence
    /// (`registry_full`).
    pub flows_not_learnt_total: u64,
    /// Flows that lost their backend and moved to another.
    pub flows_moved_total: u64,
    /// Flows with a backend that differs from their VIP's table.
    pub pins: u64,
    /// Largest number of pins (`[flows] pins-max`).
    pub pins_max: u64,
    /// Flows that were not pinned for lack of room.
    pub pins_full_total: u64,
    /// Flows that the program recorded itself.
    pub pending: u64,
    /// Number of publications of tables.
    pub publications_total: u64,
    /// Time since the last publication.
    pub published_seconds_ago: Option<f64>,
    /// Memory of the flow registry.
    pub registry_bytes: u64,
    /// Memory of the program's maps in the kernel.
    pub kernel_bytes: u64,
    /// Dropped packets of no VIP, by reason.
    pub drops: BTreeMap<String, u64>,
    /// Notes on packets of no VIP that were not dropped.
    pub notes: BTreeMap<String, u64>,
    /// Sharing of flows with the other balancers of the VIPs (`[flows] peers`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetStatus>,
    /// The flows with the most bytes; absent until a window is complete, and with `[flows]
    /// elephants = false`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heavy: Option<HeavyTraffic>,
}

/// The flows with the most bytes in the last complete window, estimated from samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HeavyTraffic {
    /// Length of the window.
    pub seconds: f64,
    /// Packets for each sample.
    pub sample_every: u32,
    /// The flows, the largest first.
    pub flows: Vec<HeavyFlow>,
    /// Backends with packets.
    pub backends: Vec<HeavyBackend>,
}

/// A flow with many bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HeavyFlow {
    /// Its VIP.
    pub vip: String,
    /// The flow in the form of the VIP's key, as in [`Pin`].
    pub flow: String,
    /// Its backend; absent if it has left since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Estimate of its bytes per second.
    pub bytes_per_second: f64,
    /// Its share of the VIP's bytes.
    pub share: f64,
    /// Standard error of the estimate, as a part of it; absent without a sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standard_error: Option<f64>,
}

/// Load of a backend, and the part of it that the listed flows are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HeavyBackend {
    /// The VIP.
    pub vip: String,
    /// The backend.
    pub backend: String,
    /// Bytes per second, counted.
    pub bytes_per_second: f64,
    /// Estimate of the bytes per second of its listed flows.
    pub heavy_bytes_per_second: f64,
    /// Their share of its bytes.
    pub share: f64,
}

/// Flows that the balancers of a fleet share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FleetStatus {
    /// Address that peers connect to; absent while it is in use by another process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listens: Option<String>,
    /// Peers that are connected to this balancer.
    pub connected: u64,
    /// Connections that were refused: another secret or version, or too many at once.
    pub refused_total: u64,
    /// Flows received, repetitions included.
    pub received_total: u64,
    /// Flows received that were not known.
    pub added_total: u64,
    /// Flows received without their VIP or backend here.
    pub unplaced_total: u64,
    /// Flows and pins received for which there was no room.
    pub full_total: u64,
    /// Flows that two balancers had sent to different backends.
    pub conflicts_total: u64,
    /// How often a peer fell behind and was sent all flows again.
    pub overtaken_total: u64,
    /// Flows that were not sent at once for lack of evidence, because there were too many.
    pub held_back_total: u64,
    /// The peers in configured order.
    pub peers: Vec<FleetPeer>,
}

/// A peer of the fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FleetPeer {
    /// Its address.
    pub address: String,
    /// `connecting`, `connected`, `failed`, or `own`: the address of this balancer itself.
    pub state: String,
    /// The reason of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Whether it has all flows of this balancer.
    pub has_all: bool,
    /// Whether this balancer has all its flows.
    pub gave_all: bool,
    /// Flows sent to it, repetitions included.
    pub sent_total: u64,
    /// Bytes of the messages to it.
    pub sent_bytes_total: u64,
    /// Flows sent to it without their VIP or backend there.
    pub unplaced_total: u64,
    /// Flows and pins sent to it for which it had no room.
    pub full_total: u64,
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
    /// The reason of a failure.
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
    /// The scheduler, which picks the backend of a new flow.
    pub scheduler: String,
    /// The fields that identify a flow.
    pub key: String,
    /// `steady`, or the progress of a change of the pool: `waiting`, `transition`, `absorbing`.
    pub phase: String,
    /// Known flows.
    pub flows: u64,
    /// Packets forwarded.
    pub packets_total: u64,
    /// Bytes of these packets, as received.
    pub bytes_total: u64,
    /// Packets by the table that chose their backend: `ring`, `pin`, `pending`, `turn`, `fallback`,
    /// `fragment`, `connection-id`.
    pub decisions: BTreeMap<String, u64>,
    /// Dropped packets by reason; reasons that never happened are absent.
    pub drops: BTreeMap<String, u64>,
    /// Notes on packets that were not dropped.
    pub notes: BTreeMap<String, u64>,
    /// Connection ids of QUIC: the values that servers must make theirs by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quic: Vec<QuicStatus>,
    /// full-nat: its source ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_ports: Option<SourcePortsStatus>,
    /// full-nat: its source addresses, and those that it had and that known flows still have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub source_addresses: Vec<SourceAddressStatus>,
    /// Backends, including those that left the configuration and still drain.
    pub backends: Vec<VipBackendStatus>,
}

/// A configuration of QUIC-LB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuicStatus {
    /// First three bits of the connection ids.
    pub config_rotation: u8,
    /// Bytes of a server id.
    pub server_id_length: u8,
    /// Bytes of a nonce.
    pub nonce_length: u8,
    /// `plaintext`, `aes-128-single-pass` or `aes-128-four-pass`.
    pub algorithm: String,
    /// Server ids, two hexadecimal digits for each byte, by the backend's name.
    pub servers: BTreeMap<String, String>,
}

/// Source ports of a VIP of full-nat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourcePortsStatus {
    /// Ports in use, over all backends.
    pub in_use: u64,
    /// Ports in use at the backend with the most.
    pub fullest: u64,
    /// Ports for each backend and port.
    pub max: u64,
}

/// A source address of a VIP of full-nat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceAddressStatus {
    /// The address.
    pub address: String,
    /// `own`: this machine has it, and new flows get it; `absent`: this machine does not have it,
    /// so that new flows get the other addresses; `draining`: the configuration does not have it,
    /// and its flows keep it.
    pub state: String,
    /// Ports in use, over all backends.
    pub ports_in_use: u64,
}

/// A backend of a VIP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VipBackendStatus {
    /// Its name in its pool; its address if the pool does not have it any more.
    pub name: String,
    /// Its address, with a port where nat changes it.
    pub address: String,
    /// `up`: accepts new flows; `draining`: keeps its flows; `standby`: a backup that
    /// rests, and keeps its flows; `gone`: receives nothing, because it is unhealthy or disabled.
    pub state: String,
    /// The reason of `gone`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether it is in the configuration.
    pub listed: bool,
    /// Whether the MAC address of the next hop to it is known.
    pub reachable: bool,
    /// The reason why it gets no packets, if its name resolves to an address that this VIP cannot
    /// use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The verdict of its checks through the tunnel; absent without such checks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<Health>,
    /// The error of the last check through the tunnel, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel_detail: Option<String>,
    /// Open flows.
    pub flows: u64,
    /// Closing flows.
    pub flows_closing: u64,
    /// Packets forwarded to it.
    pub packets_total: u64,
    /// Bytes of these packets, as received.
    pub bytes_total: u64,
    /// Packets dropped after it was chosen; the VIP's `drops` have the reasons.
    pub drops_total: u64,
}

/// `GET /v1/flow`: a flow, which need not exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowQuestion {
    /// The client's address and port: `198.51.100.7:40000`.
    #[schemars(example = &"198.51.100.7:40000")]
    pub source: String,
    /// The flow's destination, with protocol: `192.0.2.10:443/tcp`.
    #[schemars(example = &"192.0.2.10:443/tcp")]
    pub vip: String,
    /// The sender's MAC address, for VIPs with the key `source-mac`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
}

/// Where the next packet of a flow would go, if it does not open a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FlowAnswer {
    /// `forwarded`, `dropped`, or `passed` to the kernel.
    pub verdict: String,
    /// The VIP of the flow.
    pub vip: Option<String>,
    /// That VIP's pool.
    pub pool: Option<String>,
    /// The backend's name in the pool. Absent if the flow is not known and the VIP's scheduler is
    /// not a hash, because the first packet decides then.
    pub backend: Option<String>,
    /// Its address, with a port where nat changes it.
    pub address: Option<String>,
    /// The table that chose the backend: `ring`, `pin`, `pending`, `turn`, `fallback`.
    pub by: Option<String>,
    /// full-nat: the address and port of a known flow that the backend sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The reason of a drop.
    pub reason: Option<String>,
    /// The flow's digest, hexadecimal.
    pub digest: Option<String>,
    /// The backend to which an operator or application pinned the flow.
    pub pinned_to: Option<String>,
    /// An explanation in a sentence.
    pub why: String,
}

/// `GET /v1/flow/clients`: a source of full-nat, as a backend sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceQuestion {
    /// The source address and port: `10.0.0.200:5003`.
    #[schemars(example = &"10.0.0.200:5003")]
    pub source: String,
}

/// The flows of full-nat with a source address and port: at most one for each backend, its port and
/// protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceFlows {
    /// The flows, by backend.
    pub flows: Vec<SourceFlow>,
}

/// A flow of full-nat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceFlow {
    /// The client's address and port.
    pub client: String,
    /// The destination of its packets, with protocol: `192.0.2.10:443/tcp`.
    pub vip: String,
    /// The pool of the VIP.
    pub pool: String,
    /// The backend's name in the pool; absent if it has left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Time since its last packet, accurate to 2 s.
    pub idle_seconds: u64,
}

/// A flow that an operator or application pinned to a backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// The VIP: `192.0.2.10:443/tcp`.
    #[schemars(example = &"192.0.2.10:443/tcp")]
    pub vip: String,
    /// The flow in the form of the VIP's key: `198.51.100.7:40000` (with `/PORT` of the VIP if it
    /// has several), `198.51.100.7`, or `02:00:00:00:00:01`.
    #[schemars(example = &"198.51.100.7:40000")]
    pub flow: String,
    /// The backend's name or address.
    #[schemars(example = &"b1")]
    pub backend: String,
    /// Whether the flow goes there. It does not if the backend accepts no packets.
    #[serde(default = "yes")]
    pub in_force: bool,
}

fn yes() -> bool {
    true
}

/// `POST /v1/capture`: packets to capture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CaptureQuestion {
    /// The VIP: `192.0.2.10:443/tcp`.
    #[schemars(example = &"192.0.2.10:443/tcp")]
    pub vip: String,
    /// Only packets to this backend, by name or address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Only packets of clients in this prefix: `198.51.100.0/24`, `198.51.100.7`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Largest number of packets, up to 1,000,000.
    #[serde(default = "capture_count")]
    pub count: u32,
    /// Longest time, up to 3600.
    #[serde(default = "capture_seconds")]
    pub seconds: f64,
    /// Bytes of each packet, 64 to 2048.
    #[serde(default = "capture_snap")]
    pub snap_bytes: u32,
    /// Captures one of this many packets, by chance.
    #[serde(default = "capture_every")]
    pub every: u32,
}

fn capture_count() -> u32 {
    1000
}

fn capture_seconds() -> f64 {
    60.0
}

fn capture_snap() -> u32 {
    256
}

fn capture_every() -> u32 {
    1
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
    /// Pins by VIP and flow.
    pub pins: Vec<Pin>,
}
