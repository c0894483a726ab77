use std::hash::{BuildHasher, Hash, RandomState};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Slots in which a key may be.
const WAYS: usize = 8;

/// A number of events in a time, of which some may come at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Events.
    pub count: NonZeroU32,
    /// In this time.
    pub per: Duration,
    /// How many may come at once after a rest.
    pub burst: NonZeroU32,
}

impl Rate {
    /// The time in which one more event becomes possible; at least a nanosecond.
    pub fn interval(&self) -> Duration {
        (self.per / self.count.get()).max(Duration::from_nanos(1))
    }
}

/// Bounds the rate of events of each key, with no lock.
///
/// # Source
/// The generic cell rate algorithm (ITU-T I.371): a key's only state is the time at which it would
/// be at rest again. A key at rest needs no slot, so that slots are reused without loss. If all
/// slots in which a new key may be belong to keys that are not at rest, the one nearest to rest
/// loses its state, and may send a burst again ([`KeyedRate::forgotten`] counts it).
#[derive(Debug)]
pub struct KeyedRate {
    /// Interval and depth with the whole rate.
    whole: (u64, u64),
    interval: AtomicU64,
    /// Time to rest of a key that has used its burst.
    depth: AtomicU64,
    hasher: RandomState,
    began: Instant,
    slots: Box<[Slot]>,
    forgotten: AtomicU64,
}

#[derive(Debug, Default)]
struct Slot {
    /// The hash of the key; 0: free.
    key: AtomicU64,
    /// When the key is at rest, in nanoseconds since `began`.
    rest_at: AtomicU64,
}

impl KeyedRate {
    /// A limit for about `keys` keys that are not at rest, of 16 bytes each; `began` is not after
    /// any later time.
    pub fn new(rate: Rate, keys: usize, began: Instant) -> KeyedRate {
        let interval = nanoseconds(rate.interval());
        let slots = keys.max(1).next_multiple_of(WAYS);
        let depth = interval.saturating_mul(u64::from(rate.burst.get()));
        KeyedRate {
            whole: (interval, depth),
            interval: AtomicU64::new(interval),
            depth: AtomicU64::new(depth),
            hasher: RandomState::new(),
            began,
            slots: (0..slots).map(|_| Slot::default()).collect(),
            forgotten: AtomicU64::new(0),
        }
    }

    /// Counts an event of `key` at `now`.
    ///
    /// # Errors
    /// The key is over its rate: how long until its next event is within.
    pub fn take<K: Hash + ?Sized>(&self, key: &K, now: Instant) -> Result<(), Duration> {
        let hash = self.hasher.hash_one(key).max(1);
        let now = nanoseconds(now.saturating_duration_since(self.began));
        let set = self.set(hash);
        let slot = match set.iter().find(|slot| slot.key.load(Relaxed) == hash) {
            Some(slot) => slot,
            None => self.give_slot(set, hash, now),
        };
        let mut rest_at = slot.rest_at.load(Relaxed);
        loop {
            let (next, over) = self.after_one(rest_at, now);
            if over > 0 {
                let latest = now.saturating_add(self.depth.load(Relaxed));
                if rest_at > latest {
                    // It used a smaller share. If this fails, another thread has done the same.
                    let _ = slot.rest_at.compare_exchange(rest_at, latest, Relaxed, Relaxed);
                }
                return Err(Duration::from_nanos(over));
            }
            match slot.rest_at.compare_exchange_weak(rest_at, next, Relaxed, Relaxed) {
                Ok(_) => return Ok(()),
                Err(newer) => rest_at = newer,
            }
        }
    }

    /// The time until an event of `key` is within its rate; zero: it is now. Counts nothing.
    pub fn wait<K: Hash + ?Sized>(&self, key: &K, now: Instant) -> Duration {
        let hash = self.hasher.hash_one(key).max(1);
        let now = nanoseconds(now.saturating_duration_since(self.began));
        let slot = self.set(hash).iter().find(|slot| slot.key.load(Relaxed) == hash);
        let rest_at = slot.map_or(now, |slot| slot.rest_at.load(Relaxed));
        Duration::from_nanos(self.after_one(rest_at, now).1)
    }

    /// When a key that would be at rest at `rest_at` is at rest after one more event, and by how
    /// much the event exceeds the burst.
    fn after_one(&self, rest_at: u64, now: u64) -> (u64, u64) {
        let (interval, depth) = (self.interval.load(Relaxed), self.depth.load(Relaxed));
        // A key that used a smaller share is not later at rest than one that used its burst.
        let rest_at = rest_at.clamp(now, now.saturating_add(depth));
        let next = rest_at.saturating_add(interval);
        (next, (next - now).saturating_sub(depth))
    }

    /// Admits this part of the rate and of the burst from now on, and at least one event at once.
    /// A millionth to 1; other nodes admit the rest.
    pub fn set_share(&self, share: f64) {
        let (interval, depth) = self.whole;
        let interval = (interval as f64 / share.clamp(1e-6, 1.0)) as u64;
        self.interval.store(interval, Relaxed);
        self.depth.store(depth.max(interval), Relaxed);
    }

    /// Keys that lost their state for want of room.
    pub fn forgotten(&self) -> u64 {
        self.forgotten.load(Relaxed)
    }

    fn set(&self, hash: u64) -> &[Slot] {
        let sets = (self.slots.len() / WAYS) as u64;
        // The upper bits of the product are spread evenly over the sets.
        let set = ((u128::from(hash) * u128::from(sets)) >> 64) as usize;
        &self.slots[set * WAYS..][..WAYS]
    }

    /// A slot for a new key: the one that is at rest for the longest, or nearest to it. Two threads
    /// that do this at once may give one key two slots, the second of which is not found again.
    fn give_slot<'s>(&self, set: &'s [Slot], hash: u64, now: u64) -> &'s Slot {
        let mut slot = &set[0];
        for other in &set[1..] {
            if other.rest_at.load(Relaxed) < slot.rest_at.load(Relaxed) {
                slot = other;
            }
        }
        if slot.rest_at.load(Relaxed) > now {
            self.forgotten.fetch_add(1, Relaxed);
        }
        slot.key.store(hash, Relaxed);
        slot.rest_at.store(now, Relaxed);
        slot
    }
}

/// Up to 584 years.
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::thread;

    const SECOND: Duration = Duration::from_secs(1);

    fn rate(count: u32, per: Duration, burst: u32) -> Rate {
        let number = |n| NonZeroU32::new(n).expect("not zero");
        Rate { count: number(count), per, burst: number(burst) }
    }

    #[test]
    fn a_key_has_its_burst_and_then_its_rate() {
        let began = Instant::now();
        let limit = KeyedRate::new(rate(10, SECOND, 3), 1000, began);
        let at = |ms| began + Duration::from_millis(ms);
        for _ in 0..3 {
            assert_eq!(limit.take("a", at(0)), Ok(()));
        }
        assert_eq!(limit.take("a", at(0)), Err(Duration::from_millis(100)));
        assert_eq!(limit.take("a", at(30)), Err(Duration::from_millis(70)));
        // Another key has its own.
        assert_eq!(limit.take("b", at(30)), Ok(()));
        assert_eq!(limit.take("a", at(100)), Ok(()));
        assert!(limit.take("a", at(100)).is_err());
        // A refused event costs nothing, and the burst is whole again after a rest.
        for _ in 0..3 {
            assert_eq!(limit.take("a", at(500)), Ok(()));
        }
        assert!(limit.take("a", at(500)).is_err());
    }

    #[test]
    fn a_question_about_the_wait_counts_nothing() {
        let began = Instant::now();
        let limit = KeyedRate::new(rate(10, SECOND, 1), 1000, began);
        assert_eq!(limit.wait("a", began), Duration::ZERO);
        assert_eq!(limit.wait("a", began), Duration::ZERO);
        assert_eq!(limit.take("a", began), Ok(()));
        let wait = limit.wait("a", began);
        assert_eq!(limit.take("a", began), Err(wait));
        assert_eq!((wait, limit.wait("b", began)), (Duration::from_millis(100), Duration::ZERO));
    }

    #[test]
    fn a_share_admits_a_part_of_rate_and_burst() {
        let began = Instant::now();
        let limit = KeyedRate::new(rate(100, SECOND, 20), 10, began);
        let admitted = |limit: &KeyedRate, from: u64, to: u64| {
            (from..to)
                .filter(|ms| limit.take("a", began + Duration::from_millis(*ms)).is_ok())
                .count()
        };
        limit.set_share(0.25);
        // A quarter of the burst and of the rate.
        assert!((28..=31).contains(&admitted(&limit, 0, 1000)));
        assert!((249..=251).contains(&admitted(&limit, 1000, 11_000)));
        limit.set_share(1.0);
        let whole = admitted(&limit, 11_000, 21_000);
        assert!((999..=1020).contains(&whole), "{whole}");
        limit.set_share(0.0);
        // An event under a tiny share does not delay those under a larger one.
        assert_eq!(admitted(&limit, 21_000, 30_000), 1);
        limit.set_share(0.1);
        let tenth = admitted(&limit, 30_000, 41_000);
        assert!((100..=112).contains(&tenth), "{tenth}");
    }

    #[test]
    fn keys_at_rest_make_room_and_beyond_it_the_one_nearest_to_rest_is_forgotten() {
        let began = Instant::now();
        let limit = KeyedRate::new(rate(1, SECOND, 1), WAYS, began);
        for key in 0..WAYS {
            assert_eq!(limit.take(&key, began + Duration::from_millis(key as u64)), Ok(()));
        }
        assert_eq!(limit.forgotten(), 0);
        let later = began + Duration::from_millis(900);
        assert_eq!(limit.take("new", later), Ok(()));
        assert_eq!(limit.forgotten(), 1);
        assert!((1..WAYS).all(|key| limit.take(&key, later).is_err()));
        let rested = began + 10 * SECOND;
        for key in 0..WAYS {
            assert_eq!(limit.take(&(100 + key), rested), Ok(()));
        }
        assert_eq!(limit.forgotten(), 1);
    }

    #[test]
    fn threads_together_get_the_rate_of_one() {
        let began = Instant::now();
        let limit = KeyedRate::new(rate(1, 100 * SECOND, 1000), 100, began);
        // The slot is there before the threads begin.
        limit.take("a", began).expect("the first");
        let taken = thread::scope(|scope| {
            let count = || (0..1000).filter(|_| limit.take("a", began).is_ok()).count();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum::<usize>()
        });
        assert_eq!(taken, 999);
    }

    proptest! {
        #[test]
        fn no_window_has_more_than_its_rate_and_the_burst(
            count in 1..100_u32,
            burst in 1..20_u32,
            gaps in prop::collection::vec(0..50_u64, 1..300),
        ) {
            let began = Instant::now();
            let limit = KeyedRate::new(rate(count, SECOND, burst), 10, began);
            let mut now = began;
            let mut taken = Vec::new();
            for gap in gaps {
                now += Duration::from_millis(gap);
                match limit.take("a", now) {
                    Ok(()) => taken.push(now),
                    // It is within its rate when the wait is over, and not before.
                    Err(wait) => {
                        prop_assert!(wait <= rate(count, SECOND, burst).interval());
                        prop_assert!(limit.take("a", now + wait - Duration::from_nanos(1)).is_err());
                    }
                }
            }
            for (at, first) in taken.iter().enumerate() {
                for (n, last) in taken[at..].iter().enumerate() {
                    let allowed = f64::from(burst) + (*last - *first).as_secs_f64() * f64::from(count);
                    prop_assert!((n + 1) as f64 <= allowed + 1e-3, "{} in {:?}", n + 1, *last - *first);
                }
            }
        }
    }
}
