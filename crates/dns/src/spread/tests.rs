use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::*;

const DRAWS: usize = 200_000;

fn group(mode: Mode, weights: &[f64]) -> Group {
    let sum: f64 = weights.iter().sum();
    let members = weights.iter().enumerate().map(|(node, weight)| Member {
        node,
        place: node,
        share: weight / sum,
        records: record(1, &[192, 0, 2, node as u8]).into(),
        count: 1,
    });
    Group::new(1, mode, members.collect(), &mut SmallRng::seed_from_u64(1))
}

/// Shares of clients that take one of an answer's addresses at random.
fn shuffled_shares(group: &Group) -> Vec<f64> {
    let mut rng = SmallRng::seed_from_u64(7);
    let mut taken = vec![0.0; group.members.len()];
    for _ in 0..DRAWS {
        let members: Vec<_> = group.draw(&mut rng).members().collect();
        for member in &members {
            taken[*member] += 1.0 / members.len() as f64;
        }
    }
    taken.iter().map(|count| count / DRAWS as f64).collect()
}

/// Shares of clients that take the first.
fn first_shares(group: &Group) -> Vec<f64> {
    let mut rng = SmallRng::seed_from_u64(9);
    let mut taken = vec![0.0; group.members.len()];
    for _ in 0..DRAWS {
        taken[group.draw(&mut rng).members().next().unwrap()] += 1.0;
    }
    taken.iter().map(|count| count / DRAWS as f64).collect()
}

fn close(found: &[f64], weights: &[f64]) -> bool {
    let sum: f64 = weights.iter().sum();
    found.iter().zip(weights).all(|(found, weight)| (found - weight / sum).abs() < 0.005)
}

const WEIGHTS: [&[f64]; 7] = [
    &[1.0],
    &[1.0, 1.0],
    &[3.0, 1.0],
    &[10.0, 20.0, 30.0, 40.0],
    &[1.0, 1.0, 8.0],
    &[1.0; 12],
    &[0.001, 1.0, 500.0, 1.0, 99.0],
];

#[test]
fn a_pair_keeps_its_weights_whether_a_resolver_shuffles_it_or_not() {
    for weights in WEIGHTS {
        let group = group(Mode::Pair, weights);
        assert!(
            close(&shuffled_shares(&group), weights),
            "{weights:?} {:?}",
            shuffled_shares(&group)
        );
        assert!(close(&first_shares(&group), weights), "{weights:?} {:?}", first_shares(&group));
    }
}

#[test]
fn a_pair_has_two_nodes_unless_one_has_more_than_half_of_the_weight() {
    let mut rng = SmallRng::seed_from_u64(3);
    for (weights, alone) in [
        (&[10.0, 20.0, 30.0, 40.0][..], 0.0),
        (&[1.0, 1.0], 0.0),
        (&[3.0, 1.0], 0.5),
        (&[1.0, 1.0, 8.0], 0.6),
    ] {
        let group = group(Mode::Pair, weights);
        let single = (0..DRAWS).filter(|_| group.draw(&mut rng).members().count() == 1).count();
        assert!((single as f64 / DRAWS as f64 - alone).abs() < 0.01, "{weights:?} {single}");
    }
}

#[test]
fn single_and_ordered_put_first_by_weight() {
    for mode in [Mode::Single, Mode::Ordered, Mode::Https] {
        for weights in WEIGHTS {
            assert!(close(&first_shares(&group(mode, weights)), weights), "{mode:?} {weights:?}");
        }
    }
}

#[test]
fn ordered_has_every_node_once() {
    let group = group(Mode::Ordered, &[1.0; 64]);
    let mut rng = SmallRng::seed_from_u64(3);
    for _ in 0..100 {
        let mut members: Vec<_> = group.draw(&mut rng).members().collect();
        members.sort();
        assert_eq!(members, (0..64).collect::<Vec<_>>());
    }
}

#[test]
fn a_node_that_fails_burdens_more_than_one_neighbour() {
    let group = group(Mode::Pair, &[1.0; 8]);
    let mut rng = SmallRng::seed_from_u64(5);
    let mut beside = std::collections::BTreeSet::new();
    for _ in 0..1000 {
        let members: Vec<_> = group.draw(&mut rng).members().collect();
        if members.contains(&0) {
            beside.extend(members.into_iter().filter(|member| *member != 0));
        }
    }
    assert!(beside.len() >= 4, "{beside:?}");
}

#[test]
fn records_that_do_not_fit_are_left_out_whole() {
    let group = group(Mode::Ordered, &[1.0; 20]);
    let chosen = group.draw(&mut SmallRng::seed_from_u64(3));
    let mut out = [0; 100];
    let written = group.write(&chosen, 60, 12, &mut out);
    assert_eq!((written.bytes, written.counts, written.truncated), (96, [6, 0, 0], false));
    assert_eq!(out[6..10], [0, 0, 0, 60]);
}
