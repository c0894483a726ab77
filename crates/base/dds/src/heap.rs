//! Returns free memory from the allocator to the system.

/// Returns free memory of all heaps to the system. Threads of Cyclone DDS allocate samples, so
/// samples lie in several heaps, and glibc itself returns only the end of each. Takes about a
/// millisecond per 100 MB.
///
/// Does nothing with another C library.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    {
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        // SAFETY: glibc's function may be called at any time from any thread, and does not touch
        // allocated memory.
        unsafe { malloc_trim(0) };
    }
}
