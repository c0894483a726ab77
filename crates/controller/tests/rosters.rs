//! Rosters of elastic pools, through a leader and its store.
#![allow(clippy::unwrap_used, reason = "tests say what they expect by failing")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use equipoise_controller::{
    Edition, Instructions, Intake, MadePool, Making, NodeReport, Premises, Wanted,
};
use equipoise_planner::PoolSpec;
use equipoise_planner::elastic::Elasticity;
use equipoise_testkit::Folder;
use support::{Flaky, Stage, newer, report, start, store_in, until};

/// An elastic pool without listed backends, of at least so many.
fn elastic(min: u32) -> Premises {
    let elastic = Elasticity { min, max: 4, ..Elasticity::default() };
    let pool = PoolSpec { elastic: Some(elastic), ..PoolSpec::default() };
    let made = MadePool { drain_timeout: Duration::from_secs(60), ..MadePool::default() };
    Premises {
        pools: [("web".to_string(), pool)].into(),
        made: [("web".to_string(), made)].into(),
        ..Premises::default()
    }
}

fn maker(applied: Edition) -> NodeReport {
    let making = Making { applied, ..Making::default() };
    NodeReport { making: [("web".to_string(), making)].into(), ..report(10.0, &[]) }
}

fn names(instructions: &Instructions) -> Vec<&str> {
    let roster = instructions.rosters.get("web");
    roster.into_iter().flat_map(|it| it.backends.keys().map(String::as_str)).collect()
}

#[tokio::test(start_paused = true)]
async fn the_next_leader_goes_on_with_the_roster_and_no_name_comes_twice() {
    let scratch = Folder::new("roster");
    let store = Arc::new(store_in(&scratch).await);
    let source = Arc::new(Stage(elastic(2).into()));
    let one = start("one", store.clone(), source.clone());
    newer(&one.handle(), Edition::default()).await;
    one.handle().report("edge-1", maker(Edition::default())).await.unwrap();
    let made = until(&one.handle(), |now| names(now).len() == 2).await;
    assert_eq!(names(&made), ["web-e1", "web-e2"]);
    let entry = &made.rosters["web"].backends["web-e1"];
    assert_eq!((entry.executor.as_str(), entry.wanted), ("edge-1", Wanted::Serve));
    drop(one);

    let two = start("two", store.clone(), source);
    let next = until(&two.handle(), |now| now.leader == "two").await;
    assert_eq!(names(&next), ["web-e1", "web-e2"]);
    assert_eq!(next.rosters["web"].backends["web-e1"].key, entry.key);
    // Its member was started again meanwhile, and has nothing: others are made in their stead.
    let mut seen = next.edition();
    let again = loop {
        two.handle().report("edge-1", maker(seen)).await.unwrap();
        let now = newer(&two.handle(), seen).await;
        if !names(&now).contains(&"web-e1") && names(&now).len() == 2 {
            break now;
        }
        seen = now.edition();
    };
    assert!(names(&again).iter().all(|name| !["web-e1", "web-e2"].contains(name)), "{again:?}");
    two.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_made_that_the_store_may_not_have() {
    let scratch = Folder::new("mute");
    let store = Flaky::new(store_in(&scratch).await);
    let source = Arc::new(Stage(elastic(2).into()));
    // Nobody reads along, so that all that is known is what the leader knows.
    let controller = start("one", store.clone(), source);
    let handle = controller.handle();
    let first = newer(&handle, Edition::default()).await;
    store.is_mute.store(true, Relaxed);
    let mut last = first.edition();
    for _ in 0..8 {
        handle.report("edge-1", maker(last)).await.unwrap();
        let now = newer(&handle, last).await;
        last = now.edition();
        // What the store took and did not confirm may be seen by those who read along, then as it was stored.
        assert!([0, 2].contains(&names(&now).len()), "{now:?}");
    }
    store.is_mute.store(false, Relaxed);
    let known: BTreeMap<_, _> = loop {
        handle.report("edge-1", maker(Edition::default())).await.unwrap();
        let now = newer(&handle, last).await;
        last = now.edition();
        if let Some(roster) = now.rosters.get("web").filter(|it| it.backends.len() == 2) {
            break roster.backends.clone();
        }
    };
    assert_eq!(known.keys().collect::<Vec<_>>(), ["web-e1", "web-e2"], "each was named once");
    controller.stop().await;
}
