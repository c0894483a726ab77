use serde::{Deserialize, Serialize};

/// Use of the concurrency limits of a node's application, averaged over a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Occupancy {
    /// Requests in flight at the application.
    pub in_flight: f64,
    /// Requests of the node's clients in the application's queue.
    pub queued: f64,
    /// Sum of the limits of the application's backends, above 0.
    pub limit: f64,
}

impl Occupancy {
    /// Whether such numbers can be measured.
    pub fn is_sane(&self) -> bool {
        let fine = |value: f64| value.is_finite() && value >= 0.0;
        fine(self.in_flight) && fine(self.queued) && fine(self.limit) && self.limit > 0.0
    }

    /// Requests that the node's clients demand, in per cent of the limit, whichever node serves
    /// them. `offered_per_done` is the demand relative to the requests that this node serves.
    pub(super) fn offered_percent(&self, offered_per_done: f64) -> f64 {
        100.0 * (self.in_flight * offered_per_done + self.queued) / self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offered_percent_scales_requests_in_flight_and_not_the_queue() {
        let one = Occupancy { in_flight: 6.0, queued: 2.0, limit: 10.0 };
        for (offered_per_done, percent) in [(1.0, 80.0), (0.5, 50.0), (2.0, 140.0), (0.0, 20.0)] {
            assert_eq!(one.offered_percent(offered_per_done), percent, "{offered_per_done}");
        }
    }

    #[test]
    fn an_occupancy_with_impossible_numbers_is_not_sane() {
        let fine = Occupancy { in_flight: 0.0, queued: 0.0, limit: 1.0 };
        assert!(fine.is_sane());
        for wrong in [
            Occupancy::default(),
            Occupancy { in_flight: -1.0, ..fine },
            Occupancy { queued: f64::INFINITY, ..fine },
            Occupancy { limit: f64::NAN, ..fine },
        ] {
            assert!(!wrong.is_sane(), "{wrong:?}");
        }
    }
}
