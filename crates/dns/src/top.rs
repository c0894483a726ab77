//! The resolvers that ask most, in a bounded table.
//!
//! # Source
//! Metwally, Agrawal and El Abbadi, "Efficient computation of frequent and top-k elements in data streams",
//! ICDT 2005 (Space-Saving). Deviates: one query in [`SAMPLE`] is looked at, so the counts are estimates.

use std::net::IpAddr;

/// One query in so many is counted, as so many.
pub(crate) const SAMPLE: u64 = 32;

/// Resolvers that are remembered: what is kept of any that asks more than a 64th of all queries is exact but for
/// the sampling.
const PLACES: usize = 64;

/// Of one thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct TopResolvers {
    places: Vec<(IpAddr, u64)>,
}

impl TopResolvers {
    /// Counts [`SAMPLE`] queries of `resolver`.
    pub(crate) fn count(&mut self, resolver: IpAddr) {
        if let Some((_, count)) = self.places.iter_mut().find(|(known, _)| *known == resolver) {
            *count += SAMPLE;
        } else if self.places.len() < PLACES {
            self.places.push((resolver, SAMPLE));
        } else if let Some(least) = self.places.iter_mut().min_by_key(|(_, count)| *count) {
            *least = (resolver, least.1 + SAMPLE);
        }
    }
}

/// The `most` that ask most, over all threads, busiest first, with estimates of their queries.
pub(crate) fn merged(
    tables: impl IntoIterator<Item = TopResolvers>,
    most: usize,
) -> Vec<(IpAddr, u64)> {
    let mut sums = std::collections::BTreeMap::<IpAddr, u64>::new();
    for (resolver, count) in tables.into_iter().flat_map(|table| table.places) {
        *sums.entry(resolver).or_default() += count;
    }
    let mut all: Vec<_> = sums.into_iter().collect();
    all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    all.truncate(most);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolver(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from(number).into()
    }

    #[test]
    fn the_busiest_are_found_among_thousands() {
        let mut top = TopResolvers::default();
        let mut stranger = 1000;
        for round in 0..10_000u32 {
            top.count(resolver(round % 3));
            stranger += 1;
            top.count(resolver(stranger));
        }
        assert_eq!(top.places.len(), PLACES);
        let busiest = merged([top.clone(), top], 3);
        let mut names: Vec<_> = busiest.iter().map(|(name, _)| *name).collect();
        names.sort();
        assert_eq!(names, [resolver(0), resolver(1), resolver(2)]);
    }
}
