//! An elastic pool of which nobody knows whether it is full, and leaders that come and go.

use std::time::Duration;

use equipoise_testkit::HttpBackend;

use crate::bed::{Machine, PATIENCE, Site, leader, reporting, soon};
use crate::common::scripts::server_of_one_thread;
use crate::common::{Load, equipoise, text};

/// Clients that ask again as soon as they are answered; far more than a backend of one thread does at once.
const CLIENTS: usize = 24;
const ELASTIC: &str = "scheduler = \"least-connection\"\n[pool.elastic]\nmin = 1\nmax = 3\nwarm-up = \"0s\"\n\
    out-cool-down = \"500ms\"\nin-cool-down = \"1s\"\ndrain-timeout = \"5s\"\n";

/// Why the pool is planned as it is; empty while this controller does not say.
fn reason(controller: &Machine) -> String {
    let socket = controller.file.with_extension("sock");
    let output = equipoise(&["plan", "--json", "--api", text(&socket)]);
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    plan["pools"][0]["scaling"]["reason"].as_str().unwrap_or_default().to_string()
}

/// Kills the leader, and says which place that was and which the other.
fn killed(controllers: &mut [Machine]) -> (usize, usize) {
    let status = controllers[0].until("somebody leads", |status| leader(status).is_some());
    let place = controllers.iter().position(|it| Some(&*it.name) == leader(&status)).unwrap();
    controllers[place].kill();
    (place, 1 - place)
}

#[test]
fn a_probe_outlives_its_leader_and_what_it_showed_the_next_one() {
    let backend = HttpBackend::named("unused");
    let Some(mut site) = Site::new("cluster-probe") else { return };
    site.load = "period = \"200ms\"\n".to_string();
    site.pool = ELASTIC.to_string();
    let mut controllers = site.controllers_of(&["c1", "c2"], backend.address());
    site.start(&mut controllers);
    let server = server_of_one_thread(&site.folder);
    site.pool = format!(
        "{ELASTIC}[pool.elastic.process]\ncommand = [\"python3\", {:?}, \"sleeps\", \"{{port}}\"]\n",
        text(&server)
    );
    let mut node = site.node("n1", backend.address(), &controllers);
    node.start();
    controllers[0].until("all report", |status| reporting(status).len() == 3);
    soon("the first backend", || node.serving().len() == 1);

    let load = Load::start(node.door.address(), CLIENTS);
    // A probe may be over before a busy machine has asked for both.
    let mut probed = false;
    soon("the second backend, as a probe", || {
        probed |= controllers.iter().any(|it| reason(it).contains("probing"));
        probed && node.serving().len() >= 2
    });
    let (first, second) = killed(&mut controllers);
    soon("it is known to be full", || node.serving().len() == 3);
    let (good, failed) = load.finish();
    assert!(failed.is_empty(), "{} of {good} failed: {:?}", failed.len(), failed.first());
    soon("it is idle", || node.serving().len() == 1);

    // What the second leader has learnt, the next one knows.
    controllers[first].start();
    controllers[second].until("both lead or stand", |status| reporting(status).len() == 3);
    assert_eq!(killed(&mut controllers), (second, first));
    let load = Load::start(node.door.address(), CLIENTS);
    let end = std::time::Instant::now() + PATIENCE;
    while node.serving().len() < 3 {
        let why = reason(&controllers[first]);
        assert!(!why.contains("probing"), "{why}");
        assert!(std::time::Instant::now() < end, "it does not grow: {why}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let (good, failed) = load.finish();
    assert!(failed.is_empty(), "{} of {good} failed: {:?}", failed.len(), failed.first());
}
