//! Memory that the program has allocated.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The system's allocator, with a count of the allocated bytes: the requested sizes, without the
/// allocator's own overhead, which would favour some. Make it the `#[global_allocator]`.
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

/// The bytes that `make` allocates and keeps, and its peak beyond the bytes allocated before.
pub fn of<T>(make: impl FnOnce() -> T) -> (T, usize, usize) {
    let before = allocated();
    PEAK.store(before, Relaxed);
    let made = make();
    (made, allocated() - before, PEAK.load(Relaxed) - before)
}
