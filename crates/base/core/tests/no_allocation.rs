//! A pick of any scheduler does not allocate (ARCHITECTURE.md, invariant 1), nor does learning a
//! limit.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use equipoise_core::concurrency::{Learner, Load, Outcome, Sample};
use equipoise_core::load::{Choice, DispatchTable, PerClass, RequestClass, Underway};
use equipoise_core::scheduler::prepare;
use equipoise_core::{Ask, Candidate, Loads, SchedulerKind};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// The system's allocator, with a count of each thread's allocations.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.with(|count| count.set(count.get() + 1));
}

// SAFETY: every call is passed on unchanged to `System`; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`; the block came from `System`.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `realloc`; the block came from `System`.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Loads that differ between slots and never change.
struct Uneven;

impl Loads for Uneven {
    fn in_flight(&self, slot: usize) -> u32 {
        (slot % 7) as u32
    }

    fn recent_failures(&self, slot: usize) -> u32 {
        (slot % 3) as u32
    }

    fn response_us(&self, slot: usize) -> Option<f64> {
        (!slot.is_multiple_of(5)).then_some(slot as f64)
    }

    fn limit(&self, slot: usize) -> Option<u32> {
        (!slot.is_multiple_of(3)).then_some((slot % 5) as u32 + 1)
    }

    fn is_full(&self, slot: usize) -> bool {
        self.limit(slot).is_some_and(|limit| self.in_flight(slot) >= limit)
    }
}

#[test]
fn a_pick_allocates_nothing() {
    let candidates: Vec<Candidate> =
        (0..200).map(|at| Candidate { identity: at, weight: (at % 11) as u32 }).collect();
    let mut rng = StdRng::seed_from_u64(1);
    for kind in SchedulerKind::ALL {
        let mut scheduler = prepare(kind, &candidates, 1).instance(&mut rng);
        let before = ALLOCATIONS.get();
        // Several times the sum of the weights, so that rotations complete.
        for at in 0..5_000 {
            let (flow_hash, source_hash) = (rng.random(), rng.random());
            let avoid = (at % 4 == 0).then_some(at % 200);
            let rng = &mut rng;
            let mut ask = Ask { flow_hash, source_hash, avoid, loads: &Uneven, rng };
            assert!(scheduler.pick(&mut ask).is_some());
        }
        assert_eq!(ALLOCATIONS.get(), before, "{kind}");
    }
    let table = DispatchTable::new(PerClass::from_fn(|_| 0.5), (0..200).map(f64::from));
    let underway = Underway { here: 3, here_failures: 0, there: 4, peers: &Uneven };
    let before = ALLOCATIONS.get();
    let class = RequestClass::Computing;
    let given = (0..5_000).filter(|_| table.choose(class, &underway, &mut rng) != Choice::Here);
    assert!(given.count() > 500);
    assert_eq!(ALLOCATIONS.get(), before, "where a request is done");

    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(ALLOCATIONS.get(), before + 1, "the allocator counts");
}

#[test]
fn learning_a_limit_allocates_nothing() {
    let mut learner = Learner::new(Duration::from_secs(1));
    let before = ALLOCATIONS.get();
    for step in 0..20_000u64 {
        let now = Duration::from_millis(5 * step);
        let one = Sample {
            finished: now,
            service_time: Duration::from_millis(20),
            outcome: Outcome::Answered,
        };
        learner.observe(&[one; 4]);
        let in_flight = learner.limit();
        learner.step(Load { now, in_flight, waiting: 50, oldest_wait: Duration::from_millis(60) });
    }
    assert!(learner.report().knee.is_some());
    assert_eq!(ALLOCATIONS.get(), before);
}
