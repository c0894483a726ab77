//! A share of a core and of memory, by control groups. Versions 1 and 2. Takes root.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Usual: with a long period a small share is served in long gaps.
pub const PERIOD: Duration = Duration::from_millis(20);

const ROOT: &str = "/sys/fs/cgroup";

/// From now on this process and all its threads have `share` cores, served in each `period`. `lab`
/// and `name` name the group; it stays when the process has gone, and is used again.
///
/// # Errors
/// The kernel's.
pub fn hold(lab: &str, name: &str, share: f64, period: Duration) -> io::Result<()> {
    change(lab, name, share, period)?;
    fs::write(group("cpu", lab, name)?.join("cgroup.procs"), "0")
}

/// Changes the share of a group's processes while they run.
///
/// # Errors
/// The kernel's.
pub fn change(lab: &str, name: &str, share: f64, period: Duration) -> io::Result<()> {
    let folder = group("cpu", lab, name)?;
    let period_us = period.as_micros() as u64;
    // The kernel accepts 1 ms or more.
    let quota_us = ((share * period_us as f64) as u64).max(1000);
    if is_v2("cpu") {
        fs::write(folder.join("cpu.max"), format!("{quota_us} {period_us}"))
    } else {
        fs::write(folder.join("cpu.cfs_period_us"), period_us.to_string())?;
        fs::write(folder.join("cpu.cfs_quota_us"), quota_us.to_string())
    }
}

/// Serves the groups of this lab before programs that belong to no group: on a busy machine their
/// shares would otherwise be smaller than what they are held to.
///
/// # Errors
/// The kernel's.
pub fn prefer(lab: &str) -> io::Result<()> {
    let all = parent("cpu", lab)?;
    // The largest that each version accepts.
    match is_v2("cpu") {
        true => fs::write(all.join("cpu.weight"), "10000"),
        false => fs::write(all.join("cpu.shares"), "262144"),
    }
}

/// From now on this process has at most `bytes` of memory, its pages of files and the kernel's for
/// it included.
///
/// # Errors
/// The kernel's.
pub fn limit_memory(lab: &str, name: &str, bytes: u64) -> io::Result<()> {
    let folder = group("memory", lab, name)?;
    let file = if is_v2("memory") { "memory.max" } else { "memory.limit_in_bytes" };
    fs::write(folder.join(file), bytes.to_string())?;
    fs::write(folder.join("cgroup.procs"), "0")
}

/// Removes the groups of a lab that have no process.
pub fn remove(lab: &str) {
    for root in [ROOT.to_string(), format!("{ROOT}/cpu"), format!("{ROOT}/memory")] {
        let all = Path::new(&root).join(format!("equipoise-{lab}"));
        let Ok(entries) = fs::read_dir(&all) else { continue };
        // Those of another run are busy, and stay.
        for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
            let _ = fs::remove_dir(entry.path());
        }
        let _ = fs::remove_dir(all);
    }
}

/// Version 2 has the controller.
fn is_v2(controller: &str) -> bool {
    let controllers =
        fs::read_to_string(Path::new(ROOT).join("cgroup.controllers")).unwrap_or_default();
    controllers.split_whitespace().any(|one| one == controller)
}

/// The group of all groups of a lab.
fn parent(controller: &str, lab: &str) -> io::Result<PathBuf> {
    let (root, lab) = (Path::new(ROOT), format!("equipoise-{lab}"));
    if !is_v2(controller) {
        return make(&root.join(controller).join(lab));
    }
    fs::write(root.join("cgroup.subtree_control"), format!("+{controller}"))?;
    make(&root.join(lab))
}

fn group(controller: &str, lab: &str, name: &str) -> io::Result<PathBuf> {
    let all = parent(controller, lab)?;
    if is_v2(controller) {
        fs::write(all.join("cgroup.subtree_control"), format!("+{controller}"))?;
    }
    make(&all.join(name))
}

fn make(folder: &Path) -> io::Result<PathBuf> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(folder.to_path_buf()),
    }
}
