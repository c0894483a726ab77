//! The cost of nodes: a controller's CPU and memory, the network between, the store.

use std::time::{Duration, Instant};

use anyhow::Result;
use equipoise_lab_runner::{Case, Row};

use crate::cluster::{Cluster, Shape};
use crate::etcd;
use crate::place::Place;
use crate::usage;

/// Measures a cluster after all nodes have joined, once it is at rest.
pub(crate) fn measure(place: &Place, case: &Case, row: &mut Row) -> Result<()> {
    let (nodes, store) = (case.count("nodes")?, case.word("store")?);
    let shape = Shape { nodes, period: Duration::from_secs(1), store };
    let begun = Instant::now();
    let cluster = Cluster::start(place, &shape)?;
    row.figure("joined_after_s", begun.elapsed().as_secs_f64());
    std::thread::sleep(Duration::from_secs_f64(case.number("settle_s")?));
    let pid = cluster.equipoise.pid();
    let asked = || match store {
        "etcd" => etcd::messages(&cluster.host),
        _ => Ok(etcd::Asked::default()),
    };
    let (cpu, bytes, before, start) = (
        usage::cpu_s(pid)?,
        usage::interface_bytes(&cluster.host, "lan")?,
        asked()?,
        Instant::now(),
    );
    std::thread::sleep(Duration::from_secs_f64(case.number("seconds")?));
    let passed = start.elapsed().as_secs_f64();
    let (cpu_later, bytes_later, after) =
        (usage::cpu_s(pid)?, usage::interface_bytes(&cluster.host, "lan")?, asked()?);
    let rate = |from: f64, to: f64| (to - from) / passed;
    row.figure("controller_cpu_percent", 100.0 * rate(cpu, cpu_later))
        .figure("controller_mib", usage::resident_mib(pid)?)
        .figure("to_controller_bytes_per_node_s", rate(bytes.0, bytes_later.0) / nodes as f64)
        .figure("to_node_bytes_per_node_s", rate(bytes.1, bytes_later.1) / nodes as f64);
    if store == "etcd" {
        let all = rate(before.all, after.all);
        row.figure("etcd_operations_s", all)
            .figure("etcd_writes_s", rate(before.transactions, after.transactions))
            .figure("etcd_operations_per_node_s", all / nodes as f64);
    }
    Ok(())
}
