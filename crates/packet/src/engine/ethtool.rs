//! Offloads of an interface, read and set by the ethtool ioctl: four commands, for which no crate
//! is needed.
//!
//! In: names of interfaces of this thread's network namespace. A device without ethtool has no
//! offload that is on.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// An offload by which the program does not see packets as they are on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Offload {
    /// Packets of a flow are merged to larger ones.
    Merging,
    /// The 802.1Q tag is taken out of the frame.
    TagStripping,
}

/// `ETH_FLAG_RXVLAN` of linux/ethtool.h.
const FLAG_RXVLAN: u32 = 1 << 8;

/// linux/sockios.h
const SIOCETHTOOL: libc::c_ulong = 0x8946;

impl Offload {
    /// All of them.
    pub(super) const ALL: [Offload; 2] = [Offload::Merging, Offload::TagStripping];

    /// As `ethtool -K` calls it.
    pub fn word(self) -> &'static str {
        match self {
            Offload::Merging => "gro",
            Offload::TagStripping => "rxvlan",
        }
    }

    /// What it does to the program's packets, as a clause.
    pub fn effect(self) -> &'static str {
        match self {
            Offload::Merging => "it merges packets to ones that fit no link",
            Offload::TagStripping => "it hides the tags of VLANs, which are lost then",
        }
    }

    /// The commands that read and write it, of linux/ethtool.h: `ETHTOOL_GGRO` or `ETHTOOL_GFLAGS`
    /// and the like.
    fn commands(self) -> [u32; 2] {
        match self {
            Offload::Merging => [0x2b, 0x2c],
            Offload::TagStripping => [0x25, 0x26],
        }
    }

    /// Its bits in the value of these commands.
    fn bits(self) -> u32 {
        match self {
            Offload::Merging => 1,
            Offload::TagStripping => FLAG_RXVLAN,
        }
    }
}

/// `struct ethtool_value`
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Reads and sets offloads.
pub(super) trait Switchboard: fmt::Debug + Send {
    /// Whether the offload is on.
    fn is_on(&self, interface: &str, offload: Offload) -> bool;

    /// Turns it on or off.
    ///
    /// # Errors
    /// `ENODEV`: there is no such interface.
    fn set(&self, interface: &str, offload: Offload, on: bool) -> io::Result<()>;
}

/// The kernel's, asked by a socket.
#[derive(Debug)]
pub(super) struct Ethtool(OwnedFd);

impl Ethtool {
    /// In this thread's network namespace.
    pub(super) fn open() -> io::Result<Ethtool> {
        // SAFETY: takes three numbers.
        let socket =
            unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that was made for us.
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
        // SAFETY: the request names an interface and points to the value, both of which outlive the
        // call.
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
