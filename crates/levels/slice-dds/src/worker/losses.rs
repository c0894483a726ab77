//! Says in the log, now and then, what is lost here and how to have it lost no more. Publishers that are no clients of ours hear
//! nothing of it, and publish nothing again.

use std::collections::BTreeMap;
use std::time::Duration;

use equipoise_slice::worker::Reason;

use crate::drops::DropReason;

/// Between two lines of one reason.
const EVERY: Duration = Duration::from_secs(10);

/// What was said.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// By reason: how many, and when.
    told: BTreeMap<&'static str, (u64, Duration)>,
}

/// What is lost, and what helps.
fn remedies() -> [(&'static str, &'static str); 6] {
    [
        (
            Reason::GivenUp.name(),
            "the controller gave this worker up, as it stood still or was cut off for longer than its lease, and others have its slices: \
             give it CPU time, or a longer lease (slice.workers.lease)",
        ),
        (
            DropReason::QueueFull.name(),
            "too much waits here: add workers, or room by --queue-max and --held-bytes-max, or have publishers wait for replies",
        ),
        (
            Reason::TailFull.name(),
            "publishers began while their slices moved, with more than is kept for the taker: have them begin slowly, or publish again \
             what has no reply",
        ),
        (
            DropReason::NoSuchSlice.name(),
            "their slices are none of the stream's: have publishers know how many there are",
        ),
        (
            DropReason::Malformed.name(),
            "they are too short, or of another type under the same name: look for a publisher with an older type",
        ),
        (
            DropReason::UnknownWriter.name(),
            "their publishers were gone before they were known: have them stay until items are acknowledged",
        ),
    ]
}

impl Losses {
    /// `counts`: by reason, since the worker started.
    pub(super) fn tell(&mut self, now: Duration, counts: &[(String, u64)]) {
        for (reason, lost, remedy) in self.due(now, counts) {
            tracing::warn!(
                reason,
                lost,
                "items are lost, unless their publishers publish them again: {remedy}"
            );
        }
    }

    /// What there is to say now: the reason, how many more, and what helps.
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
    fn each_loss_is_told_at_once_and_then_together_now_and_then() {
        let mut losses = Losses::default();
        let mut at = |seconds, full: u64, late: u64| {
            let counts = [("queue_full".to_string(), full), ("late".to_string(), late)];
            let due = losses.due(Duration::from_secs(seconds), &counts);
            due.into_iter().map(|(reason, count, _)| (reason, count)).collect::<Vec<_>>()
        };
        assert_eq!(at(0, 0, 9), [], "what is no loss is not told");
        assert_eq!(at(1, 3, 9), [("queue_full", 3)]);
        assert_eq!(at(5, 70, 9), []);
        assert_eq!(at(11, 80, 9), [("queue_full", 77)]);
        assert_eq!(at(100, 80, 9), []);
    }
}
