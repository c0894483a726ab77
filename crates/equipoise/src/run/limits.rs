//! Limits of the process: open files and memory.

use std::io;
use std::path::Path;

use equipoise_config::Config;
use equipoise_heap::allocated_bytes;
use equipoise_monitor::usable_memory_bytes;
use equipoise_session::MemoryBound;

/// The bound on the memory of this process: the configured one, or three quarters of what it may
/// use. The rest is for what an allocator adds, and for the kernel's buffers of its sockets.
pub(crate) fn memory_bound(config: &Config) -> MemoryBound {
    let usable = || usable_memory_bytes(Path::new("/proc")).map(|bytes| bytes / 4 * 3);
    let max_bytes = config.instance.memory_max.or_else(usable).unwrap_or(u64::MAX);
    let max_bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX);
    MemoryBound { max_bytes, used_bytes: allocated_bytes }
}

/// Raises the limit of open files to this user's maximum, because each connection takes two.
/// Returns the limit.
///
/// # Errors
/// The error of the operating system.
pub(crate) fn raise_open_files() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writes of one rlimit.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: `limit` is valid for reads of one rlimit.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(limit.rlim_cur)
}
