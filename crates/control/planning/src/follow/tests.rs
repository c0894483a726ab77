use std::sync::Mutex;
use std::time::Instant;

use async_trait::async_trait;
use equipoise_basics::lock;
use equipoise_core::concurrency::Tally;
use equipoise_core::{AdminState, Weight};
use equipoise_planner::{NodePlan, Plan, Standing};

use super::*;
use crate::level::{LearningBackend, Refused};

const PERIOD: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(60);

/// A level that only keeps its last shares.
#[derive(Default)]
struct Level(Mutex<Option<Arc<Shares>>>);

#[async_trait]
impl Steered for Level {
    async fn set_planned(&self, _: &str, _: Vec<(String, Weight)>) -> Result<(), Refused> {
        Ok(())
    }

    async fn set_shares(&self, shares: Arc<Shares>) -> Result<(), Refused> {
        *lock(&self.0) = Some(shares);
        Ok(())
    }

    async fn set_admin(&self, _: &str, _: &str, _: AdminState) -> Result<(), Refused> {
        Ok(())
    }

    fn set_room(&self, _: &str, _: &BTreeMap<String, u32>) {}

    fn set_limit_share(&self, _: &str, _: f64) {}

    fn hear_balancers(&self, _: u64, _: &mut dyn FnMut(&LearningBackend) -> Vec<Tally>) {}
}

/// Instructions with which node `a` refuses all computing requests.
fn refusing(generation: u64) -> Arc<Instructions> {
    let node = NodePlan::new(Standing::Present, 1.0);
    let mut plan = Plan { nodes: [("a".to_string(), node)].into(), ..Plan::default() };
    plan.dispatch.refuse.computing = 1.0;
    Arc::new(Instructions { term: 1, generation, period: PERIOD, plan, ..Instructions::default() })
}

/// Waits until the shares of `level` are as `is_so` says, and calls `meanwhile` after each check
/// that failed.
async fn until(
    level: &Level,
    what: &str,
    mut meanwhile: impl FnMut(),
    is_so: impl Fn(&Shares) -> bool,
) {
    let began = Instant::now();
    loop {
        let shares = lock(&level.0).clone();
        if shares.as_deref().is_some_and(&is_so) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{what}: {shares:?}");
        meanwhile();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_follower_admits_refused_requests_again_once_plans_stop() {
    let level = Arc::new(Level::default());
    let (send, instructions) = watch::channel(refusing(1));
    let wish = PlanningConfig { application: Some("app".into()), ..PlanningConfig::default() };
    let follower = Follower {
        node: "a".into(),
        level: Arc::clone(&level) as Arc<dyn Steered>,
        wish: watch::channel(Arc::new(wish)).1,
        applied: watch::channel(None).0,
        learnt: watch::channel(Learnt::default()).0,
    };
    let following = tokio::spawn(follower.follow(instructions));
    let mut generation = 1;
    let mut plan = || {
        generation += 1;
        send.send_replace(refusing(generation));
    };
    let refuses = |it: &Shares| it.refuse.computing == 1.0;
    let lets_in = |it: &Shares| it.refuse == PerClass::default();
    until(&level, "as planned", &mut plan, refuses).await;
    until(&level, "nobody plans", || (), lets_in).await;
    until(&level, "a controller is back", &mut plan, refuses).await;
    drop(send);
    until(&level, "it is gone for good", || (), lets_in).await;
    following.await.unwrap();
}
