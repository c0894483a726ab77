//! The program in the kernel and the same C on the host, over tables written by hand. The kernel's
//! needs root, or CAP_BPF with CAP_NET_ADMIN and CAP_PERFMON; without, each test says so and goes
//! on with the host's alone.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use common::{CAPACITY, TCP, Tables, UDP, XDP_DROP, XDP_PASS, XDP_TX, address, loaded};
use equipoise_packet::abi::{
    BACKEND_LIVE, BACKEND_REACHABLE, Backend, EventKind, Forward, How, Service,
};
use equipoise_packet::config::FlowsConfig;
use equipoise_packet::{
    Capacity, CpuMemory, Digest, Entry, FlowTags, KeyBytes, Limits, Memory, Program, Reason,
    TranslatedFlows,
};
use equipoise_packet_host::HostProgram;
use equipoise_pog::{FiveTupleV4, Seed};
use libbpf_rs::MapCore;

const VIP: [u8; 4] = [198, 51, 100, 1];
const CLIENT: [u8; 4] = [192, 0, 2, 1];

/// An Ethernet frame of IPv4 with a transport header of 20 bytes and nothing else.
fn frame(protocol: u8, source_port: u16, destination_port: u16, tcp_flags: u8) -> Vec<u8> {
    let mut frame = vec![0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2, 8, 0];
    frame.extend([0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, protocol, 0, 0]);
    frame.extend(CLIENT);
    frame.extend(VIP);
    frame.extend(source_port.to_be_bytes());
    frame.extend(destination_port.to_be_bytes());
    frame.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, tcp_flags, 0xff, 0xff, 0, 0, 0, 0]);
    frame
}

fn backend(number: u16) -> Backend {
    let (address, family) = address(&format!("10.0.0.{number}"));
    Backend {
        address,
        family,
        flags: BACKEND_LIVE | BACKEND_REACHABLE,
        ifindex: 1,
        destination_mac: [0x02, 0xbb, 0, 0, 0, number as u8],
        source_mac: [0x02, 0xaa, 0, 0, 0, 1],
        mtu: 1500,
        number,
        weight: 1,
        ..Backend::default()
    }
}

/// One TCP and one UDP VIP over two backends by turns of the ring.
fn tables(limits: &Limits) -> Tables {
    let mut tables = Tables::new(limits);
    let service = Service {
        salt: 0x5a17,
        backends_first: 3,
        slots: 2,
        ring: 1,
        ring_len: 251,
        ring_next: 1,
        ring_next_len: 251,
        number: 5,
        forward: Forward::DirectRouting as u8,
        ..Service::default()
    };
    tables.service(2, &service);
    tables.backend(3, &backend(7));
    tables.backend(4, &backend(8));
    let slots: Vec<u16> = (0..251).map(|position| position % 2).collect();
    tables.ring(1, &slots);
    tables.mac(1, [0x02, 0, 0, 0, 0, 1]);
    tables.exact("198.51.100.1", 80, TCP, 2);
    tables.exact("198.51.100.1", 443, UDP, 2);
    tables
}

fn digest(limits: &Limits, protocol: u8, source_port: u16, port: u16) -> Digest {
    let directory = Tables::new(limits).directory;
    let seed = Seed { k0: directory.digest_k0, k1: directory.digest_k1 };
    let tuple = FiveTupleV4::new((CLIENT.into(), source_port), (VIP.into(), port), protocol);
    KeyBytes::V4(tuple).digest(seed, 0x5a17)
}

/// The ring's slot of a digest.
fn ring_slot(digest: Digest) -> u16 {
    (((digest.0 >> 32) * 251) >> 32) as u16 % 2
}

type Runner<'a> = Box<dyn FnMut(&[u8]) -> (u32, Vec<u8>) + 'a>;

/// The host's program, and the kernel's if that is permitted, each over memory of its own.
fn with_both(tables: &Tables, test: impl Fn(&str, &Memory, Runner<'_>)) {
    let limits = Limits::new(&CAPACITY);
    let memory = Memory::anonymous(&limits).unwrap();
    tables.publish(&memory, &CAPACITY);
    let mut host = HostProgram::new(&memory, &limits);
    test("host", &memory, Box::new(|packet| host.run(0, 1, packet)));
    let Some(mut program) = loaded(&limits) else { return };
    let memory = program.memory().clone();
    tables.publish(&memory, &CAPACITY);
    let run = |packet: &[u8]| {
        let run = program.run(packet, 1).unwrap();
        (run.verdict, run.packet)
    };
    test("kernel", &memory, Box::new(run));
}

fn sum(memory: &Memory, of: impl Fn(&equipoise_packet::CpuMemory) -> u64) -> u64 {
    memory.cpus.iter().map(of).sum()
}

fn reasons(memory: &Memory, service: Option<usize>, reason: Reason) -> u64 {
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    sum(memory, |cpu| cpu.reasons(service)[reason as usize].load(relaxed))
}

#[test]
fn packets_pass_until_tables_are_published() {
    let limits = Limits::new(&Capacity::default());
    let packets = [frame(TCP, 1, 80, 0x10), frame(UDP, 1, 443, 0), vec![0; 14]];
    let memory = Memory::anonymous(&limits).unwrap();
    let mut host = HostProgram::new(&memory, &limits);
    for packet in &packets {
        assert_eq!(host.run(0, 1, packet), (XDP_PASS, packet.clone()));
    }
    let Some(mut program) = loaded(&limits) else { return };
    for packet in &packets {
        let run = program.run(packet, 1).unwrap();
        assert_eq!((run.verdict, &run.packet), (XDP_PASS, packet));
    }
    assert_eq!(Entry::ALL.len(), program.object().progs().count(), "every program has an entry");
}

#[test]
fn packets_are_sent_to_the_rings_backend_with_its_mac_addresses() {
    let limits = Limits::new(&CAPACITY);
    with_both(&tables(&limits), |which, memory, mut run| {
        for source_port in 1..50 {
            for (protocol, port) in [(TCP, 80), (UDP, 443)] {
                let packet = frame(protocol, source_port, port, 0x10);
                let slot = ring_slot(digest(&limits, protocol, source_port, port));
                let mut expected = packet.clone();
                let backend = backend(7 + slot);
                expected[..6].copy_from_slice(&backend.destination_mac);
                expected[6..12].copy_from_slice(&backend.source_mac);
                assert_eq!(run(&packet), (XDP_TX, expected), "{which} {protocol} {source_port}");
            }
        }
        assert_eq!(sum(memory, |cpu| cpu.service(5)[0]), 98, "{which}");
        assert_eq!(sum(memory, |cpu| cpu.service(5)[1]), 98 * 54, "{which}");
        let by_backend = [7, 8].map(|number| sum(memory, |cpu| cpu.backend(number)[0]));
        assert_eq!(by_backend.iter().sum::<u64>(), 98, "{which}");
        let mut seen = Vec::new();
        memory.cpus.iter().for_each(|cpu| {
            cpu.drain(|event| seen.push(event));
        });
        assert_eq!(seen.len(), 98, "{which}: each flow is told of once");
        for event in seen {
            assert_eq!((event.service, event.kind), (5, EventKind::Touch as u8));
            assert_eq!((event.slot, event.how), (ring_slot(Digest(event.digest)), How::Ring as u8));
        }
    });
}

#[test]
fn a_flow_is_logged_once_per_interval_and_when_it_ends() {
    let limits = Limits::new(&CAPACITY);
    with_both(&tables(&limits), |which, memory, mut run| {
        let ack = frame(TCP, 9, 80, 0x10);
        let kinds = [
            (frame(TCP, 9, 80, 0x02), None),
            (ack.clone(), Some(EventKind::Touch)),
            (ack.clone(), None),
            (frame(TCP, 9, 80, 0x11), Some(EventKind::Fin)),
            (ack.clone(), Some(EventKind::Touch)),
            (frame(TCP, 9, 80, 0x04), Some(EventKind::Rst)),
            (ack.clone(), Some(EventKind::Touch)),
            (ack, None),
        ];
        for (step, (packet, kind)) in kinds.iter().enumerate() {
            // Or it would be looked up only with another 31 packets.
            memory.cpus.iter().for_each(CpuMemory::look_up_next);
            run(packet);
            let mut seen = Vec::new();
            memory.cpus.iter().for_each(|cpu| {
                cpu.drain_log(|event| seen.push(event.kind));
            });
            assert_eq!(seen, Vec::from_iter(kind.map(|kind| kind as u8)), "{which} step {step}");
        }
    });
}

#[test]
fn a_pinned_flow_is_sent_to_its_pinned_backend() {
    let limits = Limits::new(&CAPACITY);
    let mut tables = tables(&limits);
    for source_port in 1..100 {
        let flow = digest(&limits, TCP, source_port, 80);
        tables.pins.push((flow, 1 - ring_slot(flow)));
    }
    with_both(&tables, |which, memory, mut run| {
        for source_port in 1..100 {
            let (verdict, packet) = run(&frame(TCP, source_port, 80, 0x10));
            let slot = 1 - ring_slot(digest(&limits, TCP, source_port, 80));
            assert_eq!((verdict, packet[5]), (XDP_TX, 7 + slot as u8), "{which} {source_port}");
        }
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        assert_eq!(sum(memory, |cpu| cpu.hows(5)[How::Pin as usize].load(relaxed)), 99, "{which}");
    });
}

#[test]
fn foreign_packets_pass_and_undeliverable_packets_are_counted() {
    let limits = Limits::new(&CAPACITY);
    let mut tables = tables(&limits);
    let service = Service { slots: 2, number: 6, forward: 4, ..Service::default() };
    tables.service(3, &service);
    tables.exact("198.51.100.1", 81, TCP, 3);
    with_both(&tables, |which, memory, mut run| {
        let mut elsewhere = frame(TCP, 1, 80, 0x10);
        elsewhere[33] = 99;
        let other_port = frame(TCP, 1, 22, 0x10);
        for packet in [elsewhere, other_port] {
            assert_eq!(run(&packet), (XDP_PASS, packet), "{which}");
        }
        assert_eq!(run(&frame(TCP, 1, 81, 0x10)).0, XDP_DROP, "{which}");
        assert_eq!(reasons(memory, Some(6), Reason::NoBackend), 1, "{which}");
        let mut short = frame(TCP, 1, 80, 0x10);
        short.truncate(53);
        short[17] = 39;
        assert_eq!(run(&short).0, XDP_DROP, "{which}");
        assert_eq!(reasons(memory, Some(5), Reason::HeaderShort), 1, "{which}");
    });
}

#[test]
fn nat_gets_memory_for_its_flows_while_the_program_runs() {
    let limits = Limits::new(&CAPACITY);
    let mut tables = tables(&limits);
    let nat = Service {
        backends_first: 3,
        slots: 2,
        ring: 1,
        ring_len: 251,
        number: 6,
        forward: Forward::Nat as u8,
        ..Service::default()
    };
    tables.service(3, &nat);
    tables.exact("198.51.100.1", 81, TCP, 3);
    let Some(mut program) = loaded(&limits) else { return };
    let memory = program.memory().clone();
    tables.publish(&memory, &CAPACITY);
    let sizes = program.map_bytes();
    let send = |program: &mut Program, source_port| {
        let run = program.run(&frame(TCP, source_port, 81, 0x10), 1).unwrap();
        assert_eq!((run.verdict, &run.packet[30..33]), (XDP_TX, &[10, 0, 0][..]));
        reasons(&memory, Some(6), Reason::RepliesFull)
    };
    assert_eq!(send(&mut program, 1), 1, "without memory, the flow is forwarded and noted");
    assert!(!program.translates() && memory.translated.words().is_empty());
    program.translate(TranslatedFlows::create(&limits).unwrap()).unwrap();
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    let recorded = || memory.translated.words().iter().filter(|it| it.load(relaxed) != 0).count();
    assert_eq!((send(&mut program, 1), recorded()), (1, 1));
    assert_eq!((send(&mut program, 2), recorded()), (1, 2));
    assert_eq!(send(&mut program, 2), 1);
    assert_eq!(program.map_bytes() - sizes, memory.translated.words().len() * 8);
}

/// Bytes of the maps of a program, by name, as the kernel accounts for them. `None`: it may not be
/// loaded.
fn kernel_bytes(capacity: &Capacity) -> Option<BTreeMap<String, usize>> {
    let program = loaded(&Limits::new(capacity))?;
    let maps = program.object().maps();
    let named = maps.map(|map| {
        let bytes = kernel_number(map.as_fd(), "memlock:");
        (map.name().to_string_lossy().into_owned(), bytes)
    });
    Some(named.collect())
}

/// A number that the kernel states of a descriptor.
fn kernel_number(fd: BorrowedFd<'_>, what: &str) -> usize {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(what));
    line.unwrap().trim().parse().unwrap()
}

/// Linux refuses a program of which its verifier processes more than a million instructions. How
/// many it processes differs by the kernel.
#[test]
fn programs_are_far_from_the_limit_of_the_verifier() {
    let Some(program) = loaded(&Limits::new(&CAPACITY)) else { return };
    for entry in Entry::ALL {
        let processed = kernel_number(program.entry_fd(*entry), "verified_insns:");
        println!("{}: {processed}", entry.name());
        assert!(processed < 700_000, "{}: {processed}", entry.name());
    }
}

/// The figures of docs/packet.md, for room for 8 VIPs on one CPU.
#[test]
fn a_million_flows_fit_in_the_documented_kernel_memory() {
    for (tags, most_mib) in [(FlowTags::Long, 27), (FlowTags::Short, 23)] {
        let flows = FlowsConfig { tags, vips_max: 8, ..FlowsConfig::default() };
        let Some(maps) = kernel_bytes(&flows.capacity(1, false)) else { return };
        println!("{tags:?}: {maps:#?}");
        let bytes: usize = maps.values().sum();
        assert!(bytes <= most_mib << 20, "{bytes} bytes in {maps:?}");
    }
}

/// Not a benchmark: says what a run costs here. `cargo test --release -- --ignored --nocapture`
#[test]
#[ignore = "prints a time"]
fn direct_routing_time_per_packet_is_printed() {
    let capacity = Capacity { cpus: 64, ..Capacity::default() };
    let limits = Limits::new(&capacity);
    let Some(mut program) = loaded(&limits) else { return };
    tables(&limits).publish(&program.memory().clone(), &capacity);
    let time = |program: &mut Program, packet: &[u8]| {
        let mut times: Vec<_> =
            (0..9).map(|_| program.run(packet, 1_000_000).unwrap().duration).collect();
        times.sort();
        times[4]
    };
    println!("forwarded {:?}", time(&mut program, &frame(TCP, 1, 80, 0x10)));
    let mut other = frame(TCP, 1, 80, 0x10);
    other[13] = 1;
    println!("not IP {:?}", time(&mut program, &other));
}
