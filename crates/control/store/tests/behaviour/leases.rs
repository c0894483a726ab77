use std::sync::Arc;
use std::time::Duration;

use equipoise_store::{
    Change, Election, HeldLease, JoinError, Membership, StoreError, Transaction, WatchEvent,
};

use super::{Bench, PATIENCE, done, get, key, next, put, until_gone};

pub(crate) async fn a_lease_that_nobody_keeps_alive_ends_with_what_is_under_it(bench: &dyn Bench) {
    let store = bench.store();
    let lease = store.grant(bench.time_to_live()).await.unwrap();
    assert!(lease.time_to_live >= bench.time_to_live());
    let under = Transaction::new().put_leased(key("a/1"), *b"x", lease.id);
    done(store.commit(under).await.unwrap());
    put(&*store, "a/2", "stays").await;
    // On a busy machine the lease may have expired already.
    let entry = get(&*store, "a/1").await;
    assert!(entry.is_none_or(|entry| entry.lease == Some(lease.id)));
    until_gone(&*store, "a/1").await;
    assert!(get(&*store, "a/2").await.is_some());
}

pub(crate) async fn a_lease_that_is_kept_alive_stays(bench: &dyn Bench) {
    // If the machine gives this process no CPU for the length of a lease, all leases expire; then
    // it tries again.
    for _ in 0..5 {
        if stays(bench).await {
            return;
        }
    }
    panic!("it is lost each time");
}

/// Whether a lease that is kept alive outlives two others.
async fn stays(bench: &dyn Bench) -> bool {
    let store = bench.store();
    let mut held = HeldLease::take(store.clone(), bench.time_to_live()).await.unwrap();
    let put = Transaction::new().put_leased(key("a/held"), *b"x", held.id());
    let is_there = store.commit(put).await.is_ok();
    // The end of another lease of the same length is the clock of this test, twice in a row.
    for _ in 0..2 {
        let other = store.grant(bench.time_to_live()).await.unwrap();
        let put = Transaction::new().put_leased(key("a/other"), *b"x", other.id);
        if store.commit(put).await.is_ok() {
            until_gone(&*store, "a/other").await;
        }
    }
    if !is_there || !held.is_held() || get(&*store, "a/held").await.is_none() {
        return false;
    }
    let is_lost = tokio::time::timeout(Duration::from_millis(1), held.lost()).await.is_ok();
    assert!(!(is_lost && held.is_held()), "it is held, and waiting for its loss waits");
    !is_lost
}

pub(crate) async fn a_revoked_lease_ends_at_once(bench: &dyn Bench) {
    let store = bench.store();
    let held = HeldLease::take(store.clone(), Duration::from_secs(600)).await.unwrap();
    let under = Transaction::new().put_leased(key("a/1"), *b"x", held.id()).put_leased(
        key("a/2"),
        *b"x",
        held.id(),
    );
    let at = done(store.commit(under).await.unwrap());
    let mut watch = store.watch(super::folder("a"), at).await.unwrap();
    held.release().await.unwrap();
    assert_eq!(get(&*store, "a/1").await, None);
    let WatchEvent::Update(update) = next(&mut watch).await else { panic!("no update") };
    assert_eq!(update.changes.len(), 2, "both go at one revision");
}

pub(crate) async fn an_ended_lease_takes_nothing_and_is_not_revived(bench: &dyn Bench) {
    let store = bench.store();
    let lease = store.grant(Duration::from_secs(600)).await.unwrap().id;
    store.revoke(lease).await.unwrap();
    let under = Transaction::new().put_leased(key("a/1"), *b"x", lease);
    for error in [
        store.commit(under).await.unwrap_err(),
        store.keep_alive(lease).await.unwrap_err(),
        store.revoke(lease).await.unwrap_err(),
    ] {
        assert!(matches!(error, StoreError::LeaseEnded(ended) if ended == lease), "{error:?}");
    }
    assert_eq!(get(&*store, "a/1").await, None);
}

pub(crate) async fn a_put_without_lease_frees_the_key(bench: &dyn Bench) {
    let store = bench.store();
    let lease = store.grant(Duration::from_secs(600)).await.unwrap().id;
    let under = Transaction::new().put_leased(key("a/1"), *b"x", lease);
    done(store.commit(under).await.unwrap());
    put(&*store, "a/1", "y").await;
    store.revoke(lease).await.unwrap();
    assert_eq!(&*get(&*store, "a/1").await.unwrap().value, b"y");
}

pub(crate) async fn a_held_lease_knows_that_it_was_lost(bench: &dyn Bench) {
    let store = bench.store();
    let mut held = HeldLease::take(store.clone(), bench.time_to_live()).await.unwrap();
    store.revoke(held.id()).await.unwrap();
    tokio::time::timeout(PATIENCE, held.lost()).await.expect("it is told");
    assert!(!held.is_held());
}

pub(crate) async fn one_candidate_leads_and_the_next_after_it(bench: &dyn Bench) {
    let store = bench.store();
    let election = Election::new(store.clone(), "controller", Duration::from_secs(600)).unwrap();
    assert_eq!(election.leader().await.unwrap(), None);
    let first = election.campaign("one").await.unwrap();
    let leader = election.leader().await.unwrap().unwrap();
    assert_eq!((leader.name.as_str(), leader.term), ("one", first.term()));
    let second = {
        let election = election.clone();
        tokio::spawn(async move { election.campaign("two").await })
    };
    let others = Election::new(store, "other-office", Duration::from_secs(600)).unwrap();
    others.campaign("three").await.unwrap();
    assert!(!second.is_finished());
    let term = first.term();
    first.resign().await.unwrap();
    let second = tokio::time::timeout(PATIENCE, second).await.unwrap().unwrap().unwrap();
    assert!(second.term() > term && second.is_held());
    assert_eq!(election.leader().await.unwrap().unwrap().name, "two");
}

pub(crate) async fn a_former_leader_writes_nothing(bench: &dyn Bench) {
    let store = bench.store();
    let election = Election::new(store.clone(), "controller", Duration::from_secs(600)).unwrap();
    let former = election.campaign("one").await.unwrap();
    let write = |by: &str| Transaction::new().put(key("plan/now"), by.as_bytes());
    done(store.commit(former.fence(write("one"))).await.unwrap());
    // The leader is paused; its lease expires, and it does not notice.
    let lease = get(&*store, "election/controller/leader").await.unwrap().lease.unwrap();
    store.revoke(lease).await.unwrap();
    let late = store.commit(former.fence(write("late"))).await.unwrap().done().unwrap_err();
    assert!(former.is_fenced_off(&late), "nobody leads: {late}");
    let leader = election.campaign("one").await.unwrap();
    let late = store.commit(former.fence(write("late"))).await.unwrap().done().unwrap_err();
    assert!(former.is_fenced_off(&late), "another of the same name leads: {late}");
    done(store.commit(leader.fence(write("two"))).await.unwrap());
    assert_eq!(&*get(&*store, "plan/now").await.unwrap().value, b"two");
}

pub(crate) async fn a_leader_that_dies_is_replaced(bench: &dyn Bench) {
    let store = bench.store();
    let election = Election::new(store, "controller", bench.time_to_live()).unwrap();
    let first = election.campaign("one").await.unwrap();
    let term = first.term();
    drop(first);
    let second = tokio::time::timeout(PATIENCE, election.campaign("two")).await;
    assert!(second.expect("the office becomes vacant").unwrap().term() > term);
}

pub(crate) async fn a_member_is_seen_until_it_goes(bench: &dyn Bench) {
    let store = bench.store();
    let group = Membership::new(store.clone(), "controllers", bench.time_to_live()).unwrap();
    let start = group.members().await.unwrap();
    assert_eq!(start.entries, []);
    let mut watch = group.watch(start.revision).await.unwrap();
    let one = group.join("one", b"10.0.0.1".as_slice().into()).await.unwrap();
    let two = group.join("two", b"10.0.0.2".as_slice().into()).await.unwrap();
    let members = group.members().await.unwrap().entries;
    assert_eq!(members.iter().map(|m| m.key.name()).collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(&*members[1].value, b"10.0.0.2");
    one.tell(b"10.0.0.9".as_slice().into());
    let (mut told, mut gone) = (Vec::new(), Vec::new());
    let mut leaving = Some((one, two));
    while gone.len() < 2 {
        let WatchEvent::Update(update) = next(&mut watch).await else { panic!("a resync") };
        for change in update.changes {
            match change {
                Change::Put(entry) => told.push(entry.value),
                Change::Deleted(key) => gone.push(key.name().to_string()),
            }
        }
        if told.len() == 3
            && let Some((one, two)) = leaving.take()
        {
            assert_eq!(&*told[2], b"10.0.0.9");
            two.leave().await;
            drop(one);
        }
    }
    assert_eq!(gone, ["two", "one"], "who leaves goes at once, who dies when its lease is over");
}

/// Groups for repeated attempts: if the process gets no CPU for the length of a lease, an attempt
/// fails.
fn groups(bench: &dyn Bench) -> impl Iterator<Item = Membership> {
    let (store, time_to_live) = (bench.store(), bench.time_to_live());
    let group = move |turn| Membership::new(store.clone(), &format!("group-{turn}"), time_to_live);
    (0..5).map(move |turn| group(turn).unwrap())
}

pub(crate) async fn a_name_is_taken_once(bench: &dyn Bench) {
    for group in groups(bench) {
        let one = group.join("one", Arc::from(*b"a")).await;
        let other = group.join("one", Arc::from(*b"b")).await;
        let (Ok(_one), Err(JoinError::NameTaken { name, .. })) = (one, other) else { continue };
        assert_eq!(name, "one");
        let members = group.members().await.unwrap().entries;
        assert_eq!(members.iter().map(|it| &*it.value).collect::<Vec<_>>(), [b"a"]);
        return;
    }
    panic!("it is not told so");
}

pub(crate) async fn a_restarted_member_gets_its_name_back(bench: &dyn Bench) {
    for group in groups(bench) {
        drop(group.join("one", Arc::from(*b"before")).await);
        let Ok(_again) = group.join("one", Arc::from(*b"after")).await else { continue };
        assert_eq!(&*group.members().await.unwrap().entries[0].value, b"after");
        return;
    }
    panic!("it cannot join");
}

pub(crate) async fn a_member_that_lost_its_lease_joins_again(bench: &dyn Bench) {
    let store = bench.store();
    let group = Membership::new(store.clone(), "controllers", bench.time_to_live()).unwrap();
    let _one = group.join("one", Arc::from(*b"a")).await.unwrap();
    let listing = group.members().await.unwrap();
    let mut watch = group.watch(listing.revision).await.unwrap();
    store.revoke(listing.entries[0].lease.unwrap()).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let WatchEvent::Update(update) = next(&mut watch).await else { panic!("a resync") };
        seen.extend(update.changes);
    }
    assert!(matches!(&seen[..], [Change::Deleted(_), Change::Put(_)]), "{seen:?}");
}
