use std::time::Duration;

use equipoise_store::{Change, Revision, Transaction, Update, WatchEvent};

use super::{Bench, done, folder, get, key, next, put};

fn update(event: WatchEvent) -> Update {
    match event {
        WatchEvent::Update(update) => update,
        WatchEvent::Resync(listing) => panic!("an unexpected resync: {listing:?}"),
    }
}

pub(crate) async fn a_watch_tells_every_change_once_and_in_order(bench: &dyn Bench) {
    let store = bench.store();
    let start = put(&*store, "a/0", "before").await;
    let mut watch = store.watch(folder("a"), start).await.unwrap();
    let writer = {
        let store = store.clone();
        tokio::spawn(async move {
            for i in 0..200 {
                put(&*store, &format!("a/{}", i % 7), &i.to_string()).await;
            }
        })
    };
    let mut last = start;
    for i in 0..200 {
        let update = update(next(&mut watch).await);
        assert!(update.revision > last);
        last = update.revision;
        let [Change::Put(entry)] = &update.changes[..] else { panic!("{update:?}") };
        assert_eq!(&*entry.value, i.to_string().as_bytes());
        assert_eq!(entry.modified, update.revision);
    }
    writer.await.unwrap();
}

pub(crate) async fn a_watch_tells_a_transaction_whole(bench: &dyn Bench) {
    let store = bench.store();
    let start = put(&*store, "a/old", "x").await;
    let mut watch = store.watch(folder("a"), start).await.unwrap();
    let all = Transaction::new()
        .put(key("a/1"), *b"1")
        .put(key("b/1"), *b"elsewhere")
        .delete(key("a/old"))
        .put(key("a/2"), *b"2");
    let revision = done(store.commit(all).await.unwrap());
    let update = update(next(&mut watch).await);
    assert_eq!(update.revision, revision);
    let mut keys: Vec<_> = update.changes.iter().map(|change| change.key().as_str()).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["a/1", "a/2", "a/old"]);
    assert!(update.changes.contains(&Change::Deleted(key("a/old"))));
}

pub(crate) async fn a_watch_resumes_where_another_ended(bench: &dyn Bench) {
    let store = bench.store();
    let start = put(&*store, "a/1", "0").await;
    let mut seen = start;
    let mut values = Vec::new();
    for round in 0..4 {
        for i in 0..3 {
            put(&*store, "a/1", &format!("{round}.{i}")).await;
        }
        let mut watch = store.watch(folder("a"), seen).await.unwrap();
        for _ in 0..2 {
            let update = update(next(&mut watch).await);
            seen = update.revision;
            values.push(update.changes);
        }
    }
    let text = |changes: &Vec<Change>| match &changes[..] {
        [Change::Put(entry)] => String::from_utf8_lossy(&entry.value).into_owned(),
        other => panic!("{other:?}"),
    };
    let told: Vec<_> = values.iter().map(text).collect();
    assert_eq!(told, ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2", "2.0", "2.1"]);
}

pub(crate) async fn a_watch_tells_only_of_its_folder(bench: &dyn Bench) {
    let store = bench.store();
    let start = put(&*store, "a/1", "x").await;
    let mut watch = store.watch(folder("a"), start).await.unwrap();
    for name in ["ab/1", "b/1", "a.b/1"] {
        put(&*store, name, "not this").await;
    }
    put(&*store, "a/b/c", "this").await;
    assert_eq!(update(next(&mut watch).await).changes[0].key(), &key("a/b/c"));
}

pub(crate) async fn a_watch_that_missed_forgotten_history_is_told_all_anew(bench: &dyn Bench) {
    let store = bench.store();
    let start = put(&*store, "a/gone", "x").await;
    put(&*store, "a/stays", "x").await;
    store.delete(&key("a/gone")).await.unwrap();
    bench.forget_history().await;
    let mut watch = store.watch(folder("a"), start).await.unwrap();
    match next(&mut watch).await {
        WatchEvent::Resync(listing) => {
            let stays = get(&*store, "a/stays").await;
            assert_eq!(listing.entries, stays.into_iter().collect::<Vec<_>>());
        }
        WatchEvent::Update(update) => panic!("history is forgotten, but here is {update:?}"),
    }
    let after = put(&*store, "a/new", "x").await;
    assert_eq!(update(next(&mut watch).await).revision, after);
}

pub(crate) async fn a_watch_from_a_revision_not_yet_reached_is_told_all_anew(bench: &dyn Bench) {
    let store = bench.store();
    let now = put(&*store, "a/1", "x").await;
    let mut watch = store.watch(folder("a"), Revision(now.0 + 1_000_000)).await.unwrap();
    let event = next(&mut watch).await;
    assert!(matches!(event, WatchEvent::Resync(ref l) if l.entries.len() == 1), "{event:?}");
    let after = put(&*store, "a/2", "x").await;
    assert_eq!(update(next(&mut watch).await).revision, after);
}

pub(crate) async fn a_cancelled_wait_loses_no_event(bench: &dyn Bench) {
    let store = bench.store();
    let start = put(&*store, "a/1", "before").await;
    let mut watch = store.watch(folder("a"), start).await.unwrap();
    let writer = {
        let store = store.clone();
        tokio::spawn(async move {
            for i in 0..100 {
                put(&*store, "a/1", &i.to_string()).await;
            }
        })
    };
    let mut told = 0;
    while told < 100 {
        // Cancels the wait at different points.
        let wait = tokio::time::timeout(Duration::from_micros(300), watch.next());
        let Ok(event) = wait.await else { continue };
        let update = update(event.unwrap());
        let Change::Put(entry) = &update.changes[0] else { panic!("{update:?}") };
        assert_eq!(&*entry.value, told.to_string().as_bytes());
        told += 1;
    }
    writer.await.unwrap();
}
