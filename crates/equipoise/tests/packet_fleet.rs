//! Balancers of real processes behind a router that spreads the flows of their VIP, and that
//! spreads them anew at random: connections stay at their backends while pools change, and while
//! balancers stop and join.
//!
//! Runs in network namespaces, and so as root. Without root the tests print why they do nothing.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/lines.rs"]
mod lines;

use std::fmt::Write as _;
use std::fs;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
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
/// The exchange time of half a second, and delays of a busy machine. Flows stay only after it.
const EXCHANGE: Duration = Duration::from_secs(3);
const BACKENDS: usize = 3;
const PORT: u16 = 8080;
const PEER_PORT: u16 = 7946;
const CONNECTIONS: usize = 60;

/// Site with further balancers beside its own.
struct Bed {
    site: Site,
    others: Vec<Host>,
    running: Vec<Option<Guest>>,
    /// Beginning of the names of instances.
    name: String,
    folder: PathBuf,
    /// State of the random numbers (SplitMix64).
    random: u64,
}

impl Bed {
    fn new(test: &str, balancers: usize) -> Option<Bed> {
        if let Some(why) = unavailable() {
            println!("skipped: {why}");
            return None;
        }
        let site = Site::new(SiteShape { backends: BACKENDS, two_arms: false }).unwrap();
        let others = (1..balancers).map(|number| Host::new(&format!("balancer-{}", number + 1)));
        let others: Vec<Host> = others.collect::<Result<_, _>>().unwrap();
        let lan = Switch::on(&site.router, "lan");
        for (number, host) in (1..).zip(&others) {
            lan.plug(host, "eth0").unwrap();
            host.address("eth0", address(number), 24).unwrap();
            host.route("default", site.router_address(false)).unwrap();
            host.forward().unwrap();
        }
        for (number, backend) in site.backends.iter().enumerate() {
            backend.hidden_address(Site::vip(1, false)).unwrap();
            let listener = backend.enter(|| TcpListener::bind(("0.0.0.0", PORT))).unwrap();
            std::thread::spawn(move || serve(&listener, number + 1));
        }
        // The hash of the router has the ports.
        site.router.sysctl("net/ipv4/fib_multipath_hash_policy", "1").unwrap();
        let name = format!("fleet-{test}-{}", std::process::id());
        let folder = std::env::temp_dir().join(format!("equipoise-{name}"));
        fs::create_dir_all(&folder).unwrap();
        let running = (0..balancers).map(|_| None).collect();
        Some(Bed { site, others, running, name, folder, random: balancers as u64 })
    }

    fn host(&self, balancer: usize) -> &Host {
        if balancer == 0 { &self.site.balancer } else { &self.others[balancer - 1] }
    }

    fn socket(&self, balancer: usize) -> String {
        self.folder.join(format!("api-{balancer}.sock")).display().to_string()
    }

    fn file(&self, balancer: usize) -> PathBuf {
        self.folder.join(format!("{balancer}.toml"))
    }

    /// Writes the files of all balancers; the VIP has the first `backends` backends.
    fn configure(&self, scheduler: &str, backends: usize) {
        let peers = (0..self.running.len()).map(|it| SocketAddr::new(address(it), PEER_PORT));
        let peers: Vec<String> = peers.map(|it| format!("\"{it}\"")).collect();
        let pool = (0..backends)
            .map(|it| format!("\"{}:{PORT}\"", self.site.backend_address(it, false)))
            .collect::<Vec<_>>()
            .join(", ");
        for balancer in 0..self.running.len() {
            let mut text = String::new();
            write!(
                text,
                "[instance]\nname = \"{}-{balancer}\"\n[api]\nsocket = \"{}\"\nlisten = \"off\"\n[flows]\n\
                 max = 4096\npins-max = 2048\nseed = \"the same on all balancers\"\npeers = [{}]\n\
                 peers-listen = \"{}\"\n[[pool]]\nname = \"web\"\nbackends = [{pool}]\n[[packet]]\n\
                 vip = \"{}:{PORT}/tcp\"\ninterface = \"eth0\"\nforward = \"direct-routing\"\npool = \"web\"\n\
                 scheduler = \"{scheduler}\"\n",
                self.name,
                self.socket(balancer),
                peers.join(", "),
                SocketAddr::new(address(balancer), PEER_PORT),
                Site::vip(1, false),
            )
            .unwrap();
            fs::write(self.file(balancer), text).unwrap();
        }
    }

    fn start(&mut self, balancer: usize) {
        let file = self.file(balancer);
        let process =
            self.host(balancer).start(EQUIPOISE, &["run", file.to_str().unwrap()]).unwrap();
        let ready = |printed: &str| printed.contains(" ready ").then_some(());
        let found = process.wait_for(PATIENCE, ready);
        found.unwrap_or_else(|printed| panic!("balancer {balancer}:\n{printed}"));
        self.running[balancer] = Some(process);
    }

    fn stop(&mut self, balancer: usize) {
        let mut process = self.running[balancer].take().unwrap();
        process.signal(Signal::TERM);
        assert!(process.wait().unwrap().success(), "{}", process.printed());
    }

    fn command(&self, balancer: usize, words: &[&str]) -> String {
        let socket = self.socket(balancer);
        let output = Command::new(EQUIPOISE).args(words).args(["--api", &socket]).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn packet(&self, balancer: usize) -> Value {
        let status: Value =
            serde_json::from_str(&self.command(balancer, &["status", "--json"])).unwrap();
        status["packet"].clone()
    }

    fn alive(&self) -> Vec<usize> {
        (0..self.running.len()).filter(|it| self.running[*it].is_some()).collect()
    }

    /// Waits until all balancers have all flows of all others.
    fn wait_for_exchange(&self) {
        let alive = self.alive();
        let has_all = |balancer: usize| {
            let packet = self.packet(balancer);
            let peers = packet["fleet"]["peers"].as_array().unwrap().iter();
            let done = peers.filter(|it| it["has_all"] == true && it["gave_all"] == true);
            done.count() == alive.len() - 1
        };
        let state = || self.packet(alive[0])["fleet"].to_string();
        assert!(eventually_within(PATIENCE, || alive.iter().all(|&it| has_all(it))), "{}", state());
    }

    /// Waits until all balancers know `flows` flows and have made their changes, and for the
    /// exchange time.
    fn wait_for_flows(&self, flows: usize) {
        let knows = |balancer: usize| {
            let packet = self.packet(balancer);
            let steady = packet["vips"][0]["phase"] == "steady";
            steady && packet["flows"].as_u64() >= Some(flows as u64)
        };
        assert!(
            eventually_within(PATIENCE, || self.alive().into_iter().all(knows)),
            "{}",
            self.packet(self.alive()[0])
        );
        std::thread::sleep(EXCHANGE);
    }

    fn random(&mut self, end: usize) -> usize {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.random ^ self.random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((x ^ x >> 27) >> 33) as usize % end
    }

    /// Spreads the flows over these balancers, by an order and weights that are random.
    fn split(&mut self, mut balancers: Vec<usize>) {
        let mut route = format!("route replace {}/24", IpAddr::from([203, 0, 113, 0]));
        while !balancers.is_empty() {
            let next = balancers.swap_remove(self.random(balancers.len()));
            let weight = 1 + self.random(8);
            write!(route, " nexthop via {} weight {weight}", address(next)).unwrap();
        }
        self.site.router.ip(&route).unwrap();
    }

    fn connect(&self) -> Session {
        let to = SocketAddr::new(Site::vip(1, false), PORT);
        let stream = self.site.client.enter(|| TcpStream::connect_timeout(&to, PATIENCE)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Session::of(stream).unwrap()
    }

    fn reload(&self, scheduler: &str, backends: usize) {
        self.configure(scheduler, backends);
        for balancer in self.alive() {
            self.command(balancer, &["reload"]);
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        for process in self.running.iter_mut().flatten() {
            process.signal(Signal::TERM);
            let _ = process.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The address of a balancer on `lan`; the first is the site's own.
fn address(balancer: usize) -> IpAddr {
    IpAddr::from([192, 0, 2, 2 + balancer as u8])
}

fn assert_kept(bed: &mut Bed, sessions: &mut [Session], what: &str) {
    for _ in 0..3 {
        let alive = bed.alive();
        bed.split(alive);
        for (number, session) in sessions.iter_mut().enumerate() {
            let answer = session.asked();
            let is_kept = answer.as_ref().is_ok_and(|answer| *answer == session.backend);
            let states = || bed.alive().into_iter().map(|it| bed.packet(it)).collect::<Vec<_>>();
            assert!(
                is_kept,
                "{what}: connection {number} of {}: {answer:?}\n{:#?}",
                session.backend,
                states()
            );
        }
    }
}

/// Runs the whole life of a fleet.
fn keeps(test: &str, balancers: usize, scheduler: &str) {
    let Some(mut bed) = Bed::new(test, balancers) else { return };
    bed.configure(scheduler, BACKENDS);
    (0..balancers).for_each(|balancer| bed.start(balancer));
    bed.wait_for_exchange();
    bed.split((0..balancers).collect());
    let mut sessions: Vec<Session> = (0..CONNECTIONS).map(|_| bed.connect()).collect();
    let at_last = sessions.iter().filter(|it| it.backend == "backend-3").count();
    assert!(at_last > 5, "{at_last} connections to the last backend");
    bed.wait_for_flows(sessions.len());
    assert_kept(&mut bed, &mut sessions, "all balancers");

    bed.reload(scheduler, BACKENDS - 1);
    bed.wait_for_flows(sessions.len());
    assert_kept(&mut bed, &mut sessions, "a backend left the pool");

    // The last balancer leaves the router first, as with a withdrawn route.
    bed.split((0..balancers - 1).collect());
    bed.stop(balancers - 1);
    assert_kept(&mut bed, &mut sessions, "a balancer stopped");
    bed.split((0..balancers - 1).collect());
    sessions.extend((0..10).map(|_| bed.connect()));
    bed.start(balancers - 1);
    bed.wait_for_exchange();
    bed.wait_for_flows(sessions.len());
    assert_kept(&mut bed, &mut sessions, "a balancer joined");

    bed.reload(scheduler, BACKENDS);
    bed.wait_for_flows(sessions.len());
    assert_kept(&mut bed, &mut sessions, "a backend came back");
    let fleet = bed.packet(0)["fleet"].clone();
    assert_eq!((&fleet["full_total"], &fleet["overtaken_total"]), (&0.into(), &0.into()));
    let table = bed.command(0, &["status"]);
    assert!(table.contains("GAVE ALL") && table.contains("192.0.2.3:7946"), "{table}");
}

#[test]
fn two_balancers_by_turns_keep_connections() {
    keeps("two", 2, "round-robin");
}

#[test]
fn four_balancers_by_load_keep_connections() {
    keeps("four", 4, "least-connection");
}

#[test]
fn a_pin_of_one_balancer_is_on_all() {
    let Some(mut bed) = Bed::new("pins", 2) else { return };
    bed.configure("maglev", BACKENDS);
    (0..2).for_each(|balancer| bed.start(balancer));
    bed.wait_for_exchange();
    let vip = format!("{}:{PORT}/tcp", Site::vip(1, false));
    let flow = "198.51.100.2:40000";
    let goes_to = |bed: &Bed, balancer: usize| bed.command(balancer, &["flow", flow, &vip]);
    for backend in 0..2 {
        let name = format!("{}:{PORT}", bed.site.backend_address(backend, false));
        let (word, at) = if backend == 0 { ("add", 0) } else { ("move", 1) };
        bed.command(at, &["pin", word, &vip, flow, &name]);
        let is_there = |bed: &Bed, at: usize| {
            let told = goes_to(bed, at);
            told.contains(&format!("web/{name}")) && told.contains("by: pin")
        };
        assert!(
            eventually_within(PATIENCE, || (0..2).all(|at| is_there(&bed, at))),
            "{}",
            goes_to(&bed, 1)
        );
    }
    bed.command(0, &["pin", "remove", &vip, flow]);
    let is_gone = |at: usize| bed.command(at, &["pin", "list"]) == "no pins\n";
    assert!(eventually_within(PATIENCE, || (0..2).all(is_gone)));
}
