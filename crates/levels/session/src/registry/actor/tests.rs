use std::io;
use std::num::NonZeroU32;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use equipoise_core::{AdminState, Eligibility, Generation, Health, Weight};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::super::fixtures::*;
use super::*;
use crate::config::checks::HttpCheck;
use crate::config::{HealthCheck, Place, Resolved};
use crate::{BindError, Reason, Snapshot};

/// Records what is published, or refuses it.
#[derive(Clone)]
struct Recorder {
    published: mpsc::UnboundedSender<Arc<Snapshot>>,
    last: Arc<Mutex<Arc<Snapshot>>>,
    refuse: Arc<AtomicBool>,
    refused: Arc<Mutex<Arc<Snapshot>>>,
}

impl Publish for Recorder {
    fn publish(&self, snapshot: Arc<Snapshot>) -> Result<(), BindError> {
        if self.refuse.load(Relaxed) {
            let door = snapshot.front_doors[0].config.clone();
            *self.refused.lock().unwrap() = Arc::clone(&snapshot);
            let source = io::ErrorKind::AddrInUse.into();
            return Err(BindError { front_door: door.name, address: door.listen, source });
        }
        *self.last.lock().unwrap() = Arc::clone(&snapshot);
        // The test may have dropped the receiver.
        let _ = self.published.send(snapshot);
        Ok(())
    }

    fn wake(&self) {}
}

struct Running {
    handle: RegistryHandle,
    recorder: Recorder,
    published: mpsc::UnboundedReceiver<Arc<Snapshot>>,
    events: mpsc::Sender<BackendEvent>,
    task: JoinHandle<Recorder>,
}

fn start() -> Running {
    let (sender, published) = mpsc::unbounded_channel();
    let recorder = Recorder {
        published: sender,
        last: Arc::default(),
        refuse: Arc::default(),
        refused: Arc::default(),
    };
    let (events, reported) = mpsc::channel(16);
    let options = RegistryOptions { threads: THREADS, scheduler_seed: 0, jitter_seed: 0 };
    let (registry, handle) = Registry::new(options, recorder.clone(), reported);
    Running { handle, recorder, published, events, task: tokio::spawn(registry.run()) }
}

impl Running {
    /// The next snapshot published; fails after a timeout.
    async fn next(&mut self) -> Arc<Snapshot> {
        let next = tokio::time::timeout(seconds(60), self.published.recv());
        next.await.expect("nothing is published").unwrap()
    }

    fn picked(&self) -> Vec<String> {
        names(&self.recorder.last.lock().unwrap())
    }

    fn live(&self, index: usize) -> Arc<crate::BackendLive> {
        Arc::clone(&self.handle.stats().pools[0].backends[index].live)
    }
}

fn names(snapshot: &Arc<Snapshot>) -> Vec<String> {
    snapshot.pools[0].backends.iter().map(|b| b.name.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_change_reaches_the_data_plane_before_its_call_returns() {
    let run = start();
    let changes = run.handle.apply(config(vec![pool("web", 2)])).await.unwrap();
    assert_eq!(changes.backends.added, ["web/b1", "web/b2"]);
    assert_eq!(run.picked(), ["b1", "b2"]);

    run.handle.set_admin("web", "b1", AdminState::Drain).await.unwrap();
    assert_eq!(run.picked(), ["b2"]);
    assert!(!run.live(0).cut.load(Relaxed));
    run.handle.set_admin("web", "10.0.0.1:80", AdminState::Down).await.unwrap();
    assert!(run.live(0).cut.load(Relaxed));
    run.handle.set_admin("web", "b1", AdminState::Up).await.unwrap();
    assert_eq!(run.picked(), ["b1", "b2"]);
    assert!(!run.live(0).cut.load(Relaxed));

    run.handle.set_weight("web", "b2", Weight::new(0).unwrap()).await.unwrap();
    assert_eq!(run.picked(), ["b1"]);
    run.handle.reset_weight("web", "b2").await.unwrap();
    assert_eq!(run.picked(), ["b1", "b2"]);
    let unknown = run.handle.set_admin("web", "b3", AdminState::Up).await;
    assert!(matches!(unknown, Err(RegistryError::UnknownBackend { .. })), "{unknown:?}");
}

#[tokio::test(start_paused = true)]
async fn other_levels_receive_operator_settings_but_no_ejections() {
    let mut run = start();
    let mut pools = run.handle.pools();
    run.handle.apply(config(vec![pool("web", 2)])).await.unwrap();
    let seen = |pools: &mut watch::Receiver<Arc<Vec<PoolState>>>| {
        assert!(pools.has_changed().unwrap());
        let pools = pools.borrow_and_update();
        let web = pools[0].backends.iter();
        web.map(|b| (b.admin, b.weight.get(), b.health)).collect::<Vec<_>>()
    };
    let up = (AdminState::Up, 1, Health::Unknown);
    assert_eq!(seen(&mut pools), [up, up]);
    run.handle.set_admin("web", "b1", AdminState::Drain).await.unwrap();
    assert_eq!(seen(&mut pools), [(AdminState::Drain, 1, Health::Unknown), up]);
    // The snapshot of the session level does not change, but the other levels are notified.
    run.handle.set_admin("web", "b1", AdminState::Down).await.unwrap();
    assert_eq!(seen(&mut pools), [(AdminState::Down, 1, Health::Unknown), up]);
    run.handle.set_admin("web", "b1", AdminState::Up).await.unwrap();
    run.handle.set_weight("web", "b2", Weight::new(0).unwrap()).await.unwrap();
    assert_eq!(seen(&mut pools), [up, (AdminState::Up, 0, Health::Unknown)]);
    run.handle.reset_weight("web", "b2").await.unwrap();
    pools.mark_unchanged();

    let mut snapshot = run.next().await;
    while let Ok(newer) = run.published.try_recv() {
        snapshot = newer;
    }
    run.live(0).failures_in_row.store(5, Relaxed);
    let (pool, backend) = (snapshot.pools[0].id, snapshot.pools[0].backends[0].id);
    run.events
        .send(BackendEvent::Failing { pool, backend, reason: Reason::ConnectRefused })
        .await
        .unwrap();
    assert_eq!(names(&run.next().await), ["b2"]);
    assert!(!pools.has_changed().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_configuration_that_cannot_be_bound_changes_nothing() {
    let run = start();
    run.handle.apply(config(vec![pool("web", 1)])).await.unwrap();
    let before = run.handle.status().await.unwrap();
    run.recorder.refuse.store(true, Relaxed);
    let refused = run.handle.apply(config(vec![checked(pool("other", 3))])).await;
    assert!(matches!(refused, Err(ApplyError::Bind(_))), "{refused:?}");
    assert_eq!(run.handle.status().await.unwrap(), before);
    assert_eq!(&*run.handle.stats().pools[0].name, "web");

    run.recorder.refuse.store(false, Relaxed);
    run.handle.apply(config(vec![pool("web", 1), pool("new", 2)])).await.unwrap();
    assert_eq!(run.handle.status().await.unwrap().generation, Generation(2));
    let refused = run.recorder.refused.lock().unwrap().pools[0].clone();
    let new = run.recorder.last.lock().unwrap().pools[1].clone();
    assert!(new.id > refused.id, "a number that was seen is given to another pool");
    assert!(new.backends[0].id > refused.backends[2].id);
}

#[tokio::test(start_paused = true)]
async fn operator_settings_survive_a_reload() {
    let run = start();
    run.handle.apply(config(vec![pool("web", 2)])).await.unwrap();
    run.handle.set_admin("web", "b1", AdminState::Down).await.unwrap();
    run.handle.set_weight("web", "b2", Weight::new(9).unwrap()).await.unwrap();
    run.handle.apply(config(vec![pool("web", 3)])).await.unwrap();
    let status = run.handle.status().await.unwrap();
    let [b1, b2, b3] = &status.pools[0].backends[..] else { panic!("{status:?}") };
    assert_eq!((b1.admin, b1.eligibility), (AdminState::Down, Eligibility::Down));
    assert!(run.live(0).cut.load(Relaxed));
    assert_eq!((b2.weight.get(), b2.weight_configured.get()), (9, 1));
    assert_eq!(b3.eligibility, Eligibility::Eligible);
}

#[tokio::test(start_paused = true)]
async fn a_failing_backend_is_ejected_and_returns_after_its_ejection() {
    let mut run = start();
    run.handle.apply(config(vec![pool("web", 2)])).await.unwrap();
    let first = run.next().await;
    run.live(0).failures_in_row.store(5, Relaxed);
    let (pool, backend) = (first.pools[0].id, first.pools[0].backends[0].id);
    let began = TokioInstant::now();
    run.events
        .send(BackendEvent::Failing { pool, backend, reason: Reason::ConnectRefused })
        .await
        .unwrap();

    assert_eq!(names(&run.next().await), ["b2"]);
    let status = run.handle.status().await.unwrap();
    let b1 = &status.pools[0].backends[0];
    assert_eq!((b1.health, b1.eligibility), (Health::Unhealthy, Eligibility::Unhealthy));
    assert_eq!(b1.ejection_left, Some(seconds(10)));

    assert_eq!(names(&run.next().await), ["b1", "b2"]);
    let took = began.elapsed();
    assert!((seconds(10)..seconds(10) + Duration::from_millis(5)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_start_publishes_one_snapshot_per_step() {
    let mut run = start();
    let slow = |n| {
        config(vec![crate::config::PoolConfig { slow_start: Some(seconds(20)), ..pool("web", n) }])
    };
    run.handle.apply(slow(1)).await.unwrap();
    run.handle.apply(slow(2)).await.unwrap();
    let began = TokioInstant::now();
    for _ in 0..2 + 10 {
        run.next().await;
    }
    assert_eq!(began.elapsed().as_secs(), 20);
    let status = run.handle.status().await.unwrap();
    assert_eq!(status.pools[0].backends[1].ramp_permille, 1000);
    assert_eq!(status.generation, Generation(12));
    tokio::time::sleep(seconds(3600)).await;
    assert!(run.published.try_recv().is_err(), "nothing moves any more");
}

#[tokio::test]
async fn checks_take_a_backend_out_and_bring_it_back_and_follow_the_configuration() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut wanted = checked(pool("web", 1));
    wanted.backends[0].address = address;
    wanted.health.as_mut().unwrap().interval = Duration::from_millis(5);

    let mut run = start();
    run.handle.apply(config(vec![wanted.clone()])).await.unwrap();
    assert_eq!(names(&run.next().await), ["b1"]);
    listener.accept().await.unwrap();
    drop(listener);
    assert!(names(&run.next().await).is_empty());
    let status = run.handle.status().await.unwrap();
    let check = status.pools[0].backends[0].last_check.clone().unwrap();
    assert!(check.result.is_err(), "{check:?}");

    let listener = TcpListener::bind(address).await.unwrap();
    let accepting = tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    assert_eq!(names(&run.next().await), ["b1"]);

    // A backend that only accepts connections passes a TCP check and fails an HTTP one.
    let http = HealthCheck::Http(HttpCheck::get("/"));
    wanted.health.as_mut().unwrap().check = http;
    run.handle.apply(config(vec![wanted.clone()])).await.unwrap();
    assert!(names(&run.next().await).is_empty());

    wanted.health = None;
    run.handle.apply(config(vec![wanted])).await.unwrap();
    assert_eq!(run.handle.status().await.unwrap().pools[0].backends[0].last_check, None);
    accepting.abort();
}

#[tokio::test]
async fn checks_find_a_silent_host_unhealthy_while_its_addresses_change() {
    // The kernel accepts, and no process answers: each check lasts until its timeout.
    let silent = [
        TcpListener::bind("127.0.0.1:0").await.unwrap(),
        TcpListener::bind("127.0.0.1:0").await.unwrap(),
    ];
    let answer = |number: usize| {
        let resolved = Resolved::new([silent[number % 2].local_addr().unwrap()]);
        let mut wanted = checked(pool("web", 2));
        wanted.backends[0].place = Place::Host { name: "app.internal:80".into(), resolved };
        let health = wanted.health.as_mut().unwrap();
        health.check = HealthCheck::Http(HttpCheck::get("/"));
        (health.interval, health.timeout) = (Duration::from_millis(100), Duration::from_millis(80));
        wanted
    };
    let run = start();
    let is_found = async {
        let mut lookups = 0..;
        loop {
            run.handle.apply(config(vec![answer(lookups.next().unwrap())])).await.unwrap();
            let status = run.handle.status().await.unwrap();
            if status.pools[0].backends[0].health == Health::Unhealthy {
                return;
            }
            // More often than checks end.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let found = tokio::time::timeout(Duration::from_secs(20), is_found).await;
    assert!(found.is_ok(), "each lookup began the check anew");
}

#[tokio::test(start_paused = true)]
async fn status_sums_the_counters_of_threads_and_names_drop_reasons() {
    use crate::Reason::{ConnectRefused, NoBackend};
    let run = start();
    run.handle.apply(config(vec![pool("web", 1)])).await.unwrap();
    let stats = run.handle.stats();
    for thread in 0..THREADS {
        let door = stats.front_doors[0].stats.shard(thread);
        door.requests.add(3);
        door.responses[4].add(1);
        door.drops[NoBackend as usize].add(2);
        let backend = stats.pools[0].backends[0].live.stats.shard(thread);
        backend.sessions_reused.add(4);
        backend.failures[ConnectRefused as usize].add(1);
    }
    stats.pools[0].backends[0].live.set_limit(NonZeroU32::new(8));
    (0..6).for_each(|_| assert!(stats.pools[0].backends[0].live.permits.try_acquire()));
    let status = run.handle.status().await.unwrap();
    let (door, backend) = (&status.front_doors[0], &status.pools[0].backends[0]);
    assert_eq!((door.requests, door.responses), (6, [0, 0, 0, 0, 2]));
    assert_eq!(door.drops, [(NoBackend, 4)]);
    assert_eq!((backend.sessions_reused, backend.in_flight), (8, 6));
    assert_eq!(backend.failures, [(ConnectRefused, 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_registry_returns_its_publisher_and_refuses_calls() {
    let run = start();
    run.handle.stop().await;
    run.task.await.unwrap();
    assert_eq!(run.handle.status().await, Err(RegistryError::Stopped));
    let refused = run.handle.apply(config(vec![])).await;
    assert!(matches!(refused, Err(ApplyError::Stopped)));
    run.handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_registry_ends_when_its_handles_and_event_senders_are_dropped() {
    let run = start();
    drop((run.handle, run.events));
    run.task.await.unwrap();
}

/// Checks that the future can run on a task, as the binary runs it beside its API.
const _: fn(Registry<crate::Engine>) = |registry| {
    fn sent(_: impl Send) {}
    sent(registry.run());
};
