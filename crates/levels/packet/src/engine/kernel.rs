//! State of the kernel on which replies under nat depend.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// Whether the kernel forwards packets from an interface; true for a missing interface, which may
/// appear later.
pub(super) fn forwards(interface: &str, v6: bool) -> bool {
    is_on(if v6 { "ipv6" } else { "ipv4" }, interface, "forwarding")
}

/// Whether the kernel routes packets from an interface that have one of its own IPv4 addresses as
/// their source; true for a missing interface.
pub(super) fn accepts_local(interface: &str) -> bool {
    is_on("ipv4", "all", "accept_local") || is_on("ipv4", interface, "accept_local")
}

fn is_on(family: &str, interface: &str, setting: &str) -> bool {
    let file = format!("/proc/sys/net/{family}/conf/{interface}/{setting}");
    fs::read_to_string(file).map_or(true, |text| text.trim() != "0")
}

/// The clock of the program.
pub(super) fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let [seconds, nanoseconds] = [now.tv_sec, now.tv_nsec].map(i64::cast_unsigned);
    seconds * 1_000_000_000 + nanoseconds
}

/// Whether this machine has the address: then the kernel's source towards it is the address itself.
pub(crate) fn is_own(address: IpAddr) -> bool {
    source_towards(address) == Some(address)
}

/// The source address that the kernel uses towards an address. Nothing is sent.
pub(super) fn source_towards(address: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((address, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}
