use std::time::Duration;

use super::Sample;

/// Requests which have been in flight for so long that they are no longer counted.
///
/// Long polls and streams hold a permit and use little of the backend. Requests which have run for
/// much longer than most do not count against the limit, so that a few of them cannot close the
/// backend to all others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Parked {
    /// Requests that started until then are parked; `count` of them are in flight.
    before: Duration,
    count: u32,
    /// Requests that started until then are parked next; `marked` of them are in flight.
    mark: Duration,
    marked: u32,
}

impl Parked {
    /// Requests in flight that do not count.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Takes out a request that has finished; true if it was parked.
    pub(super) fn finished(&mut self, sample: &Sample) -> bool {
        let started = sample.started();
        if started <= self.mark {
            self.marked = self.marked.saturating_sub(1);
        }
        let parked = started <= self.before;
        if parked {
            self.count = self.count.saturating_sub(1);
        }
        parked
    }

    /// Parks what has been in flight for `age` (to twice that).
    pub(super) fn step(&mut self, now: Duration, in_flight: u32, age: Duration) {
        self.count = self.count.min(in_flight);
        self.marked = self.marked.min(in_flight);
        if now.saturating_sub(self.mark) >= age {
            (self.before, self.count) = (self.mark, self.marked);
            (self.mark, self.marked) = (now, in_flight);
        }
    }
}
