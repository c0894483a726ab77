//! CPU time of a process, as the kernel accounts it.

use std::time::Duration;

use anyhow::{Context, Result};

/// Of `pid` and all its threads, since it started.
pub(crate) fn cpu(pid: u32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name is in brackets, and may have any character.
    let (_, fields) = stat.rsplit_once(')').context("a stat without a name")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    let ticks = ticks.sum::<Result<u64, _>>()?;
    // SAFETY: sysconf reads a constant of the system and touches no memory of ours.
    let of_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    Ok(Duration::from_secs_f64(ticks as f64 / of_second.max(1) as f64))
}

/// Of the thread that asks, since it started.
pub(crate) fn cpu_of_thread() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writing across the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
