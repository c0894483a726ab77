//! The process's allocator, and how much memory it has allocated.
//!
//! The size of the process as the kernel sees it is no measure of that: an allocator keeps freed
//! memory. So [`CountingAllocator`], which is mimalloc, counts the bytes that are in use, once a
//! program has made it its allocator:
//!
//! ```
//! use equipoise_heap::{CountingAllocator, allocated_bytes};
//!
//! #[global_allocator]
//! static ALLOCATOR: CountingAllocator = CountingAllocator;
//!
//! fn main() {
//!     let before = allocated_bytes();
//!     let block = vec![0_u8; 1 << 20];
//!     assert!(allocated_bytes() >= before + (1 << 20));
//!     drop(block);
//! }
//! ```

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering::Relaxed};

use crossbeam_utils::CachePadded;
use mimalloc::MiMalloc;

/// Counters. Each of the first threads has one, which only it changes; the last one is for all
/// others. A block that another thread frees makes one counter too large and another one as much
/// too small.
const COUNTERS: usize = 64;

/// Index of the counter that threads share.
const SHARED: usize = COUNTERS - 1;

static COUNTS: [CachePadded<AtomicIsize>; COUNTERS] =
    [const { CachePadded::new(AtomicIsize::new(0)) }; COUNTERS];

/// Threads that have had a counter.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Index of this thread's counter; [`COUNTERS`]: none yet.
    static COUNTER: Cell<usize> = const { Cell::new(COUNTERS) };
}

/// mimalloc, with a count of the bytes in use: the requested sizes, without what the allocator adds
/// to each.
#[derive(Debug)]
pub struct CountingAllocator;

/// Bytes in use; 0 in a program with another allocator.
pub fn allocated_bytes() -> usize {
    let sum: isize = COUNTS.iter().map(|count| count.load(Relaxed)).sum();
    // Counters that other threads change during the sum may make it negative.
    usize::try_from(sum).unwrap_or(0)
}

fn add(bytes: isize) {
    // The value needs no destructor, so that it is there until the thread has ended.
    let index = COUNTER.try_with(|counter| {
        if counter.get() == COUNTERS {
            counter.set(THREADS.fetch_add(1, Relaxed).min(SHARED));
        }
        counter.get()
    });
    let index = index.unwrap_or(SHARED);
    let count = &COUNTS[index];
    if index == SHARED {
        count.fetch_add(bytes, Relaxed);
    } else {
        count.store(count.load(Relaxed).wrapping_add(bytes), Relaxed);
    }
}

// A layout's size is at most isize::MAX.
fn signed(bytes: usize) -> isize {
    bytes as isize
}

// SAFETY: every call is passed on to mimalloc as it is; counting does not allocate.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc`.
        let block = unsafe { MiMalloc.alloc(layout) };
        if !block.is_null() {
            add(signed(layout.size()));
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        let block = unsafe { MiMalloc.alloc_zeroed(layout) };
        if !block.is_null() {
            add(signed(layout.size()));
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        add(-signed(layout.size()));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { MiMalloc.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `realloc`.
        let moved = unsafe { MiMalloc.realloc(block, layout, size) };
        if !moved.is_null() {
            add(signed(size) - signed(layout.size()));
        }
        moved
    }
}
