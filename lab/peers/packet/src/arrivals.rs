//! First packets of flows, and floods, by our program and the Katran-style one.

use anyhow::{Result, bail, ensure};
use equipoise_lab_runner::{Case, Row, measure};
use equipoise_packet::abi::Forward;

use crate::bench;
use crate::contender::Contender;
use crate::driver::{Driver, Strangers};
use crate::equipoise::Equipoise;
use crate::katran_style::{KatranStyle, Method, Size};
use crate::network::stay_on;
use crate::tables::Plan;
use crate::time::{BACKENDS, CPU, LOOPBACK, VIPS_ROOM, lru_for};
use crate::traffic::{Family, TCP_ACK, TCP_SYN, Traffic};

/// Packets of a timed batch: about as many as arrive between two looks of userspace.
const PACKETS: u32 = 1 << 20;
/// Events that the log of a CPU holds.
const LOG: u32 = 1 << 15;

/// The packets of a case.
struct Arrivals {
    strangers: Strangers,
    /// The Katran-style program records all new flows, as it does below its limit of them.
    unlimited: bool,
    /// Packets between two looks of userspace.
    step: u32,
}

/// Nine of ten packets.
const FLOOD: u32 = 65_536 * 9 / 10;

fn arrivals(kind: &str) -> Result<Arrivals> {
    let (share, tcp_flags, unlimited, step) = match kind {
        "SYNs" => (65_536, TCP_SYN, true, PACKETS),
        "first packets" => (65_536, TCP_ACK, true, LOG),
        "SYN flood" => (FLOOD, TCP_SYN, false, PACKETS),
        "flood of no flow" => (FLOOD, TCP_ACK, false, PACKETS),
        other => bail!("packets {other}: not one of the four kinds"),
    };
    Ok(Arrivals { strangers: Strangers { share, tcp_flags }, unlimited, step })
}

pub(crate) fn measure(case: &Case, row: &mut Row, seed: u64, repetitions: usize) -> Result<()> {
    let traffic = Traffic { family: Family::V4, flows: case.count("flows")? as u32, vips: 1 };
    let arrivals = arrivals(case.word("packets")?)?;
    stay_on(None, CPU)?;
    let mut driver = Driver::load(traffic)?;
    let mut katran = Vec::new();
    for method in [Method::Tunnel, Method::Direct] {
        let size = Size { lru: lru_for(traffic.flows), vips: VIPS_ROOM, backends: BACKENDS };
        let mut one = KatranStyle::load(&traffic, size, CPU as u32, method)?;
        one.set_filling(true)?;
        driver.introduce(&mut one)?;
        one.set_filling(arrivals.unlimited)?;
        katran.push(one);
    }
    let mut ours = Vec::new();
    for (name, forward) in [
        ("direct", Forward::DirectRouting),
        ("tunnel", Forward::Tunnel),
        ("nat", Forward::Nat),
        ("full_nat", Forward::FullNat),
    ] {
        let (backends, ifindex) = (BACKENDS, LOOPBACK);
        let (pinned, sample_every, replaced) = (false, 0, None);
        let tables =
            Plan { forward, backends, pinned, ifindex, sample_every, replaced, own_rings: false };
        let mut balancer = Equipoise::load(name, &traffic, tables, 1)?;
        driver.introduce(&mut balancer)?;
        bench::check(&mut driver, &balancer, &traffic)?;
        ours.push(balancer);
    }
    driver.set_strangers(Some(arrivals.strangers))?;
    let mut contenders: Vec<&mut dyn Contender> = Vec::new();
    contenders.extend(katran.iter_mut().map(|one| one as &mut dyn Contender));
    contenders.extend(ours.iter_mut().map(|one| one as &mut dyn Contender));
    let plan =
        bench::Plan { step: arrivals.step, ..bench::Plan::even(seed, 3 * repetitions, PACKETS) };
    let times = bench::time(&mut driver, &mut contenders, &plan)?;
    row.figure("nothing_ns", measure::median(&times.nothing));
    let names: Vec<_> = contenders.iter().map(|one| one.name().to_string()).collect();
    for (at, name) in names.iter().enumerate() {
        row.figure(&format!("{name}_ns"), times.median(at));
    }
    let of = |name: &str| names.iter().position(|one| one == name);
    for (one, other, column) in [
        ("tunnel", "katran_tunnel", "tunnel_over_katran"),
        ("direct", "katran_direct", "direct_over_katran"),
        ("nat", "katran_tunnel", "nat_over_katran"),
        ("full_nat", "nat", "full_nat_over_nat"),
    ] {
        if let (Some(one), Some(other)) = (of(one), of(other)) {
            row.figure(column, measure::ratio(&times.net[one], &times.net[other]));
        }
    }
    for (name, part) in names.iter().zip(&times.new_flows) {
        row.figure(&format!("{name}_new_flows"), *part);
    }
    for contender in &contenders {
        let (name, counters) = (contender.name(), contender.counters()?);
        ensure!(
            counters.backends == usize::from(BACKENDS),
            "{name} used {} backends",
            counters.backends
        );
    }
    Ok(())
}
