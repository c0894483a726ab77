//! The time, for the message path of one thread.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::respond::Now;

/// The wall clock is looked at this often: cookies, which alone need it, are good for an hour.
const LOOK: Duration = Duration::from_millis(250);

/// Makes one look at the monotonous clock enough for a batch.
pub(super) struct Clock {
    started: Instant,
    wall: Duration,
    looked: Instant,
}

impl Clock {
    /// Counts ticks from `started` on.
    pub(super) fn new(started: Instant) -> Clock {
        Clock { started, wall: wall(), looked: Instant::now() }
    }

    /// The time at `now`, which was looked at just before.
    #[inline]
    pub(super) fn at(&mut self, now: Instant) -> Now {
        if now.saturating_duration_since(self.looked) >= LOOK {
            (self.wall, self.looked) = (wall(), now);
        }
        Now::new(self.wall, now.saturating_duration_since(self.started))
    }
}

/// Since 1970.
#[cold]
fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_go_by_the_given_time_and_seconds_by_the_wall_clock() {
        let started = Instant::now();
        let mut clock = Clock::new(started);
        assert_eq!(clock.at(started).ticks, 0);
        assert_eq!(clock.at(started + Duration::from_micros(1_234_567)).ticks, 123_456);
        let wall = wall().as_secs();
        let seconds = u64::from(clock.at(started + Duration::from_secs(2)).unix_seconds);
        assert!((wall..=wall + 1).contains(&seconds), "{seconds} at {wall}");
    }
}
