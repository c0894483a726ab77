use std::time::Duration;

/// Where a backend works, by the requests in flight and its learned knee or stated limit.
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

    /// The region of a backend with a stated limit. Its knee is unknown, so the limit counts as the
    /// best number, and no region is [`Region::Rising`].
    pub fn of_stated(in_flight: u32, limit: u32) -> Region {
        match in_flight {
            few if few.saturating_mul(2) < limit => Region::UnderUsed,
            some if some <= limit => Region::Best,
            _ => Region::Over,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stated_limit_is_the_best_number_and_less_than_half_of_it_is_under_used() {
        let rows = [
            (0, 40, Region::UnderUsed),
            (19, 40, Region::UnderUsed),
            (20, 40, Region::Best),
            (40, 40, Region::Best),
            (41, 40, Region::Over),
            (0, 1, Region::UnderUsed),
            (1, 1, Region::Best),
            (1, 0, Region::Over),
            (u32::MAX, u32::MAX, Region::Best),
        ];
        for (in_flight, limit, region) in rows {
            assert_eq!(Region::of_stated(in_flight, limit), region, "{in_flight} of {limit}");
        }
    }
}
