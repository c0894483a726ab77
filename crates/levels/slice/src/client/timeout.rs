//! The time after which an item without a reply is published again.
//!
//! # Source
//! RFC 6298, "Computing TCP's Retransmission Timer": sections 2 (estimate), 3 (Karn: no sample of
//! what was sent twice) and 5 (back-off that stays until there is a sample). Deviates: the clock is
//! fine enough to have no granularity; the user sets the lower bound; each item has a back-off of
//! its own in addition, as each has its own timer.

use std::time::Duration;

/// The timeout of one slice, from its reply times.
#[derive(Debug, Clone, Default)]
pub(super) struct Timeout {
    /// Mean and mean deviation of the reply times.
    estimate: Option<(Duration, Duration)>,
    /// Number of doublings since the last sample.
    doubled: u32,
    /// Only items published after this double it again.
    doubled_at: Duration,
}

impl Timeout {
    /// Time to wait for a reply, between `min` and `max`.
    pub(super) fn current(&self, min: Duration, max: Duration) -> Duration {
        let estimate = self.estimate.map_or(Duration::ZERO, |(mean, off)| mean + 4 * off);
        doubled(estimate.max(min), self.doubled).min(max.max(min))
    }

    /// Adds the reply time of an item that was published once.
    pub(super) fn sample(&mut self, delay: Duration) {
        self.estimate = Some(match self.estimate {
            None => (delay, delay / 2),
            Some((mean, off)) => ((7 * mean + delay) / 8, (3 * off + mean.abs_diff(delay)) / 4),
        });
        self.doubled = 0;
    }

    /// An item that was last published at `said` has no reply in time.
    pub(super) fn expired(&mut self, now: Duration, said: Duration) {
        // All items that were in flight together count once.
        if said >= self.doubled_at {
            self.doubled = (self.doubled + 1).min(32);
            self.doubled_at = now;
        }
    }
}

/// `time` doubled `times` times.
pub(super) fn doubled(time: Duration, times: u32) -> Duration {
    time.saturating_mul(1_u32.checked_shl(times.min(31)).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: Duration = Duration::from_millis(100);
    const MAX: Duration = Duration::from_secs(60);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn it_follows_the_replies_and_stays_within_its_bounds() {
        let mut timeout = Timeout::default();
        assert_eq!(timeout.current(MIN, MAX), MIN);
        timeout.sample(ms(1));
        assert_eq!(timeout.current(MIN, MAX), MIN);
        // RFC 6298, 2.2: R + 4 * R/2.
        let mut slow = Timeout::default();
        slow.sample(ms(400));
        assert_eq!(slow.current(MIN, MAX), ms(1200));
        // 2.3: the deviation falls while replies are steady.
        for _ in 0..100 {
            slow.sample(ms(400));
        }
        let steady = slow.current(MIN, MAX);
        assert!((ms(400)..ms(420)).contains(&steady), "{steady:?}");
        for _ in 0..20 {
            slow.sample(Duration::from_secs(100));
        }
        assert_eq!(slow.current(MIN, MAX), MAX);
    }

    #[test]
    fn it_is_doubled_once_for_all_that_were_under_way_and_until_there_is_a_sample() {
        let mut timeout = Timeout::default();
        for said in [ms(0), ms(10), ms(90)] {
            timeout.expired(ms(100) + said, said);
        }
        assert_eq!(timeout.current(MIN, MAX), ms(200));
        timeout.expired(ms(400), ms(150));
        assert_eq!(timeout.current(MIN, MAX), ms(400));
        timeout.sample(ms(5));
        assert_eq!(timeout.current(MIN, MAX), MIN);
        for time in 1..200 {
            timeout.expired(ms(1000 * time), ms(1000 * time));
        }
        assert_eq!(timeout.current(MIN, MAX), MAX);
        assert_eq!(timeout.current(MIN, ms(10)), MIN, "the lower bound wins");
    }
}
