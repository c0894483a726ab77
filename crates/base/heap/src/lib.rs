//! How much memory the process has allocated.
//!
//! The size of the process as the kernel sees it is no measure of that: an allocator keeps freed
//! memory. So [`CountingAllocator`] counts the bytes that are in use, once a program has made it
//! its allocator:
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

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering::Relaxed};

use crossbeam_utils::CachePadded;

/// Counters, among which threads are divided. A block that another thread frees makes one counter
/// too large and another one as much too small.
const COUNTERS: usize = 16;

static COUNTS: [CachePadded<AtomicIsize>; COUNTERS] =
    [const { CachePadded::new(AtomicIsize::new(0)) }; COUNTERS];

/// Threads that have a counter.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Index of this thread's counter; [`COUNTERS`]: none yet.
    static COUNTER: Cell<usize> = const { Cell::new(COUNTERS) };
}

/// The system's allocator, with a count of the bytes in use: the requested sizes, without what the
/// allocator adds to each.
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
            counter.set(THREADS.fetch_add(1, Relaxed) % COUNTERS);
        }
        counter.get()
    });
    COUNTS[index.unwrap_or(0)].fetch_add(bytes, Relaxed);
}

// A layout's size is at most isize::MAX.
fn signed(bytes: usize) -> isize {
    bytes as isize
}

// SAFETY: every call is passed on to the system's allocator as it is; counting does not allocate.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc`.
        let block = unsafe { System.alloc(layout) };
        if !block.is_null() {
            add(signed(layout.size()));
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        let block = unsafe { System.alloc_zeroed(layout) };
        if !block.is_null() {
            add(signed(layout.size()));
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        add(-signed(layout.size()));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `realloc`.
        let moved = unsafe { System.realloc(block, layout, size) };
        if !moved.is_null() {
            add(signed(size) - signed(layout.size()));
        }
        moved
    }
}
