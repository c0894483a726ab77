use std::fmt::Error;
use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

/// The process's own figures, with the names that every Prometheus client uses.
///
/// # Source
/// Prometheus, "Writing client libraries", section "Standard and runtime collectors". Deviates:
/// leaves out values that `/proc` does not report.
#[derive(Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut out: DescriptorEncoder<'_>) -> Result<(), Error> {
        if let Some(usage) = cpu_seconds() {
            let help = "User and system CPU time.";
            out.encode_descriptor("process_cpu", help, Some(&Unit::Seconds), MetricType::Counter)?
                .encode_counter::<NoLabelSet, _, u64>(&usage, None)?;
        }
        let gauges = [
            ("process_resident_memory", "Memory in RAM.", Some(&Unit::Bytes), resident_bytes()),
            ("process_open_fds", "Open file descriptors.", None, open_descriptors()),
            (
                "process_max_fds",
                "Largest number of open file descriptors.",
                None,
                descriptors_max(),
            ),
            ("process_threads", "Threads of the operating system.", None, threads()),
        ];
        for (name, help, unit, value) in gauges {
            if let Some(value) = value {
                out.encode_descriptor(name, help, unit, MetricType::Gauge)?.encode_gauge(&value)?;
            }
        }
        if let Some(seconds) = started_unix_seconds() {
            let (name, help) = ("process_start_time", "When the process started, since 1970.");
            out.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Gauge)?
                .encode_gauge(&seconds)?;
        }
        Ok(())
    }
}

fn cpu_seconds() -> Option<f64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: `usage` is valid for writes of one rusage, and is read only when the call filled it.
    let usage = unsafe {
        (libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) == 0)
            .then(|| usage.assume_init())?
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Some(seconds(usage.ru_utime) + seconds(usage.ru_stime))
}

fn resident_bytes() -> Option<u64> {
    let pages: u64 =
        fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()?;
    Some(pages * sysconf(libc::_SC_PAGESIZE)?)
}

/// The number of open descriptors, without the one that reads the folder.
fn open_descriptors() -> Option<u64> {
    Some((fs::read_dir("/proc/self/fd").ok()?.count() as u64).saturating_sub(1))
}

fn descriptors_max() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writes of one rlimit.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    (result == 0).then_some(limit.rlim_cur)
}

fn threads() -> Option<u64> {
    stat_field(20)
}

fn started_unix_seconds() -> Option<f64> {
    let ticks = stat_field(22)? as f64 / sysconf(libc::_SC_CLK_TCK)? as f64;
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 =
        stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(boot + ticks)
}

/// Returns field `number` of `/proc/self/stat`, counted from 1 as in proc(5). The second field, the
/// program's name, may have spaces and brackets, so counting starts after its last bracket.
fn stat_field(number: usize) -> Option<u64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, behind_name) = stat.rsplit_once(") ")?;
    behind_name.split(' ').nth(number - 3)?.parse().ok()
}

fn sysconf(name: libc::c_int) -> Option<u64> {
    // SAFETY: sysconf takes any number and does not access our memory.
    u64::try_from(unsafe { libc::sysconf(name) }).ok()
}
