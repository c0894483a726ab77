use equipoise_store::{Committed, Expect};

use super::{Bench, get, key, put};

pub(crate) async fn of_those_who_compare_and_put_one_wins(bench: &dyn Bench) {
    let store = bench.store();
    let at = put(&*store, "a/1", "start").await;
    for expect in [Expect::Modified(at), Expect::Absent] {
        let name = if expect == Expect::Absent { "a/2" } else { "a/1" };
        let tasks: Vec<_> = (0..16)
            .map(|i: u32| {
                let store = store.clone();
                let value = i.to_string().into_bytes().into();
                tokio::spawn(async move { store.compare_and_put(&key(name), expect, value).await })
            })
            .collect();
        let mut winners = Vec::new();
        for (i, task) in tasks.into_iter().enumerate() {
            if let Committed::Done(revision) = task.await.unwrap().unwrap() {
                winners.push((i, revision));
            }
        }
        let [(winner, revision)] = winners[..] else { panic!("{winners:?}") };
        let entry = get(&*store, name).await.unwrap();
        assert_eq!((&*entry.value, entry.modified), (winner.to_string().as_bytes(), revision));
    }
}

pub(crate) async fn a_counter_misses_no_increment(bench: &dyn Bench) {
    let store = bench.store();
    put(&*store, "a/count", "0").await;
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                for _ in 0..10 {
                    loop {
                        let entry = get(&*store, "a/count").await.unwrap();
                        let count: u32 =
                            std::str::from_utf8(&entry.value).unwrap().parse().unwrap();
                        let next = (count + 1).to_string().into_bytes().into();
                        let expect = Expect::Modified(entry.modified);
                        let put = store.compare_and_put(&entry.key, expect, next).await.unwrap();
                        if put.done().is_ok() {
                            break;
                        }
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(&*get(&*store, "a/count").await.unwrap().value, b"80");
}
