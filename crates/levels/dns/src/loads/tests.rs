use std::net::Ipv4Addr;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::Mode;
use crate::spread::{Member, record};

const WEIGHTS: [f64; 4] = [0.1, 0.2, 0.3, 0.4];

fn group(mode: Mode, shares: &[f64]) -> Group {
    let members = shares.iter().enumerate().map(|(node, share)| Member {
        node,
        place: node,
        share: *share,
        records: record(1, &[192, 0, 2, node as u8]).into(),
        count: 1,
        host: None,
    });
    Group::new(1, mode, members.collect(), &mut SmallRng::seed_from_u64(1))
}

fn layout(nodes: usize) -> Arc<Layout> {
    let nodes = (0..nodes).map(|n| format!("n{n}").into()).collect();
    Arc::new(Layout { names: vec![(b"\x03www\x00".to_vec(), nodes)] })
}

fn resolver(number: usize) -> Source {
    Source::resolver(Ipv4Addr::from(0x0a00_0000 + number as u32).into())
}

/// Loads of `count` resolvers by Zipf's law.
fn zipf(count: usize, exponent: f64) -> Vec<f64> {
    let loads: Vec<f64> = (1..=count).map(|rank| (rank as f64).powf(-exponent)).collect();
    let sum: f64 = loads.iter().sum();
    loads.into_iter().map(|load| load / sum).collect()
}

/// A mode, and what resolvers do with its answers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// All nodes in weighted order, shuffled by the resolver. Each client takes the first.
    OrderedShuffled,
    /// One node, weighted.
    Single,
    /// Two nodes, drawn by weight, shuffled by the resolver.
    Pair,
    /// The node with the largest deficit.
    SingleByDeficit,
    /// The two nodes with the largest deficits.
    PairByDeficit,
}

const TTL: u32 = 60;

/// The time `count` TTLs after the start.
fn ttls(count: f64) -> Now {
    Now { ticks: (count * f64::from(TTL) * TICKS_PER_SECOND as f64) as u64, ..Now::default() }
}

/// Returns the largest distance of a node from its share, in points, averaged over `rounds` TTLs.
/// In each TTL every resolver asks once, at a random time; loads are compared after all have been
/// answered.
fn worst_error(
    way: Way,
    loads: &[f64],
    rounds: usize,
    told: &dyn Fn(f64, &mut SmallRng) -> f64,
) -> f64 {
    let mut rng = SmallRng::seed_from_u64(11);
    let mode = match way {
        Way::OrderedShuffled => Mode::Ordered,
        Way::Single | Way::SingleByDeficit => Mode::Single,
        Way::Pair | Way::PairByDeficit => Mode::Pair,
    };
    let group = group(mode, &WEIGHTS);
    let mut known = ResolverLoads::new(loads.len(), Duration::from_secs(60));
    let now = Instant::now();
    for (number, load) in loads.iter().enumerate() {
        let load = told(*load, &mut rng);
        known.observe(resolver(number), load, now);
    }
    let table = known.table(now, 0.02, &layout(4), &LoadTable::default());
    let mut order: Vec<usize> = (0..loads.len()).collect();
    let mut errors = 0.0;
    for round in 0..rounds {
        for at in (1..order.len()).rev() {
            order.swap(at, rng.random_range(0..=at));
        }
        let mut found = [0.0; 4];
        for (place, resolver_number) in order.iter().enumerate() {
            let at = round as f64 + place as f64 / order.len() as f64;
            let deficit = matches!(way, Way::SingleByDeficit | Way::PairByDeficit);
            let index = table.find(resolver(*resolver_number)).filter(|_| deficit);
            let chosen = index.and_then(|index| table.assign(0, 0, index, &group, (ttls(at), TTL)));
            let members: Vec<_> =
                chosen.unwrap_or_else(|| group.draw(&mut rng)).members().collect();
            for member in &members {
                found[*member] += loads[*resolver_number] / members.len() as f64;
            }
        }
        errors += found
            .iter()
            .zip(WEIGHTS)
            .map(|(found, share)| (found - share).abs())
            .fold(0.0, f64::max);
    }
    errors / rounds as f64 * 100.0
}

/// Compares the errors with the design's figures: about 15, 8 and 1 points.
#[test]
fn known_resolver_loads_keep_shares_within_one_point() {
    println!(
        "worst node's distance from its share in points; weights 10/20/30/40; Zipf (1.0) resolvers"
    );
    println!(
        "{:>9}  {:>8}  {:>6}  {:>6}  {:>14}  {:>12}",
        "resolvers", "ordered", "single", "pair", "single deficit", "pair deficit"
    );
    let exact = |load: f64, _: &mut SmallRng| load;
    for count in [100, 1000, 10_000] {
        let loads = zipf(count, 1.0);
        let ways = [
            Way::OrderedShuffled,
            Way::Single,
            Way::Pair,
            Way::SingleByDeficit,
            Way::PairByDeficit,
        ];
        let [ordered, single, pair, single_deficit, pair_deficit] =
            ways.map(|way| worst_error(way, &loads, 40, &exact));
        println!(
            "{count:>9}  {ordered:>8.1}  {single:>6.1}  {pair:>6.1}  {single_deficit:>14.2}  {pair_deficit:>12.2}"
        );
        assert!((14.0..16.0).contains(&ordered), "{ordered}");
        assert!(single > 4.0, "{single}");
        assert!(single_deficit < 1.0 && single_deficit < single / 4.0, "{single_deficit}");
        assert!(pair_deficit < 1.0, "{pair_deficit}");
    }
}

#[test]
fn approximate_resolver_loads_also_improve_the_shares() {
    let loads = zipf(1000, 1.0);
    let exact = worst_error(Way::Single, &loads, 40, &|load, _| load);
    println!("single {exact:.1}");
    for (noise, most) in [(0.2, 2.5), (0.5, 5.0)] {
        let told =
            |load: f64, rng: &mut SmallRng| load * rng.random_range(1.0 - noise..1.0 + noise);
        let rough = worst_error(Way::SingleByDeficit, &loads, 40, &told);
        println!("single by deficit, sizes off by up to {:.0} %: {rough:.1}", noise * 100.0);
        assert!(rough < most && rough < exact, "{noise} {rough}");
    }
}

#[test]
fn a_repeated_query_of_a_resolver_replaces_its_previous_assignment() {
    let mut known = ResolverLoads::new(8, Duration::from_secs(60));
    let now = Instant::now();
    (0..2).for_each(|number| known.observe(resolver(number), 1.0, now));
    let table = known.table(now, 0.02, &layout(2), &LoadTable::default());
    let group = group(Mode::Single, &[0.5, 0.5]);
    let ask = |number: usize| {
        let index = table.find(resolver(number)).unwrap();
        table.assign(0, 0, index, &group, (ttls(0.0), TTL)).unwrap().members().next().unwrap()
    };
    let (first, second) = (ask(0), ask(1));
    assert_ne!(first, second);
    for _ in 0..10 {
        assert_eq!(ask(0), first, "asking again moves nothing");
    }
    let sum: i64 = table.accounts[0].loads.iter().map(|load| load.load(Relaxed)).sum();
    assert!((sum - 100_000_000).abs() < 4, "{sum}");
}

/// A resolver may have more load than any node's share: then nodes must share it over time.
#[test]
fn a_resolver_heavier_than_any_share_rotates_over_the_nodes() {
    for (mode, most) in [(Mode::Single, 2.0), (Mode::Pair, 4.0)] {
        // The resolver asks a hundred times a TTL, as one without a cache does, or once a TTL.
        for (every, mode) in [(0.01, mode), (1.0, mode)] {
            let mut known = ResolverLoads::new(8, Duration::from_secs(600));
            let now = Instant::now();
            known.observe(resolver(0), 10.0, now);
            known.observe(resolver(1), 0.1, now);
            let mut table = known.table(now, 0.02, &layout(4), &LoadTable::default());
            let group = group(mode, &WEIGHTS);
            let mut had = [0.0; 4];
            for asked in 0..400 {
                let index = table.find(resolver(0)).unwrap();
                let at = ttls(f64::from(asked) * every);
                let chosen = table.assign(0, 0, index, &group, (at, TTL)).unwrap();
                let members: Vec<_> = chosen.members().collect();
                members.iter().for_each(|member| had[*member] += 1.0 / members.len() as f64);
                if asked % 100 == 99 {
                    table = known.table(now, 0.02, &layout(4), &table);
                }
            }
            for (had, share) in had.iter().zip(WEIGHTS) {
                let error = (had / 4.0 - share * 100.0).abs();
                assert!(error < most, "{mode:?} every {every}: {had} of 400 for {share}");
            }
        }
    }
}

#[test]
fn the_first_assigned_node_varies_with_the_resolver() {
    let first = |number: usize| {
        let mut known = ResolverLoads::new(8, Duration::from_secs(60));
        let now = Instant::now();
        known.observe(resolver(number), 1.0, now);
        let table = known.table(now, 0.02, &layout(4), &LoadTable::default());
        let index = table.find(resolver(number)).unwrap();
        let group = group(Mode::Single, &[0.25; 4]);
        table.assign(0, 0, index, &group, (ttls(0.0), TTL)).unwrap().members().next().unwrap()
    };
    let begun: std::collections::BTreeSet<usize> = (0..40).map(first).collect();
    assert_eq!(begun.len(), 4, "{begun:?}");
}

#[test]
fn a_new_table_keeps_assigned_loads_unless_the_nodes_change() {
    let mut known = ResolverLoads::new(8, Duration::from_secs(60));
    let now = Instant::now();
    (0..3).for_each(|number| known.observe(resolver(number), 1.0 + number as f64, now));
    let table = known.table(now, 0.02, &layout(2), &LoadTable::default());
    let group = group(Mode::Pair, &[0.5, 0.5]);
    for number in 0..3 {
        let index = table.find(resolver(number)).unwrap();
        assert!(table.assign(0, 0, index, &group, (ttls(0.0), TTL)).is_some());
    }
    let later = known.table(now, 0.02, &layout(2), &table);
    let loads = |table: &LoadTable| -> Vec<i64> {
        table.accounts[0].loads.iter().map(|l| l.load(Relaxed)).collect()
    };
    assert_eq!(loads(&later), loads(&table));
    let other = known.table(now, 0.02, &layout(3), &table);
    assert_eq!(loads(&other), [0, 0, 0], "other nodes are another account");
}

#[test]
fn unreported_loads_decay_and_the_table_stays_bounded() {
    let mut known = ResolverLoads::new(100, Duration::from_secs(10));
    let start = Instant::now();
    known.observe(resolver(0), 1000.0, start);
    for number in 1..1000 {
        known.observe(resolver(number), number as f64, start);
    }
    assert_eq!(known.len(), 100);
    let table = known.table(start, 0.02, &layout(2), &LoadTable::default());
    assert!(table.find(resolver(0)).is_some(), "the largest stay");
    assert!(table.find(resolver(999)).is_some());
    assert!(table.find(resolver(1)).is_none());
    let later = start + Duration::from_secs(400);
    known.observe(resolver(5000), 100.0, later);
    let table = known.table(later, 0.02, &layout(2), &LoadTable::default());
    assert_eq!((table.len(), known.len()), (1, 1));
}

#[test]
fn the_heaviest_of_many_reported_sources_are_kept() {
    let mut known = ResolverLoads::new(10, Duration::from_secs(10));
    let start = Instant::now();
    known.observe_all((0..20).map(|number| (resolver(number), 50.0)), start);
    assert_eq!(known.len(), 10);
    known.observe_all((20..120).map(|number| (resolver(number), number as f64)), start);
    let loads: Vec<f64> = (110..120).map(|number| known.load(resolver(number), start)).collect();
    assert_eq!(loads, (110..120).map(f64::from).collect::<Vec<_>>());
    assert_eq!((known.len(), known.load(resolver(0), start)), (10, 0.0));
}

#[test]
fn repeated_load_reports_are_averaged_and_invalid_reports_ignored() {
    let mut known = ResolverLoads::new(8, Duration::from_secs(10));
    let start = Instant::now();
    known.observe(resolver(0), 100.0, start);
    known.observe(resolver(0), 0.0, start + Duration::from_secs(10));
    let learnt = known.known[&resolver(0)];
    assert!((learnt.load - 50.0).abs() < 0.001);
    for bad in [f64::NAN, f64::INFINITY, -1.0] {
        known.observe(resolver(1), bad, start);
    }
    assert_eq!(known.len(), 1);
}

#[test]
fn a_resolver_and_a_subnet_of_one_address_are_distinct_sources() {
    let address = "192.0.2.0".parse().unwrap();
    assert_ne!(Source::resolver(address), Source::subnet(address));
    assert_eq!(Source::subnet(address), Source::subnet("192.0.2.77".parse().unwrap()));
    assert_eq!(
        Source::subnet("2001:db8:0:1::1".parse().unwrap()),
        Source::subnet("2001:db8:0:ff::1".parse().unwrap())
    );
    assert_ne!(Source::subnet(address).subnet, Source::resolver(address).subnet);
}
