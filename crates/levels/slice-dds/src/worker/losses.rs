//! Logs which items are lost here, and how to prevent that. Publishers that are not our clients do
//! not notice the loss, and do not publish again.

use std::collections::BTreeMap;
use std::time::Duration;

use equipoise_slice::worker::Reason;

use crate::drops::DropReason;

/// Interval between two log lines of one reason.
const EVERY: Duration = Duration::from_secs(10);

/// The losses that were logged.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// By reason: the count at the last log line, and its time.
    told: BTreeMap<&'static str, (u64, Duration)>,
}

/// Reasons, with their explanation and remedy.
fn remedies() -> [(&'static str, &'static str); 6] {
    [
        (
            Reason::GivenUp.name(),
            "the controller declared this worker lost, because it was paused or cut off for longer than its lease; others have its slices: \
             give it CPU time, or a longer lease (slice.workers.lease)",
        ),
        (
            DropReason::QueueFull.name(),
            "this worker's queue is full: add workers, raise --queue-max and --held-bytes-max, or let publishers wait for replies",
        ),
        (
            Reason::TailFull.name(),
            "publishers started while their slices moved, and sent more than is kept for the target: let them start slowly, or republish \
             items without a reply",
        ),
        (
            DropReason::NoSuchSlice.name(),
            "the stream has no such slices: give publishers the right number of slices",
        ),
        (
            DropReason::Malformed.name(),
            "they are too short, or of another type with the same name: look for a publisher with an older type",
        ),
        (
            DropReason::UnknownWriter.name(),
            "their publishers ended before discovery described them: let them stay until their items are acknowledged",
        ),
    ]
}

impl Losses {
    /// `counts`: lost items by reason, since the worker started.
    pub(super) fn tell(&mut self, now: Duration, counts: &[(String, u64)]) {
        for (reason, lost, remedy) in self.due(now, counts) {
            tracing::warn!(
                reason,
                lost,
                "items are lost, unless their publishers publish them again: {remedy}"
            );
        }
    }

    /// The log lines that are due: the reason, the number of further items, and the remedy.
    fn due(
        &mut self,
        now: Duration,
        counts: &[(String, u64)],
    ) -> Vec<(&'static str, u64, &'static str)> {
        let mut due = Vec::new();
        for (reason, remedy) in remedies() {
            let count =
                counts.iter().find(|(name, _)| name == reason).map_or(0, |(_, count)| *count);
            let told = self.told.get(reason).copied();
            let (before, at) = told.unwrap_or((0, Duration::ZERO));
            let is_time = told.is_none() || now.saturating_sub(at) >= EVERY;
            if count > before && is_time {
                self.told.insert(reason, (count, now));
                due.push((reason, count - before, remedy));
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_logged_immediately_and_further_losses_every_ten_seconds() {
        let mut losses = Losses::default();
        let mut at = |seconds, full: u64, late: u64| {
            let counts = [("queue_full".to_string(), full), ("late".to_string(), late)];
            let due = losses.due(Duration::from_secs(seconds), &counts);
            due.into_iter().map(|(reason, count, _)| (reason, count)).collect::<Vec<_>>()
        };
        assert_eq!(at(0, 0, 9), [], "a reason that is no loss is not logged");
        assert_eq!(at(1, 3, 9), [("queue_full", 3)]);
        assert_eq!(at(5, 70, 9), []);
        assert_eq!(at(11, 80, 9), [("queue_full", 77)]);
        assert_eq!(at(100, 80, 9), []);
    }
}
