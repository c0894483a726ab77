use std::collections::HashMap;

use proptest::prelude::*;

use super::{PogController, Update};
use crate::*;

type Model = HashMap<u64, u16>;

/// Checks all relations between the controller, its image and the model.
fn check<H: KeyHash, F: Form>(controller: &PogController<u64, u16, H, F>, model: &Model) {
    assert_eq!(controller.len(), model.len());
    for (key, tau) in model {
        assert_eq!(controller.get(key), Some(*tau));
        assert_eq!(controller.pog().value(controller.pog().hash().hash(key)), *tau);
    }
    assert_eq!(controller.iter().map(|(key, tau)| (*key, tau)).collect::<Model>(), *model);
    assert!(controller.pog().sizes().fit(model.len()), "{:?}", controller.pog().sizes());
    assert_acyclic(controller);
}

/// Uses a separate, naive union-find.
fn assert_acyclic<K: Key + Eq, C: Cell, H: KeyHash, F: Form>(
    controller: &PogController<K, C, H, F>,
) {
    let pog = controller.pog();
    let mut component: Vec<usize> = (0..pog.cells().len()).collect();
    fn root(component: &[usize], mut at: usize) -> usize {
        while component[at] != at {
            at = component[at];
        }
        at
    }
    for key in controller.keys() {
        let (a, b) = pog.sizes().cells_of(pog.hash().hash(key));
        let (a, b) = (root(&component, a as usize), root(&component, b as usize));
        assert_ne!(a, b, "the key closes a cycle");
        component[a] = b;
    }
}

#[derive(Clone, Debug)]
enum Op {
    One(Update<u64, u16>),
    Batch(Vec<Update<u64, u16>>),
    Rebalance,
    Rebuild,
    InsertAll(Vec<(u64, u16)>),
}

/// Few distinct keys, so that operations interact.
fn update() -> impl Strategy<Value = Update<u64, u16>> {
    let key = 0..400_u64;
    prop_oneof![
        5 => (key.clone(), any::<u16>()).prop_map(|(key, tau)| Update::Insert(key, tau)),
        3 => key.clone().prop_map(Update::Delete),
        2 => (key, any::<u16>()).prop_map(|(key, tau)| Update::Alter(key, tau)),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        60 => update().prop_map(Op::One),
        6 => prop::collection::vec(update(), 0..60).prop_map(Op::Batch),
        1 => Just(Op::Rebalance),
        1 => Just(Op::Rebuild),
        1 => prop::collection::vec((300..900_u64, any::<u16>()), 0..80).prop_map(Op::InsertAll),
    ]
}

fn expect(model: &mut Model, update: &Update<u64, u16>, tau_bits: u32) -> Result<(), UpdateError> {
    let fits = |tau: u16| match u32::from(tau) >> tau_bits {
        0 => Ok(tau),
        _ => Err(UpdateError::Value { value: u64::from(tau), tau_bits }),
    };
    match *update {
        Update::Insert(key, tau) => {
            let tau = fits(tau)?;
            if let Some(there) = model.get(&key) {
                return Err(UpdateError::Duplicate { tau: u64::from(*there) });
            }
            model.insert(key, tau);
        }
        Update::Delete(key) => model.remove(&key).map(|_| ()).ok_or(UpdateError::Unknown)?,
        Update::Alter(key, tau) => {
            let tau = fits(tau)?;
            *model.get_mut(&key).ok_or(UpdateError::Unknown)? = tau;
        }
    }
    Ok(())
}

fn one<F: Form>(
    controller: &mut PogController<u64, u16, SipHash13, F>,
    update: Update<u64, u16>,
) -> Result<(), UpdateError> {
    match update {
        Update::Insert(key, tau) => controller.insert(key, tau).map(drop),
        Update::Delete(key) => controller.delete(&key).map(drop),
        Update::Alter(key, tau) => controller.alter(&key, tau).map(drop),
    }
}

/// Applies the operations to a controller, a map, and a copy that only receives the deltas.
fn run<F: Form>(mut controller: PogController<u64, u16, SipHash13, F>, ops: &[Op]) {
    let tau_bits = controller.pog().form().tau_bits::<u16>();
    let mut model = Model::new();
    let mut copy = controller.pog().clone();
    for op in ops {
        match op {
            Op::One(update) => {
                let before = controller.pog().generation();
                let expected = expect(&mut model, update, tau_bits);
                assert_eq!(one(&mut controller, *update), expected);
                assert!(expected.is_ok() || controller.pog().generation() == before);
            }
            Op::Batch(updates) => {
                let expected: Vec<_> =
                    updates.iter().map(|update| expect(&mut model, update, tau_bits)).collect();
                let mut outcomes = Vec::new();
                controller.update(updates.iter().copied(), &mut outcomes);
                assert_eq!(outcomes, expected);
            }
            Op::Rebalance => drop(controller.rebalance()),
            Op::Rebuild => drop(controller.rebuild().unwrap()),
            Op::InsertAll(entries) => {
                let mut grown = model.clone();
                let fine = entries.iter().all(|(key, tau)| {
                    u32::from(*tau) >> tau_bits == 0 && grown.insert(*key, *tau).is_none()
                });
                assert_eq!(controller.insert_all(entries.iter().copied()).is_ok(), fine);
                if fine {
                    model = grown;
                }
            }
        }
        match copy.apply(controller.delta()) {
            Ok(()) => {}
            Err(ApplyError::Whole { .. }) => copy.clone_from(controller.pog()),
            Err(error) => panic!("{error}"),
        }
        assert_eq!(copy.cells(), controller.pog().cells());
        assert_eq!(copy.generation(), controller.pog().generation());
    }
    check(&controller, &model);
}

/// Number of random programs per property; the nightly target sets a larger one.
fn cases() -> ProptestConfig {
    let cases = std::env::var("POG_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(24);
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn equals_a_map(ops in prop::collection::vec(op(), 1..400), seed: u64) {
        run(PogBuilder::new().random_seed(seed).build([]).unwrap(), &ops);
    }

    #[test]
    fn equals_a_map_in_fingerprint_form(ops in prop::collection::vec(op(), 1..400), seed: u64) {
        let form = Fingerprint::new::<u16>(14).unwrap();
        run(PogBuilder::new().fingerprint(form).random_seed(seed).build([]).unwrap(), &ops);
    }
}

fn built(keys: u64) -> PogController<u64, u16> {
    PogBuilder::new().random_seed(7).build((0..keys).map(|key| (key, key as u16))).unwrap()
}

fn model_of(keys: std::ops::Range<u64>) -> Model {
    keys.map(|key| (key, key as u16)).collect()
}

#[test]
fn sizes_keep_to_the_papers_bounds_all_the_way_up_and_down() {
    let mut controller = built(0);
    for key in 0..3000 {
        controller.insert(key, key as u16).unwrap();
        assert!(controller.pog().sizes().fit(controller.len()), "{} keys", controller.len());
    }
    check(&controller, &model_of(0..3000));
    for key in 0..3000 {
        controller.delete(&key).unwrap();
        assert!(controller.pog().sizes().fit(controller.len()), "{} keys", controller.len());
        if key % 500 == 0 {
            check(&controller, &model_of(key + 1..3000));
        }
    }
    assert_eq!(controller.pog().cells().len(), 2);
}

#[test]
fn changes_of_size_are_rare() {
    let mut controller = built(1000);
    let mut sizes = controller.pog().sizes();
    let mut changes = 0;
    for round in 0..2000_u64 {
        controller.insert(1000 + round, 0).unwrap();
        controller.delete(&round).unwrap();
        changes += u32::from(std::mem::replace(&mut sizes, controller.pog().sizes()) != sizes);
    }
    assert!(changes <= 1, "{changes} changes of size while the number of keys stayed the same");
}

#[test]
fn a_build_reports_the_positions_of_a_duplicate_key() {
    let twice = PogBuilder::<u16>::new().build([(5_u64, 0), (6, 0), (7, 0), (6, 1)]);
    assert_eq!(twice.unwrap_err(), BuildError::Duplicate { first: 1, second: 3 });
}

#[test]
fn a_failed_insert_of_many_changes_nothing() {
    let mut controller = built(500);
    let before = controller.pog().clone();
    let error = controller.insert_all([(1000, 0), (3, 0)]).unwrap_err();
    assert!(matches!(error, BuildError::Duplicate { .. }), "{error}");
    assert_eq!(controller.pog().cells(), before.cells());
    assert_eq!(controller.pog().generation(), before.generation());
    check(&controller, &model_of(0..500));
    controller.insert(1000, 1000).unwrap();
    assert_eq!(controller.get(&1000), Some(1000));
}

#[test]
fn a_full_set_refuses_inserts_and_stays_unchanged() {
    let entries = (0..10_u64).map(|key| (key, key as u16));
    let mut controller = PogBuilder::new().keys_max(10).build(entries).unwrap();
    assert_eq!(controller.insert(10, 0).unwrap_err(), UpdateError::Full { keys: 10 });
    check(&controller, &model_of(0..10));
    let eleven = PogBuilder::<u16>::new().keys_max(10).build((0..11_u64).map(|key| (key, 0)));
    assert_eq!(eleven.unwrap_err(), BuildError::TooMany { keys: 11, most: 10 });
}

#[test]
fn a_value_beyond_tau_is_refused() {
    let builder = PogBuilder::<u16>::new().fingerprint(Fingerprint::new::<u16>(4).unwrap());
    let error = builder.build([(1_u64, 15), (2, 16)]).unwrap_err();
    assert_eq!(error, BuildError::Value { position: 1, value: 16, tau_bits: 4 });
    let mut controller = builder.build([(1_u64, 15)]).unwrap();
    let error = controller.alter(&1, 16).unwrap_err();
    assert_eq!(error, UpdateError::Value { value: 16, tau_bits: 4 });
    assert_eq!(controller.get(&1), Some(15));
}

#[test]
#[should_panic(expected = "leaves none of 8 for a fingerprint")]
fn a_form_made_for_larger_cells_is_refused() {
    let _ = PogBuilder::<u8>::new().fingerprint(Fingerprint::new::<u16>(10).unwrap());
}

/// Gives pairs of different keys the same value with every seed.
#[derive(Clone, Copy, Debug)]
struct Halving(Seed);

impl KeyHash for Halving {
    const ID: u32 = 99;
    fn with_seed(seed: Seed) -> Self {
        Halving(seed)
    }
    fn seed(&self) -> Seed {
        self.0
    }
    fn hash<K: Key + ?Sized>(&self, key: &K) -> u64 {
        SipHash13::with_seed(self.0).hash(&(key.word(0) / 2))
    }
}

#[test]
fn a_hash_that_collides_under_every_seed_is_an_error_and_nothing_changes() {
    let builder = PogBuilder::<u16>::new().hash::<Halving>().random_seed(1);
    let error = builder.build([(2_u64, 0), (3, 0)]).unwrap_err();
    assert_eq!(error, BuildError::NoSeed { attempts: 64, keys: 2 });
    let mut controller = builder.build((0..500_u64).map(|key| (key * 2, key as u16))).unwrap();
    let cells = controller.pog().cells().to_vec();
    let error = controller.insert(7, 0).unwrap_err();
    assert!(matches!(error, UpdateError::Rebuild(BuildError::NoSeed { .. })), "{error}");
    assert_eq!(controller.pog().cells(), cells);
    check(&controller, &(0..500).map(|key| (key * 2, key as u16)).collect());
    controller.insert(1001, 5).unwrap();
    assert_eq!(controller.get(&1001), Some(5));
}

#[test]
fn colliding_keys_are_inserted_after_a_change_of_seed() {
    let mut controller = built(1000);
    let (hash, sizes) = (*controller.pog().hash(), controller.pog().sizes());
    let target = sizes.cells_of(hash.hash(&0_u64));
    // An attacker with the seed searches for keys with the same cells as key 0.
    let colliding: Vec<u64> = (10_000..30_000_000)
        .filter(|key| sizes.cells_of(hash.hash(key)) == target)
        .take(3)
        .collect();
    assert!(!colliding.is_empty());
    let tried = controller.seeds_tried();
    for key in &colliding {
        controller.insert(*key, 42).unwrap();
    }
    assert!(controller.seeds_tried() > tried, "a cycle was met");
    assert_ne!(controller.pog().hash().seed(), hash.seed());
    let mut model = model_of(0..1000);
    model.extend(colliding.iter().map(|key| (*key, 42)));
    check(&controller, &model);
}

#[test]
fn keys_with_equal_low_bits_and_sequential_keys_build_as_easily_as_others() {
    let mut tried = 0;
    for shift in [0, 16, 32, 44] {
        let entries: Vec<_> = (0..20_000_u64).map(|key| (key << shift, key as u16)).collect();
        let builder = PogBuilder::new().random_seed(shift);
        let controller = builder.build(entries.iter().copied()).unwrap();
        check(&controller, &entries.into_iter().collect());
        tried += controller.seeds_tried();
    }
    assert!(tried < 30, "{tried} seeds for four builds");
}

#[test]
fn rounds_of_aes_build_from_keys_in_sequence() {
    let mut tried = 0;
    for seed in 0..8 {
        let builder = PogBuilder::<u16>::new().hash::<AesHash>().random_seed(seed);
        let controller = builder.build((0..20_000_u64).map(|key| (key, key as u16))).unwrap();
        tried += controller.seeds_tried();
    }
    assert!(tried < 40, "{tried} seeds for eight builds");
}

#[test]
fn memory_is_released_when_keys_are_deleted() {
    let mut controller = built(100_000);
    for key in 1000..100_000 {
        controller.delete(&key).unwrap();
    }
    let bytes = controller.memory_bytes();
    assert!(bytes < 1000 * 50, "{bytes} bytes for 1000 keys");
    check(&controller, &model_of(0..1000));
}

#[test]
fn altering_keys_of_a_long_component_keeps_all_values_correct() {
    // As many keys as the lower bound permits, so that components have their maximum length.
    let mut controller = built(40_000);
    while !controller.pog().sizes().too_small(controller.len() + 1) {
        let key = controller.len() as u64;
        controller.insert(key, key as u16).unwrap();
    }
    let keys = controller.len() as u64;
    for key in (0..keys).step_by(3) {
        controller.alter(&key, !(key as u16)).unwrap();
    }
    let tau = |key: u64| if key.is_multiple_of(3) { !(key as u16) } else { key as u16 };
    check(&controller, &(0..keys).map(|key| (key, tau(key))).collect());
}

/// Chi-square of the taus of `keys` unknown keys over 256 values: mean 255, standard deviation
/// 22.6.
fn chi_square(pog: &Pog<u16>, keys: u64) -> f64 {
    let mut counts = [0_u32; 256];
    for key in 0..keys {
        counts[usize::from(pog.tau(&(key + (1 << 40)))) % 256] += 1;
    }
    let expected = keys as f64 / 256.0;
    counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum()
}

#[test]
fn unknown_keys_are_spread_evenly_after_a_rebalance() {
    // All keys have the same tau: the worst case. Many cells, so that their own variation is small.
    let entries = (0..200_000_u64).map(|key| (key, 0x1234));
    let mut controller = PogBuilder::new().random_seed(3).build(entries).unwrap();
    for round in 0..5 {
        controller.rebalance();
        let chi_square = chi_square(controller.pog(), 100_000);
        // Five standard deviations.
        assert!(chi_square < 255.0 + 5.0 * 22.6, "round {round}: {chi_square}");
    }
    assert!(controller.iter().all(|(_, tau)| tau == 0x1234));
}

#[test]
fn a_rebalance_or_rebuild_redraws_the_taus_of_unknown_keys() {
    let mut controller = built(10_000);
    let changes: [fn(&mut PogController<u64, u16>); 2] = [
        |controller| {
            controller.rebalance();
        },
        |controller| {
            controller.rebuild().unwrap();
        },
    ];
    for change in changes {
        let before: Vec<u16> = (20_000..30_000_u64).map(|key| controller.pog().tau(&key)).collect();
        change(&mut controller);
        let same = before
            .iter()
            .zip(20_000..30_000_u64)
            .filter(|(tau, key)| controller.pog().tau(key) == **tau)
            .count();
        // Only keys with both cells in one component keep their tau in a rebalance; these are rare.
        assert!(same < 60, "{same} of 10000 unknown keys kept their tau");
        check(&controller, &model_of(0..10_000));
    }
}

#[test]
fn two_builds_give_unknown_keys_different_taus() {
    let build = |seed| {
        let entries = (0..10_000_u64).map(|key| (key, key as u16));
        PogBuilder::<u16>::new().random_seed(seed).build(entries).unwrap()
    };
    let (one, other) = (build(1), build(2));
    let unknown = 20_000..30_000_u64;
    let same = unknown.filter(|key| one.pog().tau(key) == other.pog().tau(key)).count();
    assert!(same < 60, "{same} of 10000 unknown keys have the same tau");
    for controller in [one, other] {
        check(&controller, &model_of(0..10_000));
    }
}

#[test]
fn deleted_keys_are_unknown_in_fingerprint_form_and_false_matches_are_found() {
    let form = Fingerprint::new::<u16>(8).unwrap();
    let entries = (0..5000_u64).map(|key| (key, key as u16 & 0xff));
    let mut controller = PogBuilder::new().fingerprint(form).random_seed(2).build(entries).unwrap();
    for key in 0..2000 {
        controller.delete(&key).unwrap();
        assert_eq!(controller.pog().pinned(&key), None, "just deleted");
    }
    let flows: Vec<u64> = (0..100_000).collect();
    let false_matches: Vec<u64> = controller.false_matches(&flows).map(|(flow, _)| *flow).collect();
    let seen = flows
        .iter()
        .filter(|flow| controller.pog().pinned(*flow).is_some() && !controller.contains(*flow));
    assert!(seen.eq(&false_matches));
    // 97,000 unknown flows, a fingerprint of 8 bits: 379 expected, standard deviation 19.
    assert!((250..500).contains(&false_matches.len()), "{} false matches", false_matches.len());
    for flow in false_matches {
        controller.insert(flow, 1).unwrap();
        assert_eq!(controller.pog().pinned(&flow), Some(1), "pinned, so that it suffers no more");
    }
}

#[test]
fn batch_lookups_equal_single_lookups() {
    let controller = built(30_000);
    for len in [0, 1, 7, 8, 9, 31, 32, 33, 64, 1000] {
        let keys: Vec<u64> = (0..len).map(|key| key * 77).collect();
        let mut taus = vec![0; keys.len()];
        controller.pog().tau_batch(&keys, &mut taus);
        assert!(keys.iter().zip(&taus).all(|(key, tau)| controller.pog().tau(key) == *tau));
    }
}

fn keys_of_a_kind<K: Key + Eq + Clone + std::fmt::Debug>(make: impl Fn(u32) -> K) {
    let entries = (0..2000).map(|at| (make(at), at as u8));
    let mut controller = PogBuilder::<u8>::new().random_seed(4).build(entries).unwrap();
    controller.insert(make(5000), 77).unwrap();
    controller.delete(&make(3)).unwrap();
    controller.alter(&make(4), 99).unwrap();
    assert_eq!(controller.get(&make(3)), None);
    let keys: Vec<K> = (5..2000).map(&make).collect();
    let mut taus = vec![0; keys.len()];
    controller.pog().tau_batch(&keys, &mut taus);
    assert!(taus.iter().zip(5_u32..).all(|(tau, at)| *tau == at as u8));
    assert_eq!([4, 5000].map(|at| controller.pog().tau(&make(at))), [99, 77]);
    assert_acyclic(&controller);
}

#[test]
fn every_key_type_supports_insert_delete_alter_and_lookup() {
    let v4 = |at: u32| (at.into(), at as u16);
    let v6 = |at: u32| (u128::from(at).into(), at as u16);
    keys_of_a_kind(u64::from);
    keys_of_a_kind(|at| at);
    keys_of_a_kind(|at| u128::from(at) << 64);
    keys_of_a_kind(|at| FiveTupleV4::new(v4(at), v4(7), 6));
    keys_of_a_kind(|at| FiveTupleV6::new(v6(at), v6(7), 17));
    keys_of_a_kind(|at| MacAddress::from([2, 0, 0, 0, (at >> 8) as u8, at as u8]));
    keys_of_a_kind(|at| {
        let mut bits = [0; 45];
        bits[40..44].copy_from_slice(&at.to_be_bytes());
        OpenFlowMatch::new(bits).unwrap()
    });
    keys_of_a_kind(|at| format!("/site/{at}/item").into_bytes());
    keys_of_a_kind(|at| format!("{at:>width$}", width = at as usize % 40 + 6));
}

#[test]
fn a_borrowed_key_looks_up_its_owned_key() {
    let entries = [(b"one".to_vec(), 1_u16), (b"a longer key".to_vec(), 2)];
    let controller = PogBuilder::new().build(entries).unwrap();
    assert_eq!(controller.get(&b"a longer key"[..]), Some(2));
    assert_eq!(controller.pog().tau(&b"one"[..]), 1);
    assert_eq!(controller.pog().tau(b"one"), 1);
}

#[test]
fn cells_of_32_bits_hold_all_their_values() {
    let entries = (0..1000_u64).map(|key| (key, key as u32 * 4_000_000));
    let controller = PogBuilder::<u32>::new().build(entries).unwrap();
    assert!((0..1000_u64).all(|key| controller.pog().tau(&key) == key as u32 * 4_000_000));
}

#[test]
fn memory_beyond_the_keys_is_25_bytes_a_key_after_a_build() {
    let controller = built(200_000);
    let bytes = controller.memory_bytes() as f64 / 200_000.0;
    assert!(bytes <= 25.0, "{bytes} bytes a key");
}

/// Millions of steps at a size with long components and rebuilds. `POG_STEPS` sets the number.
#[test]
fn equals_a_map_over_many_steps() {
    let steps = std::env::var("POG_STEPS").ok().and_then(|steps| steps.parse().ok());
    let mut random = hash::Randomness::from_seed(Seed { k0: 5, k1: 5 });
    let mut controller = built(2000);
    let mut model = model_of(0..2000);
    for step in 0..steps.unwrap_or(20_000_u64) {
        let (key, tau) = (random.next() % 4000, random.next() as u16);
        let update = match random.next() % 3 {
            0 => Update::Insert(key, tau),
            1 => Update::Delete(key),
            _ => Update::Alter(key, tau),
        };
        assert_eq!(one(&mut controller, update), expect(&mut model, &update, 16), "step {step}");
        if step % 100_000 == 0 {
            check(&controller, &model);
        }
    }
    check(&controller, &model);
}
