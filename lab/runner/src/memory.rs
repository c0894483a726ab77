//! What the program has allocated.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The system's allocator, with a count of the bytes that are allocated: what was asked for, without the allocator's
/// own overhead, which favours nobody. Make it the `#[global_allocator]`.
#[derive(Debug)]
pub struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn count(more: usize) {
    let now = ALLOCATED.fetch_add(more, Relaxed) + more;
    PEAK.fetch_max(now, Relaxed);
}

// SAFETY: every call is passed on to the system's allocator as it is; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        ALLOCATED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Bytes allocated now.
pub fn allocated() -> usize {
    ALLOCATED.load(Relaxed)
}

/// What `make` allocates and keeps, and the most that it had at once beyond what there was, in bytes.
pub fn of<T>(make: impl FnOnce() -> T) -> (T, usize, usize) {
    let before = allocated();
    PEAK.store(before, Relaxed);
    let made = make();
    (made, allocated() - before, PEAK.load(Relaxed) - before)
}
