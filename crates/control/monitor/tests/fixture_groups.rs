//! The monitor with file trees of both cgroup versions, independent of the version on this machine.
//! `real_groups.rs` tests the machine's own.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::path::{Path, PathBuf};
use std::time::Instant;

use equipoise_monitor::{Monitor, MonitorOptions, Utilisation, usable_memory_bytes};

/// A folder with `proc` and `sys`. Dropping it removes the folder.
struct Tree(PathBuf);

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Tree {
    /// Writes `cgroup` and `mountinfo` of the process, and files below `/sys/fs/cgroup`. `ROOT` in
    /// mountinfo stands for the tree's root.
    fn new(name: &str, cgroup: &str, mountinfo: &str, groups: &[(&str, &str)]) -> Tree {
        let root = format!("equipoise-groups-{name}-{}", std::process::id());
        let tree = Tree(std::env::temp_dir().join(root));
        let _ = std::fs::remove_dir_all(&tree.0);
        tree.write("proc/self/cgroup", cgroup);
        tree.write("proc/self/mountinfo", &mountinfo.replace("ROOT", tree.0.to_str().unwrap()));
        for (file, text) in groups {
            tree.write(&format!("sys/fs/cgroup/{file}"), text);
        }
        tree
    }

    fn write(&self, file: &str, text: &str) {
        let file = self.0.join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    fn monitor(&self) -> Monitor {
        let (proc, sys) = (self.0.join("proc"), self.0.join("sys"));
        Monitor::new(MonitorOptions { proc, sys, ..MonitorOptions::default() })
    }

    fn sample(&self) -> Utilisation {
        self.monitor().sample()
    }

    /// Checks the measured CPU usage when `file` changes from `before` to `after`, a difference of
    /// `seconds`. The measured percentage times the quota must lie between the bounds from this
    /// test's own clock.
    fn used(&self, file: &str, before: &str, after: &str, seconds: f64, quota: f64) {
        self.write(file, before);
        let mut monitor = self.monitor();
        let outer = Instant::now();
        assert_eq!(monitor.sample().cpu_group_percent, None, "the first sample has no rates");
        let inner = Instant::now();
        // Waits, so that the rate in real time is far from the full quota.
        std::thread::sleep(std::time::Duration::from_millis(50));
        self.write(file, after);
        let most = seconds / inner.elapsed().as_secs_f64();
        let said = monitor.sample().cpu_group_percent.unwrap() / 100.0 * quota;
        let least = seconds / outer.elapsed().as_secs_f64();
        assert!((least * 0.999..=most * 1.001).contains(&said), "{least} <= {said} <= {most}");
    }
}

const V2: &str =
    "29 23 0:26 / ROOT/sys/fs/cgroup rw,nosuid,nodev - cgroup2 cgroup2 rw,nsdelegate\n";

/// cpu and cpuacct as one hierarchy, memory as another, as distributions mount version 1.
const V1: &str = "31 23 0:28 / ROOT/sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n\
                  32 31 0:29 / ROOT/sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                  33 31 0:30 / ROOT/sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                  34 31 0:31 / ROOT/sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n";

const V1_PATHS: &str = "5:memory:/system.slice/eq.service\n4:cpu,cpuacct:/system.slice/eq.service\n\
                        1:name=systemd:/system.slice/eq.service\n";

const UNLIMITED_V1: &str = "9223372036854771712\n";

fn percent(found: Option<f64>, expected: f64) {
    let found = found.expect("there is a limit");
    assert!((found - expected).abs() < 1e-6, "{found} is not {expected}");
}

#[test]
fn a_container_of_version_2_sees_its_own_group_as_the_root() {
    let files = [
        ("cpu.max", "50000 100000\n"),
        ("cpu.stat", "usage_usec 0\n"),
        ("memory.max", "1000000\n"),
        ("memory.current", "600000\n"),
        ("memory.stat", "anon 400000\nfile 200000\ninactive_file 100000\nactive_file 100000\n"),
    ];
    let tree = Tree::new("v2-container", "0::/\n", V2, &files);
    percent(tree.sample().memory_percent, 50.0);
    let usage = |us: u64| format!("usage_usec {us}\nuser_usec {us}\nsystem_usec 0\nnr_periods 1\n");
    let file = "sys/fs/cgroup/cpu.stat";
    tree.used(file, &usage(7_000_000), &usage(7_010_000), 0.010, 0.5);
}

#[test]
fn limits_of_every_parent_group_apply_in_version_2() {
    let pod = "kubepods.slice/kubepods-pod1.slice";
    let container = format!("{pod}/cri-ab.scope");
    let cgroup = format!("0::/{container}\n");
    let of = |folder: &str, file: &str| format!("{folder}/{file}");
    let files = [
        // The container has a larger CPU quota than its pod.
        (of(&container, "cpu.max"), "200000 100000\n"),
        (of(&container, "cpu.stat"), "usage_usec 0\n"),
        (of(pod, "cpu.max"), "50000 100000\n"),
        (of(pod, "cpu.stat"), "usage_usec 0\n"),
        (of("kubepods.slice", "cpu.max"), "max 100000\n"),
        (of("kubepods.slice", "cpu.stat"), "usage_usec 0\n"),
        // A tight limit that is hardly used, and a wide one that is nearly full.
        (of(&container, "memory.max"), "1000000\n"),
        (of(&container, "memory.current"), "100000\n"),
        (of(pod, "memory.max"), "10000000\n"),
        (of(pod, "memory.current"), "9000000\n"),
        (of(pod, "memory.stat"), "inactive_file 0\n"),
        (of("kubepods.slice", "memory.max"), "max\n"),
        (of("kubepods.slice", "memory.current"), "99000000\n"),
    ];
    let files: Vec<_> = files.iter().map(|(file, text)| (file.as_str(), *text)).collect();
    let tree = Tree::new("v2-nested", &cgroup, V2, &files);
    percent(tree.sample().memory_percent, 90.0);
    let proc = tree.0.join("proc");
    assert_eq!(usable_memory_bytes(&proc), Some(1_000_000));
    tree.write("proc/meminfo", "MemTotal: 900 kB\nMemAvailable: 100 kB\n");
    assert_eq!(usable_memory_bytes(&proc), Some(900 * 1024));
    // The usage of the whole pod counts towards the pod's quota.
    let file = format!("sys/fs/cgroup/{pod}/cpu.stat");
    tree.used(&file, "usage_usec 1000\n", "usage_usec 11000\n", 0.010, 0.5);
}

#[test]
fn limits_of_every_parent_group_apply_in_version_1() {
    let group = "system.slice/eq.service";
    let files = [
        ("cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
        ("cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ("cpu,cpuacct/cpuacct.usage", "0\n"),
        ("cpu,cpuacct/system.slice/cpu.cfs_quota_us", "300000\n"),
        ("cpu,cpuacct/system.slice/cpu.cfs_period_us", "100000\n"),
        ("cpu,cpuacct/system.slice/cpuacct.usage", "0\n"),
        ("cpu,cpuacct/system.slice/eq.service/cpu.cfs_quota_us", "25000\n"),
        ("cpu,cpuacct/system.slice/eq.service/cpu.cfs_period_us", "50000\n"),
        ("cpu,cpuacct/system.slice/eq.service/cpuacct.usage", "0\n"),
        ("memory/memory.limit_in_bytes", UNLIMITED_V1),
        ("memory/memory.usage_in_bytes", "99000000\n"),
        ("memory/system.slice/memory.limit_in_bytes", "4000000\n"),
        ("memory/system.slice/memory.usage_in_bytes", "3500000\n"),
        // Groups below count, too.
        ("memory/system.slice/memory.stat", "inactive_file 0\ntotal_inactive_file 500000\n"),
        ("memory/system.slice/eq.service/memory.limit_in_bytes", "2000000\n"),
        ("memory/system.slice/eq.service/memory.usage_in_bytes", "1000000\n"),
    ];
    let tree = Tree::new("v1", V1_PATHS, V1, &files);
    percent(tree.sample().memory_percent, 75.0);
    let file = format!("sys/fs/cgroup/cpu,cpuacct/{group}/cpuacct.usage");
    tree.used(&file, "1000000000\n", "1010000000\n", 0.010, 0.5);
}

#[test]
fn version_1_containers_with_a_host_path_use_their_own_mount() {
    let cgroup =
        "4:cpu:/docker/ab12\n3:cpuacct:/docker/ab12\n2:memory:/docker/ab12\n0::/docker/ab12\n";
    // Separate hierarchies of the two CPU controllers, and version 2 without controllers.
    let mounts = "32 31 0:29 /docker/ab12 ROOT/sys/fs/cgroup/cpu ro master:9 - cgroup cgroup rw,cpu\n\
                  33 31 0:30 /docker/ab12 ROOT/sys/fs/cgroup/cpuacct ro - cgroup cgroup rw,cpuacct\n\
                  34 31 0:31 /docker/ab12 ROOT/sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n\
                  41 31 0:38 /docker/ab12 ROOT/sys/fs/cgroup/unified ro - cgroup2 cgroup2 rw\n";
    let files = [
        ("cpu/cpu.cfs_quota_us", "150000\n"),
        ("cpu/cpu.cfs_period_us", "100000\n"),
        ("cpuacct/cpuacct.usage", "0\n"),
        ("memory/memory.limit_in_bytes", "8000000\n"),
        ("memory/memory.usage_in_bytes", "2000000\n"),
        // Files of version 2, which has no controllers here.
        ("unified/memory.max", "1000\n"),
        ("unified/memory.current", "1000\n"),
    ];
    let tree = Tree::new("v1-container", cgroup, mounts, &files);
    percent(tree.sample().memory_percent, 25.0);
    let file = "sys/fs/cgroup/cpuacct/cpuacct.usage";
    tree.used(file, "5000000000\n", "5020000000\n", 0.020, 1.5);
}

#[test]
fn a_group_without_limits_reports_no_usage_in_either_version() {
    let v2 = [
        ("a/cpu.max", "max 100000\n"),
        ("a/cpu.stat", "usage_usec 5\n"),
        ("a/memory.max", "max\n"),
        ("a/memory.current", "1000\n"),
    ];
    let v1 = [
        ("cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
        ("cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ("cpu,cpuacct/cpuacct.usage", "5000\n"),
        ("memory/memory.limit_in_bytes", UNLIMITED_V1),
        ("memory/memory.usage_in_bytes", "1000\n"),
    ];
    let v1_paths = "4:cpu,cpuacct:/\n3:memory:/\n";
    // Files with malformed text count as missing.
    let odd = [("a/cpu.max", "lots\n"), ("a/cpu.stat", "\n"), ("a/memory.max", "0\n")];
    for (name, tree) in [
        ("v2", Tree::new("v2-unlimited", "0::/a\n", V2, &v2)),
        ("v1", Tree::new("v1-unlimited", v1_paths, V1, &v1)),
        ("odd", Tree::new("v2-odd", "0::/a\n", V2, &odd)),
        ("none", Tree::new("no-groups", "", "", &[])),
    ] {
        let mut monitor = tree.monitor();
        monitor.sample();
        let used = monitor.sample();
        assert_eq!((used.cpu_group_percent, used.memory_percent), (None, None), "{name}");
    }
}

#[test]
fn a_changed_limit_applies_to_the_next_sample() {
    let files = [("a/memory.max", "1000\n"), ("a/memory.current", "500\n")];
    let tree = Tree::new("v2-changes", "0::/a\n", V2, &files);
    let mut monitor = tree.monitor();
    percent(monitor.sample().memory_percent, 50.0);
    for (file, text) in [("memory.max", "2000\n"), ("memory.current", "500\n")] {
        tree.write(&format!("sys/fs/cgroup/a/{file}"), text);
    }
    percent(monitor.sample().memory_percent, 25.0);
}

#[test]
fn pressure_is_read_if_the_kernel_provides_it() {
    let tree = Tree::new("pressure", "0::/\n", V2, &[]);
    let text = |some: &str| {
        format!(
            "some avg10={some} avg60=1.00 avg300=0.50 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
        )
    };
    tree.write("proc/pressure/cpu", &text("12.50"));
    // A kernel before 5.13, without "full" for CPUs.
    tree.write("proc/pressure/memory", "some avg10=0.25 avg60=1.00 avg300=0.50 total=1\n");
    // With `psi=0` the file exists, but reading it fails; so does reading a folder.
    std::fs::create_dir_all(tree.0.join("proc/pressure/io")).unwrap();
    let used = tree.sample();
    assert_eq!(used.cpu_pressure_percent, Some(12.5));
    assert_eq!(used.memory_pressure_percent, Some(0.25));
    assert_eq!(used.io_pressure_percent, None);
    let none = Tree::new("no-pressure", "0::/\n", V2, &[]);
    let missing = none.monitor().missing();
    let is_named = |kind: &str| missing.contains(&none.0.join("proc/pressure").join(kind));
    assert!(["cpu", "memory", "io"].into_iter().all(is_named), "{missing:?}");
    assert_eq!(none.sample().cpu_pressure_percent, None);
}

#[test]
fn mounts_with_spaces_are_read_and_missing_mounts_are_ignored() {
    let mounts = r"29 23 0:26 / ROOT/sys/fs/cgroup/my\040groups rw - cgroup2 none rw";
    let files = [("my groups/a/memory.max", "100\n"), ("my groups/a/memory.current", "40\n")];
    let tree = Tree::new("space", "0::/a\n", mounts, &files);
    percent(tree.sample().memory_percent, 40.0);
    std::fs::remove_dir_all(Path::new(&tree.0).join("sys")).unwrap();
    assert_eq!(tree.sample().memory_percent, None);
}
