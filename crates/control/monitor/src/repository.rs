//! L3B's resource utilisation repository.

use std::collections::BTreeMap;
use std::time::Duration;

/// A ring of the history: `slots` slots of `resolution` each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier {
    /// Duration of a slot; at least a millisecond.
    pub resolution: Duration,
    /// Number of slots.
    pub slots: usize,
}

/// Limits of the history.
#[derive(Clone, Debug)]
pub struct RepositoryOptions {
    /// Rings. A sample goes into each of them, so that a late sample still goes into those that
    /// reach back far enough.
    pub tiers: Vec<Tier>,
    /// Maximum number of nodes; samples of further nodes are refused.
    pub nodes_max: usize,
    /// Maximum time that a sample may be ahead of our clock. A later one would empty the ring.
    pub ahead_max: Duration,
    /// Maximum number of points in one answer.
    pub points_max: usize,
}

impl Default for RepositoryOptions {
    /// 5 minutes in seconds, an hour in steps of 10 seconds, a day in steps of 5 minutes: about 75
    /// KB per node, for 1000 nodes.
    fn default() -> RepositoryOptions {
        let tier = |seconds, slots| Tier { resolution: Duration::from_secs(seconds), slots };
        RepositoryOptions {
            tiers: vec![tier(1, 300), tier(10, 360), tier(300, 288)],
            nodes_max: 1000,
            ahead_max: Duration::from_secs(5),
            points_max: 2000,
        }
    }
}

/// Report of a node for one time, in per cent. `None` is no signal.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// CPU.
    pub cpu_percent: Option<f64>,
    /// Memory.
    pub memory_percent: Option<f64>,
    /// The interface nearest to its link's speed.
    pub net_percent: Option<f64>,
    /// Time in which some task waited for a CPU.
    pub cpu_pressure_percent: Option<f64>,
    /// Time in which some task waited for memory.
    pub memory_pressure_percent: Option<f64>,
    /// Time in which some task waited for I/O.
    pub io_pressure_percent: Option<f64>,
    /// CPU as it was expected one report before.
    pub cpu_forecast_percent: Option<f64>,
}

impl Sample {
    /// Returns the signals in the order of a slot's sums.
    fn signals(&self) -> [Option<f64>; SIGNALS] {
        [
            self.cpu_percent,
            self.memory_percent,
            self.net_percent,
            self.cpu_pressure_percent,
            self.memory_pressure_percent,
            self.io_pressure_percent,
            self.cpu_forecast_percent,
        ]
    }
}

impl From<&crate::Utilisation> for Sample {
    fn from(used: &crate::Utilisation) -> Sample {
        Sample {
            cpu_percent: used.cpu_percent,
            memory_percent: used.memory_percent,
            net_percent: used.net_percent,
            cpu_pressure_percent: used.cpu_pressure_percent,
            memory_pressure_percent: used.memory_pressure_percent,
            io_pressure_percent: used.io_pressure_percent,
            cpu_forecast_percent: None,
        }
    }
}

/// Statistics of a signal over a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Mean.
    pub mean_percent: f64,
    /// Maximum.
    pub max_percent: f64,
    /// Number of samples.
    pub samples: u32,
}

/// Signals of a node over one step of an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Start of the step, since the Unix epoch.
    pub at: Duration,
    /// CPU.
    pub cpu: Option<Spread>,
    /// Memory.
    pub memory: Option<Spread>,
    /// Network.
    pub net: Option<Spread>,
    /// CPU pressure.
    pub cpu_pressure: Option<Spread>,
    /// Memory pressure.
    pub memory_pressure: Option<Spread>,
    /// I/O pressure.
    pub io_pressure: Option<Spread>,
    /// CPU as it was expected one report before.
    pub cpu_forecast: Option<Spread>,
}

/// Reason why a sample was refused. Each has a counter: [`Repository::refused`].
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Refused {
    /// NaN, infinite, negative, or above 100.
    #[error("a per cent must be 0 to 100")]
    NotAPercent,
    /// More than `ahead_max` ahead of our clock.
    #[error("the sample's time lies ahead: is the node's clock set?")]
    Ahead,
    /// Older than the oldest slot.
    #[error("the sample is older than all that is kept")]
    TooOld,
    /// The maximum number of nodes is reached.
    #[error("there are as many nodes as may be (nodes_max)")]
    TooManyNodes,
}

/// Reason why a query has no answer.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum QueryError {
    /// No node of this name has reported.
    #[error("no node {0:?} has reported")]
    UnknownNode(String),
    /// The end is not after the start, or the step is below a millisecond.
    #[error("the range must end after it starts, and its step be at least a millisecond")]
    Empty,
    /// The answer would have too many points.
    #[error(
        "{points} points are too many, at most {max}: ask for a shorter range or a longer step"
    )]
    TooManyPoints {
        /// Number of points requested.
        points: u64,
        /// Maximum number of points.
        max: usize,
    },
}

const SIGNALS: usize = 7;
/// Number of a slot that never had a sample.
const NEVER: u64 = u64::MAX;

/// Sums over one or several slots, by signal.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    totals: [f32; SIGNALS],
    maxima: [f32; SIGNALS],
    /// No more are counted than fit.
    samples: [u16; SIGNALS],
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Start of the slot's current contents, as a multiple of the resolution.
    number: u64,
    sums: Sums,
}

#[derive(Debug)]
struct Node {
    rings: Vec<Box<[Slot]>>,
    latest: (Duration, Sample),
}

/// Recent history of many nodes, in fixed memory per node.
///
/// Times are those of the samples, since the Unix epoch. Samples may come late and out of order:
/// each goes into the slot of its time, in every tier that reaches back far enough. `now` is an
/// argument; there is no clock here.
#[derive(Debug)]
pub struct Repository {
    options: RepositoryOptions,
    nodes: BTreeMap<String, Node>,
    refused: [u64; 4],
}

impl Repository {
    /// Makes a repository without nodes. Ignores tiers without slots or with a resolution below a
    /// millisecond.
    pub fn new(mut options: RepositoryOptions) -> Repository {
        options.tiers.retain(|tier| tier.slots > 0 && tier.resolution >= Duration::from_millis(1));
        options.tiers.sort_by_key(|tier| tier.resolution);
        Repository { options, nodes: BTreeMap::new(), refused: [0; 4] }
    }

    /// Adds a sample of `node` for the time `at`.
    ///
    /// # Errors
    /// [`Refused`]; then nothing changes.
    pub fn insert(
        &mut self,
        node: &str,
        at: Duration,
        sample: Sample,
        now: Duration,
    ) -> Result<(), Refused> {
        let inserted = self.try_insert(node, at, sample, now);
        if let Err(refused) = inserted {
            self.refused[refused as usize] += 1;
        }
        inserted
    }

    fn try_insert(
        &mut self,
        name: &str,
        at: Duration,
        sample: Sample,
        now: Duration,
    ) -> Result<(), Refused> {
        let signals = sample.signals();
        if signals.iter().flatten().any(|percent| !(0.0..=100.0).contains(percent)) {
            return Err(Refused::NotAPercent);
        }
        if at > now + self.options.ahead_max {
            return Err(Refused::Ahead);
        }
        let reach = |tier: &Tier| slot_number(now, tier).saturating_sub(tier.slots as u64 - 1);
        if !self.options.tiers.iter().any(|tier| slot_number(at, tier) >= reach(tier)) {
            return Err(Refused::TooOld);
        }
        if !self.nodes.contains_key(name) {
            if self.nodes.len() >= self.options.nodes_max {
                return Err(Refused::TooManyNodes);
            }
            let empty = Slot { number: NEVER, sums: Sums::default() };
            let ring = |tier: &Tier| vec![empty; tier.slots].into_boxed_slice();
            let rings = self.options.tiers.iter().map(ring).collect();
            self.nodes.insert(name.to_string(), Node { rings, latest: (at, sample) });
        }
        let node = self.nodes.get_mut(name).expect("it is there, or was just put there");
        if at >= node.latest.0 {
            node.latest = (at, sample);
        }
        for (tier, ring) in self.options.tiers.iter().zip(&mut node.rings) {
            add(ring, slot_number(at, tier), &signals);
        }
        Ok(())
    }

    /// Returns the sample of `node` with the latest time.
    pub fn latest(&self, node: &str) -> Option<(Duration, Sample)> {
        self.nodes.get(node).map(|node| node.latest)
    }

    /// Returns the nodes that have reported.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    /// Removes a node that has left. Returns whether it existed.
    pub fn forget(&mut self, node: &str) -> bool {
        self.nodes.remove(node).is_some()
    }

    /// Removes nodes with a last sample older than `age`. Returns their number.
    pub fn forget_older_than(&mut self, age: Duration, now: Duration) -> usize {
        let before = self.nodes.len();
        self.nodes.retain(|_, node| node.latest.0 + age >= now);
        before - self.nodes.len()
    }

    /// Returns the number of samples refused for this reason.
    pub fn refused(&self, why: Refused) -> u64 {
        self.refused[why as usize]
    }

    /// Returns the size of the history of one node, bytes.
    pub fn bytes_per_node(&self) -> usize {
        self.options.tiers.iter().map(|tier| tier.slots * size_of::<Slot>()).sum()
    }

    /// Returns a node's signals from `from` (inclusive) to `to` (exclusive), in steps of at least
    /// `step`.
    ///
    /// Uses the finest tier that reaches back to `from`, or else the coarsest. A step is the
    /// smallest multiple of its resolution that is at least `step`, and starts at a multiple of
    /// itself. Steps without a sample are omitted.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn range(
        &self,
        node: &str,
        from: Duration,
        to: Duration,
        step: Duration,
        now: Duration,
    ) -> Result<Vec<Point>, QueryError> {
        let unknown = || QueryError::UnknownNode(node.to_string());
        let rings = &self.nodes.get(node).ok_or_else(unknown)?.rings;
        if to <= from || step < Duration::from_millis(1) {
            return Err(QueryError::Empty);
        }
        let reaches =
            |tier: &Tier| slot_number(from, tier) + tier.slots as u64 > slot_number(now, tier);
        let tiers = self.options.tiers.iter().zip(rings);
        let chosen =
            tiers.clone().find(|(tier, _)| reaches(tier)).or_else(|| tiers.clone().next_back());
        let Some((tier, ring)) = chosen else { return Ok(Vec::new()) };
        // The bound is above any real time and prevents overflow.
        let merged = step.as_millis().div_ceil(tier.resolution.as_millis()).clamp(1, 1 << 40);
        let merged = merged as u64;
        let first = slot_number(from, tier) / merged;
        // The last slot that overlaps the range.
        let last = slot_number(to - Duration::from_nanos(1), tier) / merged;
        let newest = slot_number(now + self.options.ahead_max, tier);
        let oldest = newest.saturating_sub(tier.slots as u64 * 2);
        let (first, last) = (first.max(oldest / merged), last.min(newest / merged));
        let points = (last + 1).saturating_sub(first);
        if points > self.options.points_max as u64 {
            return Err(QueryError::TooManyPoints { points, max: self.options.points_max });
        }
        let step_length = |number: u64| {
            Duration::from_millis(number * merged * tier.resolution.as_millis() as u64)
        };
        let points = (first..first + points).filter_map(|number| {
            let slots = number * merged..(number + 1) * merged;
            point(step_length(number), ring, slots)
        });
        Ok(points.collect())
    }
}

fn slot_number(at: Duration, tier: &Tier) -> u64 {
    (at.as_millis() / tier.resolution.as_millis()) as u64
}

fn add(ring: &mut [Slot], number: u64, signals: &[Option<f64>; SIGNALS]) {
    let at = (number % ring.len() as u64) as usize;
    let slot = &mut ring[at];
    if slot.number == NEVER || slot.number < number {
        *slot = Slot { number, sums: Sums::default() };
    } else if slot.number > number {
        // The slot already has newer data.
        return;
    }
    let sums = &mut slot.sums;
    for (at, percent) in signals.iter().enumerate() {
        let Some(percent) = percent.map(|percent| percent as f32) else { continue };
        let Some(samples) = sums.samples[at].checked_add(1) else { continue };
        sums.totals[at] += percent;
        sums.maxima[at] = sums.maxima[at].max(percent);
        sums.samples[at] = samples;
    }
}

fn point(at: Duration, ring: &[Slot], numbers: std::ops::Range<u64>) -> Option<Point> {
    let mut spreads = [None; SIGNALS];
    let mut merge = |slot: &Slot| {
        let Sums { totals, maxima, samples } = &slot.sums;
        for (at, spread) in spreads.iter_mut().enumerate().filter(|(at, _)| samples[*at] > 0) {
            let (total, max, count) = spread.get_or_insert((0.0_f32, 0.0_f32, 0_u32));
            *total += totals[at];
            *max = max.max(maxima[at]);
            *count += u32::from(samples[at]);
        }
    };
    if numbers.end - numbers.start >= ring.len() as u64 {
        ring.iter().filter(|slot| numbers.contains(&slot.number)).for_each(&mut merge);
    } else {
        for number in numbers {
            let slot = &ring[(number % ring.len() as u64) as usize];
            if slot.number == number {
                merge(slot);
            }
        }
    }
    let spreads = spreads.map(|sums| {
        let (total, max, samples) = sums?;
        Some(Spread {
            mean_percent: f64::from(total) / f64::from(samples),
            max_percent: f64::from(max),
            samples,
        })
    });
    let [cpu, memory, net, cpu_pressure, memory_pressure, io_pressure, cpu_forecast] = spreads;
    let point =
        Point { at, cpu, memory, net, cpu_pressure, memory_pressure, io_pressure, cpu_forecast };
    spreads.iter().any(Option::is_some).then_some(point)
}

#[cfg(test)]
mod tests;
