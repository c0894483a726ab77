//! `make soak`: established flows while the balancer's process is paused, its pool changes, and
//! packets with forged sources arrive.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use equipoise_testkit::netns::{Host, SiteShape};
use equipoise_testkit::packet::Ip;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};
use rustix::process::Signal;

use crate::bed::Bed;
use crate::load::{Load, failures};
use crate::method::{IPIP, Service};

const SHAPE: SiteShape = SiteShape { backends: 3, two_arms: false };
/// Connections that last from the first round to the end.
const CONNECTIONS: usize = 48;
/// Longest pause of the balancer's process.
const PAUSE: Duration = Duration::from_secs(2);
/// Interval between two rounds.
const REST: Duration = Duration::from_millis(500);
/// Sources of forged packets: the network for benchmarks (RFC 2544), which is not routed here.
const FORGED: u32 = u32::from_be_bytes([198, 18, 0, 0]);
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// Sends SYN, ACK and UDP packets to a VIP from sources that do not exist.
struct Flood {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Flood {
    fn start(client: &Host, vip: SocketAddr, seed: u64) -> Flood {
        let stop = Arc::new(AtomicBool::new(false));
        let until = stop.clone();
        let thread = client.spawn_thread(move || {
            let raw = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW)).unwrap();
            let (mut rng, mut sent) = (SmallRng::seed_from_u64(seed), 0);
            while !until.load(Relaxed) {
                // The queue of the interface may be full.
                sent += (0..200).filter(|_| send_forged(&raw, vip, &mut rng)).count() as u64;
                std::thread::sleep(Duration::from_millis(10));
            }
            sent
        });
        Flood { stop, thread }
    }

    fn end(self) -> u64 {
        self.stop.store(true, Relaxed);
        self.thread.join().unwrap()
    }
}

fn send_forged(raw: &OwnedFd, vip: SocketAddr, rng: &mut SmallRng) -> bool {
    let IpAddr::V4(address) = vip.ip() else { panic!("{vip} is an IPv4 address") };
    let source = Ipv4Addr::from(FORGED | rng.random_range(1..0x1_ffff));
    let packet = Ip::between(&source.to_string(), &address.to_string());
    let port = rng.random_range(1024..=u16::MAX);
    let packet = match rng.random_range(0..3) {
        0 => packet.tcp(port, vip.port(), SYN, b""),
        1 => packet.tcp(port, vip.port(), ACK, b""),
        _ => packet.udp(port, vip.port(), b"junk"),
    };
    sendto(raw, &packet.bytes(), SendFlags::empty(), &SocketAddrV4::new(address, 0)).is_ok()
}

/// A change of the pool, and the reverse change two rounds later.
fn change(bed: &Bed, round: usize) {
    let drained = format!("{}/backend-1", IPIP.pool(Service::Lines));
    match round % 4 {
        0 => drop(bed.command(&["drain", &drained])),
        2 => drop(bed.command(&["undrain", &drained])),
        turn => {
            let backends: &[usize] = if turn == 1 { &[0, 1] } else { &[0, 1, 2] };
            bed.configure(&IPIP.config_of(Service::Lines, &bed.site, backends, ""));
            bed.command(&["reload"]);
        }
    }
}

#[test]
#[ignore = "takes SOAK_MINUTES: make soak"]
fn pauses_changes_and_floods_move_no_flow() {
    let minutes = std::env::var("SOAK_MINUTES").map_or(1.0, |text| text.parse::<f64>().unwrap());
    let Some(mut bed) = Bed::new("soak", SHAPE) else { return };
    bed.prepare(&[IPIP]);
    bed.configure(&IPIP.config(Service::Lines, &bed.site, ""));
    bed.balance();
    for key in ["net/ipv4/conf/all/rp_filter", "net/ipv4/conf/clients/rp_filter"] {
        bed.site.router.sysctl(key, "0").unwrap();
    }
    bed.site.router.ip("route add blackhole 198.18.0.0/15").unwrap();
    let vip = IPIP.vip(Service::Lines);
    let load = Load::start(&bed.site.client, vip, CONNECTIONS);
    load.wait_for(5);
    let before = load.by_backend();
    assert_eq!(before.len(), SHAPE.backends, "{before:?}");

    let flood = Flood::start(&bed.site.client, vip, 1);
    let end = Instant::now() + Duration::from_secs_f64(60.0 * minutes);
    let mut rounds = 0;
    while Instant::now() < end {
        let balancer = bed.balancer.as_ref().unwrap();
        balancer.signal(Signal::STOP);
        std::thread::sleep(PAUSE * (rounds % 4 + 1) / 4);
        balancer.signal(Signal::CONT);
        change(&bed, rounds as usize);
        load.wait_for(20);
        assert_eq!(failures(&load.met()), [""; 0], "after round {rounds}:\n{}", bed.log());
        rounds += 1;
        println!("round {rounds}: {CONNECTIONS} flows are where they were");
        std::thread::sleep(REST);
    }
    let forged = flood.end();
    assert_eq!(load.by_backend(), before);
    let answers: usize = load.met().iter().map(|met| met.answers).sum();
    assert_eq!(failures(&load.finish()), [""; 0], "{}", bed.log());
    println!(
        "{rounds} pauses and changes, {forged} forged packets, {answers} answers, 0 moved flows"
    );
    assert!(forged > 0, "the flood was sent");
}
