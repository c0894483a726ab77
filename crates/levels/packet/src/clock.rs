//! The clock of the program in the kernel.

/// Returns the time of the kernel's monotonic clock.
pub(crate) fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let [seconds, nanoseconds] = [now.tv_sec, now.tv_nsec].map(i64::cast_unsigned);
    seconds * 1_000_000_000 + nanoseconds
}
