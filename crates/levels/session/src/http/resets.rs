//! How many requests a client has reset lately.

use std::cell::Cell;
use std::time::Instant;

/// A client may reset this many requests at once more than it lets end; then it loses the
/// connection. A browser that leaves a page resets all that the page still loads.
pub(super) const RESETS_MAX: u32 = 200;

/// Resets a second that a client may make without end, such as of calls at their deadlines.
const RESETS_PER_S: u32 = 50;

/// Requests that a client has reset, less those that ended, and less [`RESETS_PER_S`].
pub(super) struct Resets {
    count: Cell<u32>,
    /// When the count was last lowered for the time that has passed.
    lowered: Cell<Instant>,
}

impl Resets {
    pub(super) fn new(now: Instant) -> Resets {
        Resets { count: Cell::new(0), lowered: Cell::new(now) }
    }

    /// Counts a request that was reset.
    pub(super) fn add(&self, now: Instant) {
        let passed = now.saturating_duration_since(self.lowered.get());
        let permitted = (passed.as_secs_f64() * f64::from(RESETS_PER_S)) as u32;
        if permitted > 0 {
            self.count.set(self.count.get().saturating_sub(permitted));
            self.lowered.set(now);
        }
        self.count.set(self.count.get() + 1);
    }

    /// Counts a request that ended.
    pub(super) fn ended(&self) {
        self.count.set(self.count.get().saturating_sub(1));
    }

    /// Whether the client loses its connection.
    pub(super) fn are_too_many(&self) -> bool {
        self.count.get() > RESETS_MAX
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn resets_exceed_the_limit_in_a_burst_but_not_slowly() {
        let begin = Instant::now();
        let at_once = Resets::new(begin);
        (0..RESETS_MAX).for_each(|_| at_once.add(begin));
        assert!(!at_once.are_too_many());
        at_once.add(begin);
        assert!(at_once.are_too_many());
        at_once.ended();
        assert!(!at_once.are_too_many());
        let slow = Resets::new(begin);
        let each = Duration::from_secs(1) / RESETS_PER_S;
        (1..50 * RESETS_MAX).for_each(|at| slow.add(begin + each * at));
        assert!(!slow.are_too_many());
    }
}
