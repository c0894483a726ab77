//! Kernel memory of maps.

use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd};

use anyhow::{Context, Result};

/// Bytes of a map, elements allocated ahead included, as the kernel accounts for it (`memlock` of
/// its fdinfo).
pub(crate) fn map_bytes(map: BorrowedFd<'_>) -> Result<u64> {
    let path = format!("/proc/self/fdinfo/{}", map.as_raw_fd());
    let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("memlock:"));
    line.and_then(|value| value.trim().parse().ok()).context("no memlock in a map's fdinfo")
}

/// Bytes that all of the kernel's virtually contiguous and per-CPU allocations take: of maps, and
/// of little else.
pub(crate) fn allocated_bytes() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo").context("reading /proc/meminfo")?;
    let field = |name: &str| -> Result<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|value| value.trim().trim_end_matches(" kB").parse::<u64>().ok());
        Ok(kib.with_context(|| format!("no {name} in /proc/meminfo"))? << 10)
    };
    Ok(field("VmallocUsed:")? + field("Percpu:")?)
}
