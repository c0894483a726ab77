//! Computes rates from totals: keeps a short series of samples, and compares with its oldest.

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

/// Counters of a subject, in the order of [`Rates`].
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
        let Some(before) = self.samples.front().and_then(|(_, sample)| sample.get(subject)) else {
            return Rates::default();
        };
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
    fn what_has_not_been_sampled_or_began_anew_has_no_rate() {
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
