//! Measures the CPU time of the monitor: user and system time of this process per sample, in a row
//! and at one per second (with caches that others have used in between), and the same as a share of
//! one CPU.
//!
//!     cargo run --profile dist -p equipoise-monitor --example cost -- [SAMPLES]

use std::hint::black_box;
use std::time::Duration;

use equipoise_monitor::{Monitor, MonitorOptions, Repository, RepositoryOptions, Sample};

/// CPU time that this process has used, microseconds.
fn used_us() -> u64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0) / 1000
}

fn main() {
    let samples = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(2000_u64);
    let mut monitor = Monitor::new(MonitorOptions::default());
    println!("not there: {:?}", monitor.missing());
    monitor.sample();
    std::thread::sleep(Duration::from_millis(500));
    println!("{:#?}", monitor.sample());
    let before = used_us();
    for _ in 0..samples {
        black_box(monitor.sample());
    }
    let each_us = (used_us() - before) as f64 / samples as f64;
    println!("in a row: {each_us:.1} us each");

    let before = used_us();
    for _ in 0..20 {
        std::thread::sleep(Duration::from_secs(1));
        black_box(monitor.sample());
    }
    let each_us = (used_us() - before) as f64 / 20.0;
    println!("really one a second: {each_us:.1} us each, {:.4} % of a processor", each_us / 1e4);

    let mut repository = Repository::new(RepositoryOptions::default());
    let (cpu_percent, memory_percent) = (Some(40.0), Some(50.0));
    let sample = Sample { cpu_percent, memory_percent, ..Sample::default() };
    let nodes: Vec<String> = (0..1000).map(|i| format!("node-{i}")).collect();
    let before = used_us();
    for second in 0..60 {
        let now = Duration::from_secs(1_700_000_000 + second);
        for node in &nodes {
            let _ = black_box(repository.insert(node, now, sample, now));
        }
    }
    let each_ns = (used_us() - before) as f64 * 1000.0 / 60_000.0;
    println!(
        "{} bytes a node; an insert among 1000 nodes: {each_ns:.0} ns",
        repository.bytes_per_node()
    );
}
