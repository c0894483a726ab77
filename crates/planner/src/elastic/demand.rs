use std::collections::BTreeMap;
use std::time::Duration;

use equipoise_core::load::{Forecaster, Smoothing};
use serde::{Deserialize, Serialize};

use super::learnt::{Known, Learnt, Top};
use super::probe::Look;
use super::speed::{AT_TOP, SpeedProfile};

/// What the balancers together saw of a pool in one period.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolSample {
    /// By backend.
    pub backends: BTreeMap<String, BackendSample>,
    /// Requests that wait at the balancers for a backend, on average.
    #[serde(default)]
    pub queued: f64,
}

/// What the balancers together saw of one backend in one period.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackendSample {
    /// Requests in flight, on average: N.
    pub in_flight: f64,
    /// How long an answer took, on average: T. `None` if none was finished.
    #[serde(default)]
    pub response: Option<Duration>,
    /// The concurrency at which the session level holds it (region keeping), if it has learnt one.
    #[serde(default)]
    pub limit: Option<f64>,
    /// Its size, if its pool has sizes.
    #[serde(default)]
    pub size: Option<String>,
    /// The part of the processors that it may use that it does use, 0..=1, if whoever made it can see that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
}

/// A pool's past: what its backends have shown, and how much of that is in use.
#[derive(Clone, Debug, Default)]
pub struct PoolHistory {
    profiles: BTreeMap<Option<String>, SpeedProfile>,
    latest: PoolSample,
    in_flight: BTreeMap<String, Forecaster>,
    in_use: BTreeMap<String, Forecaster>,
    cpu: BTreeMap<String, Forecaster>,
    rate: Option<Forecaster>,
    /// What plans remember of before.
    recalled: Vec<Known>,
}

/// The most that a rising demand is taken to rise in one period.
const RISE_MAX: f64 = 1.5;
/// Without a seen top, a backend is never taken for fuller than this by its response time alone.
const BY_RESPONSE_MAX: f64 = 0.99;
/// As many times what is in flight at the top are no burst.
const LARGE_CROWD: f64 = 4.0;
/// Requests in flight below which a backend is idle.
const IDLE: f64 = 0.01;
/// A backend is not taken for fuller than this many times its top, queue and all.
const IN_USE_MAX: f64 = 100.0;

impl PoolHistory {
    pub(crate) fn observe(&mut self, smoothing: &Smoothing, at: Duration, sample: &PoolSample) {
        let mut rate = 0.0;
        for one in sample.backends.values() {
            if let Some(response) = one.response {
                let profile = self.profiles.entry(one.size.clone()).or_default();
                profile.observe(one.in_flight, response.as_secs_f64());
                rate += speed(one).unwrap_or(0.0);
            }
        }
        self.in_use.retain(|backend, _| sample.backends.contains_key(backend));
        self.in_flight.retain(|backend, _| sample.backends.contains_key(backend));
        self.cpu
            .retain(|backend, _| sample.backends.get(backend).is_some_and(|it| it.cpu.is_some()));
        for (backend, one) in &sample.backends {
            if one.in_flight.is_finite() {
                let now = one.in_flight.max(0.0);
                let begin = || Forecaster::new(*smoothing, f64::MAX, at, now);
                self.in_flight.entry(backend.clone()).or_insert_with(begin).observe(at, now);
            }
            if let Some(now) = one.cpu.filter(|cpu| cpu.is_finite()) {
                let now = now.clamp(0.0, 1.0);
                let begin = || Forecaster::new(*smoothing, 1.0, at, now);
                self.cpu.entry(backend.clone()).or_insert_with(begin).observe(at, now);
            }
            let Some(now) = self.in_use_now(one) else { continue };
            let begin = || Forecaster::new(*smoothing, IN_USE_MAX, at, now);
            self.in_use.entry(backend.clone()).or_insert_with(begin).observe(at, now);
        }
        let begin = || Forecaster::new(*smoothing, f64::MAX, at, rate);
        self.rate.get_or_insert_with(begin).observe(at, rate);
        self.latest = sample.clone();
    }

    /// The part of a backend's best that is in use: 1 at the top, above it when more is in flight than brings speed. In
    /// order of trust: the limit that the session level has learnt; the top that its size has shown, now or before; and
    /// until a top was seen, how much slower answers are than the fastest, `1 - T_min/T`, which is the use of a single queue.
    fn in_use_now(&self, one: &BackendSample) -> Option<f64> {
        let in_flight =
            if one.in_flight.is_finite() { one.in_flight.max(0.0) } else { return None };
        if let Some(limit) = one.limit.filter(|limit| *limit > 0.0) {
            return Some((in_flight / limit).min(IN_USE_MAX));
        }
        if in_flight == 0.0 {
            return Some(0.0);
        }
        let best = self.profiles.get(&one.size)?.best()?;
        if best.is_topped {
            let top = Top { speed: best.speed, in_flight: best.in_flight, age: Duration::ZERO };
            return Some(in_use_of(&top, one));
        }
        let by_response = self.by_response(one);
        let top = self.recalled(&one.size).and_then(|known| known.top);
        let top = top.filter(|top| !top.is_outdone(best.speed));
        // What was measured since may have been slower than what is remembered of another load.
        by_response.into_iter().chain(top.map(|top| in_use_of(&top, one))).reduce(f64::max)
    }

    /// By how much slower answers are than the fastest that were ever seen.
    fn by_response(&self, one: &BackendSample) -> Option<f64> {
        let response_s = one.response?.as_secs_f64();
        let shortest_s = self.profiles.get(&one.size)?.shortest_response_s()?;
        let recalled_s = self.recalled(&one.size).map_or(shortest_s, |known| known.response_s);
        let shortest_s = shortest_s.min(recalled_s);
        Some((1.0 - shortest_s / response_s.max(shortest_s)).min(BY_RESPONSE_MAX))
    }

    /// What is remembered of a size. Where what is measured is no more blind, it is in what is remembered already.
    fn recalled(&self, size: &Option<String>) -> Option<&Known> {
        self.recalled.iter().find(|known| known.size == *size)
    }

    /// Goes on from what plans remember.
    pub(crate) fn recall(&mut self, learnt: &Learnt) {
        self.recalled.clone_from(&learnt.known);
    }

    /// What measurements show by themselves, by size, but of those whose profile is blind.
    pub(crate) fn measured(&self) -> impl Iterator<Item = Known> {
        self.profiles.iter().filter(|(_, profile)| !profile.is_blind()).filter_map(
            |(size, profile)| {
                let ((from, upto), response_s) = (profile.span()?, profile.shortest_response_s()?);
                let top = profile.best().filter(|best| best.is_topped);
                let top = top.map(|best| Top {
                    speed: best.speed,
                    in_flight: best.in_flight,
                    age: Duration::ZERO,
                });
                Some(Known { size: size.clone(), response_s, from, upto, top, age: Duration::ZERO })
            },
        )
    }

    /// What was seen of a backend in the last period, if it answered.
    pub(crate) fn look(&self, backend: &str) -> Option<Look> {
        let one = self.latest.backends.get(backend)?;
        let (in_flight, speed) = (one.in_flight, speed(one)?);
        (in_flight > 0.0 && speed > 0.0).then_some(Look { in_flight, speed })
    }

    /// Whether the session level has learnt at what concurrency to hold a backend.
    pub(crate) fn has_limit(&self, backend: &str) -> bool {
        self.latest.backends.get(backend).is_some_and(|one| one.limit.is_some())
    }

    /// The part of the processors that a backend may use which is expected to be in use, 0..=1; `None` if nobody sees it.
    pub fn cpu(&self, backend: &str) -> Option<f64> {
        self.cpu.get(backend).map(Forecaster::coming)
    }

    /// The part of a backend's best that is expected to be in use in the coming period; `None` if unknown.
    pub fn in_use(&self, backend: &str) -> Option<f64> {
        self.in_use.get(backend).map(|one| one.coming() * self.rise())
    }

    /// Whether the use of a backend is more than a guess by its response time: nothing is in flight there, or the top of its
    /// size was seen.
    pub(crate) fn is_use_known(&self, backend: &str, size: Option<&str>) -> bool {
        let is_idle = self.in_flight(backend).is_some_and(|in_flight| in_flight < IDLE);
        is_idle || self.profile(size).and_then(SpeedProfile::best).is_some_and(|it| it.is_topped)
    }

    /// Requests in flight at a backend, smoothed; `None` if nobody saw it.
    pub fn in_flight(&self, backend: &str) -> Option<f64> {
        self.in_flight.get(backend).map(Forecaster::smoothed)
    }

    /// The concurrency limit of a backend; `None` without one.
    pub(crate) fn limit(&self, backend: &str) -> Option<f64> {
        self.latest.backends.get(backend)?.limit.filter(|limit| *limit > 0.0)
    }

    /// Requests that wait for a backend.
    pub fn queued(&self) -> f64 {
        if self.latest.queued.is_finite() { self.latest.queued.max(0.0) } else { 0.0 }
    }

    /// What backends of a size have shown.
    pub fn profile(&self, size: Option<&str>) -> Option<&SpeedProfile> {
        self.profiles.get(&size.map(str::to_string))
    }

    /// The factor by which the rate of requests is expected to rise: 1 unless a trend is believed.
    fn rise(&self) -> f64 {
        let Some(rate) = &self.rate else { return 1.0 };
        let now = rate.smoothed();
        if now > 0.0 { (rate.coming() / now).clamp(1.0, RISE_MAX) } else { 1.0 }
    }
}

/// The part of a top that is in use.
fn in_use_of(top: &Top, one: &BackendSample) -> f64 {
    let crowd = one.in_flight.max(0.0) / top.in_flight;
    let by_speed = speed(one).map_or(0.0, |speed| speed / top.speed);
    // Below the top a crowd is a burst, unless it is a large one: that slows answers past the top. At the top it is
    // demand that speed no longer shows.
    let is_demand = by_speed >= AT_TOP || crowd >= LARGE_CROWD;
    let in_use = if is_demand { crowd.max(by_speed) } else { by_speed };
    in_use.min(IN_USE_MAX)
}

/// V = N/T, requests per second.
fn speed(one: &BackendSample) -> Option<f64> {
    let response_s = one.response?.as_secs_f64();
    let speed = one.in_flight / response_s;
    (speed.is_finite() && speed >= 0.0).then_some(speed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(in_flight: f64, response_ms: u64) -> PoolSample {
        let response = Some(Duration::from_millis(response_ms));
        let one = BackendSample { in_flight, response, ..BackendSample::default() };
        PoolSample { backends: [("a".to_string(), one)].into(), queued: 0.0 }
    }

    fn told(samples: impl IntoIterator<Item = PoolSample>) -> PoolHistory {
        let mut history = PoolHistory::default();
        for (at, sample) in (0..).zip(samples) {
            history.observe(&Smoothing::default(), Duration::from_secs(at), &sample);
        }
        history
    }

    #[test]
    fn before_a_top_was_seen_slower_answers_tell_of_use() {
        let idle = vec![sample(1.0, 10); 10];
        let busy = vec![sample(4.0, 25); 20];
        let history = told(idle.into_iter().chain(busy));
        let in_use = history.in_use("a").unwrap();
        assert!((0.55..0.65).contains(&in_use), "{in_use}");
    }

    #[test]
    fn past_the_top_use_is_by_what_is_in_flight() {
        let rising = [1.0, 2.0, 4.0, 8.0].map(|n| vec![sample(n, 10); 5]);
        let crowded = vec![sample(32.0, 40); 30];
        let history = told(rising.into_iter().flatten().chain(crowded));
        let in_use = history.in_use("a").unwrap();
        assert!((2.5..4.5).contains(&in_use), "{in_use}");
    }

    #[test]
    fn a_learnt_limit_is_believed_first() {
        let mut one = sample(6.0, 10);
        one.backends.get_mut("a").unwrap().limit = Some(8.0);
        assert_eq!(told(vec![one; 5]).in_use("a"), Some(0.75));
    }

    #[test]
    fn an_idle_backend_is_not_in_use_and_an_unknown_one_unknown() {
        let history = told([sample(0.0, 10)]);
        assert_eq!((history.in_use("a"), history.in_use("b")), (Some(0.0), None));
    }

    #[test]
    fn nonsense_makes_nothing_known() {
        let mut one = sample(f64::NAN, 10);
        one.queued = f64::NEG_INFINITY;
        let history = told([one]);
        assert_eq!((history.in_use("a"), history.queued()), (None, 0.0));
    }

    #[test]
    fn what_plans_remember_is_gone_by_until_more_is_measured() {
        let top = Some(Top { speed: 40.0, in_flight: 1.0, age: Duration::ZERO });
        let known = |top| {
            let (from, upto, age) = (1.0, 24.0, Duration::ZERO);
            Known { size: None, response_s: 0.025, from, upto, top, age }
        };
        let in_use = |known: Known, samples: Vec<PoolSample>| {
            let mut history = PoolHistory::default();
            history.recall(&Learnt { known: vec![known], probe: None });
            for (at, sample) in (0..).zip(samples) {
                history.observe(&Smoothing::default(), Duration::from_secs(at), &sample);
            }
            history.in_use("a").unwrap()
        };
        let full = || vec![sample(24.0, 600); 10];
        assert!(in_use(known(None), full()) > 0.9, "answers were faster once");
        assert!(in_use(known(top), full()) > 20.0, "it is as fast as it gets");
        let faster = in_use(known(top), vec![sample(24.0, 25); 10]);
        assert!(faster < 0.1, "24 at once take no longer than one: {faster}");
    }

    #[test]
    fn processors_in_use_are_known_of_those_that_somebody_sees() {
        let mut one = sample(1.0, 10);
        one.backends.get_mut("a").unwrap().cpu = Some(0.9);
        let history = told(vec![one; 5]);
        assert!((0.89..0.91).contains(&history.cpu("a").unwrap()), "{:?}", history.cpu("a"));
        assert_eq!(told([sample(1.0, 10)]).cpu("a"), None);
    }
}
