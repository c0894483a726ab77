//! The load of clients by their networks. It goes from the levels that see clients to the DNS
//! level, through the cluster if there is one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use equipoise_controller::{SOURCES_REPORTED_MAX, SourceRates, largest};
use equipoise_core::SourcePrefix;
use equipoise_dns::{ResolverLoads, Source};

/// Interval at which the work of clients is read.
pub const LEARN_PERIOD: Duration = Duration::from_secs(2);

/// Half-life of a load that is no longer observed.
const HALF_LIFE: Duration = Duration::from_secs(10);

/// Prefixes with fewer pieces of work per second are forgotten.
const LEAST: f64 = 0.05;

/// Largest number of remembered prefixes; those with the most work are kept.
const PREFIXES_MAX: usize = 4096;

/// Work per second of every prefix in the time `over`. It is not averaged; the receiver averages
/// it.
pub fn rates(work: &HashMap<SourcePrefix, u64>, over: Duration) -> SourceRates {
    let seconds = over.as_secs_f64().max(1e-3);
    work.iter().map(|(prefix, pieces)| (*prefix, *pieces as f64 / seconds)).collect()
}

/// Teaches `loads` the load of each prefix. `resolvers` are those that ask most, each with its
/// number of queries.
///
/// A prefix's load is used for the client subnet that a resolver sends (RFC 7871). It is also
/// divided over the resolvers in the prefix, in proportion to their queries: these serve a site
/// from within it. A resolver elsewhere that sends no subnet stays unknown.
pub(crate) fn learn(
    loads: &mut ResolverLoads,
    rates: &SourceRates,
    resolvers: &[(IpAddr, u64)],
    now: Instant,
) {
    let subnet = |(prefix, rate): (&SourcePrefix, &f64)| (Source::subnet(prefix.address()), *rate);
    loads.observe_all(rates.iter().map(subnet), now);
    let mut asked = HashMap::<SourcePrefix, u64>::new();
    for (resolver, queries) in resolvers {
        *asked.entry(SourcePrefix::of(*resolver)).or_default() += queries;
    }
    let inside = resolvers.iter().filter_map(|(resolver, queries)| {
        let prefix = SourcePrefix::of(*resolver);
        let share = *queries as f64 / asked[&prefix] as f64;
        Some((Source::resolver(*resolver), rates.get(&prefix)? * share))
    });
    loads.observe_all(inside, now);
}

/// The load of this node's clients, for reports. It is averaged over some seconds, because a report
/// is a sample and controllers do not average.
#[derive(Debug, Default)]
pub struct Seen(HashMap<SourcePrefix, f64>);

impl Seen {
    /// Adds the [`rates`] of the time `over`.
    pub fn take(&mut self, rates: &SourceRates, over: Duration) {
        let kept = 0.5f64.powf(over.as_secs_f64() / HALF_LIFE.as_secs_f64());
        for (prefix, rate) in rates {
            // A new prefix has its rate at once.
            let known = self.0.entry(*prefix).or_insert(*rate);
            *known = *known * kept + rate * (1.0 - kept);
        }
        self.0.retain(|prefix, rate| {
            if !rates.contains_key(prefix) {
                *rate *= kept;
            }
            *rate >= LEAST
        });
        if self.0.len() > PREFIXES_MAX {
            self.0 = largest(self.0.drain(), PREFIXES_MAX).into_iter().collect();
        }
    }

    /// The busiest prefixes, for the controllers.
    pub fn told(&self) -> SourceRates {
        largest(self.0.iter().map(|(prefix, rate)| (*prefix, *rate)), SOURCES_REPORTED_MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn prefix(number: u32) -> SourcePrefix {
        SourcePrefix::of(Ipv4Addr::from((100 << 24) + (number << 8)).into())
    }

    #[test]
    fn rates_are_averaged_and_fade() {
        let mut seen = Seen::default();
        let mut take = |pieces: Option<u64>, over: Duration| {
            let work = pieces.map(|pieces| (prefix(1), pieces)).into_iter().collect();
            seen.take(&rates(&work, over), over);
            seen.told().get(&prefix(1)).copied()
        };
        assert_eq!(take(Some(320), Duration::from_secs(2)), Some(160.0));
        assert_eq!(take(None, HALF_LIFE), Some(80.0));
        assert_eq!(take(Some(320), HALF_LIFE), Some(56.0));
        assert_eq!(take(None, HALF_LIFE * 12), None);
    }

    #[test]
    fn a_standalone_server_learns_every_prefix_and_averages_once() {
        let (half_life, begun) = (Duration::from_secs(60), Instant::now());
        let mut loads = ResolverLoads::new(ResolverLoads::CAPACITY, half_life);
        let mut work: HashMap<_, _> = (0..1000).map(|number| (prefix(number), 64)).collect();
        let mut at = begun;
        let mut pass = |work: &HashMap<_, _>, over: Duration| {
            for _ in 0..over.as_secs() / LEARN_PERIOD.as_secs() {
                at += LEARN_PERIOD;
                learn(&mut loads, &rates(work, LEARN_PERIOD), &[], at);
            }
            let load = |number| loads.load(Source::subnet(prefix(number).address()), at);
            (0..1000).map(load).collect::<Vec<_>>()
        };
        let known = pass(&work, half_life);
        assert!(known.iter().all(|load| (load - 32.0).abs() < 1e-6), "{known:?}");
        // The clients of one prefix leave, and those of another triple.
        work.remove(&prefix(0));
        work.insert(prefix(1), 192);
        let known = pass(&work, half_life);
        for (load, expected) in known.iter().zip([16.0, 64.0, 32.0]) {
            assert!((load - expected).abs() < 1e-6, "{load} is not {expected}");
        }
    }

    #[test]
    fn reports_contain_the_prefixes_with_the_highest_load() {
        let work = (0..1000).map(|number| (prefix(number), u64::from(number))).collect();
        let mut seen = Seen::default();
        seen.take(&rates(&work, LEARN_PERIOD), LEARN_PERIOD);
        let told = seen.told();
        assert_eq!(told.len(), SOURCES_REPORTED_MAX);
        assert_eq!((told.get(&prefix(999)), told.get(&prefix(1))), (Some(&499.5), None));
    }

    #[test]
    fn resolvers_share_the_load_of_their_prefix_by_query_count() {
        let (mut loads, now) = (ResolverLoads::new(8, LEARN_PERIOD), Instant::now());
        let [busy, other, elsewhere] =
            ["100.0.1.1", "100.0.1.2", "100.0.2.1"].map(|text| text.parse::<IpAddr>().unwrap());
        let rates = rates(&HashMap::from([(prefix(1), 80)]), LEARN_PERIOD);
        learn(&mut loads, &rates, &[(busy, 96), (other, 32), (elsewhere, 500)], now);
        let load = |resolver| loads.load(Source::resolver(resolver), now);
        assert_eq!((load(busy), load(other), load(elsewhere)), (30.0, 10.0, 0.0));
    }
}
