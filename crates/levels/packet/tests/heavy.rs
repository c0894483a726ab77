//! The flows with the most bytes by the program's sketches, against exact counts of Zipf traffic.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "control/world.rs"]
#[allow(dead_code, reason = "each test uses a part")]
mod world;

use std::collections::HashMap;
use std::time::Duration;

use equipoise_packet::control::{Elephants, FlowId};
use equipoise_packet::{Capacity, FlowScheduler};
use world::{World, backend, capacity, client_of, settings, tcp, vip};

const BACKENDS: [u16; 4] = [1, 2, 3, 4];
const FLOWS: u32 = 20_000;
const PACKETS: u32 = 400_000;
/// Bytes of each packet of the world.
const FRAME_BYTES: u64 = 60;
const ACK: u8 = world::ACK;
const WINDOW: Duration = Duration::from_secs(11);

/// Draws clients by Zipf's law with exponent 1.1: client `n` with a probability of about n^-1.1.
struct Zipf {
    sums: Vec<f64>,
    state: u64,
}

impl Zipf {
    fn new(clients: u32) -> Zipf {
        let weights = (1..=clients).map(|rank| f64::from(rank).powf(-1.1));
        let sums = weights.scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        Zipf { sums: sums.collect(), state: 7 }
    }

    fn next(&mut self) -> u32 {
        // splitmix64
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.state;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let uniform = ((x ^ x >> 31) >> 11) as f64 / (1_u64 << 53) as f64;
        let at = uniform * self.sums[self.sums.len() - 1];
        self.sums.partition_point(|sum| *sum < at) as u32
    }
}

/// Runs a window. Returns its result, and the bytes sent by client and by backend.
fn window(sample_every: u32) -> (Elephants, HashMap<u32, u64>, HashMap<u16, u64>) {
    let capacity = Capacity { sample_every, flows: 40_000, ..capacity() };
    let mut world = World::new(1, capacity, settings());
    world.apply(vec![vip(1, FlowScheduler::Maglev, &BACKENDS)]);
    world.settle();
    // The first complete window begins here.
    world.run(WINDOW);
    let (mut clients, mut backends) = (HashMap::new(), HashMap::new());
    let mut zipf = Zipf::new(FLOWS);
    for _ in 0..PACKETS {
        let client = zipf.next();
        let to = world.send(tcp(1, client, ACK)).unwrap();
        *clients.entry(client).or_default() += FRAME_BYTES;
        *backends.entry(to).or_default() += FRAME_BYTES;
    }
    world.run(WINDOW);
    (world.control().heavy_traffic().unwrap().clone(), clients, backends)
}

fn client_number(flow: &FlowId) -> u32 {
    let FlowId::FiveTuple(client, _) = flow else { panic!("{flow:?}") };
    let std::net::IpAddr::V4(address) = client.ip() else { panic!("{flow:?}") };
    let number = (u32::from(address) - 0x0b00_0000) * 64 + u32::from(client.port() - 1024);
    assert_eq!(client_of(number), (address, client.port()));
    number
}

fn exact_ranks(clients: &HashMap<u32, u64>) -> Vec<(u32, u64)> {
    let mut ranks: Vec<_> = clients.iter().map(|(client, bytes)| (*client, *bytes)).collect();
    ranks.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    ranks
}

/// Every packet is sampled, so that only the sketch errs: at most by e / 2048 of the bytes of a
/// CPU's window, for all but e^-4 of the flows, and never below.
#[test]
fn estimates_of_every_packet_are_within_the_bound_of_the_sketch() {
    let (traffic, clients, _) = window(1);
    let total: u64 = clients.values().sum();
    let bound = (std::f64::consts::E / 2048.0 * total as f64) as u64;
    let mut above = 0;
    for flow in &traffic.flows {
        let exact = clients[&client_number(&flow.flow)];
        assert!(flow.bytes >= exact, "{flow:?}: {exact} bytes were sent");
        above += usize::from(flow.bytes > exact + bound);
    }
    assert!(above <= 2, "{above} of {} flows are above the bound", traffic.flows.len());
    // The largest flows are listed, in their order.
    let listed: Vec<_> = traffic.flows.iter().map(|flow| client_number(&flow.flow)).collect();
    let ranks: Vec<_> = exact_ranks(&clients).iter().map(|(client, _)| *client).collect();
    assert_eq!(listed[..8], ranks[..8]);
    assert!(ranks[..32].iter().all(|client| listed.contains(client)), "{listed:?} {ranks:?}");
}

/// A flow of share p of n packets has p n / 64 samples, so a standard error of sqrt(64 / (p n)).
#[test]
fn one_sample_in_64_packets_finds_the_elephants_and_the_load_that_they_are() {
    const EVERY: u32 = 64;
    let (traffic, clients, backends) = window(EVERY);
    assert_eq!(traffic.sample_every, EVERY);
    let total: u64 = clients.values().sum();
    let sketch = (std::f64::consts::E / 2048.0 * total as f64) as u64;
    let estimates: HashMap<_, _> =
        traffic.flows.iter().map(|flow| (client_number(&flow.flow), flow.bytes)).collect();
    for (client, exact) in &exact_ranks(&clients)[..8] {
        let packets = *exact as f64 / FRAME_BYTES as f64;
        // Four standard errors, and the bound of the sketch.
        let bound = (4.0 * (f64::from(EVERY) / packets).sqrt() * *exact as f64) as u64 + sketch;
        let estimate = estimates[client];
        assert!(
            estimate.abs_diff(*exact) <= bound,
            "client {client}: {estimate}, {exact}, {bound}"
        );
        println!("client {client}: {exact} bytes, estimate {estimate}");
    }
    // Hosts' loads: counted exactly, and by the elephants alone.
    let is_at = |client: u32, number: u16| {
        traffic.flows.iter().any(|flow| {
            client_number(&flow.flow) == client
                && flow.backend.map(|it| it.address) == Some(backend(number).address)
        })
    };
    for number in BACKENDS {
        let of = |it: &&equipoise_packet::control::BackendBytes| {
            it.backend.address == backend(number).address
        };
        let load = traffic.backends.iter().find(of).unwrap();
        assert_eq!(load.bytes, backends[&number], "backend {number}");
        let exact: u64 = clients.iter().filter(|(c, _)| is_at(**c, number)).map(|(_, b)| *b).sum();
        println!(
            "backend {number}: {} bytes, {exact} of elephants, estimate {}",
            load.bytes, load.heavy_bytes
        );
        assert!(load.heavy_bytes.abs_diff(exact) <= exact / 5, "backend {number}");
    }
}

#[test]
fn without_samples_there_is_no_estimate() {
    let mut world = World::one_vip(FlowScheduler::Maglev, &BACKENDS);
    for client in 0..100 {
        world.send(tcp(1, client, ACK));
    }
    world.run(3 * WINDOW);
    assert_eq!(world.control().heavy_traffic(), None);
}
