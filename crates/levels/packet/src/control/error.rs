//! Errors of the control side. A failed operation changes nothing.

use std::net::IpAddr;

use equipoise_core::Generation;
use equipoise_pog::BuildError;
use equipoise_pog::publish::{OpenError, PublishError};
use thiserror::Error;

use crate::abi::{FlowKey, RANGES_MAX, SLOTS_MAX};
use crate::snapshot::{BackendId, Sources, VipId};

/// The control side cannot start.
#[derive(Debug, Error)]
pub enum ControlError {
    /// No memory was given.
    #[error("no loaded program was given: load one first")]
    NoMemory,
    /// The tables are set up, but for another program.
    #[error("the tables of the running program cannot be taken over: detach it, and start afresh")]
    Adopt(#[source] OpenError),
    /// The tables are inconsistent, or do not match the settings.
    #[error(
        "the tables of the running program are not those of this configuration ({what}): detach it, and start afresh"
    )]
    Foreign {
        /// The difference.
        what: &'static str,
    },
    /// The pins cannot be built.
    #[error("the pinned flows cannot be built")]
    Pins(#[source] BuildError),
    /// The tables cannot be published.
    #[error("the tables cannot be published: the memory was made with another capacity")]
    Publish(#[source] PublishError),
}

/// A snapshot is rejected; the tables of the previous one stay in force.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ApplyError {
    /// The snapshot is older than the current one.
    #[error("generation {} is older than the running {}: a later change has won", given.0, running.0)]
    Stale {
        /// Generation of the snapshot.
        given: Generation,
        /// Generation in force.
        running: Generation,
    },
    /// Two VIPs have the same port.
    #[error("{first} and {second} overlap: give each port of an address to one VIP")]
    Overlap {
        /// The first VIP.
        first: VipId,
        /// The second VIP.
        second: VipId,
    },
    /// A port range is empty.
    #[error("{vip}: the last port is below the first")]
    Range {
        /// The VIP.
        vip: VipId,
    },
    /// An address has too many port ranges.
    #[error(
        "{vip}: its address has more than {RANGES_MAX} port ranges for the protocol: join some"
    )]
    Ranges {
        /// A VIP of the address.
        vip: VipId,
    },
    /// A backend is listed twice.
    #[error("{vip}: backend {backend} stands twice: give it once, with the sum of the weights")]
    Twice {
        /// The VIP.
        vip: VipId,
        /// The backend.
        backend: BackendId,
    },
    /// A backend would send the VIP's packets back to the balancer.
    #[error(
        "{vip}: a backend has the address of VIP {of}, so its packets would come back here: give the address of its own \
         interface"
    )]
    Loop {
        /// The VIP.
        vip: VipId,
        /// The VIP with the backend's address, possibly the same VIP.
        of: VipId,
    },
    /// nat and direct routing cannot change the address family.
    #[error(
        "{vip}: backend {backend} is of another IP family: use tunnel or gue, or a backend of the VIP's family"
    )]
    Family {
        /// The VIP.
        vip: VipId,
        /// The backend.
        backend: BackendId,
    },
    /// A backend has a port, but only nat changes ports.
    #[error("{vip}: backend {backend} has a port, and only nat changes ports: leave it out")]
    Port {
        /// The VIP.
        vip: VipId,
        /// The backend.
        backend: BackendId,
    },
    /// nat: replies from one backend address and port belong to one VIP.
    #[error(
        "{first} and {second} both translate to {backend}: its replies could not be told apart; use another port"
    )]
    Reverse {
        /// The first VIP.
        first: VipId,
        /// The second VIP.
        second: VipId,
        /// The backend of both.
        backend: BackendId,
    },
    /// full-nat: the source addresses are unusable.
    #[error(
        "{vip}: full-nat needs 1 to {} different source addresses of the VIP's family, and ports from 1 on",
        Sources::ADDRESSES_MAX
    )]
    Sources {
        /// The VIP.
        vip: VipId,
    },
    /// full-nat: a source address belongs to a VIP or backend.
    #[error(
        "{vip}: source address {address} is the address of a VIP or backend: give full-nat addresses of its own"
    )]
    SourceUsed {
        /// The VIP.
        vip: VipId,
        /// The source address.
        address: IpAddr,
    },
    /// full-nat: the program was loaded without memory for ports.
    #[error(
        "{vip}: the running program has no memory for full-nat, because no VIP had it at the start: restart"
    )]
    NoPorts {
        /// The VIP.
        vip: VipId,
    },
    /// nat: the kernel has no memory for its flows.
    #[error(
        "the first VIP with nat needs {bytes} bytes of kernel memory, and there are none ({error}): \
         lower [flows] max, or raise the memory limit"
    )]
    NoTranslated {
        /// Size of the map.
        bytes: u64,
        /// The error of the kernel.
        error: String,
    },
    /// full-nat: there are too many source addresses.
    #[error("all VIPs have {wanted} source addresses, and there is room for {room}: use fewer")]
    TooManySources {
        /// Number required.
        wanted: usize,
        /// Capacity.
        room: usize,
    },
    /// There are too many slots.
    #[error(
        "{vip}: more than {SLOTS_MAX} backends, those included that still drain: split the pool"
    )]
    Slots {
        /// The VIP.
        vip: VipId,
    },
    /// The capacity is too small.
    #[error("{wanted} {what} are wanted and there is room for {room}: raise {option} and restart")]
    Room {
        /// The resource.
        what: &'static str,
        /// Number required.
        wanted: usize,
        /// Capacity.
        room: usize,
        /// Option to raise.
        option: &'static str,
    },
}

/// A pin is rejected; nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PinError {
    /// The VIP does not exist.
    #[error("there is no VIP {0}")]
    Vip(VipId),
    /// The backend does not exist.
    #[error("{vip} has no backend {backend} that takes packets")]
    Backend {
        /// The VIP.
        vip: VipId,
        /// The backend given.
        backend: BackendId,
    },
    /// The flow is identified by other fields than the VIP's flows.
    #[error("{vip} knows its flows by {wanted:?}, not by {given}")]
    Key {
        /// The VIP.
        vip: VipId,
        /// Fields that identify the VIP's flows.
        wanted: FlowKey,
        /// Fields given.
        given: &'static str,
    },
    /// The address has another family, or the destination is not the VIP.
    #[error("{address} is not an address of a flow of {vip}")]
    Address {
        /// The VIP.
        vip: VipId,
        /// The address given.
        address: IpAddr,
    },
    /// The pin does not exist.
    #[error("there is no such pin on {0}")]
    Unknown(VipId),
    /// There is no room for more pins.
    #[error(
        "{pins} flows are pinned, and there is no room for more of this VIP: raise [flows] pins-max and restart"
    )]
    Full {
        /// Number of pinned flows.
        pins: usize,
    },
}
