//! Estimates the load of each slice: arriving items per second, times the time that an item takes.
//!
//! All arriving items count, processed or waiting, so a worker that processes nothing does not look
//! less loaded than it is. The count of a slice with few items is uncertain: of a thousand slices
//! with an item a second each, those that just had one look twice as heavy as they are, and moving
//! by these counts would move the wrong slices. So
//!
//! - each slice is counted over its own window: about [`WINDOW_ITEMS`] items, within bounds;
//! - the more uncertain the count of a slice is, the more its estimate follows the mean of all
//!   slices.
//!
//! With counts `n` over times `t`, Poisson with rates that have mean `m` and variance `v` over the
//! slices, the best linear estimate of a rate is `m + B (n/t - m)`, `B = t / (t + m/v)`. `m` and
//! `v` are the moments of the counts, less the variance that counting alone causes. If no variance
//! is left, all slices have the same rate. An estimate differs from the slice's own count by at
//! most twice that count's deviation, so that one hot slice among idle ones still shows.
//!
//! Noise in the counts, or in this model, must not decide which slices move. When slices are
//! chosen, those with few items all count as *typical*. When loads are added up, their estimates
//! count.
//!
//! The time of an item is the mean of the slice's last items and [`ITEMS_BEFORE`] items that took
//! the mean of its worker.
//!
//! # Source
//! Robbins, "The empirical Bayes approach", 1964; Morris, "Parametric empirical Bayes inference",
//! JASA 1983, section 4 (gamma prior, Poisson counts, moments); Efron and Morris, "Limiting the
//! risk of Bayes and empirical Bayes estimators", JASA 1972 (limited translation). Deviates: counts
//! are faded exponentially, so their effective size is Kish's.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::balance::SliceInput;
use crate::ids::{SliceId, WorkerId};

/// Items that the window of a slice should hold.
const WINDOW_ITEMS: f64 = 16.0;
/// Longest window.
const WINDOW_SECONDS_MAX: f64 = 30.0;
/// From this many items on, the count of a slice is certain, and is left out of the prior.
const FEW_ITEMS: f64 = 64.0;
/// Largest difference between an estimate and the count, in deviations of the count.
const DEVIATIONS_MAX: f64 = 2.0;
/// Weight of the worker's mean in the time of an item, in items.
const ITEMS_BEFORE: f64 = 4.0;
/// Seconds that an item is assumed to take before any item was processed.
const ITEM_SECONDS: f64 = 1e-3;

/// The exponentially faded counts of a slice.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    arrived: f64,
    /// The observed time in seconds; and its sum with the fading squared, for the variance.
    time: f64,
    time_squared: f64,
    done: f64,
    busy_seconds: f64,
    rate: f64,
    load: f64,
    typical: f64,
    item: f64,
}

/// The loads of all slices.
#[derive(Debug, Clone, Default)]
pub(super) struct Estimates {
    counts: BTreeMap<SliceId, Count>,
    /// Mean seconds of an item, over all slices.
    item_seconds: Option<f64>,
}

impl Estimates {
    /// The load of `slice`, in cores; 0 for an unknown slice.
    pub(super) fn load(&self, slice: SliceId) -> f64 {
        self.counts.get(&slice).map_or(0.0, |count| count.load)
    }

    /// The load by which `slice` is chosen among others: its own if it has many items, else the
    /// typical one.
    pub(super) fn typical(&self, slice: SliceId) -> f64 {
        self.counts.get(&slice).map_or(0.0, |count| count.typical)
    }

    /// Seconds that an item of `slice` takes.
    pub(super) fn item_seconds(&self, slice: SliceId) -> f64 {
        self.counts.get(&slice).map_or(0.0, |count| count.item)
    }

    /// Mean time of an item, if any was processed.
    pub(super) fn item(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.item_seconds?).ok()
    }

    /// Adds the counts since the last call. `moved`: slices that have another owner now.
    pub(super) fn learn(
        &mut self,
        smoothing: Duration,
        slices: &[SliceInput],
        moved: &BTreeSet<SliceId>,
    ) {
        for slice in slices {
            let count = self.counts.entry(slice.id).or_default();
            if moved.contains(&slice.id) {
                // Arrivals here came from the last owner's queue, and items may take another time
                // here.
                count.keep_items(ITEMS_BEFORE);
            } else {
                count.add(smoothing.as_secs_f64(), slice);
            }
        }
        let present: BTreeSet<_> = slices.iter().map(|slice| slice.id).collect();
        self.counts.retain(|slice, _| present.contains(slice));
        let prior = Prior::of(self.counts.values());
        let items = self.item_seconds_by_owner(slices);
        for slice in slices {
            let Some(count) = self.counts.get_mut(&slice.id) else { continue };
            count.rate = prior.rate(count);
            let before = items.get(&slice.owner).copied().or(self.item_seconds);
            let before = before.unwrap_or(ITEM_SECONDS);
            let item = (ITEMS_BEFORE * before + count.busy_seconds) / (ITEMS_BEFORE + count.done);
            (count.item, count.load) = (item, count.rate * item);
            let few = count.effective().0 < FEW_ITEMS;
            count.typical = if few { prior.mean * before } else { count.load };
        }
    }

    /// The mean time of an item: of each worker that processed any, and of all.
    fn item_seconds_by_owner(&mut self, slices: &[SliceInput]) -> BTreeMap<WorkerId, f64> {
        let mut sums: BTreeMap<WorkerId, (f64, f64)> = BTreeMap::new();
        for slice in slices {
            let Some(count) = self.counts.get(&slice.id) else { continue };
            let (busy, done) = sums.entry(slice.owner).or_default();
            (*busy, *done) = (*busy + count.busy_seconds, *done + count.done);
        }
        let (busy, done) = sums.values().fold((0.0, 0.0), |(b, d), (busy, n)| (b + busy, d + n));
        // If the counts have faded to almost nothing, the last value is better.
        if done >= 1.0 {
            self.item_seconds = Some(busy / done);
        }
        let enough = sums.into_iter().filter(|(_, (_, done))| *done >= 1.0);
        enough.map(|(worker, (busy, done))| (worker, busy / done)).collect()
    }
}

impl Count {
    fn add(&mut self, smoothing_seconds: f64, slice: &SliceInput) {
        let (time, arrived) = (slice.observed.as_secs_f64(), slice.arrived as f64);
        if time <= 0.0 {
            return;
        }
        let expected = self.rate * time;
        if self.time > smoothing_seconds && arrived > expected + 4.0 * expected.sqrt() + 4.0 {
            // Chance alone does not cause this: the rate changed, so older counts fade.
            self.fade(smoothing_seconds / self.time);
        }
        let window = (WINDOW_ITEMS / self.rate.max(1e-9))
            .clamp(smoothing_seconds, WINDOW_SECONDS_MAX.max(smoothing_seconds));
        self.fade((-time / window).exp());
        // The beginning of a long observation, as after a pause of the worker, has faded, too.
        let faded = (window / time).min(1.0);
        self.arrived += arrived * faded;
        self.time += time * faded;
        self.time_squared += time * faded * faded;
        let done = slice.done as f64;
        self.keep_items((WINDOW_ITEMS - done).max(0.0));
        self.done += done;
        self.busy_seconds += slice.busy.as_secs_f64();
    }

    fn fade(&mut self, by: f64) {
        self.arrived *= by;
        self.time *= by;
        self.time_squared *= by * by;
    }

    /// Limits the weight of the time of an item to `items` items.
    fn keep_items(&mut self, items: f64) {
        if self.done > items {
            self.busy_seconds *= items / self.done;
            self.done = items;
        }
    }

    /// The count and the time of an unfaded sample with the same uncertainty.
    fn effective(&self) -> (f64, f64) {
        if self.time_squared <= 0.0 {
            return (0.0, 0.0);
        }
        let by = self.time / self.time_squared;
        (self.arrived * by, self.time * by)
    }
}

/// The distribution of the slices' rates.
#[derive(Debug)]
struct Prior {
    mean: f64,
    variance: f64,
}

impl Prior {
    /// Computed from slices with few items; those with many do not need a prior.
    fn of<'c>(counts: impl Iterator<Item = &'c Count> + Clone) -> Self {
        let few = counts.filter(|count| count.time > 0.0 && count.effective().0 < FEW_ITEMS);
        let (arrived, time) =
            few.clone().fold((0.0, 0.0), |(n, t), count| (n + count.arrived, t + count.time));
        if time <= 0.0 {
            return Self { mean: 0.0, variance: 0.0 };
        }
        let mean = arrived / time;
        let (mut excess, mut squares) = (0.0, 0.0);
        for count in few {
            let off = count.arrived - mean * count.time;
            excess += off * off - mean * count.time_squared;
            squares += count.time * count.time;
        }
        Self { mean, variance: (excess / squares).max(0.0) }
    }

    fn rate(&self, count: &Count) -> f64 {
        let (arrived, time) = count.effective();
        if time <= 0.0 {
            return self.mean;
        }
        let counted = arrived / time;
        if arrived >= FEW_ITEMS {
            return counted;
        }
        let own = time * self.variance;
        let weight = if own > 0.0 { own / (own + self.mean) } else { 0.0 };
        let far = DEVIATIONS_MAX * arrived.max(1.0).sqrt() / time;
        let best = self.mean + weight * (counted - self.mean);
        best.clamp((counted - far).max(0.0), counted + far)
    }
}
