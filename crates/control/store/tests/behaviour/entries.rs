use equipoise_store::{
    Committed, Expect, Prefix, StoreError, Transaction, TransactionError, WatchEvent,
};

use super::{Bench, done, folder, get, key, next, put};

pub(crate) async fn a_value_is_read_back(bench: &dyn Bench) {
    let store = bench.store();
    assert_eq!(get(&*store, "a/1").await, None);
    let large = vec![7; Transaction::VALUE_BYTES_MAX];
    for value in [&b""[..], b"\0\xff\n", b"text", &large] {
        store.put(&key("a/1"), value.into()).await.unwrap();
        assert_eq!(&*get(&*store, "a/1").await.unwrap().value, value);
    }
}

pub(crate) async fn a_key_knows_when_it_was_made_and_when_it_was_put(bench: &dyn Bench) {
    let store = bench.store();
    let first = put(&*store, "a/1", "x").await;
    let second = put(&*store, "a/1", "x").await;
    assert!(second > first, "the same value is a change too");
    let entry = get(&*store, "a/1").await.unwrap();
    assert_eq!((entry.created, entry.modified, entry.lease), (first, second, None));
    let gone = store.delete(&key("a/1")).await.unwrap();
    assert_eq!(get(&*store, "a/1").await, None);
    let again = put(&*store, "a/1", "x").await;
    assert!(first < second && second < gone && gone < again);
    assert_eq!(get(&*store, "a/1").await.unwrap().created, again);
}

pub(crate) async fn deleting_what_is_not_there_changes_nothing(bench: &dyn Bench) {
    let store = bench.store();
    let before = put(&*store, "a/1", "x").await;
    let mut watch = store.watch(folder("a"), before).await.unwrap();
    assert!(store.delete(&key("a/2")).await.unwrap() >= before);
    let after = put(&*store, "a/1", "y").await;
    match next(&mut watch).await {
        WatchEvent::Update(update) => assert_eq!(update.revision, after),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn a_listing_is_one_folder_in_order(bench: &dyn Bench) {
    let store = bench.store();
    for name in ["pools/web", "pools/api/x", "pools.d/web", "poolside/web", "pools/db", "p/q"] {
        put(&*store, name, name).await;
    }
    let listing = store.list(&folder("pools")).await.unwrap();
    let names: Vec<_> = listing.entries.iter().map(|entry| entry.key.as_str()).collect();
    assert_eq!(names, ["pools/api/x", "pools/db", "pools/web"]);
    assert!(listing.revision >= get(&*store, "p/q").await.unwrap().modified);
    assert_eq!(store.list(&Prefix::all()).await.unwrap().entries.len(), 6);
    assert_eq!(store.list(&folder("none")).await.unwrap().entries, []);
}

pub(crate) async fn a_transaction_is_done_whole_or_not_at_all(bench: &dyn Bench) {
    let store = bench.store();
    let at = put(&*store, "a/1", "old").await;
    let both = |expect| {
        Transaction::new()
            .require(key("a/1"), expect)
            .require(key("a/2"), Expect::Absent)
            .put(key("a/1"), *b"new")
            .put(key("a/2"), *b"new")
            .delete(key("a/3"))
    };
    put(&*store, "a/3", "x").await;
    let refused = store.commit(both(Expect::Absent)).await.unwrap();
    assert!(matches!(refused, Committed::Refused(_)));
    assert_eq!(&*get(&*store, "a/1").await.unwrap().value, b"old");
    assert_eq!(get(&*store, "a/2").await, None);

    let revision = done(store.commit(both(Expect::Modified(at))).await.unwrap());
    for name in ["a/1", "a/2"] {
        let entry = get(&*store, name).await.unwrap();
        assert_eq!((&*entry.value, entry.modified), (&b"new"[..], revision));
    }
    assert_eq!(get(&*store, "a/3").await, None);
}

pub(crate) async fn a_refusal_names_the_first_condition_that_does_not_hold(bench: &dyn Bench) {
    let store = bench.store();
    let at = put(&*store, "a/1", "x").await;
    let asked = Transaction::new()
        .require(key("a/1"), Expect::Created(at))
        .require(key("a/1"), Expect::Present)
        .require(key("a/2"), Expect::Present)
        .require(key("a/3"), Expect::Present)
        .delete(key("a/1"));
    let refusal = store.commit(asked).await.unwrap().done().unwrap_err();
    assert_eq!((refusal.key, refusal.expected), (key("a/2"), Expect::Present));
    assert_eq!(refusal.found, None);
    let absent = Transaction::new().require(key("a/1"), Expect::Absent);
    let refusal = store.commit(absent).await.unwrap().done().unwrap_err();
    assert_eq!(refusal.found, get(&*store, "a/1").await);
}

pub(crate) async fn what_breaks_a_limit_is_refused(bench: &dyn Bench) {
    let store = bench.store();
    let large = vec![0; Transaction::VALUE_BYTES_MAX + 1].into();
    let error = store.put(&key("a/1"), large).await.unwrap_err();
    assert!(
        matches!(error, StoreError::Transaction(TransactionError::ValueTooLarge { .. })),
        "{error}"
    );
    let twice = Transaction::new().delete(key("a/1")).put(key("a/1"), *b"x");
    let error = store.commit(twice).await.unwrap_err();
    assert!(
        matches!(error, StoreError::Transaction(TransactionError::WrittenTwice { .. })),
        "{error}"
    );
    let full = (0..Transaction::OPERATIONS_MAX / 2).fold(Transaction::new(), |t, i| {
        let key = key(&format!("many/{i}"));
        t.require(key.clone(), Expect::Absent).put(key, *b"x")
    });
    done(store.commit(full).await.unwrap());
    assert_eq!(store.list(&folder("many")).await.unwrap().entries.len(), 50);
}
