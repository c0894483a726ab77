//! Memory that was freed and that the allocator keeps.

/// Gives free memory of all heaps back to the system. Samples are allocated by threads of Cyclone DDS, so they lie in several
/// heaps, of which glibc gives back only what is free at the end. Takes a millisecond for some 100 MB.
///
/// With another C library it does nothing.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    {
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        // SAFETY: glibc's function may be called at any time from any thread, and keeps what is allocated.
        unsafe { malloc_trim(0) };
    }
}
