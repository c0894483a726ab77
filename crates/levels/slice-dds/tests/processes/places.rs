//! Lossy networks, and hosts of their own.

use std::process::Command;
use std::time::Instant;

use equipoise_testkit::netns::{Host, Switch, unavailable};

use crate::load::Load;
use crate::role::{Times, by_peers, stream};
use crate::stage::{HERE, Here, PATIENCE, Place, Stage};

/// All slices go to and fro, while items flow.
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
            // Once more, if it was called off: new slices stay for a while.
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

/// Each process on a host of its own.
struct Hosts<'a> {
    hosts: &'a [Host],
    /// Who is asked for participants, where there is no multicast.
    peers: &'a [&'a str],
}

impl Place for Hosts<'_> {
    fn command(&self, process: &str) -> Command {
        let host = self.hosts.iter().find(|host| host.name() == process).unwrap();
        host.command(std::env::current_exe().unwrap().to_str().unwrap())
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        let interface = ("INTERFACE", "eth0".to_string());
        let peers = (!self.peers.is_empty()).then(|| ("PEERS", self.peers.join(" ")));
        [interface].into_iter().chain(peers).collect()
    }
}

/// A controller, two workers and a client on one switch; slices go to and fro so often. The clients of both tests are of one
/// process, so they need domains of their own.
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
    let place = Hosts { hosts: &hosts[..3], peers };
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
