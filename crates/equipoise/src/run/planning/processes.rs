//! Processor time of backends that are processes of this machine, for pools that grow and shrink by it.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use equipoise_driver::{BackendState, DriverOptions, PoolView};
use equipoise_monitor::TreeReading;
use equipoise_planner::elastic::PoolSample;

/// A backend that is a process of ours.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OwnProcess {
    pub(super) pool: String,
    pub(super) backend: String,
    pub(super) pid: u32,
    /// Processors that its limit lets it use; all there are if none.
    pub(super) cpus: Option<f64>,
}

/// From readings to the part in use.
#[derive(Debug, Default)]
pub(super) struct ProcessMeter {
    before: HashMap<u32, (Instant, Duration)>,
}

/// The processes among what was made of a pool.
pub(super) fn own(view: &PoolView, driver: &DriverOptions) -> Vec<OwnProcess> {
    let DriverOptions::Process(options) = driver else { return Vec::new() };
    let serves = view
        .backends
        .iter()
        .filter(|it| matches!(it.state, BackendState::Ready | BackendState::Draining));
    let one = |made: &equipoise_driver::ElasticBackend| {
        let cpus = options.limit_of(made.size.as_deref()).and_then(|limit| limit.cpus);
        let pid = made.id.as_ref()?.parse().ok()?;
        Some(OwnProcess { pool: view.pool.clone(), backend: made.name.clone(), pid, cpus })
    };
    serves.filter_map(one).collect()
}

impl ProcessMeter {
    /// Tells samples what processes used since the last time, of what they may use: a limit, the machine's `cores`, or as
    /// many as a process has threads, whichever is least.
    pub(super) fn settle(
        &mut self,
        now: Instant,
        processes: &[OwnProcess],
        cores: f64,
        read: impl Fn(u32) -> Option<TreeReading>,
        samples: &mut BTreeMap<String, PoolSample>,
    ) {
        let mut readings = HashMap::with_capacity(processes.len());
        for one in processes {
            let Some(reading) = read(one.pid) else { continue };
            readings.insert(one.pid, (now, reading.used));
            let Some((since, before)) = self.before.get(&one.pid) else { continue };
            let elapsed_s = now.saturating_duration_since(*since).as_secs_f64();
            let may = one.cpus.unwrap_or(cores).min(cores).min(f64::from(reading.threads));
            // It goes back when a child ends.
            let Some(used) = reading.used.checked_sub(*before) else { continue };
            let sample =
                samples.get_mut(&one.pool).and_then(|pool| pool.backends.get_mut(&one.backend));
            if let Some(sample) = sample.filter(|_| elapsed_s > 0.0 && may > 0.0) {
                sample.cpu = Some((used.as_secs_f64() / elapsed_s / may).min(1.0));
            }
        }
        self.before = readings;
    }
}

#[cfg(test)]
mod tests {
    use equipoise_planner::elastic::BackendSample;

    use super::*;

    fn process(cpus: Option<f64>) -> OwnProcess {
        OwnProcess { pool: "web".into(), backend: "web-e1".into(), pid: 7, cpus }
    }

    /// What is told of a process that used so much in the second second.
    fn told(cpus: Option<f64>, threads: u32, used_ms: u64) -> Option<f64> {
        let (mut meter, start) = (ProcessMeter::default(), Instant::now());
        let mut told = None;
        for second in 0..2 {
            let backends = [("web-e1".to_string(), BackendSample::default())].into();
            let mut samples = [("web".to_string(), PoolSample { backends, queued: 0.0 })].into();
            let used = Duration::from_millis(5000 + second * used_ms);
            let read = |_| Some(TreeReading { used, threads });
            let now = start + Duration::from_secs(second);
            meter.settle(now, &[process(cpus)], 4.0, read, &mut samples);
            told = samples["web"].backends["web-e1"].cpu;
            assert!(second > 0 || told.is_none(), "a beginning");
        }
        told
    }

    #[test]
    fn use_is_of_what_the_process_may_use() {
        let rows = [
            (None, 8, 1000, Some(0.25)), // of four cores
            (None, 1, 950, Some(0.95)),  // it has one thread
            (Some(0.5), 8, 500, Some(1.0)),
            (Some(0.5), 8, 600, Some(1.0)), // within its quota all the same: the clock's ticks are coarse
            (Some(16.0), 8, 2000, Some(0.5)),
        ];
        for (cpus, threads, used_ms, expected) in rows {
            assert_eq!(told(cpus, threads, used_ms), expected, "{cpus:?} {threads} {used_ms}");
        }
    }
}
