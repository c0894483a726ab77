//! Limits the CPU and memory of processes by control groups, version 1 or 2, so that one pool has
//! backends of several sizes.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::ProcessError;
use crate::options::{OptionRefused, Refuse};

/// Limits of a process of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SizeLimit {
    /// CPU cores, at least 0.01; unlimited if `None`.
    pub cpus: Option<f64>,
    /// Memory in bytes; unlimited if `None`. The kernel kills a process that needs more, and the
    /// driver starts it again.
    pub memory_bytes: Option<u64>,
}

impl SizeLimit {
    pub(super) fn check(&self, size: &str, refuse: &Refuse) -> Result<(), OptionRefused> {
        if let Some(cpus) = self.cpus
            && !(0.01..=4096.0).contains(&cpus)
        {
            let accepted = "cpus of 0.01 to 4096, in cores";
            return Err(refuse.with("limits", format!("{size}: cpus {cpus}"), accepted));
        }
        if let Some(bytes) = self.memory_bytes.filter(|bytes| *bytes < 1 << 20) {
            let accepted = "memory of 1 MiB or more, in bytes";
            return Err(refuse.with("limits", format!("{size}: memory {bytes}"), accepted));
        }
        Ok(())
    }
}

/// Period of the scheduler's bandwidth control. It is short, so that a process with a small share
/// does not pause for long.
const PERIOD_US: u64 = 20_000;
/// The smallest quota that the kernel accepts.
const QUOTA_US_LEAST: u64 = 1_000;

fn quota_us(cpus: f64, period_us: u64) -> u64 {
    (cpus * period_us as f64).round() as u64
}

/// Period and quota for a number of cores. The period is longer if the quota would be too small.
fn bandwidth(cpus: f64) -> (u64, u64) {
    let mut period_us = PERIOD_US;
    while quota_us(cpus, period_us) < QUOTA_US_LEAST {
        period_us *= 2;
    }
    (period_us, quota_us(cpus, period_us))
}

/// The control groups of a pool.
#[derive(Debug)]
pub(super) struct Groups {
    trees: Vec<Tree>,
}

/// One control group hierarchy, with a folder of this pool.
#[derive(Clone, Debug)]
struct Tree {
    version: Version,
    folder: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One(Controller),
    Two,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Controller {
    Cpu,
    Memory,
}

/// The control groups of one process. Dropping it removes them; the process has ended by then.
#[derive(Debug)]
pub(super) struct Group {
    folders: Vec<PathBuf>,
    files: Vec<Arc<File>>,
}

impl Groups {
    /// Creates the pool's folders.
    pub(super) fn open(pool: &str, refuse: &Refuse) -> Result<Groups, OptionRefused> {
        let pid = rustix::process::getpid().as_raw_nonzero();
        let ours = format!("equipoise-{pid}-{pool}");
        let opened = Self::trees(Path::new("/sys/fs/cgroup"), &ours);
        opened.map(|trees| Groups { trees }).map_err(|error| {
            let accepted = format!("no limits here, because control groups cannot be created ({error}); run as root, or remove the limits");
            refuse.with("limits", pool, accepted)
        })
    }

    fn trees(root: &Path, ours: &str) -> io::Result<Vec<Tree>> {
        let unified = root.join("cgroup.controllers");
        if let Ok(controllers) = fs::read_to_string(&unified)
            && ["cpu", "memory"]
                .iter()
                .all(|one| controllers.split_whitespace().any(|it| it == *one))
        {
            // The folder is in the root group, because a group that has processes cannot enable
            // controllers for its children.
            fs::write(root.join("cgroup.subtree_control"), "+cpu +memory")?;
            let folder = root.join(ours);
            make(&folder)?;
            fs::write(folder.join("cgroup.subtree_control"), "+cpu +memory")?;
            return Ok(vec![Tree { version: Version::Two, folder }]);
        }
        let tree = |name: &str, controller| -> io::Result<Tree> {
            let folder = root.join(name).join(ours);
            make(&folder)?;
            Ok(Tree { version: Version::One(controller), folder })
        };
        Ok(vec![tree("cpu", Controller::Cpu)?, tree("memory", Controller::Memory)?])
    }

    /// Creates a control group with a limit.
    pub(super) fn make(&self, name: &str, limit: &SizeLimit) -> Result<Group, ProcessError> {
        let what = || format!("the control group of {name}");
        self.try_make(name, limit).map_err(|source| ProcessError::Prepare { what: what(), source })
    }

    fn try_make(&self, name: &str, limit: &SizeLimit) -> io::Result<Group> {
        let mut group = Group { folders: Vec::new(), files: Vec::new() };
        for tree in &self.trees {
            let folder = tree.folder.join(name);
            make(&folder)?;
            group.folders.push(folder.clone());
            for (file, value) in settings(tree.version, limit) {
                fs::write(folder.join(file), value)?;
            }
            let processes = OpenOptions::new().write(true).open(folder.join("cgroup.procs"))?;
            group.files.push(Arc::new(processes));
        }
        Ok(group)
    }
}

/// The files of a group, each with the text to write.
fn settings(version: Version, limit: &SizeLimit) -> Vec<(&'static str, String)> {
    let mut settings = Vec::new();
    if let Some((period_us, quota_us)) = limit.cpus.map(bandwidth) {
        match version {
            Version::Two => settings.push(("cpu.max", format!("{quota_us} {period_us}"))),
            Version::One(Controller::Cpu) => {
                settings.push(("cpu.cfs_period_us", period_us.to_string()));
                settings.push(("cpu.cfs_quota_us", quota_us.to_string()));
            }
            Version::One(Controller::Memory) => {}
        }
    }
    if let Some(bytes) = limit.memory_bytes {
        match version {
            Version::Two => settings.push(("memory.max", bytes.to_string())),
            Version::One(Controller::Memory) => {
                settings.push(("memory.limit_in_bytes", bytes.to_string()));
            }
            Version::One(Controller::Cpu) => {}
        }
    }
    settings
}

fn make(folder: &Path) -> io::Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

impl Group {
    /// The files to which a process writes its id.
    pub(super) fn files(&self) -> impl Iterator<Item = &File> {
        self.files.iter().map(AsRef::as_ref)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.folders.iter().for_each(|folder| _ = fs::remove_dir(folder));
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        self.trees.iter().for_each(|tree| _ = fs::remove_dir(&tree.folder));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_cpu_shares_get_a_longer_period_with_the_same_ratio() {
        assert_eq!(bandwidth(1.5), (20_000, 30_000));
        assert_eq!(bandwidth(0.1), (20_000, 2_000));
        assert_eq!(bandwidth(0.01), (160_000, 1_600));
    }

    #[test]
    fn both_cgroup_versions_receive_the_same_limits() {
        let limit = SizeLimit { cpus: Some(0.5), memory_bytes: Some(1 << 30) };
        let two = settings(Version::Two, &limit);
        assert_eq!(two, [("cpu.max", "10000 20000".into()), ("memory.max", "1073741824".into())]);
        let cpu = settings(Version::One(Controller::Cpu), &limit);
        assert_eq!(
            cpu,
            [("cpu.cfs_period_us", "20000".into()), ("cpu.cfs_quota_us", "10000".into())]
        );
        let memory = settings(Version::One(Controller::Memory), &limit);
        assert_eq!(memory, [("memory.limit_in_bytes", "1073741824".into())]);
        assert_eq!(settings(Version::Two, &SizeLimit::default()), []);
    }
}
