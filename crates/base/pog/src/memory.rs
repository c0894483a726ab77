//! Allocation of large arrays, and prefetching.

/// Minimum size of arrays on huge pages, bytes: below it, TLB misses cost nothing.
const ADVISE_BYTES_MIN: usize = 4 << 20;

#[cfg(target_os = "linux")]
const PAGE_BYTES: usize = 4096;

/// Returns `len` copies of `value`, on huge pages if the array is large and the system has them.
pub(crate) fn filled<T: Copy>(len: usize, value: T) -> Vec<T> {
    let mut array = Vec::with_capacity(len);
    advise_huge_pages(&array);
    array.resize(len, value);
    array
}

/// Returns an empty array with exactly this capacity, on huge pages like [`filled`].
pub(crate) fn reserved<T>(capacity: usize) -> Vec<T> {
    let mut array = Vec::new();
    array.reserve_exact(capacity);
    advise_huge_pages(&array);
    array
}

/// Reserves space for one more element. Grows by an eighth, because doubling would cost more memory
/// than the arrays need.
pub(crate) fn grow_for_one<T>(array: &mut Vec<T>) {
    if array.len() == array.capacity() {
        array.reserve_exact(array.len() / 8 + 16);
        advise_huge_pages(array);
    }
}

/// Requests huge pages for the capacity of `array`, if it is large.
pub(crate) fn advise_huge_pages<T>(array: &Vec<T>) {
    let bytes = array.capacity() * size_of::<T>();
    if bytes >= ADVISE_BYTES_MIN {
        advise(array.as_ptr().addr(), bytes);
    }
}

/// Requests huge pages for a range of this process's memory. With small pages, a random access to a
/// large array costs a TLB miss in addition to its cache miss.
#[cfg(target_os = "linux")]
pub(crate) fn advise(start: usize, bytes: usize) {
    let end = (start + bytes) / PAGE_BYTES * PAGE_BYTES;
    let start = start.next_multiple_of(PAGE_BYTES);
    // SAFETY: the caller's range is mapped. The advice changes the kind of pages, not their
    // contents. If the kernel does not support huge pages there, it fails without an effect.
    unsafe {
        libc::madvise(start as *mut libc::c_void, end.saturating_sub(start), libc::MADV_HUGEPAGE)
    };
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn advise(_start: usize, _bytes: usize) {}

/// Starts to fetch `array[index]` into the cache. Has no effect if the index is out of range.
#[inline(always)]
pub(crate) fn prefetch<T>(array: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no visible effect and never faults, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(array.as_ptr().wrapping_add(index).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (array, index);
}

/// Starts to fetch all of `array` into the cache.
#[inline(always)]
pub(crate) fn prefetch_all<T>(array: &[T]) {
    /// Size of a cache line. With longer lines, some are requested twice.
    const LINE_BYTES: usize = 64;
    for index in (0..array.len()).step_by((LINE_BYTES / size_of::<T>().max(1)).max(1)) {
        prefetch(array, index);
    }
}
