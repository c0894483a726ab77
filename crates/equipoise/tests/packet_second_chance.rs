//! A second chance with real processes: balancers that exchange nothing, a router that sends
//! connections to another balancer than the one that knows them, and backends that pass on what
//! they do not know.
//!
//! Runs in network namespaces, and so as root. Without root the tests print why they do nothing.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/lines.rs"]
mod lines;

use std::fmt::Write as _;
use std::fs;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use equipoise_netns::{Guest, Host, Site, SiteShape, Switch, unavailable};
use equipoise_testkit::eventually_within;
use rustix::process::Signal;
use serde_json::Value;

use lines::{Session, serve};

const EQUIPOISE: &str = env!("CARGO_BIN_EXE_equipoise");
/// Longest time to wait; a busy machine takes it.
const PATIENCE: Duration = Duration::from_secs(120);
const BACKENDS: usize = 4;
const PORT: u16 = 8080;
const GUE_PORT: u16 = 6080;
const CONNECTIONS: usize = 80;

/// A site with a second balancer, and decapsulation on the backends.
struct Bed {
    site: Site,
    other: Host,
    balancers: Vec<Guest>,
    decapsulation: Vec<Guest>,
    name: String,
    folder: PathBuf,
    v6: bool,
}

impl Bed {
    fn new(test: &str, v6: bool, second_chance: bool) -> Option<Bed> {
        if let Some(why) = unavailable() {
            println!("skipped: {why}");
            return None;
        }
        let site = Site::new(SiteShape { backends: BACKENDS, two_arms: false }).unwrap();
        let other = Host::new("balancer-2").unwrap();
        Switch::on(&site.router, "lan").plug(&other, "eth0").unwrap();
        let prefix = if v6 { 64 } else { 24 };
        other.address("eth0", address(&site, 1, v6), prefix).unwrap();
        other.route("default", site.router_address(v6)).unwrap();
        other.forward().unwrap();
        let all = (0..BACKENDS).map(|it| site.backend_address(it, v6).to_string());
        let all = all.collect::<Vec<_>>().join(",");
        let mut decapsulation = Vec::new();
        for (number, backend) in site.backends.iter().enumerate() {
            backend.hidden_address(Site::vip(1, v6)).unwrap();
            backend.sysctl("net/ipv4/conf/all/rp_filter", "0").unwrap();
            backend.sysctl("net/ipv4/conf/eth0/rp_filter", "0").unwrap();
            let any = if v6 { "::" } else { "0.0.0.0" };
            let any: IpAddr = any.parse().unwrap();
            let listener = backend.enter(|| TcpListener::bind((any, PORT))).unwrap();
            std::thread::spawn(move || serve(&listener, number));
            let source = ["--source", "172.16.0.0/16", "--source6", "100::/64"];
            let mut options = [&["decap", "--interface", "eth0"], &source[..]].concat();
            if second_chance {
                options.extend(["--second-chance", &all]);
            }
            let guest = backend.start(EQUIPOISE, &options).unwrap();
            wait_for(&guest, "ready");
            decapsulation.push(guest);
        }
        let policy = format!("net/ipv{}/fib_multipath_hash_policy", if v6 { 6 } else { 4 });
        site.router.sysctl(&policy, "1").unwrap();
        let name = format!("second-{test}-{}", std::process::id());
        let folder = std::env::temp_dir().join(format!("equipoise-{name}"));
        fs::create_dir_all(&folder).unwrap();
        Some(Bed { site, other, balancers: Vec::new(), decapsulation, name, folder, v6 })
    }

    fn socket(&self, balancer: usize) -> String {
        self.folder.join(format!("api-{balancer}.sock")).display().to_string()
    }

    fn file(&self, balancer: usize) -> String {
        self.folder.join(format!("{balancer}.toml")).display().to_string()
    }

    /// Writes the files of both balancers; the VIP has these backends.
    fn configure(&self, backends: &[usize]) {
        let place = |it: &usize| SocketAddr::new(self.site.backend_address(*it, self.v6), PORT);
        let pool: Vec<String> = backends.iter().map(|it| format!("\"{}\"", place(it))).collect();
        for balancer in 0..2 {
            let text = format!(
                "[instance]\nname = \"{}-{balancer}\"\n[api]\nsocket = \"{}\"\nlisten = \"off\"\n[flows]\n\
                 max = 4096\npins-max = 2048\nseed = \"the same on all balancers\"\n[[pool]]\nname = \"web\"\n\
                 backends = [{}]\n[[packet]]\nvip = \"{}/tcp\"\ninterface = \"eth0\"\nforward = \"gue\"\n\
                 pool = \"web\"\nsecond-chance = true\n",
                self.name,
                self.socket(balancer),
                pool.join(", "),
                SocketAddr::new(Site::vip(1, self.v6), PORT),
            );
            fs::write(self.file(balancer), text).unwrap();
        }
    }

    fn start(&mut self) {
        for balancer in 0..2 {
            let host = if balancer == 0 { &self.site.balancer } else { &self.other };
            let guest = host.start(EQUIPOISE, &["run", &self.file(balancer)]).unwrap();
            wait_for(&guest, " ready ");
            self.balancers.push(guest);
        }
    }

    fn command(&self, balancer: usize, words: &[&str]) -> String {
        let socket = self.socket(balancer);
        let output = Command::new(EQUIPOISE).args(words).args(["--api", &socket]).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn packet(&self, balancer: usize) -> Value {
        let status = self.command(balancer, &["status", "--json"]);
        serde_json::from_str::<Value>(&status).unwrap()["packet"].clone()
    }

    /// Changes the pool of both balancers, and waits until that is done.
    fn reload(&self, backends: &[usize]) {
        self.configure(backends);
        (0..2).for_each(|balancer| drop(self.command(balancer, &["reload"])));
        let is_steady = |balancer: usize| self.packet(balancer)["vips"][0]["phase"] == "steady";
        assert!(eventually_within(PATIENCE, || (0..2).all(is_steady)), "{}", self.packet(0));
    }

    /// Spreads the flows by these weights of the balancers; 0: none.
    fn split(&self, weights: [u8; 2]) {
        let vips = if self.v6 { "2001:db8:f::/64" } else { "203.0.113.0/24" };
        let mut route = format!("route replace {vips}");
        for (number, weight) in weights.into_iter().enumerate().filter(|(_, weight)| *weight > 0) {
            let via = address(&self.site, number, self.v6);
            write!(route, " nexthop via {via} weight {weight}").unwrap();
        }
        self.site.router.ip(&route).unwrap();
    }

    fn connect(&self) -> std::io::Result<Session> {
        let to = SocketAddr::new(Site::vip(1, self.v6), PORT);
        let stream = self.site.client.enter(|| TcpStream::connect_timeout(&to, PATIENCE))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Session::of(stream)
    }

    /// Ends decapsulation, and returns what each process has printed.
    fn end_decapsulation(&mut self) -> Vec<String> {
        let printed = |mut guest: Guest| {
            guest.signal(Signal::TERM);
            assert!(guest.wait().unwrap().success(), "{}", guest.printed());
            let last = |text: &str| text.contains("packets").then(|| text.to_owned());
            guest.wait_for(PATIENCE, last).unwrap()
        };
        self.decapsulation.drain(..).map(printed).collect()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        for process in &mut self.balancers {
            process.signal(Signal::TERM);
            let _ = process.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The address of a balancer; the first is the site's own.
fn address(site: &Site, balancer: usize, v6: bool) -> IpAddr {
    match site.balancer_address(v6) {
        IpAddr::V4(address) => (u32::from(address) + balancer as u32).to_be_bytes().into(),
        IpAddr::V6(address) => (u128::from(address) + balancer as u128).to_be_bytes().into(),
    }
}

/// Whether the connection is still at its backend.
fn is_kept(session: &mut Session) -> bool {
    session.asked().is_ok_and(|answer| answer == session.backend)
}

fn wait_for(guest: &Guest, text: &str) {
    let found = guest.wait_for(PATIENCE, |printed| printed.contains(text).then_some(()));
    found.unwrap_or_else(|printed| panic!("waited in vain for `{text}`:\n{printed}"));
}

/// The packets of a line of `equipoise decap`, over all backends.
fn packets(printed: &[String], line: &str) -> u64 {
    let of = |text: &String| {
        let found = text.lines().find_map(|it| it.strip_prefix(line)?.strip_prefix(": "));
        found.map_or(0, |rest| rest.split(' ').next().unwrap().parse().unwrap())
    };
    printed.iter().map(of).sum()
}

/// Opens connections by the first balancer, changes the pool at both, and sends everything to the
/// second one, which has seen none of the connections. Returns the number of lost connections.
fn lost(bed: &mut Bed) -> usize {
    bed.configure(&[0, 1, 2]);
    bed.start();
    bed.split([1, 0]);
    let mut sessions: Vec<Session> = (0..CONNECTIONS).map(|_| bed.connect().unwrap()).collect();
    bed.reload(&[0, 1, 3]);
    bed.split([0, 1]);
    let mut lost = 0;
    sessions.retain_mut(|session| {
        let is_kept = is_kept(session);
        lost += usize::from(!is_kept);
        is_kept
    });
    // New connections go by the new pool, whichever balancer gets them.
    for weights in [[1, 1], [5, 2], [1, 7]] {
        bed.split(weights);
        for session in &mut sessions {
            assert!(is_kept(session), "{weights:?}: {}", session.backend);
        }
        for _ in 0..10 {
            let session = bed.connect().unwrap();
            assert_ne!(session.backend, "backend-2", "it has left the pool");
            sessions.push(session);
        }
    }
    lost
}

fn keeps(test: &str, v6: bool) {
    let Some(mut bed) = Bed::new(test, v6, true) else { return };
    assert_eq!(lost(&mut bed), 0, "{}", bed.packet(1));
    let notes = &bed.packet(1)["vips"][0]["notes"];
    assert!(notes["second_chance"].as_u64() > Some(20), "{notes}");
    let status = bed.command(1, &["status"]);
    assert!(status.contains("second_chance"), "{status}");
    let printed = bed.end_decapsulation();
    let passed_on = packets(&printed, "passed on to another backend");
    let second = packets(&printed, "unpacked after another backend passed them on");
    // A packet with two other backends may be passed on twice.
    assert!(second > 20 && passed_on >= second, "{printed:#?}");
    let is_native = |text: &String| text.contains("(native)");
    assert!(printed.iter().all(is_native), "{printed:#?}");
}

#[test]
fn connections_survive_a_change_at_a_balancer_that_does_not_know_them() {
    keeps("v4", false);
}

#[test]
fn connections_over_ipv6_survive_too() {
    keeps("v6", true);
}

/// Otherwise the tests above would show nothing.
#[test]
fn without_the_option_at_the_backends_connections_are_lost() {
    let Some(mut bed) = Bed::new("without", false, false) else { return };
    let lost = lost(&mut bed);
    assert!(lost > CONNECTIONS / 5, "{lost} of {CONNECTIONS}");
}

#[test]
fn backends_pass_nothing_on_for_others_than_balancers() {
    let Some(mut bed) = Bed::new("spoofed", false, true) else { return };
    let backend = |number| bed.site.backend_address(number, false);
    let (IpAddr::V4(victim), vip) = (backend(1), Site::vip(1, false)) else { panic!("IPv4") };
    // A segment of a flow that no backend knows, in GUE with the victim as the other backend.
    let inner = equipoise_testkit::packet::Ip::between("198.51.100.9", &vip.to_string());
    let inner = inner.tcp(40_000, PORT, equipoise_testkit::packet::flag::ACK, b"x").bytes();
    let packet = [&[2, 4, 0, 0, 0, 0, 0, 1][..], &victim.octets(), &inner].concat();
    let socket = bed.site.client.enter(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    let kernel = bed.site.backends[0].enter(|| UdpSocket::bind(("0.0.0.0", GUE_PORT))).unwrap();
    kernel.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send_to(&packet, (backend(0), GUE_PORT)).unwrap();
    kernel.recv_from(&mut [0; 128]).expect("the kernel gets it as it is");
    let printed = bed.end_decapsulation();
    assert_eq!(packets(&printed, "left alone, not from --source"), 1, "{printed:#?}");
    assert_eq!(packets(&printed, "passed on to another backend"), 0, "{printed:#?}");
}

#[test]
fn a_second_chance_without_the_balancers_network_is_refused() {
    let arguments = ["decap", "--interface", "lo", "--second-chance", "192.0.2.12"];
    let output = Command::new(EQUIPOISE).args(arguments).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    let wanted =
        "--second-chance 192.0.2.12 without --source; accepted with the [flows] tunnel-source";
    assert!(error.contains(wanted), "{error}");
}
