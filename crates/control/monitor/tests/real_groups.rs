//! The monitor inside real control groups, of the version on this machine.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use equipoise_monitor::parse::cgroup::{Place, Version, place};
use equipoise_monitor::{Monitor, MonitorOptions};

const CHILD: &str = "EQUIPOISE_MONITOR_CHILD";
const MEBIBYTE: usize = 1 << 20;

type Limits = &'static [(&'static str, &'static str)];

/// A controller with its limits in version 1 and 2: a quarter of a CPU, and 64 MiB.
const LIMITS: [(&str, Limits, Limits); 3] = [
    (
        "cpu",
        &[("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "25000")],
        &[("cpu.max", "25000 100000")],
    ),
    ("memory", &[("memory.limit_in_bytes", "67108864")], &[("memory.max", "67108864")]),
    ("cpuacct", &[], &[]),
];

/// A group below our own in each hierarchy. Dropping it removes the group.
struct Group(Vec<PathBuf>);

impl Drop for Group {
    fn drop(&mut self) {
        for folder in &self.0 {
            let _ = std::fs::remove_dir(folder);
        }
    }
}

fn find(controller: &str) -> Option<Place> {
    let text = |name: &str| std::fs::read_to_string(Path::new("/proc/self").join(name)).ok();
    place(controller, &text("cgroup")?, &text("mountinfo")?)
}

/// Creates the group, or returns the reason why that is not possible.
fn limited_group() -> Result<Group, String> {
    let mut group = Group(Vec::new());
    for (controller, limits_v1, limits_v2) in LIMITS {
        let found = find(controller).ok_or(format!("{controller} is not mounted"))?;
        let folder = found.group.join(format!("equipoise-test-{}", std::process::id()));
        if found.version == Version::V2 {
            let enabled = format!("+{controller}");
            let _ = std::fs::write(found.group.join("cgroup.subtree_control"), enabled);
        }
        let failed = |path: &Path, error| format!("{}: {error}", path.display());
        if !folder.exists() {
            std::fs::create_dir(&folder).map_err(|error| failed(&folder, error))?;
            group.0.push(folder.clone());
        }
        for (file, limit) in if found.version == Version::V1 { limits_v1 } else { limits_v2 } {
            let file = folder.join(file);
            std::fs::write(&file, limit).map_err(|error| failed(&file, error))?;
        }
    }
    Ok(group)
}

fn spin(memory: &[u8], time: Duration) {
    let start = Instant::now();
    let mut rounds = 0_usize;
    while start.elapsed() < time {
        rounds = std::hint::black_box(rounds + usize::from(memory[rounds % memory.len()]) + 1);
    }
}

#[test]
#[ignore = "a child of the test below"]
fn works_inside_the_group() {
    let Some(groups) = std::env::var_os(CHILD) else { return };
    for folder in std::env::split_paths(&groups) {
        std::fs::write(folder.join("cgroup.procs"), std::process::id().to_string()).unwrap();
    }
    let mut monitor = Monitor::new(MonitorOptions::default());
    let mut used = monitor.sample();
    assert_eq!(used.cpu_group_percent, None, "the first sample has no rates");
    let memory: Vec<u8> = (0..40 * MEBIBYTE).map(|at| at as u8).collect();
    // Other processes may leave the group less than a quarter of a CPU; then it tries again.
    let mut cpu = 0.0;
    for _ in 0..20 {
        spin(&memory, Duration::from_millis(1500));
        used = monitor.sample();
        cpu = used.cpu_group_percent.unwrap();
        assert_eq!(used.cpu_percent, used.cpu_group_percent);
        assert_eq!(used.processors, Some(0.25));
        if cpu > 30.0 {
            break;
        }
    }
    assert!(cpu > 30.0, "spinning on a quarter of a processor is {cpu} %");
    let grown = used.memory_percent.unwrap();
    assert!((60.0..=100.0).contains(&grown), "40 of 64 MiB and the program itself are {grown} %");
    println!("\ninside the group: cpu {cpu:.0} %, memory {grown:.0} %");
}

#[test]
fn usage_percentages_are_relative_to_the_limits_of_the_group() {
    let group = match limited_group() {
        Ok(group) => group,
        Err(why) => {
            eprintln!("skipped: no control group can be made here ({why}); it needs root");
            return;
        }
    };
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["works_inside_the_group", "--exact", "--ignored", "--nocapture"])
        .env(CHILD, std::env::join_paths(&group.0).unwrap())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("inside the group"), "{text}{}", String::from_utf8_lossy(&output.stderr));
    println!("{text}");
}
