use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Estimates the service time of a backend, which is the inverse of its throughput while it is
/// busy, in microseconds per request.
///
/// By Little's law this is the mean response time over the mean number in flight. Each response is
/// weighted by the number in flight, because a backend with several cores is not busy with one
/// request. The estimate shows the capacity that other programs leave, and changes little when the
/// number in flight does.
///
/// Threads race on the estimate. A lost response does not matter.
#[derive(Debug, Default)]
pub struct ServiceTime {
    /// [`Means`] as two f32; zero before the first response.
    means: AtomicU64,
    at_us: AtomicU64,
}

/// Weight of the newest response.
const NEWEST: f64 = 0.02;
/// Microseconds without a response after which earlier responses have weight `1 / e`. So one slow
/// response does not keep traffic away from a backend for ever.
const DECAY_US: f64 = 4e6;
/// Least estimate.
const SERVICE_US_MIN: f64 = 1e-3;

#[derive(Clone, Copy)]
struct Means {
    /// Mean of the squared number in flight.
    in_flight: f64,
    /// Mean of microseconds times the number in flight.
    response: f64,
}

impl ServiceTime {
    /// Records a response time. `in_flight` includes the request itself; `now_us` is a clock in
    /// microseconds.
    pub fn observe(&self, response_us: f64, in_flight: u32, now_us: u64) {
        let in_flight = f64::from(in_flight.max(1));
        let newest = Means {
            in_flight: in_flight * in_flight,
            response: (in_flight * response_us).max(SERVICE_US_MIN),
        };
        let means = match self.means() {
            Some(means) => means.and(newest, 1.0 - (1.0 - NEWEST) * self.kept(now_us)),
            None => newest,
        };
        self.means.store(means.packed(), Relaxed);
        self.at_us.store(now_us, Relaxed);
    }

    /// The estimate in microseconds; `None` before the first response.
    pub fn estimate_us(&self, now_us: u64) -> Option<f64> {
        let means = self.means()?;
        Some((means.response / means.in_flight * self.kept(now_us)).max(SERVICE_US_MIN))
    }

    /// The weight of the past now.
    fn kept(&self, now_us: u64) -> f64 {
        let age = now_us.saturating_sub(self.at_us.load(Relaxed)) as f64 / DECAY_US;
        // `exp(-age)` to within 0.00005, without its cost for a backend that responds often.
        if age < 0.01 { 1.0 - age } else { (-age).exp() }
    }

    fn means(&self) -> Option<Means> {
        let packed = self.means.load(Relaxed);
        let half = |bits: u64| f64::from(f32::from_bits(bits as u32));
        (packed != 0).then(|| Means { in_flight: half(packed >> 32), response: half(packed) })
    }
}

impl Means {
    fn and(self, newest: Means, share: f64) -> Means {
        let mean = |old: f64, new: f64| old + share * (new - old);
        Means {
            in_flight: mean(self.in_flight, newest.in_flight),
            response: mean(self.response, newest.response),
        }
    }

    /// Both values in one word, so that a thread never reads halves of two updates.
    fn packed(self) -> u64 {
        let half = |value: f64| u64::from((value as f32).to_bits());
        half(self.in_flight) << 32 | half(self.response)
    }
}
