//! The cost of a second chance, at the balancer and at the backend.

use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use anyhow::{Context, Result, ensure};
use equipoise_lab_runner::{Case, Row, measure};
use equipoise_packet::abi::{DecapsulationConstants, Forward};
use equipoise_packet::decap::Decapsulation;
use libbpf_rs::libbpf_sys as sys;

use crate::bench;
use crate::contender::Contender;
use crate::driver::Driver;
use crate::equipoise::Equipoise;
use crate::network::{INTERFACE, Network, ip, stay_on};
use crate::tables::Plan;
use crate::time::{BACKENDS, CPU, LOOPBACK};
use crate::traffic::{Family, Traffic};

/// Packets of a timed batch at the balancer.
const PACKETS: u32 = 1 << 20;
/// Runs of the backend's program in a batch.
const RUNS: usize = 20_000;
const CONNECTIONS: usize = 400;
const GUE_PORT: u16 = 6080;
const HERE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 17);
const THERE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 18);

pub(crate) fn measure(case: &Case, row: &mut Row, seed: u64, repetitions: usize) -> Result<()> {
    let traffic = Traffic { family: Family::V4, flows: case.count("flows")? as u32, vips: 1 };
    stay_on(None, CPU)?;
    let mut driver = Driver::load(traffic)?;
    let mut balancers = Vec::new();
    for (name, replaced) in [("gue", None), ("tenth", Some(10)), ("all", Some(1))] {
        let (forward, backends, ifindex) = (Forward::Gue, BACKENDS, LOOPBACK);
        let (pinned, sample_every) = (false, 0);
        let plan =
            Plan { forward, backends, pinned, ifindex, sample_every, replaced, own_rings: false };
        let mut balancer = Equipoise::load(name, &traffic, plan, 1)?;
        driver.introduce(&mut balancer)?;
        // Packets of one in ten flows are larger.
        if replaced != Some(10) {
            bench::check(&mut driver, &balancer, &traffic)?;
        }
        balancers.push(balancer);
    }
    let plan = bench::Plan::even(seed, 3 * repetitions, PACKETS);
    let mut contenders: Vec<&mut dyn Contender> = Vec::new();
    contenders.extend(balancers.iter_mut().map(|one| one as &mut dyn Contender));
    let times = bench::time(&mut driver, &mut contenders, &plan)?;
    for (at, name) in ["gue", "tenth", "all"].into_iter().enumerate() {
        row.figure(&format!("{name}_ns"), times.median(at));
    }
    for (at, name) in [(1, "tenth"), (2, "all")] {
        let ratio = measure::ratio(&times.net[at], &times.net[0]);
        row.figure(&format!("{name}_over_gue"), ratio);
    }
    backend(row, repetitions)
}

/// The backend's program beside real connections.
fn backend(row: &mut Row, repetitions: usize) -> Result<()> {
    let network = Network::make()?;
    network.balancer.inside(|| {
        ip(&["link", "set", "lo", "up"])?;
        ip(&["addr", "add", &format!("{HERE}/24"), "dev", INTERFACE])?;
        let there = THERE.to_string();
        ip(&["neigh", "add", &there, "lladdr", "02:00:00:00:00:09", "dev", INTERFACE])?;
        let constants = DecapsulationConstants {
            gue_port: GUE_PORT.to_be_bytes(),
            ..DecapsulationConstants::default()
        };
        let mut program = Decapsulation::with_second_chance(&constants, &[THERE.into()])?;
        program.accept(&[HERE.into()])?;
        program.take_frames(&[[0; 6]])?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let to = listener.local_addr()?;
        let open = || -> Result<_> {
            let client = TcpStream::connect(to)?;
            Ok((client, listener.accept()?.0))
        };
        let connections = (0..CONNECTIONS).map(|_| open()).collect::<Result<Vec<_>>>()?;
        let mut known = Vec::new();
        for (client, _) in &connections {
            let (from, to) = (client.local_addr()?, to);
            let (std::net::SocketAddr::V4(from), std::net::SocketAddr::V4(to)) = (from, to) else {
                continue;
            };
            known.push((from, to));
        }
        let strangers: Vec<_> = known
            .iter()
            .map(|(from, to)| (SocketAddrV4::new(Ipv4Addr::new(127, 0, 9, 9), from.port()), *to))
            .collect();
        let _stats = enable_stats()?;
        let mut figures = [const { Vec::new() }; 3];
        for _ in 0..3 * repetitions {
            let batches = [(&known, false), (&known, true), (&strangers, true)];
            for (figures, (flows, second)) in figures.iter_mut().zip(batches) {
                figures.push(time(&mut program, flows, second)?);
            }
        }
        let counts = program.counts()?;
        let runs = (3 * repetitions * RUNS) as u64;
        ensure!(counts.passed_on.packets == runs, "{counts:?}");
        for (name, figures) in ["plain", "known", "passed_on"].into_iter().zip(&figures) {
            row.figure(&format!("{name}_ns"), measure::median(figures));
        }
        Ok(())
    })
}

/// Nanoseconds a run.
fn time(
    program: &mut Decapsulation,
    flows: &[(SocketAddrV4, SocketAddrV4)],
    second: bool,
) -> Result<f64> {
    let frames: Vec<_> = flows.iter().map(|(from, to)| frame(*from, *to, second)).collect();
    let before = runs(program)?;
    for at in 0..RUNS {
        program.run(&frames[at * 7919 % frames.len()], 1)?;
    }
    let after = runs(program)?;
    ensure!(after.1 - before.1 == RUNS as u64, "{} runs", after.1 - before.1);
    Ok((after.0 - before.0) as f64 / RUNS as f64)
}

/// Nanoseconds and number of all runs.
fn runs(program: &Decapsulation) -> Result<(u64, u64)> {
    let mut info = sys::bpf_prog_info::default();
    let mut bytes = size_of_val(&info) as u32;
    // SAFETY: the kernel writes at most so many bytes, and needs no pointers of a zeroed struct.
    let result = unsafe {
        sys::bpf_obj_get_info_by_fd(
            program.fd().as_raw_fd(),
            (&raw mut info).cast(),
            &raw mut bytes,
        )
    };
    ensure!(result == 0, "the kernel tells of no program: {result}");
    Ok((info.run_time_ns, info.run_cnt))
}

/// The kernel counts the time of programs until this is dropped.
fn enable_stats() -> Result<OwnedFd> {
    // SAFETY: takes a number only, and returns a new file descriptor.
    let fd = unsafe { sys::bpf_enable_stats(sys::BPF_STATS_RUN_TIME) };
    ensure!(fd >= 0, "the kernel counts no times of programs: {fd}");
    // SAFETY: nothing else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    fd.as_fd().try_clone_to_owned().context("keeping it")
}

/// A segment of a flow in GUE, with or without another backend. Checksums are not computed.
fn frame(from: SocketAddrV4, to: SocketAddrV4, second: bool) -> Vec<u8> {
    let header = |bytes: u16, protocol: u8, from: Ipv4Addr, to: Ipv4Addr| {
        let [high, low] = bytes.to_be_bytes();
        let fixed = [0x45, 0, high, low, 0, 0, 0x40, 0, 64, protocol, 0, 0];
        [&fixed[..], &from.octets(), &to.octets()].concat()
    };
    let ports = [from.port(), to.port()].map(u16::to_be_bytes).concat();
    let rest = [0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0];
    let inner = [header(40, 6, *from.ip(), *to.ip()), ports, rest.to_vec()].concat();
    let gue =
        if second { [&[2, 4, 0, 0, 0, 0, 0, 1][..], &THERE.octets()].concat() } else { Vec::new() };
    let payload = [gue, inner].concat();
    let bytes = 8 + payload.len() as u16;
    let udp = [50_000, GUE_PORT, bytes, 0].map(u16::to_be_bytes).concat();
    let balancer = Ipv4Addr::new(172, 16, 3, 4);
    let outer = [header(20 + bytes, 17, balancer, HERE), udp, payload].concat();
    [&[0; 6][..], &[2, 0, 0, 0, 0, 2, 8, 0], &outer].concat()
}
