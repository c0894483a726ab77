use super::{ParseError, unreadable};

/// CPU time of the machine since boot, clock ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTicks {
    /// Time that was not idle. It includes time that the hypervisor took (steal), because it is not
    /// usable here.
    pub busy: u64,
    /// Total time.
    pub total: u64,
    /// Number of online CPUs.
    pub processors: u32,
}

/// Parses `/proc/stat`.
///
/// I/O wait is idle time. `user` and `nice` already include guest time, so it is not added.
///
/// # Errors
/// [`ParseError`] without a `cpu` line of at least four numbers (older kernels have fewer than
/// ten).
/// # Source
/// proc_stat(5).
pub fn stat(text: &str) -> Result<CpuTicks, ParseError> {
    let broken = || unreadable("/proc/stat", "cpu line", text);
    let mut lines = text.lines();
    let all = lines.next().and_then(|line| line.strip_prefix("cpu ")).ok_or_else(broken)?;
    let mut ticks = [0_u64; 8];
    let mut count = 0;
    for (field, word) in ticks.iter_mut().zip(all.split_ascii_whitespace()) {
        *field = word.parse().map_err(|_| broken())?;
        count += 1;
    }
    if count < 4 {
        return Err(broken());
    }
    let [user, nice, system, idle, iowait, irq, softirq, steal] = ticks;
    let busy = user + nice + system + irq + softirq + steal;
    let processors = lines.take_while(|line| line.starts_with("cpu")).count();
    Ok(CpuTicks { busy, total: busy + idle + iowait, processors: processors.max(1) as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_time_excludes_idle_and_io_wait() {
        let text = include_str!("../../fixtures/stat-linux-6.18-2cpu");
        let ticks = stat(text).unwrap();
        let busy = 183_574 + 632_297 + 103_898 + 7583 + 2144;
        assert_eq!(ticks, CpuTicks { busy, total: busy + 349_682 + 2401, processors: 2 });
    }

    #[test]
    fn stat_text_of_an_old_kernel_with_fewer_columns_is_read() {
        let ticks = stat("cpu  10 20 30 40\ncpu0 10 20 30 40\n").unwrap();
        assert_eq!(ticks, CpuTicks { busy: 60, total: 100, processors: 1 });
    }

    #[test]
    fn a_processor_that_is_offline_is_not_counted() {
        let ticks = stat("cpu  1 1 1 1 0 0 0 0 0 0\ncpu0 1 0 0 0\ncpu3 0 1 1 1\nintr 7\n").unwrap();
        assert_eq!(ticks.processors, 2);
    }

    #[test]
    fn malformed_stat_text_is_rejected() {
        for text in ["", "cpu", "cpu  1 2 3", "cpu  1 2 3 x", "cpu0 1 2 3 4", "intr 1"] {
            assert!(stat(text).is_err(), "{text:?}");
        }
    }
}
