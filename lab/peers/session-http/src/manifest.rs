//! Under which circumstances a run's figures came about.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use serde::Serialize;

use crate::options::Options;
use crate::peers::Peers;
use crate::place::Placement;

/// manifest.json.
#[derive(Debug, Serialize)]
pub(crate) struct Manifest {
    date: String,
    commit: String,
    /// Files differ from the commit.
    changed: Option<bool>,
    kernel: String,
    cpu: String,
    cpus_online: usize,
    /// Which CPUs share a core with the proxy's.
    proxy_cpu_siblings: String,
    memory_bytes: u64,
    /// Before the run; much above 0 means that others were at work.
    load_average: String,
    mitigations: BTreeMap<String, String>,
    versions: BTreeMap<String, String>,
    placement: Placement,
    repetitions: u32,
    seconds: u64,
    options: Options,
}

impl Manifest {
    pub(crate) fn collect(options: &Options, peers: &Peers, placement: &Placement) -> Manifest {
        let proxy_cpu = placement.proxy.as_ref().and_then(|cpus| cpus.first()).unwrap_or(&0);
        let topology =
            format!("/sys/devices/system/cpu/cpu{proxy_cpu}/topology/thread_siblings_list");
        let changes = output("git", &["status", "--porcelain"]);
        Manifest {
            date: output("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"]).unwrap_or_else(unknown),
            commit: output("git", &["rev-parse", "HEAD"]).unwrap_or_else(unknown),
            changed: changes.map(|changes| !changes.is_empty()),
            kernel: text_of("/proc/sys/kernel/osrelease"),
            cpu: field("/proc/cpuinfo", "model name").unwrap_or_else(unknown),
            cpus_online: std::thread::available_parallelism().map_or(0, usize::from),
            proxy_cpu_siblings: text_of(&topology),
            memory_bytes: memory_bytes(),
            load_average: text_of("/proc/loadavg"),
            mitigations: mitigations(),
            versions: peers.versions().into_iter().collect(),
            placement: placement.clone(),
            repetitions: options.repetitions(),
            seconds: options.seconds(),
            options: options.clone(),
        }
    }

    /// The text before the first table.
    pub(crate) fn headline(&self) -> String {
        let versions: Vec<_> = self.versions.values().cloned().collect();
        format!(
            "{}, Linux {}, {} CPUs\n{}",
            self.cpu,
            self.kernel,
            self.cpus_online,
            versions.join("; ")
        )
    }

    /// The load average of the last minute before the run.
    pub(crate) fn load_before(&self) -> f64 {
        self.load_average
            .split_whitespace()
            .next()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0.0)
    }
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn text_of(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| unknown(), |text| text.trim().to_owned())
}

/// The value of the first line `name : value` of a file of /proc.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let value =
        text.lines().filter_map(|line| line.split_once(':')).find(|(key, _)| key.trim() == name);
    value.map(|(_, value)| value.trim().to_owned())
}

fn memory_bytes() -> u64 {
    let total = field("/proc/meminfo", "MemTotal").unwrap_or_default();
    total.trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024
}

/// System calls cost what the mitigations make them cost.
fn mitigations() -> BTreeMap<String, String> {
    let Ok(entries) = fs::read_dir("/sys/devices/system/cpu/vulnerabilities") else {
        return BTreeMap::new();
    };
    entries
        .flatten()
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, text_of(&entry.path().display().to_string()))
        })
        .collect()
}

fn unknown() -> String {
    "unknown".to_owned()
}
