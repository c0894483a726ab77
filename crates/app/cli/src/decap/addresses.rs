//! Addresses of this host, which the C library reads from the kernel.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The IP addresses of all interfaces except loopback ones, sorted and without duplicates.
pub(super) fn of_this_host() -> io::Result<Vec<IpAddr>> {
    each(|entry| read(entry.ifa_addr))
}

/// The MAC addresses of this host's interfaces, sorted and without duplicates. They include that of
/// a bridge or bond with this interface as a port.
pub(super) fn macs_of_this_host() -> io::Result<Vec<[u8; 6]>> {
    each(|entry| mac(entry.ifa_addr))
}

/// Applies `read` to the entries of all interfaces except loopback ones. The result is sorted and
/// has no duplicates.
fn each<T: Ord, I: IntoIterator<Item = T>>(
    read: impl Fn(&libc::ifaddrs) -> I,
) -> io::Result<Vec<T>> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: getifaddrs writes the start of the list to `first`.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = first;
    // SAFETY: the entries of the list, and the data to which they point, live until the list is
    // freed. `next` points to an entry or is null.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        if entry.ifa_flags & libc::IFF_LOOPBACK.cast_unsigned() == 0 {
            found.extend(read(entry));
        }
    }
    // SAFETY: the list comes from getifaddrs, and is not used after this line.
    unsafe { libc::freeifaddrs(first) };
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Reads a MAC address that the kernel wrote; `None` for null, another family or another length.
fn mac(address: *const libc::sockaddr) -> Option<[u8; 6]> {
    // SAFETY: null or a valid address, of which every kind begins with its family.
    if i32::from(unsafe { address.as_ref() }?.sa_family) != libc::AF_PACKET {
        return None;
    }
    // SAFETY: the family says that it is a sockaddr_ll.
    let address = unsafe { address.cast::<libc::sockaddr_ll>().read_unaligned() };
    address.sll_addr.first_chunk().copied().filter(|_| address.sll_halen == 6)
}

/// Reads an IP address that the kernel wrote; `None` for null or another family.
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
