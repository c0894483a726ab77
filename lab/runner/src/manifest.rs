//! Under which circumstances a run's figures came about.

use std::fs;
use std::process::Command;

use serde::Serialize;

#[derive(Debug, Serialize)]
pub(crate) struct Manifest {
    date: String,
    commit: String,
    /// Files differ from the commit.
    changed: Option<bool>,
    rustc: String,
    kernel: String,
    cpu: String,
    cpus_online: usize,
    caches: Vec<String>,
    memory_bytes: u64,
    transparent_huge_pages: String,
    /// Before the run; much above 0 means that others were at work.
    load_average: String,
    seed: u64,
    quick: bool,
}

impl Manifest {
    pub(crate) fn collect(seed: u64, quick: bool) -> Manifest {
        let changes = output("git", &["status", "--porcelain", "--", ".", ":!lab/results"]);
        Manifest {
            date: known(output("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"])),
            commit: known(output("git", &["rev-parse", "HEAD"])),
            changed: changes.map(|changes| !changes.is_empty()),
            rustc: known(output("rustc", &["--version"])),
            kernel: known(text_of("/proc/sys/kernel/osrelease")),
            cpu: known(field("/proc/cpuinfo", "model name")),
            cpus_online: std::thread::available_parallelism().map_or(0, usize::from),
            caches: caches(),
            memory_bytes: memory_bytes(),
            transparent_huge_pages: known(text_of("/sys/kernel/mm/transparent_hugepage/enabled")),
            load_average: known(text_of("/proc/loadavg")),
            seed,
            quick,
        }
    }

    /// The lines that stand above a report.
    pub(crate) fn summary(&self) -> String {
        let Manifest { commit, kernel, cpu, cpus_online, caches, load_average, seed, .. } = self;
        let changed = if self.changed == Some(true) { ", files changed" } else { "" };
        let quick = if self.quick { " A quick run: small cases only." } else { "" };
        format!(
            "Commit {commit}{changed}. Linux {kernel}, {cpu}, {cpus_online} CPUs, {}, {} MiB. Seed {seed}. Load \
             average at the start: {load_average}.{quick}",
            caches.join(", "),
            self.memory_bytes >> 20,
        )
    }
}

fn known(text: Option<String>) -> String {
    text.unwrap_or_else(|| "unknown".to_string())
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_string())
}

fn text_of(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_string())
}

/// The value of the first line `name : value` of a file.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

fn memory_bytes() -> u64 {
    let total = field("/proc/meminfo", "MemTotal").unwrap_or_default();
    total.trim_end_matches(" kB").trim().parse().map_or(0, |kib: u64| kib << 10)
}

/// "L2 2048K" and so on, of the first CPU.
fn caches() -> Vec<String> {
    (0..8)
        .filter_map(|index| {
            let of =
                |what| text_of(&format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{what}"));
            (of("type")? != "Instruction").then_some(format!("L{} {}", of("level")?, of("size")?))
        })
        .collect()
}
