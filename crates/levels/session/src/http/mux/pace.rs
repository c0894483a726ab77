//! The pace of one backend's shared sessions, on one thread: when a response is late, and how many
//! requests may wait behind one.

use std::cell::Cell;
use std::time::Duration;

/// A request is put only where the probability that it is sent again is at most one in so many.
const REPEATED: f32 = 5.0;
/// The share of late responses is that of about so many responses.
const WINDOW: u32 = 1024;
/// The time of a turn is an average of about so many.
const TURNS: u32 = 32;
/// A turn counts at most so many times the average, and this time besides.
const OUTLIER: f32 = 4.0;
const TURN_MIN_NS: f32 = 100_000.0;
/// A depth without a bound.
const DEPTH_MAX: f32 = 1024.0;
/// The shortest time after which a response may be late: the resolution of timers.
const CHECK_MIN: Duration = Duration::from_millis(1);
/// A response is early or late by comparison with so many of other sessions. While the backend
/// answers none, it has a pause, and a request sent again would wait as well.
const OTHERS: u64 = 16;

/// Averages of responses on shared sessions, without those of sessions that were set aside.
#[derive(Default)]
pub(super) struct Pace {
    /// Responses so far.
    answered: Cell<u64>,
    /// From when a response is next to its end, nanoseconds.
    turn_ns: Cell<f32>,
    /// Share of late responses.
    late: Cell<f32>,
}

impl Pace {
    /// Counts a response that was not late.
    pub(super) fn answered(&self, turn: Duration) {
        self.answered.set(self.answered.get() + 1);
        // Rare slow responses that were not late must not make the others of their kind seem usual.
        let most = OUTLIER * self.turn_ns.get() + TURN_MIN_NS;
        approach(&self.turn_ns, most.min(turn.as_nanos() as f32), TURNS);
        approach(&self.late, 0.0, WINDOW);
    }

    /// Counts a late response.
    pub(super) fn was_late(&self) {
        approach(&self.late, 1.0, WINDOW);
    }

    /// Responses so far.
    pub(super) fn count(&self) -> u64 {
        self.answered.get()
    }

    /// Interval of the checks for a late response, with so many requests in flight on its session:
    /// twice the time in which all of them are usually answered. A response that is next at two
    /// checks is late.
    pub(super) fn check_after(&self, in_flight: usize, slow: Duration) -> Duration {
        (self.wait(in_flight) * 2).max(CHECK_MIN).min(slow)
    }

    /// Whether enough others were answered since there were `count`.
    pub(super) fn others_went_on(&self, count: u64) -> bool {
        self.answered.get() - count >= OTHERS
    }

    /// How long a request behind so many others would wait for its turn.
    pub(super) fn wait(&self, others: usize) -> Duration {
        Duration::from_nanos((self.turn_ns.get() * others as f32) as u64)
    }

    /// The most requests in flight on one session. Each of those in front may be late, so the
    /// depth falls to 1, as on an exclusive session, as the share of late responses grows.
    pub(super) fn depth(&self) -> usize {
        1 + (1.0 / (REPEATED * self.late.get())).min(DEPTH_MAX) as usize
    }
}

/// Moves an average over `window` values towards the latest.
fn approach(average: &Cell<f32>, value: f32, window: u32) {
    average.set(average.get() + (value - average.get()) / window as f32);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: Duration = Duration::from_millis(50);

    fn after(responses: u32, late_of_1000: u32) -> Pace {
        let pace = Pace::default();
        for response in 0..responses {
            match response % 1000 * late_of_1000 % 1000 < late_of_1000 {
                true => pace.was_late(),
                false => pace.answered(Duration::from_micros(50)),
            }
        }
        pace
    }

    #[test]
    fn the_depth_falls_to_one_as_more_responses_are_late() {
        for (late_of_1000, depth) in [
            (0, 1000..=1025),
            (1, 120..=400),
            (10, 15..=30),
            (50, 4..=7),
            (200, 1..=2),
            (1000, 1..=1),
        ] {
            let found = after(20_000, late_of_1000).depth();
            assert!(depth.contains(&found), "{late_of_1000} of 1000 late: {found}");
        }
    }

    #[test]
    fn sharing_returns_when_responses_are_quick_again() {
        let pace = after(20_000, 500);
        let mut before = pace.depth();
        for _ in 0..10 {
            (0..1024).for_each(|_| pace.answered(Duration::from_micros(50)));
            assert!(pace.depth() >= before);
            before = pace.depth();
        }
        assert!(before > 32, "{before}");
    }

    #[test]
    fn a_response_is_late_after_twice_the_time_that_its_session_needs_for_all() {
        let pace = after(1000, 0);
        assert_eq!(pace.check_after(2, SLOW), CHECK_MIN);
        let check = pace.check_after(16, SLOW).as_micros();
        assert!((1550..=1610).contains(&check), "{check}");
        assert_eq!(pace.check_after(10_000, SLOW), SLOW);
    }

    #[test]
    fn rare_slow_responses_do_not_delay_the_check() {
        let pace = after(1000, 0);
        for response in 0..10_000 {
            let turn = if response % 100 == 0 { 50_000 } else { 50 };
            pace.answered(Duration::from_micros(turn));
        }
        assert!(pace.check_after(16, SLOW) < Duration::from_millis(3));
    }

    #[test]
    fn a_backend_that_answers_none_has_no_late_response() {
        let pace = after(1000, 0);
        let count = pace.count();
        assert!(!pace.others_went_on(count));
        (0..OTHERS).for_each(|_| pace.answered(Duration::from_micros(50)));
        assert!(pace.others_went_on(count));
    }
}
