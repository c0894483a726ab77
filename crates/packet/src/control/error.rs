//! What can go wrong. After an error, nothing has changed.

use std::net::IpAddr;

use equipoise_core::{Generation, SchedulerKind};
use equipoise_pog::BuildError;
use equipoise_pog::publish::{OpenError, PublishError};
use thiserror::Error;

use crate::abi::{FlowKey, RANGES_MAX, SLOTS_MAX};
use crate::snapshot::{BackendId, VipId};

/// The control side cannot start.
#[derive(Debug, Error)]
pub enum ControlError {
    /// No memory was given.
    #[error("no loaded program was given: load one first")]
    NoMemory,
    /// Tables that are set up, but for another program.
    #[error("the tables of the running program cannot be taken over: detach it, and start afresh")]
    Adopt(#[source] OpenError),
    /// Tables that contradict themselves or the settings.
    #[error(
        "the tables of the running program are not those of this configuration ({what}): detach it, and start afresh"
    )]
    Foreign {
        /// What differs.
        what: &'static str,
    },
    /// Pins cannot be built.
    #[error("the pinned flows cannot be built")]
    Pins(#[source] BuildError),
    /// Tables cannot be published.
    #[error("the tables cannot be published: the memory was made with another capacity")]
    Publish(#[source] PublishError),
}

/// A snapshot is refused; the tables are those of the last one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ApplyError {
    /// An older snapshot.
    #[error("generation {} is older than the running {}: a later change has won", given.0, running.0)]
    Stale {
        /// Of the snapshot.
        given: Generation,
        /// Of the one in force.
        running: Generation,
    },
    /// Two VIPs claim a port.
    #[error("{first} and {second} overlap: give each port of an address to one VIP")]
    Overlap {
        /// One.
        first: VipId,
        /// The other.
        second: VipId,
    },
    /// A range that is empty.
    #[error("{vip}: the last port is below the first")]
    Range {
        /// The VIP.
        vip: VipId,
    },
    /// Too many ranges of one address.
    #[error(
        "{vip}: its address has more than {RANGES_MAX} port ranges for the protocol: join some"
    )]
    Ranges {
        /// A VIP of the address.
        vip: VipId,
    },
    /// A backend stands twice.
    #[error("{vip}: backend {backend} stands twice: give it once, with the sum of the weights")]
    Twice {
        /// The VIP.
        vip: VipId,
        /// The backend.
        backend: BackendId,
    },
    /// A scheduler of other levels.
    #[error(
        "{vip}: {scheduler} is not for packets; accepted: maglev, weighted-random, round-robin, weighted-round-robin, \
         least-connection, weighted-least-connection"
    )]
    Scheduler {
        /// The VIP.
        vip: VipId,
        /// What was given.
        scheduler: SchedulerKind,
    },
    /// A VIP whose packets would come back to the balancer.
    #[error(
        "{vip}: a backend has the address of VIP {of}, so its packets would come back here: give the address of its own \
         interface"
    )]
    Loop {
        /// The VIP.
        vip: VipId,
        /// The VIP of the same address, which may be the same VIP.
        of: VipId,
    },
    /// nat and direct routing do not change the family.
    #[error(
        "{vip}: backend {backend} is of another IP family: use tunnel or gue, or a backend of the VIP's family"
    )]
    Family {
        /// The VIP.
        vip: VipId,
        /// The backend.
        backend: BackendId,
    },
    /// Only nat changes ports.
    #[error("{vip}: backend {backend} has a port, and only nat changes ports: leave it out")]
    Port {
        /// The VIP.
        vip: VipId,
        /// The backend.
        backend: BackendId,
    },
    /// nat: replies of one backend address and port lead to one VIP.
    #[error(
        "{first} and {second} both translate to {backend}: its replies could not be told apart; use another port"
    )]
    Reverse {
        /// One.
        first: VipId,
        /// The other.
        second: VipId,
        /// The backend of both.
        backend: BackendId,
    },
    /// Too many slots.
    #[error(
        "{vip}: more than {SLOTS_MAX} backends, those included that still drain: split the pool"
    )]
    Slots {
        /// The VIP.
        vip: VipId,
    },
    /// More than there is room for.
    #[error("{wanted} {what} are wanted and there is room for {room}: raise {option} and restart")]
    Room {
        /// Of what.
        what: &'static str,
        /// How many.
        wanted: usize,
        /// How many fit.
        room: usize,
        /// What to raise.
        option: &'static str,
    },
}

/// A pin is refused; nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PinError {
    /// No such VIP.
    #[error("there is no VIP {0}")]
    Vip(VipId),
    /// No such backend.
    #[error("{vip} has no backend {backend} that takes packets")]
    Backend {
        /// The VIP.
        vip: VipId,
        /// What was given.
        backend: BackendId,
    },
    /// A key of another kind.
    #[error("{vip} knows its flows by {wanted:?}, not by {given}")]
    Key {
        /// The VIP.
        vip: VipId,
        /// Its key.
        wanted: FlowKey,
        /// The key given.
        given: &'static str,
    },
    /// An address of another family, or a destination that is not the VIP.
    #[error("{address} is not an address of a flow of {vip}")]
    Address {
        /// The VIP.
        vip: VipId,
        /// What was given.
        address: IpAddr,
    },
    /// No such pin.
    #[error("there is no such pin on {0}")]
    Unknown(VipId),
    /// No room.
    #[error(
        "{pins} flows are pinned, and there is no room for more of this VIP: raise [flows] pins-max and restart"
    )]
    Full {
        /// How many.
        pins: usize,
    },
}
