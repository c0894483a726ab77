//! A BPF link: attaches a program to an interface while a descriptor or a pin exists.
//!
//! libbpf-rs has links, too, but without generic mode and without a swap of a pinned link's
//! program.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libbpf_rs::libbpf_sys as sys;

/// XDP mode of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver.
    Native,
    /// On the kernel's socket buffers: supported on every interface, but slower.
    Generic,
}

impl XdpMode {
    /// Returns the name in logs and status.
    pub fn name(self) -> &'static str {
        match self {
            XdpMode::Native => "native",
            XdpMode::Generic => "generic",
        }
    }

    fn flag(self) -> u32 {
        match self {
            XdpMode::Native => sys::XDP_FLAGS_DRV_MODE,
            XdpMode::Generic => sys::XDP_FLAGS_SKB_MODE,
        }
    }
}

/// A descriptor of a link.
#[derive(Debug)]
pub(super) struct Link(OwnedFd);

/// Converts a result of libbpf: a descriptor or zero, or a negative error number.
fn outcome(returned: i32) -> io::Result<i32> {
    if returned < 0 { Err(io::Error::from_raw_os_error(-returned)) } else { Ok(returned) }
}

fn path_text(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

impl Link {
    /// Attaches `program` to an interface.
    pub(super) fn create(program: BorrowedFd<'_>, ifindex: u32, mode: XdpMode) -> io::Result<Link> {
        let options = sys::bpf_link_create_opts {
            sz: size_of::<sys::bpf_link_create_opts>() as sys::size_t,
            flags: mode.flag(),
            ..Default::default()
        };
        let target = ifindex.cast_signed();
        // SAFETY: the descriptor is open, and the options are valid during the call.
        let returned = unsafe {
            sys::bpf_link_create(program.as_raw_fd(), target, sys::BPF_XDP, &raw const options)
        };
        // SAFETY: a new descriptor without another owner.
        outcome(returned).map(|fd| Link(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Opens a pinned link.
    pub(super) fn open(path: &Path) -> io::Result<Link> {
        let path = path_text(path)?;
        // SAFETY: a text with a final NUL.
        let returned = unsafe { sys::bpf_obj_get(path.as_ptr()) };
        // SAFETY: a new descriptor without another owner.
        outcome(returned).map(|fd| Link(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Pins the link, so that it outlives its descriptors.
    pub(super) fn pin(&self, path: &Path) -> io::Result<()> {
        let path = path_text(path)?;
        // SAFETY: an open descriptor, and a text with a final NUL.
        outcome(unsafe { sys::bpf_obj_pin(self.0.as_raw_fd(), path.as_ptr()) }).map(drop)
    }

    /// Swaps the program without a gap.
    pub(super) fn update(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        let (link, program) = (self.0.as_raw_fd(), program.as_raw_fd());
        // SAFETY: two open descriptors; no options.
        outcome(unsafe { sys::bpf_link_update(link, program, std::ptr::null()) }).map(drop)
    }

    /// Detaches the program, even if others hold the link.
    pub(super) fn detach(&self) -> io::Result<()> {
        // SAFETY: an open descriptor.
        outcome(unsafe { sys::bpf_link_detach(self.0.as_raw_fd()) }).map(drop)
    }

    /// Returns the index of the interface; 0 if it is gone.
    pub(super) fn ifindex(&self) -> io::Result<u32> {
        let mut found = sys::bpf_link_info::default();
        let mut bytes = size_of::<sys::bpf_link_info>() as u32;
        // SAFETY: an open descriptor, and a buffer of the given size.
        let returned = unsafe {
            sys::bpf_link_get_info_by_fd(self.0.as_raw_fd(), &raw mut found, &raw mut bytes)
        };
        outcome(returned)?;
        // SAFETY: the union has only integers, which are zeroed or written by the kernel; an XDP
        // link uses this variant.
        Ok(unsafe { found.__bindgen_anon_1.xdp.ifindex })
    }
}

/// Queries the XDP state of an interface.
fn query(ifindex: u32) -> io::Result<sys::bpf_xdp_query_opts> {
    let mut found = sys::bpf_xdp_query_opts {
        sz: size_of::<sys::bpf_xdp_query_opts>() as sys::size_t,
        ..Default::default()
    };
    // SAFETY: the options are valid during the call and have the size that they state.
    let returned = unsafe { sys::bpf_xdp_query(ifindex.cast_signed(), 0, &raw mut found) };
    outcome(returned).map(|_| found)
}

/// Returns the XDP features of an interface, `NETDEV_XDP_ACT_*` of linux/netdev.h; `None`: it is
/// gone. Kernels before 6.3 report 0.
fn features(ifindex: u32) -> Option<u64> {
    query(ifindex).ok().map(|found| found.feature_flags)
}

/// Whether the kernel reports that an interface supports native XDP.
pub(super) fn tells(ifindex: u32) -> bool {
    features(ifindex).is_some_and(|features| features != 0)
}

/// Whether frames that native XDP sends to an interface would be lost. Requires a kernel that
/// [reports features](tells).
pub(super) fn loses(ifindex: u32) -> bool {
    /// `NETDEV_XDP_ACT_NDO_XMIT`
    const TRANSMIT: u64 = 4;
    features(ifindex).is_some_and(|features| features & TRANSMIT == 0)
}

/// The XDP program on an interface.
#[derive(Clone, Copy, Debug)]
pub(super) struct Occupant {
    /// The kernel's id of the program.
    pub(super) program: u32,
    pub(super) mode: XdpMode,
}

/// Returns the program on an interface, if there is one.
pub(super) fn occupant(ifindex: u32) -> io::Result<Option<Occupant>> {
    let found = query(ifindex)?;
    Ok(match u32::from(found.attach_mode) {
        sys::XDP_ATTACHED_NONE => None,
        sys::XDP_ATTACHED_SKB => Some(Occupant { program: found.prog_id, mode: XdpMode::Generic }),
        _ => Some(Occupant { program: found.prog_id, mode: XdpMode::Native }),
    })
}

/// Returns the mode of an interface's program; `None`: there is none.
pub(super) fn mode_of(ifindex: u32) -> io::Result<Option<XdpMode>> {
    Ok(occupant(ifindex)?.map(|it| it.mode))
}
