//! A quantile of recent values in constant memory.

/// Values before [`Quantile::value`] says something.
const FEW: u32 = 100;
/// Smallest relative step.
const STEP: f64 = 0.02;

/// Follows the number below which a share of the latest values lies. It moves up a step for each
/// value above it and down a step for each value below it, and the steps are in such a proportion
/// that it stands still at the quantile.
///
/// # Source
/// Ma, Muthukrishnan and Sandler, "Frugal Streaming for Estimating Quantiles" (2013). Deviates:
/// steps are relative, and larger at first.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quantile {
    value: f64,
    count: u32,
}

impl Quantile {
    /// Takes in a value above 0. `share` (0 to 1) of the values lie below the quantile.
    pub(crate) fn observe(&mut self, value: f64, share: f64) {
        self.count = self.count.saturating_add(1);
        if self.count == 1 {
            self.value = value;
            return;
        }
        let step = STEP.max(1.0 / f64::from(self.count));
        let by = if value > self.value { share } else { share - 1.0 };
        self.value *= (step * by).exp();
    }

    /// The quantile; `None` while too few values were seen.
    pub(crate) fn value(&self) -> Option<f64> {
        (self.count >= FEW).then_some(self.value)
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    /// Exponentially distributed values with this mean.
    fn values(seed: u64, mean: f64) -> impl Iterator<Item = f64> {
        let mut rng = SmallRng::seed_from_u64(seed);
        std::iter::repeat_with(move || -mean * (1.0 - rng.random::<f64>()).ln())
    }

    #[test]
    fn the_estimate_converges_to_the_quantile_and_follows_changes() {
        for seed in 1..=20 {
            let mut quantile = Quantile::default();
            for value in values(seed, 1000.0).take(1000) {
                quantile.observe(value, 0.95);
            }
            // -ln(0.05) is 3.0.
            let value = quantile.value().unwrap();
            assert!((2000.0..4500.0).contains(&value), "{seed}: {value}");
            for value in values(seed, 10_000.0).take(1000) {
                quantile.observe(value, 0.95);
            }
            let value = quantile.value().unwrap();
            assert!((20_000.0..45_000.0).contains(&value), "{seed}: {value}");
        }
    }

    #[test]
    fn fewer_than_100_values_yield_no_quantile() {
        let mut quantile = Quantile::default();
        for _ in 0..99 {
            quantile.observe(5.0, 0.5);
            assert_eq!(quantile.value(), None);
        }
    }
}
