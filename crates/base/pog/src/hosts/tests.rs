use proptest::prelude::*;

use super::*;
use crate::hash::Seed;

fn filled(capacities: &[(HostId, u32)], bits: u32) -> HostTable {
    let mut table = HostTable::new(bits);
    table.share_out(capacities, |_| false, &mut Vec::new()).unwrap();
    table
}

#[test]
fn shares_follow_the_largest_remainder_method() {
    // 16 entries by 5:3:2 are 8, 4.8 and 3.2: the remaining one goes to 4.8.
    let table = filled(&[(1, 5), (2, 3), (3, 2)], 4);
    assert_eq!(table.counts().into_iter().collect::<Vec<_>>(), [(1, 8), (2, 5), (3, 3)]);
}

#[test]
fn a_tie_of_remainders_leaves_the_extra_entry_at_its_host() {
    // 16 entries for three equal hosts: one gets 6. Host 3 already has 6.
    let mut table = HostTable::new(4);
    for (entry, host) in [1; 5].into_iter().chain([2; 5]).chain([3; 6]).enumerate() {
        table.point(EntryWrite { entry: entry as u16, host });
    }
    let moved = table.share_out(&[(1, 1), (2, 1), (3, 1)], |_| false, &mut Vec::new()).unwrap();
    assert_eq!(moved, Moved { moved: 0, least: 0, held: 0 });
}

#[test]
fn impossible_shares_are_refused_and_nothing_moves() {
    let mut table = filled(&[(1, 1)], 4);
    let before = table.clone();
    let mut try_with = |capacities: &[(HostId, u32)]| {
        table.share_out(capacities, |_| false, &mut Vec::new()).unwrap_err()
    };
    assert_eq!(try_with(&[]), SharesError::NoCapacity);
    assert_eq!(try_with(&[(1, 0), (2, 0)]), SharesError::NoCapacity);
    assert_eq!(try_with(&[(1, 2), (1, 2)]), SharesError::Twice(1));
    assert_eq!(try_with(&[(NO_HOST, 2)]), SharesError::NotAHost);
    assert_eq!(table, before);
}

fn capacities() -> impl Strategy<Value = Vec<(HostId, u32)>> {
    prop::collection::btree_map(0..40_u16, 0..1000_u32, 1..20)
        .prop_map(|hosts| hosts.into_iter().collect::<Vec<_>>())
        .prop_filter("some capacity", |hosts| hosts.iter().any(|(_, capacity)| *capacity > 0))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn shares_are_within_one_of_exact_and_sum_up(capacities in capacities()) {
        let shares = shares(&capacities, 256, |_| 0).unwrap();
        let total: u64 = capacities.iter().map(|(_, capacity)| u64::from(*capacity)).sum();
        prop_assert_eq!(shares.iter().map(|(_, share)| share).sum::<usize>(), 256);
        for ((host, capacity), (of, share)) in capacities.iter().zip(&shares) {
            prop_assert_eq!(host, of);
            let exact = u64::from(*capacity) as f64 * 256.0 / total as f64;
            prop_assert!((*share as f64 - exact).abs() < 1.0);
        }
    }

    #[test]
    fn a_change_moves_the_fewest_possible_entries(before in capacities(), after in capacities()) {
        let mut table = filled(&before, 8);
        let old = table.clone();
        let mut writes = Vec::new();
        let moved = table.share_out(&after, |_| false, &mut writes).unwrap();
        let differ = old.entries().iter().zip(table.entries()).filter(|(a, b)| a != b).count();
        let counts = |table: &HostTable, host| table.counts().get(&host).copied().unwrap_or(0);
        let gained: usize = (0..40)
            .map(|host| counts(&table, host).saturating_sub(counts(&old, host)))
            .sum();
        prop_assert_eq!(moved, Moved { moved: differ, least: gained, held: 0 });
        prop_assert_eq!(differ, gained, "an entry moved without need");
        prop_assert_eq!(writes.len(), differ);
    }

    #[test]
    fn held_entries_stay(before in capacities(), after in capacities(), hold: u64) {
        let mut table = filled(&before, 8);
        let old = table.clone();
        let held = |entry: usize| hold >> (entry % 64) & 1 == 1;
        let moved = table.share_out(&after, held, &mut Vec::new()).unwrap();
        for entry in (0..256).filter(|entry| held(*entry)) {
            prop_assert_eq!(table.entries()[entry], old.entries()[entry]);
        }
        prop_assert_eq!(moved.moved + moved.held, moved.least);
    }
}

const SEED: Seed = Seed { k0: 1, k1: 2 };

#[test]
fn maglev_gives_shares_by_capacity() {
    let mut table = HostTable::new(12);
    table.fill_maglev(&[(1, 1), (2, 2), (3, 1)], SEED, |_| false, &mut Vec::new()).unwrap();
    let counts: Vec<_> = table.counts().into_iter().collect();
    for ((host, count), (wanted, share)) in
        counts.into_iter().zip([(1, 1024), (2, 2048), (3, 1024)])
    {
        assert_eq!(host, wanted);
        assert!(count.abs_diff(share) <= 1, "host {host}: {count}");
    }
}

#[test]
fn a_maglev_table_ignores_host_order_and_moves_few_entries() {
    let hosts: Vec<(HostId, u32)> = (0..10).map(|host| (host, 10)).collect();
    let reversed: Vec<_> = hosts.iter().rev().copied().collect();
    let table = maglev(&hosts, 4096, SEED).unwrap();
    assert_eq!(table, maglev(&reversed, 4096, SEED).unwrap());
    assert_ne!(table, maglev(&hosts, 4096, Seed { k0: 9, k1: 2 }).unwrap());
    let without = maglev(&hosts[..9], 4096, SEED).unwrap();
    let moved = table.iter().zip(&without).filter(|(a, b)| a != b && **a != 9).count();
    assert!(moved < 4096 / 10, "{moved} entries of hosts that stayed moved");
}

#[test]
fn a_maglev_fill_reports_moved_held_and_minimum_entry_counts() {
    let mut table = filled(&[(0, 1), (1, 1)], 8);
    let old = table.clone();
    let mut writes = Vec::new();
    let held = |entry| entry < 10;
    let moved = table.fill_maglev(&[(0, 1), (1, 1), (2, 1)], SEED, held, &mut writes).unwrap();
    assert_eq!(old.entries()[..10], table.entries()[..10]);
    assert_eq!(moved.moved, writes.len());
    assert_eq!(moved.least, 85);
    assert!(moved.moved > moved.least && moved.held <= 10);
}
