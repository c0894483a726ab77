use rand::SeedableRng;
use rand::rngs::StdRng;

use super::*;

/// Loads of peers: requests in flight, and failures.
struct At([(u32, u32); 3]);

impl Loads for At {
    fn in_flight(&self, slot: usize) -> u32 {
        self.0[slot].0
    }

    fn recent_failures(&self, slot: usize) -> u32 {
        self.0[slot].1
    }

    fn response_us(&self, _: usize) -> Option<f64> {
        None
    }
}

const NOTHING: At = At([(0, 0); 3]);

fn underway(here: u32, there: u32, peers: &At) -> Underway<'_> {
    Underway { here, here_failures: 0, there, peers }
}

/// The parts of requests served here and by each peer.
fn tally_of(table: &DispatchTable, class: RequestClass, underway: &Underway) -> [f64; 4] {
    let mut rng = StdRng::seed_from_u64(3);
    let mut counts = [0.0; 4];
    for _ in 0..100_000 {
        match table.choose(class, underway, &mut rng) {
            Choice::Here => counts[0] += 1e-5,
            Choice::Peer(at) => counts[at + 1] += 1e-5,
        }
    }
    counts
}

fn tally(table: &DispatchTable, class: RequestClass) -> [f64; 4] {
    tally_of(table, class, &underway(0, 0, &NOTHING))
}

/// Largest error of a part of 100,000 draws.
const SAMPLING: f64 = 0.006;

/// The largest step of a plan, which the planner's policy has as default.
const STEP_MAX: f64 = 0.25;

fn near(found: [f64; 4], expected: [f64; 4]) {
    for (found, expected) in found.into_iter().zip(expected) {
        assert!((found - expected).abs() < SAMPLING, "{found} is not {expected}");
        assert!(expected > 0.0 || found == 0.0);
    }
}

#[test]
fn requests_are_split_as_in_the_papers_example() {
    let table = DispatchTable::new(PerClass::from_fn(|_| 0.2), [0.32, 0.0, 0.48]);
    near(tally(&table, RequestClass::default()), [0.2, 0.32, 0.0, 0.48]);
}

#[test]
fn load_in_proportion_to_the_shares_yields_the_planned_split() {
    let table = DispatchTable::new(PerClass::from_fn(|_| 0.25), [0.25, 0.0, 0.5]);
    let peers = At([(16, 0), (0, 0), (32, 0)]);
    let alike = tally_of(&table, RequestClass::default(), &underway(20, 60, &peers));
    near(alike, [0.25, 0.25, 0.0, 0.5]);
}

#[test]
fn each_class_has_its_own_keep_share() {
    let mut keep = PerClass::from_fn(|_| 1.0);
    keep.computing = 0.5;
    let table = DispatchTable::new(keep, [1.0, 1.0, 3.0]);
    let busy = underway(50, 0, &NOTHING);
    near(tally_of(&table, RequestClass::Light, &busy), [1.0, 0.0, 0.0, 0.0]);
    near(tally(&table, RequestClass::Computing), [0.5, 0.1, 0.1, 0.3]);
}

/// The definition: all pairs of draws with their probabilities.
fn naive(keep: f64, weights: [f64; 3], here: f64, there: f64, peers: [f64; 3]) -> [f64; 4] {
    let mut peer = [0.0; 3];
    for a in 0..3 {
        for b in 0..3 {
            let less = if peers[b] / weights[b] < peers[a] / weights[a] { b } else { a };
            peer[less] += weights[a] * weights[b];
        }
    }
    let (kept, given) = (keep * keep, (1.0 - keep) * (1.0 - keep));
    let mixed = 2.0 * keep * (1.0 - keep);
    let kept = match (here / keep).total_cmp(&(there / (1.0 - keep))) {
        std::cmp::Ordering::Less => kept + mixed,
        std::cmp::Ordering::Equal => kept + mixed / 2.0,
        std::cmp::Ordering::Greater => kept,
    };
    assert!(kept + given <= 1.0 + 1e-9);
    [kept, (1.0 - kept) * peer[0], (1.0 - kept) * peer[1], (1.0 - kept) * peer[2]]
}

#[test]
fn of_two_draws_the_one_with_less_load_per_share_wins() {
    let weights = [0.25, 0.25, 0.5];
    for keep in [0.125, 0.5, 0.57, 0.875] {
        for (here, there) in [(9, 2), (2, 9), (0, 1), (5, 5), (0, 0)] {
            for peers in [[0, 0, 0], [4, 1, 0], [2, 2, 4], [0, 9, 9]] {
                let table = DispatchTable::new(PerClass::from_fn(|_| keep), weights);
                let at = At(peers.map(|it| (it, 0)));
                let found = tally_of(&table, RequestClass::default(), &underway(here, there, &at));
                let peers = peers.map(f64::from);
                near(found, naive(keep, weights, here.into(), there.into(), peers));
            }
        }
    }
}

#[test]
fn the_kept_share_deviates_at_most_a_quarter_under_any_load() {
    for keep in [0.05, 0.3, 0.5, 0.57, 0.8, 0.99] {
        let table = DispatchTable::new(PerClass::from_fn(|_| keep), [1.0]);
        let (least, most) = (keep * keep, 2.0 * keep - keep * keep);
        assert!(keep - least <= STEP_MAX && most - keep <= STEP_MAX, "{keep}");
        for (here, there, expected) in [(1000, 0, least), (0, 1000, most)] {
            let found = tally_of(&table, RequestClass::default(), &underway(here, there, &NOTHING));
            near(found, [expected, 1.0 - expected, 0.0, 0.0]);
            assert!((found[0] - keep).abs() < STEP_MAX + SAMPLING, "{keep}: {found:?}");
            assert!(found[1] < 2.0 * (1.0 - keep) + SAMPLING, "{keep}: {found:?}");
        }
    }
}

#[test]
fn an_idle_node_with_recent_failures_receives_less_work() {
    let keep = PerClass::from_fn(|_| 0.5);
    let table = DispatchTable::new(keep, [1.0, 1.0, 0.0]);
    let class = RequestClass::default();
    let peers = At([(0, 3), (6, 0), (0, 0)]);
    let found = tally_of(&table, class, &underway(6, 6, &peers));
    assert!(found[1] < 0.3 * found[2], "beside a peer that works: {found:?}");
    // Its own application works, and there is no other peer.
    let table = DispatchTable::new(keep, [1.0]);
    let found = tally_of(&table, class, &underway(6, 0, &peers));
    near(found, [0.75, 0.25, 0.0, 0.0]);
    // Its own application fails instead.
    let fails = Underway { here: 0, here_failures: 3, there: 6, peers: &NOTHING };
    near(tally_of(&table, class, &fails), [0.25, 0.75, 0.0, 0.0]);
}

#[test]
fn a_keep_share_of_zero_delegates_every_request_at_any_load() {
    let table = DispatchTable::new(PerClass::from_fn(|_| 0.0), [1.0]);
    for (here, there) in [(0, 50), (50, 0), (0, 0)] {
        let found = tally_of(&table, RequestClass::Light, &underway(here, there, &NOTHING));
        near(found, [0.0, 1.0, 0.0, 0.0]);
    }
}

#[test]
fn the_planned_part_of_each_class_is_refused_at_random() {
    let refuse = PerClass { computing: 0.25, large_transfer: 1.0, ..PerClass::default() };
    let table = DispatchTable::keep_all().refusing(refuse);
    let mut rng = StdRng::seed_from_u64(4);
    let mut let_in = |class| (0..20_000).filter(|_| table.admits(class, &mut rng)).count();
    assert_eq!(let_in(RequestClass::Light), 20_000);
    assert_eq!(let_in(RequestClass::LargeTransfer), 0);
    let computing = let_in(RequestClass::Computing);
    assert!((14_500..15_500).contains(&computing), "{computing}");
}

#[test]
fn without_a_usable_peer_every_request_is_served_here() {
    let none = PerClass::from_fn(|_| 0.0);
    for weights in [vec![], vec![0.0, 0.0], vec![f64::NAN, -1.0]] {
        let table = DispatchTable::new(none, weights);
        assert_eq!(table.peers(), 0);
        near(tally(&table, RequestClass::Computing), [1.0, 0.0, 0.0, 0.0]);
    }
    near(tally(&DispatchTable::keep_all(), RequestClass::Light), [1.0, 0.0, 0.0, 0.0]);
}
