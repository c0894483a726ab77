use std::collections::HashMap;

use equipoise_testkit::Folder;
use proptest::prelude::*;

use super::*;
use equipoise_pog::Seed;

const SEED: Seed = Seed { k0: 1, k1: 2 };

const EVIDENCE: [Evidence; 3] = [Evidence::None, Evidence::Opened, Evidence::Confirmed];

fn flow(digest: u64, slot: u16) -> Flow {
    Flow::new(Digest(digest), 9, slot, FlowState::Open, 77)
}

fn random(number: u64) -> u64 {
    use equipoise_pog::{KeyHash, SipHash13};
    SipHash13::with_seed(SEED).hash(&number)
}

#[test]
fn a_flow_encoded_in_its_word_decodes_equal() {
    for state in [FlowState::Open, FlowState::Closing, FlowState::Reset, FlowState::Recorded] {
        for (service, slot, seen) in [(0, 0, 0), (u16::MAX, 4095, (1 << 28) - 1), (300, 7, 5)] {
            for (evidence, flags) in
                EVIDENCE.into_iter().flat_map(|it| (0..8).map(move |f| (it, f)))
            {
                let [pinned, registered, by_id] = [1, 2, 4].map(|flag| flags & flag != 0);
                let flow = Flow::new(Digest(5), service, slot, state, seen);
                let flow = Flow { pinned, registered, by_id, evidence, ..flow };
                assert_eq!(Flow::of(flow.digest, flow.word()), flow);
            }
        }
    }
    assert_eq!(Flow { seen: (1 << 28) - 1, ..flow(1, 1) }.idle(4), 5, "intervals wrap");
}

#[test]
fn a_flow_takes_at_most_48_bytes() {
    for flows in (10..25).flat_map(|bits| [1 << bits, (1 << bits) + 1, 3 << (bits - 1)]) {
        let bytes = bytes_for(flows) as f64 / f64::from(flows);
        assert!(bytes <= 48.0, "{flows} flows: {bytes} each");
    }
}

#[test]
fn a_full_registry_refuses_new_flows_until_one_is_removed() {
    let mut registry = Registry::anonymous(1000).unwrap();
    for number in 0..1000 {
        registry.set(flow(random(number), 1)).unwrap();
    }
    assert_eq!(registry.set(flow(random(1000), 1)), Err(Full));
    registry.set(flow(random(5), 2)).expect("one that is there may change");
    registry.remove(Digest(random(7))).unwrap();
    registry.set(flow(random(1000), 1)).unwrap();
    assert_eq!(registry.set(flow(0, 1)), Err(Full), "the digest of free entries");
}

#[test]
fn a_sweep_in_parts_shows_every_flow() {
    let mut registry = Registry::anonymous(3000).unwrap();
    (0..3000).for_each(|number| registry.set(flow(random(number), 0)).unwrap());
    let mut from = 0;
    loop {
        from = registry.sweep(from, 100, |flow| match flow.digest.0 % 3 {
            0 => Verdict::Remove,
            1 => Verdict::Set(Flow { slot: 5, ..flow }),
            _ => Verdict::Keep,
        });
        if from == 0 {
            break;
        }
    }
    for digest in (0..3000).map(random) {
        let slot = registry.get(Digest(digest)).map(|flow| flow.slot);
        assert_eq!(slot, [None, Some(5), Some(0)][digest as usize % 3]);
    }
}

#[test]
fn a_reopened_registry_contains_the_flows_of_the_earlier_process() {
    let folder = Folder::new("reopen");
    let mut registry = Registry::open(&folder.path("flows"), 1000, SEED).unwrap();
    (0..1000).for_each(|number| registry.set(flow(random(number), number as u16)).unwrap());
    registry.interval().store(42, Relaxed);
    drop(registry);
    for flows in [1000, 5000, 900] {
        let registry = Registry::open(&folder.path("flows"), flows, SEED).unwrap();
        let kept = 1000.min(flows as usize);
        assert_eq!((registry.len(), registry.interval().load(Relaxed)), (kept, 42));
        let found = |number| registry.get(Digest(random(number)));
        assert!(
            (0..1000)
                .filter_map(|it| Some((it, found(it)?)))
                .all(|(at, it)| at == u64::from(it.slot))
        );
    }
    let other = Registry::open(&folder.path("flows"), 900, Seed { k0: 1, k1: 3 }).unwrap();
    assert!(other.is_empty(), "digests of another secret are of no use");
}

#[test]
fn only_owner_and_group_may_read_the_flows() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("mode");
    let file = folder.path("flows");
    let mode = || std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    Registry::open(&file, 100, SEED).unwrap();
    assert_eq!(mode(), 0o640);
    // As an earlier version left it.
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    Registry::open(&file, 100, SEED).unwrap();
    assert_eq!(mode(), 0o640);
}

#[test]
fn a_file_that_is_no_registry_is_replaced() {
    let folder = Folder::new("foreign");
    for content in [&b""[..], b"short", &[7; 9000]] {
        std::fs::write(folder.path("flows"), content).unwrap();
        assert!(Registry::open(&folder.path("flows"), 100, SEED).unwrap().is_empty());
    }
    let nowhere = folder.path("missing/flows");
    let error = Registry::open(&nowhere, 100, SEED).unwrap_err().to_string();
    assert!(error.contains("missing/flows") && error.contains("tmpfs"), "{error}");
}

/// Stops a removal after each of its writes, as a kill would, and takes over.
#[test]
fn a_removal_that_is_cut_short_loses_no_other_flow() {
    // All in one run of entries.
    let digests: Vec<u64> = (1..=9).map(|low| 3 << 60 | low << 8).collect();
    let full = || {
        let mut registry = Registry::anonymous(11).unwrap();
        digests.iter().zip(0..).for_each(|(&it, slot)| registry.set(flow(it, slot)).unwrap());
        registry
    };
    let image = |registry: &Registry| -> Vec<u64> {
        registry.words().iter().map(|word| word.load(Relaxed)).collect()
    };
    let victim = Digest(digests[2]);
    // Compares with each single shift to find the words that a removal writes, and their order.
    let mut states = vec![image(&full())];
    let mut hole = full().find(victim.0).unwrap();
    let mut words = states[0].clone();
    loop {
        let next = (hole + 1) & 15;
        if words[2 * next] == 0 {
            break;
        }
        for (at, word) in
            [(2 * hole, 0), (2 * hole + 1, words[2 * next + 1]), (2 * hole, words[2 * next])]
        {
            words[at] = word;
            states.push(words.clone());
        }
        hole = next;
    }
    words[2 * hole] = 0;
    states.push(words);
    let mut whole = full();
    whole.remove(victim);
    assert_eq!(states.last(), Some(&image(&whole)), "the states are those of a removal");
    for state in states {
        let mut registry = Registry::anonymous(11).unwrap();
        registry.words().iter().zip(&state).for_each(|(word, value)| word.store(*value, Relaxed));
        registry.repair();
        for (&digest, slot) in digests.iter().zip(0..) {
            let found = registry.get(Digest(digest)).map(|flow| flow.slot);
            let may_be_gone = digest == victim.0;
            assert!(found == Some(slot) || may_be_gone && found.is_none(), "{state:x?}");
        }
        assert_eq!(registry.iter().count(), registry.len());
    }
}

#[derive(Clone, Debug)]
enum Step {
    Set(u64, u16),
    Remove(u64),
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// Few homes, so that runs are long and wrap.
    #[test]
    fn the_registry_behaves_like_a_map(steps in prop::collection::vec(
        prop_oneof![
            (0..60u64, 0..4096u16).prop_map(|(key, slot)| Step::Set(key, slot)),
            (0..60u64).prop_map(Step::Remove),
        ],
        0..400,
    )) {
        let digest = |key: u64| (12 + key % 5) << 60 | key << 20 | 1;
        let mut registry = Registry::anonymous(12).unwrap();
        let mut model = HashMap::new();
        for step in steps {
            match step {
                Step::Set(key, slot) => {
                    let fits = model.len() < 12 || model.contains_key(&key);
                    prop_assert_eq!(registry.set(flow(digest(key), slot)).is_ok(), fits);
                    if fits {
                        model.insert(key, slot);
                    }
                }
                Step::Remove(key) => {
                    let removed = registry.remove(Digest(digest(key))).map(|flow| flow.slot);
                    prop_assert_eq!(removed, model.remove(&key));
                }
            }
            prop_assert_eq!(registry.len(), model.len());
            for key in 0..60 {
                let found = registry.get(Digest(digest(key))).map(|flow| flow.slot);
                prop_assert_eq!(found, model.get(&key).copied());
            }
            prop_assert_eq!(registry.iter().count(), model.len());
        }
    }
}
