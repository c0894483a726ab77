//! Reads and sets offloads of an interface by the ethtool ioctl: four commands, which need no
//! crate.
//!
//! In: names of interfaces in this thread's network namespace. A device without ethtool support
//! counts as having all offloads off.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// An offload that shows the program other packets than those on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Offload {
    /// Merges packets of a flow into larger ones.
    Merging,
    /// Removes the 802.1Q tag from frames.
    TagStripping,
}

/// `ETH_FLAG_RXVLAN` of linux/ethtool.h.
const FLAG_RXVLAN: u32 = 1 << 8;

/// From linux/sockios.h.
const SIOCETHTOOL: libc::c_ulong = 0x8946;

impl Offload {
    /// All offloads.
    pub(super) const ALL: [Offload; 2] = [Offload::Merging, Offload::TagStripping];

    /// Returns the name in `ethtool -K`.
    pub fn word(self) -> &'static str {
        match self {
            Offload::Merging => "gro",
            Offload::TagStripping => "rxvlan",
        }
    }

    /// Returns the effect on the program's packets, as a clause.
    pub fn effect(self) -> &'static str {
        match self {
            Offload::Merging => "it merges packets to ones that fit no link",
            Offload::TagStripping => "it hides the tags of VLANs, which are lost then",
        }
    }

    /// Returns the commands that read and write it, from linux/ethtool.h: `ETHTOOL_GGRO` or
    /// `ETHTOOL_GFLAGS`, and their setters.
    fn commands(self) -> [u32; 2] {
        match self {
            Offload::Merging => [0x2b, 0x2c],
            Offload::TagStripping => [0x25, 0x26],
        }
    }

    /// Returns its bits in the value of these commands.
    fn bits(self) -> u32 {
        match self {
            Offload::Merging => 1,
            Offload::TagStripping => FLAG_RXVLAN,
        }
    }
}

/// Mirror of `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Reads and sets offloads.
pub(super) trait Switchboard: fmt::Debug + Send {
    /// Whether the offload is on.
    fn is_on(&self, interface: &str, offload: Offload) -> bool;

    /// Switches the offload on or off.
    ///
    /// # Errors
    /// `ENODEV`: the interface does not exist.
    fn set(&self, interface: &str, offload: Offload, on: bool) -> io::Result<()>;
}

/// The kernel's offloads, accessed by a socket.
#[derive(Debug)]
pub(super) struct Ethtool(OwnedFd);

impl Ethtool {
    /// Opens it in this thread's network namespace.
    pub(super) fn open() -> io::Result<Ethtool> {
        // SAFETY: takes three numbers.
        let socket =
            unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor without another owner.
        Ok(Ethtool(unsafe { OwnedFd::from_raw_fd(socket) }))
    }

    fn ask(&self, interface: &str, command: u32, data: u32) -> io::Result<u32> {
        let mut value = Value { command, data };
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
        match unsafe { libc::ioctl(self.0.as_raw_fd(), SIOCETHTOOL, &raw mut request) } {
            0 => Ok(value.data),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Switchboard for Ethtool {
    fn is_on(&self, interface: &str, offload: Offload) -> bool {
        let [read, _] = offload.commands();
        self.ask(interface, read, 0).is_ok_and(|value| value & offload.bits() != 0)
    }

    fn set(&self, interface: &str, offload: Offload, on: bool) -> io::Result<()> {
        let [read, write] = offload.commands();
        let before = self.ask(interface, read, 0)?;
        let bits = offload.bits();
        let after = if on { before | bits } else { before & !bits };
        self.ask(interface, write, after).map(drop)
    }
}
