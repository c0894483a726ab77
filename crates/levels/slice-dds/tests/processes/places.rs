//! Lossy networks, and processes on separate hosts.

use std::process::Command;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use equipoise_dds::Settings;

use equipoise_testkit::netns::{Host, Switch, unavailable};

use crate::killed::{DEFAULTS, Killed, Outcome, Progress, opened, publish, served_after};
use crate::load::Load;
use crate::role::{Times, by_peers, stream};
use crate::stage::{HERE, Here, PATIENCE, Place, Stage};

/// Moves all slices back and forth while items flow.
fn to_and_fro<P: Place>(stage: &mut Stage<P>, load: &Load, times: usize) {
    for round in 0..times {
        let (from, to) = if round % 2 == 0 { ("one", "two") } else { ("two", "one") };
        let (end, mut said) = (Instant::now() + PATIENCE, None);
        loop {
            let seen = stage.settled("controller", &["one", "two"]);
            let left: Vec<_> = (0..seen.owners.len())
                .filter(|slice| seen.owner(*slice) == from)
                .map(|slice| slice.to_string())
                .collect();
            if left.is_empty() {
                break;
            }
            assert!(Instant::now() < end, "{said:?}, {seen:?}");
            // Once more if the move was called off: new slices do not move for some time.
            said = stage.of("controller").ask(&format!("move {} {to}", left.join(",")));
        }
        load.published_more(30);
    }
}

fn each_was_done_once<P: Place>(stage: &Stage<P>, load: Load) {
    let outcome = load.finish();
    let done = stage.done();
    assert_eq!(done.len() as i64, outcome.published);
    let twice: Vec<_> = done.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

#[test]
fn where_one_packet_in_a_hundred_is_lost_every_item_is_done_once() {
    let lossy = Here { loss_permille: 10, ..HERE };
    let mut stage = Stage::new(63, Times::LONG, lossy, &["one", "two"]);
    let load = Load::start(stream(63, "lo", 10), std::thread::spawn);
    to_and_fro(&mut stage, &load, 6);
    each_was_done_once(&stage, load);
}

/// Each process on a separate host.
struct Hosts<'a> {
    hosts: &'a [Host],
    /// Addresses for discovery without multicast.
    peers: &'a [&'a str],
    /// Further settings, by name.
    more: &'a [(&'static str, &'static str)],
}

impl Place for Hosts<'_> {
    fn command(&self, process: &str) -> Command {
        let host = self.hosts.iter().find(|host| host.name() == process).unwrap();
        host.command(std::env::current_exe().unwrap().to_str().unwrap())
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        let interface = ("INTERFACE", "eth0".to_string());
        let peers = (!self.peers.is_empty()).then(|| ("PEERS", self.peers.join(" ")));
        let more = self.more.iter().map(|(name, value)| (*name, value.to_string()));
        [interface].into_iter().chain(peers).chain(more).collect()
    }
}

/// A controller, two workers and a client on one switch. Slices move `times` times. The clients of
/// both tests are in one process, so they need different domains.
fn on_hosts_of_their_own(domain: u32, peers: &[&str], times: usize) {
    if let Some(reason) = unavailable() {
        println!("skipped: {reason}");
        return;
    }
    let hosts = ["controller", "one", "two", "client"].map(|name| Host::new(name).unwrap());
    let switch_host = Host::new("switch").unwrap();
    let switch = Switch::new(&switch_host, "lan").unwrap();
    for (number, host) in (1..).zip(&hosts) {
        switch.plug(host, "eth0").unwrap();
        host.address("eth0", [10, 0, 0, number].into(), 24).unwrap();
    }
    let place = Hosts { hosts: &hosts[..3], peers, more: &[] };
    let mut stage = Stage::new(domain, Times::LONG, place, &["one", "two"]);
    let stream = match peers {
        [] => stream(domain, "eth0", 0),
        peers => by_peers(stream(domain, "eth0", 0), peers),
    };
    let load = Load::start(stream, |work| hosts[3].spawn_thread(work));
    to_and_fro(&mut stage, &load, times);
    each_was_done_once(&stage, load);
}

#[test]
fn workers_controller_and_client_may_be_on_hosts_of_their_own() {
    on_hosts_of_their_own(0, &[], 4);
}

#[test]
fn hosts_find_each_other_by_peers_where_there_is_no_multicast() {
    on_hosts_of_their_own(1, &["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"], 1);
}

/// The default lease of workers.
const LEASE: Duration = Duration::from_secs(5);
/// Time that a target may need beyond the lease.
const BEYOND: Duration = Duration::from_millis(500);

#[test]
fn slices_of_a_machine_that_is_cut_off_are_served_again_soon_after_its_lease() {
    if let Some(reason) = unavailable() {
        println!("skipped: {reason}");
        return;
    }
    let hosts = ["controller", "one", "two", "client"].map(|name| Host::new(name).unwrap());
    let switch_host = Host::new("switch").unwrap();
    let switch = Switch::new(&switch_host, "lan").unwrap();
    for (number, host) in (1..).zip(&hosts) {
        switch.plug(host, "eth0").unwrap();
        host.address("eth0", [10, 0, 0, number].into(), 24).unwrap();
    }
    let place = Hosts { hosts: &hosts[..3], peers: &[], more: DEFAULTS };
    let times = Times { lease: LEASE, leadership: Duration::from_secs(3) };
    let mut stage = Stage::new(2, times, place, &["one", "two"]);
    let mut stream = stream(2, "eth0", 0);
    stream.dds.lease = Settings::default().lease;
    let progress = Arc::new(Progress::default());
    let of_load = progress.clone();
    let (sender, joined) = mpsc::channel();
    let load = hosts[3].spawn_thread(move || {
        let client = opened(&stream);
        sender.send(()).unwrap();
        publish(client, 200.0, &of_load)
    });
    joined.recv_timeout(PATIENCE).unwrap();
    let mut cuts = Vec::new();
    for (victim, host) in [("one", &hosts[1]), ("two", &hosts[2])] {
        // Balancing has returned its share to the other, and the last loss has been recovered.
        let seen = stage.until("controller", "both have slices", |seen| {
            seen.leading
                && seen.open.is_empty()
                && seen.all_with(&["one", "two"])
                && ["one", "two"].iter().all(|name| seen.owners.iter().any(|o| o == name))
        });
        std::thread::sleep(Duration::from_secs(3));
        host.ip("link set eth0 down").unwrap();
        // Items that are published from now on reach only the other workers.
        let cut = Killed::now(victim, &seen);
        stage.until("controller", "the other has its slices", |seen| {
            seen.owners.iter().all(|owner| owner != victim && owner != "-")
        });
        // It is back before the test ends, and processes none of its former items.
        std::thread::sleep(Duration::from_secs(2));
        host.ip("link set eth0 up").unwrap();
        stage.until_heard(victim);
        cuts.push(cut);
    }
    progress.stop();
    let Outcome { published, answered, .. } = load.join().unwrap();
    for cut in &cuts {
        let served = served_after(cut, &answered);
        println!("{}: cut off, its slices were served again after {served:?}", cut.name);
        assert!(served <= LEASE + BEYOND, "{served:?}");
    }
    let done = stage.done();
    assert!((0..published).all(|id| done.contains_key(&id)), "answered and never done");
}
