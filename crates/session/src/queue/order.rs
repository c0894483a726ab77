//! The order in which requests leave a queue.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Instant;

use equipoise_core::load::RequestClass;

/// What decides where a request stands in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// Higher first.
    priority: Reverse<(u8, u8)>,
    /// When the request arrived. A retry keeps it, and so stands before requests that came later.
    since: Instant,
}

impl Rank {
    /// The rank of a request: by the priority of its front door, then by its class, the cheaper first.
    pub(crate) fn new(priority: u8, class: RequestClass, since: Instant) -> Rank {
        let cheapness = RequestClass::ALL.len() as u8 - class as u8;
        Rank { priority: Reverse((priority, cheapness)), since }
    }
}

/// A place in the queue. Unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    rank: Rank,
    /// Tells requests that arrived together apart.
    number: u64,
}

/// Those that wait, the next one first: higher priority first; within a priority, first come first served.
///
/// Every request of a pool may wait equally long, so that the first to come is also the first to run out of time
/// (earliest deadline first). The wait bounds starvation: a low priority that is never served is refused.
#[derive(Debug)]
pub(crate) struct Order<T> {
    places: BTreeMap<Place, T>,
    joined: u64,
}

impl<T> Default for Order<T> {
    fn default() -> Order<T> {
        Order { places: BTreeMap::new(), joined: 0 }
    }
}

impl<T> Order<T> {
    pub(crate) fn join(&mut self, rank: Rank, waiting: T) -> Place {
        let place = Place { rank, number: self.joined };
        self.joined += 1;
        self.places.insert(place, waiting);
        place
    }

    pub(crate) fn leave(&mut self, place: &Place) -> Option<T> {
        self.places.remove(place)
    }

    /// From the next one on.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Place, &T)> {
        self.places.iter()
    }

    /// Takes out the one that would be served last.
    pub(crate) fn pop_last(&mut self) -> Option<T> {
        self.places.pop_last().map(|(_, waiting)| waiting)
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn priority_then_class_then_arrival() {
        use RequestClass::{Computing, LargeTransfer, Light, SmallTransfer};
        let start = Instant::now();
        // Priority, class, arrival in ms; the expected place.
        let rows = [
            (0, SmallTransfer, 5, 4),
            (0, SmallTransfer, 7, 5),
            (1, SmallTransfer, 9, 1),
            (0, Light, 8, 3),
            (0, Computing, 1, 7),
            (0, LargeTransfer, 2, 6),
            (9, Computing, 10, 0),
            (1, SmallTransfer, 9, 2),
        ];
        let mut order = Order::default();
        for (priority, class, ms, expected) in rows {
            let rank = Rank::new(priority, class, start + Duration::from_millis(ms));
            order.join(rank, expected);
        }
        let served: Vec<_> = order.iter().map(|(_, expected)| *expected).collect();
        assert_eq!(served, [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn a_place_is_left_once_and_the_last_is_the_least_urgent() {
        let start = Instant::now();
        let rank = |priority| Rank::new(priority, RequestClass::default(), start);
        let mut order = Order::default();
        let places = [1, 0, 2].map(|priority| order.join(rank(priority), priority));
        assert_eq!(order.leave(&places[2]), Some(2));
        assert_eq!(order.leave(&places[2]), None);
        assert_eq!(order.pop_last(), Some(0));
        assert_eq!((order.pop_last(), order.pop_last(), order.len()), (Some(1), None, 0));
    }
}
