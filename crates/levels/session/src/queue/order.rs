//! The order in which requests leave a queue.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use equipoise_core::load::RequestClass;

use crate::permits::Work;

/// The priority of a request's front door, the cheapness of its class, and its turn. The lowest
/// value is served first.
type Priority = Reverse<(u8, u8, Turn)>;

/// Whether a request has had a backend before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Turn {
    First,
    /// It precedes first attempts, because it has waited already.
    Again,
}

/// The order of a request in the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rank {
    priority: Priority,
    /// When the request arrived.
    since: Instant,
    /// When its wait or its own time ends.
    due: Instant,
    /// True if a peer may serve the request.
    pub(crate) may_leave: bool,
}

impl Rank {
    pub(crate) fn new(priority: u8, class: RequestClass, since: Instant, due: Instant) -> Rank {
        let priority = Reverse((priority, cheapness(class), Turn::First));
        Rank { priority, since, due, may_leave: false }
    }

    /// The same rank, with whether a peer may serve the request.
    pub(crate) fn leaving(self, may_leave: bool) -> Rank {
        Rank { may_leave, ..self }
    }

    /// The kind of permits that the request takes.
    pub(crate) fn work(&self) -> Work {
        work_of(&self.priority)
    }

    /// The same rank in this turn.
    pub(crate) fn in_turn(self, turn: Turn) -> Rank {
        let Reverse((priority, cheapness, _)) = self.priority;
        Rank { priority: Reverse((priority, cheapness, turn)), ..self }
    }
}

fn cheapness(class: RequestClass) -> u8 {
    RequestClass::ALL.len() as u8 - class as u8
}

fn work_of(Reverse((_, cheap, _)): &Priority) -> Work {
    if *cheap == cheapness(RequestClass::Light) { Work::Light } else { Work::Usual }
}

/// A unique place in the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    priority: Priority,
    arrival: Arrival,
    due: Instant,
}

/// Arrival time of a request, and a number that distinguishes requests with the same time.
type Arrival = (Instant, u64);

/// The requests of a queue. Higher priority comes first. Within a priority the earliest deadline
/// comes first, and the newest first once the oldest has waited for half of its time.
///
/// Most requests of a pool may wait equally long, so the earliest deadline is that of the first to
/// arrive. A request with a shorter time of its own (`grpc-timeout`, one from a peer) overtakes
/// those that can wait longer. A burst is over before half of that time. In overload every request
/// would be served at the end of its wait, when its client may have given up. With the newest
/// first, as many requests as the backends can serve are served in time, and the others are refused
/// at the end of their wait. The wait also limits the starvation of low priorities and of late
/// deadlines.
///
/// # Source
/// Earliest deadline first: Liu and Layland, JACM 20(1), 1973. Adaptive LIFO: Maurer, "Fail at
/// Scale", ACM Queue 13(8), 2015. Deviates: within a priority; by the age of the oldest instead of
/// the time since the queue was empty, and without CoDel.
/// Simulated in `crates/base/core/tests/concurrency/`: throughput in overload is equal, and nothing
/// is refused below it.
#[derive(Debug)]
pub(crate) struct Order<T> {
    /// No group is empty.
    groups: BTreeMap<Priority, Group<T>>,
    waiting: usize,
    joined: u64,
}

/// The requests of one priority.
#[derive(Debug)]
struct Group<T> {
    /// By deadline, and by arrival among equal deadlines.
    by_due: BTreeMap<(Instant, Arrival), T>,
    /// The deadline of each request, by arrival.
    by_arrival: BTreeMap<Arrival, Instant>,
}

impl<T> Default for Group<T> {
    fn default() -> Group<T> {
        Group { by_due: BTreeMap::new(), by_arrival: BTreeMap::new() }
    }
}

impl<T> Group<T> {
    fn remove(&mut self, arrival: Arrival, due: Instant) -> Option<T> {
        self.by_arrival.remove(&arrival);
        self.by_due.remove(&(due, arrival))
    }

    /// Arrival time of the oldest request.
    fn oldest(&self) -> Option<Instant> {
        self.by_arrival.first_key_value().map(|((since, _), _)| *since)
    }

    /// True if the oldest has waited for this long.
    fn is_late(&self, now: Instant, late: Duration) -> bool {
        self.oldest().is_some_and(|since| now.saturating_duration_since(since) >= late)
    }

    /// The next request for which `takes` is true.
    fn next_where(
        &self,
        newest_first: bool,
        takes: impl Fn(&T) -> bool,
    ) -> Option<(Arrival, Instant, &T)> {
        if newest_first {
            let newest = self.by_arrival.iter().rev();
            let mut newest = newest.filter_map(|(arrival, due)| {
                Some((*arrival, *due, self.by_due.get(&(*due, *arrival))?))
            });
            return newest.find(|(_, _, waiting)| takes(waiting));
        }
        let found = self.by_due.iter().find(|(_, waiting)| takes(waiting));
        found.map(|((due, arrival), waiting)| (*arrival, *due, waiting))
    }

    /// The request that would be served last.
    fn last(&self, newest_first: bool) -> Option<(Arrival, Instant)> {
        if newest_first {
            return self.by_arrival.first_key_value().map(|(arrival, due)| (*arrival, *due));
        }
        self.by_due.last_key_value().map(|((due, arrival), _)| (*arrival, *due))
    }
}

impl<T> Default for Order<T> {
    fn default() -> Order<T> {
        Order { groups: BTreeMap::new(), waiting: 0, joined: 0 }
    }
}

impl<T> Order<T> {
    pub(crate) fn join(&mut self, rank: Rank, waiting: T) -> Place {
        let arrival = (rank.since, self.joined);
        self.joined += 1;
        self.waiting += 1;
        let group = self.groups.entry(rank.priority).or_default();
        group.by_due.insert((rank.due, arrival), waiting);
        group.by_arrival.insert(arrival, rank.due);
        Place { priority: rank.priority, arrival, due: rank.due }
    }

    pub(crate) fn leave(&mut self, place: &Place) -> Option<T> {
        let group = self.groups.get_mut(&place.priority)?;
        let waiting = group.remove(place.arrival, place.due)?;
        if group.by_due.is_empty() {
            self.groups.remove(&place.priority);
        }
        self.waiting -= 1;
        Some(waiting)
    }

    /// The next request for which `takes` is true. `late`: age of the oldest from which the newest
    /// comes first.
    pub(crate) fn next_where(
        &self,
        now: Instant,
        late: Duration,
        takes: impl Fn(&T) -> bool,
    ) -> Option<(Place, &T)> {
        self.next_of(|_| true, now, late, takes)
    }

    /// As [`Self::next_where`], among the kinds of work with room.
    pub(crate) fn next_of(
        &self,
        has_room: impl Fn(Work) -> bool,
        now: Instant,
        late: Duration,
        takes: impl Fn(&T) -> bool,
    ) -> Option<(Place, &T)> {
        let mut groups = self.groups.iter().filter(|(priority, _)| has_room(work_of(priority)));
        groups.find_map(|(priority, group)| {
            let found = group.next_where(group.is_late(now, late), &takes);
            found.map(|(arrival, due, waiting)| {
                (Place { priority: *priority, arrival, due }, waiting)
            })
        })
    }

    /// Removes the request that would be served last.
    pub(crate) fn pop_last(&mut self, now: Instant, late: Duration) -> Option<T> {
        let (priority, group) = self.groups.last_key_value()?;
        let (arrival, due) = group.last(group.is_late(now, late))?;
        let place = Place { priority: *priority, arrival, due };
        self.leave(&place)
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting
    }

    /// Arrival time of the oldest request.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.groups.values().filter_map(Group::oldest).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATE: Duration = Duration::from_millis(500);

    /// A request that may wait as long as most.
    fn ranked(priority: u8, class: RequestClass, since: Instant) -> Rank {
        Rank::new(priority, class, since, since + 2 * LATE)
    }

    /// A moment long after all have arrived, or before one is late.
    fn moment(start: Instant, newest_first: bool) -> Instant {
        if newest_first { start + 10 * LATE } else { start }
    }

    fn drained(order: &mut Order<u32>, now: Instant) -> Vec<u32> {
        let mut served = Vec::new();
        while let Some((place, _)) = order.next_where(now, LATE, |_| true) {
            served.extend(order.leave(&place));
        }
        served
    }

    #[test]
    fn requests_leave_by_priority_then_class_then_arrival() {
        use RequestClass::{Computing, LargeTransfer, Light, SmallTransfer};
        let start = Instant::now();
        // Priority, class, arrival in ms; the place first come first served, and newest first.
        let rows = [
            (0, SmallTransfer, 5, 4, 5),
            (0, SmallTransfer, 7, 5, 4),
            (1, SmallTransfer, 8, 1, 2),
            (0, Light, 8, 3, 3),
            (0, Computing, 1, 7, 7),
            (0, LargeTransfer, 2, 6, 6),
            (9, Computing, 10, 0, 0),
            (1, SmallTransfer, 9, 2, 1),
        ];
        for newest_first in [false, true] {
            let mut order = Order::default();
            for (priority, class, ms, oldest, newest) in rows {
                let rank = ranked(priority, class, start + Duration::from_millis(ms));
                order.join(rank, if newest_first { newest } else { oldest });
            }
            assert_eq!(drained(&mut order, moment(start, newest_first)), [0, 1, 2, 3, 4, 5, 6, 7]);
            assert_eq!(order.len(), 0);
        }
    }

    #[test]
    fn a_repeated_request_precedes_first_attempts_of_its_priority() {
        let start = Instant::now();
        let rank = |priority, ms| {
            let since = start + Duration::from_millis(ms);
            ranked(priority, RequestClass::default(), since)
        };
        for newest_first in [false, true] {
            let mut order = Order::default();
            for (rank, expected) in [
                (rank(0, 1).in_turn(Turn::First), 2),
                (rank(0, 2).in_turn(Turn::Again), 1),
                (rank(1, 3).in_turn(Turn::First), 0),
            ] {
                order.join(rank, expected);
            }
            assert_eq!(drained(&mut order, moment(start, newest_first)), [0, 1, 2]);
        }
    }

    #[test]
    fn within_a_priority_deadline_then_arrival_sets_the_order() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        // Priority, arrival and time to wait in ms; the place.
        let rows = [
            (0, 0, 1000, 4),
            (0, 1, 100, 2),
            (0, 2, 998, 5),
            (0, 3, 40, 1),
            (0, 4, 997, 6),
            (1, 5, 1000, 0),
            (0, 1, 100, 3),
        ];
        let mut order = Order::default();
        for (priority, since, wait, place) in rows {
            let since = start + ms(since);
            order
                .join(Rank::new(priority, RequestClass::default(), since, since + ms(wait)), place);
        }
        assert_eq!(drained(&mut order, start), [0, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn an_overdue_queue_serves_the_newest_first_despite_deadlines() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let mut order = Order::default();
        for (since, wait) in [(0, 1000), (1, 5000), (2, 600), (3, 2000)] {
            let at = start + ms(since);
            order.join(Rank::new(0, RequestClass::default(), at, at + ms(wait)), since as u32);
        }
        let now = start + LATE + ms(10);
        assert_eq!(order.next_where(now, LATE, |_| true).map(|(_, next)| *next), Some(3));
        assert_eq!(order.pop_last(now, LATE), Some(0), "the oldest");
        assert_eq!(order.pop_last(start, LATE), Some(1), "the latest deadline");
        assert_eq!(order.oldest(), Some(start + ms(2)));
        assert_eq!(drained(&mut order, start), [2, 3]);
    }

    #[test]
    fn pop_last_removes_the_least_urgent_and_leave_works_once() {
        let start = Instant::now();
        let rank = |priority, ms| {
            let since = start + Duration::from_millis(ms);
            ranked(priority, RequestClass::default(), since)
        };
        let mut order = Order::default();
        let places = [(1, 0), (0, 1), (0, 2), (2, 3)];
        let places = places.map(|(priority, ms)| order.join(rank(priority, ms), ms));
        assert_eq!(order.leave(&places[3]), Some(3));
        assert_eq!(order.leave(&places[3]), None);
        assert_eq!(order.pop_last(moment(start, true), LATE), Some(1), "the oldest of the lowest");
        assert_eq!(order.pop_last(start, LATE), Some(2));
        assert_eq!((order.pop_last(start, LATE), order.pop_last(start, LATE)), (Some(0), None));
        assert_eq!(order.len(), 0);
    }

    #[test]
    fn next_where_skips_requests_that_do_not_match() {
        let start = Instant::now();
        let rank = ranked(0, RequestClass::default(), start);
        let mut order = Order::default();
        for number in 0..4 {
            order.join(rank, number);
        }
        let next = |newest_first| {
            order.next_where(moment(start, newest_first), LATE, |number| number % 3 > 0)
        };
        assert_eq!(next(false).map(|(_, number)| *number), Some(1));
        assert_eq!(next(true).map(|(_, number)| *number), Some(2));
    }

    #[test]
    fn the_newest_is_first_once_the_oldest_of_its_priority_is_late() {
        let start = Instant::now();
        let rank = |priority, since| ranked(priority, RequestClass::default(), since);
        let mut order = Order::default();
        let first = order.join(rank(0, start), 1);
        order.join(rank(0, start + LATE / 2), 2);
        order.join(rank(0, start + LATE * 3 / 4), 3);
        let next = |order: &Order<_>, now| *order.next_where(now, LATE, |_| true).unwrap().1;
        assert_eq!(next(&order, start + LATE - Duration::from_millis(1)), 1);
        assert_eq!(next(&order, start + LATE), 3);
        order.leave(&first);
        assert_eq!(next(&order, start + LATE), 2, "the one that was late is gone");
        order.join(rank(1, start + LATE), 4);
        order.join(rank(1, start + LATE), 5);
        assert_eq!(next(&order, start + LATE * 3 / 2), 4, "those above are in time");
    }
}
