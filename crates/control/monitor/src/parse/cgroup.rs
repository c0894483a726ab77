//! Control groups, version 1 and 2.
//!
//! # Source
//! Linux, Documentation/admin-guide/cgroup-v1/ and cgroup-v2.rst; cgroups(7).

use std::path::{Path, PathBuf};

/// Version of a controller's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// A hierarchy per controller.
    V1,
    /// One hierarchy for all controllers.
    V2,
}

/// Location of a controller's files for a process: the folder of its group, and the topmost visible
/// folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Version of the files.
    pub version: Version,
    /// Mount point of the hierarchy.
    pub mount: PathBuf,
    /// The process's group, at or below `mount`.
    pub group: PathBuf,
}

impl Place {
    /// Returns the folders of the group and of all groups above it, up to the mount. The limits of
    /// all of them apply.
    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        self.group.ancestors().take_while(|folder| folder.starts_with(&self.mount))
    }
}

/// Finds `controller` (`cpu`, `cpuacct`, `memory`) for a process from its `/proc/PID/cgroup` and
/// `/proc/PID/mountinfo`. A machine may have both versions; a controller in version 1 is not in
/// version 2.
///
/// In a container, the group's path may be that of the host, which is not mounted here. In that
/// case the mount is the container's own group.
pub fn place(controller: &str, cgroup: &str, mountinfo: &str) -> Option<Place> {
    let lines = || {
        cgroup.lines().filter_map(|line| {
            let (_, rest) = line.split_once(':')?;
            rest.split_once(':')
        })
    };
    let v1 = lines().find(|(names, _)| names.split(',').any(|name| name == controller));
    let v2 = || lines().find(|(names, _)| names.is_empty());
    let on_v1 = v1.and_then(|(_, path)| {
        let mounted = |kind: &str, options: &str| {
            kind == "cgroup" && options.split(',').any(|option| option == controller)
        };
        locate(Version::V1, path, mountinfo, mounted)
    });
    on_v1.or_else(|| locate(Version::V2, v2()?.1, mountinfo, |kind, _| kind == "cgroup2"))
}

fn locate(
    version: Version,
    path: &str,
    mountinfo: &str,
    wanted: impl Fn(&str, &str) -> bool,
) -> Option<Place> {
    mountinfo.lines().find_map(|line| {
        // ID PARENT MAJ:MIN ROOT MOUNT OPTIONS [OPTIONAL...] - TYPE SOURCE SUPER-OPTIONS
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let (kind, _, options) = (after.next()?, after.next()?, after.next()?);
        if !wanted(kind, options) {
            return None;
        }
        let mut before = before.split(' ').skip(3);
        let (root, mount) = (before.next()?, unescape(before.next()?));
        let below = Path::new(path).strip_prefix(root).unwrap_or(Path::new(""));
        let is_outside = below.components().any(|part| part == std::path::Component::ParentDir);
        let mount = PathBuf::from(mount);
        let group = if is_outside { mount.clone() } else { mount.join(below) };
        Some(Place { version, mount, group })
    })
}

/// mountinfo encodes space, tab, newline and backslash as three octal digits.
fn unescape(text: &str) -> String {
    let pairs = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    pairs.iter().fold(text.to_string(), |text, (from, to)| text.replace(from, to))
}

/// Parses `cpu.max`: the quota in CPUs. `None`: no quota, or not readable.
pub fn cpu_max(text: &str) -> Option<f64> {
    let mut words = text.split_ascii_whitespace();
    let quota: f64 = words.next()?.parse::<u64>().ok()? as f64;
    // A writer may omit the period; the kernel always shows it.
    let period_us = words.next().map_or(Some(100_000), |word| word.parse::<u64>().ok())?;
    (period_us > 0).then(|| quota / period_us as f64)
}

/// Parses `cpu.cfs_quota_us` and `cpu.cfs_period_us` of version 1: the quota in CPUs. -1 is no
/// quota.
pub fn cfs_quota(quota_us: &str, period_us: &str) -> Option<f64> {
    let quota_us = u64::try_from(quota_us.trim().parse::<i64>().ok()?).ok()?;
    let period_us = period_us.trim().parse::<u64>().ok().filter(|period| *period > 0)?;
    Some(quota_us as f64 / period_us as f64)
}

/// Parses `cpu.stat`: CPU time that the group has used, microseconds.
pub fn usage_us(cpu_stat: &str) -> Option<u64> {
    field(cpu_stat, "usage_usec")
}

/// Parses `cpuacct.usage`, which is in nanoseconds. Returns microseconds.
pub fn cpuacct_usage_us(text: &str) -> Option<u64> {
    text.trim().parse::<u64>().ok().map(|ns| ns / 1000)
}

/// Parses `memory.max` or `memory.limit_in_bytes`. No limit is `max`, or in version 1 a number near
/// 2^63.
pub fn memory_limit_bytes(text: &str) -> Option<u64> {
    let limit = text.trim().parse::<u64>().ok()?;
    (limit < 1 << 60).then_some(limit)
}

/// Parses `memory.stat`: bytes of inactive file pages, which the kernel can drop at once. In
/// version 1 the `total_` fields include the groups below.
pub fn droppable_bytes(memory_stat: &str) -> u64 {
    let total = field(memory_stat, "total_inactive_file");
    total.or_else(|| field(memory_stat, "inactive_file")).unwrap_or(0)
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID_CGROUP: &str = include_str!("../../fixtures/cgroup-hybrid");
    const HYBRID_MOUNTS: &str = include_str!("../../fixtures/mountinfo-hybrid");

    fn of(controller: &str, cgroup: &str, mounts: &str) -> Option<(Version, String, String)> {
        place(controller, cgroup, mounts).map(|place| {
            let text = |path: &Path| path.to_str().unwrap().to_string();
            (place.version, text(&place.mount), text(&place.group))
        })
    }

    #[test]
    fn a_machine_with_both_versions_has_its_controllers_in_the_first() {
        let memory = of("memory", HYBRID_CGROUP, HYBRID_MOUNTS).unwrap();
        let mount = "/sys/fs/cgroup/memory".to_string();
        assert_eq!(memory, (Version::V1, mount.clone(), mount + "/machine.slice/26c3b946"));
        let place = place("cpu", HYBRID_CGROUP, HYBRID_MOUNTS).unwrap();
        assert_eq!((place.version, place.folders().count()), (Version::V1, 1));
    }

    #[test]
    fn containers_see_their_group_where_it_is_mounted() {
        let v2 = "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let docker =
            "29 23 0:26 /docker/ab /sys/fs/cgroup/memory ro master:1 - cgroup cgroup rw,memory\n";
        let deep = "/sys/fs/cgroup/system.slice/eq.service";
        for (cgroup, mounts, version, group) in [
            ("0::/system.slice/eq.service\n", v2, Version::V2, deep),
            ("0::/\n", v2, Version::V2, "/sys/fs/cgroup/"),
            // A cgroup namespace that does not contain our group.
            ("0::/../other\n", v2, Version::V2, "/sys/fs/cgroup"),
            // Without a cgroup namespace the path is that of the host, and its prefix is mounted.
            ("4:memory:/docker/ab\n", docker, Version::V1, "/sys/fs/cgroup/memory/"),
            ("4:memory:/docker/ab/x\n", docker, Version::V1, "/sys/fs/cgroup/memory/x"),
            ("4:memory:/elsewhere\n", docker, Version::V1, "/sys/fs/cgroup/memory/"),
        ] {
            let found = of("memory", cgroup, mounts).unwrap();
            let trimmed = |text: &str| text.trim_end_matches('/').to_string();
            assert_eq!((found.0, trimmed(&found.2)), (version, trimmed(group)), "{cgroup}");
        }
    }

    #[test]
    fn a_machine_without_cgroups_has_no_place() {
        assert_eq!(of("cpu", "", ""), None);
        assert_eq!(of("cpu", "0::/x\n", "22 1 8:1 / / rw - ext4 /dev/sda rw\n"), None);
        assert_eq!(of("cpu", "garbage\n:::\n", "garbage - \n"), None);
    }

    #[test]
    fn a_mount_may_have_a_space_in_its_name() {
        let mounts = r"29 23 0:26 / /my\040groups rw - cgroup2 none rw";
        assert_eq!(of("cpu", "0::/a", mounts).unwrap().2, "/my groups/a");
    }

    #[test]
    fn limits_are_read_by_this_table() {
        for (text, processors) in [
            ("max 100000\n", None),
            ("150000 100000\n", Some(1.5)),
            ("50000\n", Some(0.5)),
            ("1000 0\n", None),
            ("", None),
            ("x y", None),
        ] {
            assert_eq!(cpu_max(text), processors, "{text:?}");
        }
        for (quota, period, processors) in [
            ("-1\n", "100000\n", None),
            ("25000\n", "100000\n", Some(0.25)),
            ("25000\n", "0\n", None),
            ("", "", None),
        ] {
            assert_eq!(cfs_quota(quota, period), processors, "{quota:?} {period:?}");
        }
        for (text, bytes) in [
            ("max\n", None),
            ("1073741824\n", Some(1 << 30)),
            ("9223372036854771712\n", None),
            ("0\n", Some(0)),
            ("", None),
        ] {
            assert_eq!(memory_limit_bytes(text), bytes, "{text:?}");
        }
    }

    #[test]
    fn usage_is_read_in_both_versions() {
        assert_eq!(usage_us("usage_usec 123\nuser_usec 100\n"), Some(123));
        assert_eq!(usage_us("nr_periods 0\n"), None);
        assert_eq!(cpuacct_usage_us("5000123\n"), Some(5000));
        assert_eq!(droppable_bytes("inactive_file 7\ntotal_inactive_file 9\n"), 9);
        assert_eq!(droppable_bytes("anon 1\ninactive_file 7\n"), 7);
        assert_eq!(droppable_bytes(""), 0);
    }
}
