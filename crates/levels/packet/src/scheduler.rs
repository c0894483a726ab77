//! Schedulers of new flows, by their names in the configuration.

use std::fmt;

use crate::abi::Pick;

/// How a new flow's backend is picked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scheduler {
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

impl Scheduler {
    /// Name in the configuration, scheduler and meaning of each, in the order of the variants.
    pub const CHOICES: [(&str, Scheduler, &str); 9] = [
        (
            "maglev",
            Scheduler::Maglev,
            "a hash of the flow by weight; all balancers of a fleet pick the same backend",
        ),
        (
            "weighted-random",
            Scheduler::WeightedRandom,
            "the same table as `maglev`: a flow's hash is its random number",
        ),
        ("round-robin", Scheduler::RoundRobin, "each in turn, independent of weight"),
        ("weighted-round-robin", Scheduler::WeightedRoundRobin, "turns in proportion to weight"),
        ("least-connection", Scheduler::LeastConnection, "fewest flows, independent of weight"),
        (
            "weighted-least-connection",
            Scheduler::WeightedLeastConnection,
            "fewest flows in proportion to weight",
        ),
        (
            "sed",
            Scheduler::Sed,
            "LVS's shortest expected delay: fewest active flows, the new one included, in proportion to weight",
        ),
        (
            "nq",
            Scheduler::Nq,
            "LVS's never queue: the first backend without active flows, else as `sed`",
        ),
        (
            "sh",
            Scheduler::Sh,
            "LVS's source hashing: 256 buckets by the client's address; a change of the pool moves most clients",
        ),
    ];

    /// Name in the configuration.
    pub const fn name(self) -> &'static str {
        Scheduler::CHOICES[self as usize].0
    }

    /// The program's method.
    pub const fn pick(self) -> Pick {
        match self {
            Scheduler::Maglev | Scheduler::WeightedRandom => Pick::Ring,
            Scheduler::RoundRobin | Scheduler::WeightedRoundRobin => Pick::Sequence,
            Scheduler::LeastConnection => Pick::Least,
            Scheduler::WeightedLeastConnection => Pick::LeastWeighted,
            Scheduler::Sed => Pick::ExpectedDelay,
            Scheduler::Nq => Pick::NeverQueue,
            Scheduler::Sh => Pick::SourceBucket,
        }
    }

    /// Whether weights affect it.
    pub const fn is_weighted(self) -> bool {
        !matches!(self, Scheduler::RoundRobin | Scheduler::LeastConnection)
    }
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choices_are_in_the_order_of_the_variants() {
        for (name, scheduler, _) in Scheduler::CHOICES {
            assert_eq!(scheduler.name(), name);
        }
    }
}
