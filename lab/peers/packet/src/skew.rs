//! Skewed traffic: few flows have most of the packets.

/// Exponent of the law: flow `n` has a probability of about n^-1.1.
const EXPONENT: f64 = 1.1;

/// Zipf's law over `flows` flows.
pub(crate) struct Zipf {
    /// Of the probabilities of the flows up to each one, not normalized.
    sums: Vec<f64>,
}

impl Zipf {
    pub(crate) fn new(flows: u32) -> Zipf {
        let weights = (1..=flows).map(|rank| f64::from(rank).powf(-EXPONENT));
        let sums = weights.scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        Zipf { sums: sums.collect() }
    }

    /// Independent draws; the same for the same seed.
    pub(crate) fn draws(&self, seed: u64) -> impl Iterator<Item = u32> {
        let total = self.sums.last().copied().unwrap_or_default();
        let mut state = seed;
        std::iter::repeat_with(move || {
            // splitmix64
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut x = state;
            x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            let uniform = ((x ^ x >> 31) >> 11) as f64 / (1_u64 << 53) as f64;
            self.sums.partition_point(|sum| *sum < uniform * total) as u32
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_flow_has_its_share() {
        let zipf = Zipf::new(1000);
        let share = 1.0 / zipf.sums[999];
        let first = zipf.draws(7).take(100_000).filter(|flow| *flow == 0).count() as f64 / 1e5;
        assert!((first - share).abs() < 0.01, "{first}, not {share}");
        assert!(zipf.draws(7).take(100_000).all(|flow| flow < 1000));
    }
}
