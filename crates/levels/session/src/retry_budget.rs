//! The share of a pool's requests that may be retried.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use equipoise_basics::lock;

/// Retries a second that are permitted however few requests there are.
const FLOOR: f64 = 10.0;

/// Requests count for about this long.
const MEMORY: Duration = Duration::from_secs(10);

/// Bounds a pool's retries to a share of its recent requests, so that retries cannot multiply an
/// overload.
///
/// Each request deposits its share of a retry, time deposits [`FLOOR`] retries a second, and a
/// retry withdraws one. The balance decays with [`MEMORY`], so that at a constant rate it holds
/// what that time deposits. Only retries look at it; requests are counted anyway.
///
/// # Source
/// Finagle's `RetryBudget` and linkerd's (10 retries a second beside a share of requests, of 10 s).
/// Deviates: deposits decay one by one instead of expiring by the second, and are computed when a
/// retry asks.
#[derive(Debug)]
pub struct RetryBudget(Mutex<Balance>);

#[derive(Debug)]
struct Balance {
    retries: f64,
    /// Requests of each backend at that time, by its id. `None` before the first retry.
    requests: Option<HashMap<u32, u64>>,
    at: Instant,
}

impl RetryBudget {
    /// The budget of a pool that has had no request yet.
    pub fn new(now: Instant) -> RetryBudget {
        let retries = FLOOR * MEMORY.as_secs_f64();
        RetryBudget(Mutex::new(Balance { retries, requests: None, at: now }))
    }

    /// Withdraws a retry; false if the budget is used up. `requests` are those of each backend so
    /// far, by its id, of which `share` may be retried; a share of 1.0 has no bound.
    pub(crate) fn try_retry(
        &self,
        share: f64,
        requests: impl Iterator<Item = (u32, u64)>,
        now: Instant,
    ) -> bool {
        if share >= 1.0 {
            return true;
        }
        let mut balance = lock(&self.0);
        balance.update(share, requests.collect(), now);
        let is_permitted = balance.retries >= 1.0;
        if is_permitted {
            balance.retries -= 1.0;
        }
        is_permitted
    }
}

impl Balance {
    /// Brings the balance up to `now`, as if requests had come evenly since.
    ///
    /// A backend that was not among the last ones deposits nothing: its counter holds requests of
    /// long ago.
    fn update(&mut self, share: f64, requests: HashMap<u32, u64>, now: Instant) {
        let memory = MEMORY.as_secs_f64();
        let elapsed = now.saturating_duration_since(self.at).as_secs_f64().max(1e-6);
        let kept = (-elapsed / memory).exp();
        let new: u64 = match &self.requests {
            None => requests.values().sum(),
            Some(before) => requests
                .iter()
                .filter_map(|(id, count)| Some(count.saturating_sub(*before.get(id)?)))
                .sum(),
        };
        let deposits = (share * new as f64 / elapsed + FLOOR) * memory * (1.0 - kept);
        self.retries = self.retries * kept + deposits;
        self.requests = Some(requests);
        self.at = now.max(self.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `asked` retries are permitted at one moment.
    fn permitted(budget: &RetryBudget, asked: u32, requests: u64, now: Instant) -> u32 {
        (0..asked).map(|_| u32::from(budget.try_retry(0.1, [(1, requests)].into_iter(), now))).sum()
    }

    #[test]
    fn a_pool_with_few_requests_gets_the_minimum_retries() {
        let start = Instant::now();
        let budget = RetryBudget::new(start);
        assert_eq!(permitted(&budget, 1000, 0, start), 100);
        let second = permitted(&budget, 1000, 0, start + Duration::from_secs(1));
        assert!((8..=10).contains(&second), "{second}");
    }

    #[test]
    fn a_steady_load_may_retry_its_share() {
        let start = Instant::now();
        let budget = RetryBudget::new(start);
        let mut retries = 0;
        for second in 1..=60 {
            let now = start + Duration::from_secs(second);
            retries += permitted(&budget, 5000, second * 5000, now);
        }
        // 10 % of 300,000, and 10 a second, less what decays.
        assert!((28_000..=30_800).contains(&retries), "{retries}");
    }

    #[test]
    fn unused_retries_accumulate_only_for_the_memory_period() {
        let start = Instant::now();
        let budget = RetryBudget::new(start);
        let hour = start + Duration::from_secs(3600);
        let retries = permitted(&budget, 100_000, 3_600_000, hour);
        // 1,000 requests a second for 10 s.
        assert!((1000..=1100).contains(&retries), "{retries}");
    }

    #[test]
    fn a_retry_share_of_one_permits_every_retry() {
        let now = Instant::now();
        let budget = RetryBudget::new(now);
        assert!((0..1000).all(|_| budget.try_retry(1.0, [].into_iter(), now)));
    }

    #[test]
    fn a_returning_backend_adds_no_retries_for_past_requests() {
        let start = Instant::now();
        let budget = RetryBudget::new(start);
        let both = [(1, 10_000_000), (2, 10_000_000)];
        let at = |second: u64| start + Duration::from_secs(second);
        while budget.try_retry(0.1, both.into_iter(), at(1)) {}
        while budget.try_retry(0.1, both[..1].iter().copied(), at(100)) {}
        let permitted =
            |now| (0..1000).filter(|_| budget.try_retry(0.1, both.into_iter(), now)).count();
        assert!(permitted(at(101)) <= 10);
        assert!(permitted(at(102)) <= 10);
    }
}
