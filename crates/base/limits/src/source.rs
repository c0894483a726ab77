use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Clients count as one if the first bits of their addresses are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceMask {
    /// Significant bits of an IPv4 address, at most 32.
    pub bits4: u8,
    /// Significant bits of an IPv6 address, at most 128.
    pub bits6: u8,
}

impl Default for SourceMask {
    /// An IPv4 address, and an IPv6 /64: the smallest network that one customer gets.
    fn default() -> SourceMask {
        SourceMask { bits4: 32, bits6: 64 }
    }
}

impl SourceMask {
    /// The first address of `client`'s prefix. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn of(self, client: IpAddr) -> IpAddr {
        match client.to_canonical() {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits4.min(32))).unwrap_or(0);
                Ipv4Addr::from(v4.to_bits() & mask).into()
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits6.min(128))).unwrap_or(0);
                Ipv6Addr::from(v6.to_bits() & mask).into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_one_prefix_count_as_one() {
        let of = |mask: SourceMask, text: &str| mask.of(text.parse().unwrap()).to_string();
        let default = SourceMask::default();
        assert_eq!(of(default, "192.0.2.7"), "192.0.2.7");
        assert_eq!(of(default, "::ffff:192.0.2.7"), "192.0.2.7");
        assert_eq!(of(default, "2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        let wide = SourceMask { bits4: 24, bits6: 48 };
        assert_eq!(of(wide, "192.0.2.7"), "192.0.2.0");
        assert_eq!(of(wide, "2001:db8:1:2::1"), "2001:db8:1::");
        let all = SourceMask { bits4: 0, bits6: 0 };
        assert_eq!(of(all, "192.0.2.7"), "0.0.0.0");
        assert_eq!(of(all, "2001:db8::1"), "::");
    }
}
