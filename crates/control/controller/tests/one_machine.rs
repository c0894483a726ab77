//! A controller over the embedded store: plans, restarts, settings, and a store that fails.
#![allow(clippy::unwrap_used, reason = "tests say what they expect by failing")]

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use equipoise_controller::{ControllerError, Edition, Intake, IntakeError, NodeReport, SizeWish};
use equipoise_core::AdminState;
use equipoise_core::load::{ClassRate, ClassRates};
use equipoise_planner::elastic::{Elasticity, Mode, Scaling};
use equipoise_planner::{NameSpec, NodePlan, Standing};
use equipoise_store::{Key, Store};
use equipoise_testkit::Folder;
use support::{Flaky, newer, report, stage, start, store_in, until};

const SLOW_AND_FAST: &[(&str, f64, u64)] = &[("slow", 10.0, 100), ("fast", 1.0, 10)];

fn weight(instructions: &equipoise_controller::Instructions, backend: &str) -> u16 {
    instructions.plan.pools["web"].weights[backend].weight.get()
}

#[tokio::test(start_paused = true)]
async fn the_controller_plans_each_period_from_node_reports() {
    let scratch = Folder::new("plans");
    let controller = start("one", Arc::new(store_in(&scratch).await), stage(&["slow", "fast"]));
    let handle = controller.handle();
    let mut last = newer(&handle, Edition::default()).await;
    assert_eq!((weight(&last, "slow"), weight(&last, "fast")), (100, 100));
    for _ in 0..20 {
        handle.report("edge-1", report(40.0, SLOW_AND_FAST)).await.unwrap();
        last = newer(&handle, last.edition()).await;
    }
    assert!(weight(&last, "slow") < 60 && weight(&last, "fast") > 140, "{:?}", last.plan.pools);
    assert_eq!(
        last.plan.nodes["edge-1"].standing,
        Standing::Joining,
        "it came after the first plan"
    );
    assert!(last.plan.nodes["edge-1"].load.unwrap().l1 > 20.0);
    let view = handle.cluster();
    assert!(view.leads && view.leader.as_deref() == Some("one"), "{view:?}");
    assert_eq!(view.controllers, ["one"]);
    assert!(view.members[0].report_age.unwrap() <= Duration::from_secs(2), "{view:?}");
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_the_controller_continues_from_the_stored_plan() {
    let scratch = Folder::new("crash");
    let store = store_in(&scratch).await;
    let controller = start("one", Arc::new(store.clone()), stage(&["slow", "fast"]));
    let handle = controller.handle();
    let mut last = newer(&handle, Edition::default()).await;
    for _ in 0..20 {
        handle.report("edge-1", report(40.0, SLOW_AND_FAST)).await.unwrap();
        last = newer(&handle, last.edition()).await;
    }
    // It does not resign: its tasks end where they are, and the process's store handle is dropped.
    drop((controller, handle));
    store.close().await;

    let store = store_in(&scratch).await;
    let controller = start("one", Arc::new(store), stage(&["slow", "fast"]));
    // Without a sign of life of any node of the last plan it would make no new plan.
    controller.handle().report("edge-1", report(40.0, &[])).await.unwrap();
    let first = until(&controller.handle(), |now| now.edition().term > last.edition().term).await;
    assert!(first.generation >= last.generation, "{} {}", first.edition(), last.edition());
    assert_eq!(weight(&first, "slow"), weight(&last, "slow"), "what was learnt is kept");
    assert_eq!(first.members, last.members, "members stay enrolled");
    assert!(first.dispatch_secret.is_some());
    assert_eq!(first.dispatch_secret, last.dispatch_secret, "markers under way stay good");
    let presence = |of: &equipoise_controller::Instructions| of.plan.nodes["edge-1"].presence;
    assert!(presence(&first) >= presence(&last), "it does not begin to join again");
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_overloaded_node_keeps_half_and_its_peers_share_the_rest() {
    let scratch = Folder::new("dispatch");
    let controller = start("one", Arc::new(store_in(&scratch).await), stage(&["x"]));
    let handle = controller.handle();
    let mut last = newer(&handle, Edition::default()).await;
    for _ in 0..60 {
        // A request a second uses one per cent of CPU, and nodes follow the instructions.
        let kept = |plan: &NodePlan| plan.keep_by_class.small_transfer;
        let given = 90.0 * (1.0 - last.plan.nodes.get("a").map_or(1.0, kept));
        let weights = &last.plan.dispatch.weights;
        for (name, arrived) in [("a", 90.0), ("b", 30.0), ("c", 30.0), ("d", 30.0)] {
            let delegated = if name == "a" { given } else { 0.0 };
            let taken = given * weights.get(name).copied().unwrap_or(0.0);
            let rate = ClassRate { arrived, delegated, taken, ..ClassRate::default() };
            let classes = ClassRates { small_transfer: rate, ..ClassRates::default() };
            let said = NodeReport { dispatches: true, classes, ..report(rate.done(), &[]) };
            handle.report(name, said).await.unwrap();
        }
        last = newer(&handle, last.edition()).await;
    }
    let keep = last.plan.nodes["a"].keep;
    assert!((0.4..0.6).contains(&keep), "{keep}");
    let weights: Vec<_> = last.plan.dispatch.weights.iter().collect();
    assert!(
        weights.iter().all(|(name, weight)| *name != "a" && (**weight - 1.0 / 3.0).abs() < 0.1)
    );
    assert_eq!(weights.len(), 3, "{weights:?}");
    let view = handle.cluster();
    let kept: Vec<_> = view.members.iter().map(|it| (it.dispatches, it.keep)).collect();
    assert_eq!(kept, [(true, Some(keep)), (true, Some(1.0)), (true, Some(1.0)), (true, Some(1.0))]);
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_invalid_report_is_refused_counted_and_changes_nothing() {
    let scratch = Folder::new("liar");
    let controller = start("one", Arc::new(store_in(&scratch).await), stage(&["a"]));
    let handle = controller.handle();
    handle.report("edge-1", report(40.0, &[])).await.unwrap();
    for cpu in [f64::NAN, -5.0, 1e9] {
        let refused = handle.report("edge-1", report(cpu, &[])).await.unwrap_err();
        assert!(matches!(refused, IntakeError::Refused(_)), "{refused}");
    }
    assert!(handle.report("edge-1", report(1.0, &[("a", f64::INFINITY, 1)])).await.is_err());
    let next = newer(&handle, Edition::default()).await;
    let next = newer(&handle, next.edition()).await;
    let load = next.plan.nodes["edge-1"].load.unwrap();
    assert!((33.0..40.0).contains(&load.l2), "of 40 and 30: {load:?}");
    let refused: u64 = handle.figures().refused.iter().map(|(_, count)| count).sum();
    assert_eq!((refused, handle.cluster().members[0].refused), (4, 4));
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn claimed_capacity_is_granted_in_bounded_steps_up_to_a_maximum() {
    let scratch = Folder::new("claims");
    let stage = stage(&["a"]);
    let www = NameSpec { nodes: ["n1", "n2"].map(str::to_string).into() };
    stage.0.lock().unwrap().names.insert("www".to_string(), www);
    let controller = start("one", Arc::new(store_in(&scratch).await), Arc::clone(&stage));
    let handle = controller.handle();
    let of = |capacity| NodeReport { capacity, ..report(40.0, &[]) };
    handle.report("n1", of(2.0)).await.unwrap();
    handle.report("n2", of(2.0)).await.unwrap();
    let mut now = until(&handle, |now| now.members.len() == 2).await;
    for _ in 0..40 {
        handle.report("n1", of(2.0)).await.unwrap();
        handle.report("n2", of(8192.0)).await.unwrap();
        let next = newer(&handle, now.edition()).await;
        let (was, is) = (now.members["n2"].capacity, next.members["n2"].capacity);
        assert!(is <= 1.26 * was, "{was} to {is}");
        now = next;
    }
    assert_eq!(now.members["n2"].capacity, 16.0, "eight times its first claim");
    let share = now.plan.names["www"].shares["n2"].probability;
    assert!((0.5..0.95).contains(&share), "{share}");
    let seen = handle.cluster().members.into_iter().find(|it| it.name == "n2").unwrap();
    assert_eq!((seen.capacity, seen.claimed_capacity), (16.0, Some(8192.0)));

    stage.0.lock().unwrap().capacity_max = Some(4.0);
    until(&handle, |now| now.members["n2"].capacity == 4.0).await;
    assert!(handle.report("n2", of(1e308)).await.is_err(), "no machine has that many");
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_the_store_instructions_stay_and_the_problem_is_reported() {
    let scratch = Folder::new("store-lost");
    let store = Flaky::new(store_in(&scratch).await);
    let controller = start("one", store.clone(), stage(&["a"]));
    let handle = controller.handle();
    let last = newer(&handle, Edition::default()).await;
    store.is_gone.store(true, Relaxed);
    // The lease cannot be renewed, so no controller leads, and the last instructions stand.
    let gone = Duration::from_secs(30);
    tokio::time::sleep(gone).await;
    let view = handle.cluster();
    assert!(!view.leads, "{view:?}");
    assert!(view.instructions.unwrap() >= last.edition());
    assert!(view.instructions_age.unwrap() > gone / 2, "{view:?}");
    assert!(view.store.failures > 0 && view.store.failing_for.unwrap() > gone / 2, "{view:?}");
    let problem = view.problem.unwrap();
    assert!(problem.starts_with("no plan for ") && problem.contains("taken away"), "{problem}");
    assert!(handle.condition().plan_age > gone / 2);
    store.is_gone.store(false, Relaxed);
    let next = until(&handle, |now| now.edition().term > last.edition().term).await;
    assert!(next.generation > last.generation);
    assert_eq!(handle.cluster().store.failing_for, None);
    assert_eq!(handle.condition().problem(), None);
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn plans_refused_by_the_store_are_published_and_a_problem_reported() {
    let scratch = Folder::new("unwritten");
    let store = Flaky::new(store_in(&scratch).await);
    let controller = start("one", store.clone(), stage(&["a"]));
    let handle = controller.handle();
    let last = newer(&handle, Edition::default()).await;
    store.is_read_only.store(true, Relaxed);
    tokio::time::sleep(Duration::from_secs(20)).await;
    let condition = handle.condition();
    assert!(condition.leads && condition.instructions.unwrap() > last.edition(), "{condition:?}");
    assert!(condition.store.failing_for.unwrap() > Duration::from_secs(15), "{condition:?}");
    let problem = condition.problem().unwrap();
    assert!(problem.contains("the store refuses") && problem.contains("a restart"), "{problem}");
    store.is_read_only.store(false, Relaxed);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(handle.condition().problem(), None);
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_cannot_lead_reports_the_reason_and_plan_age() {
    let scratch = Folder::new("read-only");
    let store = Flaky::new(store_in(&scratch).await);
    store.is_read_only.store(true, Relaxed);
    let controller = start("one", store.clone(), stage(&["a"]));
    let handle = controller.handle();
    tokio::time::sleep(Duration::from_secs(20)).await;
    let condition = handle.condition();
    assert!(!condition.leads && condition.instructions.is_none(), "{condition:?}");
    assert!(condition.plan_age >= Duration::from_secs(20), "{condition:?}");
    let problem = condition.problem().unwrap();
    assert!(problem.contains("cannot become leader: the store refuses"), "{problem}");
    store.is_read_only.store(false, Relaxed);
    newer(&handle, Edition::default()).await;
    assert_eq!(handle.condition().problem(), None);
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pools_are_pinned_paused_and_resumed_and_a_pin_survives_restart() {
    let scratch = Folder::new("wishes");
    let stage = stage(&["a"]);
    {
        let mut premises = stage.0.lock().unwrap();
        let pool = premises.pools.get_mut("web").unwrap();
        pool.elastic = Some(Elasticity { max: 8, ..Elasticity::default() });
    }
    let store = store_in(&scratch).await;
    let controller = start("one", Arc::new(store.clone()), stage.clone());
    let handle = controller.handle();
    let action = |now: &equipoise_controller::Instructions| {
        now.plan.pools.get("web").and_then(|pool| Some(pool.scaling.as_ref()?.action.clone()))
    };
    until(&handle, |now| action(now) == Some(Scaling::Hold)).await;
    handle.set_size("web", Some(SizeWish::Mode(Mode::Pinned(4)))).await.unwrap();
    let out = Some(Scaling::Out { size: None, count: 3 });
    until(&handle, |now| action(now) == out).await;
    let preview = handle.preview().unwrap();
    let reason = &preview.pools["web"].scaling.as_ref().unwrap().reason;
    assert!(reason.contains("pinned at 4"), "{reason}");
    controller.stop().await;
    store.close().await;

    let controller = start("one", Arc::new(store_in(&scratch).await), stage);
    let handle = controller.handle();
    until(&handle, |now| action(now) == out).await;
    handle.set_size("web", Some(SizeWish::Mode(Mode::Paused))).await.unwrap();
    until(&handle, |now| action(now) == Some(Scaling::Hold)).await;
    handle.set_size("web", None).await.unwrap();
    assert!(handle.sizes().is_empty());
    assert!(handle.set_size("no/such/\0", None).await.is_err());
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_hanging_store_blocks_no_operator_and_applies_the_change_later() {
    let scratch = Folder::new("hanging");
    let store = Flaky::new(store_in(&scratch).await);
    let controller = start("one", store.clone(), stage(&["a"]));
    let handle = controller.handle();
    newer(&handle, Edition::default()).await;
    store.hangs.send_replace(true);
    let began = tokio::time::Instant::now();
    let paused = Some(SizeWish::Mode(Mode::Paused));
    let unanswered = |done| matches!(done, Err(ControllerError::Unanswered));
    assert!(unanswered(handle.set_size("web", paused).await));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let began = tokio::time::Instant::now();
    // The next command need not wait to learn that the store hangs.
    let refused = handle.set_admin("edge-1", AdminState::Drain).await;
    assert!(matches!(refused, Err(ControllerError::Busy)), "it was not made: {refused:?}");
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert!(handle.sizes().is_empty() && handle.admins().is_empty());

    store.hangs.send_replace(false);
    let mut seen = newer(&handle, Edition::default()).await.edition();
    while handle.sizes().is_empty() {
        seen = newer(&handle, seen).await.edition();
    }
    assert_eq!(handle.sizes()["web"].mode(), Mode::Paused);
    assert!(handle.admins().is_empty(), "a refused command does nothing later");
    handle.set_admin("edge-1", AdminState::Drain).await.unwrap();
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_command_during_another_write_is_executed_after_it_or_refused() {
    let scratch = Folder::new("turns");
    let store = Flaky::new(store_in(&scratch).await);
    let controller = start("one", store.clone(), stage(&["a"]));
    let handle = controller.handle();
    newer(&handle, Edition::default()).await;
    let pin = |count| {
        let handle = handle.clone();
        tokio::spawn(async move {
            handle.set_size("web", Some(SizeWish::Mode(Mode::Pinned(count)))).await
        })
    };
    for rounds in 0..20 {
        store.hangs.send_replace(true);
        let [first, second] = [1, 2].map(pin);
        tokio::time::sleep(Duration::from_millis(100 * rounds)).await;
        store.hangs.send_replace(false);
        assert!(first.await.unwrap().is_ok() && second.await.unwrap().is_ok());
        assert_eq!(handle.sizes()["web"].pin(), Some(2), "the later one counts");
    }
    // Both wait longer than a command's timeout. The second was not started; the first may still
    // take effect.
    store.hangs.send_replace(true);
    let [first, second] = [3, 4].map(pin);
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert!(matches!(first, Err(ControllerError::Unanswered)), "{first:?}");
    assert!(matches!(second, Err(ControllerError::Busy)), "{second:?}");
    store.hangs.send_replace(false);
    while handle.sizes()["web"].pin() != Some(3) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(pin(5).await.unwrap().is_ok());
    assert_eq!(handle.sizes()["web"].pin(), Some(5));
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_error_distinguishes_an_unconfirmed_change_from_a_failed_change() {
    let scratch = Folder::new("unconfirmed");
    let store = Flaky::new(store_in(&scratch).await);
    let controller = start("one", store.clone(), stage(&["a"]));
    let handle = controller.handle();
    newer(&handle, Edition::default()).await;
    let paused = SizeWish::Mode(Mode::Paused);
    store.is_mute.store(true, Relaxed);
    let error = handle.set_size("web", Some(paused)).await.unwrap_err();
    assert!(matches!(error, ControllerError::Unconfirmed(_)), "{error:?}");
    assert!(error.to_string().contains("may still take effect"), "{error}");
    store.is_mute.store(false, Relaxed);
    // It takes effect: the controller reads it from the store.
    until(&handle, |_| handle.sizes().get("web") == Some(&paused)).await;
    store.is_gone.store(true, Relaxed);
    let error = handle.set_size("web", None).await.unwrap_err();
    assert!(matches!(error, ControllerError::Store(_)), "nothing was done: {error:?}");
    assert_eq!(handle.sizes().get("web"), Some(&paused));
    store.is_gone.store(false, Relaxed);
    let key = Key::new("wishes/pools/web").unwrap();
    assert!(store.inner.get(&key).await.unwrap().is_some());
    controller.stop().await;
}
