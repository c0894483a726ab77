//! Response rate limiting: a server that answers over UDP must not amplify attacks with forged
//! sources.
//!
//! Responses of one kind (for one name, NXDOMAIN in one zone, or one error code) to one client
//! prefix share a bucket. A limited response is dropped, or sometimes sent short with the TC bit,
//! so that a real client retries over TCP. A client with a valid cookie is not limited.
//!
//! The table has a fixed size and no lock: a bucket is one atomic word. A tag distinguishes two
//! kinds that hash to the same bucket. The later kind overwrites the earlier one, so that a
//! collision makes the limit looser, never stricter.
//!
//! # Source
//! Vixie and Schryver, "DNS Response Rate Limiting", ISC-TN-2012-1. The bucket is GCRA (ITU-T
//! I.371), which needs one number.

use std::hash::Hasher;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use equipoise_basics::AddressRange;
use siphasher::sip::SipHasher13;

use crate::now::TICKS_PER_SECOND;

/// Limit on the responses to one client prefix.
#[derive(Clone, Debug, PartialEq)]
pub struct RateLimit {
    /// Responses of one kind per second to one prefix; 0: no limit.
    pub per_second: u32,
    /// One in this many limited responses is sent truncated; 0: none.
    pub slip: u32,
    /// Length of an IPv4 client prefix, bits.
    pub prefix4: u8,
    /// Length of an IPv6 client prefix, bits.
    pub prefix6: u8,
    /// Prefixes without a limit: address and length.
    pub exempt: Vec<(IpAddr, u8)>,
}

impl Default for RateLimit {
    fn default() -> Self {
        RateLimit { per_second: 200, slip: 2, prefix4: 24, prefix6: 56, exempt: Vec::new() }
    }
}

/// Bits of a bucket's time in ticks, which wraps after 127 days.
const TIME_BITS: u32 = 40;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;
/// Burst, in seconds of the rate.
const BURST_SECONDS: u64 = 1;
/// Number of buckets (512 KiB).
const PLACES: usize = 1 << 16;

/// The buckets, shared by all threads.
pub(crate) struct RateLimiter {
    rules: RateLimit,
    /// Ticks that a response adds to its bucket.
    cost: u64,
    keys: (u64, u64),
    places: Box<[AtomicU64]>,
}

impl RateLimiter {
    /// `keys` must be secret: with them, an attacker can choose sources that share a bucket.
    pub(crate) fn new(rules: RateLimit, keys: (u64, u64)) -> RateLimiter {
        let cost = TICKS_PER_SECOND / u64::from(rules.per_second.max(1));
        let places = if rules.per_second == 0 { 0 } else { PLACES };
        let places = (0..places).map(|_| AtomicU64::new(0)).collect();
        RateLimiter { rules, cost: cost.max(1), keys, places }
    }

    /// Whether it enforces these rules.
    pub(crate) fn is_of(&self, rules: &RateLimit) -> bool {
        self.rules == *rules
    }

    pub(crate) fn slip(&self) -> u32 {
        self.rules.slip
    }

    /// Adds a response of `kind` to `client` at `now` (ticks) to its bucket. Returns whether it may
    /// be sent.
    #[inline]
    pub(crate) fn allows(&self, client: IpAddr, kind: u64, now: u64) -> bool {
        if self.places.is_empty() {
            return true;
        }
        if self
            .rules
            .exempt
            .iter()
            .any(|(net, length)| prefix(client, *length) == prefix(*net, *length))
        {
            return true;
        }
        let length = if client.is_ipv4() { self.rules.prefix4 } else { self.rules.prefix6 };
        let mut hasher = SipHasher13::new_with_keys(self.keys.0, self.keys.1);
        hasher.write_u128(prefix(client, length));
        hasher.write_u64(kind);
        let hash = hasher.finish();
        let tag = hash & !TIME_MASK;
        let place = &self.places[hash as usize % PLACES];
        let burst = BURST_SECONDS * TICKS_PER_SECOND;
        let now = now & TIME_MASK;
        let old = place.load(Relaxed);
        // Time by which the bucket is ahead of `now`, modulo 2^40 ticks. A lead of more than two
        // bursts is a time in the past.
        let ahead = (old & TIME_MASK).wrapping_sub(now) & TIME_MASK;
        let ahead = if ahead > 2 * burst || old & !TIME_MASK != tag { 0 } else { ahead };
        if ahead + self.cost > burst {
            return false;
        }
        // A lost race lets at most one more response per thread through.
        place.store(tag | (now + ahead + self.cost) & TIME_MASK, Relaxed);
        true
    }
}

/// The first `length` bits of an address. IPv4 and IPv6 prefixes are distinct.
#[inline]
pub(crate) fn prefix(address: IpAddr, length: u8) -> u128 {
    AddressRange::new(address, length).first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter(per_second: u32) -> RateLimiter {
        RateLimiter::new(RateLimit { per_second, ..RateLimit::default() }, (1, 2))
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_prefix_gets_its_rate_and_a_second_of_it_at_once() {
        let limiter = limiter(100);
        let mut now = 5_000_000;
        let allowed = (0..1000).filter(|_| limiter.allows(ip("192.0.2.1"), 7, now)).count();
        assert_eq!(allowed, 100);
        // At four times the rate, a quarter is allowed.
        let mut allowed = 0;
        for _ in 0..4000 {
            now += TICKS_PER_SECOND / 400;
            allowed += usize::from(limiter.allows(ip("192.0.2.9"), 7, now));
        }
        assert!((995..=1005).contains(&allowed), "{allowed}");
    }

    #[test]
    fn kinds_and_prefixes_do_not_share() {
        let limiter = limiter(1);
        for (client, kind) in
            [("192.0.2.1", 7), ("192.0.3.1", 7), ("192.0.2.1", 8), ("2001:db8::1", 7)]
        {
            assert!(limiter.allows(ip(client), kind, 100), "{client} {kind}");
            assert!(!limiter.allows(ip(client), kind, 100), "{client} {kind}");
        }
        assert!(!limiter.allows(ip("192.0.2.77"), 7, 100), "of the same /24");
        assert!(!limiter.allows(ip("2001:db8:0:ff::7"), 7, 100), "of the same /56");
        assert!(limiter.allows(ip("2001:db8:0:100::7"), 7, 100));
    }

    #[test]
    fn the_clock_may_go_round() {
        let limiter = limiter(10);
        let near_end = TIME_MASK - 5;
        for now in [near_end, near_end + 20_000] {
            let allowed = (0..50).filter(|_| limiter.allows(ip("192.0.2.1"), 7, now)).count();
            assert!(allowed == 10 || allowed == 2, "{allowed}");
        }
    }

    #[test]
    fn none_is_limited_at_rate_0_nor_within_an_exempt_prefix() {
        assert!((0..1000).all(|_| limiter(0).allows(ip("192.0.2.1"), 7, 1)));
        let exempt = vec![(ip("192.0.0.0"), 16)];
        let limiter =
            RateLimiter::new(RateLimit { per_second: 1, exempt, ..RateLimit::default() }, (1, 2));
        assert!((0..1000).all(|_| limiter.allows(ip("192.0.2.1"), 7, 1)));
        assert_eq!((0..1000).filter(|_| limiter.allows(ip("192.1.2.1"), 7, 1)).count(), 1);
    }

    #[test]
    fn a_prefix_of_no_bits_is_everything_of_its_family() {
        assert_eq!(prefix(ip("192.0.2.1"), 0), prefix(ip("10.0.0.1"), 0));
        assert_ne!(prefix(ip("192.0.2.1"), 0), prefix(ip("2001:db8::1"), 0));
        assert_eq!(
            prefix(ip("2001:db8::1"), 128),
            u128::from("2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap())
        );
    }
}
