use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use equipoise_core::ServiceTime;
use equipoise_core::concurrency::{Report, Tally};

use crate::config::Concurrency;
use crate::dispatch::PeerRoom;
use crate::learning::Learning;
use crate::permits::Permits;
use crate::stats::{BackendStats, Sharded};

/// What is known of a backend while it is used: shared by all threads, kept across snapshots for as
/// long as the pool keeps that address.
#[derive(Debug)]
pub struct BackendLive {
    pub(crate) permits: Permits,
    /// Of a peer: when its room was announced.
    pub(crate) room: PeerRoom,
    pub(crate) learning: Learning,
    /// Failures in a row that blame the backend; a success sets it to zero.
    pub failures_in_row: AtomicU32,
    /// Set when the backend was set down or force-removed: what it has is to be cut.
    pub cut: AtomicBool,
    /// Set while active checks find the backend unhealthy.
    pub unhealthy: AtomicBool,
    /// Set when a response could not be framed beyond doubt, or bytes came that no request was due: each session to the
    /// backend carries one request alone, until an operator sets it up again.
    multiplexing_lost: AtomicBool,
    /// Counters, one shard per data-plane thread.
    pub stats: Sharded<BackendStats>,
    response: PeakEwma,
    service_time: ServiceTime,
    failures: Decayed,
}

impl BackendLive {
    /// A backend that nothing is known of yet.
    pub fn new(threads: usize) -> Arc<BackendLive> {
        Arc::new(BackendLive {
            permits: Permits::new(),
            room: PeerRoom::new(),
            learning: Learning::default(),
            failures_in_row: AtomicU32::new(0),
            cut: AtomicBool::new(false),
            unhealthy: AtomicBool::new(false),
            multiplexing_lost: AtomicBool::new(false),
            stats: Sharded::new(threads),
            response: PeakEwma::default(),
            service_time: ServiceTime::default(),
            failures: Decayed::default(),
        })
    }

    /// Requests (HTTP), connections (TCP) or client addresses (UDP) in flight, over all threads.
    pub fn in_flight(&self) -> u32 {
        self.permits.in_flight()
    }

    /// Those in flight that hold a permit. Tunnels, and requests whose clients read or send slowly, do not.
    pub fn permits_held(&self) -> u32 {
        self.permits.held()
    }

    /// Permits that are free for all but light requests; `None` without a limit.
    pub fn permits_free(&self) -> Option<u32> {
        self.permits.free()
    }

    /// The concurrency limit; `None` if there is none.
    pub fn limit(&self) -> Option<u32> {
        self.permits.limit()
    }

    /// Sets how the concurrency limit is found; requests wait in the pool's queue for at most `wait`.
    ///
    /// [`Queue::look`](crate::Queue::look) of the pool has to follow a higher limit. A limit that is learned already
    /// stays as it is.
    pub fn set_concurrency(&self, concurrency: Concurrency, wait: Duration) {
        match concurrency {
            // A peer's room is its limit, and a peer has no stated one.
            Concurrency::None if self.room.is_known() => {}
            Concurrency::None => self.set_limit(None),
            Concurrency::Fixed(limit) => self.set_limit(Some(limit)),
            Concurrency::Learnt => self.learning.turn_on(wait, |limit| {
                self.permits.set_learned(at_least_one(limit));
            }),
        }
    }

    /// Sets a concurrency limit that is stated, over all threads. [`Queue::look`](crate::Queue::look) of the pool has to
    /// follow one that is higher.
    pub fn set_limit(&self, limit: Option<NonZeroU32>) {
        self.learning.turn_off(|| self.permits.set_limit(limit));
    }

    /// Sets a limit that was learned; true if it is higher than before.
    pub(crate) fn publish_learned(&self, limit: u32) -> bool {
        let before = self.permits.limit();
        if before != Some(limit) {
            self.permits.set_learned(at_least_one(limit));
        }
        before.is_some_and(|before| limit > before)
    }

    /// Whether the concurrency limit is the one that learning begins with, which says nothing about the backend.
    pub fn is_limit_guess(&self) -> bool {
        self.learning.is_guess()
    }

    /// The number in flight at which it serves most, as was learned or stated; before that, the
    /// limit that learning begins with. `None` without a limit.
    ///
    /// A learned limit is somewhat above that number, and far above it at a fast backend, so that
    /// it does not say how full the backend is.
    pub fn best_in_flight(&self) -> Option<f64> {
        let knee = || self.learned().and_then(|learned| learned.knee);
        knee().or_else(|| self.limit().map(f64::from))
    }

    /// What was learned of its concurrency; `None` if its limit is not learned, or it has had no work yet.
    pub fn learned(&self) -> Option<Report> {
        self.learning.report()
    }

    /// The tally with which other balancers of a cluster share its learned limit; `None` if that is
    /// not learned, or it has had no work lately. [`Tally::balancer`] is for the caller to set.
    pub fn tally(&self) -> Option<Tally> {
        self.learning.tally()
    }

    /// Takes the newest tallies of the other balancers before this backend, none if there are none:
    /// then its limit is learned alone. Call it about once a second. `own` is the number by which
    /// the others know this balancer.
    pub fn hear_balancers(&self, own: u64, others: Vec<Tally>) {
        self.learning.hear(own, others);
    }

    /// Uses the room that a peer has by its last report, unless a response from it is newer.
    /// [`Queue::look`](crate::Queue::look) of the pool whose requests it may do has to follow.
    pub fn set_reported_room(&self, free: u32) {
        if self.room.is_old(Instant::now()) {
            self.permits.set_free(free, 0);
        }
    }

    /// Counts a fault of the backend's framing, after which it is not multiplexed. `thread` is the caller's.
    pub fn lose_multiplexing(&self, thread: usize) {
        self.stats.shard(thread).multiplex_faults.add(1);
        self.multiplexing_lost.store(true, Relaxed);
    }

    /// Lets a multiplexed pool multiplex the backend again.
    pub fn restore_multiplexing(&self) {
        self.multiplexing_lost.store(false, Relaxed);
    }

    /// Whether each session to the backend carries one request alone.
    pub fn is_multiplexing_lost(&self) -> bool {
        self.multiplexing_lost.load(Relaxed)
    }

    /// Notes a response time.
    pub fn responded(&self, took: Duration, now: Instant, epoch: Instant) {
        let (took_us, now_us) = (took.as_micros() as f64, us_since(epoch, now));
        self.response.observe(took_us, now_us);
        self.service_time.observe(took_us, self.in_flight(), now_us);
    }

    /// Notes a failure that blames the backend; returns how many there were in a row.
    pub fn failed(&self, now: Instant, epoch: Instant) -> u32 {
        self.failures.add(us_since(epoch, now));
        self.failures_in_row.fetch_add(1, Relaxed) + 1
    }

    /// Notes a response that is a failure of the application (5xx): schedulers avoid the backend for a while, but no row begins.
    pub fn failed_answer(&self, now: Instant, epoch: Instant) {
        self.failures.add(us_since(epoch, now));
    }

    /// Whether it has ever failed; cheaper than [`BackendLive::recent_failures`].
    pub fn has_failed(&self) -> bool {
        self.failures.value_bits.load(Relaxed) != 0
    }

    /// Notes a success: the row of failures ends.
    #[inline]
    pub fn succeeded(&self) {
        if self.failures_in_row.load(Relaxed) != 0 {
            self.failures_in_row.store(0, Relaxed);
        }
    }

    /// Peak-EWMA response time in microseconds; see [`equipoise_core::Loads::response_us`].
    pub fn response_us(&self, now: Instant, epoch: Instant) -> Option<f64> {
        self.response.read(us_since(epoch, now))
    }

    /// Service time in microseconds; see [`equipoise_core::Loads::service_us`].
    pub fn service_us(&self, now: Instant, epoch: Instant) -> Option<f64> {
        self.service_time.estimate_us(us_since(epoch, now))
    }

    /// Decayed failures; see [`equipoise_core::Loads::recent_failures`].
    pub fn recent_failures(&self, now: Instant, epoch: Instant) -> u32 {
        self.failures.read(us_since(epoch, now))
    }
}

/// A learned limit, which is never 0. Were it 0 by a fault, the backend would otherwise have no limit at all.
fn at_least_one(limit: u32) -> NonZeroU32 {
    NonZeroU32::new(limit).unwrap_or(NonZeroU32::MIN)
}

fn us_since(epoch: Instant, now: Instant) -> u64 {
    now.saturating_duration_since(epoch).as_micros() as u64
}

/// The decay time of both averages.
const TAU_US: f64 = 10_000_000.0;

/// A response-time average that jumps up at once and comes down slowly, and decays while nothing is
/// sent, so that one slow answer does not starve a backend for ever.
///
/// # Source
/// Finagle's `PeakEwma` load balancer; linkerd2-proxy `linkerd/ewma`. Threads race on it harmlessly: a
/// lost sample changes nothing that matters.
#[derive(Debug, Default)]
struct PeakEwma {
    value_bits: AtomicU64,
    stamp_us: AtomicU64,
}

impl PeakEwma {
    fn observe(&self, sample_us: f64, now_us: u64) {
        let value = match self.read(now_us) {
            Some(old) if sample_us < old => {
                let age = now_us.saturating_sub(self.stamp_us.load(Relaxed)) as f64;
                let keep = (-age / TAU_US).exp();
                f64::from_bits(self.value_bits.load(Relaxed)) * keep + sample_us * (1.0 - keep)
            }
            _ => sample_us,
        };
        self.value_bits.store(value.max(1.0).to_bits(), Relaxed);
        self.stamp_us.store(now_us, Relaxed);
    }

    fn read(&self, now_us: u64) -> Option<f64> {
        let value = f64::from_bits(self.value_bits.load(Relaxed));
        if value == 0.0 {
            return None;
        }
        let age = now_us.saturating_sub(self.stamp_us.load(Relaxed)) as f64;
        Some(value * (-age / TAU_US).exp())
    }
}

/// A count that halves about every seven seconds.
#[derive(Debug, Default)]
struct Decayed {
    value_bits: AtomicU64,
    stamp_us: AtomicU64,
}

impl Decayed {
    fn add(&self, now_us: u64) {
        let value = self.now(now_us) + 1.0;
        self.value_bits.store(value.to_bits(), Relaxed);
        self.stamp_us.store(now_us, Relaxed);
    }

    fn read(&self, now_us: u64) -> u32 {
        self.now(now_us).round() as u32
    }

    fn now(&self, now_us: u64) -> f64 {
        let value = f64::from_bits(self.value_bits.load(Relaxed));
        if value == 0.0 {
            return 0.0;
        }
        let age = now_us.saturating_sub(self.stamp_us.load(Relaxed)) as f64;
        value * (-age / TAU_US).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_time_is_the_response_time_over_the_number_in_flight() {
        let live = BackendLive::new(1);
        let epoch = Instant::now();
        assert_eq!(live.service_us(epoch, epoch), None);
        for _ in 0..4 {
            live.permits.begin_without();
        }
        live.responded(Duration::from_millis(8), epoch, epoch);
        assert_eq!(live.service_us(epoch, epoch), Some(2_000.0));
        for _ in 0..4 {
            live.permits.release(None);
        }
        assert_eq!(live.service_us(epoch, epoch), Some(2_000.0), "idle, it is as fast");
    }
}
