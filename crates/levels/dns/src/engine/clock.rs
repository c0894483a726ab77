//! Clock of one thread's message path.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::now::Now;

/// Interval between reads of the wall clock. Only cookies use it, and their resolution is a second.
const LOOK: Duration = Duration::from_millis(250);

/// Converts one reading of the monotonic clock per batch into [`Now`].
pub(super) struct Clock {
    started: Instant,
    wall: Duration,
    looked: Instant,
}

impl Clock {
    /// Ticks count from `started`.
    pub(super) fn new(started: Instant) -> Clock {
        Clock { started, wall: wall(), looked: Instant::now() }
    }

    /// Returns the time at `now`, which must be a current reading.
    #[inline]
    pub(super) fn at(&mut self, now: Instant) -> Now {
        if now.saturating_duration_since(self.looked) >= LOOK {
            (self.wall, self.looked) = (wall(), now);
        }
        Now::new(self.wall, now.saturating_duration_since(self.started))
    }
}

/// Time since 1970.
#[cold]
fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_follow_the_given_time_and_seconds_the_wall_clock() {
        let started = Instant::now();
        let mut clock = Clock::new(started);
        assert_eq!(clock.at(started).ticks, 0);
        assert_eq!(clock.at(started + Duration::from_micros(1_234_567)).ticks, 123_456);
        let wall = wall().as_secs();
        let seconds = u64::from(clock.at(started + Duration::from_secs(2)).unix_seconds);
        assert!((wall..=wall + 1).contains(&seconds), "{seconds} at {wall}");
    }
}
