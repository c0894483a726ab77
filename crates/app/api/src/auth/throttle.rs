//! Limits how often a source may fail to authenticate.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Largest number of remembered sources.
const SOURCES_MAX: usize = 4096;

/// A token bucket for each source. It holds the failures of one minute, and refills evenly.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    sources: HashMap<IpAddr, Bucket>,
}

#[derive(Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Throttle {
    /// Counts a failure of `source`, which may have `per_minute` of them.
    ///
    /// # Errors
    /// Time until the next failure is allowed.
    pub(crate) fn failed(
        &mut self,
        source: IpAddr,
        per_minute: u32,
        now: Instant,
    ) -> Result<(), Duration> {
        let full = f64::from(per_minute.max(1));
        let a_second = full / 60.0;
        let refilled = |bucket: &Bucket| {
            let since = now.saturating_duration_since(bucket.at).as_secs_f64();
            (bucket.left + since * a_second).min(full)
        };
        let source = network(source);
        if self.sources.len() >= SOURCES_MAX && !self.sources.contains_key(&source) {
            self.sources.retain(|_, bucket| refilled(bucket) < full);
            if self.sources.len() >= SOURCES_MAX {
                let oldest = self.sources.iter().min_by_key(|(_, bucket)| bucket.at);
                if let Some(oldest) = oldest.map(|(source, _)| *source) {
                    self.sources.remove(&oldest);
                }
            }
        }
        let bucket = self.sources.entry(source).or_insert(Bucket { left: full, at: now });
        bucket.left = refilled(bucket);
        bucket.at = now;
        if bucket.left < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - bucket.left) / a_second));
        }
        bucket.left -= 1.0;
        Ok(())
    }
}

/// The network of a source. An IPv6 host has a /64 for itself, which counts as one source.
fn network(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_source_has_a_minutes_worth_of_failures_and_then_an_even_trickle() {
        let (mut throttle, start) = (Throttle::default(), Instant::now());
        for _ in 0..6 {
            assert_eq!(throttle.failed(ip("192.0.2.1"), 6, start), Ok(()));
        }
        assert_eq!(throttle.failed(ip("192.0.2.1"), 6, start), Err(Duration::from_secs(10)));
        assert_eq!(throttle.failed(ip("192.0.2.2"), 6, start), Ok(()), "another source");
        let later = start + Duration::from_secs(10);
        assert_eq!(throttle.failed(ip("192.0.2.1"), 6, later), Ok(()));
        assert!(throttle.failed(ip("192.0.2.1"), 6, later).is_err());
        assert!(throttle.failed(ip("::ffff:192.0.2.1"), 6, later).is_err(), "the same source");
    }

    #[test]
    fn a_whole_ipv6_network_is_one_source() {
        let (mut throttle, now) = (Throttle::default(), Instant::now());
        assert_eq!(throttle.failed(ip("2001:db8::1"), 1, now), Ok(()));
        assert!(throttle.failed(ip("2001:db8::ffff:2"), 1, now).is_err());
        assert_eq!(throttle.failed(ip("2001:db8:0:1::1"), 1, now), Ok(()));
    }

    #[test]
    fn no_more_sources_are_remembered_than_there_is_room_for() {
        let (mut throttle, start) = (Throttle::default(), Instant::now());
        for number in 0..10_000_u32 {
            let now = start + Duration::from_millis(number.into());
            assert_eq!(throttle.failed(IpAddr::V4(number.into()), 60, now), Ok(()));
            assert!(throttle.sources.len() <= SOURCES_MAX);
        }
    }
}
