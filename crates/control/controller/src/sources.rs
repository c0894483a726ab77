//! Rates of the clients of each prefix at all nodes, by which the DNS level assigns resolvers.
//! Pure.

use std::collections::{BTreeMap, HashMap};

use equipoise_core::SourcePrefix;

/// Units of work per second (HTTP requests, TCP connections, UDP clients) by the prefix of their
/// clients.
pub type SourceRates = BTreeMap<SourcePrefix, f64>;

/// Greatest number of prefixes in a node's report: those with the highest rates.
pub const SOURCES_REPORTED_MAX: usize = 128;
/// Greatest number of prefixes in instructions.
const SOURCES_TOLD_MAX: usize = 256;
/// A change by a smaller factor than this is not published.
const STEADY: f64 = 1.25;

/// The `most` prefixes with the highest rates.
pub fn largest(rates: impl IntoIterator<Item = (SourcePrefix, f64)>, most: usize) -> SourceRates {
    let mut rates: Vec<_> = rates.into_iter().filter(|(_, rate)| *rate > 0.0).collect();
    rates.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    rates.truncate(most);
    rates.into_iter().collect()
}

/// The sums of all nodes, as published after `before`.
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
            // Rounded, because a sample is not more precise.
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
    fn rates_are_summed_over_nodes_and_small_changes_not_published() {
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
    fn only_the_largest_rates_are_kept() {
        let many = (0..255).map(|n| (prefix(n), f64::from(n)));
        assert_eq!(largest(many, 2), rates(&[(254, 254.0), (253, 253.0)]));
    }
}
