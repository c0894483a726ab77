use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use equipoise_basics::lock;
use equipoise_core::load::Reported;
use equipoise_monitor::{Point, QueryError, Repository, RepositoryOptions, Sample};

use crate::Pressure;

/// The history of resource utilisation, on this machine's clock.
///
/// The time of a sample is that of its arrival here, not that of its sender's clock. If this
/// machine's clock is set back by more than [`BACK_MAX`], the history begins again, because new
/// samples would be filed behind old ones.
#[derive(Debug)]
pub struct Recorder {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    repository: Repository,
    last: Duration,
    resets: u64,
}

/// Longer than a step of a synchronized clock.
const BACK_MAX: Duration = Duration::from_secs(5);

impl Default for Recorder {
    fn default() -> Recorder {
        let repository = Repository::new(RepositoryOptions::default());
        let inner = Inner { repository, last: Duration::ZERO, resets: 0 };
        Recorder { inner: Mutex::new(inner) }
    }
}

impl Recorder {
    /// Files a sample that `node` reported just now.
    pub fn record(&self, node: &str, sample: Sample) {
        self.record_at(node, sample, unix_now());
    }

    /// Files the signals of a report. `cpu_forecast`: its CPU as it was expected, in per cent.
    pub fn record_load(
        &self,
        node: &str,
        load: &Reported,
        cpu_forecast: Option<f64>,
        pressure: Pressure,
    ) {
        let percent = |value: f64| Some(value.clamp(0.0, 100.0));
        let net_percent = load.net.and_then(percent);
        let (cpu_percent, memory_percent) = (percent(load.cpu), percent(load.memory));
        let cpu_forecast_percent = cpu_forecast.and_then(percent);
        let sample = Sample {
            cpu_percent,
            memory_percent,
            net_percent,
            cpu_forecast_percent,
            ..Sample::default()
        };
        self.record(node, pressure.beside(sample));
    }

    fn record_at(&self, node: &str, sample: Sample, now: Duration) {
        let mut inner = self.lock();
        if now + BACK_MAX < inner.last {
            inner.repository = Repository::new(RepositoryOptions::default());
            inner.resets += 1;
            tracing::warn!(
                back_by = ?(inner.last - now),
                "the clock was set back; the history of utilisation begins again"
            );
        }
        inner.last = now;
        if let Err(refused) = inner.repository.insert(node, now, sample, now) {
            tracing::debug!(node, %refused, "a sample of utilisation was not filed");
        }
    }

    /// The samples of `node` in the last `span`, oldest first, at least `step` apart.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn recent(
        &self,
        node: &str,
        span: Duration,
        step: Duration,
    ) -> Result<Vec<Point>, QueryError> {
        let now = unix_now();
        let to = now + Duration::from_secs(1);
        self.lock().repository.range(node, now.saturating_sub(span), to, step, now)
    }

    /// The age and content of a node's last sample.
    pub fn latest(&self, node: &str) -> Option<(Duration, Sample)> {
        let (at, sample) = self.lock().repository.latest(node)?;
        Some((unix_now().saturating_sub(at), sample))
    }

    /// The nodes with a history.
    pub fn nodes(&self) -> Vec<String> {
        self.lock().repository.nodes().map(str::to_string).collect()
    }

    /// Forgets a node.
    pub fn forget(&self, node: &str) {
        self.lock().repository.forget(node);
    }

    /// How many times the history began again because the clock was set back.
    pub fn resets(&self) -> u64 {
        self.lock().resets
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }
}

fn unix_now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(cpu: f64) -> Sample {
        Sample { cpu_percent: Some(cpu), ..Sample::default() }
    }

    #[test]
    fn a_recorded_load_is_returned_by_a_query_of_its_node() {
        let recorder = Recorder::default();
        let pressure = Pressure { io: Some(7.0), ..Pressure::default() };
        let load = Reported { cpu: 105.0, memory: 20.0, net: None };
        recorder.record_load("a", &load, Some(30.0), pressure);
        let minute = Duration::from_secs(60);
        let points = recorder.recent("a", minute, Duration::from_secs(1)).unwrap();
        assert_eq!(points.len(), 1);
        assert_eq!(points[0].cpu.unwrap().mean_percent, 100.0);
        assert_eq!(points[0].io_pressure.unwrap().mean_percent, 7.0);
        assert_eq!(points[0].cpu_forecast.unwrap().mean_percent, 30.0);
        assert_eq!(points[0].cpu_pressure, None);
        assert!(recorder.recent("b", minute, Duration::from_secs(1)).is_err());
    }

    #[test]
    fn a_clock_that_is_set_back_begins_the_history_anew() {
        let (recorder, second) = (Recorder::default(), Duration::from_secs(1));
        let noon = unix_now();
        recorder.record_at("a", sample(50.0), noon + 3600 * second);
        recorder.record_at("a", sample(10.0), noon - second);
        recorder.record_at("a", sample(20.0), noon - 3 * second);
        let points = recorder.recent("a", 60 * second, second).unwrap();
        let means: Vec<f64> = points.iter().filter_map(|p| Some(p.cpu?.mean_percent)).collect();
        assert_eq!((means, recorder.resets()), (vec![20.0, 10.0], 1));
    }
}
