//! The cost of the monitor: the CPU of its thread in a process that does nothing else.

use std::time::{Duration, Instant};

use anyhow::Result;
use equipoise_lab_runner::{Case, Row};
use equipoise_netns::Host;

use crate::place::Place;
use crate::usage;

/// The name of its thread, as the kernel has it.
const THREAD: &str = "monitor";

pub(crate) fn measure(place: &Place, case: &Case, row: &mut Row) -> Result<()> {
    let host = Host::new("idle")?;
    place.fresh("monitor")?;
    let config = format!(
        "[load]\nperiod = \"{}ms\"\n[[pool]]\nname = \"web\"\nbackends = [\"127.0.0.1:9\"]\n\
         [[session]]\nlisten = \"127.0.0.1:8080\"\nprotocol = \"http\"\npool = \"web\"\n",
        case.count("period_ms")?
    );
    let equipoise = place.run(&host, "monitor", &config)?;
    let pid = equipoise.pid();
    std::thread::sleep(Duration::from_secs(2));
    let (thread, all, start) =
        (usage::thread_cpu_s(pid, THREAD)?, usage::cpu_s(pid)?, Instant::now());
    std::thread::sleep(Duration::from_secs_f64(case.number("seconds")?));
    let passed = start.elapsed().as_secs_f64();
    let percent = |from: f64, to: f64| 100.0 * (to - from) / passed;
    row.figure("monitor_cpu_percent", percent(thread, usage::thread_cpu_s(pid, THREAD)?))
        .figure("process_cpu_percent", percent(all, usage::cpu_s(pid)?))
        .figure("process_mib", usage::resident_mib(pid)?);
    Ok(())
}
