//! Schedulers of new flows, by their names in the configuration.

use std::fmt;

use crate::abi::Pick;

/// How a new flow's backend is picked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FlowScheduler {
    /// Maglev's table: all balancers of a fleet pick the same backend.
    #[default]
    Maglev,
    /// The same table, as a flow's hash is its random number.
    WeightedRandom,
    /// LVS `rr`.
    RoundRobin,
    /// LVS `wrr`.
    WeightedRoundRobin,
    /// LVS `lc`.
    LeastConnection,
    /// LVS `wlc`.
    WeightedLeastConnection,
    /// LVS `sed`: the shortest expected delay.
    Sed,
    /// LVS `nq`: never queue.
    Nq,
    /// LVS `sh`: source hashing.
    Sh,
}

impl FlowScheduler {
    /// Name in the configuration, scheduler and meaning of each, in the order of the variants.
    pub const CHOICES: [(&str, FlowScheduler, &str); 9] = [
        (
            "maglev",
            FlowScheduler::Maglev,
            "a hash of the flow by weight; all balancers of a fleet pick the same backend",
        ),
        (
            "weighted-random",
            FlowScheduler::WeightedRandom,
            "the same table as `maglev`: a flow's hash is its random number",
        ),
        ("round-robin", FlowScheduler::RoundRobin, "each in turn, independent of weight"),
        (
            "weighted-round-robin",
            FlowScheduler::WeightedRoundRobin,
            "turns in proportion to weight",
        ),
        ("least-connection", FlowScheduler::LeastConnection, "fewest flows, independent of weight"),
        (
            "weighted-least-connection",
            FlowScheduler::WeightedLeastConnection,
            "fewest flows in proportion to weight",
        ),
        (
            "sed",
            FlowScheduler::Sed,
            "LVS's shortest expected delay: fewest active flows, the new one included, in proportion to weight",
        ),
        (
            "nq",
            FlowScheduler::Nq,
            "LVS's never queue: the first backend without active flows, else as `sed`",
        ),
        (
            "sh",
            FlowScheduler::Sh,
            "LVS's source hashing: 256 buckets by the client's address; a change of the pool moves most clients",
        ),
    ];

    /// Name in the configuration.
    pub const fn name(self) -> &'static str {
        FlowScheduler::CHOICES[self as usize].0
    }

    /// The program's method.
    pub const fn pick(self) -> Pick {
        match self {
            FlowScheduler::Maglev | FlowScheduler::WeightedRandom => Pick::Ring,
            FlowScheduler::RoundRobin | FlowScheduler::WeightedRoundRobin => Pick::Sequence,
            FlowScheduler::LeastConnection => Pick::Least,
            FlowScheduler::WeightedLeastConnection => Pick::LeastWeighted,
            FlowScheduler::Sed => Pick::ExpectedDelay,
            FlowScheduler::Nq => Pick::NeverQueue,
            FlowScheduler::Sh => Pick::SourceBucket,
        }
    }

    /// Whether weights affect it.
    pub const fn is_weighted(self) -> bool {
        !matches!(self, FlowScheduler::RoundRobin | FlowScheduler::LeastConnection)
    }
}

impl fmt::Display for FlowScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choices_are_in_the_order_of_the_variants() {
        for (name, scheduler, _) in FlowScheduler::CHOICES {
            assert_eq!(scheduler.name(), name);
        }
    }
}
