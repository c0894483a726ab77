//! Counters of the data plane: one shard per thread, summed by the reader.
//!
//! A shard has one writer, its thread, so adding is a load and a store: no locked instruction, no
//! shared cache line.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use equipoise_core::load::RequestClass;

use crate::Reason;

/// A count with one writer and any number of readers.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only the owning thread may call it.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Subtracts `n`, for gauges. Only the owning thread may call it.
    #[inline]
    pub fn sub(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_sub(n), Relaxed);
    }

    /// The value now.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Upper bounds of the histogram's buckets in microseconds; one more bucket takes the rest.
pub const BUCKETS_US: [u64; 20] = [
    100, 200, 400, 800, 1_500, 3_000, 6_000, 10_000, 20_000, 40_000, 80_000, 150_000, 300_000,
    600_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

/// A time histogram with fixed buckets.
#[derive(Debug, Default)]
pub struct Histogram {
    counts: [Counter; BUCKETS_US.len() + 1],
    sum_us: Counter,
}

impl Histogram {
    /// Counts one duration.
    #[inline]
    pub fn record(&self, value: Duration) {
        let us = value.as_micros() as u64;
        let bucket = BUCKETS_US.partition_point(|bound| *bound < us);
        self.counts[bucket].add(1);
        self.sum_us.add(us);
    }

    /// Adds this shard to a sum.
    pub fn add_to(&self, sum: &mut HistogramSum) {
        for (total, count) in sum.counts.iter_mut().zip(&self.counts) {
            *total += count.get();
        }
        sum.sum_us += self.sum_us.get();
    }
}

/// The sum of a histogram's shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramSum {
    /// Per bucket, not cumulative; the last holds what exceeds every bound.
    pub counts: [u64; BUCKETS_US.len() + 1],
    /// Microseconds in all.
    pub sum_us: u64,
}

/// Shards, one per data-plane thread.
#[derive(Debug)]
pub struct Sharded<T>(Box<[CachePadded<T>]>);

impl<T: Default> Sharded<T> {
    /// One shard for each of `threads` threads.
    pub fn new(threads: usize) -> Self {
        Sharded((0..threads).map(|_| CachePadded::new(T::default())).collect())
    }

    /// The shard of data-plane thread `index`.
    #[inline]
    pub fn shard(&self, index: usize) -> &T {
        &self.0[index]
    }

    /// Sums `of` over the shards.
    pub fn sum(&self, of: impl Fn(&T) -> u64) -> u64 {
        self.0.iter().map(|s| of(s)).fold(0, u64::wrapping_add)
    }

    /// Sums a histogram over the shards.
    pub fn histogram(&self, of: impl Fn(&T) -> &Histogram) -> HistogramSum {
        let mut sum = HistogramSum::default();
        self.0.iter().for_each(|s| of(s).add_to(&mut sum));
        sum
    }
}

/// A counter for each [`Reason`], by its number.
#[derive(Debug)]
pub struct ByReason([Counter; Reason::COUNT]);

impl Default for ByReason {
    fn default() -> ByReason {
        ByReason(std::array::from_fn(|_| Counter::default()))
    }
}

impl std::ops::Deref for ByReason {
    type Target = [Counter];
    fn deref(&self) -> &[Counter] {
        &self.0
    }
}

/// Counters of a front door.
#[derive(Debug, Default)]
pub struct FrontDoorStats {
    /// Connections accepted (TCP, HTTP) or client addresses seen (UDP).
    pub connections: Counter,
    /// Number of those that are open now.
    pub connections_open: Counter,
    /// Requests with a complete head (HTTP).
    pub requests: Counter,
    /// Requests being served now (HTTP).
    pub requests_in_flight: Counter,
    /// Responses by the first digit of their status: 1xx to 5xx (HTTP), our own error answers
    /// included.
    pub responses: [Counter; 5],
    /// From the end of the request's head to the last byte of the response (HTTP).
    pub request_time: Histogram,
    /// Bytes from clients.
    pub bytes_in: Counter,
    /// Bytes to clients.
    pub bytes_out: Counter,
    /// Tries on another backend or session.
    pub retries: Counter,
    /// Requests that were sent to a second backend, because the first response was late.
    pub hedges: Counter,
    /// Of those, requests with a response from the second.
    pub hedges_won: Counter,
    /// TLS handshakes that were completed.
    pub tls_handshakes: Counter,
    /// Of those, handshakes that resumed a session.
    pub tls_resumed: Counter,
    /// Number of pauses of accepting for lack of file descriptors or room.
    pub accept_pauses: Counter,
    /// Access-log lines given up because the log could not keep up.
    pub access_log_dropped: Counter,
    /// Access-log lines that could not be written. Of the first shard, and added to by the log's
    /// thread alone.
    pub access_log_unwritten: Counter,
    /// By [`Reason`].
    pub drops: ByReason,
    /// By class, where requests are dispatched.
    pub classes: [ClassStats; RequestClass::ALL.len()],
    /// Requests that a peer failed, and that this node served.
    pub returned: Counter,
    /// Requests that neither a healthy backend here nor a peer could serve, and that unhealthy
    /// backends were given.
    pub failed_open: Counter,
    /// Markers with an invalid signature.
    pub markers_refused: Counter,
}

/// Counters of one class of requests at a front door in node mode.
#[derive(Debug, Default)]
pub struct ClassStats {
    /// Requests that clients brought.
    pub arrived: Counter,
    /// Of those, requests that peers did, or failed for good.
    pub delegated: Counter,
    /// Of those, requests that peers were given, when they were given, but for those that came
    /// back: goes down then.
    pub given: Counter,
    /// Of those, requests that were refused because the whole cluster had too much to do.
    pub refused: Counter,
    /// Requests that peers brought.
    pub taken: Counter,
    /// Of those, requests that went back to the peer because there was no room here.
    pub handed_back: Counter,
    /// Bytes of requests and responses that were served here, and of tunnels that began with one.
    pub bytes: Counter,
}

/// Counters of a backend.
#[derive(Debug, Default)]
pub struct BackendStats {
    /// Requests (HTTP), connections (TCP) or client addresses (UDP) given to it.
    pub requests: Counter,
    /// Responses by the first digit of their status (HTTP).
    pub responses: [Counter; 5],
    /// Failures by [`Reason`], of those that blame the backend.
    pub failures: ByReason,
    /// From a request sent to its response complete (HTTP).
    pub response_time: Histogram,
    /// Microseconds for which those requests held permits: without the time for which the backend
    /// waited for a client.
    pub permit_time_us: Counter,
    /// Microseconds that requests had waited in the pool's queue before they were given to it.
    pub queue_wait_us: Counter,
    /// Upstream sessions opened.
    pub sessions_opened: Counter,
    /// Of those, complete TLS handshakes.
    pub tls_handshakes: Counter,
    /// Of those, resumed TLS sessions.
    pub tls_resumed: Counter,
    /// Requests that went over a session already open.
    pub sessions_reused: Counter,
    /// Responses that could not be framed beyond doubt, and times that bytes came that no request
    /// was due (HTTP, multiplexed pools).
    pub multiplex_faults: Counter,
    /// Requests that were put on a shared session (HTTP, multiplexed pools).
    pub multiplex_shared: Counter,
    /// Requests that could share a session and got one of their own: their path has late or large
    /// responses, or all sessions were as full as the share of late responses permits.
    pub multiplex_alone: Counter,
    /// Shared sessions that a late or large response got for itself.
    pub multiplex_handed_over: Counter,
    /// Requests that were sent again because a late or large response was before them, or their
    /// shared session ended before their turn.
    pub multiplex_repeated: Counter,
    /// Upstream sessions open now, idle ones included.
    pub sessions_open: Counter,
    /// Bytes sent to it.
    pub bytes_out: Counter,
    /// Bytes received from it.
    pub bytes_in: Counter,
}

/// Writes `status` (100..=599) into a by-class array.
pub fn count_status(classes: &[Counter; 5], status: u16) {
    let class = (status / 100).clamp(1, 5) as usize - 1;
    classes[class].add(1);
}
