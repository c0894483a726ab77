use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schedulers, by their names in the configuration. A new one needs a variant, a row of
/// [`SchedulerKind::CHOICES`] and a file beside this one.
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
    /// Name in the configuration, scheduler and meaning of each, in the order of the variants.
    pub const CHOICES: [(&str, SchedulerKind, &str); 10] = [
        ("round-robin", SchedulerKind::RoundRobin, "each in turn, independent of weight"),
        (
            "weighted-round-robin",
            SchedulerKind::WeightedRoundRobin,
            "turns in proportion to weight, evenly interleaved",
        ),
        (
            "least-connection",
            SchedulerKind::LeastConnection,
            "fewest in flight, independent of weight",
        ),
        (
            "weighted-least-connection",
            SchedulerKind::WeightedLeastConnection,
            "fewest in flight in proportion to weight",
        ),
        ("weighted-random", SchedulerKind::WeightedRandom, "a random one, in proportion to weight"),
        ("power-of-two", SchedulerKind::PowerOfTwo, "the less loaded of two random ones"),
        (
            "least-time",
            SchedulerKind::LeastTime,
            "the better of two random ones by response time, multiplied by the number in flight",
        ),
        (
            "prequal",
            SchedulerKind::Prequal,
            "like least-connection among backends with similar response times; a slower one counts as if it had more in \
             flight",
        ),
        ("maglev", SchedulerKind::Maglev, "a hash of the flow, consistent when backends change"),
        (
            "source-hash",
            SchedulerKind::SourceHash,
            "a hash of the client's address, or of the part of requests that `hash-by` names",
        ),
    ];

    /// All, in the order of the documentation.
    pub const ALL: [SchedulerKind; SchedulerKind::CHOICES.len()] = {
        let mut all = [SchedulerKind::RoundRobin; SchedulerKind::CHOICES.len()];
        let mut at = 0;
        while at < all.len() {
            all[at] = SchedulerKind::CHOICES[at].1;
            at += 1;
        }
        all
    };

    /// The name in the configuration.
    pub const fn name(self) -> &'static str {
        SchedulerKind::CHOICES[self as usize].0
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
