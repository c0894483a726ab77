use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Expects the response time of one more request at a backend: the mean of response time over
/// requests in flight, times the number that would be in flight.
///
/// A busy backend divides its capacity among what it has in flight, so that this quotient is the
/// inverse of its throughput: it shows what other programs take from the backend, and moves little
/// when the number in flight does. Threads race on the mean harmlessly: a lost sample changes
/// nothing that matters.
#[derive(Debug, Default)]
pub struct ResponseByLoad {
    /// Bits of the mean in microseconds; zero before the first sample.
    mean_us: AtomicU64,
    at_us: AtomicU64,
}

/// Share of the newest sample in the mean.
const NEWEST: f64 = 0.02;
/// Microseconds after which a mean that got no sample counts `1 / e`, so that one slow answer does
/// not keep a backend without traffic for ever.
const DECAY_US: f64 = 4e6;

impl ResponseByLoad {
    /// Notes a response time. `in_flight` counts the request itself, `now_us` is a clock of
    /// microseconds.
    pub fn observe(&self, response_us: f64, in_flight: u32, now_us: u64) {
        let sample = response_us / f64::from(in_flight.max(1));
        let mean = f64::from_bits(self.mean_us.load(Relaxed));
        let mean = if mean > 0.0 { mean + NEWEST * (sample - mean) } else { sample };
        self.mean_us.store(mean.max(1e-3).to_bits(), Relaxed);
        self.at_us.store(now_us, Relaxed);
    }

    /// Microseconds that one more request is expected to take beside `in_flight` others; `None`
    /// before the first sample.
    pub fn expected_us(&self, in_flight: u32, now_us: u64) -> Option<f64> {
        let mean = f64::from_bits(self.mean_us.load(Relaxed));
        let age = now_us.saturating_sub(self.at_us.load(Relaxed)) as f64;
        (mean > 0.0).then(|| mean * (f64::from(in_flight) + 1.0) * (-age / DECAY_US).exp())
    }
}
