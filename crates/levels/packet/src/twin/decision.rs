//! Decisions about packets.

use super::tables::ServiceAt;
use crate::abi::{Backend, How};
use crate::digest::Digest;
use crate::reason::Reason;

/// Result for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Left to the kernel.
    Pass,
    /// Gone.
    Drop(Reason),
    /// Out where it came in.
    Transmit,
    /// Out of another interface, by its index.
    Redirect(u32),
    /// Turned into an answer to its sender, out where it came in.
    Answer,
}

impl Verdict {
    pub(super) fn out_of(ifindex: u32, around: &Surroundings) -> Verdict {
        if ifindex == around.ingress_ifindex {
            Verdict::Transmit
        } else {
            Verdict::Redirect(ifindex)
        }
    }
}

/// Inputs of a decision besides packet and tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// The CPU that has the packet.
    pub cpu: usize,
    /// The interface that it came in by.
    pub ingress_ifindex: u32,
    /// The kernel's monotonic time.
    pub now_ns: u64,
    /// Result of the kernel's routing, for a translated reply or an unserved packet.
    pub route: Route,
    /// The interface has the program for replies (`reverse`): nothing is balanced.
    pub replies_only: bool,
}

/// The kernel's answer for a translated reply, or for a packet to a VIP that no service takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Route {
    /// The kernel does not forward it: left to the kernel.
    #[default]
    Kernel,
    /// The kernel would forward it, and the program cannot (larger than the MTU).
    KernelForwards,
    /// Out of this interface, and the next hop's MAC address is not known.
    NoNeighbour(u32),
    /// To this machine itself, which is no reply to a client of a VIP.
    Local,
    /// Out of this interface.
    Out(u32),
    /// There is none.
    None,
}

/// Where a packet goes, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Result for the packet.
    pub verdict: Verdict,
    /// The service that it is for.
    pub service: Option<ServiceAt>,
    /// Its flow.
    pub digest: Option<Digest>,
    /// The slot chosen.
    pub slot: Option<u16>,
    /// The backend there, and its index.
    pub backend: Option<(u32, Backend)>,
    /// Why that one.
    pub how: Option<How>,
    /// The backend that gets the packet if that one does not know its flow.
    pub second: Option<Backend>,
}

impl Decision {
    pub(super) fn of(verdict: Verdict) -> Decision {
        let (service, digest, slot, backend) = (None, None, None, None);
        Decision { verdict, service, digest, slot, backend, how: None, second: None }
    }

    pub(super) fn drop(reason: Reason, service: Option<ServiceAt>) -> Decision {
        Decision { service, ..Decision::of(Verdict::Drop(reason)) }
    }
}
