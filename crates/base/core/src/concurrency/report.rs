use std::time::Duration;

/// Where a backend works, by the requests in flight and its learned knee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// The limit never bound for long enough to learn a knee.
    NotEnoughSeen,
    /// Less than half of the knee is in flight.
    UnderUsed,
    /// One more request in flight brings more throughput.
    Rising,
    /// Throughput is at its top.
    Best,
    /// More is in flight than the limit, for instance because the limit has just fallen.
    Over,
}

impl Region {
    pub(super) fn of(in_flight: f64, knee: Option<f64>, limit: f64) -> Region {
        match knee {
            None => Region::NotEnoughSeen,
            Some(knee) if in_flight < 0.5 * knee => Region::UnderUsed,
            Some(knee) if in_flight < 0.9 * knee => Region::Rising,
            Some(_) if in_flight <= 1.1 * limit + 1.0 => Region::Best,
            Some(_) => Region::Over,
        }
    }
}

/// A learner's knowledge of its backend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// Requests that may be in flight.
    pub limit: u32,
    /// Requests that all balancers of the cluster together may have in flight. `None` if the limit
    /// is not shared.
    pub group_limit: Option<u32>,
    /// Requests in flight that do not count, because they take much longer than most.
    pub parked: u32,
    /// Number in flight from which throughput stops growing.
    pub knee: Option<f64>,
    /// Throughput at the held limit while requests wait, in answers a second.
    pub answers_per_second: Option<f64>,
    /// Mean time in flight.
    pub service_time: Duration,
    /// Where the backend works.
    pub region: Region,
}
