use rand::{Rng, RngExt};

use super::{PerClass, RequestClass};

/// Where a request is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// At the node that it came to.
    Here,
    /// At this peer: an index into the weights of the table.
    Peer(usize),
}

/// A node's dispatch instructions, ready for the hot path.
///
/// # Source
/// TLLB ("Two-Layer Load Balancing for the Onedata system"): a node that is not overloaded does everything itself, an
/// overloaded one delegates a share by weighted random choice. Deviates: the share differs by class.
#[derive(Clone, Debug, PartialEq)]
pub struct DispatchTable {
    keep: PerClass<f64>,
    /// Ascending; the last is the sum.
    cumulative: Vec<f64>,
}

impl DispatchTable {
    /// A table that keeps everything.
    pub fn keep_all() -> DispatchTable {
        DispatchTable { keep: PerClass::from_fn(|_| 1.0), cumulative: Vec::new() }
    }

    /// Keeps the part `keep` (0..=1) of each class; the rest goes to peers in proportion to `weights`. Weights below
    /// zero and NaN count as zero; if all do, everything is kept.
    pub fn new(keep: PerClass<f64>, weights: impl IntoIterator<Item = f64>) -> DispatchTable {
        let mut sum = 0.0;
        let add = |weight: f64| {
            sum += if weight.is_finite() { weight.max(0.0) } else { 0.0 };
            sum
        };
        let cumulative: Vec<f64> = weights.into_iter().map(add).collect();
        if sum > 0.0 { DispatchTable { keep, cumulative } } else { DispatchTable::keep_all() }
    }

    /// The part of a class that is kept.
    pub fn keep(&self, class: RequestClass) -> f64 {
        self.keep[class]
    }

    /// Where to do a request. O(log peers), no allocation.
    pub fn choose(&self, class: RequestClass, rng: &mut dyn Rng) -> Choice {
        let keep = self.keep[class];
        if keep >= 1.0 || rng.random::<f64>() < keep {
            return Choice::Here;
        }
        let Some(sum) = self.cumulative.last() else { return Choice::Here };
        // Below the sum also after rounding: a draw is at most 1 - 2^-53.
        let point = rng.random::<f64>() * sum;
        Choice::Peer(self.cumulative.partition_point(|upto| *upto <= point))
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    fn tally(table: &DispatchTable, class: RequestClass) -> [f64; 4] {
        let mut rng = StdRng::seed_from_u64(3);
        let mut counts = [0.0; 4];
        for _ in 0..100_000 {
            match table.choose(class, &mut rng) {
                Choice::Here => counts[0] += 1e-5,
                Choice::Peer(at) => counts[at + 1] += 1e-5,
            }
        }
        counts
    }

    fn near(found: [f64; 4], expected: [f64; 4]) {
        for (found, expected) in found.into_iter().zip(expected) {
            assert!((found - expected).abs() < 0.006, "{found} is not {expected}");
            assert!(expected > 0.0 || found == 0.0);
        }
    }

    #[test]
    fn requests_go_where_the_papers_example_says() {
        let table = DispatchTable::new(PerClass::from_fn(|_| 0.2), [0.32, 0.0, 0.48]);
        near(tally(&table, RequestClass::default()), [0.2, 0.32, 0.0, 0.48]);
    }

    #[test]
    fn a_class_has_a_share_of_its_own() {
        let mut keep = PerClass::from_fn(|_| 1.0);
        keep.computing = 0.5;
        let table = DispatchTable::new(keep, [1.0, 1.0, 3.0]);
        near(tally(&table, RequestClass::Light), [1.0, 0.0, 0.0, 0.0]);
        near(tally(&table, RequestClass::Computing), [0.5, 0.1, 0.1, 0.3]);
    }

    #[test]
    fn without_a_peer_everything_is_done_here() {
        let none = PerClass::from_fn(|_| 0.0);
        for weights in [vec![], vec![0.0, 0.0], vec![f64::NAN, -1.0]] {
            let table = DispatchTable::new(none, weights);
            near(tally(&table, RequestClass::Computing), [1.0, 0.0, 0.0, 0.0]);
        }
        near(tally(&DispatchTable::keep_all(), RequestClass::Light), [1.0, 0.0, 0.0, 0.0]);
    }
}
