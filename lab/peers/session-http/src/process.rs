//! The kernel's figures of a process: its children, CPU time and memory.

use std::fs;
use std::ops::Sub;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::sys;

/// `root` and its descendants. One scan of /proc: for processes that have finished starting.
pub(crate) fn family(root: u32) -> Result<Vec<u32>> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process may end between the listing and here.
        if let Ok(fields) = stat_fields(pid)
            && let Some(parent) = fields.get(1).and_then(|field| field.parse::<u32>().ok())
        {
            parents.push((pid, parent));
        }
    }
    let mut family = vec![root];
    let mut next = 0;
    while let Some(&parent) = family.get(next) {
        family.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    Ok(family)
}

/// CPU time of a few processes together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CpuTime {
    /// User and system, by the scheduler's clock.
    total: Duration,
    user_ticks: u64,
    system_ticks: u64,
}

impl CpuTime {
    pub(crate) fn of(pids: &[u32]) -> Result<CpuTime> {
        let mut sum = CpuTime::default();
        for &pid in pids {
            let fields = stat_fields(pid)?;
            let ticks = |index: usize| -> Result<u64> {
                let field = fields.get(index).with_context(|| format!("short /proc/{pid}/stat"))?;
                Ok(field.parse()?)
            };
            sum.user_ticks += ticks(11)?;
            sum.system_ticks += ticks(12)?;
            sum.total += sys::process_cpu_time(pid)
                .with_context(|| format!("reading the CPU clock of process {pid}"))?;
        }
        Ok(sum)
    }

    pub(crate) fn total_us(&self) -> f64 {
        self.total.as_secs_f64() * 1e6
    }

    /// The scheduler's clock does not tell user from system time: the ticks give the proportion.
    pub(crate) fn user_us(&self) -> f64 {
        let ticks = self.user_ticks + self.system_ticks;
        if ticks == 0 { 0.0 } else { self.total_us() * self.user_ticks as f64 / ticks as f64 }
    }

    pub(crate) fn system_us(&self) -> f64 {
        self.total_us() - self.user_us()
    }
}

impl Sub for CpuTime {
    type Output = CpuTime;

    fn sub(self, earlier: CpuTime) -> CpuTime {
        CpuTime {
            total: self.total.saturating_sub(earlier.total),
            user_ticks: self.user_ticks.saturating_sub(earlier.user_ticks),
            system_ticks: self.system_ticks.saturating_sub(earlier.system_ticks),
        }
    }
}

/// Memory of a few processes together, bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    /// Resident, shared pages of libraries counted in each process.
    pub(crate) resident: u64,
    /// Resident pages that no other process has.
    pub(crate) private: u64,
}

impl Memory {
    pub(crate) fn of(pids: &[u32]) -> Result<Memory> {
        let mut sum = Memory::default();
        for &pid in pids {
            let path = format!("/proc/{pid}/smaps_rollup");
            let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
            for line in text.lines() {
                let mut words = line.split_whitespace();
                let (Some(name), Some(size)) = (words.next(), words.next()) else { continue };
                let bytes = size.parse::<u64>().unwrap_or(0) * 1024;
                match name {
                    "Rss:" => sum.resident += bytes,
                    "Private_Clean:" | "Private_Dirty:" => sum.private += bytes,
                    _ => {}
                }
            }
        }
        Ok(sum)
    }
}

/// `/proc/PID/stat` from the third field (the state) on: the second, the name, may contain blanks.
fn stat_fields(pid: u32) -> Result<Vec<String>> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let after_name = text.rsplit_once(')').with_context(|| format!("no name in {path}"))?.1;
    Ok(after_name.split_whitespace().map(str::to_owned).collect())
}
