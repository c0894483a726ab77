//! Plans that follow each other quicker than a driver: every plan says the step that is due, and it is taken once.
#![allow(clippy::unwrap_used, reason = "tests say what they expect by failing")]

mod support;

use std::sync::Arc;

use equipoise_controller::{Edition, Instructions, SizeWish};
use equipoise_planner::elastic::{Elasticity, Mode, Scaling, ScalingPlan};
use equipoise_planner::{BackendSpec, PoolSpec};
use equipoise_testkit::Folder;
use support::{Stage, newer, start, store_in, until};
use tokio::time::Instant;

fn scaling(instructions: &Instructions) -> ScalingPlan {
    instructions.plan.pools["web"].scaling.clone().unwrap()
}

/// The pool as a driver shows it that has taken so many steps.
fn show(stage: &Stage, steps: u64, backends: u32) {
    let one = BackendSpec { is_elastic: true, ..BackendSpec::default() };
    let backends = (1..=backends).map(|number| (format!("web-e{number}"), one.clone())).collect();
    let elastic = Some(Elasticity { max: 8, ..Elasticity::default() });
    let pool = PoolSpec { backends, elastic, steps: Some(steps), ..PoolSpec::default() };
    stage.0.lock().unwrap().pools.insert("web".to_string(), pool);
}

#[tokio::test(start_paused = true)]
async fn plans_that_come_before_a_step_shows_say_the_same_step_and_those_after_it_none() {
    let scratch = Folder::new("steps");
    let stage = Arc::new(Stage::default());
    show(&stage, 100, 1);
    let controller = start("one", Arc::new(store_in(&scratch).await), stage.clone());
    let handle = controller.handle();
    let mut last = newer(&handle, Edition::default()).await;
    let began = Instant::now();
    let out = Scaling::Out { size: None, count: 3 };
    for _ in 0..5 {
        // As an operator who does not believe it the first time.
        handle.set_size("web", Some(SizeWish::Mode(Mode::Pinned(4)))).await.unwrap();
        last = newer(&handle, last.edition()).await;
        let said = scaling(&last);
        assert_eq!((said.action, said.after), (out.clone(), Some(100)), "{}", said.reason);
    }
    assert!(began.elapsed().as_millis() < 100, "wishes are planned at once: {:?}", began.elapsed());
    // The driver has taken one of them; the others were after step 100, too, and it takes none of those.
    show(&stage, 101, 4);
    handle.set_size("web", Some(SizeWish::Mode(Mode::Pinned(4)))).await.unwrap();
    let now = until(&handle, |now| scaling(now).after == Some(101)).await;
    assert_eq!(scaling(&now).action, Scaling::Hold);
    controller.stop().await;
}
