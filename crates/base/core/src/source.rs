//! Prefixes of client addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// Clients that count as one: those of a /24, or of an IPv6 /56. An IPv4-mapped IPv6 address counts
/// as IPv4.
///
/// # Source
/// RFC 7871, 11.1: the longest prefixes that resolvers should send. So a prefix that is measured is
/// one that an answer to its resolver can move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "IpAddr", into = "IpAddr")]
pub struct SourcePrefix(IpAddr);

impl From<IpAddr> for SourcePrefix {
    fn from(client: IpAddr) -> SourcePrefix {
        SourcePrefix::of(client)
    }
}

impl From<SourcePrefix> for IpAddr {
    fn from(prefix: SourcePrefix) -> IpAddr {
        prefix.0
    }
}

impl SourcePrefix {
    /// Significant bits of an IPv4 address.
    pub const BITS4: u8 = 24;
    /// Significant bits of an IPv6 address.
    pub const BITS6: u8 = 56;

    /// The prefix of `client`.
    pub fn of(client: IpAddr) -> SourcePrefix {
        SourcePrefix(match client.to_canonical() {
            IpAddr::V4(v4) => Ipv4Addr::from(v4.to_bits() >> 8 << 8).into(),
            IpAddr::V6(v6) => Ipv6Addr::from(v6.to_bits() >> 72 << 72).into(),
        })
    }

    /// The first address of the prefix.
    pub fn address(self) -> IpAddr {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_count_as_one() {
        let of = |text: &str| SourcePrefix::of(text.parse().expect("an address"));
        assert_eq!(of("192.0.2.7"), of("192.0.2.250"));
        assert_eq!(of("192.0.2.7"), of("::ffff:192.0.2.9"));
        assert_ne!(of("192.0.2.7"), of("192.0.3.7"));
        assert_eq!(of("2001:db8:0:12::1"), of("2001:db8:0:1f::2"));
        assert_ne!(of("2001:db8:0:12::1"), of("2001:db8:0:112::1"));
        assert_eq!(of("2001:db8:0:12::1").address().to_string(), "2001:db8::");
    }
}
