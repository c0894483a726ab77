//! Kernel memory of all maps.

use anyhow::Result;
use equipoise_lab_runner::{Case, Row};
use equipoise_packet::abi::Forward;

use crate::contender::Contender;
use crate::equipoise::Equipoise;
use crate::katran_style::{KatranStyle, Method, Size};
use crate::kernel_memory::allocated_bytes;
use crate::tables::Plan;
use crate::time::{BACKENDS, VIPS_ROOM};
use crate::traffic::{Family, Traffic};

pub(crate) fn measure(case: &Case, row: &mut Row) -> Result<()> {
    let flows = case.count("flows")? as u32;
    let traffic = Traffic { family: Family::V4, flows, vips: 1 };
    let pinned = case.word("pinned")? == "all";
    let plan = Plan {
        forward: Forward::Tunnel,
        backends: BACKENDS,
        pinned,
        ifindex: 1,
        sample_every: 64,
        replaced: None,
        own_rings: false,
    };
    let size = Size { lru: case.count("lru")? as u32, vips: VIPS_ROOM, backends: BACKENDS };
    let katran = taken(|| {
        KatranStyle::load(&traffic, size, 0, Method::Tunnel)
            .map(|one| Box::new(one) as Box<dyn Contender>)
    })?;
    let ours = taken(|| {
        Equipoise::load("tunnel", &traffic, plan, 1).map(|one| Box::new(one) as Box<dyn Contender>)
    })?;
    for (name, taken) in [("katran", &katran), ("equipoise", &ours)] {
        let bytes: u64 = taken.maps.iter().map(|(_, bytes)| bytes).sum();
        row.figure(&format!("{name}_mib"), mib(bytes));
        row.figure(&format!("{name}_mib_seen"), mib(taken.seen));
        for (map, bytes) in &taken.maps {
            row.figure(&format!("{name}_{map}_mib"), mib(*bytes));
        }
    }
    let ratio = |column: &str| {
        row.number(&format!("equipoise_{column}")).zip(row.number(&format!("katran_{column}")))
    };
    if let Some((ours, theirs)) = ratio("mib") {
        row.figure("equipoise_over_katran", ours / theirs);
    }
    Ok(())
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Memory of a loaded program.
struct Taken {
    /// As the kernel accounts for each map.
    maps: Vec<(String, u64)>,
    /// By how much more the kernel has allocated since: about the same.
    seen: u64,
}

fn taken(load: impl FnOnce() -> Result<Box<dyn Contender>>) -> Result<Taken> {
    let before = allocated_bytes()?;
    let contender = load()?;
    let seen = allocated_bytes()?.saturating_sub(before);
    // The random part of a name (of variables: "f00d.rodata") is not the same in each run.
    let name = |name: String| name.rsplit('.').next().unwrap_or_default().to_string();
    let maps = contender.maps()?.into_iter().map(|(of, bytes)| (name(of), bytes)).collect();
    Ok(Taken { maps, seen })
}
