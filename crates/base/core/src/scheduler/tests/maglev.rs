//! `maglev`, its table, and `source-hash`.

use super::super::maglev::{Table, maglev_table};
use super::*;

const SIZE: usize = 65_537;

/// Pseudocode 1 of the paper, with complete permutations and backends in the order of identity.
fn paper_table(candidates: &[Candidate], seed: u64) -> Vec<u32> {
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by_key(|&slot| candidates[slot].identity);
    let permutation = |&slot: &usize| -> Vec<usize> {
        let (offset, skip) = hash::offset_and_skip(candidates[slot].identity, seed);
        let (offset, skip) = (offset as usize % SIZE, skip as usize % (SIZE - 1) + 1);
        (0..SIZE).map(|j| (offset + j * skip) % SIZE).collect()
    };
    let permutations: Vec<Vec<usize>> = order.iter().map(permutation).collect();
    let mut next = vec![0; order.len()];
    let mut entry = vec![None; SIZE];
    let mut filled = 0;
    loop {
        for i in 0..order.len() {
            let mut c = permutations[i][next[i]];
            while entry[c].is_some() {
                next[i] += 1;
                c = permutations[i][next[i]];
            }
            entry[c] = Some(order[i] as u32);
            next[i] += 1;
            filled += 1;
            if filled == SIZE {
                return entry.into_iter().flatten().collect();
            }
        }
    }
}

fn table(weights: &[u32]) -> Table {
    Table::new(&candidates(weights), 1)
}

fn counts(table: &Table, slots: usize) -> Vec<u64> {
    let mut counts = vec![0; slots];
    for &slot in table.entries() {
        counts[slot as usize] += 1;
    }
    counts
}

/// The part of the entries that changed, although neither their old nor their new backend is
/// `changed`.
fn disrupted(before: &Table, after: &Table, changed: usize) -> f64 {
    let is_bystander = |&(a, b): &(&u32, &u32)| a != b && ![*a, *b].contains(&(changed as u32));
    let moved = before.entries().iter().zip(after.entries()).filter(is_bystander).count();
    moved as f64 / before.entries().len() as f64
}

#[test]
fn equal_weights_give_the_papers_table() {
    for backends in [1, 2, 7] {
        let candidates = candidates(&vec![3; backends]);
        for seed in [0, 42] {
            let table = Table::new(&candidates, seed);
            assert!(table.entries() == paper_table(&candidates, seed), "{backends} backends");
        }
    }
}

#[test]
fn equal_weights_differ_by_one_entry_at_most() {
    for backends in [1, 2, 3, 10, 100, 1000] {
        let counts = counts(&table(&vec![1; backends]), backends);
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(most - least <= 1, "{backends} backends: {least}..{most}");
    }
}

#[test]
fn entries_are_in_proportion_to_weight() {
    let falling: Vec<u32> = (0..1000).map(|at| 1000 - at).collect();
    for weights in [&[1, 2, 3, 0, 10][..], &[1000, 1, 500], &falling] {
        let counts = counts(&table(weights), weights.len());
        let (largest, at) = weights.iter().zip(0..).max_by_key(|&(weight, _)| weight).unwrap();
        for (&count, &weight) in counts.iter().zip(weights) {
            let exact = counts[at] as f64 * f64::from(weight) / f64::from(*largest);
            assert!((count as f64 - exact).abs() <= 2.0, "weight {weight}: {count}, not {exact}");
            assert_eq!(count > 0, weight > 0, "weight {weight}");
        }
    }
}

#[test]
fn the_lightest_backend_of_a_pool_has_an_entry() {
    let mut weights = vec![1000; 1000];
    weights[500] = 1;
    assert_eq!(counts(&table(&weights), 1000)[500], 1);
}

/// For each change of one backend, both directions: removing and adding it.
#[test]
fn losing_or_adding_a_backend_moves_few_flows_of_the_others() {
    for (backends, limit) in [(2, 0.0), (10, 0.004), (100, 0.008), (1000, 0.008)] {
        let mut weights = vec![1; backends];
        let with = table(&weights);
        for changed in [0, backends / 2, backends - 1] {
            weights[changed] = 0;
            let without = table(&weights);
            for moved in [disrupted(&with, &without, changed), disrupted(&without, &with, changed)]
            {
                assert!(moved <= limit, "{moved} of the entries of {backends}");
            }
            weights[changed] = 1;
        }
    }
}

#[test]
fn changing_a_weight_moves_few_flows_of_the_others() {
    let mut weights: Vec<u32> = (0..100).map(|at| 10 + at % 10).collect();
    let before = table(&weights);
    for (changed, weight) in [(0, 11), (5, 1), (50, 0), (99, 10), (99, 40), (7, 19)] {
        let weight_before = std::mem::replace(&mut weights[changed], weight);
        let moved = disrupted(&before, &table(&weights), changed);
        assert!(moved <= 0.008, "{moved} when {weight_before} becomes {weight}");
        weights[changed] = weight_before;
    }
}

#[test]
fn the_order_of_the_configuration_does_not_matter() {
    let forwards = candidates(&[3, 1, 4, 1, 5]);
    let backwards: Vec<_> = forwards.iter().copied().rev().collect();
    let (a, b) = (Table::new(&forwards, 1), Table::new(&backwards, 1));
    assert!(a.entries().iter().zip(b.entries()).all(|(a, b)| *a == 4 - b));
}

#[test]
fn the_unit_of_the_weights_does_not_matter() {
    let (a, b) = (table(&[3, 1, 4]), table(&[3000, 1000, 4000]));
    assert!(a.entries() == b.entries());
}

#[test]
fn another_seed_gives_another_table() {
    let candidates = candidates(&[1; 10]);
    assert!(Table::new(&candidates, 1).entries() != Table::new(&candidates, 2).entries());
}

#[test]
fn very_large_pools_get_the_large_table() {
    let large = table(&vec![1; 2100]);
    assert_eq!(large.entries().len(), 655_373);
    let counts = counts(&large, 2100);
    assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1);
}

#[test]
fn a_retry_takes_the_next_entry_of_another_backend() {
    let table = table(&[1, 50, 1]);
    let entries = table.entries();
    for at in (0..SIZE).step_by(97).chain([SIZE - 1]) {
        let hash = (((at as u128) << 64) / SIZE as u128 + 1) as u64;
        let slot = entries[at] as usize;
        assert_eq!(table.lookup(hash, None, &Given::default()), Some(slot));
        assert_eq!(table.lookup(hash, Some(slot + 1), &Given::default()), Some(slot));
        let mut next = at;
        while entries[next] as usize == slot {
            next = (next + 1) % SIZE;
        }
        assert_eq!(table.lookup(hash, Some(slot), &Given::default()), Some(entries[next] as usize));
    }
}

#[test]
fn maglev_uses_only_the_flow_hash_and_source_hash_the_source() {
    let plan_candidates = candidates(&[1; 50]);
    for (kind, by_flow) in [(SchedulerKind::Maglev, true), (SchedulerKind::SourceHash, false)] {
        let mut bench = Bench::new(kind, &[1; 50], 5);
        let table = Table::new(&plan_candidates, 5);
        for at in 0..200u64 {
            let (key, noise) = hash::offset_and_skip(at, 77);
            let (flow_hash, source_hash) = if by_flow { (key, noise) } else { (noise, key) };
            let loads = Given::in_flight(&[at as u32; 50]);
            let rng = &mut bench.rng;
            let mut ask = Ask { flow_hash, source_hash, avoid: None, loads: &loads, rng };
            assert_eq!(
                bench.scheduler.pick(&mut ask),
                table.lookup(key, None, &Given::default()),
                "{kind}"
            );
        }
    }
}

#[test]
fn maglev_table_returns_the_entries_of_the_schedulers_table() {
    let candidates = candidates(&[3, 0, 4]);
    assert_eq!(*maglev_table(&candidates, SIZE, 9), *Table::new(&candidates, 9).entries());
    let small = maglev_table(&candidates, 251, 9);
    assert_eq!((small.len(), small.contains(&1)), (251, false));
    assert!(maglev_table(&candidates[1..2], 251, 9).is_empty());
}
