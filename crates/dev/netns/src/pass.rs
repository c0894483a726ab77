//! An XDP program of two instructions that passes all packets, loaded without a compiler or libbpf.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::{Host, NetnsError};

/// `r0 = XDP_PASS; exit`.
const PROGRAM: [u64; 2] = [0x0000_0002_0000_00b7, 0x95];

// From linux/bpf.h.
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;

/// The prefix of `union bpf_attr` that BPF_PROG_LOAD needs; all later fields are zero.
#[repr(C)]
#[derive(Default)]
struct LoadAttributes {
    program_type: u32,
    instructions: u32,
    instructions_at: u64,
    license_at: u64,
    log_level: u32,
    log_bytes: u32,
    log_at: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    ifindex: u32,
    expected_attach_type: u32,
}

/// The prefix of `union bpf_attr` that BPF_LINK_CREATE needs.
#[repr(C)]
struct LinkAttributes {
    program: u32,
    ifindex: u32,
    attach_type: u32,
    flags: u32,
}

/// Attaches the program to an interface for the life of the host.
pub(crate) fn attach(host: &Host, interface: &str) -> Result<(), NetnsError> {
    let link = host.enter(|| link(interface)).map_err(|source| NetnsError::Interface {
        host: host.name().to_owned(),
        interface: interface.to_owned(),
        what: "attach an XDP program that passes everything",
        source,
    })?;
    host.keep(link);
    Ok(())
}

fn link(interface: &str) -> io::Result<OwnedFd> {
    let attributes = LoadAttributes {
        program_type: BPF_PROG_TYPE_XDP,
        instructions: PROGRAM.len() as u32,
        instructions_at: PROGRAM.as_ptr() as u64,
        license_at: c"Apache-2.0".as_ptr() as u64,
        expected_attach_type: BPF_XDP,
        ..LoadAttributes::default()
    };
    let program = bpf(BPF_PROG_LOAD, &attributes)?;
    let name = CString::new(interface)?;
    // SAFETY: the name ends with a zero byte and outlives the call.
    let ifindex = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if ifindex == 0 {
        return Err(io::Error::last_os_error());
    }
    let program = program.as_raw_fd().cast_unsigned();
    bpf(BPF_LINK_CREATE, &LinkAttributes { program, ifindex, attach_type: BPF_XDP, flags: 0 })
}

fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
    let bytes = size_of::<T>();
    // SAFETY: the attributes are a prefix of `union bpf_attr` with its length, and the memory that
    // they point to outlives the call.
    let outcome =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), bytes) };
    match i32::try_from(outcome) {
        // SAFETY: both commands return a new descriptor without another owner.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}
