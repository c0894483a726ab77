use std::net::IpAddr;

/// The addresses of a prefix, from first to last.
///
/// An IPv4 address counts as the IPv6 address that it is mapped to (RFC 4291, section 2.5.5.2), so
/// that a dual-stack socket and an IPv4 socket agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AddressRange {
    /// The first address.
    pub first: u128,
    /// The last address.
    pub last: u128,
}

impl AddressRange {
    /// The addresses that have the first `length` bits of `address`. A length above that of the
    /// address is that of the address.
    #[inline]
    pub fn new(address: IpAddr, length: u8) -> AddressRange {
        let width = if address.is_ipv4() { 32 } else { 128 };
        let free_bits = width - u32::from(length).min(width);
        let free = u128::MAX.checked_shr(128 - free_bits).unwrap_or(0);
        let first = mapped(address) & !free;
        AddressRange { first, last: first | free }
    }

    /// Whether it has this address.
    #[inline]
    pub fn contains(&self, address: IpAddr) -> bool {
        (self.first..=self.last).contains(&mapped(address))
    }

    /// Whether it has every address of `other`.
    pub fn covers(&self, other: &AddressRange) -> bool {
        self.first <= other.first && other.last <= self.last
    }
}

/// The bits of an address in IPv6: one of IPv4 is `::ffff:a.b.c.d`.
#[inline]
pub fn mapped(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(address: &str, length: u8) -> AddressRange {
        AddressRange::new(address.parse().unwrap(), length)
    }

    #[test]
    fn a_prefix_has_the_addresses_with_its_first_bits() {
        for (address, length, inside, outside) in [
            ("10.1.2.3", 8, ["10.0.0.0", "10.255.255.255"], ["9.255.255.255", "11.0.0.0"]),
            ("10.1.2.3", 32, ["10.1.2.3", "::ffff:10.1.2.3"], ["10.1.2.2", "::a01:203"]),
            ("10.1.2.3", 99, ["10.1.2.3", "::ffff:10.1.2.3"], ["10.1.2.2", "10.1.2.4"]),
            ("0.0.0.0", 0, ["0.0.0.0", "255.255.255.255"], ["::", "2001:db8::1"]),
            ("2001:db8::", 32, ["2001:db8::", "2001:db8:ffff::1"], ["2001:db9::", "10.0.0.1"]),
            ("::ffff:10.0.0.0", 104, ["10.0.0.0", "10.9.9.9"], ["11.0.0.0", "::"]),
        ] {
            let range = range(address, length);
            for inside in inside {
                assert!(range.contains(inside.parse().unwrap()), "{address}/{length} {inside}");
            }
            for outside in outside {
                assert!(!range.contains(outside.parse().unwrap()), "{address}/{length} {outside}");
            }
        }
        let all = range("2001:db8::", 0);
        assert_eq!((all.first, all.last), (0, u128::MAX));
    }

    #[test]
    fn a_prefix_covers_equal_and_longer_prefixes_within_it() {
        assert!(range("10.0.0.0", 8).covers(&range("10.1.0.0", 16)));
        assert!(range("10.0.0.0", 8).covers(&range("10.9.0.0", 8)));
        assert!(range("::", 0).covers(&range("10.1.0.0", 16)));
        for (one, other) in [("10.0.0.0", "11.0.0.0"), ("10.0.0.0", "2001:db8::")] {
            assert!(!range(one, 16).covers(&range(other, 24)));
        }
        assert!(!range("10.1.0.0", 16).covers(&range("10.0.0.0", 8)));
    }
}
