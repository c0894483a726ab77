//! Limits the CPU time of processes, with control groups of version 1 or 2.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// A control group with a CPU quota. Dropping it removes the group, after its processes have ended.
#[derive(Debug)]
pub struct CpuGroup {
    /// Folders of the group. Version 1 may have CPU accounting in a separate hierarchy.
    folders: Vec<PathBuf>,
}

/// Period of the quota, microseconds.
const PERIOD_US: f64 = 1e5;

impl CpuGroup {
    /// Creates a group with a unique `name` and a quota of `cores` CPUs.
    ///
    /// # Errors
    /// No `cpu` controller is mounted with write access.
    pub fn create(name: &str, cores: f64) -> io::Result<CpuGroup> {
        let (quota, period) = (format!("{:.0}", cores * PERIOD_US), format!("{PERIOD_US:.0}"));
        let root = Path::new("/sys/fs/cgroup");
        let (mounts, limits) = if root.join("cpu/cpu.cfs_quota_us").exists()
            || root.join("cpu/cpu.shares").exists()
        {
            let limits = vec![("cpu.cfs_period_us", period), ("cpu.cfs_quota_us", quota)];
            (vec![root.join("cpu"), root.join("cpuacct")], limits)
        } else if fs::read_to_string(root.join("cgroup.subtree_control"))
            .is_ok_and(|list| list.split_whitespace().any(|word| word == "cpu"))
        {
            (vec![root.to_path_buf()], vec![("cpu.max", format!("{quota} {period}"))])
        } else {
            let what = "no control groups with a `cpu` controller are mounted at /sys/fs/cgroup";
            return Err(io::Error::other(what));
        };
        let mut group = CpuGroup { folders: Vec::new() };
        for mount in mounts.iter().filter(|mount| mount.exists()) {
            let folder = mount.join(name);
            match fs::create_dir(&folder) {
                Ok(()) => group.folders.push(folder),
                // Both names refer to one hierarchy, so the folder exists already.
                Err(error)
                    if error.kind() == io::ErrorKind::AlreadyExists
                        && !group.folders.is_empty() => {}
                Err(error) => {
                    let what =
                        format!("cannot make the control group {}: {error}", folder.display());
                    return Err(io::Error::new(error.kind(), what));
                }
            }
        }
        for (file, text) in limits {
            let file = group.folders[0].join(file);
            fs::write(&file, text).map_err(|error| {
                io::Error::new(error.kind(), format!("cannot write {}: {error}", file.display()))
            })?;
        }
        Ok(group)
    }

    /// Returns the CPU time that processes of the group have used.
    ///
    /// # Errors
    /// The kernel has no CPU accounting for the group.
    pub fn used(&self) -> io::Result<Duration> {
        for folder in &self.folders {
            if let Ok(text) = fs::read_to_string(folder.join("cpuacct.usage")) {
                let nanoseconds = text.trim().parse().map_err(io::Error::other)?;
                return Ok(Duration::from_nanos(nanoseconds));
            }
            if let Ok(text) = fs::read_to_string(folder.join("cpu.stat"))
                && let Some(usage) = text.lines().find_map(|line| line.strip_prefix("usage_usec "))
            {
                return Ok(Duration::from_micros(usage.trim().parse().map_err(io::Error::other)?));
            }
        }
        Err(io::Error::new(io::ErrorKind::NotFound, "no account of processor time"))
    }

    /// Returns arguments of `sh` that move the shell into the group and then execute `program`.
    pub fn enter_and_become(&self, program: &str, arguments: &[&str]) -> Vec<String> {
        let enter = |folder: &PathBuf| format!("echo $$ > '{}/cgroup.procs' && ", folder.display());
        let script = self.folders.iter().map(enter).collect::<String>() + "exec \"$@\"";
        let words = ["-c", &script, "sh", program].into_iter().chain(arguments.iter().copied());
        words.map(str::to_owned).collect()
    }
}

impl Drop for CpuGroup {
    fn drop(&mut self) {
        // Killed processes may take a moment to leave the group.
        for folder in &self.folders {
            for _ in 0..50 {
                match fs::remove_dir(folder) {
                    Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                        thread::sleep(Duration::from_millis(20));
                    }
                    _ => break,
                }
            }
        }
    }
}
