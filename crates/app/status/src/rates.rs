//! Computes rates and means from totals: keeps a short series of samples, and compares with its
//! oldest.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use equipoise_api::wire::Rates;

/// An object that has rates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A front door, by name.
    FrontDoor(Arc<str>),
    /// A backend.
    Backend {
        /// Name of its pool.
        pool: Arc<str>,
        /// Its name.
        backend: Arc<str>,
    },
}

/// Counters of a subject, those of [`Rates`] first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests, connections or client addresses.
    pub requests: u64,
    /// Drops or failures.
    pub errors: u64,
    /// Bytes towards backends.
    pub bytes_in: u64,
    /// Bytes towards clients.
    pub bytes_out: u64,
    /// Complete responses of a backend.
    pub answers: u64,
    /// Time for which the requests with those responses held permits.
    pub permit_time: Duration,
    /// Time that a backend's requests had waited in the pool's queue.
    pub queue_wait: Duration,
}

/// Mean times of a backend's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Means {
    /// Time in service, in seconds; `None` without a response.
    pub service_seconds: Option<f64>,
    /// Time in the pool's queue before that, in seconds; `None` without a request.
    pub queue_seconds: Option<f64>,
}

/// Interval between samples.
pub const PERIOD: Duration = Duration::from_secs(1);
/// Time over which rates are averaged, approximately.
const WINDOW: Duration = Duration::from_secs(5);

/// The samples of the last [`WINDOW`].
#[derive(Debug, Default)]
pub struct RateWindow {
    samples: VecDeque<(Instant, HashMap<Subject, Totals>)>,
}

impl RateWindow {
    /// Adds a sample, and removes those that are older than the window.
    pub fn add(&mut self, now: Instant, totals: HashMap<Subject, Totals>) {
        while self
            .samples
            .front()
            .is_some_and(|(at, _)| now.saturating_duration_since(*at) > WINDOW)
        {
            self.samples.pop_front();
        }
        self.samples.push_back((now, totals));
    }

    /// Time over which rates at `now` are averaged; zero without a sample.
    pub fn span(&self, now: Instant) -> Duration {
        self.samples.front().map_or(Duration::ZERO, |(at, _)| now.saturating_duration_since(*at))
    }

    /// The rates of `subject` with these `totals` at `now`. They are zero until it was sampled, and
    /// after it was removed and created again under its old name.
    pub fn rates(&self, now: Instant, subject: &Subject, totals: Totals) -> Rates {
        let seconds = self.span(now).as_secs_f64();
        let Some(before) = self.before(subject) else { return Rates::default() };
        if seconds <= 0.0 {
            return Rates::default();
        }
        let per_second = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        Rates {
            requests: per_second(totals.requests, before.requests),
            errors: per_second(totals.errors, before.errors),
            bytes_in: per_second(totals.bytes_in, before.bytes_in),
            bytes_out: per_second(totals.bytes_out, before.bytes_out),
        }
    }

    /// The mean times of `subject` with these `totals`, over the same time as [`Self::rates`].
    pub fn means(&self, subject: &Subject, totals: Totals) -> Means {
        let Some(before) = self.before(subject) else { return Means::default() };
        let mean =
            |time: Duration, count: u64| (count > 0).then(|| time.as_secs_f64() / count as f64);
        Means {
            service_seconds: mean(
                totals.permit_time.saturating_sub(before.permit_time),
                totals.answers.saturating_sub(before.answers),
            ),
            queue_seconds: mean(
                totals.queue_wait.saturating_sub(before.queue_wait),
                totals.requests.saturating_sub(before.requests),
            ),
        }
    }

    /// The oldest totals of `subject` in the window.
    fn before(&self, subject: &Subject) -> Option<&Totals> {
        self.samples.front().and_then(|(_, sample)| sample.get(subject))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(requests: u64) -> Totals {
        Totals { requests, ..Totals::default() }
    }

    #[test]
    fn a_rate_is_the_average_over_the_window() {
        let subject = Subject::FrontDoor("web".into());
        let (mut window, start) = (RateWindow::default(), Instant::now());
        for second in 0..20 {
            let sample = HashMap::from([(subject.clone(), totals(second * 100))]);
            window.add(start + PERIOD * second as u32, sample);
        }
        let now = start + PERIOD * 19;
        assert_eq!(window.span(now), WINDOW);
        assert_eq!(window.rates(now, &subject, totals(1900)).requests, 100.0);
    }

    #[test]
    fn a_mean_covers_only_the_requests_in_the_window() {
        let subject = Subject::Backend { pool: "web".into(), backend: "a".into() };
        let (mut window, start) = (RateWindow::default(), Instant::now());
        let totals = |requests: u64, service_ms: u64, queue_ms: u64| Totals {
            requests,
            answers: requests,
            permit_time: Duration::from_millis(requests * service_ms),
            queue_wait: Duration::from_millis(requests * queue_ms),
            ..Totals::default()
        };
        assert_eq!(window.means(&subject, totals(10, 3, 0)), Means::default());
        window.add(start, HashMap::from([(subject.clone(), totals(10, 3, 0))]));
        assert_eq!(window.means(&subject, totals(10, 3, 0)), Means::default(), "no request since");
        let now = Totals {
            requests: 14,
            answers: 12,
            permit_time: Duration::from_millis(30 + 16),
            queue_wait: Duration::from_millis(20),
            ..Totals::default()
        };
        let means = Means { service_seconds: Some(0.008), queue_seconds: Some(0.005) };
        assert_eq!(window.means(&subject, now), means);
    }

    #[test]
    fn unsampled_or_reset_counters_have_no_rate() {
        let subject = Subject::FrontDoor("web".into());
        let (mut window, start) = (RateWindow::default(), Instant::now());
        assert_eq!(window.rates(start, &subject, totals(5)), Rates::default());
        window.add(start, HashMap::from([(subject.clone(), totals(500))]));
        assert_eq!(window.rates(start, &subject, totals(500)), Rates::default());
        let later = start + PERIOD;
        assert_eq!(window.rates(later, &subject, totals(3)), Rates::default());
        let other = Subject::FrontDoor("other".into());
        assert_eq!(window.rates(later, &other, totals(3)), Rates::default());
    }
}
