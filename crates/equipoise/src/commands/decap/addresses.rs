//! The addresses of this host, as the C library reads them from the kernel.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Those of all interfaces but loopback ones, in order, each once.
pub(super) fn of_this_host() -> io::Result<Vec<IpAddr>> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `first` is where the list's beginning is written to.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut addresses = Vec::new();
    let mut next = first;
    // SAFETY: the list's entries and what they point to live until it is freed; `next` is one of them or null.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        if entry.ifa_flags & libc::IFF_LOOPBACK.cast_unsigned() == 0 {
            addresses.extend(read(entry.ifa_addr));
        }
    }
    // SAFETY: getifaddrs gave it, and nothing of it is used from here on.
    unsafe { libc::freeifaddrs(first) };
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}

/// An address that the kernel wrote; null or of another family: none.
fn read(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: null or a valid address, of which every kind begins with its family.
    match i32::from(unsafe { address.as_ref() }?.sa_family) {
        libc::AF_INET => {
            // SAFETY: the family says that it is a sockaddr_in.
            let address = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes()).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that it is a sockaddr_in6.
            let address = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}
