//! An elastic pool with a standing queue, and changing leaders.

use equipoise_testkit::HttpBackend;

use crate::bed::{Machine, Site, leader, reporting, soon};
use crate::common::scripts::server_of_one_thread;
use crate::common::{Load, text};

/// Clients that send the next request at once after an answer: far more than a backend with one
/// thread can serve.
const CLIENTS: usize = 24;
const ELASTIC: &str = "scheduler = \"least-connection\"\nconcurrency = 1\nqueue = { wait = \"1m\" }\n\
    [pool.elastic]\nmin = 1\nmax = 3\nwarm-up = \"0s\"\n\
    out-cool-down = \"500ms\"\nin-cool-down = \"1s\"\ndrain-timeout = \"5s\"\n";

/// Kills the leader, and returns its index.
fn killed(controllers: &mut [Machine]) -> usize {
    let status = controllers[0].until("a controller leads", |status| leader(status).is_some());
    let place = controllers.iter().position(|it| Some(&*it.name) == leader(&status)).unwrap();
    controllers[place].kill();
    place
}

#[test]
fn a_pool_grows_across_a_leader_change_and_shrinks_when_idle() {
    let backend = HttpBackend::named("unused");
    let Some(mut site) = Site::new("cluster-grows") else { return };
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
    soon("the second backend", || node.serving().len() >= 2);
    killed(&mut controllers);
    soon("the third backend, by either leader", || node.serving().len() == 3);
    let (good, failed) = load.finish();
    assert!(failed.is_empty(), "{} of {good} failed: {:?}", failed.len(), failed.first());
    soon("it is idle, and there is a leader", || node.serving().len() == 1);
}
