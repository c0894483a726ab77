//! Large arrays and the memory under them.

/// From this size on, huge pages are asked for: below it, translation misses cost nothing.
const ADVISE_BYTES_MIN: usize = 4 << 20;

#[cfg(target_os = "linux")]
const PAGE_BYTES: usize = 4096;

/// `len` times `value`, on huge pages if it is large and the system has them to give.
pub(crate) fn filled<T: Copy>(len: usize, value: T) -> Vec<T> {
    let mut array = Vec::with_capacity(len);
    advise_huge_pages(&array);
    array.resize(len, value);
    array
}

/// An empty array with room for exactly `capacity`, on huge pages as [`filled`].
pub(crate) fn reserved<T>(capacity: usize) -> Vec<T> {
    let mut array = Vec::new();
    array.reserve_exact(capacity);
    advise_huge_pages(&array);
    array
}

/// Makes room for one more: an eighth more than there was, for doubling would cost more memory than the arrays need.
pub(crate) fn grow_for_one<T>(array: &mut Vec<T>) {
    if array.len() == array.capacity() {
        array.reserve_exact(array.len() / 8 + 16);
        advise_huge_pages(array);
    }
}

/// Asks for huge pages under all of `array`'s capacity, if that is large.
pub(crate) fn advise_huge_pages<T>(array: &Vec<T>) {
    let bytes = array.capacity() * size_of::<T>();
    if bytes >= ADVISE_BYTES_MIN {
        advise(array.as_ptr().addr(), bytes);
    }
}

/// Asks for huge pages under a range of this process's memory. A random access to a large array on small pages costs a
/// translation miss on top of its cache miss.
#[cfg(target_os = "linux")]
pub(crate) fn advise(start: usize, bytes: usize) {
    let end = (start + bytes) / PAGE_BYTES * PAGE_BYTES;
    let start = start.next_multiple_of(PAGE_BYTES);
    // SAFETY: the caller's range is mapped; the advice changes the kind of pages, not what they hold. Where the kernel
    // has no huge pages for such memory it fails, which changes nothing.
    unsafe {
        libc::madvise(start as *mut libc::c_void, end.saturating_sub(start), libc::MADV_HUGEPAGE)
    };
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn advise(_start: usize, _bytes: usize) {}

/// Starts to fetch `array[index]` into the cache. Out of range is nothing.
#[inline(always)]
pub(crate) fn prefetch<T>(array: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that the program sees and never faults, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(array.as_ptr().wrapping_add(index).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (array, index);
}

/// Starts to fetch all of `array` into the cache.
#[inline(always)]
pub(crate) fn prefetch_all<T>(array: &[T]) {
    /// Of a cache line; where lines are longer, some are asked for twice.
    const LINE_BYTES: usize = 64;
    for index in (0..array.len()).step_by((LINE_BYTES / size_of::<T>().max(1)).max(1)) {
        prefetch(array, index);
    }
}
