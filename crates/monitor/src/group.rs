use std::path::Path;

use crate::meter::GroupReading;
use crate::parse::cgroup::{
    Place, Version, cfs_quota, cpu_max, cpuacct_usage_us, droppable_bytes, memory_limit_bytes,
    place, usage_us,
};
use crate::source::Source;

/// The files of a control group, and of those above it: every limit on the way up holds.
#[derive(Debug, Default)]
pub(crate) struct Group {
    cpu: Vec<CpuFolder>,
    memory: Vec<MemoryFolder>,
}

#[derive(Debug)]
struct CpuFolder {
    version: Version,
    limit: Source,
    /// Version 1 has the period apart.
    period: Option<Source>,
    used: Source,
}

#[derive(Debug)]
struct MemoryFolder {
    limit: Source,
    used: Source,
    stat: Source,
}

impl Group {
    /// The group of the process whose `/proc` folder this is, such as `/proc/self`.
    pub(crate) fn of(process: &Path) -> Group {
        let text = |name: &str| std::fs::read_to_string(process.join(name)).unwrap_or_default();
        let (cgroup, mountinfo) = (text("cgroup"), text("mountinfo"));
        let of = |controller: &str| place(controller, &cgroup, &mountinfo);
        let cpu = of("cpu").map_or_else(Vec::new, |cpu| cpu_folders(&cpu, of("cpuacct").as_ref()));
        let memory = of("memory").map_or_else(Vec::new, |memory| memory_folders(&memory));
        Group { cpu, memory }
    }

    /// Of limits, the one nearest to its end; a tighter one may be less used than a wider one above it. For
    /// processors the tightest is taken, as their use is only known from one reading to the next.
    pub(crate) fn read(&mut self, buffer: &mut Vec<u8>) -> GroupReading {
        let mut reading = GroupReading::default();
        let mut tightest = None;
        for (index, folder) in self.cpu.iter_mut().enumerate() {
            let quota = folder.quota_processors(buffer);
            if quota.is_some_and(|q| reading.cpu_quota_processors.is_none_or(|least| q < least)) {
                reading.cpu_quota_processors = quota;
                tightest = Some(index);
            }
        }
        if let Some(folder) = self.cpu.get_mut(tightest.unwrap_or(0)) {
            reading.cpu_used_us = folder.used_us(buffer);
        }
        for folder in &mut self.memory {
            let used = folder.used_percent(buffer);
            if used > reading.memory_used_percent {
                reading.memory_used_percent = used;
            }
        }
        reading
    }
}

fn cpu_folders(cpu: &Place, accounting: Option<&Place>) -> Vec<CpuFolder> {
    let folder = |folder: &Path| match cpu.version {
        Version::V2 => CpuFolder {
            version: cpu.version,
            limit: Source::new(folder.join("cpu.max")),
            period: None,
            used: Source::new(folder.join("cpu.stat")),
        },
        Version::V1 => {
            // Often one hierarchy, but not always; the same path is meant in both.
            let below = folder.strip_prefix(&cpu.mount).unwrap_or(Path::new(""));
            let used = accounting.map_or_else(|| folder.to_path_buf(), |a| a.mount.join(below));
            CpuFolder {
                version: cpu.version,
                limit: Source::new(folder.join("cpu.cfs_quota_us")),
                period: Some(Source::new(folder.join("cpu.cfs_period_us"))),
                used: Source::new(used.join("cpuacct.usage")),
            }
        }
    };
    let folders = cpu.folders().map(folder);
    // The root has no limit, and version 2's no such file.
    folders.filter(|folder| folder.limit.is_there() && folder.used.is_there()).collect()
}

fn memory_folders(memory: &Place) -> Vec<MemoryFolder> {
    let (limit, used) = match memory.version {
        Version::V1 => ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        Version::V2 => ("memory.max", "memory.current"),
    };
    let folder = |folder: &Path| MemoryFolder {
        limit: Source::new(folder.join(limit)),
        used: Source::new(folder.join(used)),
        stat: Source::new(folder.join("memory.stat")),
    };
    memory.folders().map(folder).filter(|folder| folder.limit.is_there()).collect()
}

impl CpuFolder {
    fn quota_processors(&mut self, buffer: &mut Vec<u8>) -> Option<f64> {
        let limit = self.limit.read(buffer)?;
        match &mut self.period {
            None => cpu_max(limit),
            Some(period) => {
                // Both texts are a number: the first is short enough to keep.
                let quota = limit.trim().to_string();
                cfs_quota(&quota, period.read(buffer)?)
            }
        }
    }

    fn used_us(&mut self, buffer: &mut Vec<u8>) -> Option<u64> {
        let text = self.used.read(buffer)?;
        match self.version {
            Version::V1 => cpuacct_usage_us(text),
            Version::V2 => usage_us(text),
        }
    }
}

impl MemoryFolder {
    /// As a limit is what cannot be dropped, inactive files do not count, as for the machine.
    fn used_percent(&mut self, buffer: &mut Vec<u8>) -> Option<f64> {
        let limit = memory_limit_bytes(self.limit.read(buffer)?).filter(|limit| *limit > 0)?;
        let used: u64 = self.used.read(buffer)?.trim().parse().ok()?;
        let droppable = self.stat.read(buffer).map_or(0, droppable_bytes);
        Some(used.saturating_sub(droppable) as f64 / limit as f64 * 100.0)
    }
}
