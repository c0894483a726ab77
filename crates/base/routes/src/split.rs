//! Shares of requests by weight.

/// Divides requests over several targets.
///
/// A target's share is its weight over the sum. Equal hashes give equal targets, and a change of
/// weights moves as few hashes as the order of the targets permits: with two targets, none moves
/// but those by which one share grows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// The sum of the weights up to and with each target.
    ends: Vec<u64>,
}

impl Split {
    /// `None` without a target that has a weight.
    pub fn new(weights: impl IntoIterator<Item = u32>) -> Option<Split> {
        let mut sum = 0;
        let end = |weight: u32| {
            sum += u64::from(weight);
            sum
        };
        let ends: Vec<u64> = weights.into_iter().map(end).collect();
        (ends.last().copied().unwrap_or(0) > 0).then_some(Split { ends })
    }

    /// The weights, in the order of the targets.
    pub fn weights(&self) -> impl Iterator<Item = u64> {
        let before = std::iter::once(0).chain(self.ends.iter().copied());
        self.ends.iter().zip(before).map(|(end, before)| end - before)
    }

    /// The target of a hash that is spread evenly over all numbers.
    pub fn pick(&self, hash: u64) -> usize {
        let sum = self.ends.last().copied().unwrap_or(0);
        let point = (u128::from(hash) * u128::from(sum)) >> 64;
        self.ends.partition_point(|end| u128::from(*end) <= point)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_in_proportion_to_the_weights() {
        let split = Split::new([90, 0, 10]).expect("weights");
        assert_eq!(split.weights().collect::<Vec<_>>(), [90, 0, 10]);
        let mut counts = [0u32; 3];
        for n in 0..10_000u64 {
            counts[split.pick(n.wrapping_mul(0x9E37_79B9_7F4A_7C15))] += 1;
        }
        assert_eq!(counts[1], 0);
        assert!((8_900..9_100).contains(&counts[0]), "{counts:?}");
        assert_eq!((split.pick(0), split.pick(u64::MAX)), (0, 2));
        assert_eq!((Split::new([0, 0]), Split::new([])), (None, None));
    }

    #[test]
    fn a_canary_with_more_weight_keeps_its_requests() {
        let (small, large) =
            (Split::new([95, 5]).expect("weights"), Split::new([80, 20]).expect("weights"));
        for n in 0..10_000u64 {
            let hash = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            assert!(small.pick(hash) <= large.pick(hash));
        }
    }
}
