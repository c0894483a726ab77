//! Packets a second over veth, program by program.

use anyhow::{Result, bail};
use equipoise_lab_runner::{Case, Row, measure};
use equipoise_packet::abi::Forward;

use crate::contender::Contender;
use crate::driver::{Driver, Order};
use crate::equipoise::Equipoise;
use crate::katran_style::{KatranStyle, Method, Size};
use crate::network::stay_on;
use crate::tables::Plan;
use crate::time::{BACKENDS, VIPS_ROOM, lru_for};
use crate::traffic::{Family, Traffic};
use crate::wire::{Place, Rate, Wire};

/// Packets of a measurement: a second or so.
const PACKETS: u32 = 1 << 21;

pub(crate) fn measure(case: &Case, row: &mut Row, seed: u64, repetitions: usize) -> Result<()> {
    let flows = case.count("flows")? as u32;
    let traffic = Traffic { family: Family::V4, flows, vips: 1 };
    let mut driver = Driver::load(traffic)?;
    let place = match case.word("balancer")? {
        "same CPU" => Place::SameCpu,
        "own CPU" => Place::OwnCpu,
        other => bail!("balancer = {other}: same CPU or own CPU"),
    };
    let (cpu, cpus) = (place.balancer_cpu() as u32, place.balancer_cpu() as u32 + 1);
    let mut wire = Wire::make(place)?;
    // The flows get known on the CPU that balances: Katran's LRU is that CPU's.
    stay_on(None, place.balancer_cpu())?;
    let mut contenders: Vec<Box<dyn Contender>> = Vec::new();
    let size = Size { lru: lru_for(flows), vips: VIPS_ROOM, backends: BACKENDS };
    for method in [Method::Tunnel, Method::Direct] {
        let mut katran = KatranStyle::load(&traffic, size, cpu, method)?;
        katran.set_filling(true)?;
        driver.introduce(&mut katran)?;
        katran.set_filling(false)?;
        contenders.push(Box::new(katran));
    }
    let methods = [("tunnel", Forward::Tunnel), ("direct", Forward::DirectRouting)];
    for (name, forward) in methods {
        // Back by the interface that they came by: XDP_TX, as the Katran-style program does.
        let ifindex = wire.network.balancer.ifindex;
        let (backends, pinned, sample_every) = (BACKENDS, false, 64);
        let plan = Plan {
            forward,
            backends,
            pinned,
            ifindex,
            sample_every,
            replaced: None,
            own_rings: false,
        };
        let mut balancer = Equipoise::load(name, &traffic, plan, cpus)?;
        driver.introduce(&mut balancer)?;
        contenders.push(Box::new(balancer));
    }

    let mut rates: Vec<Vec<Rate>> = vec![Vec::new(); contenders.len()];
    for repetition in 0..repetitions {
        for (at, contender) in contenders.iter_mut().enumerate() {
            wire.balance_by(contender.program())?;
            let order = Order::Random { seed: seed ^ (repetition as u64) << 32 };
            wire.send(&mut driver, &mut **contender, order, PACKETS / 4)?;
            rates[at].push(wire.send(&mut driver, &mut **contender, order, PACKETS)?);
        }
    }
    let figures = |rates: &[Rate], of: fn(&Rate) -> f64| rates.iter().map(of).collect::<Vec<_>>();
    let received: Vec<_> =
        rates.iter().map(|rates| figures(rates, |rate| rate.received_per_second)).collect();
    for (at, contender) in contenders.iter().enumerate() {
        let name = contender.name();
        row.figure(&format!("{name}_mpps"), measure::median(&received[at]) / 1e6);
        let sent = figures(&rates[at], |rate| rate.sent_per_second);
        row.figure(&format!("{name}_sent_mpps"), measure::median(&sent) / 1e6);
        let busy = figures(&rates[at], |rate| rate.balancer_busy);
        if place == Place::OwnCpu {
            row.figure(&format!("{name}_busy"), measure::median(&busy));
        }
    }
    row.figure("tunnel_over_katran", measure::ratio(&received[2], &received[0]))
        .figure("direct_over_katran", measure::ratio(&received[3], &received[1]));
    Ok(())
}
