//! Throttles the log of an error that repeats: a new error is logged at once, a repeated one at
//! growing intervals. No clock.

use std::time::Duration;

/// Interval from the first log line to the next; each further interval is twice as long.
const FIRST: Duration = Duration::from_secs(60);
/// Longest interval.
const LONGEST: Duration = Duration::from_secs(3600);

/// The error that was logged last.
#[derive(Debug, Default)]
pub(crate) struct Complaint {
    said: Option<Said>,
}

#[derive(Debug)]
struct Said {
    text: String,
    at: Duration,
    pause: Duration,
    /// Repetitions since the last log line.
    unsaid: u32,
}

impl Complaint {
    /// Whether to log the error now. The value is the number of repetitions since the last log
    /// line.
    pub(crate) fn comes(&mut self, text: &str, now: Duration) -> Option<u32> {
        let Some(said) = self.said.as_mut().filter(|said| said.text == text) else {
            let text = text.to_string();
            self.said = Some(Said { text, at: now, pause: FIRST, unsaid: 0 });
            return Some(0);
        };
        if now.saturating_sub(said.at) < said.pause {
            said.unsaid += 1;
            return None;
        }
        (said.at, said.pause) = (now, (said.pause * 2).min(LONGEST));
        Some(std::mem::take(&mut said.unsaid))
    }

    /// Forgets the error: it is fixed.
    pub(crate) fn is_over(&mut self) {
        self.said = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(complaint: &mut Complaint, text: &str, seconds: std::ops::Range<u64>) -> Vec<u64> {
        let every_two = seconds.step_by(2);
        let is_said = |at: &u64| complaint.comes(text, Duration::from_secs(*at)).is_some();
        every_two.filter(is_said).collect()
    }

    #[test]
    fn a_repeated_error_is_logged_at_growing_intervals() {
        let mut complaint = Complaint::default();
        assert_eq!(said(&mut complaint, "damaged", 0..1000), [0, 60, 180, 420, 900]);
        let day = said(&mut complaint, "damaged", 1000..1000 + 86_400);
        assert!((22..=26).contains(&day.len()), "each hour at last: {day:?}");
    }

    #[test]
    fn a_new_error_or_recurrence_after_recovery_is_logged_at_once() {
        let mut complaint = Complaint::default();
        assert_eq!(said(&mut complaint, "damaged", 0..10), [0]);
        assert_eq!(said(&mut complaint, "away", 10..20), [10]);
        assert_eq!(said(&mut complaint, "damaged", 20..30), [20]);
        complaint.is_over();
        assert_eq!(said(&mut complaint, "damaged", 30..40), [30]);
    }

    #[test]
    fn a_log_line_has_the_number_of_suppressed_repetitions() {
        let mut complaint = Complaint::default();
        assert_eq!(complaint.comes("away", Duration::ZERO), Some(0));
        for at in [1, 2, 3] {
            assert_eq!(complaint.comes("away", Duration::from_secs(at)), None);
        }
        assert_eq!(complaint.comes("away", FIRST), Some(3));
    }
}
