//! Senders that a front door believes about the clients behind them.

use std::net::IpAddr;
use std::sync::Arc;

use equipoise_basics::{AddressRange, mapped};

/// The address prefixes of other proxies, as sorted ranges that do not overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedSources(Arc<[AddressRange]>);

impl TrustedSources {
    /// Whether no sender is trusted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `sender` has one of the prefixes. O(log n).
    pub fn contains(&self, sender: IpAddr) -> bool {
        let bits = mapped(sender);
        let after = self.0.partition_point(|range| range.first <= bits);
        after.checked_sub(1).is_some_and(|at| bits <= self.0[at].last)
    }
}

/// From addresses, each with the number of its bits that count.
impl FromIterator<(IpAddr, u8)> for TrustedSources {
    fn from_iter<I: IntoIterator<Item = (IpAddr, u8)>>(prefixes: I) -> TrustedSources {
        let range = |(address, length)| AddressRange::new(address, length);
        let mut ranges: Vec<AddressRange> = prefixes.into_iter().map(range).collect();
        ranges.sort_unstable();
        let mut merged: Vec<AddressRange> = Vec::new();
        for range in ranges {
            match merged.last_mut() {
                Some(previous) if range.first <= previous.last => {
                    previous.last = previous.last.max(range.last);
                }
                _ => merged.push(range),
            }
        }
        TrustedSources(merged.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(prefixes: &[(&str, u8)]) -> TrustedSources {
        prefixes.iter().map(|(address, length)| (address.parse().unwrap(), *length)).collect()
    }

    fn contains(sources: &TrustedSources, sender: &str) -> bool {
        sources.contains(sender.parse().unwrap())
    }

    #[test]
    fn a_sender_is_trusted_by_its_prefix() {
        let trusted = sources(&[("10.0.0.0", 8), ("192.0.2.7", 32), ("2001:db8::", 32)]);
        for sender in ["10.0.0.0", "10.255.255.255", "192.0.2.7", "2001:db8:ffff::1"] {
            assert!(contains(&trusted, sender), "{sender}");
        }
        for sender in ["9.255.255.255", "11.0.0.0", "192.0.2.8", "2001:db9::", "::", "::a00:1"] {
            assert!(!contains(&trusted, sender), "{sender}");
        }
        assert!(contains(&trusted, "::ffff:10.1.2.3"), "IPv4 mapped to IPv6");
        assert!(!contains(&TrustedSources::default(), "10.1.2.3"));
    }

    #[test]
    fn prefixes_may_overlap_and_cover_everything() {
        let trusted = sources(&[("10.1.0.0", 16), ("10.0.0.0", 8), ("10.2.0.0", 16)]);
        assert!(contains(&trusted, "10.9.9.9") && !contains(&trusted, "11.0.0.0"));
        let all = sources(&[("0.0.0.0", 0), ("::", 0)]);
        assert!(contains(&all, "203.0.113.9") && contains(&all, "ffff::1"));
        let v4 = sources(&[("0.0.0.0", 0)]);
        assert!(contains(&v4, "255.255.255.255") && !contains(&v4, "2001:db8::1"));
    }
}
