//! Rosters of elastic pools, through a leader and its store.
#![allow(clippy::unwrap_used, reason = "tests say what they expect by failing")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use equipoise_controller::{
    Controller, Edition, Instructions, Intake, Made, MadePool, MadeState, Making, NodeReport,
    Premises, Wanted,
};
use equipoise_core::AdminState;
use equipoise_planner::PoolSpec;
use equipoise_planner::elastic::Elasticity;
use equipoise_testkit::Folder;
use support::{Flaky, Stage, keep_reporting, newer, report, start, store_in, until};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// An elastic pool without listed backends, of at least `min` backends.
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
async fn the_next_leader_continues_the_roster_and_reuses_no_name() {
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
    // A controller that hears none of the nodes of the last plan makes no new plan.
    let reports = keep_reporting(&two.handle(), "edge-1", maker(Edition::default()));
    let next = until(&two.handle(), |now| now.leader == "two").await;
    assert_eq!(names(&next), ["web-e1", "web-e2"]);
    assert_eq!(next.rosters["web"].backends["web-e1"].key, entry.key);
    reports.abort();
    // Its member was restarted in between and has no backends. Others replace them.
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
async fn an_unconfirmed_roster_write_names_each_backend_once() {
    let scratch = Folder::new("mute");
    let store = Flaky::new(store_in(&scratch).await);
    let source = Arc::new(Stage(elastic(2).into()));
    // No other controller follows the store, so all knowledge is with the leader.
    let controller = start("one", store.clone(), source);
    let handle = controller.handle();
    let first = newer(&handle, Edition::default()).await;
    store.is_mute.store(true, Relaxed);
    let mut last = first.edition();
    for _ in 0..8 {
        handle.report("edge-1", maker(last)).await.unwrap();
        let now = newer(&handle, last).await;
        last = now.edition();
        // A write that the store accepted without an answer may be visible to followers, as it was
        // stored.
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

/// Two controllers; nodes `edge-1` and `edge-2` report to both and make two backends. `one` leads.
async fn two_that_hear(
    scratch: &Folder,
) -> ([Controller; 2], [Vec<JoinHandle<()>>; 2], Arc<Instructions>) {
    let store = Arc::new(store_in(scratch).await);
    let source = Arc::new(Stage(elastic(2).into()));
    let one = start("one", store.clone(), source.clone());
    newer(&one.handle(), Edition::default()).await;
    let two = start("two", store, source);
    let reports = [&one, &two].map(|controller| {
        let nodes = ["edge-1", "edge-2"];
        let maker = || maker(Edition::default());
        nodes.map(|node| keep_reporting(&controller.handle(), node, maker())).into()
    });
    let made = until(&two.handle(), |now| names(now).len() == 2).await;
    // Both have listened for so long that members without reports count as silent.
    sleep(Duration::from_secs(12)).await;
    ([one, two], reports, made)
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_node_reports_removes_nothing_and_steps_down() {
    let scratch = Folder::new("deaf");
    let ([one, two], [to_one, _to_two], made) = two_that_hear(&scratch).await;
    let order = one.handle().cluster();
    assert!(order.leads, "{order:?}");
    to_one.iter().for_each(JoinHandle::abort);
    let deaf_since = Instant::now();
    let mut said = None;
    let next = loop {
        let now = two.handle().instructions().borrow().clone();
        assert_eq!(names(&now), names(&made));
        if now.leader == "two" {
            break now;
        }
        said = one.handle().condition().problem().or(said);
        assert!(deaf_since.elapsed() < Duration::from_secs(30), "{said:?}");
        sleep(Duration::from_millis(100)).await;
    };
    let said = said.unwrap_or_default();
    assert!(said.contains("reports from none of the 2 other members, and two from more"), "{said}");
    // It no longer campaigns, and its backends continue.
    sleep(Duration::from_secs(30)).await;
    let later = two.handle().instructions().borrow().clone();
    assert_eq!((later.term, names(&later)), (next.term, names(&made)));
    assert!(one.handle().condition().problem().is_some(), "it says so for as long as it is so");
    one.stop().await;
    two.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_sole_controller_without_node_reports_leads_and_removes_nothing() {
    let scratch = Folder::new("deaf-alone");
    let ([one, two], [_to_one, to_two], made) = two_that_hear(&scratch).await;
    to_two.iter().for_each(JoinHandle::abort);
    one.stop().await;
    // Its last reports are fresh for a moment.
    sleep(Duration::from_secs(5)).await;
    let edition = two.handle().instructions().borrow().edition();
    // For longer than a silent member is remembered.
    sleep(Duration::from_secs(700)).await;
    let view = two.handle().cluster();
    assert!(view.leads, "{view:?}");
    let now = two.handle().instructions().borrow().clone();
    assert_eq!((now.edition(), names(&now)), (edition, names(&made)), "it plans nothing");
    assert!(two.handle().condition().problem().is_some_and(|it| it.contains("reports from none")));
    // An eviction by an operator is evidence.
    two.handle().shut_out(["edge-1".to_string(), "edge-2".to_string()].into());
    until(&two.handle(), |now| names(now).is_empty()).await;
    two.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_evicted_loses_its_backends_at_once() {
    let scratch = Folder::new("evicted");
    let ([one, two], _reports, made) = two_that_hear(&scratch).await;
    let executor = |now: &Instructions, of: &str| {
        now.rosters["web"].backends.values().filter(|it| it.executor == of).count()
    };
    assert_eq!((executor(&made, "edge-1"), executor(&made, "edge-2")), (1, 1));
    let asked = Instant::now();
    one.handle().shut_out(["edge-2".to_string()].into());
    until(&one.handle(), |now| executor(now, "edge-2") == 0).await;
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    let rest = until(&one.handle(), |now| names(now).len() == 2).await;
    assert_eq!(executor(&rest, "edge-1"), 2, "the other makes what is missing");
    one.stop().await;
    two.stop().await;
}

/// Backends that a single machine has made, as of these instructions.
fn own(applied: Edition, backends: &[&str], outlives: bool) -> Making {
    let made = Made { state: MadeState::Ready, ..Made::default() };
    let backends = backends.iter().map(|name| (name.to_string(), made.clone())).collect();
    Making { outlives, applied, backends, ..Making::default() }
}

/// Sets the premises of a single machine, with the backends that it makes.
fn says(stage: &Stage, making: Making) {
    stage.0.lock().unwrap().alone = Some([("web".to_string(), making)].into());
}

#[tokio::test(start_paused = true)]
async fn a_single_machine_replaces_dead_processes_at_once_after_restart() {
    let scratch = Folder::new("alone");
    let store = Arc::new(store_in(&scratch).await);
    let stage = Arc::new(Stage(elastic(2).into()));
    says(&stage, own(Edition::default(), &[], false));
    let one = start("one", store.clone(), stage.clone());
    let began = Instant::now();
    let made = until(&one.handle(), |now| names(now).len() == 2).await;
    assert!(began.elapsed() < Duration::from_millis(500), "no report is waited for");
    assert_eq!(made.rosters["web"].backends["web-e1"].executor, "one");
    drop(one);

    says(&stage, own(Edition::default(), &[], false));
    let two = start("one", store, stage.clone());
    let next = until(&two.handle(), |now| now.edition().term > made.edition().term).await;
    assert_eq!(names(&next), ["web-e1", "web-e2"], "it has not been told what it is to have");
    says(&stage, own(next.edition(), &[], false));
    let began = Instant::now();
    two.handle().plan_soon();
    let again = until(&two.handle(), |now| names(now) == ["web-e3", "web-e4"]).await;
    assert!(began.elapsed() < Duration::from_millis(500), "{}", again.edition());
    two.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_single_machine_with_a_read_only_store_creates_only_processes() {
    for (outlives, expected) in [(false, 2), (true, 0)] {
        let scratch = Folder::new("alone-unwritten");
        let store = Flaky::new(store_in(&scratch).await);
        let mut premises = elastic(0);
        premises.pools.get_mut("web").unwrap().elastic.as_mut().unwrap().min = 0;
        let stage = Arc::new(Stage(premises.into()));
        says(&stage, own(Edition::default(), &[], outlives));
        let controller = start("one", store.clone(), stage.clone());
        let handle = controller.handle();
        newer(&handle, Edition::default()).await;
        store.is_read_only.store(true, Relaxed);
        let elastic = Elasticity { min: 2, max: 4, ..Elasticity::default() };
        stage.0.lock().unwrap().pools.get_mut("web").unwrap().elastic = Some(elastic);
        for _ in 0..5 {
            let seen = handle.instructions().borrow().edition();
            let now = newer(&handle, seen).await;
            says(&stage, own(seen, &names(&now), outlives));
        }
        let now = handle.instructions().borrow().clone();
        assert_eq!(names(&now).len(), expected, "{now:?}");
        controller.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_backend_adopted_while_draining_leaves_only_after_it_is_drained() {
    let scratch = Folder::new("alone-drains");
    let mut premises = elastic(0);
    premises.pools.get_mut("web").unwrap().elastic.as_mut().unwrap().min = 0;
    let stage = Arc::new(Stage(premises.into()));
    let mut making = own(Edition::default(), &["web-e1"], true);
    making.backends.get_mut("web-e1").unwrap().state = MadeState::Draining;
    says(&stage, making);
    let controller = start("one", Arc::new(store_in(&scratch).await), stage);
    let handle = controller.handle();
    let mut now = until(&handle, |now| names(now) == ["web-e1"]).await;
    let wanted = |now: &Instructions| now.rosters["web"].backends["web-e1"].wanted;
    for _ in 0..5 {
        assert_eq!(wanted(&now), Wanted::Drain);
        now = newer(&handle, now.edition()).await;
    }
    let drained = [("web".to_string(), ["web-e1".to_string()].into())].into();
    handle.report("one", NodeReport { drained, ..report(10.0, &[]) }).await.unwrap();
    until(&handle, |now| wanted(now) == Wanted::Leave).await;
    controller.stop().await;
}

/// Plans until the pool has `count` backends. A single machine makes each backend of the roster at
/// once.
async fn until_made(controller: &Controller, stage: &Stage, pool: &str, count: usize) {
    let handle = controller.handle();
    for _ in 0..20 {
        let now = handle.instructions().borrow().clone();
        let mut alone = stage.0.lock().unwrap().alone.clone().unwrap();
        for (name, making) in &mut alone {
            let backends = now.rosters.get(name).map(|it| it.backends.keys().map(String::as_str));
            let backends: Vec<&str> = backends.into_iter().flatten().collect();
            *making = own(now.edition(), &backends, making.outlives);
        }
        if alone[pool].backends.len() == count {
            return;
        }
        stage.0.lock().unwrap().alone = Some(alone);
        newer(&handle, now.edition()).await;
    }
    panic!("{:?}", handle.instructions().borrow());
}

#[tokio::test(start_paused = true)]
async fn backends_are_created_although_the_store_answers_writes_late() {
    let scratch = Folder::new("late");
    let store = Flaky::new(store_in(&scratch).await);
    let stage = Arc::new(Stage(elastic(0).into()));
    stage.0.lock().unwrap().pools.get_mut("web").unwrap().elastic.as_mut().unwrap().min = 0;
    says(&stage, own(Edition::default(), &[], true));
    let controller = start("one", store.clone(), stage.clone());
    newer(&controller.handle(), Edition::default()).await;
    store.is_late.store(true, Relaxed);
    for count in [1, 3] {
        let elastic = Elasticity { min: count, max: 4, ..Elasticity::default() };
        stage.0.lock().unwrap().pools.get_mut("web").unwrap().elastic = Some(elastic);
        until_made(&controller, &stage, "web", count as usize).await;
    }
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_read_only_store_blocks_script_pools_but_not_process_pools() {
    let scratch = Folder::new("both");
    let store = Flaky::new(store_in(&scratch).await);
    let mut premises = elastic(1);
    let (pool, made) = (premises.pools["web"].clone(), premises.made["web"].clone());
    premises.pools.insert("vm".to_string(), pool);
    premises.made.insert("vm".to_string(), made);
    let makes = |outlives| own(Edition::default(), &[], outlives);
    premises.alone = Some([("web".into(), makes(false)), ("vm".into(), makes(true))].into());
    let stage = Arc::new(Stage(premises.into()));
    let controller = start("one", store.clone(), stage.clone());
    until_made(&controller, &stage, "vm", 1).await;
    store.is_read_only.store(true, Relaxed);
    let elastic = Elasticity { min: 3, max: 4, ..Elasticity::default() };
    for pool in stage.0.lock().unwrap().pools.values_mut() {
        pool.elastic = Some(elastic.clone());
    }
    until_made(&controller, &stage, "web", 3).await;
    let vms = controller.handle().instructions().borrow().rosters["vm"].backends.len();
    assert_eq!(vms, 1);
    store.is_read_only.store(false, Relaxed);
    until_made(&controller, &stage, "vm", 3).await;
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_drained_single_machine_still_creates_backends() {
    let scratch = Folder::new("alone-drained");
    let stage = Arc::new(Stage(elastic(1).into()));
    says(&stage, own(Edition::default(), &[], false));
    let controller = start("one", Arc::new(store_in(&scratch).await), stage.clone());
    let reports = keep_reporting(&controller.handle(), "one", report(10.0, &[]));
    until(&controller.handle(), |now| now.members.contains_key("one")).await;
    controller.handle().set_admin("one", AdminState::Drain).await.unwrap();
    let is_drained = |now: &Instructions| {
        now.plan.nodes.get("one").is_some_and(|node| !node.standing.is_wanted())
    };
    until(&controller.handle(), is_drained).await;
    let elastic = Elasticity { min: 3, max: 4, ..Elasticity::default() };
    stage.0.lock().unwrap().pools.get_mut("web").unwrap().elastic = Some(elastic);
    until_made(&controller, &stage, "web", 3).await;
    reports.abort();
    controller.stop().await;
}
