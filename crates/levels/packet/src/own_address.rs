//! Addresses of this machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// Whether this machine has the address: then the kernel's source towards it is the address itself.
pub(crate) fn is_own(address: IpAddr) -> bool {
    source_towards(address) == Some(address)
}

/// The source address that the kernel uses towards an address. Nothing is sent.
pub(crate) fn source_towards(address: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((address, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}
