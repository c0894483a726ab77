//! Measures pools and requests: derives requests in flight, response times and rates from counters.
//! Pure.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use equipoise_controller::NodeReport;
use equipoise_core::load::{ClassCounts, ClassRate, ClassRates, Occupancy, PerClass};
use equipoise_planner::elastic::{BackendSample, PoolSample};

/// A snapshot of a backend's counters.
#[derive(Clone, Debug)]
pub struct BackendCounts {
    /// Its pool.
    pub pool: Arc<str>,
    /// Its name.
    pub backend: Arc<str>,
    /// Requests that hold a permit.
    pub in_flight: u32,
    /// Requests in flight without a permit.
    pub open: u32,
    /// Number in flight at which the backend serves most: the stated limit, or the learned one.
    pub limit: Option<f64>,
    /// The limit is not learned yet.
    pub is_guess: bool,
    /// Requests, connections or client addresses sent to the backend so far.
    pub given: u64,
    /// Responses so far.
    pub answers: u64,
    /// Total time for which answered requests held permits. Time in which the backend waited for a
    /// client is not included.
    pub permit_time: Duration,
}

/// Permits of a pool's backends together, without those of light requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PermitCounts {
    /// Sum of the limits.
    pub limit: u32,
    /// Permits that no request holds.
    pub free: u32,
    /// The limit of a backend is not learned yet.
    pub is_guess: bool,
}

/// A snapshot of a pool's queue.
#[derive(Clone, Debug)]
pub struct QueueCounts {
    /// Its pool.
    pub pool: Arc<str>,
    /// Requests in it.
    pub waiting: usize,
    /// Requests so far that left the queue without a backend.
    pub unserved: u64,
}

type Name = (Arc<str>, Arc<str>);

/// Counters of a backend at the end of the previous period.
#[derive(Clone, Copy, Debug)]
struct Before {
    given: u64,
    answers: u64,
    permit_time: Duration,
}

/// Glances and previous counters of the current period.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    glances: HashMap<Name, Glances>,
    before: HashMap<Name, Before>,
    queue_glances: HashMap<Arc<str>, Glances>,
    queues_before: HashMap<Arc<str>, QueueCounts>,
    since: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Glances {
    sum: u64,
    count: u64,
    /// Glances since the last one that saw nothing.
    in_row: u64,
}

impl Glances {
    fn add(&mut self, seen: u64) {
        self.sum += seen;
        self.count += 1;
        self.in_row = if seen == 0 { 0 } else { self.in_row + 1 };
    }

    fn mean(self) -> f64 {
        self.sum as f64 / self.count.max(1) as f64
    }

    /// Whether each glance in the second half of the period saw something.
    fn stands(self) -> bool {
        2 * self.in_row >= self.count
    }
}

impl Meter {
    /// Samples requests in flight and queues. Called several times in a period.
    pub(crate) fn glance(&mut self, counted: &[BackendCounts], queues: &[QueueCounts]) {
        for one in counted {
            let name = (Arc::clone(&one.pool), Arc::clone(&one.backend));
            self.glances.entry(name).or_default().add(u64::from(one.in_flight));
        }
        for queue in queues {
            let glances = self.queue_glances.entry(Arc::clone(&queue.pool)).or_default();
            glances.add(queue.waiting as u64);
        }
    }

    /// Ends the period and returns the samples of each pool; empty the first time.
    ///
    /// If requests hold permits for less than a period, the mean number in flight is the permit
    /// time of answered requests divided by the length of the period (Little's law). This is exact,
    /// while glances are samples. Otherwise it is the mean of the glances, which also see requests
    /// without an answer yet.
    pub(crate) fn settle(
        &mut self,
        now: Instant,
        counted: &[BackendCounts],
        queues: &[QueueCounts],
    ) -> BTreeMap<String, PoolSample> {
        self.glance(counted, queues);
        let elapsed = self.since.map(|since| now.saturating_duration_since(since));
        let mut pools: BTreeMap<String, PoolSample> = BTreeMap::new();
        let mut totals = HashMap::with_capacity(counted.len());
        for one in counted {
            let name = (Arc::clone(&one.pool), Arc::clone(&one.backend));
            let before = self.before.get(&name).copied();
            let BackendCounts { given, answers, permit_time, .. } = *one;
            totals.insert(name.clone(), Before { given, answers, permit_time });
            let (Some(elapsed), Some(before)) = (elapsed, before) else { continue };
            let glances = self.glances.get(&name).copied().unwrap_or_default();
            let sample = sample(one, before, glances, elapsed);
            let pool = pools.entry(one.pool.to_string()).or_default();
            pool.backends.insert(one.backend.to_string(), sample);
        }
        for queue in queues {
            let before = self.queues_before.get(&queue.pool);
            let (Some(elapsed), Some(before)) = (elapsed, before) else { continue };
            let glances = self.queue_glances.get(&queue.pool).copied().unwrap_or_default();
            let pool = pools.entry(queue.pool.to_string()).or_default();
            pool.queued = glances.mean();
            pool.is_standing = glances.stands();
            pool.excess = excess(before, queue, elapsed);
        }
        let of_pool = |queue: &QueueCounts| (Arc::clone(&queue.pool), queue.clone());
        self.queues_before = queues.iter().map(of_pool).collect();
        self.queue_glances.clear();
        self.glances.clear();
        self.before = totals;
        self.since = Some(now);
        pools
    }
}

/// The application's queue in one period.
#[derive(Debug, Default)]
pub(crate) struct QueueMeter(Glances);

impl QueueMeter {
    /// Samples the number of waiting requests. Called several times in a period.
    pub(crate) fn glance(&mut self, waiting: usize) {
        self.0.add(waiting as u64);
    }

    /// Ends the period and returns the number of waiting requests, or 0 if the queue was empty in
    /// between: a queue that comes and goes is not an overload.
    pub(crate) fn settle(&mut self, waiting: usize) -> usize {
        self.glance(waiting);
        let glances = std::mem::take(&mut self.0);
        if glances.stands() { waiting } else { 0 }
    }
}

/// Use of the application's concurrency limit in one period.
#[derive(Debug, Default)]
pub(crate) struct OccupancyMeter {
    in_flight: u64,
    queued: u64,
    limit: u64,
    count: u64,
    /// A glance found no limit.
    is_unlimited: bool,
}

impl OccupancyMeter {
    /// Samples permits and the number of waiting requests. Called several times in a period.
    ///
    /// Requests in flight below a limit that is not learned yet do not count: such a limit says
    /// nothing until requests wait for it.
    pub(crate) fn glance(&mut self, permits: Option<PermitCounts>, waiting: usize) {
        let Some(PermitCounts { limit, free, is_guess }) = permits.filter(|it| it.limit > 0) else {
            self.is_unlimited = true;
            return;
        };
        let counts = !is_guess || waiting > 0;
        self.in_flight += if counts { u64::from(limit.saturating_sub(free)) } else { 0 };
        self.queued += waiting as u64;
        self.limit += u64::from(limit);
        self.count += 1;
    }

    /// Ends the period with a last glance. `None` if the application had no limit at a glance.
    pub(crate) fn settle(
        &mut self,
        permits: Option<PermitCounts>,
        waiting: usize,
    ) -> Option<Occupancy> {
        self.glance(permits, waiting);
        let OccupancyMeter { in_flight, queued, limit, count, is_unlimited } = std::mem::take(self);
        let mean = |sum: u64| sum as f64 / count as f64;
        (!is_unlimited).then(|| Occupancy {
            in_flight: mean(in_flight),
            queued: mean(queued),
            limit: mean(limit),
        })
    }
}

/// Rates of requests by class, from counters.
#[derive(Debug, Default)]
pub(crate) struct ClassMeter {
    before: Option<(Instant, PerClass<ClassCounts>)>,
}

impl ClassMeter {
    /// Rates since the last call; zero the first time.
    pub(crate) fn settle(&mut self, now: Instant, counts: &PerClass<ClassCounts>) -> ClassRates {
        let Some((since, before)) = self.before.replace((now, *counts)) else {
            return ClassRates::default();
        };
        let seconds = now.saturating_duration_since(since).as_secs_f64();
        if seconds <= 0.0 {
            return ClassRates::default();
        }
        PerClass::from_fn(|class| {
            let (now, before) = (&counts[class], &before[class]);
            // The counters of a removed front door are missing from the new sum.
            let rate =
                |of: fn(&ClassCounts) -> u64| of(now).saturating_sub(of(before)) as f64 / seconds;
            ClassRate {
                arrived: rate(|it| it.arrived),
                // Delegated requests are counted when they leave, as arrivals are. Counted when
                // they end, the demand of a node with a queue would seem to fall whenever it
                // delegates more.
                delegated: rate(|it| it.given),
                refused: rate(|it| it.refused),
                taken: (rate(|it| it.taken) - rate(|it| it.handed_back)).max(0.0),
                bytes: rate(|it| it.bytes),
            }
        })
    }
}

/// Arrivals per second beyond those that got a backend.
fn excess(before: &QueueCounts, now: &QueueCounts, elapsed: Duration) -> f64 {
    let growth = now.waiting as f64 - before.waiting as f64;
    // A pool that was removed and created again under its old name has a smaller counter.
    let unserved = now.unserved.saturating_sub(before.unserved) as f64;
    let rate = (growth + unserved) / elapsed.as_secs_f64();
    if rate.is_finite() { rate } else { 0.0 }
}

fn sample(
    one: &BackendCounts,
    before: Before,
    glances: Glances,
    elapsed: Duration,
) -> BackendSample {
    let is_given = one.given > before.given;
    let glanced = glances.mean().max(if is_given { BRIEF } else { 0.0 });
    // A backend that was removed and created again under its old name has smaller counters.
    let answered = one.answers.saturating_sub(before.answers);
    let took = one.permit_time.saturating_sub(before.permit_time);
    let response = u32::try_from(answered).ok().filter(|n| *n > 0).map(|n| took / n);
    let (in_flight, response) = match response {
        Some(response) if response < elapsed && !elapsed.is_zero() => {
            (took.as_secs_f64() / elapsed.as_secs_f64(), Some(response))
        }
        Some(response) => (glanced, Some(response.max(to_come(glanced, answered, elapsed)))),
        None => (glanced, None),
    };
    let response = response.map(|response| response.min(NodeReport::RESPONSE_MAX));
    let (limit, is_guess, open) = (one.limit, one.is_guess, one.open);
    BackendSample { in_flight, response, limit, is_guess, open, ..BackendSample::default() }
}

/// Number in flight of a backend that had connections only between glances.
const BRIEF: f64 = 0.001;

/// Time until the requests in flight are served at this period's rate. The responses of this period
/// belong to earlier arrivals: after a rise of the load their times are too short, and the rate `V
/// = N/T` would exceed the true one.
fn to_come(in_flight: f64, answered: u64, elapsed: Duration) -> Duration {
    let seconds = in_flight * elapsed.as_secs_f64() / answered.max(1) as f64;
    Duration::try_from_secs_f64(seconds).unwrap_or(elapsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(in_flight: u32, answers: u64, answer_ms: u64) -> Vec<BackendCounts> {
        let permit_time = Duration::from_millis(answer_ms);
        let (pool, backend) = ("web".into(), "a".into());
        let (limit, given) = (Some(8.0), answers);
        let (is_guess, open) = (false, 3);
        vec![BackendCounts {
            pool,
            backend,
            in_flight,
            open,
            limit,
            is_guess,
            given,
            answers,
            permit_time,
        }]
    }

    fn settled(meter: &mut Meter, at: Instant, counted: &[BackendCounts]) -> Option<BackendSample> {
        meter.settle(at, counted, &[]).get("web").map(|pool| pool.backends["a"].clone())
    }

    fn queue(waiting: usize, unserved: u64) -> Vec<QueueCounts> {
        vec![QueueCounts { pool: "web".into(), waiting, unserved }]
    }

    #[test]
    fn queue_length_standing_state_and_excess_are_measured_per_period() {
        let (mut meter, start) = (Meter::default(), Instant::now());
        let second = Duration::from_secs(1);
        assert!(meter.settle(start, &[], &queue(0, 7)).is_empty(), "a beginning");
        (0..5).for_each(|_| meter.glance(&[], &queue(0, 7)));
        (0..4).for_each(|_| meter.glance(&[], &queue(10, 7)));
        let sample = meter.settle(start + 2 * second, &[], &queue(20, 17))["web"].clone();
        assert_eq!((sample.queued, sample.is_standing, sample.excess), (6.0, true, 15.0));
        // The pool has no backend, and still gets a sample.
        assert!(sample.backends.is_empty());
        (0..2).for_each(|_| meter.glance(&[], &queue(0, 17)));
        let sample = meter.settle(start + 3 * second, &[], &queue(3, 17))["web"].clone();
        assert_eq!((sample.queued, sample.is_standing, sample.excess), (1.0, false, -17.0));
    }

    #[test]
    fn a_recently_empty_queue_reports_no_waiting_requests() {
        let mut meter = QueueMeter::default();
        let mut settled = |glances: &[usize], last| {
            glances.iter().for_each(|waiting| meter.glance(*waiting));
            meter.settle(last)
        };
        assert_eq!(settled(&[0, 0, 0, 0, 0, 0, 0, 0, 0], 1), 0, "one that has just come");
        assert_eq!(settled(&[9, 9, 9, 9, 9, 9, 9, 0, 9], 9), 0, "it was empty lately");
        assert_eq!(settled(&[0, 0, 0, 0, 1, 1, 1, 1, 1], 1), 1);
        assert_eq!(settled(&[3, 3, 3, 3, 3, 3, 3, 3, 3], 7), 7);
        assert_eq!(settled(&[7, 7, 7, 7, 7, 7, 7, 7, 7], 0), 0, "it is over");
    }

    #[test]
    fn the_occupancy_of_a_period_is_the_mean_of_its_glances() {
        let mut meter = OccupancyMeter::default();
        let permits = PermitCounts { limit: 8, free: 2, is_guess: false };
        meter.glance(Some(permits), 0);
        let full = PermitCounts { free: 0, ..permits };
        let mean = Occupancy { in_flight: 7.0, queued: 2.0, limit: 8.0 };
        assert_eq!(meter.settle(Some(full), 4), Some(mean));
        let last = Occupancy { in_flight: 8.0, queued: 3.0, limit: 8.0 };
        assert_eq!(meter.settle(Some(full), 3), Some(last), "a period of its own");
        let guess = PermitCounts { limit: 4, free: 1, is_guess: true };
        meter.glance(Some(guess), 0);
        let settled = meter.settle(Some(PermitCounts { free: 0, ..guess }), 2);
        let mean = Occupancy { in_flight: 2.0, queued: 1.0, limit: 4.0 };
        assert_eq!(settled, Some(mean), "a first limit counts while requests wait");
        meter.glance(Some(permits), 0);
        assert_eq!(meter.settle(None, 0), None, "it has lost its limit");
    }

    #[test]
    fn a_connection_between_two_glances_counts_as_in_flight() {
        let (mut meter, start) = (Meter::default(), Instant::now());
        let one = |given| vec![BackendCounts { given, ..counted(0, 0, 0)[0].clone() }];
        meter.settle(start, &one(4), &[]);
        let second = start + Duration::from_secs(1);
        let sample = settled(&mut meter, second, &one(5)).unwrap();
        assert_eq!((sample.in_flight, sample.open, sample.limit), (BRIEF, 3, Some(8.0)));
        let sample = settled(&mut meter, second + Duration::from_secs(1), &one(5)).unwrap();
        assert_eq!(sample.in_flight, 0.0);
    }

    #[test]
    fn in_flight_is_permit_time_divided_by_the_period() {
        let (mut meter, start) = (Meter::default(), Instant::now());
        assert_eq!(settled(&mut meter, start, &counted(0, 100, 1000)), None, "a beginning");
        let second = start + Duration::from_secs(1);
        let sample = settled(&mut meter, second, &counted(9, 200, 3000)).unwrap();
        assert_eq!(sample.in_flight, 2.0);
        assert_eq!(sample.response, Some(Duration::from_millis(20)));
    }

    #[test]
    fn requests_longer_than_the_period_are_counted_by_glances() {
        let (mut meter, start) = (Meter::default(), Instant::now());
        meter.settle(start, &counted(4, 0, 0), &[]);
        (0..9).for_each(|_| meter.glance(&counted(4, 0, 0), &[]));
        let second = start + Duration::from_secs(1);
        let sample = settled(&mut meter, second, &counted(4, 0, 0)).unwrap();
        assert_eq!((sample.in_flight, sample.response), (4.0, None));
        let next = settled(&mut meter, second + Duration::from_secs(1), &counted(4, 1, 5000));
        assert_eq!(next.unwrap().in_flight, 4.0);
    }

    #[test]
    fn early_answers_after_a_load_rise_do_not_lower_response_time() {
        let (mut meter, start) = (Meter::default(), Instant::now());
        let second = Duration::from_secs(1);
        meter.settle(start, &counted(24, 0, 0), &[]);
        // Two answers in a second, of the 24 requests that came first.
        let sample = settled(&mut meter, start + second, &counted(24, 2, 3000)).unwrap();
        assert_eq!((sample.in_flight, sample.response), (24.0, Some(12 * second)));
        // Later responses waited for all before them, and took longer than the rest will.
        let sample = settled(&mut meter, start + 2 * second, &counted(4, 4, 27_000)).unwrap();
        assert_eq!(sample.response, Some(12 * second));
    }

    #[test]
    fn rates_are_counts_over_time_and_never_negative() {
        let (mut meter, start) = (ClassMeter::default(), Instant::now());
        let counts = |arrived, bytes| PerClass {
            computing: ClassCounts {
                arrived,
                given: arrived / 2,
                taken: arrived,
                handed_back: arrived / 10,
                bytes,
                ..ClassCounts::default()
            },
            ..PerClass::default()
        };
        assert_eq!(meter.settle(start, &counts(100, 1000)), ClassRates::default(), "a beginning");
        let later = start + Duration::from_secs(2);
        let rate = meter.settle(later, &counts(300, 5000)).computing;
        let expected = ClassRate {
            arrived: 100.0,
            delegated: 50.0,
            taken: 90.0,
            bytes: 2000.0,
            ..ClassRate::default()
        };
        assert_eq!(rate, expected);
        assert_eq!(meter.settle(later, &counts(400, 6000)), ClassRates::default(), "no time");
        let end = later + Duration::from_secs(1);
        assert_eq!(meter.settle(end, &counts(10, 10)).computing.arrived, 0.0, "it was reloaded");
    }

    #[test]
    fn a_backend_with_reset_counters_has_no_response_time() {
        let (mut meter, start) = (Meter::default(), Instant::now());
        meter.settle(start, &counted(0, 1000, 9000), &[]);
        let sample = settled(&mut meter, start + Duration::from_secs(1), &counted(1, 3, 30));
        assert_eq!(sample.unwrap().response, None);
    }
}
