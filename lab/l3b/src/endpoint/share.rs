//! A share of a core, by a control group that this process joins. Versions 1 and 2.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A short period: with a long one a small share is served in long gaps.
const PERIOD_US: u64 = 20_000;

/// From now on this process and all its threads have `share` cores.
pub(crate) fn hold(name: &str, share: f64) -> io::Result<()> {
    let root = Path::new("/sys/fs/cgroup");
    // The kernel accepts 1 ms or more.
    let quota_us = ((share * PERIOD_US as f64) as u64).max(1000);
    let controllers = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    let folder = if controllers.split_whitespace().any(|one| one == "cpu") {
        fs::write(root.join("cgroup.subtree_control"), "+cpu")?;
        make(&root.join("equipoise-l3b"))?;
        fs::write(root.join("equipoise-l3b/cgroup.subtree_control"), "+cpu")?;
        let folder = make(&root.join("equipoise-l3b").join(name))?;
        fs::write(folder.join("cpu.max"), format!("{quota_us} {PERIOD_US}"))?;
        folder
    } else {
        make(&root.join("cpu/equipoise-l3b"))?;
        let folder = make(&root.join("cpu/equipoise-l3b").join(name))?;
        fs::write(folder.join("cpu.cfs_period_us"), PERIOD_US.to_string())?;
        fs::write(folder.join("cpu.cfs_quota_us"), quota_us.to_string())?;
        folder
    };
    fs::write(folder.join("cgroup.procs"), "0")
}

fn make(folder: &Path) -> io::Result<PathBuf> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(folder.to_path_buf()),
    }
}
