//! Work of clients by the prefix of their addresses, by which the DNS level assigns resolvers.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use equipoise_basics::lock;
use equipoise_core::SourcePrefix;

/// One piece of work in so many is looked at, on average, and counts as so many.
pub(crate) const SAMPLE: u32 = 32;

/// Largest number of prefixes that a thread remembers between two readings. Further ones are not
/// counted: a busy prefix has been counted before.
const PREFIXES_MAX: usize = 4096;

/// Samples of picked backends by their clients' prefixes; nothing is counted before the first
/// reading.
#[derive(Debug)]
pub(crate) struct SourceSamples {
    wanted: AtomicBool,
    /// By thread.
    shards: Box<[Mutex<HashMap<SourcePrefix, u64>>]>,
}

impl SourceSamples {
    pub(crate) fn new(threads: usize) -> SourceSamples {
        let shards = (0..threads).map(|_| Mutex::default()).collect();
        SourceSamples { wanted: AtomicBool::new(false), shards }
    }

    /// Counts [`SAMPLE`] pieces of work of `client`.
    #[cold]
    pub(crate) fn count(&self, thread: usize, client: IpAddr) {
        if !self.wanted.load(Relaxed) {
            return;
        }
        let mut shard = lock(&self.shards[thread]);
        let (prefix, full) = (SourcePrefix::of(client), shard.len() >= PREFIXES_MAX);
        match shard.get_mut(&prefix) {
            Some(count) => *count += u64::from(SAMPLE),
            None if full => {}
            None => drop(shard.insert(prefix, SAMPLE.into())),
        }
    }

    /// The counts since the last reading, over all threads; the first reading starts the counting.
    pub(crate) fn take(&self) -> HashMap<SourcePrefix, u64> {
        self.wanted.store(true, Relaxed);
        let mut sums = HashMap::new();
        for shard in &self.shards {
            let counted = std::mem::take(&mut *lock(shard));
            for (prefix, count) in counted {
                *sums.entry(prefix).or_default() += count;
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_add_up_over_threads_from_the_first_taking_on() {
        let samples = SourceSamples::new(2);
        let client = |last: u8| IpAddr::from([192, 0, last / 100, last]);
        samples.count(0, client(1));
        assert!(samples.take().is_empty(), "nobody had asked");
        (0..2).for_each(|thread| samples.count(thread, client(1)));
        samples.count(1, client(2));
        samples.count(1, client(201));
        let taken = samples.take();
        let of = |last: u8| taken[&SourcePrefix::of(client(last))];
        assert_eq!((of(1), of(201), taken.len()), (96, 32, 2));
        assert!(samples.take().is_empty());
    }

    #[test]
    fn a_flood_of_prefixes_is_bounded() {
        let samples = SourceSamples::new(1);
        samples.take();
        for prefix in 0..100_000u32 {
            samples.count(0, std::net::Ipv4Addr::from(prefix << 8).into());
        }
        assert_eq!(samples.take().len(), PREFIXES_MAX);
    }
}
