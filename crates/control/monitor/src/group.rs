use std::path::Path;

use crate::meter::GroupReading;
use crate::parse::cgroup::{
    Place, Version, cfs_quota, cpu_max, cpuacct_usage_us, droppable_bytes, memory_limit_bytes,
    place, usage_us,
};
use crate::source::Source;

/// The files of a control group and of all groups above it: the limits of all of them apply.
#[derive(Debug, Default)]
pub(crate) struct Group {
    cpu: Vec<CpuFolder>,
    memory: Vec<MemoryFolder>,
}

#[derive(Debug)]
struct CpuFolder {
    version: Version,
    limit: Source,
    /// Only version 1 has the period in a separate file.
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
    /// Finds the group of the process with this `/proc` folder, such as `/proc/self`.
    pub(crate) fn of(process: &Path) -> Group {
        let text = |name: &str| std::fs::read_to_string(process.join(name)).unwrap_or_default();
        let (cgroup, mountinfo) = (text("cgroup"), text("mountinfo"));
        let of = |controller: &str| place(controller, &cgroup, &mountinfo);
        let cpu = of("cpu").map_or_else(Vec::new, |cpu| cpu_folders(&cpu, of("cpuacct").as_ref()));
        let memory = of("memory").map_or_else(Vec::new, |memory| memory_folders(&memory));
        Group { cpu, memory }
    }

    /// Reads the smallest limit of memory.
    pub(crate) fn memory_limit(&mut self, buffer: &mut Vec<u8>) -> Option<u64> {
        let limits = self.memory.iter_mut().filter_map(|folder| folder.limit(buffer));
        limits.min()
    }

    /// Reads all limits. Of memory limits, reports the one with the highest usage: a tight limit
    /// may be less used than a wide one above it. Of CPU quotas, reports the smallest, because its
    /// usage is only known from one reading to the next.
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
            // The hierarchies of `cpu` and `cpuacct` are often the same, but not always. The path
            // below the mount is the same in both.
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
    // The root group has no limit, and in version 2 no such file.
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
                // Both texts are a number, and they share one buffer. Copies the first.
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
    fn limit(&mut self, buffer: &mut Vec<u8>) -> Option<u64> {
        memory_limit_bytes(self.limit.read(buffer)?).filter(|limit| *limit > 0)
    }

    /// Inactive files do not count as used memory, because the kernel can drop them, as for the
    /// machine.
    fn used_percent(&mut self, buffer: &mut Vec<u8>) -> Option<f64> {
        let limit = self.limit(buffer)?;
        let used: u64 = self.used.read(buffer)?.trim().parse().ok()?;
        let droppable = self.stat.read(buffer).map_or(0, droppable_bytes);
        Some(used.saturating_sub(droppable) as f64 / limit as f64 * 100.0)
    }
}
