//! What clients of each prefix bring, over all nodes: the DNS level assigns resolvers by it. Pure.

use std::collections::{BTreeMap, HashMap};

use equipoise_core::SourcePrefix;

/// Pieces of work a second (HTTP requests, TCP connections, UDP clients) by the prefix that their clients are in.
pub type SourceRates = BTreeMap<SourcePrefix, f64>;

/// The most prefixes that a node reports: those that bring most.
pub const SOURCES_REPORTED_MAX: usize = 128;
/// The most prefixes that nodes are told of.
const SOURCES_TOLD_MAX: usize = 256;
/// What has changed by less than this factor since it was told is not told again.
const STEADY: f64 = 1.25;

/// The `most` prefixes that bring most.
pub fn largest(rates: impl IntoIterator<Item = (SourcePrefix, f64)>, most: usize) -> SourceRates {
    let mut rates: Vec<_> = rates.into_iter().filter(|(_, rate)| *rate > 0.0).collect();
    rates.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    rates.truncate(most);
    rates.into_iter().collect()
}

/// What all nodes together see, as it is told after `before`.
pub(crate) fn together<'r>(
    seen: impl Iterator<Item = &'r SourceRates>,
    before: &SourceRates,
) -> SourceRates {
    let mut sums: HashMap<SourcePrefix, f64> = HashMap::new();
    for (prefix, rate) in seen.flatten() {
        *sums.entry(*prefix).or_default() += rate;
    }
    let mut told = largest(sums, SOURCES_TOLD_MAX);
    for (prefix, rate) in &mut told {
        let is_steady = |was: &&f64| (**was / STEADY..=**was * STEADY).contains(rate);
        match before.get(prefix).filter(is_steady) {
            Some(was) => *rate = *was,
            // Three digits say more than a sample knows.
            None => *rate = (*rate * 10.0).round().max(1.0) / 10.0,
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(n: u8) -> SourcePrefix {
        SourcePrefix::of([192, 0, n, 1].into())
    }

    fn rates(of: &[(u8, f64)]) -> SourceRates {
        of.iter().map(|(n, rate)| (prefix(*n), *rate)).collect()
    }

    #[test]
    fn nodes_add_up_and_small_changes_are_not_told() {
        let (a, b) = (rates(&[(1, 10.0), (2, 5.0)]), rates(&[(1, 30.0)]));
        let told = together([&a, &b].into_iter(), &SourceRates::new());
        assert_eq!(told, rates(&[(1, 40.0), (2, 5.0)]));
        let later = together([&rates(&[(1, 45.0), (2, 2.04)])].into_iter(), &told);
        assert_eq!(later, rates(&[(1, 40.0), (2, 2.0)]));
        assert!(
            together([].into_iter(), &told).is_empty(),
            "who brings nothing any more is not told"
        );
    }

    #[test]
    fn the_largest_are_kept() {
        let many = (0..255).map(|n| (prefix(n), f64::from(n)));
        assert_eq!(largest(many, 2), rates(&[(254, 254.0), (253, 253.0)]));
    }
}
