use std::collections::BTreeMap;
use std::time::Duration;

use equipoise_core::load::{Forecaster, Smoothing};
use serde::{Deserialize, Serialize};

use crate::elasticity::Target;

/// A pool in one period, as all balancers together saw it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolSample {
    /// By backend.
    pub backends: BTreeMap<String, BackendSample>,
    /// Mean number of requests in the queues of the balancers.
    #[serde(default)]
    pub queued: f64,
    /// A queue stands: it was never empty in the second half of the period.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_standing: bool,
    /// Requests a second that arrived beyond those that got a backend: growth of the queues, and
    /// requests that left a queue without a backend. Negative while queues shrink.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub excess: f64,
}

/// A backend in one period, as all balancers together saw it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BackendSample {
    /// Mean number of requests in flight: N.
    pub in_flight: f64,
    /// Mean time for which a request that was answered held its permit: T. `None` if no response
    /// was complete.
    #[serde(default)]
    pub response: Option<Duration>,
    /// The concurrency limit, or the number in flight at which the backend serves most if the limit
    /// is learnt; `None` without one.
    #[serde(default)]
    pub limit: Option<f64>,
    /// True if the limit is the initial one, before learning.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_guess: bool,
    /// Requests in flight without a permit at the end of the period: tunnels, and requests of slow
    /// clients.
    #[serde(default, skip_serializing_if = "is_none_open")]
    pub open: u32,
    /// Its size, if its pool has sizes.
    #[serde(default)]
    pub size: Option<String>,
}

/// The recent demand of a pool's backends.
#[derive(Clone, Debug, Default)]
pub struct PoolHistory {
    latest: PoolSample,
    is_partial: bool,
    in_flight: BTreeMap<String, Forecaster>,
    concurrency: Option<Forecaster>,
    rate: Option<Forecaster>,
}

/// Work for a pool, in the unit of its target.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Demand {
    /// In the last period.
    pub(crate) now: f64,
    /// Expected in the coming period.
    pub(crate) coming: f64,
}

/// Largest factor by which demand is expected to rise in one period.
const RISE_MAX: f64 = 1.5;
/// Excess below this part of the rate of answers: the queue neither grows nor overflows.
const STEADY: f64 = 0.05;

impl PoolHistory {
    pub(crate) fn observe(&mut self, smoothing: &Smoothing, at: Duration, sample: &PoolSample) {
        let take = |forecaster: &mut Option<Forecaster>, now: f64| {
            let begin = || Forecaster::new(*smoothing, f64::MAX, at, now);
            forecaster.get_or_insert_with(begin).observe(at, now);
        };
        self.in_flight.retain(|backend, _| sample.backends.contains_key(backend));
        for (backend, one) in &sample.backends {
            let now = sane(one.in_flight);
            let begin = || Forecaster::new(*smoothing, f64::MAX, at, now);
            self.in_flight.entry(backend.clone()).or_insert_with(begin).observe(at, now);
        }
        take(&mut self.concurrency, sample.concurrency());
        take(&mut self.rate, sample.arrivals());
        self.latest = sample.clone();
        self.is_partial = false;
    }

    /// Marks the sample as incomplete: a balancer of the pool did not report in the last period.
    pub(crate) fn doubt(&mut self) {
        self.is_partial = true;
    }

    /// Whether a balancer is missing from the last period's sample.
    pub fn is_partial(&self) -> bool {
        self.is_partial
    }

    /// Requests in flight at a backend, smoothed; `None` if no balancer has it.
    pub fn in_flight(&self, backend: &str) -> Option<f64> {
        self.in_flight.get(backend).map(Forecaster::smoothed)
    }

    /// Mean number of requests in queues in the last period.
    pub fn queued(&self) -> f64 {
        sane(self.latest.queued)
    }

    /// True if a queue stands.
    pub(crate) fn is_standing(&self) -> bool {
        self.latest.is_standing
    }

    /// True if the queues shrink.
    pub(crate) fn is_shrinking(&self) -> bool {
        self.latest.excess < -STEADY * self.latest.answers()
    }

    /// Requests that are open without a permit, such as tunnels.
    pub(crate) fn open(&self) -> u64 {
        self.latest.backends.values().map(|one| u64::from(one.open)).sum()
    }

    /// Requests a second that were answered in the last period.
    pub(crate) fn answers(&self) -> f64 {
        sane(self.latest.answers())
    }

    /// True if no request came, waited or held a permit in the last period.
    pub(crate) fn is_quiet(&self) -> bool {
        self.latest.concurrency() == 0.0 && self.latest.arrivals() == 0.0 && self.queued() == 0.0
    }

    /// True if balancers have the backend.
    pub(crate) fn has(&self, backend: &str) -> bool {
        self.latest.backends.contains_key(backend)
    }

    /// A backend's concurrency limit, if it is known.
    pub(crate) fn limit(&self, backend: &str) -> Option<f64> {
        self.limit_if(backend, false)
    }

    /// The initial limit of a backend that has not learnt one.
    pub(crate) fn guess(&self, backend: &str) -> Option<f64> {
        self.limit_if(backend, true)
    }

    fn limit_if(&self, backend: &str, is_guess: bool) -> Option<f64> {
        let one = self.latest.backends.get(backend).filter(|one| one.is_guess == is_guess)?;
        one.limit.filter(|limit| limit.is_finite() && *limit > 0.0)
    }

    pub(crate) fn demand(&self, target: Target) -> Demand {
        let (now, forecaster) = match target {
            Target::InUse(_) | Target::Concurrency(_) => {
                (self.latest.concurrency(), &self.concurrency)
            }
            Target::Requests(_) => (self.latest.arrivals(), &self.rate),
        };
        let coming =
            forecaster.as_ref().map_or(0.0, |one| one.coming().min(RISE_MAX * one.smoothed()));
        Demand { now, coming }
    }
}

impl PoolSample {
    /// Requests that would be in flight at once if none had to wait.
    /// By Little's law, requests that arrive beyond those that get a backend would be `excess * T`
    /// in flight: this is the backlog of a queue that grows, overflows or shrinks. A queue that
    /// stands with constant length consists of clients that wait for a response before their next
    /// request. Each of them would be in flight.
    fn concurrency(&self) -> f64 {
        let in_flight: f64 = self.backends.values().map(|one| sane(one.in_flight)).sum();
        let (answers, queued) = (self.answers(), sane(self.queued));
        let is_steady = self.is_standing && self.excess.abs() <= STEADY * answers;
        if is_steady || answers == 0.0 {
            return in_flight + queued;
        }
        let busy: f64 = self.answering().map(|(in_flight, _)| in_flight).sum();
        sane(in_flight + self.excess * busy / answers)
    }

    /// Requests a second.
    fn arrivals(&self) -> f64 {
        sane(self.answers() + self.excess)
    }

    /// Answers a second: N/T.
    fn answers(&self) -> f64 {
        self.answering().map(|(in_flight, response_s)| in_flight / response_s).sum()
    }

    /// N and T in seconds of each backend with responses.
    fn answering(&self) -> impl Iterator<Item = (f64, f64)> {
        let one = |one: &BackendSample| {
            let response_s = one.response?.as_secs_f64();
            (response_s > 0.0).then(|| (sane(one.in_flight), response_s))
        };
        self.backends.values().filter_map(one)
    }
}

/// A number from another process; 0 if it is negative or not finite.
fn sane(value: f64) -> f64 {
    if value.is_finite() { value.max(0.0) } else { 0.0 }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_none_open(value: &u32) -> bool {
    *value == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(in_flight: f64, response_ms: u64, queued: f64, excess: f64) -> PoolSample {
        let response = Some(Duration::from_millis(response_ms));
        let one = BackendSample { in_flight, response, ..BackendSample::default() };
        let backends = [("a".to_string(), one)].into();
        PoolSample { backends, queued, is_standing: queued > 0.0, excess }
    }

    #[test]
    fn demand_counts_the_requests_in_flight_as_if_none_waited() {
        // In flight, response time in ms, queued, excess; concurrency and requests a second.
        let rows = [
            // Two slots of 40 ms serve 50 a second.
            (2.0, 40, 0.0, 0.0, 2.0, 50.0),
            // 100 a second more than that arrive, and either wait or are refused.
            (2.0, 40, 50.0, 100.0, 6.0, 150.0),
            // The backlog shrinks, while 20 a second arrive.
            (2.0, 40, 50.0, -30.0, 0.8, 20.0),
            // 24 clients that send the next request after each response.
            (2.0, 40, 22.0, 0.0, 24.0, 50.0),
        ];
        for (in_flight, response_ms, queued, excess, concurrency, rate) in rows {
            let sample = sample(in_flight, response_ms, queued, excess);
            assert!((sample.concurrency() - concurrency).abs() < 1e-9, "{sample:?}");
            assert!((sample.arrivals() - rate).abs() < 1e-9, "{sample:?}");
        }
        let empty = PoolSample { queued: 3.0, is_standing: true, ..PoolSample::default() };
        assert_eq!(empty.concurrency(), 3.0, "no backend answers");
    }

    #[test]
    fn invalid_samples_give_no_demand() {
        let mut one = sample(f64::NAN, 0, f64::NEG_INFINITY, f64::NAN);
        one.is_standing = true;
        let mut history = PoolHistory::default();
        history.observe(&Smoothing::default(), Duration::ZERO, &one);
        assert_eq!((history.in_flight("a"), history.queued()), (Some(0.0), 0.0));
        for target in [Target::InUse(0.8), Target::Requests(1.0)] {
            assert_eq!(history.demand(target), Demand::default());
        }
    }

    #[test]
    fn a_report_of_an_earlier_version_is_read() {
        let old = r#"{"backends":{"a":{"in_flight":1.0,"cpu":0.5}},"queued":2.0}"#;
        let read: PoolSample = serde_json::from_str(old).unwrap();
        assert_eq!((read.backends["a"].in_flight, read.queued), (1.0, 2.0));
    }
}
