use std::time::Instant;

use equipoise_planner::{NodePlan, Plan, Standing};
use equipoise_session::config::{FrontDoor, PoolConfig, Protocol, SessionConfig};
use equipoise_session::dispatch::{DelegationKeys, NodeDoor, Transport};
use equipoise_session::registry::{DispatchStatus, Registry, RegistryOptions};
use equipoise_session::{Engine, EngineOptions};
use equipoise_testkit::free_port;
use tokio::sync::mpsc;

use super::*;

const PERIOD: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(60);

/// A front door in node mode without peers, which listens at this address.
fn config(listen: std::net::SocketAddr) -> SessionConfig {
    let pool = |name: &str| PoolConfig {
        name: name.into(),
        scheduler: Default::default(),
        backends: Vec::new(),
        concurrency: Default::default(),
        options: Default::default(),
        health: None,
        passive: Default::default(),
        slow_start: None,
        weights_by_load: false,
        starts_within: None,
    };
    let mut door = FrontDoor::new(listen, Protocol::Http, "app");
    door.dispatch = Some(NodeDoor {
        peers: "app.peers".into(),
        node: "a".into(),
        keys: DelegationKeys::default(),
        transport: Transport::Plain,
        classes: Default::default(),
        keep: PerClass::from_fn(|_| 1.0),
    });
    SessionConfig { pools: vec![pool("app"), pool("app.peers")], front_doors: vec![door] }
}

/// Instructions with which node `a` refuses all computing requests.
fn refusing(generation: u64) -> Arc<Instructions> {
    let node = NodePlan {
        standing: Standing::Present,
        presence: 1.0,
        load: None,
        is_overloaded: false,
        keep: 1.0,
        keep_by_class: PerClass::from_fn(|_| 1.0),
        scarce: None,
    };
    let mut plan = Plan { nodes: [("a".to_string(), node)].into(), ..Plan::default() };
    plan.dispatch.refuse.computing = 1.0;
    Arc::new(Instructions { term: 1, generation, period: PERIOD, plan, ..Instructions::default() })
}

/// Waits until `is_so` holds, and calls `meanwhile` after each check that failed.
async fn until(
    registry: &RegistryHandle,
    what: &str,
    mut meanwhile: impl FnMut(),
    is_so: impl Fn(&DispatchStatus) -> bool,
) {
    let began = Instant::now();
    loop {
        let status = registry.status().await.unwrap();
        let dispatch = status.front_doors[0].dispatch.as_ref().unwrap();
        if is_so(dispatch) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{what}: {dispatch:?}");
        meanwhile();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn what_is_refused_is_let_in_again_when_nothing_is_planned_any_more() {
    let (events, failing) = mpsc::channel(1);
    let options = EngineOptions {
        threads: 1,
        instance: "a".into(),
        events,
        access_log: Box::new(std::io::sink()),
        access_log_format: Default::default(),
    };
    let engine = Engine::start(options).unwrap();
    let options = RegistryOptions { threads: 1, scheduler_seed: 1, jitter_seed: 1 };
    let (owner, registry) = Registry::new(options, engine, failing);
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { owner.run().await.stop(Duration::ZERO).await });
    });
    let port = free_port();
    registry.apply(config(port.address())).await.unwrap();

    let (send, instructions) = watch::channel(refusing(1));
    let wish = Wish { application: Some("app".into()), ..Wish::default() };
    let follower = Follower {
        node: "a".into(),
        registry: registry.clone(),
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
    let refuses = |it: &DispatchStatus| it.refuse.computing == 1.0 && it.is_planned;
    let lets_in = |it: &DispatchStatus| it.refuse == PerClass::default() && it.is_planned;
    until(&registry, "as planned", &mut plan, refuses).await;
    until(&registry, "nobody plans", || (), lets_in).await;
    until(&registry, "a controller is back", &mut plan, refuses).await;
    drop(send);
    until(&registry, "it is gone for good", || (), lets_in).await;
    following.await.unwrap();

    registry.stop().await;
    thread.join().unwrap();
}
