//! Resources that processes, threads and hosts have used, by the kernel's account.

use std::fs;

use anyhow::{Context, Result};
use equipoise_netns::Host;

/// CPU time of one thread, in seconds.
fn of_thread(pid: u32, thread: &str) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat"))?;
    let on_cpu_ns: f64 = text.split(' ').next().unwrap_or_default().parse().context("schedstat")?;
    Ok(on_cpu_ns / 1e9)
}

/// The threads of a process, with their names.
fn threads(pid: u32) -> Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = entry?.path();
        let Ok(name) = fs::read_to_string(path.join("comm")) else { continue };
        let id = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        all.push((id, name.trim().to_string()));
    }
    Ok(all)
}

/// CPU time of a process's threads that are there, in seconds.
pub(crate) fn cpu_s(pid: u32) -> Result<f64> {
    Ok(threads(pid)?.iter().filter_map(|(id, _)| of_thread(pid, id).ok()).sum())
}

/// CPU time of its thread of that name, in seconds.
pub(crate) fn thread_cpu_s(pid: u32, name: &str) -> Result<f64> {
    let all = threads(pid)?;
    let found = all.iter().find(|(_, one)| one == name);
    let (id, _) =
        found.with_context(|| format!("process {pid} has no thread `{name}`: {all:?}"))?;
    of_thread(pid, id)
}

/// Resident memory now, MiB.
pub(crate) fn resident_mib(pid: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().context("VmRSS")?;
    Ok(kib / 1024.0)
}

/// Bytes that an interface of a host has received and sent.
pub(crate) fn interface_bytes(host: &Host, interface: &str) -> Result<(f64, f64)> {
    let text = host.enter(|| fs::read_to_string("/proc/thread-self/net/dev"))?;
    let prefix = format!("{interface}:");
    let line = text.lines().find_map(|line| line.trim().strip_prefix(&prefix));
    let line = line.with_context(|| format!("{} has no interface {interface}", host.name()))?;
    let figures: Vec<f64> = line.split_whitespace().filter_map(|one| one.parse().ok()).collect();
    let at = |index: usize| figures.get(index).copied().context("/proc/net/dev");
    Ok((at(0)?, at(8)?))
}
