use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use equipoise_core::ServiceTime;
use equipoise_core::concurrency::{Region, Report, Tally};

use crate::backend_tls::BackendTls;
use crate::config::Concurrency;
use crate::learning::Learning;
use crate::lent::LentSessions;
use crate::peer_room::PeerRoom;
use crate::permits::{Permits, Work};
use crate::stats::{BackendStats, Sharded};
use crate::wrong_protocol::WrongProtocol;

/// The state of a backend in use. All threads share it, and it survives snapshots as long as the
/// pool keeps the address.
#[derive(Debug)]
pub struct BackendLive {
    pub(crate) permits: Permits,
    /// For a peer: the time of its last report of room.
    pub(crate) room: PeerRoom,
    pub(crate) learning: Learning,
    /// The name of its pool, for messages.
    pool: OnceLock<Box<str>>,
    pub(crate) wrong_protocol: WrongProtocol,
    /// TLS to it, if its pool has any.
    pub tls: BackendTls,
    /// Failures in a row that the backend caused. A success sets it to zero.
    pub failures_in_row: AtomicU32,
    /// Set when the backend was set down or removed by force: its work must be cut.
    pub cut: AtomicBool,
    /// Set while active checks find the backend unhealthy.
    pub unhealthy: AtomicBool,
    /// Set when a response could not be framed beyond doubt, or when unsolicited bytes came. Each
    /// session to the backend then carries one request at a time, until an operator sets the
    /// backend up again.
    multiplexing_lost: AtomicBool,
    /// Idle sessions that threads lend each other.
    pub(crate) lent: LentSessions,
    /// Counters, one shard per data-plane thread.
    pub stats: Sharded<BackendStats>,
    response: PeakEwma,
    service_time: ServiceTime,
    failures: Decayed,
}

impl BackendLive {
    /// A backend without a history.
    pub fn new(threads: usize) -> Arc<BackendLive> {
        Arc::new(BackendLive {
            permits: Permits::new(),
            room: PeerRoom::new(),
            learning: Learning::default(),
            pool: OnceLock::new(),
            wrong_protocol: WrongProtocol::default(),
            tls: BackendTls::default(),
            failures_in_row: AtomicU32::new(0),
            cut: AtomicBool::new(false),
            unhealthy: AtomicBool::new(false),
            multiplexing_lost: AtomicBool::new(false),
            lent: LentSessions::default(),
            stats: Sharded::new(threads),
            response: PeakEwma::default(),
            service_time: ServiceTime::default(),
            failures: Decayed::default(),
        })
    }

    /// Sets the name of its pool, which never changes.
    pub(crate) fn belongs_to(&self, pool: &str) {
        let _ = self.pool.set(pool.into());
    }

    /// The backend's name in messages: with the pool's, such as `web/b1`.
    pub(crate) fn label(&self, backend: &str) -> String {
        self.pool.get().map_or_else(|| backend.into(), |pool| format!("{pool}/{backend}"))
    }

    /// Requests (HTTP), connections (TCP) or client addresses (UDP) in flight, over all threads.
    pub fn in_flight(&self) -> u32 {
        self.permits.in_flight()
    }

    /// Number of those in flight that hold a permit. Tunnels, and requests of slow clients, do not.
    pub fn permits_held(&self) -> u32 {
        self.permits.held()
    }

    /// Number of free permits for all but light requests; `None` without a limit.
    pub fn permits_free(&self) -> Option<u32> {
        self.permits.free()
    }

    /// The concurrency limit; `None` if there is none.
    pub fn limit(&self) -> Option<u32> {
        self.permits.limit()
    }

    /// The limit that the configuration states, or the one that was learnt; `None`: there is none,
    /// or it is the room of a peer.
    pub(crate) fn own_limit(&self) -> Option<u32> {
        self.limit().filter(|_| !self.room.is_known())
    }

    /// Sets the source of the concurrency limit. Requests wait in the pool's queue for at most
    /// `wait`.
    ///
    /// After an increase the caller must call [`Queue::look`](crate::Queue::look) of the pool. A
    /// limit that is learnt already stays as it is.
    pub fn set_concurrency(&self, concurrency: Concurrency, wait: Duration) {
        match concurrency {
            // A peer's room is its limit, and a peer has no configured one.
            Concurrency::None if self.room.is_known() => {}
            Concurrency::None => self.set_limit(None),
            Concurrency::Fixed(limit) => self.set_limit(Some(limit)),
            Concurrency::Learnt => self.learning.turn_on(wait, |limit| {
                self.permits.set_learned(at_least_one(limit));
            }),
        }
    }

    /// Sets a configured concurrency limit, over all threads. After an increase the caller must
    /// call [`Queue::look`](crate::Queue::look) of the pool.
    pub fn set_limit(&self, limit: Option<NonZeroU32>) {
        self.learning.turn_off(|| self.permits.set_limit(limit));
    }

    /// Sets a learnt limit. Returns true if it is higher than before.
    pub(crate) fn publish_learned(&self, limit: u32) -> bool {
        let before = self.permits.limit();
        if before != Some(limit) {
            self.permits.set_learned(at_least_one(limit));
        }
        before.is_some_and(|before| limit > before)
    }

    /// True if the concurrency limit is the initial one of learning, which says nothing about the
    /// backend.
    pub fn is_limit_guess(&self) -> bool {
        self.learning.is_guess()
    }

    /// The number in flight at which the backend serves most, learnt or configured; before that,
    /// the initial limit of learning. `None` without a limit.
    ///
    /// A learnt limit is somewhat above that number, and far above it for a fast backend, so the
    /// limit does not show how full the backend is.
    pub fn best_in_flight(&self) -> Option<f64> {
        let knee = || self.learned().and_then(|learned| learned.knee);
        knee().or_else(|| self.limit().map(f64::from))
    }

    /// The learnt state; `None` if its limit is not learnt, or it has had no work yet.
    pub fn learned(&self) -> Option<Report> {
        self.learning.report()
    }

    /// Where it works; `None` without a limit, and for a learnt one before it has had work.
    pub fn region(&self) -> Option<Region> {
        if self.learning.is_on() {
            return self.learned().map(|learned| learned.region);
        }
        // A peer's limit is its free room, which is no statement about its best number.
        let limit = self.limit().filter(|_| !self.room.is_known())?;
        Some(Region::of_stated(self.permits.held_for(Work::Usual), limit))
    }

    /// The tally with which the balancers of a cluster share its learnt limit; `None` if the limit
    /// is not learnt, or it has had no work recently. The caller sets [`Tally::balancer`].
    pub fn tally(&self) -> Option<Tally> {
        self.learning.tally()
    }

    /// Whether its limit is learnt and it has had work recently.
    pub fn is_learning(&self) -> bool {
        self.learning.is_under_way()
    }

    /// Takes the newest tallies of the other balancers of this backend. Without any, its limit is
    /// learnt alone. Must be called about once a second. `own` is the cluster's number of this
    /// balancer.
    pub fn hear_balancers(&self, own: u64, others: Vec<Tally>) {
        self.learning.hear(own, others);
    }

    /// Sets the room of a peer's last report, unless a response of it is newer. The caller must
    /// then call [`Queue::look`](crate::Queue::look) of the pool that delegates requests to it.
    pub fn set_reported_room(&self, free: u32) {
        if self.room.is_old(Instant::now()) {
            self.permits.set_free(free, 0);
        }
    }

    /// Counts a framing fault of the backend, after which it is not multiplexed. `thread` is the
    /// caller's.
    pub fn lose_multiplexing(&self, thread: usize) {
        self.stats.shard(thread).multiplex_faults.add(1);
        self.multiplexing_lost.store(true, Relaxed);
    }

    /// Allows multiplexing of the backend again, in a multiplexed pool.
    pub fn restore_multiplexing(&self) {
        self.multiplexing_lost.store(false, Relaxed);
    }

    /// True if each session to the backend carries one request at a time.
    pub fn is_multiplexing_lost(&self) -> bool {
        self.multiplexing_lost.load(Relaxed)
    }

    /// Records a response time.
    pub fn responded(&self, took: Duration, now: Instant, epoch: Instant) {
        let (took_us, now_us) = (took.as_micros() as f64, us_since(epoch, now));
        self.response.observe(took_us, now_us);
        self.service_time.observe(took_us, self.in_flight(), now_us);
    }

    /// Records a failure that the backend caused. Returns the number of failures in a row.
    pub fn failed(&self, now: Instant, epoch: Instant) -> u32 {
        self.failures.add(us_since(epoch, now));
        self.failures_in_row.fetch_add(1, Relaxed) + 1
    }

    /// Records a failure of the application (5xx). Schedulers avoid the backend for a while, but it
    /// does not count as a failure in a row.
    pub fn failed_answer(&self, now: Instant, epoch: Instant) {
        self.failures.add(us_since(epoch, now));
    }

    /// True if it has ever failed. Cheaper than [`BackendLive::recent_failures`].
    pub fn has_failed(&self) -> bool {
        self.failures.value_bits.load(Relaxed) != 0
    }

    /// Records a success, which ends a row of failures.
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

/// A learnt limit, at least 1. With 0 the backend would have no limit at all.
fn at_least_one(limit: u32) -> NonZeroU32 {
    NonZeroU32::new(limit).unwrap_or(NonZeroU32::MIN)
}

fn us_since(epoch: Instant, now: Instant) -> u64 {
    now.saturating_duration_since(epoch).as_micros() as u64
}

/// The decay time of both averages.
const TAU_US: f64 = 10_000_000.0;

/// A mean of response times that rises at once and falls slowly. It decays while no request is
/// sent, so that one slow response does not starve a backend for ever.
///
/// # Source
/// Finagle's `PeakEwma` load balancer; linkerd2-proxy `linkerd/ewma`. Threads race on it, because a
/// lost sample does not matter.
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
