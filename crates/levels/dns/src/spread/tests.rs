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
        host: None,
    });
    Group::new(1, mode, members.collect(), &mut SmallRng::seed_from_u64(1))
}

/// Shares of clients that take a random address of an answer.
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

/// Shares of clients that take the first address of an answer.
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

/// Records, bytes and truncation of an answer of 20 nodes with 16 bytes each, and the number of
/// nodes reported as given.
fn in_room(mode: Mode, room: usize) -> (u16, usize, bool, usize) {
    let group = group(mode, &[1.0; 20]);
    let chosen = group.draw(&mut SmallRng::seed_from_u64(3));
    let (mut out, mut given) = (vec![0; room], Vec::new());
    let written = group.write(&chosen, (60, QUESTION_POINTER), &mut out, |node| given.push(node));
    assert!(room < 16 || out[6..10] == [0, 0, 0, 60]);
    let wanted: Vec<_> = chosen.members().take(given.len()).collect();
    assert_eq!(given, wanted, "{mode:?}: those of the answer are counted, no others");
    (written.counts[0], written.bytes, written.truncated, given.len())
}

#[test]
fn records_that_do_not_fit_are_left_out_whole() {
    assert_eq!(in_room(Mode::Ordered, 100), (6, 96, false, 6));
    assert_eq!(in_room(Mode::Ordered, 320), (20, 320, false, 20));
    assert_eq!(in_room(Mode::Pair, 16), (1, 16, false, 1));
}

#[test]
fn srv_without_one_of_its_nodes_and_any_answer_without_all_are_truncated() {
    assert_eq!(in_room(Mode::Srv, 320), (20, 320, false, 20));
    assert_eq!(in_room(Mode::Srv, 319), (19, 304, true, 19));
    for mode in [Mode::Srv, Mode::Pair, Mode::Single, Mode::Ordered] {
        assert_eq!(in_room(mode, 15), (0, 0, true, 0), "{mode:?}");
    }
}
