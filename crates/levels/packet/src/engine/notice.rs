use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::attach::InterfaceState;
use super::ethtool::Offload;
use super::link::XdpMode;
use super::tunnel_checks::TunnelError;
use crate::fleet::PeerState;
use crate::snapshot::{BackendId, Station, VipId};

/// An event for operators; its text is the log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The state of an interface changed.
    Interface {
        /// Name of the interface.
        name: Arc<str>,
        /// Its new state.
        state: InterfaceState,
    },
    /// An offload was switched off for the program, or on again.
    Offload {
        /// The device.
        device: String,
        /// The offload.
        offload: Offload,
        /// Its new state.
        on: bool,
    },
    /// An offload that was switched off cannot be switched on again.
    OffloadStuck {
        /// The device.
        device: String,
        /// The offload.
        offload: Offload,
        /// Cause of the error.
        error: String,
    },
    /// Native mode would lose packets, so the program runs in generic mode.
    NotNative {
        /// The interface.
        interface: Arc<str>,
        /// Cause.
        why: String,
    },
    /// Generic mode on a veth, which may receive packets from its peer that are larger than its
    /// MTU.
    VethMerges {
        /// The interface.
        interface: Arc<str>,
    },
    /// VLANs on a veth with a peer that hides their tags from the program.
    VethTags {
        /// The interface.
        interface: Arc<str>,
    },
    /// The program was detached.
    Detached {
        /// The interface.
        name: Arc<str>,
    },
    /// The engine continues with the pinned maps of an earlier process.
    Adopted {
        /// Number of known flows.
        flows: usize,
    },
    /// The pinned maps of an earlier process are unusable.
    NotAdopted {
        /// Cause.
        why: String,
    },
    /// Flows of an earlier process are known although the tables are new.
    Known {
        /// Number of flows.
        flows: usize,
    },
    /// Flows of an earlier process are no longer known.
    Forgotten {
        /// Number of flows.
        flows: usize,
        /// Cause.
        why: String,
    },
    /// Pinned flows with an unknown VIP and client.
    Nameless {
        /// Number of flows.
        flows: usize,
        /// Cause.
        why: String,
    },
    /// The ledger for the next process cannot be written.
    Ledger {
        /// Error of the system call.
        error: String,
    },
    /// There is no route to a backend.
    NoRoute {
        /// Address of the backend.
        backend: IpAddr,
    },
    /// A backend is this machine itself.
    Local {
        /// Address of the backend.
        backend: IpAddr,
    },
    /// direct-routing to a backend that is not on the link.
    OffLink {
        /// Address of the backend.
        backend: IpAddr,
        /// The gateway that would receive its packets.
        gateway: IpAddr,
    },
    /// nat without forwarding in the kernel.
    NotForwarding {
        /// The interface without forwarding.
        interface: Arc<str>,
        /// Whether it concerns IPv6.
        v6: bool,
    },
    /// nat with a VIP that is an address of this machine, from which the kernel routes nothing.
    OwnVip {
        /// Address of the VIP.
        vip: IpAddr,
        /// The interface at which replies arrive.
        interface: Arc<str>,
    },
    /// full-nat: this machine uses a source address for its own connections.
    SourceShared {
        /// The source address.
        address: IpAddr,
        /// A backend towards which the kernel uses it.
        backend: IpAddr,
    },
    /// full-nat: this machine does not have a source address.
    SourceAbsent {
        /// The source address.
        address: IpAddr,
        /// Whether the VIP has another one, which new flows get.
        is_left: bool,
    },
    /// full-nat: this machine has a source address that it did not have.
    SourceBack {
        /// The source address.
        address: IpAddr,
    },
    /// full-nat: no flow has a removed source address any more.
    SourceDrained {
        /// The source address.
        address: IpAddr,
    },
    /// full-nat: new flows found no free source port.
    PortsExhausted {
        /// The VIP.
        vip: VipId,
        /// Packets dropped since the last such event.
        packets: u64,
    },
    /// There are more MAC addresses than the table can hold.
    TooManyMacs {
        /// Number of addresses, counted on each interface.
        macs: usize,
    },
    /// Flows lost their backend.
    Moved {
        /// Number of flows.
        flows: usize,
        /// Number of these without room for a pin.
        pins_full: usize,
    },
    /// The registry was full: it rejected flows, or replaced them by flows with more evidence.
    RegistryFull {
        /// Number of flows since the last such line.
        flows: usize,
    },
    /// The connection to a peer of the fleet changed.
    Peer {
        /// Its address.
        peer: SocketAddr,
        /// The new state.
        state: PeerState,
    },
    /// Flows cannot be shared with the fleet.
    NotSharing {
        /// Cause of the error.
        error: String,
    },
    /// The last flow of a backend has ended.
    Drained {
        /// The VIP.
        vip: String,
        /// The backend.
        backend: String,
    },
    /// Checks through the tunnel made a backend unhealthy.
    TunnelFailed {
        /// The VIP.
        vip: VipId,
        /// The backend.
        backend: BackendId,
        /// Failed checks in a row.
        checks: u32,
        /// The failure of the last one.
        why: TunnelError,
    },
    /// The first check through the tunnel passed. It is not logged.
    TunnelFound {
        /// The VIP.
        vip: VipId,
        /// The backend.
        backend: BackendId,
    },
    /// Checks through the tunnel made a backend healthy again.
    TunnelWorks {
        /// The VIP.
        vip: VipId,
        /// The backend.
        backend: BackendId,
    },
    /// A check through the tunnel is not possible.
    NotCheckedThroughTunnel {
        /// The VIP.
        vip: VipId,
        /// The backend.
        backend: BackendId,
        /// The cause.
        why: TunnelError,
    },
    /// No check through any tunnel is possible.
    NoTunnelChecks {
        /// The cause.
        error: TunnelError,
    },
    /// The kernel's tables cannot be read.
    Network {
        /// Error of the request.
        error: String,
    },
}

impl Notice {
    /// Whether it needs attention soon.
    pub fn is_warning(&self) -> bool {
        match self {
            Notice::Interface { state, .. } => {
                !matches!(state, InterfaceState::Attached(XdpMode::Native))
            }
            Notice::Detached { .. }
            | Notice::Offload { .. }
            | Notice::Adopted { .. }
            | Notice::Known { .. }
            | Notice::TunnelFound { .. }
            | Notice::TunnelWorks { .. }
            | Notice::SourceBack { .. }
            | Notice::SourceDrained { .. }
            | Notice::Drained { .. } => false,
            Notice::Peer { state, .. } => matches!(state, PeerState::Failed(_)),
            _ => true,
        }
    }

    /// Writes notices about an earlier process.
    fn inherited(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Adopted { flows } => {
                write!(f, "went on with the tables of an earlier process and {flows} known flows")
            }
            Notice::NotAdopted { why } => write!(
                f,
                "began with new tables: those of an earlier process cannot be taken over, {why}"
            ),
            Notice::Known { flows } => write!(
                f,
                "{flows} flows of an earlier process are known from its registry and keep their backends"
            ),
            Notice::Forgotten { flows, why } => write!(
                f,
                "{flows} flows of an earlier process are forgotten, and go where their VIP's table says: {why}"
            ),
            Notice::Nameless { flows, why } => write!(
                f,
                "{flows} flows are pinned by operators or applications and cannot be listed, only removed: {why}"
            ),
            _ => Ok(()),
        }
    }

    /// Writes notices about settings of the kernel.
    fn setting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::NotForwarding { interface, v6 } => {
                let all = if *v6 { "net.ipv6.conf.all.forwarding" } else { "net.ipv4.ip_forward" };
                write!(
                    f,
                    "the kernel does not forward what comes by {interface}, so replies under nat and full-nat do not reach clients: \
                     sysctl {all}=1"
                )
            }
            Notice::OwnVip { vip, interface } => write!(
                f,
                "this machine has the VIP {vip} itself, so the kernel drops replies under nat that it routes, as the \
                 first to a client whose next hop's MAC address is unknown: sysctl \
                 net.ipv4.conf.{interface}.accept_local=1"
            ),
            Notice::SourceShared { address, backend } => write!(
                f,
                "this machine uses the source address {address} for its own connections to {backend}, as health checks: \
                 replies to a port that full-nat uses too go to a client. Give full-nat addresses of its own, added \
                 after those of the machine"
            ),
            Notice::SourceAbsent { address, is_left } => {
                // An address that the machine uses for nothing else.
                let added = if address.is_ipv4() { "/32" } else { "/128 preferred_lft 0" };
                let flows = match is_left {
                    true => "new flows get the other source addresses",
                    false => "and no other one of the VIP, so `equipoise ready` fails",
                };
                write!(
                    f,
                    "this machine does not have the source address {address}, so replies to it are lost; {flows}: \
                     ip addr add {address}{added} dev INTERFACE"
                )
            }
            Notice::SourceBack { address } => {
                write!(f, "this machine has the source address {address} again: new flows get it")
            }
            Notice::SourceDrained { address } => write!(
                f,
                "no flow has the source address {address} any more: this machine may lose it"
            ),
            _ => Ok(()),
        }
    }

    /// Writes notices about interfaces.
    fn device(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Offload { device, offload, on: false } => {
                let (word, effect) = (offload.word(), offload.effect());
                write!(
                    f,
                    "turned {word} of {device} off: {effect} (to forbid it: [flows] adjust-offloads = false)"
                )
            }
            Notice::Offload { device, offload, on: true } => {
                write!(f, "turned {} of {device} on again", offload.word())
            }
            Notice::OffloadStuck { device, offload, error } => {
                let word = offload.word();
                write!(
                    f,
                    "{word} of {device} cannot be turned on again: {error}; tried again later, or run `ethtool -K \
                     {device} {word} on`"
                )
            }
            Notice::NotNative { interface, why } => write!(
                f,
                "interface {interface}: in native mode packets would be lost, so the program runs in generic mode: {why}"
            ),
            Notice::VethMerges { interface } => write!(
                f,
                "interface {interface} is a veth, and in generic mode packets that its other end does not cut to the MTU \
                 are dropped (too_big): run `ethtool -K PEER tso off` in the network namespace of the other end"
            ),
            Notice::VethTags { interface } => write!(
                f,
                "interface {interface} is a veth with VLANs, whose other end hides their tags from the program, so that \
                 they are lost: run `ethtool -K PEER txvlan off` in the network namespace of the other end"
            ),
            _ => Ok(()),
        }
    }

    /// Writes notices about flows without room.
    fn flows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Moved { flows, pins_full: 0 } => {
                write!(f, "{flows} flows lost their backend and go to others")
            }
            Notice::Moved { flows, pins_full } => write!(
                f,
                "{flows} flows go to other backends, {pins_full} of them for want of room among the pins: raise \
                 [flows] pins-max and restart"
            ),
            Notice::RegistryFull { flows } => write!(
                f,
                "the flow registry is full: {flows} flows found no room or gave way to flows with more evidence; forged \
                 addresses do this, otherwise raise [flows] max and restart"
            ),
            Notice::PortsExhausted { vip, packets } => write!(
                f,
                "{vip}: {packets} packets of new flows were dropped, because no source port was free (ports_exhausted): \
                 add source-addresses, or lower closing-timeout"
            ),
            _ => Ok(()),
        }
    }

    /// Writes notices about the fleet.
    fn fleet(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Peer { peer, state } => {
                write!(f, "peer {peer}: ")?;
                match state {
                    PeerState::Connecting => f.write_str("connecting"),
                    PeerState::Connected => f.write_str("connected, and is sent all flows"),
                    PeerState::Own => f.write_str("is this balancer itself, and is ignored"),
                    PeerState::Failed(why) => {
                        write!(f, "gets no flows until the connection works again: {why}")
                    }
                }
            }
            Notice::NotSharing { error } => write!(f, "flows are not shared with peers: {error}"),
            _ => Ok(()),
        }
    }

    /// Writes notices about checks through tunnels.
    fn tunnel(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::TunnelFailed { vip, backend, checks, why } => write!(
                f,
                "{vip}: backend {backend} became unhealthy after {checks} failed checks: {why}"
            ),
            Notice::TunnelFound { vip, backend } => {
                write!(f, "{vip}: backend {backend} answers through the tunnel")
            }
            Notice::TunnelWorks { vip, backend } => {
                write!(f, "{vip}: backend {backend} answers through the tunnel again")
            }
            Notice::NotCheckedThroughTunnel { vip, backend, why } => {
                write!(f, "{vip}: backend {backend}: {why}")
            }
            Notice::NoTunnelChecks { error } => write!(f, "all backends: {error}"),
            _ => Ok(()),
        }
    }

    /// The type of the event.
    fn event(&self) -> &'static str {
        match self {
            Notice::Interface { .. }
            | Notice::Detached { .. }
            | Notice::NotNative { .. }
            | Notice::VethMerges { .. }
            | Notice::VethTags { .. } => "packet.interface",
            Notice::Offload { .. } | Notice::OffloadStuck { .. } => "packet.offload",
            Notice::Adopted { .. }
            | Notice::NotAdopted { .. }
            | Notice::Known { .. }
            | Notice::Forgotten { .. }
            | Notice::Nameless { .. }
            | Notice::Ledger { .. }
            | Notice::Moved { .. }
            | Notice::PortsExhausted { .. }
            | Notice::RegistryFull { .. } => "packet.flows",
            Notice::NoRoute { .. }
            | Notice::Local { .. }
            | Notice::OffLink { .. }
            | Notice::OwnVip { .. }
            | Notice::NotForwarding { .. }
            | Notice::SourceShared { .. }
            | Notice::SourceAbsent { .. }
            | Notice::SourceBack { .. }
            | Notice::TooManyMacs { .. }
            | Notice::Network { .. } => "packet.route",
            Notice::Peer { .. } | Notice::NotSharing { .. } => "packet.peer",
            Notice::Drained { .. } | Notice::SourceDrained { .. } => "packet.drained",
            Notice::TunnelFailed { .. }
            | Notice::NotCheckedThroughTunnel { .. }
            | Notice::NoTunnelChecks { .. } => "packet.tunnel-failed",
            Notice::TunnelFound { .. } | Notice::TunnelWorks { .. } => "packet.tunnel-works",
        }
    }

    pub(super) fn log(&self) {
        let event = self.event();
        match self {
            Notice::TunnelFound { .. } | Notice::Peer { state: PeerState::Own, .. } => {
                tracing::debug!("{self}");
            }
            _ if self.is_warning() => tracing::warn!(event, "{self}"),
            _ => tracing::info!(event, "{self}"),
        }
    }
}

impl fmt::Display for InterfaceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InterfaceState::Attached(XdpMode::Native) => f.write_str("attached, native"),
            InterfaceState::Attached(XdpMode::Generic) => f.write_str(
                "attached, generic, where packets cost more: native XDP is not possible (driver, MTU) or would lose packets",
            ),
            InterfaceState::Absent => f.write_str("not there; attached when it comes"),
            InterfaceState::Failed(why) => write!(f, "cannot be attached to: {why}"),
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("packet: ")?;
        match self {
            Notice::Interface { name, state } => write!(f, "interface {name}: {state}"),
            Notice::Detached { name } => write!(f, "interface {name}: detached"),
            Notice::Offload { .. }
            | Notice::OffloadStuck { .. }
            | Notice::NotNative { .. }
            | Notice::VethMerges { .. }
            | Notice::VethTags { .. } => self.device(f),
            Notice::Adopted { .. }
            | Notice::NotAdopted { .. }
            | Notice::Known { .. }
            | Notice::Forgotten { .. }
            | Notice::Nameless { .. } => self.inherited(f),
            Notice::Ledger { error } => write!(
                f,
                "what a restart with other [flows] sizes must know cannot be written, tried again: {error}"
            ),
            Notice::NoRoute { backend } => {
                write!(
                    f,
                    "no route to backend {backend}; its packets are dropped (neighbour_unresolved)"
                )
            }
            Notice::Local { backend } => write!(
                f,
                "backend {backend} is this machine itself, where no packet can be sent; its packets are dropped \
                 (neighbour_unresolved)"
            ),
            Notice::OffLink { backend, gateway } => write!(
                f,
                "backend {backend} is behind gateway {gateway}, and direct-routing reaches only backends on the same \
                 link; use forward = \"tunnel\""
            ),
            Notice::NotForwarding { .. }
            | Notice::OwnVip { .. }
            | Notice::SourceShared { .. }
            | Notice::SourceAbsent { .. }
            | Notice::SourceBack { .. }
            | Notice::SourceDrained { .. } => self.setting(f),
            Notice::TooManyMacs { macs } => write!(
                f,
                "{macs} MAC addresses are to be taken on all interfaces together, and there is room for {}: frames to \
                 the others are left to the kernel; shorten `accept-mac`",
                Station::MAX
            ),
            Notice::Moved { .. } | Notice::RegistryFull { .. } | Notice::PortsExhausted { .. } => {
                self.flows(f)
            }
            Notice::Drained { vip, backend } => {
                write!(f, "{vip}: backend {backend} has drained, its last flow is over")
            }
            Notice::Network { error } => {
                write!(f, "the kernel's routes and neighbours cannot be read: {error}; tried again")
            }
            Notice::Peer { .. } | Notice::NotSharing { .. } => self.fleet(f),
            _ => self.tunnel(f),
        }
    }
}
