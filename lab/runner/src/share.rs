//! A share of a core, by a control group that this process joins. Versions 1 and 2. Takes root.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Usual: with a long period a small share is served in long gaps.
pub const PERIOD: Duration = Duration::from_millis(20);

/// From now on this process and all its threads have `share` cores, served in each `period`. `lab` and `name` name the
/// group; it stays when the process has gone, and is used again.
///
/// # Errors
/// What the kernel says.
pub fn hold(lab: &str, name: &str, share: f64, period: Duration) -> io::Result<()> {
    let (root, lab) = (Path::new("/sys/fs/cgroup"), format!("equipoise-{lab}"));
    let period_us = period.as_micros() as u64;
    // The kernel accepts 1 ms or more.
    let quota_us = ((share * period_us as f64) as u64).max(1000);
    let controllers = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    let folder = if controllers.split_whitespace().any(|one| one == "cpu") {
        fs::write(root.join("cgroup.subtree_control"), "+cpu")?;
        let all = make(&root.join(&lab))?;
        fs::write(all.join("cgroup.subtree_control"), "+cpu")?;
        let folder = make(&all.join(name))?;
        fs::write(folder.join("cpu.max"), format!("{quota_us} {period_us}"))?;
        folder
    } else {
        let all = make(&root.join("cpu").join(&lab))?;
        let folder = make(&all.join(name))?;
        fs::write(folder.join("cpu.cfs_period_us"), period_us.to_string())?;
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
