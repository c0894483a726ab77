use std::cell::Cell;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use equipoise_core::concurrency::Outcome;
use equipoise_core::load::RequestClass;
use equipoise_core::scheduler::prepare;
use equipoise_core::{Generation, SchedulerKind};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::config::{Concurrency, PassiveHealth, PoolOptions, QueueOptions};
use crate::learning::HubThread;
use crate::live::BackendLive;
use crate::retry_budget::RetryBudget;
use crate::snapshot::BackendView;

/// A pool and the limits of its backends; 0: no limit.
struct Pool {
    options: QueueOptions,
    queue: Arc<Queue>,
    backends: Vec<BackendView>,
    snapshot: Arc<Snapshot>,
}

impl Pool {
    fn new(limits: &[u32]) -> Pool {
        let backend = |(at, limit): (usize, &u32)| {
            let live = BackendLive::new(1);
            live.set_limit(NonZeroU32::new(*limit));
            let address = ([127, 0, 0, 1], at as u16 + 1).into();
            let name = format!("b{at}").into();
            BackendView { id: at as u32, name, address, place: Default::default(), live }
        };
        let backends = limits.iter().enumerate().map(backend).collect();
        let snapshot = Arc::default();
        // Longer than any wait of these tests, so no queue counts as standing.
        let options = QueueOptions { wait: PATIENCE * 4, length: usize::MAX };
        let mut pool = Pool { options, queue: Queue::new(1), backends, snapshot };
        pool.install(|_| true);
        pool
    }

    /// Installs a snapshot with the backends for which `eligible` is true.
    fn install(&mut self, eligible: impl Fn(usize) -> bool) {
        let kept = self.backends.iter().enumerate().filter(|(at, _)| eligible(*at));
        let view = PoolView {
            id: 1,
            name: "pool".into(),
            generation: Generation::default(),
            scheduler: prepare(SchedulerKind::RoundRobin, &[], 1),
            needs_response_time: false,
            awaits_backend: false,
            fails_open: false,
            backends: kept.map(|(_, backend)| backend.clone()).collect(),
            queue: self.queue.clone(),
            retry_budget: Arc::new(RetryBudget::new(Instant::now())),
            options: PoolOptions { queue: self.options.clone(), ..PoolOptions::default() },
            passive: PassiveHealth::default(),
        };
        let pools = vec![Arc::new(view)];
        self.snapshot = Arc::new(Snapshot { pools, ..Snapshot::default() });
        self.queue.install(&self.snapshot, 0);
    }

    fn acquire(&self, slot: usize) -> Lease {
        Lease::acquire(&Rc::new(self.snapshot.clone()), 0, slot, 0).expect("it has room")
    }

    fn join(&self) -> Waiter {
        self.join_avoiding(None)
    }

    fn join_avoiding(&self, avoid: Option<u32>) -> Waiter {
        self.queue.join(&self.snapshot, 0, rank(0), avoid, 0)
    }

    fn join_as(&self, class: RequestClass) -> Waiter {
        let rank = Rank::new(0, class, Instant::now(), Instant::now() + PATIENCE);
        self.queue.join(&self.snapshot, 0, rank, None, 0)
    }

    fn in_flight(&self) -> Vec<u32> {
        self.backends.iter().map(|backend| backend.live.in_flight()).collect()
    }
}

fn rank(priority: u8) -> Rank {
    let now = Instant::now();
    Rank::new(priority, RequestClass::default(), now, now + PATIENCE)
}

fn poll(waiter: &Waiter) -> Poll<Result<Lease, Reason>> {
    waiter.poll(&Context::from_waker(Waker::noop()))
}

/// The slot of the lease that the waiter has been handed.
#[track_caller]
fn slot_and_lease(waiter: &Waiter) -> (u32, Lease) {
    match poll(waiter) {
        Poll::Ready(Ok(lease)) => (lease.backend().id, lease),
        Poll::Ready(Err(reason)) => panic!("refused: {}", reason.name()),
        Poll::Pending => panic!("it still waits"),
    }
}

#[test]
fn a_freed_permit_passes_to_the_first_waiter_not_a_newcomer() {
    let pool = Pool::new(&[1]);
    let held = pool.acquire(0);
    let (first, second) = (pool.join(), pool.join());
    assert!(poll(&first).is_pending() && poll(&second).is_pending());
    assert_eq!(pool.queue.len(), 2);
    drop(held);
    // The permit is already the first waiter's, before it polls.
    assert!(Lease::acquire(&Rc::new(pool.snapshot.clone()), 0, 0, 0).is_none());
    assert!(poll(&second).is_pending());
    let (_, lease) = slot_and_lease(&first);
    drop(lease);
    let (_, lease) = slot_and_lease(&second);
    drop(lease);
    assert_eq!((pool.in_flight(), pool.queue.len()), (vec![0], 0));
}

#[test]
fn a_leaving_waiter_passes_its_permit_to_the_next() {
    let pool = Pool::new(&[1]);
    let held = pool.acquire(0);
    let (first, second) = (pool.join(), pool.join());
    drop(held);
    drop(first);
    let (_, lease) = slot_and_lease(&second);
    drop((second, lease));
    assert_eq!((pool.in_flight(), pool.queue.len()), (vec![0], 0));
}

#[test]
fn a_joining_request_receives_a_free_permit_at_once() {
    let pool = Pool::new(&[1, 2]);
    let _held = (pool.acquire(0), pool.acquire(1));
    assert_eq!(slot_and_lease(&pool.join()).0, 1);
}

#[test]
fn a_waiter_that_avoids_a_backend_leaves_permits_to_the_next() {
    let pool = Pool::new(&[1, 1]);
    let (of_first, of_second) = (pool.acquire(0), pool.acquire(1));
    let (avoids, takes_any) = (pool.join_avoiding(Some(0)), pool.join());
    drop(of_first);
    assert!(poll(&avoids).is_pending());
    assert_eq!(slot_and_lease(&takes_any).0, 0);
    drop(of_second);
    assert_eq!(slot_and_lease(&avoids).0, 1);
}

#[test]
fn the_only_backend_is_not_avoided() {
    let pool = Pool::new(&[1]);
    let held = pool.acquire(0);
    let waiter = pool.join_avoiding(Some(0));
    drop(held);
    assert_eq!(slot_and_lease(&waiter).0, 0);
}

#[test]
fn a_queue_beyond_its_length_refuses_the_last_in_order() {
    let mut pool = Pool::new(&[1]);
    pool.options.length = 2;
    pool.install(|_| true);
    let _held = pool.acquire(0);
    let join = |priority| pool.queue.join(&pool.snapshot, 0, rank(priority), None, 0);
    let (low, middle) = (join(0), join(1));
    let is_refused = |waiter: &Waiter| matches!(poll(waiter), Poll::Ready(Err(Reason::QueueFull)));
    assert!(is_refused(&join(0)), "the newest of the lowest");
    let high = join(2);
    assert!(is_refused(&low), "the higher one takes its place");
    assert!(poll(&middle).is_pending() && poll(&high).is_pending());
    assert_eq!(pool.queue.len(), 2);
}

#[test]
fn a_late_queue_serves_the_newest_first_and_refuses_the_oldest() {
    let mut pool = Pool::new(&[1]);
    // The oldest is late at once.
    pool.options = QueueOptions { wait: Duration::ZERO, length: 2 };
    pool.install(|_| true);
    let held = pool.acquire(0);
    let [oldest, middle, newest] = [(); 3].map(|()| pool.join());
    assert!(matches!(poll(&oldest), Poll::Ready(Err(Reason::QueueFull))));
    drop(held);
    let (_, lease) = slot_and_lease(&newest);
    assert!(poll(&middle).is_pending());
    drop(lease);
    slot_and_lease(&middle);
}

#[test]
fn a_new_snapshot_hands_out_free_permits_except_of_drained_backends() {
    let mut pool = Pool::new(&[1, 2]);
    pool.install(|at| at == 0);
    let held = pool.acquire(0);
    let waiters: Vec<_> = (0..4).map(|_| pool.join()).collect();
    pool.install(|_| true);
    let _leases = [0, 1].map(|at| {
        let (backend, lease) = slot_and_lease(&waiters[at]);
        assert_eq!(backend, 1);
        lease
    });
    pool.install(|at| at == 1);
    drop(held);
    assert!(poll(&waiters[2]).is_pending(), "the freed permit is of a drained backend");
    pool.install(|_| true);
    let (backend, _lease) = slot_and_lease(&waiters[2]);
    assert_eq!(backend, 0);
    assert!(poll(&waiters[3]).is_pending());
}

#[test]
fn a_freed_permit_of_a_renumbered_backend_is_handed_out() {
    let mut pool = Pool::new(&[1]);
    let held = pool.acquire(0);
    let waiter = pool.join();
    pool.backends[0].id = 7;
    pool.install(|_| true);
    drop(held);
    assert_eq!(slot_and_lease(&waiter).0, 7);
}

#[test]
fn a_raised_limit_serves_waiting_requests_at_once() {
    let pool = Pool::new(&[1, 1]);
    let _held = (pool.acquire(0), pool.acquire(1));
    let waiters: Vec<_> = (0..4).map(|_| pool.join()).collect();
    pool.backends[0].live.set_limit(NonZeroU32::new(3));
    pool.queue.look();
    let backends = [0, 1].map(|at| slot_and_lease(&waiters[at]));
    assert_eq!(backends.each_ref().map(|(backend, _)| *backend), [0, 0]);
    assert!(poll(&waiters[2]).is_pending());
    pool.backends[1].live.set_limit(None);
    pool.queue.look();
    assert_eq!(slot_and_lease(&waiters[2]).0, 1);
    assert_eq!(slot_and_lease(&waiters[3]).0, 1);
}

#[test]
fn a_permit_given_back_early_serves_another_request() {
    let pool = Pool::new(&[1]);
    let held = pool.acquire(0);
    let waiter = pool.join();
    held.give_permit_back();
    held.give_permit_back();
    let (_, other) = slot_and_lease(&waiter);
    assert_eq!((pool.in_flight(), pool.backends[0].live.permits_held()), (vec![2], 1));
    held.take_permit_back();
    assert_eq!(pool.backends[0].live.permits_held(), 2);
    drop((held, other));
    assert_eq!((pool.in_flight(), pool.backends[0].live.permits_held()), (vec![0], 0));
}

#[test]
fn light_and_usual_requests_with_a_free_permit_overtake_each_other() {
    use RequestClass::{Light, SmallTransfer};
    let pool = Pool::new(&[1]);
    let usual = pool.acquire(0);
    let waiting = pool.join_as(SmallTransfer);
    let (_, light) = slot_and_lease(&pool.join_as(Light));
    let light_waiting = pool.join_as(Light);
    assert!(poll(&light_waiting).is_pending(), "light work has its limit, too");
    // Light requests come first in the queue, but the freed permit is not for light work.
    drop(usual);
    let (_, usual) = slot_and_lease(&waiting);
    assert!(poll(&light_waiting).is_pending());
    drop(light);
    let (_, light) = slot_and_lease(&light_waiting);
    assert_eq!((pool.in_flight(), pool.backends[0].live.permits_held()), (vec![2], 2));
    light.give_permit_back();
    slot_and_lease(&pool.join_as(Light));
    light.take_permit_back();
    drop((usual, light));
    assert_eq!((pool.in_flight(), pool.backends[0].live.permits_held()), (vec![0], 0));
}

#[test]
fn only_usual_work_influences_a_learnt_limit() {
    let (pool, learner) = (Pool::new(&[0]), HubThread::start(1).expect("a thread"));
    pool.queue.attach(learner.hub());
    let live = &pool.backends[0].live;
    live.set_concurrency(Concurrency::Learnt, PATIENCE);
    let snapshot = Rc::new(pool.snapshot.clone());
    let take = |work| Lease::acquire_for(work, &snapshot, 0, 0, 0).expect("it has room");
    let light = take(Work::Light);
    light.went(Outcome::Answered);
    drop(light);
    // The learner has not received the backend, and so discards samples of it.
    assert!(!live.learning.is_under_way() && live.learning.report().is_none());
    let _usual = take(Work::Usual);
    assert!(live.learning.is_under_way());
    assert!(equipoise_testkit::eventually(|| live.learning.report().is_some()));
}

#[test]
fn waiting_requests_are_served_after_their_pool_is_removed() {
    let mut pool = Pool::new(&[1]);
    let (held, first) = (pool.acquire(0), pool.snapshot.clone());
    let waiting = pool.join();
    pool.install(|_| true);
    let newest = Arc::downgrade(&pool.snapshot);
    // A reload removes the pool.
    pool.snapshot = first;
    drop(held);
    let (_, held) = slot_and_lease(&waiting);
    drop(waiting);
    // A client of a front door that is already closed comes late.
    assert!(poll(&pool.join()).is_pending());
    let late = pool.join();
    drop(held);
    slot_and_lease(&late);
    drop(late);
    assert!(newest.upgrade().is_none(), "a queue without requests keeps no snapshot");
}

const THREADS: usize = 4;
const TASKS: usize = 250;
const ROUNDS: usize = 40;
/// Longer than any wait: a forgotten waiter would wait for ever.
const PATIENCE: Duration = Duration::from_secs(120);

/// State shared by the tasks of all threads.
struct Load {
    pool: Pool,
    /// Leases held, by backend.
    held: Vec<AtomicU32>,
    held_max: u32,
    served: AtomicU32,
}

/// Takes leases as connections do, and drops one wait in five, at any moment.
async fn work(load: Arc<Load>, seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let snapshot = Rc::new(load.pool.snapshot.clone());
    for _ in 0..ROUNDS {
        let slot = rng.random_range(0..load.held.len());
        let queue = &load.pool.queue;
        let direct = match queue.has_waiting() {
            true => None,
            false => Lease::acquire(&snapshot, 0, slot, 0),
        };
        let lease = match direct {
            Some(lease) => lease,
            None => {
                let rank = rank(rng.random_range(0..3));
                let waiter = queue.join(&load.pool.snapshot, 0, rank, None, 0);
                let patience = if rng.random_bool(0.2) { rng.random_range(0..4) } else { u32::MAX };
                let polls = Cell::new(0);
                let wait = std::future::poll_fn(|cx| match waiter.poll(cx) {
                    Poll::Ready(lease) => Poll::Ready(Some(lease.expect("no length"))),
                    Poll::Pending if polls.get() >= patience => Poll::Ready(None),
                    Poll::Pending => {
                        polls.set(polls.get() + 1);
                        if patience < u32::MAX {
                            cx.waker().wake_by_ref();
                        }
                        Poll::Pending
                    }
                });
                match wait.await {
                    Some(lease) => lease,
                    None => continue,
                }
            }
        };
        let held = &load.held[lease.backend().id as usize];
        assert!(held.fetch_add(1, SeqCst) < load.held_max, "beyond the limit");
        for _ in 0..rng.random_range(0..3) {
            tokio::task::yield_now().await;
        }
        held.fetch_sub(1, SeqCst);
        load.served.fetch_add(1, Relaxed);
    }
}

fn run(load: &Arc<Load>) {
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let load = load.clone();
            thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
                let tasks = tokio::task::LocalSet::new();
                for task in 0..TASKS {
                    tasks.spawn_local(work(load.clone(), (thread * TASKS + task) as u64));
                }
                runtime.unwrap().block_on(async {
                    let all = tokio::time::timeout(PATIENCE, tasks);
                    all.await.expect("none waits for good");
                });
            })
        })
        .collect();
    // A task that panics either makes its thread time out or leaves a count behind.
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(load.pool.queue.len(), 0);
    assert_eq!(load.pool.in_flight(), vec![0; load.held.len()]);
    assert!(load.held.iter().all(|held| held.load(SeqCst) == 0));
}

#[test]
fn under_load_from_many_threads_no_permit_is_lost_and_no_waiter_forgotten() {
    for limits in [&[1][..], &[3, 3], &[7, 7, 7]] {
        let load = Arc::new(Load {
            pool: Pool::new(limits),
            held: limits.iter().map(|_| AtomicU32::new(0)).collect(),
            held_max: limits[0],
            served: AtomicU32::new(0),
        });
        run(&load);
        assert!(load.served.load(Relaxed) > (THREADS * TASKS * ROUNDS / 2) as u32);
    }
}

#[test]
fn while_limits_change_no_permit_is_lost_and_no_waiter_forgotten() {
    const LIMIT_MAX: u32 = 9;
    let load = Arc::new(Load {
        pool: Pool::new(&[LIMIT_MAX; 2]),
        held: vec![AtomicU32::new(0), AtomicU32::new(0)],
        held_max: LIMIT_MAX,
        served: AtomicU32::new(0),
    });
    let over = Arc::new(AtomicBool::new(false));
    let changing = thread::spawn({
        let (load, over) = (load.clone(), over.clone());
        move || {
            let mut rng = SmallRng::seed_from_u64(1);
            while !over.load(Relaxed) {
                let backend = &load.pool.backends[rng.random_range(0..2)];
                backend.live.set_limit(NonZeroU32::new(rng.random_range(1..=LIMIT_MAX)));
                load.pool.queue.look();
                thread::yield_now();
            }
        }
    });
    run(&load);
    over.store(true, Relaxed);
    changing.join().unwrap();
}
