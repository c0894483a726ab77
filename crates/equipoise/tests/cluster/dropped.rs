//! TCP to a controller's port is dropped at that controller only: it receives no reports, and
//! everything else works.

use std::net::SocketAddr;

use serde_json::Value;

use crate::bed::{generation, leader, reporting, roster};
use crate::common::{EQUIPOISE, Load};
use crate::cut::{CONTROLLERS, Network, leads, places};

const PORT: u16 = 9911;
const NODE: usize = 3;
const FRONT_DOOR: ([u8; 4], u16) = ([127, 0, 0, 1], 80);

/// A pool of two backends with health checks, as in the controllers' files.
const PLANNED: &str =
    "health = { tcp = true }\n[pool.elastic]\nmin = 2\nmax = 2\nwarm-up = \"0s\"\n";

/// The same pool, as in the node's file.
fn made() -> String {
    format!(
        "{PLANNED}[pool.elastic.process]\naddress = \"10.77.0.4\"\n\
         command = [\"{EQUIPOISE}\", \"sample-backend\", \"--name\", \"{{name}}\", \"--listen\", \"10.77.0.4\", \
         \"--http\", \"{{port}}\"]\n"
    )
}

fn ready(status: &Value) -> Vec<String> {
    let all = roster(status).into_iter().filter(|(_, _, state)| state == "ready");
    all.map(|(name, ..)| name).collect()
}

fn problem(status: &Value) -> &str {
    status["view"]["problem"].as_str().unwrap_or_default()
}

/// The node with two backends, and requests through it.
fn loaded(network: &mut Network) -> (Vec<String>, Load) {
    network.pool = made();
    network.start_node("");
    let two = network.until(0, "two backends", |status| ready(status).len() == 2);
    let node = &network.hosts[NODE];
    node.enter(|| crate::bed::soon("the node serves", || serves(FRONT_DOOR.into())));
    let load = node.enter(|| Load::start(FRONT_DOOR.into(), 1));
    load.wait_for(100);
    (ready(&two), load)
}

fn serves(front_door: SocketAddr) -> bool {
    crate::common::get(front_door, "/").status() == 200
}

#[test]
fn a_leader_without_node_reports_is_replaced_and_removes_no_backend() {
    let Some(mut network) = Network::new("cluster-dropped") else { return };
    network.load = "period = \"250ms\"\n".to_string();
    network.pool = PLANNED.to_string();
    network.start_etcd();
    network.start_controllers();
    let (made, load) = loaded(&mut network);
    let before = network.until(0, "every member reports", |status| {
        reporting(status).len() == 4 && leader(status).is_some()
    });
    let (place, [other, _]) = places(&before);

    network.drop_inbound(place, PORT, true);
    network.until(place, "it says that it is deaf", |status| {
        problem(status).contains("this controller receives reports from none of the")
    });
    let after = network.until(other, "another leads", |status| {
        leader(status).is_some_and(|it| it != CONTROLLERS[place])
    });
    // The new leader's plans also keep the running backends.
    let first = generation(&after);
    network.until(other, "it plans", |status| {
        leader(status) != Some(CONTROLLERS[place]) && generation(status) > first
    });
    load.wait_for(200);
    let last = network.until(other, "the node reports", |it| reporting(it).contains(&"n1"));
    assert_eq!(ready(&last), made, "no backend was removed or made anew");
    let (good, failed) = load.finish();
    assert!(failed.is_empty(), "{} of {good} failed: {:?}", failed.len(), failed.first());
}

/// Seconds for which a controller has reported that it receives no reports.
fn deaf_seconds(status: &Value) -> u64 {
    let (head, tail) = problem(status).split_once(" s: ").unwrap_or_default();
    let is_deaf = tail.contains("this controller receives reports from none of the");
    let seconds = head.strip_prefix("for ").and_then(|text| text.parse().ok());
    seconds.filter(|_| is_deaf).unwrap_or(0)
}

#[test]
fn a_controller_elected_before_it_receives_reports_removes_no_backend() {
    let Some(mut network) = Network::new("cluster-started-deaf") else { return };
    network.load = "period = \"250ms\"\n".to_string();
    network.pool = PLANNED.to_string();
    network.start_etcd();
    let files = network.make_controllers();
    network.start(0, &files[0]);
    let first_controller = network.processes.len() - 1;
    network.until(0, "it leads", leads);
    network.drop_inbound(1, PORT, true);
    network.start(1, &files[1]);
    let (made, load) = loaded(&mut network);

    network.until(1, "it says that it is deaf", |status| deaf_seconds(status) > 0);
    drop(network.processes.remove(first_controller));
    // The previous leader's lease, and then the silence of 10 s after which a member may be lost.
    let leading = network.until(1, "it leads and plans nothing for long", |status| {
        leads(status) && status["view"]["instructions_age"]["secs"].as_u64() >= Some(14)
    });
    load.wait_for(200);
    assert_eq!(ready(&leading), made, "no backend was removed or made anew");

    network.drop_inbound(1, PORT, false);
    let planned = generation(&leading);
    let hears = network.until(1, "it hears the node and plans", |status| {
        problem(status).is_empty()
            && reporting(status).contains(&"n1")
            && generation(status) > planned
    });
    load.wait_for(200);
    assert_eq!(ready(&hears), made, "no backend was removed or made anew");
    let (good, failed) = load.finish();
    assert!(failed.is_empty(), "{} of {good} failed: {:?}", failed.len(), failed.first());
}
