use std::time::{Duration, Instant};

/// Lines about one object that are logged in a minute. An object that changes all the time would
/// fill the log.
const MAX: u32 = 5;

const MINUTE: Duration = Duration::from_secs(60);

/// Limits the log lines about one object. The lines of a minute that are left out are counted, so
/// that a line at its end can say how many they were.
#[derive(Debug, Default)]
pub struct LogLimit {
    minute: Option<Instant>,
    written: u32,
    left_out: u32,
}

impl LogLimit {
    /// Counts a line, and returns whether it may be written.
    pub fn may_write(&mut self, now: Instant) -> bool {
        let is_same = self.minute.is_some_and(|since| now - since < MINUTE);
        if !is_same {
            (self.minute, self.written) = (Some(now), 0);
        }
        let may = self.written < MAX;
        self.written += u32::from(may);
        self.left_out += u32::from(!may);
        may
    }

    /// Whether further lines of this minute are not written.
    pub fn is_full(&self) -> bool {
        self.written == MAX
    }

    /// After the first line that is left out: the end of the minute, when
    /// [`Self::take_left_out`] is due.
    pub fn first_left_out(&self) -> Option<Instant> {
        self.minute.filter(|_| self.left_out == 1).map(|since| since + MINUTE)
    }

    /// Number of lines left out so far; begins to count again.
    pub fn take_left_out(&mut self) -> u32 {
        std::mem::take(&mut self.left_out)
    }
}

/// Limits a log line to one in a minute.
#[derive(Clone, Copy, Debug, Default)]
pub struct OncePerMinute(Option<Instant>);

impl OncePerMinute {
    /// Whether the line may be written now.
    pub fn may_write(&mut self) -> bool {
        self.may_write_at(Instant::now())
    }

    fn may_write_at(&mut self, now: Instant) -> bool {
        let may = self.0.is_none_or(|last| now - last >= MINUTE);
        if may {
            self.0 = Some(now);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_written_at_once_and_then_once_a_minute() {
        let (mut line, begun) = (OncePerMinute::default(), Instant::now());
        let written =
            (0..=120).filter(|second| line.may_write_at(begun + Duration::from_secs(*second)));
        assert_eq!(written.collect::<Vec<_>>(), [0, 60, 120]);
    }

    #[test]
    fn an_object_that_changes_often_has_few_lines_a_minute() {
        let (mut lines, begun) = (LogLimit::default(), Instant::now());
        let written = |lines: &mut LogLimit, seconds: std::ops::Range<u64>| {
            let at = |second| begun + Duration::from_secs(second);
            seconds.filter(|second| lines.may_write(at(*second))).count()
        };
        assert_eq!(written(&mut lines, 0..60), MAX as usize);
        assert!(lines.is_full());
        assert_eq!(written(&mut lines, 60..61), 1, "the next minute has lines again");
        assert_eq!((lines.take_left_out(), lines.take_left_out()), (60 - MAX, 0));
    }

    #[test]
    fn the_first_line_that_is_left_out_has_the_end_of_the_minute() {
        let (mut lines, begun) = (LogLimit::default(), Instant::now());
        let mut due = Vec::new();
        for _ in 0..2 * MAX {
            if !lines.may_write(begun) {
                due.extend(lines.first_left_out());
            }
        }
        assert_eq!(due, [begun + MINUTE]);
    }
}
