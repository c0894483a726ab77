//! Computes percentages from two readings. Pure.

use std::time::Duration;

use crate::parse::{CpuTicks, Memory, Pressure};

/// Reading of one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceReading {
    /// Name of the interface.
    pub name: String,
    /// Bytes received since the interface came up.
    pub received_bytes: u64,
    /// Bytes sent since the interface came up.
    pub sent_bytes: u64,
    /// Link speed in each direction, bits per second; `None` if unknown.
    pub link_bits_per_second: Option<u64>,
}

/// Reading of this process's control group.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GroupReading {
    /// CPU time used since the group was created, microseconds.
    pub cpu_used_us: Option<u64>,
    /// CPU quota, in CPUs; `None` without one.
    pub cpu_quota_processors: Option<f64>,
    /// Memory used that the kernel cannot drop, in per cent of the limit. May exceed 100.
    pub memory_used_percent: Option<f64>,
}

/// All values read at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Monotonic time of the reading.
    pub at: Duration,
    /// CPU time of the machine.
    pub cpu: Option<CpuTicks>,
    /// Number of CPUs that this process may run on (its affinity).
    pub allowed_processors: Option<u32>,
    /// Memory of the machine.
    pub memory: Option<Memory>,
    /// Reading of this process's control group.
    pub group: GroupReading,
    /// Interfaces that count.
    pub interfaces: Vec<InterfaceReading>,
    /// CPU pressure.
    pub cpu_pressure: Option<Pressure>,
    /// Memory pressure.
    pub memory_pressure: Option<Pressure>,
    /// I/O pressure.
    pub io_pressure: Option<Pressure>,
}

/// Rates of an interface.
#[derive(Clone, Debug, PartialEq)]
pub struct InterfaceRate {
    /// Name of the interface.
    pub name: String,
    /// Bits received per second.
    pub received_bits_per_second: f64,
    /// Bits sent per second.
    pub sent_bits_per_second: f64,
    /// The busier direction in per cent of the link's speed; `None` if the speed is unknown.
    pub used_percent: Option<f64>,
}

/// Utilisation of this machine between two readings. Percentages are 0 to 100; `None` means no
/// signal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Utilisation {
    /// Usable CPUs, including fractions: the smaller of the group's quota and the number of CPUs
    /// that this process may run on.
    pub processors: Option<f64>,
    /// Number of online CPUs of the machine.
    pub online_processors: Option<u32>,
    /// CPU time used, in per cent of the usable time: of the group if it has a quota, otherwise of
    /// the machine. Other users of the machine do not count towards a quota.
    pub cpu_percent: Option<f64>,
    /// CPU utilisation of the whole machine, per cent.
    pub cpu_machine_percent: Option<f64>,
    /// CPU time that the group used, in per cent of its quota.
    pub cpu_group_percent: Option<f64>,
    /// Memory used, per cent: the larger of the machine's and, if the group has a limit, the
    /// group's.
    pub memory_percent: Option<f64>,
    /// Utilisation of the interface nearest to its link's speed, per cent.
    pub net_percent: Option<f64>,
    /// Rates of each interface that counts.
    pub interfaces: Vec<InterfaceRate>,
    /// Time in the last 10 s in which some task waited for a CPU, per cent.
    pub cpu_pressure_percent: Option<f64>,
    /// Time in the last 10 s in which some task waited for memory, per cent.
    pub memory_pressure_percent: Option<f64>,
    /// Time in the last 10 s in which some task waited for I/O, per cent.
    pub io_pressure_percent: Option<f64>,
}

/// Computes the utilisation between `before` and `now`. Memory and pressure are those of `now`.
///
/// A counter that decreased (the interface was recreated, or the group moved) gives no signal for
/// this period.
pub fn between(before: &Reading, now: &Reading) -> Utilisation {
    let elapsed = now.at.checked_sub(before.at).filter(|elapsed| !elapsed.is_zero());
    let cpu_machine_percent = machine_cpu_percent(before.cpu, now.cpu);
    let processors = usable_processors(now);
    let cpu_group_percent = now.group.cpu_quota_processors.and_then(|_| {
        group_cpu_percent(before.group.cpu_used_us?, now.group.cpu_used_us?, processors?, elapsed?)
    });
    let has_quota = now.group.cpu_quota_processors.is_some();
    let memory_machine_percent = now.memory.filter(|memory| memory.total_bytes > 0).map(|memory| {
        share_percent(
            (memory.total_bytes - memory.available_bytes) as f64,
            memory.total_bytes as f64,
        )
    });
    let memory_group_percent = now.group.memory_used_percent.map(|used| used.clamp(0.0, 100.0));
    let interfaces = elapsed.map_or_else(Vec::new, |elapsed| rates(before, now, elapsed));
    Utilisation {
        processors,
        online_processors: now.cpu.map(|cpu| cpu.processors),
        cpu_percent: if has_quota { cpu_group_percent } else { cpu_machine_percent },
        cpu_machine_percent,
        cpu_group_percent,
        memory_percent: greater(memory_machine_percent, memory_group_percent),
        net_percent: interfaces.iter().map(|interface| interface.used_percent).fold(None, greater),
        interfaces,
        cpu_pressure_percent: now.cpu_pressure.map(|pressure| pressure.some_percent_10s),
        memory_pressure_percent: now.memory_pressure.map(|pressure| pressure.some_percent_10s),
        io_pressure_percent: now.io_pressure.map(|pressure| pressure.some_percent_10s),
    }
}

fn share_percent(part: f64, whole: f64) -> f64 {
    (part / whole * 100.0).clamp(0.0, 100.0)
}

fn greater(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.max(other)),
        (one, other) => one.or(other),
    }
}

fn machine_cpu_percent(before: Option<CpuTicks>, now: Option<CpuTicks>) -> Option<f64> {
    let (before, now) = (before?, now?);
    // Idle time may decrease slightly when CPUs go offline.
    let total = now.total.checked_sub(before.total).filter(|total| *total > 0)?;
    let busy = now.busy.checked_sub(before.busy)?;
    Some(share_percent(busy as f64, total as f64))
}

/// The quota may exceed the number of CPUs that the process may run on.
fn usable_processors(now: &Reading) -> Option<f64> {
    let online = now.cpu.map(|cpu| cpu.processors);
    let whole = now.allowed_processors.or(online).map(f64::from);
    match (now.group.cpu_quota_processors, whole) {
        (Some(quota), Some(whole)) => Some(quota.min(whole)),
        (quota, whole) => quota.or(whole),
    }
}

fn group_cpu_percent(
    before_us: u64,
    now_us: u64,
    processors: f64,
    elapsed: Duration,
) -> Option<f64> {
    let used_us = now_us.checked_sub(before_us)?;
    let may_use_us = processors * elapsed.as_micros() as f64;
    (may_use_us > 0.0).then(|| share_percent(used_us as f64, may_use_us))
}

fn rates(before: &Reading, now: &Reading, elapsed: Duration) -> Vec<InterfaceRate> {
    let of = |interface: &InterfaceReading| {
        let old = before.interfaces.iter().find(|old| old.name == interface.name)?;
        let rate = |now: u64, before: u64| {
            Some(now.checked_sub(before)? as f64 * 8.0 / elapsed.as_secs_f64())
        };
        let received = rate(interface.received_bytes, old.received_bytes)?;
        let sent = rate(interface.sent_bytes, old.sent_bytes)?;
        let link = interface.link_bits_per_second.filter(|speed| *speed > 0);
        Some(InterfaceRate {
            name: interface.name.clone(),
            received_bits_per_second: received,
            sent_bits_per_second: sent,
            used_percent: link.map(|speed| share_percent(received.max(sent), speed as f64)),
        })
    };
    now.interfaces.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Reading {
        Reading { at: Duration::from_secs(seconds), ..Reading::default() }
    }

    fn cpu(busy: u64, total: u64) -> Option<CpuTicks> {
        Some(CpuTicks { busy, total, processors: 2 })
    }

    fn interface(received: u64, sent: u64, link: Option<u64>) -> InterfaceReading {
        InterfaceReading {
            name: "eth0".to_string(),
            received_bytes: received,
            sent_bytes: sent,
            link_bits_per_second: link,
        }
    }

    #[test]
    fn the_machines_processors_are_busy_by_the_ticks_between() {
        let (mut before, mut now) = (at(0), at(1));
        (before.cpu, now.cpu) = (cpu(100, 1000), cpu(150, 1200));
        assert_eq!(between(&before, &now).cpu_percent, Some(25.0));
    }

    #[test]
    fn the_cpu_of_a_group_with_a_quota_is_its_own() {
        let (mut before, mut now) = (at(0), at(2));
        (before.cpu, now.cpu) = (cpu(0, 0), cpu(100, 1000));
        before.group.cpu_used_us = Some(1_000_000);
        now.group = GroupReading {
            cpu_used_us: Some(1_500_000),
            cpu_quota_processors: Some(0.5),
            memory_used_percent: None,
        };
        let used = between(&before, &now);
        assert_eq!((used.cpu_machine_percent, used.cpu_group_percent), (Some(10.0), Some(50.0)));
        assert_eq!(used.cpu_percent, Some(50.0));
        assert_eq!(used.processors, Some(0.5));
        // Other processes load the machine, while the group uses half of its quota.
        now.cpu = cpu(900, 1000);
        let used = between(&before, &now);
        assert_eq!((used.cpu_percent, used.cpu_machine_percent), (Some(50.0), Some(90.0)));
        // The first reading with a quota has no rate; the machine's rate must not replace it.
        now.group.cpu_used_us = None;
        assert_eq!(between(&before, &now).cpu_percent, None);
        // Without a quota, the group's usage adds nothing to the machine's.
        now.group.cpu_quota_processors = None;
        now.group.cpu_used_us = Some(1_500_000);
        let used = between(&before, &now);
        assert_eq!((used.cpu_percent, used.cpu_group_percent), (Some(90.0), None));
        assert_eq!(used.processors, Some(2.0));
    }

    #[test]
    fn a_quota_wider_than_the_allowed_processors_is_limited_by_them() {
        let (mut before, mut now) = (at(0), at(1));
        (before.cpu, now.cpu) = (cpu(0, 0), cpu(100, 1000));
        before.group.cpu_used_us = Some(0);
        now.group.cpu_used_us = Some(500_000);
        now.group.cpu_quota_processors = Some(4.0);
        now.allowed_processors = Some(1);
        let used = between(&before, &now);
        assert_eq!((used.processors, used.cpu_percent), (Some(1.0), Some(50.0)));
    }

    #[test]
    fn memory_is_the_nearer_limit() {
        let mut now = at(1);
        now.memory = Some(Memory { total_bytes: 1000, available_bytes: 750 });
        assert_eq!(between(&at(0), &now).memory_percent, Some(25.0));
        now.group.memory_used_percent = Some(130.0);
        assert_eq!(between(&at(0), &now).memory_percent, Some(100.0));
        now.memory = Some(Memory { total_bytes: 0, available_bytes: 0 });
        now.group.memory_used_percent = None;
        assert_eq!(between(&at(0), &now).memory_percent, None);
    }

    #[test]
    fn the_busier_direction_counts_against_the_links_speed() {
        let (mut before, mut now) = (at(10), at(12));
        before.interfaces = vec![interface(0, 0, Some(1_000_000))];
        now.interfaces = vec![interface(25_000, 125_000, Some(1_000_000))];
        let used = between(&before, &now);
        assert_eq!(used.net_percent, Some(50.0));
        assert_eq!(used.interfaces[0].received_bits_per_second, 100_000.0);
        assert_eq!(used.interfaces[0].sent_bits_per_second, 500_000.0);
    }

    #[test]
    fn an_unknown_speed_is_no_signal() {
        let (mut before, mut now) = (at(0), at(1));
        for link in [None, Some(0)] {
            before.interfaces = vec![interface(0, 0, link)];
            now.interfaces = vec![interface(1000, 0, link)];
            let used = between(&before, &now);
            assert_eq!(used.net_percent, None);
            assert_eq!(used.interfaces[0].received_bits_per_second, 8000.0, "the rate is known");
        }
    }

    #[test]
    fn counters_that_went_back_give_no_signal() {
        let (mut before, mut now) = (at(0), at(1));
        (before.cpu, now.cpu) = (cpu(100, 1000), cpu(50, 1200));
        before.group.cpu_used_us = Some(10);
        now.group.cpu_used_us = Some(5);
        now.group.cpu_quota_processors = Some(1.0);
        before.interfaces = vec![interface(1000, 0, Some(1000))];
        now.interfaces = vec![interface(10, 0, Some(1000))];
        let used = between(&before, &now);
        assert_eq!(
            (used.cpu_percent, used.cpu_machine_percent, used.net_percent),
            (None, None, None)
        );
        assert_eq!((used.cpu_group_percent, used.interfaces), (None, Vec::new()));
    }

    #[test]
    fn no_time_between_gives_no_rates() {
        let mut reading = at(5);
        reading.cpu = cpu(1, 2);
        reading.interfaces = vec![interface(0, 0, Some(1000))];
        let used = between(&reading, &reading);
        assert_eq!((used.cpu_percent, used.interfaces), (None, Vec::new()));
        assert_eq!(between(&reading, &at(4)), Utilisation::default());
    }
}
