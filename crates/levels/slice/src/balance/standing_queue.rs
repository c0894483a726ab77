//! The standing queue of a slice.

use std::collections::VecDeque;
use std::time::Duration;

/// The smallest of the last lengths of a queue.
#[derive(Debug, Clone, Default)]
pub(super) struct StandingQueue {
    /// Lengths with their times, both growing. A longer queue before a shorter one is left out.
    lengths: VecDeque<(Duration, u64)>,
}

impl StandingQueue {
    /// Records the length of the queue. Forgets those that are older than `horizon`.
    pub(super) fn observe(&mut self, now: Duration, items: u64, horizon: Duration) {
        while self.lengths.back().is_some_and(|(_, before)| *before >= items) {
            self.lengths.pop_back();
        }
        self.lengths.push_back((now, items));
        while self.lengths.front().is_some_and(|(at, _)| now.saturating_sub(*at) > horizon) {
            self.lengths.pop_front();
        }
    }

    /// The items of the standing queue.
    pub(super) fn items(&self) -> u64 {
        self.lengths.front().map_or(0, |(_, items)| *items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standing_queue_is_the_minimum_over_the_horizon() {
        let mut queue = StandingQueue::default();
        assert_eq!(queue.items(), 0);
        let lengths = [5, 3, 8, 9, 4, 7, 7, 9, 1, 6, 6, 6, 6, 2];
        for (second, items) in lengths.into_iter().enumerate() {
            queue.observe(Duration::from_secs(second as u64), items, Duration::from_secs(3));
            let within = &lengths[second.saturating_sub(3)..=second];
            assert_eq!(Some(queue.items()), within.iter().copied().min(), "at {second} s");
        }
    }
}
