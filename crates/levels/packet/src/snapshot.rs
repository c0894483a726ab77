//! Input of the packet level: VIPs with their pools, complete and numbered. Immutable; a newer
//! snapshot replaces it.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use equipoise_core::{AdminState, Eligibility, Generation, Health, Weight, eligibility};

use crate::abi::{FlowKey, Forward, Pick};
use crate::access::Access;
pub use crate::backend_id::BackendId;
use crate::quic::Quic;
use crate::scheduler::FlowScheduler;

/// Everything wanted of the packet level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Rises with every change; an older snapshot never replaces a newer one.
    pub generation: Generation,
    /// In the order of the configuration; no two with an address, port and protocol in common.
    pub vips: Vec<VipSpec>,
}

/// A VIP with its pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VipSpec {
    /// The address that clients know.
    pub address: IpAddr,
    /// Its ports.
    pub ports: Ports,
    /// Its protocol.
    pub protocol: Protocol,
    /// How packets reach the backends.
    pub forward: Forward,
    /// Fields that identify a flow.
    pub key: FlowKey,
    /// How a new flow's backend is picked.
    pub scheduler: FlowScheduler,
    /// Sources of accepted packets.
    pub access: Access,
    /// Its own times until idle flows are forgotten.
    pub timeouts: OwnTimeouts,
    /// UDP: connection ids of QUIC that have the server.
    pub quic: Option<Arc<Quic>>,
    /// Packets also carry the backend that had their flow before a change. For GUE, TCP and
    /// schedulers that are a hash; elsewhere without effect.
    pub second_chance: bool,
    /// full-nat: sources of its packets to backends.
    pub sources: Sources,
    /// The pool, eligible or not, in the order of the configuration; no two with one address and
    /// port.
    pub backends: Vec<BackendSpec>,
}

/// Source addresses and ports of full-nat; none for other methods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    /// Addresses of the VIP's family, all different.
    pub addresses: Vec<IpAddr>,
    /// Further addresses, which only known flows have: this machine does not have them now.
    pub absent: Vec<IpAddr>,
    /// First port of each, not 0.
    pub port_first: u16,
    /// Last port of each.
    pub port_last: u16,
}

impl Sources {
    /// Maximum number of addresses of one VIP.
    pub const ADDRESSES_MAX: usize = 64;
}

impl Default for Sources {
    fn default() -> Sources {
        Sources { addresses: Vec::new(), absent: Vec::new(), port_first: 1024, port_last: u16::MAX }
    }
}

/// Times until idle flows of one VIP are forgotten; `None`: those of all VIPs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnTimeouts {
    /// TCP, open.
    pub open: Option<Duration>,
    /// TCP after a FIN.
    pub closing: Option<Duration>,
    /// UDP.
    pub udp: Option<Duration>,
}

/// A destination MAC address that is accepted on an interface. Frames to others go to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Station {
    /// The interface by its index, which is not 0.
    pub ifindex: u32,
    /// The destination address of the frames.
    pub mac: [u8; 6],
}

impl Station {
    /// Stations that there is room for, over all interfaces.
    pub const MAX: usize = crate::abi::MACS / 4;
}

/// Identity of a VIP across snapshots: its flows keep their backends, whatever else changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VipId {
    /// The address.
    pub address: IpAddr,
    /// The ports.
    pub ports: Ports,
    /// The protocol.
    pub protocol: Protocol,
}

/// The ports of a VIP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ports {
    /// One.
    One(u16),
    /// From the first to the last, both included.
    Range(u16, u16),
    /// All that no other VIP of the address has.
    Any,
}

/// The protocol of a VIP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Protocol {
    /// 6
    Tcp = 6,
    /// 17
    Udp = 17,
}

/// One real server of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendSpec {
    /// Its address.
    pub address: IpAddr,
    /// nat: the port that the destination port becomes; `None`: stays.
    pub port: Option<u16>,
    /// Its share of new flows; 0 drains.
    pub weight: Weight,
    /// Desired state.
    pub admin: AdminState,
    /// Observed health.
    pub health: Health,
    /// Treatment of its flows while it is unhealthy.
    pub on_down: OnDown,
    /// It gets new flows only while no other backend does.
    pub backup: bool,
}

/// Treatment of the flows of an unhealthy backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnDown {
    /// They go to the other backends, counted.
    #[default]
    Move,
    /// They stay: the backend is as if it were draining.
    Keep,
}

/// Where packets to an address leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NextHop {
    /// The interface.
    pub ifindex: u32,
    /// Of the next hop; `None`: not resolved (yet).
    pub destination_mac: Option<[u8; 6]>,
    /// Of the interface.
    pub source_mac: [u8; 6],
    /// Of the path, in bytes of IP packet.
    pub mtu: u16,
}

/// Kind of packets that a backend may receive, by its desired state and health.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// New flows, and it keeps those it has.
    Eligible,
    /// Keeps the flows it has.
    Draining,
    /// Nothing: the flows it had go elsewhere.
    Gone,
}

/// The weight of a backend that gets no new flows.
const NO_WEIGHT: Weight = match Weight::new(0) {
    Ok(weight) => weight,
    Err(_) => panic!("0 is a weight"),
};

impl VipSpec {
    /// Returns the identity of the VIP.
    pub fn id(&self) -> VipId {
        VipId { address: self.address, ports: self.ports, protocol: self.protocol }.normal()
    }

    /// Whether its packets may carry a second backend.
    pub(crate) fn has_second_chance(&self) -> bool {
        self.second_chance
            && self.forward == Forward::Gue
            && self.protocol == Protocol::Tcp
            && self.scheduler.pick() == Pick::Ring
    }

    /// Returns the backends, backups without weight while another backend gets new flows: they keep
    /// the flows that they have.
    pub(crate) fn backends_in_turn(&self) -> Vec<BackendSpec> {
        let serves = |it: &BackendSpec| !it.backup && it.standing() == Standing::Eligible;
        let rests = self.backends.iter().any(serves);
        let drained = |it: &BackendSpec| match it.standing() {
            Standing::Eligible if it.backup && rests => {
                BackendSpec { weight: NO_WEIGHT, ..it.clone() }
            }
            _ => it.clone(),
        };
        self.backends.iter().map(drained).collect()
    }
}

impl BackendSpec {
    /// Returns the identity of the backend.
    pub fn id(&self) -> BackendId {
        BackendId { address: self.address, port: self.port }
    }

    /// Whether it is a backup that rests, of those that [`VipSpec::backends_in_turn`] returns.
    pub(crate) fn is_standby(&self) -> bool {
        self.backup && self.admin == AdminState::Up && self.standing() == Standing::Draining
    }

    /// Returns the kind of packets that it may receive.
    pub fn standing(&self) -> Standing {
        match eligibility(self.admin, self.health, self.weight) {
            Eligibility::Eligible => Standing::Eligible,
            Eligibility::Down => Standing::Gone,
            _ if self.health != Health::Unhealthy => Standing::Draining,
            // Draining and unhealthy: what it has cannot be served there either.
            _ => match self.on_down {
                OnDown::Move => Standing::Gone,
                OnDown::Keep => Standing::Draining,
            },
        }
    }
}

impl VipId {
    /// Returns the same VIP with its ports in normal form.
    pub(crate) fn normal(self) -> VipId {
        let ports = match self.ports.bounds() {
            (0, u16::MAX) => Ports::Any,
            (first, last) if first == last => Ports::One(first),
            (first, last) => Ports::Range(first, last),
        };
        VipId { ports, ..self }
    }

    /// Whether a packet could be for both. One that has any port gets what no other has: it
    /// overlaps with none.
    pub fn overlaps(&self, other: &VipId) -> bool {
        let of_same = self.address == other.address && self.protocol == other.protocol;
        let ((first, last), (other_first, other_last)) =
            (self.ports.bounds(), other.ports.bounds());
        let is_any = |ports| ports == Ports::Any;
        of_same
            && is_any(self.ports) == is_any(other.ports)
            && first <= other_last
            && other_first <= last
    }
}

impl Ports {
    /// The first and the last.
    pub fn bounds(self) -> (u16, u16) {
        match self {
            Ports::One(port) => (port, port),
            Ports::Range(first, last) => (first, last),
            Ports::Any => (0, u16::MAX),
        }
    }
}

impl Protocol {
    /// The number in the IP header.
    pub fn number(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        })
    }
}

/// As in the configuration: `192.0.2.1:443/tcp`, `[2001:db8::1]:8000-8099/udp`, `192.0.2.1:*/tcp`.
///
/// A fleet agrees on what is derived from this text: it does not change between versions.
impl fmt::Display for VipId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            IpAddr::V4(address) => write!(f, "{address}:")?,
            IpAddr::V6(address) => write!(f, "[{address}]:")?,
        }
        match self.ports {
            Ports::One(port) => write!(f, "{port}")?,
            Ports::Range(first, last) => write!(f, "{first}-{last}")?,
            Ports::Any => f.write_str("*")?,
        }
        write!(f, "/{}", self.protocol)
    }
}
