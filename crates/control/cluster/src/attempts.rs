//! Rate limit of attempts to join.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// A token bucket for each address with recent attempts, and one for all together, in bounded
/// memory.
///
/// `now` is time since any fixed moment. IPv6 addresses count by their /64, which belongs to one
/// site.
#[derive(Debug)]
pub(crate) struct Attempts {
    limits: AttemptLimits,
    by_address: BTreeMap<IpAddr, Bucket>,
    all: Bucket,
}

/// Limits of attempts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttemptLimits {
    /// Burst from one address.
    pub burst: f64,
    /// Rate per second from one address.
    pub per_second: f64,
    /// Burst from all addresses together.
    pub burst_all: f64,
    /// Rate per second from all addresses together.
    pub per_second_all: f64,
    /// Greatest number of stored addresses. Others share the limit of all.
    pub addresses_max: usize,
}

impl Default for AttemptLimits {
    fn default() -> AttemptLimits {
        AttemptLimits {
            burst: 20.0,
            per_second: 1.0,
            burst_all: 500.0,
            per_second_all: 50.0,
            addresses_max: 10_000,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: f64,
    at: Duration,
}

impl Bucket {
    fn refill(&mut self, now: Duration, per_second: f64, burst: f64) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.left = (self.left + passed * per_second).min(burst);
        self.at = now.max(self.at);
    }
}

impl Attempts {
    pub(crate) fn new(limits: AttemptLimits) -> Attempts {
        let all = Bucket { left: limits.burst_all, at: Duration::ZERO };
        Attempts { limits, by_address: BTreeMap::new(), all }
    }

    /// True if an attempt from this address is processed now. A rejected attempt has no further
    /// cost.
    pub(crate) fn take(&mut self, from: IpAddr, now: Duration) -> bool {
        let AttemptLimits { burst, per_second, burst_all, per_second_all, addresses_max } =
            self.limits;
        let from = site(from);
        if !self.by_address.contains_key(&from) && self.by_address.len() >= addresses_max {
            // An address with a full bucket need not be stored.
            let full = |bucket: &mut Bucket| {
                bucket.refill(now, per_second, burst);
                bucket.left >= burst
            };
            self.by_address.retain(|_, bucket| !full(bucket));
        }
        self.all.refill(now, per_second_all, burst_all);
        let is_known = self.by_address.contains_key(&from) || self.by_address.len() < addresses_max;
        let mut unknown = Bucket { left: burst, at: now };
        let own =
            if is_known { self.by_address.entry(from).or_insert(unknown) } else { &mut unknown };
        own.refill(now, per_second, burst);
        if own.left < 1.0 || self.all.left < 1.0 {
            return false;
        }
        own.left -= 1.0;
        self.all.left -= 1.0;
        true
    }
}

fn site(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(at: u64) -> Duration {
        Duration::from_secs(at)
    }

    fn limits() -> AttemptLimits {
        AttemptLimits {
            burst: 3.0,
            per_second: 1.0,
            burst_all: 5.0,
            per_second_all: 5.0,
            addresses_max: 2,
        }
    }

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn an_address_is_rate_limited_after_its_burst_and_recovers() {
        let mut attempts = Attempts::new(limits());
        let taken: Vec<_> = (0..5).map(|_| attempts.take(address(1), second(10))).collect();
        assert_eq!(taken, [true, true, true, false, false]);
        assert!(attempts.take(address(2), second(10)), "another is not");
        assert!(attempts.take(address(1), second(11)));
        assert!(!attempts.take(address(1), second(11)));
    }

    #[test]
    fn many_addresses_together_are_rate_limited() {
        let mut attempts = Attempts::new(limits());
        let taken = (0..100).filter(|n| attempts.take(address(*n), second(10))).count();
        assert_eq!(taken, 5);
        assert_eq!(attempts.by_address.len(), 2, "memory is bounded");
    }

    #[test]
    fn addresses_of_one_ipv6_prefix_share_one_limit() {
        let mut attempts = Attempts::new(limits());
        let taken = (0..10u16)
            .filter(|n| {
                let host = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, *n);
                attempts.take(host.into(), second(1))
            })
            .count();
        assert_eq!(taken, 3);
    }

    #[test]
    fn a_clock_set_backwards_adds_no_attempts() {
        let mut attempts = Attempts::new(limits());
        while attempts.take(address(1), second(100)) {}
        assert!(!attempts.take(address(1), second(1)));
        assert!(!attempts.take(address(1), second(100)));
    }
}
