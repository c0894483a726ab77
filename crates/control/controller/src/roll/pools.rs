use std::time::Duration;

use equipoise_planner::elastic::{BackendSample, PoolSample};

/// Combines the observations of several balancers of one pool; `None` if there are none.
///
/// Requests in flight, queues and limits are added. The limit of a balancer is left out if the
/// balancer sent the backend nothing in the period or has not learnt it yet, unless that is true of
/// all balancers. The response time is the mean over answers: each balancer's mean is weighted by
/// the answers that it had in the period, which by Little's law are in proportion to N/T.
pub(super) fn together<'a>(samples: impl Iterator<Item = &'a PoolSample>) -> Option<PoolSample> {
    let mut sum: Option<PoolSample> = None;
    for sample in samples {
        let Some(sum) = &mut sum else {
            sum = Some(sample.clone());
            continue;
        };
        sum.queued += sample.queued;
        sum.excess += sample.excess;
        sum.is_standing |= sample.is_standing;
        for (name, one) in &sample.backends {
            match sum.backends.get_mut(name) {
                Some(all) => add(all, one),
                None => drop(sum.backends.insert(name.clone(), one.clone())),
            }
        }
    }
    sum
}

fn add(all: &mut BackendSample, one: &BackendSample) {
    all.response = match (all.response, one.response) {
        (Some(some), Some(others)) => Some(mean_response(all, some, one, others)),
        (some, others) => some.or(others),
    };
    let says_something = |it: &BackendSample| it.in_flight > 0.0 && !it.is_guess;
    match (says_something(all), says_something(one)) {
        // If one balancer has no limit, the sum has none.
        (true, true) => all.limit = all.limit.zip(one.limit).map(|(some, others)| some + others),
        (true, false) => {}
        (false, true) => (all.limit, all.is_guess) = (one.limit, false),
        (false, false) if all.is_guess == one.is_guess => {
            all.limit = all.limit.into_iter().chain(one.limit).reduce(f64::max);
        }
        (false, false) if all.is_guess => (all.limit, all.is_guess) = (one.limit, false),
        (false, false) => {}
    }
    all.in_flight += one.in_flight;
    all.open = all.open.saturating_add(one.open);
    if all.size.is_none() {
        all.size.clone_from(&one.size);
    }
}

fn mean_response(
    all: &BackendSample,
    some: Duration,
    one: &BackendSample,
    others: Duration,
) -> Duration {
    let rate = |in_flight: f64, response: Duration| in_flight / response.as_secs_f64().max(1e-9);
    let answers = rate(all.in_flight, some) + rate(one.in_flight, others);
    if answers > 0.0 {
        let mean_s = (all.in_flight + one.in_flight) / answers;
        // The mean lies between the two values, so it fits into a `Duration`.
        Duration::try_from_secs_f64(mean_s).unwrap_or(some)
    } else {
        some.max(others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(in_flight: f64, response_ms: u64) -> PoolSample {
        let response = Some(Duration::from_millis(response_ms));
        let one = BackendSample { in_flight, response, limit: Some(4.0), ..Default::default() };
        let backends = [("a".to_string(), one)].into();
        PoolSample { backends, queued: 1.0, is_standing: in_flight > 1.0, excess: -0.5 }
    }

    #[test]
    fn samples_of_two_balancers_are_combined() {
        // 100 answers a second of 10 ms, and 100 of 30 ms: 20 ms on average, and four in flight.
        let both = together([sample(1.0, 10), sample(3.0, 30)].iter()).unwrap();
        let one = &both.backends["a"];
        assert_eq!((one.in_flight, one.limit, both.queued), (4.0, Some(8.0), 2.0));
        assert_eq!((both.is_standing, both.excess), (true, -1.0));
        assert_eq!(one.response.unwrap().as_millis(), 20);
    }

    #[test]
    fn limits_add_up_only_over_balancers_with_requests_in_flight() {
        let limit = |in_flight: &[f64]| {
            let samples: Vec<_> = in_flight.iter().map(|now| sample(*now, 10)).collect();
            together(samples.iter()).unwrap().backends["a"].limit
        };
        assert_eq!(limit(&[1.0, 0.0, 0.0]), Some(4.0));
        assert_eq!(limit(&[0.0, 0.0, 1.0]), Some(4.0));
        assert_eq!(limit(&[1.0, 0.0, 2.0]), Some(8.0));
        assert_eq!(limit(&[0.0, 0.0]), Some(4.0));
    }

    #[test]
    fn no_samples_give_none_and_idle_backends_never_divide_by_zero() {
        assert_eq!(together([].iter()), None);
        let idle = together([sample(0.0, 10), sample(0.0, 30)].iter()).unwrap();
        assert_eq!(idle.backends["a"].response, Some(Duration::from_millis(30)));
        let zero = together([sample(1.0, 0), sample(1.0, 0)].iter()).unwrap();
        assert!(zero.backends["a"].response.is_some());
    }
}
