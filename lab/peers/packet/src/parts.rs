//! The cost of parts of our program: beside builds without them.

use anyhow::Result;
use equipoise_lab_runner::{Case, Row};
use equipoise_packet::OBJECT;
use equipoise_packet::abi::Forward;

use crate::bench;
use crate::contender::Contender;
use crate::driver::Driver;
use crate::equipoise::Equipoise;
use crate::network::stay_on;
use crate::tables::Plan;
use crate::time::{BACKENDS, CPU, LOOPBACK};
use crate::traffic::{Family, Traffic};

/// Packets of a timed batch.
const PACKETS: u32 = 1 << 20;

macro_rules! build {
    ($name:literal) => {
        include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".bpf.o"))
    };
}

/// Builds of the program, by column, with the method that they are measured with. The first of a
/// method is the whole program.
const BUILDS: [(&str, Forward, &[u8]); 9] = [
    ("direct", Forward::DirectRouting, OBJECT),
    ("without_station", Forward::DirectRouting, build!("without_station")),
    ("without_lists", Forward::DirectRouting, build!("without_lists")),
    ("without_quic", Forward::DirectRouting, build!("without_quic")),
    ("without_backends", Forward::DirectRouting, build!("without_backends")),
    ("without_four", Forward::DirectRouting, build!("without_four")),
    ("nat", Forward::Nat, OBJECT),
    ("nat_without_sender", Forward::Nat, build!("without_sender")),
    ("nat_sender_each", Forward::Nat, build!("sender_each")),
];

pub(crate) fn measure(case: &Case, row: &mut Row, seed: u64, repetitions: usize) -> Result<()> {
    let traffic = Traffic { family: Family::V4, flows: case.count("flows")? as u32, vips: 1 };
    stay_on(None, CPU)?;
    let mut driver = Driver::load(traffic)?;
    let mut balancers = Vec::new();
    for (name, forward, build) in BUILDS {
        let (backends, ifindex) = (BACKENDS, LOOPBACK);
        let (pinned, sample_every, replaced) = (false, 0, None);
        let tables =
            Plan { forward, backends, pinned, ifindex, sample_every, replaced, own_rings: false };
        let mut balancer = Equipoise::load_build(build, name, &traffic, tables, 1)?;
        driver.introduce(&mut balancer)?;
        bench::check(&mut driver, &balancer, &traffic)?;
        balancers.push(balancer);
    }
    let mut contenders: Vec<&mut dyn Contender> = Vec::new();
    contenders.extend(balancers.iter_mut().map(|one| one as &mut dyn Contender));
    let plan = bench::Plan::even(seed, 3 * repetitions, PACKETS);
    let times = bench::time(&mut driver, &mut contenders, &plan)?;
    for (at, (name, ..)) in BUILDS.iter().enumerate() {
        row.figure(&format!("{name}_ns"), times.median(at));
    }
    for (at, (name, forward, _)) in BUILDS.iter().enumerate() {
        let whole = BUILDS.iter().position(|(_, other, _)| other == forward).unwrap_or(at);
        if whole != at {
            row.figure(&format!("{name}_saves_ns"), times.more(whole, at));
        }
    }
    Ok(())
}
