//! Nanoseconds a packet: our program by each method, with and without pins, and the Katran-style
//! one.

use anyhow::{Result, bail, ensure};
use equipoise_lab_runner::{Case, Row, measure};
use equipoise_packet::Capacity;
use equipoise_packet::abi::Forward;

use crate::bench::{self, Times};
use crate::contender::Contender;
use crate::driver::Driver;
use crate::equipoise::Equipoise;
use crate::katran_style::{KatranStyle, Method, Size};
use crate::network::stay_on;
use crate::skew::Zipf;
use crate::tables::Plan;
use crate::traffic::{Family, Traffic};

/// The CPU that everything runs on.
pub(crate) const CPU: usize = 0;
pub(crate) const BACKENDS: u16 = 64;
/// VIPs that there is room for in either program.
pub(crate) const VIPS_ROOM: u32 = 8;
/// The loopback interface: what a test run's packets come by.
pub(crate) const LOOPBACK: u32 = 1;
/// Packets for each sample of `elephants`, as by default.
const SAMPLE_EVERY: u32 = 64;
/// Packets of a timed batch.
const PACKETS: u32 = 1 << 20;
const PACKETS_QUICK: u32 = 1 << 18;

/// Entries of an LRU that is to keep that many flows: a quarter more, or it evicts some of them.
pub(crate) fn lru_for(flows: u32) -> u32 {
    flows + flows / 4
}

/// The experiment; remembers its first case, which growth is measured from.
pub(crate) struct Time {
    seed: u64,
    batches: usize,
    packets: u32,
    first: Option<[f64; 2]>,
}

/// Two contenders by their columns, and the column of their ratio.
const RATIOS: [(&str, &str, &str); 8] = [
    ("direct", "katran_direct", "direct_over_katran"),
    ("tunnel", "katran_tunnel", "tunnel_over_katran"),
    ("nat", "katran_tunnel", "nat_over_katran"),
    ("full_nat", "nat", "full_nat_over_nat"),
    ("pinned_direct", "katran_direct", "pinned_direct_over_katran"),
    ("pinned_tunnel", "katran_tunnel", "pinned_tunnel_over_katran"),
    ("katran_direct", "katran_tunnel", "katran_direct_over_tunnel"),
    ("elephants", "direct", "elephants_over_direct"),
];

impl Time {
    pub(crate) fn new(seed: u64, repetitions: usize, quick: bool) -> Time {
        let packets = if quick { PACKETS_QUICK } else { PACKETS };
        // Three batches for each of the runner's repetitions: they take a second or less.
        Time { seed, batches: 3 * repetitions, packets, first: None }
    }

    pub(crate) fn measure(&mut self, case: &Case, row: &mut Row) -> Result<()> {
        let family = match case.word("family")? {
            "v4" => Family::V4,
            "v6" => Family::V6,
            other => bail!("family {other}: v4 or v6"),
        };
        let flows = case.count("flows")? as u32;
        let traffic = Traffic { family, flows, vips: case.count("vips")? as u32 };
        stay_on(None, CPU)?;
        let mut driver = Driver::load(traffic)?;
        let mut plan = bench::Plan::even(self.seed, self.batches, self.packets);
        match case.word("packets")? {
            "back to back" => {}
            "apart" => driver.set_apart(true)?,
            "skewed" => plan.zipf = Some(Zipf::new(flows)),
            other => bail!("packets {other}: back to back, apart or skewed"),
        }

        let mut katran = self.katran(&mut driver, &traffic)?;
        let mut ours = Vec::new();
        for (name, forward, pinned, sample_every) in [
            ("direct", Forward::DirectRouting, false, 0),
            ("tunnel", Forward::Tunnel, false, 0),
            ("nat", Forward::Nat, false, 0),
            ("full_nat", Forward::FullNat, false, 0),
            ("pinned_direct", Forward::DirectRouting, true, 0),
            ("pinned_tunnel", Forward::Tunnel, true, 0),
            ("elephants", Forward::DirectRouting, false, SAMPLE_EVERY),
        ] {
            if forward == Forward::FullNat && flows > Capacity::FULL_NAT_FLOWS_MAX {
                continue;
            }
            let (backends, ifindex) = (BACKENDS, LOOPBACK);
            let (replaced, own_rings) = (None, false);
            let tables =
                Plan { forward, backends, pinned, ifindex, sample_every, replaced, own_rings };
            ours.push(ready(&mut driver, name, &traffic, tables)?);
            if name == "direct" && traffic.vips > 1 {
                let own = Plan { own_rings: true, ..tables };
                ours.push(ready(&mut driver, "own_rings", &traffic, own)?);
                let traffic = Traffic { vips: 1, ..traffic };
                ours.push(ready(&mut driver, "one_vip", &traffic, tables)?);
            }
        }
        let mut contenders: Vec<&mut dyn Contender> = Vec::new();
        contenders.extend(katran.iter_mut().map(|one| one as &mut dyn Contender));
        contenders.extend(ours.iter_mut().map(|one| one as &mut dyn Contender));
        let times = bench::time(&mut driver, &mut contenders, &plan)?;
        for contender in &contenders {
            expect_counters(&**contender, flows)?;
        }
        let names: Vec<_> = contenders.iter().map(|one| one.name().to_string()).collect();
        self.report(row, &names, &times);
        Ok(())
    }

    /// Both methods of the Katran-style program, each with an LRU that knows all flows.
    fn katran(&self, driver: &mut Driver, traffic: &Traffic) -> Result<Vec<KatranStyle>> {
        let size = Size {
            lru: lru_for(traffic.flows),
            vips: VIPS_ROOM.max(traffic.vips),
            backends: BACKENDS,
        };
        let mut both = Vec::new();
        for method in [Method::Tunnel, Method::Direct] {
            let mut katran = KatranStyle::load(traffic, size, CPU as u32, method)?;
            katran.set_filling(true)?;
            driver.introduce(&mut katran)?;
            katran.set_filling(false)?;
            bench::check(driver, &katran, traffic)?;
            both.push(katran);
        }
        Ok(both)
    }

    fn report(&mut self, row: &mut Row, names: &[String], times: &Times) {
        row.figure("nothing_ns", measure::median(&times.nothing));
        for (at, name) in names.iter().enumerate() {
            row.figure(&format!("{name}_ns"), times.median(at));
        }
        let of = |name: &str| names.iter().position(|one| one == name);
        for (one, other, column) in RATIOS {
            if let (Some(one), Some(other)) = (of(one), of(other)) {
                row.figure(column, measure::ratio(&times.net[one], &times.net[other]));
            }
        }
        if let (Some(one), Some(other)) = (of("direct"), of("one_vip")) {
            row.figure("vips_more_ns", times.more(one, other));
        }
        if let (Some(one), Some(other)) = (of("own_rings"), of("one_vip")) {
            row.figure("own_rings_more_ns", times.more(one, other));
        }
        let now = ["direct_ns", "tunnel_ns"].map(|name| row.number(name).unwrap_or(f64::NAN));
        let first = *self.first.get_or_insert(now);
        row.figure("direct_growth", now[0] / first[0]).figure("tunnel_growth", now[1] / first[1]);
        for (name, part) in names.iter().zip(&times.new_flows) {
            row.figure(&format!("{name}_new_flows"), *part);
        }
    }
}

/// Our program, which knows its flows.
fn ready(
    driver: &mut Driver,
    name: &'static str,
    traffic: &Traffic,
    tables: Plan,
) -> Result<Equipoise> {
    let mut balancer = Equipoise::load(name, traffic, tables, 1)?;
    driver.introduce(&mut balancer)?;
    bench::check(driver, &balancer, traffic)?;
    Ok(balancer)
}

/// Every backend got packets, and the flows were known as they should be.
fn expect_counters(contender: &dyn Contender, flows: u32) -> Result<()> {
    let (name, counters) = (contender.name(), contender.counters()?);
    ensure!(
        counters.backends == usize::from(BACKENDS),
        "{name} used {} backends",
        counters.backends
    );
    let known = counters.recorded as f64 / counters.forwarded as f64;
    let expected = match name {
        // All but the first packet of each flow.
        _ if name.starts_with("katran") => 1.0 - f64::from(flows) / counters.forwarded as f64,
        _ if name.starts_with("pinned") => 1.0,
        // A foreign flow is taken for pinned with probability slots / 2^16; no flow is pinned here.
        _ => 0.0,
    };
    ensure!((known - expected).abs() < 0.002, "{name} knew {known} of its packets, not {expected}");
    Ok(())
}
