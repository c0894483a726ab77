//! CPU time and wake-ups of processes, as the kernel accounts them.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use anyhow::{Context, Result};

/// CPU time, user and system, of `pid` and all its threads since it started. It is exact to the
/// nanosecond, where `/proc/PID/stat` counts ticks of 10 ms.
pub(crate) fn cpu(pid: u32) -> Result<Duration> {
    let mut clock = 0;
    // SAFETY: `clock` is valid for writing across the call.
    let error = unsafe { libc::clock_getcpuclockid(pid as libc::pid_t, &raw mut clock) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error)).context("a process has no CPU clock");
    }
    read(clock)
}

/// CPU time of the calling thread since it started.
pub(crate) fn cpu_of_thread() -> Duration {
    read(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or_default()
}

fn read(clock: libc::clockid_t) -> Result<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writing across the call.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error()).context("a CPU clock cannot be read");
    }
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// How often threads of `pid` gave up the CPU to wait: each wait that blocks counts once.
pub(crate) fn waits(pid: u32) -> Result<u64> {
    let mut sum = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = std::fs::read_to_string(thread?.path().join("status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        sum += line.context("a thread without its switches")?.trim().parse::<u64>()?;
    }
    Ok(sum)
}

/// CPU time of the threads of `pid`, by their names.
pub(crate) fn threads(pid: u32) -> Result<BTreeMap<String, Duration>> {
    let mut threads: BTreeMap<_, Duration> = BTreeMap::new();
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let thread = thread?.path();
        let name = std::fs::read_to_string(thread.join("comm"))?.trim().to_string();
        let schedstat = std::fs::read_to_string(thread.join("schedstat"))?;
        let ns = schedstat.split_whitespace().next().context("an empty schedstat")?;
        *threads.entry(name).or_default() += Duration::from_nanos(ns.parse()?);
    }
    Ok(threads)
}

/// The first child of `pid`.
pub(crate) fn child(pid: u32) -> Result<u32> {
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let children = std::fs::read_to_string(thread?.path().join("children"))?;
        if let Some(child) = children.split_whitespace().next() {
            return Ok(child.parse()?);
        }
    }
    anyhow::bail!("process {pid} has no child")
}
