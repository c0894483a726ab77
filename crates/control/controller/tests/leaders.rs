//! Several controllers over one store: one always leads, whichever of them ends.
#![allow(clippy::unwrap_used, reason = "tests say what they expect by failing")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use equipoise_controller::{ControllerHandle, Edition, Intake, NodeReport};
use equipoise_testkit::Folder;
use support::{Flaky, keep_reporting, newer, report, stage, start, store_in, until};
use tokio::time::Instant;

/// Fails if published instructions ever go back to older ones.
async fn watch_order(handle: ControllerHandle) {
    let mut instructions = handle.instructions();
    let mut last = Edition::default();
    while instructions.changed().await.is_ok() {
        let now = instructions.borrow_and_update().edition();
        assert!(now > last, "{now} after {last}");
        last = now;
    }
}

#[tokio::test(start_paused = true)]
async fn one_controller_leads_and_the_others_publish_its_plans() {
    let scratch = Folder::new("two");
    let store = Arc::new(store_in(&scratch).await);
    let one = start("one", store.clone(), stage(&["a"]));
    newer(&one.handle(), Edition::default()).await;
    let two = start("two", store.clone(), stage(&["a"]));
    let seen = newer(&two.handle(), Edition::default()).await;
    assert_eq!(seen.leader, "one");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (first, second) = (one.handle().cluster(), two.handle().cluster());
    assert!(first.leads && !second.leads);
    assert_eq!((second.leader.as_deref(), second.term), (Some("one"), first.term));
    assert_eq!(second.controllers, ["one", "two"]);
    one.stop().await;
    two.stop().await;
}

#[tokio::test(start_paused = true)]
async fn another_controller_continues_within_a_second_when_the_leader_stops() {
    let scratch = Folder::new("step-down");
    let store = Arc::new(store_in(&scratch).await);
    let one = start("one", store.clone(), stage(&["slow", "fast"]));
    let mut last = newer(&one.handle(), Edition::default()).await;
    let two = start("two", store.clone(), stage(&["slow", "fast"]));
    let order = tokio::spawn(watch_order(two.handle()));
    for _ in 0..10 {
        for handle in [one.handle(), two.handle()] {
            let seen = report(40.0, &[("slow", 10.0, 100), ("fast", 1.0, 10)]);
            handle.report("edge-1", seen).await.unwrap();
        }
        last = newer(&two.handle(), last.edition()).await;
    }
    let before = last.plan.pools["web"].weights["slow"].weight.get();
    assert!(before < 90, "{before}");
    let stopped = Instant::now();
    one.stop().await;
    let next = until(&two.handle(), |now| now.leader == "two").await;
    assert!(stopped.elapsed() < Duration::from_secs(1), "{:?}", stopped.elapsed());
    assert!(next.generation > last.generation, "{} after {}", next.edition(), last.edition());
    let after = next.plan.pools["web"].weights["slow"].weight.get();
    assert!(after.abs_diff(before) <= 15, "{before} to {after}");
    two.stop().await;
    order.abort();
    assert!(order.await.unwrap_err().is_cancelled(), "instructions never went back");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_dies_is_replaced_within_three_seconds() {
    let scratch = Folder::new("dies");
    // The store behaves as between processes: the lease of a controller that dies has to expire.
    let store = Flaky::new(store_in(&scratch).await);
    let mut leader = start("c0", store.clone(), stage(&["a"]));
    let mut last = newer(&leader.handle(), Edition::default()).await;
    for round in 1..6 {
        let next = start(&format!("c{round}"), store.clone(), stage(&["a"]));
        newer(&next.handle(), Edition::default()).await;
        let order = tokio::spawn(watch_order(next.handle()));
        let died = Instant::now();
        drop(leader);
        let term = last.edition().term;
        last = until(&next.handle(), |now| now.edition().term > term).await;
        assert!(died.elapsed() < Duration::from_secs(3), "{:?}", died.elapsed());
        assert_eq!(last.leader, format!("c{round}"));
        order.abort();
        assert!(order.await.unwrap_err().is_cancelled(), "instructions never went back");
        leader = next;
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_takes_a_term_above_the_editions_that_nodes_applied() {
    let scratch = Folder::new("forgot");
    let store = Arc::new(store_in(&scratch).await);
    let one = start("one", store.clone(), stage(&["a"]));
    let first = newer(&one.handle(), Edition::default()).await;
    let told = Edition { term: first.term + 5000, generation: 3 };
    let going_by = |applied| NodeReport { applied: Some(applied), ..report(40.0, &[]) };
    // A false claim does not use up the terms.
    let end = Edition { term: u64::MAX, generation: 1 };
    one.handle().report("liar", going_by(end)).await.unwrap();
    one.handle().report("edge-1", going_by(told)).await.unwrap();
    let next = until(&one.handle(), |now| now.edition() > told).await;
    assert_eq!(next.term, told.term + 1);
    let view = one.handle().cluster();
    assert_eq!((view.leads, view.term), (true, Some(next.term)));
    one.stop().await;
    // The store's own revisions are far below that.
    let two = start("two", store, stage(&["a"]));
    // A controller that hears none of the nodes of the last plan makes no new plan.
    let _reports = keep_reporting(&two.handle(), "edge-1", report(40.0, &[]));
    let later = until(&two.handle(), |now| now.leader == "two").await;
    assert!(later.term > next.term, "{} after {}", later.edition(), next.edition());
    assert_eq!(two.handle().cluster().term, Some(later.term));
    two.stop().await;
}
