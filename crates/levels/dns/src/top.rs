//! The resolvers with the most queries, in a bounded table.
//!
//! # Source
//! Metwally, Agrawal and El Abbadi, "Efficient computation of frequent and top-k elements in data
//! streams", ICDT 2005 (Space-Saving). Deviates: it samples one query in [`SAMPLE`], so counts are
//! estimates. Counts halve every [`HALF_LIFE`], so that past load does not hide current load.

use std::net::IpAddr;
use std::time::Duration;

use crate::now::TICKS_PER_SECOND;

/// Half-life of counts. In this time, a resolver that caches answers for a minute asks ten times.
pub(crate) const HALF_LIFE: Duration = Duration::from_secs(600);

/// One in this many queries is counted, with this weight.
pub(crate) const SAMPLE: u64 = 32;

/// Capacity, in resolvers. A resolver with more than a 64th of the sampled queries is always among
/// them.
const PLACES: usize = 64;

/// Number of half-lives since the origin of the tick clock.
pub(crate) fn epoch(ticks: u64) -> u64 {
    ticks / (HALF_LIFE.as_secs() * TICKS_PER_SECOND)
}

/// Table of one thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct TopResolvers {
    places: Vec<(IpAddr, u64)>,
    /// Epoch of the last halving.
    epoch: u64,
}

impl TopResolvers {
    /// Counts [`SAMPLE`] queries of `resolver` in `epoch`.
    pub(crate) fn count(&mut self, resolver: IpAddr, epoch: u64) {
        self.age(epoch);
        if let Some((_, count)) = self.places.iter_mut().find(|(known, _)| *known == resolver) {
            *count += SAMPLE;
        } else if self.places.len() < PLACES {
            self.places.push((resolver, SAMPLE));
        } else if let Some(least) = self.places.iter_mut().min_by_key(|(_, count)| *count) {
            *least = (resolver, least.1 + SAMPLE);
        }
    }

    /// Halves the counts for each epoch that passed. Removes resolvers with a count of 0.
    fn age(&mut self, epoch: u64) {
        let Some(halvings) = epoch.checked_sub(self.epoch).filter(|halvings| *halvings > 0) else {
            return;
        };
        self.epoch = epoch;
        self.places.retain_mut(|(_, count)| {
            *count = u32::try_from(halvings).ok().and_then(|by| count.checked_shr(by)).unwrap_or(0);
            *count > 0
        });
    }
}

/// Returns the `most` resolvers with the most queries over all threads, busiest first, with
/// estimated counts decayed to `epoch`.
pub(crate) fn merged(
    tables: impl IntoIterator<Item = TopResolvers>,
    most: usize,
    epoch: u64,
) -> Vec<(IpAddr, u64)> {
    let mut sums = std::collections::BTreeMap::<IpAddr, u64>::new();
    for mut table in tables {
        table.age(epoch);
        for (resolver, count) in table.places {
            *sums.entry(resolver).or_default() += count;
        }
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
    fn the_busiest_resolvers_are_found_among_thousands() {
        let mut top = TopResolvers::default();
        let mut stranger = 1000;
        for round in 0..10_000u32 {
            top.count(resolver(round % 3), 0);
            stranger += 1;
            top.count(resolver(stranger), 0);
        }
        assert_eq!(top.places.len(), PLACES);
        let busiest = merged([top.clone(), top], 3, 0);
        let mut names: Vec<_> = busiest.iter().map(|(name, _)| *name).collect();
        names.sort();
        assert_eq!(names, [resolver(0), resolver(1), resolver(2)]);
    }

    #[test]
    fn past_load_does_not_hide_currently_busy_resolvers() {
        let mut top = TopResolvers::default();
        let weeks = 14 * 24 * 6;
        for epoch in 0..weeks {
            (0..100).for_each(|number| top.count(resolver(number % PLACES as u32), epoch));
        }
        let flooder = resolver(9999);
        (0..100).for_each(|_| top.count(flooder, weeks));
        assert_eq!(merged([top.clone()], 1, weeks)[0].0, flooder);
        assert_eq!(merged([top.clone()], 1, weeks + 1)[0].0, flooder);
        // The counts of an idle thread decay, too.
        assert_eq!(merged([top.clone()], 1, weeks + 20), []);
        assert_eq!(merged([top], 1, u64::MAX), []);
    }

    #[test]
    fn a_count_halves_every_half_life() {
        let mut top = TopResolvers::default();
        (0..8).for_each(|_| top.count(resolver(1), 5));
        let half_life = HALF_LIFE.as_secs() * TICKS_PER_SECOND;
        let counts = [5, 6, 8].map(|epoch| merged([top.clone()], 1, epoch)[0].1);
        assert_eq!(counts, [8 * SAMPLE, 4 * SAMPLE, SAMPLE]);
        assert_eq!((epoch(half_life - 1), epoch(half_life)), (0, 1));
    }
}
