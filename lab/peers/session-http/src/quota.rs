//! A bound of a process's CPU time: a control group (version 1) of its own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};

const ROOT: &str = "/sys/fs/cgroup/cpu";
const PERIOD_US: u64 = 10_000;

/// A control group, removed when dropped: its processes must have ended.
pub(crate) struct Quota {
    folder: PathBuf,
}

impl Quota {
    /// Processes of the group get `share` of a CPU together.
    pub(crate) fn create(share: f64) -> Result<Quota> {
        let folder = Path::new(ROOT).join(format!("equipoise-bench-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("creating {}", folder.display()))?;
        let quota = Quota { folder };
        quota.set("cpu.cfs_period_us", PERIOD_US)?;
        quota.set("cpu.cfs_quota_us", (PERIOD_US as f64 * share) as u64)?;
        Ok(quota)
    }

    fn set(&self, name: &str, value: u64) -> Result<()> {
        let file = self.folder.join(name);
        fs::write(&file, value.to_string()).with_context(|| format!("writing {}", file.display()))
    }

    /// A process that writes 0 into it joins the group.
    pub(crate) fn members(&self) -> Result<Arc<File>> {
        let file = self.folder.join("cgroup.procs");
        let members = File::options().write(true).open(&file);
        Ok(Arc::new(members.with_context(|| format!("opening {}", file.display()))?))
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // An empty group that stays harms nothing.
        let _ = fs::remove_dir(&self.folder);
    }
}
