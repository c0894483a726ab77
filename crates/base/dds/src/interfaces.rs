//! Addresses of this machine that a domain's settings allow.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr};
use std::ptr;

use crate::domain::Settings;

impl Settings {
    /// Addresses of the interfaces that DDS may use, at which other members of the domain reach
    /// this machine. Without named interfaces: every IPv4 address except loopback, or loopback if
    /// there is no other.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let all = interfaces();
        if self.interfaces.is_empty() {
            let is_far = |(_, address): &&(String, Ipv4Addr)| !address.is_loopback();
            let far: Vec<_> = all.iter().filter(is_far).map(|(_, it)| IpAddr::V4(*it)).collect();
            return if far.is_empty() { vec![Ipv4Addr::LOCALHOST.into()] } else { far };
        }
        let of = |wanted: &String| match wanted.parse() {
            Ok(address) => vec![address],
            Err(_) => {
                let named = all.iter().filter(|(name, _)| name == wanted);
                named.map(|(_, address)| IpAddr::V4(*address)).collect()
            }
        };
        self.interfaces.iter().flat_map(of).collect()
    }
}

/// Interfaces that are up, with their IPv4 addresses.
fn interfaces() -> Vec<(String, Ipv4Addr)> {
    let mut first: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: `first` is ours, and is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Vec::new();
    }
    let (mut found, mut next) = (Vec::new(), first);
    // SAFETY: a list of getifaddrs ends with null, and is not freed yet.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        let is_up = entry.ifa_flags & libc::IFF_UP as u32 != 0;
        // SAFETY: it is null, or an address of this list.
        let address = unsafe { entry.ifa_addr.as_ref() };
        let Some(address) = address.filter(|it| is_up && i32::from(it.sa_family) == libc::AF_INET)
        else {
            continue;
        };
        // SAFETY: an address of family AF_INET is a `sockaddr_in`; the name is a C string of this
        // list.
        let (address, name) = unsafe {
            let address = *ptr::from_ref(address).cast::<libc::sockaddr_in>();
            (address, CStr::from_ptr(entry.ifa_name))
        };
        let address = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
        found.push((name.to_string_lossy().into_owned(), address));
    }
    // SAFETY: getifaddrs returned the list, and no reference to it is left.
    unsafe { libc::freeifaddrs(first) };
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_found_by_name_and_by_address() {
        let with = |interfaces: &[&str]| {
            let interfaces = interfaces.iter().map(|it| (*it).to_string()).collect();
            Settings { interfaces, ..Settings::default() }.addresses()
        };
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert_eq!(with(&["lo"]), [loopback]);
        assert_eq!(with(&["192.0.2.77"]), ["192.0.2.77".parse::<IpAddr>().unwrap()]);
        assert_eq!(with(&["there-is-none"]), Vec::<IpAddr>::new());
        let all = with(&[]);
        assert!(!all.is_empty() && (all == [loopback] || !all.contains(&loopback)), "{all:?}");
    }
}
