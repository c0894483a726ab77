//! Limits log lines per time, because any host on the network can make Cyclone DDS warn of each
//! packet.

use std::time::Duration;

/// Greatest number of lines in one [`WINDOW`].
pub(super) const LINES: u32 = 10;
/// Length of a window, which begins with the first line after the previous window.
pub(super) const WINDOW: Duration = Duration::from_secs(10);

/// Decision about a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The line is written.
    Write,
    /// The line is left out. For the first of a window, the number of such lines is due after this
    /// time.
    LeaveOut { due: Option<Duration> },
}

/// Throttle of the lines of one priority. `now` is the time since any fixed moment.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    began: Option<Duration>,
    written: u32,
    left_out: u64,
}

impl Throttle {
    pub(super) const fn new() -> Self {
        Self { began: None, written: 0, left_out: 0 }
    }

    pub(super) fn line(&mut self, now: Duration) -> Verdict {
        let age = self.began.map(|began| now.saturating_sub(began));
        // The window continues until the count has been taken.
        if age.is_none_or(|age| age >= WINDOW && self.left_out == 0) {
            (self.began, self.written) = (Some(now), 0);
        }
        if self.written < LINES {
            self.written += 1;
            return Verdict::Write;
        }
        self.left_out += 1;
        let due = (self.left_out == 1).then(|| WINDOW.saturating_sub(age.unwrap_or_default()));
        Verdict::LeaveOut { due }
    }

    /// The number of lines left out. The next line begins a new window.
    pub(super) fn take(&mut self) -> u64 {
        self.began = None;
        std::mem::take(&mut self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_flood_writes_ten_lines_in_each_window_and_the_others_are_counted() {
        let mut throttle = Throttle::new();
        let mut written = 0;
        let mut due = Vec::new();
        for _ in 0..1000 {
            match throttle.line(s(3)) {
                Verdict::Write => written += 1,
                Verdict::LeaveOut { due: at } => due.extend(at),
            }
        }
        assert_eq!((written, due), (LINES, vec![WINDOW]));
        assert!(matches!(throttle.line(s(20)), Verdict::LeaveOut { due: None }), "it is not taken");
        assert_eq!(throttle.take(), 1000 - u64::from(LINES) + 1);
        assert_eq!((throttle.line(s(20)), throttle.take()), (Verdict::Write, 0));
    }

    #[test]
    fn a_few_lines_now_and_then_are_all_written() {
        let mut throttle = Throttle::new();
        for second in 0..100 {
            assert_eq!(throttle.line(s(2 * second)), Verdict::Write);
        }
        for window in 0..5 {
            for _ in 0..LINES {
                assert_eq!(throttle.line(s(1000) + window * WINDOW), Verdict::Write);
            }
        }
    }
}
