//! Divides the rates of limits on clients between the nodes of a cluster, by their demand.
//!
//! A node reports the demand for each shared limit as a [`Tally`], and receives those of the other
//! nodes in the answers of controllers, as for learned concurrency limits.

use std::collections::BTreeMap;
use std::time::Instant;

use equipoise_controller::{SharedBackend, Tallies};
use equipoise_core::concurrency::Tally;

use crate::level::{LimitDemand, Measured, Steered};
use crate::limit_share::share_of;

/// Part of a period's demand in the smoothed one.
const NEWEST: f64 = 0.5;

/// The demand of this node for each shared limit.
#[derive(Debug, Default)]
pub(super) struct Demands(BTreeMap<String, Demand>);

#[derive(Clone, Copy, Debug)]
struct Demand {
    /// The rate of all nodes together, a second.
    rate: f64,
    asked: u64,
    at: Instant,
    /// Smoothed, events a second.
    per_second: f64,
}

impl Demands {
    /// Measures the demand up to `now`, for the report.
    pub(super) fn measure(
        &mut self,
        level: &dyn Measured,
        balancer: u64,
        now: Instant,
    ) -> BTreeMap<SharedBackend, Tally> {
        let measured = level.shared_limits().into_iter().map(|limit| {
            let demand = Demand::after(self.0.get(&limit.name), &limit, now);
            (limit.name, demand)
        });
        self.0 = measured.collect();
        let tally = |(name, demand): (&String, &Demand)| {
            let (demand, finished) = (demand.per_second, demand.asked as f64);
            (name.clone(), Tally { balancer, demand, finished, ..Tally::default() })
        };
        self.0.iter().map(tally).collect()
    }

    /// Sets the share of each limit by the demands that other nodes reported.
    pub(super) fn share(&self, level: &dyn Steered, tallies: &Tallies) {
        for (name, own) in &self.0 {
            let others = tallies.get(name).map(Vec::as_slice).unwrap_or_default();
            let others: Vec<f64> = others.iter().map(|tally| tally.demand).collect();
            level.set_limit_share(name, share_of(own.rate, own.per_second, &others));
        }
    }
}

impl Demand {
    fn after(before: Option<&Demand>, limit: &LimitDemand, now: Instant) -> Demand {
        let (rate, asked) = (limit.per_second, limit.asked);
        let Some(before) = before else {
            return Demand { rate, asked, at: now, per_second: 0.0 };
        };
        let seconds = now.saturating_duration_since(before.at).as_secs_f64().max(1e-3);
        let newest = asked.saturating_sub(before.asked) as f64 / seconds;
        let per_second = before.per_second + NEWEST * (newest - before.per_second);
        Demand { rate, asked, at: now, per_second }
    }
}
