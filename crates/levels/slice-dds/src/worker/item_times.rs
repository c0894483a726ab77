//! Times of items without pauses of the worker or of its program: an item that is in progress
//! during a pause takes no more work than others. An operating system does not tell a process that
//! it was stopped.

use std::collections::BTreeMap;
use std::time::Duration;

use equipoise_slice::SliceId;

/// Shortest pause that is recognized.
const PAUSE: Duration = Duration::from_secs(1);
/// An item that takes a pause more than this many times the mean has met one, and counts as this
/// many. Where items really take longer now, the mean follows within some of them.
const LONG: f64 = 8.0;
/// Items in the mean.
const ITEMS: f64 = 16.0;

/// Mean seconds of the last items of each slice.
#[derive(Debug, Default)]
pub(super) struct ItemTimes(BTreeMap<SliceId, f64>);

impl ItemTimes {
    /// The time that counts for an item that took `busy`.
    pub(super) fn count(&mut self, slice: SliceId, busy: Duration) -> Duration {
        let mean = self.0.entry(slice).or_insert(busy.as_secs_f64());
        let long = Duration::try_from_secs_f64(LONG * *mean).unwrap_or(Duration::MAX);
        let counted = if busy > long.saturating_add(PAUSE) { long } else { busy };
        *mean += (counted.as_secs_f64() - *mean) / ITEMS;
        counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: SliceId = SliceId(3);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn an_item_of_a_pause_counts_little() {
        let mut times = ItemTimes::default();
        for _ in 0..20 {
            assert_eq!(times.count(SLICE, ms(3)), ms(3));
        }
        assert_eq!(times.count(SLICE, ms(2003)), ms(24));
        assert_eq!(times.count(SLICE, ms(3)), ms(3));
        assert_eq!(times.count(SLICE, ms(900)), ms(900), "too short for a pause");
    }

    #[test]
    fn items_that_take_long_count_in_full_soon() {
        let mut times = ItemTimes::default();
        for _ in 0..20 {
            times.count(SLICE, ms(100));
        }
        let counted: Vec<_> = (0..4).map(|_| times.count(SLICE, ms(3000))).collect();
        assert_eq!(counted.last(), Some(&ms(3000)), "{counted:?}");
        assert_eq!(times.count(SliceId(4), ms(3000)), ms(3000), "the first of its slice");
    }
}
