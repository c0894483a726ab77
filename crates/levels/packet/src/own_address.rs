//! Addresses of this machine.

use std::net::IpAddr;

/// Port for questions about routes; nothing is sent to it.
const DISCARD: u16 = 9;

/// Whether this machine has the address: then the kernel's source towards it is the address itself.
pub(crate) fn is_own(address: IpAddr) -> bool {
    source_towards(address) == Some(address)
}

/// The source address that the kernel uses towards an address. Nothing is sent.
pub(crate) fn source_towards(address: IpAddr) -> Option<IpAddr> {
    equipoise_basics::source_towards((address, DISCARD)).ok()
}
