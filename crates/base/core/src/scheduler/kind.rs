use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The ten schedulers, by their names in the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SchedulerKind {
    /// LVS `rr`: each in turn, independent of weight.
    RoundRobin,
    /// Smooth weighted round-robin: turns in proportion to weight, evenly interleaved.
    WeightedRoundRobin,
    /// LVS `lc`: fewest in flight.
    #[default]
    LeastConnection,
    /// LVS `wlc`: fewest in flight per weight.
    WeightedLeastConnection,
    /// A random one, in proportion to weight.
    WeightedRandom,
    /// The less loaded of two random ones.
    PowerOfTwo,
    /// The better of two random ones, by peak-EWMA response time times the number in flight.
    LeastTime,
    /// Prequal: of the less loaded half, the one that should respond first.
    Prequal,
    /// Maglev hashing of the flow: consistent when backends change.
    Maglev,
    /// A weighted hash of the source address.
    SourceHash,
}

impl SchedulerKind {
    /// All ten, in the order of the documentation.
    pub const ALL: [SchedulerKind; 10] = [
        SchedulerKind::RoundRobin,
        SchedulerKind::WeightedRoundRobin,
        SchedulerKind::LeastConnection,
        SchedulerKind::WeightedLeastConnection,
        SchedulerKind::WeightedRandom,
        SchedulerKind::PowerOfTwo,
        SchedulerKind::LeastTime,
        SchedulerKind::Prequal,
        SchedulerKind::Maglev,
        SchedulerKind::SourceHash,
    ];

    /// The name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            SchedulerKind::RoundRobin => "round-robin",
            SchedulerKind::WeightedRoundRobin => "weighted-round-robin",
            SchedulerKind::LeastConnection => "least-connection",
            SchedulerKind::WeightedLeastConnection => "weighted-least-connection",
            SchedulerKind::WeightedRandom => "weighted-random",
            SchedulerKind::PowerOfTwo => "power-of-two",
            SchedulerKind::LeastTime => "least-time",
            SchedulerKind::Prequal => "prequal",
            SchedulerKind::Maglev => "maglev",
            SchedulerKind::SourceHash => "source-hash",
        }
    }

    /// True if it uses response times. Otherwise they need not be recorded.
    pub const fn reads_response_time(self) -> bool {
        matches!(self, SchedulerKind::LeastTime | SchedulerKind::Prequal)
    }
}

impl fmt::Display for SchedulerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The name is not that of a scheduler.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{name}\" is not a scheduler; use one of {}", AllNames)]
pub struct UnknownScheduler {
    /// The given name.
    pub name: String,
}

struct AllNames;

impl fmt::Display for AllNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, kind) in SchedulerKind::ALL.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { ", " })?;
            f.write_str(kind.name())?;
        }
        Ok(())
    }
}

impl FromStr for SchedulerKind {
    type Err = UnknownScheduler;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        SchedulerKind::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| UnknownScheduler { name: name.to_owned() })
    }
}
