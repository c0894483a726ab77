use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

fn sdlb(hosts: &[(HostId, u32)], bits: u32) -> Sdlb<u64, u16> {
    Sdlb::new(&PogBuilder::new().random_seed(1), bits, hosts).unwrap()
}

/// Checks all invariants of the controller's accounts.
fn check(sdlb: &Sdlb<u64, u16>, stateful: &HashMap<u64, HostId>) {
    assert_eq!(sdlb.keys().len(), stateful.len());
    let mut users = vec![0; sdlb.table.entries().len()];
    for (key, host) in stateful {
        assert_eq!(sdlb.host(key), *host, "a stateful key went elsewhere");
        users[sdlb.table.entry_of(sdlb.pogs.get(key).unwrap())] += 1;
    }
    assert_eq!(users, sdlb.users);
    let counts = sdlb.table.counts();
    let mut keys = HashMap::<HostId, usize>::new();
    stateful.values().for_each(|host| *keys.entry(*host).or_default() += 1);
    for (host, state) in &sdlb.hosts {
        assert_eq!(state.entries, counts.get(host).copied().unwrap_or(0), "host {host}");
        assert_eq!(state.keys, keys.get(host).copied().unwrap_or(0), "host {host}");
        let surplus = state.entries.saturating_sub(state.target);
        let used = |entry: &usize| sdlb.table.entries()[*entry] == *host && users[*entry] > 0;
        let held = (0..users.len()).filter(used).count();
        assert!(surplus <= held, "host {host} keeps {surplus} too many, {held} are held");
    }
    assert!(counts.keys().all(|host| sdlb.hosts.contains_key(host)), "an entry of no host");
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Register(u64, HostId),
    RegisterHere(u64),
    Unregister(u64),
    Merge(u64, u64),
    MergeHost(HostId),
    Migrate(u64, HostId),
    Capacity(HostId, u32),
    Join(HostId, u32),
    Leave(HostId),
    Fail(HostId),
    Rebalance,
}

fn op() -> impl Strategy<Value = Op> {
    let (key, host, capacity) = (0..60_u64, 0..6_u16, 0..50_u32);
    prop_oneof![
        4 => (key.clone(), host.clone()).prop_map(|(key, host)| Op::Register(key, host)),
        6 => key.clone().prop_map(Op::RegisterHere),
        4 => key.clone().prop_map(Op::Unregister),
        3 => (key.clone(), key.clone()).prop_map(|(first, second)| Op::Merge(first, second)),
        1 => host.clone().prop_map(Op::MergeHost),
        3 => (key, host.clone()).prop_map(|(key, host)| Op::Migrate(key, host)),
        2 => (host.clone(), capacity.clone()).prop_map(|(host, to)| Op::Capacity(host, to)),
        2 => (host.clone(), capacity).prop_map(|(host, to)| Op::Join(host, to)),
        1 => host.clone().prop_map(Op::Leave),
        1 => host.prop_map(Op::Fail),
        1 => Just(Op::Rebalance),
    ]
}

/// Applies an operation to both; a rejected one must not change the controller.
fn step(sdlb: &mut Sdlb<u64, u16>, stateful: &mut HashMap<u64, HostId>, op: Op) {
    let (table, generation) = (sdlb.table.clone(), sdlb.pogs.pog().generation());
    let here = match op {
        Op::RegisterHere(key) => Some(sdlb.host(&key)),
        _ => None,
    };
    let done = match op {
        Op::Register(key, host) => sdlb.register(key, host),
        Op::RegisterHere(key) => sdlb.register_here(key),
        Op::Unregister(key) => sdlb.unregister(&key),
        Op::Merge(first, second) => sdlb.merge(&first, &second),
        Op::MergeHost(host) => sdlb.merge_host(host),
        Op::Migrate(key, host) => sdlb.migrate(&key, host),
        Op::Capacity(host, capacity) => sdlb.set_capacity(host, capacity),
        Op::Join(host, capacity) => sdlb.join(host, capacity),
        Op::Leave(host) => sdlb.leave(host),
        Op::Fail(host) => sdlb.fail(host),
        Op::Rebalance => Ok(sdlb.rebalance()),
    };
    match done {
        Ok(change) => assert!(change.moved.moved <= change.entries.len()),
        Err(_) => {
            assert_eq!(sdlb.table, table);
            assert_eq!(sdlb.pogs.pog().generation(), generation);
            return;
        }
    }
    match op {
        Op::Register(key, host) | Op::Migrate(key, host) => drop(stateful.insert(key, host)),
        Op::RegisterHere(key) => drop(stateful.insert(key, here.unwrap())),
        Op::Unregister(key) => drop(stateful.remove(&key)),
        Op::Fail(host) => stateful.retain(|_, of| *of != host),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    #[test]
    fn stateful_keys_never_move_under_any_operation_on_hosts(ops in prop::collection::vec(op(), 1..150)) {
        let mut sdlb = sdlb(&[(0, 10), (1, 20), (2, 30)], 5);
        let mut stateful = HashMap::new();
        for op in ops {
            step(&mut sdlb, &mut stateful, op);
            check(&sdlb, &stateful);
        }
    }
}

#[test]
fn registering_a_key_at_its_present_host_changes_no_entries() {
    let mut sdlb = sdlb(&[(0, 1), (1, 3)], 8);
    for key in 0..100 {
        let before = sdlb.host(&key);
        let change = sdlb.register_here(key).unwrap();
        assert_eq!(change.entries, []);
        assert_eq!(sdlb.host(&key), before);
    }
}

#[test]
fn merging_keys_releases_table_entries_to_other_hosts() {
    let mut sdlb = sdlb(&[(0, 1), (1, 1)], 4);
    let mut of_0 = Vec::new();
    for key in 0..40 {
        // Growth redistributes stateless keys, so the host of the next key is only known now.
        if sdlb.host(&key) == 0 {
            of_0.push(key);
        }
        sdlb.register_here(key).unwrap();
    }
    of_0.iter().for_each(|key| assert!(sdlb.is_stateful(key)));
    let used = sdlb.keys_of(0).map(|(_, tau)| sdlb.table.entry_of(tau));
    let used = used.collect::<std::collections::BTreeSet<_>>().len();
    assert!(used > 1);
    let change = sdlb.leave(0).unwrap();
    assert_eq!(change.moved, Moved { moved: 8 - used, least: 8, held: used });
    for pair in of_0.windows(2) {
        sdlb.merge(&pair[0], &pair[1]).unwrap();
    }
    assert_eq!(sdlb.hosts()[&0].entries, 1, "merged entries went to the other host");
    for key in &of_0 {
        sdlb.migrate(key, 1).unwrap();
    }
    assert!(!sdlb.hosts().contains_key(&0), "gone with its last key");
    assert!(of_0.iter().all(|key| sdlb.host(key) == 1 && sdlb.is_stateful(key)));
}

#[test]
fn keys_of_different_hosts_do_not_merge() {
    let mut sdlb = sdlb(&[(0, 1), (1, 1)], 4);
    sdlb.register(1, 0).unwrap();
    sdlb.register(2, 1).unwrap();
    assert_eq!(sdlb.merge(&1, &2).unwrap_err(), SdlbError::DifferentHosts(0, 1));
}

#[test]
fn a_registration_is_refused_while_all_entries_are_in_use() {
    let mut sdlb = sdlb(&[(0, 1), (1, 1)], 1);
    sdlb.register(1, 0).unwrap();
    sdlb.register(2, 1).unwrap();
    assert_eq!(sdlb.join(2, 1).unwrap().moved.held, 0, "ties leave the table as it is");
    assert_eq!(sdlb.register(3, 2).unwrap_err(), SdlbError::TableFull { entries: 2 });
    sdlb.unregister(&2).unwrap();
    sdlb.register(3, 2).unwrap();
    assert_eq!((sdlb.host(&1), sdlb.host(&3)), (0, 2));
}

#[test]
fn leaving_or_failing_the_last_host_is_refused() {
    let mut sdlb = sdlb(&[(0, 1)], 4);
    sdlb.register(1, 0).unwrap();
    let no_capacity = SdlbError::Shares(SharesError::NoCapacity);
    assert_eq!(sdlb.leave(0).unwrap_err(), no_capacity);
    assert_eq!(sdlb.fail(0).unwrap_err(), no_capacity);
    assert!(sdlb.is_stateful(&1));
}

#[test]
fn stateless_keys_follow_capacities() {
    let mut sdlb = sdlb(&[(0, 1), (1, 2), (2, 5)], 12);
    // Many keys, because the cells of a small POG are not uniform.
    sdlb.pogs.insert_all((1 << 50..(1 << 50) + 100_000).map(|key| (key, 0))).unwrap();
    let mut counts = [0.0_f64; 3];
    (0..80_000_u64).for_each(|key| counts[usize::from(sdlb.host(&key))] += 1.0);
    for (count, expected) in counts.into_iter().zip([10_000.0, 20_000.0, 50_000.0]) {
        assert!((count - expected).abs() < 5.0 * f64::sqrt(expected), "{count} for {expected}");
    }
}
