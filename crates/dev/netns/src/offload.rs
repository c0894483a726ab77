//! Switches interface offloads with the ethtool ioctl, so that the `ethtool` program is not needed.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::{Host, NetnsError};

/// From linux/ethtool.h: receive and transmit checksums, TSO, GSO, GRO. Transmit checksums precede
/// the offloads that depend on them.
const COMMANDS: [u32; 5] = [0x15, 0x17, 0x1f, 0x24, SET_GRO];
/// `ETHTOOL_SGRO`, `ETHTOOL_GGRO`, `ETHTOOL_GFLAGS`
pub(crate) const SET_GRO: u32 = 0x2c;
pub(crate) const GET_GRO: u32 = 0x2b;
pub(crate) const GET_FLAGS: u32 = 0x25;
/// `ETH_FLAG_RXVLAN`
pub(crate) const FLAG_RXVLAN: u32 = 1 << 8;

/// From linux/sockios.h.
const SIOCETHTOOL: libc::c_ulong = 0x8946;

/// `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// Switches the offloads of an interface off.
pub(crate) fn off(host: &Host, interface: &str) -> Result<(), NetnsError> {
    let outcome = host
        .enter(|| COMMANDS.iter().try_for_each(|command| set(interface, *command, 0).map(drop)));
    outcome.map_err(|source| NetnsError::Interface {
        host: host.name().to_owned(),
        interface: interface.to_owned(),
        what: "turn offloads off",
        source,
    })
}

/// Runs a command that reads or writes a value of an interface.
pub(crate) fn ask(
    host: &Host,
    interface: &str,
    command: u32,
    data: u32,
) -> Result<u32, NetnsError> {
    host.enter(|| set(interface, command, data)).map_err(|source| NetnsError::Interface {
        host: host.name().to_owned(),
        interface: interface.to_owned(),
        what: "read or change an offload",
        source,
    })
}

fn set(interface: &str, command: u32, data: u32) -> io::Result<u32> {
    // SAFETY: socket takes three numbers, and the new descriptor has no other owner.
    let socket = unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(socket)
    };
    let mut value = EthtoolValue { command, data };
    // SAFETY: all zero is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if interface.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the request names an interface and points to the value. Both outlive the call.
    match unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) } {
        0 => Ok(value.data),
        _ => Err(io::Error::last_os_error()),
    }
}
