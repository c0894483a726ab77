//! A share of the processors for some processes, by control groups of version 1 or 2.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};

/// A control group with a quota. Dropped, it is gone once its processes are.
#[derive(Debug)]
pub(crate) struct CpuGroup(PathBuf);

/// Where the `cpu` controller is mounted, and the file and text that set a quota of so many microseconds in 100 ms.
type Mount = (&'static str, fn(u64) -> Vec<(&'static str, String)>);

const MOUNTS: [Mount; 3] = [
    ("/sys/fs/cgroup", |us| vec![("cpu.max", format!("{us} 100000"))]),
    ("/sys/fs/cgroup/cpu", version_1),
    ("/sys/fs/cgroup/cpu,cpuacct", version_1),
];

fn version_1(us: u64) -> Vec<(&'static str, String)> {
    vec![("cpu.cfs_period_us", "100000".into()), ("cpu.cfs_quota_us", us.to_string())]
}

impl CpuGroup {
    /// `cores`: the quota.
    ///
    /// # Errors
    /// No `cpu` controller is mounted where this user may make groups.
    pub(crate) fn create(name: &str, cores: f64) -> anyhow::Result<CpuGroup> {
        let us = (cores * 1e5) as u64;
        for (mount, files) in MOUNTS {
            let has_processors = match mount {
                "/sys/fs/cgroup" => fs::read_to_string("/sys/fs/cgroup/cgroup.subtree_control")
                    .is_ok_and(|list| list.split_whitespace().any(|word| word == "cpu")),
                version_1 => Path::new(version_1).join("cpu.cfs_quota_us").exists(),
            };
            if has_processors {
                let group = CpuGroup(Path::new(mount).join(name));
                let set_up = || -> io::Result<()> {
                    fs::create_dir(&group.0)?;
                    files(us)
                        .iter()
                        .try_for_each(|(file, text)| fs::write(group.0.join(file), text))
                };
                return set_up()
                    .with_context(|| format!("cannot make the control group {}", group.0.display()))
                    .map(|()| group);
            }
        }
        bail!("no control groups with a `cpu` controller are mounted at /sys/fs/cgroup")
    }

    /// The shell words that move a process in before it becomes what it is to be.
    pub(crate) fn enter_and_become(&self, program: &str, arguments: &[&str]) -> Vec<String> {
        let script = "echo $$ > \"$0\" && exec \"$@\"";
        let file = self.0.join("cgroup.procs").display().to_string();
        let words = ["-c", script, &file, program].into_iter().chain(arguments.iter().copied());
        words.map(str::to_owned).collect()
    }
}

impl Drop for CpuGroup {
    fn drop(&mut self) {
        // What was killed a moment ago may still be there.
        for _ in 0..50 {
            match fs::remove_dir(&self.0) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    thread::sleep(Duration::from_millis(20));
                }
                _ => return,
            }
        }
    }
}
