//! A controller that receives no reports while the others do: nothing that runs is disturbed.

use equipoise_testkit::HttpBackend;

use crate::bed::{Machine, Site, leader, reporting, roster, soon};
use crate::clock::{clock_of, library, set};
use crate::common::{EQUIPOISE, Load};

const HOURS: i64 = 3 * 3600;

/// The pool in the nodes' files: each node creates processes for it.
fn made() -> String {
    format!(
        "[pool.elastic]\nmin = 2\nmax = 4\nwarm-up = \"0s\"\n[pool.elastic.process]\n\
         command = [\"{EQUIPOISE}\", \"sample-backend\", \"--name\", \"{{name}}\", \"--http\", \"{{port}}\"]\n"
    )
}

fn names(machine: &Machine) -> Vec<String> {
    let all = machine.status().map(|status| roster(&status)).unwrap_or_default();
    all.into_iter().filter(|(_, _, state)| state == "ready").map(|(name, ..)| name).collect()
}

#[test]
fn a_controller_with_a_clock_hours_ahead_removes_nothing_when_it_leads_and_gives_way() {
    let backend = HttpBackend::named("unused");
    let Some(mut site) = Site::new("cluster-deaf") else { return };
    let Some(library) = library(&site) else { return };
    site.load = "period = \"250ms\"\n".to_string();
    site.pool = "[pool.elastic]\nmin = 2\nmax = 4\nwarm-up = \"0s\"\n".to_string();
    let mut controllers = site.controllers_of(&["c1", "c2"], backend.address());
    let clock = clock_of(&site, &mut controllers[1], &library);
    set(&clock, HOURS);
    site.start(&mut controllers[..1]);
    controllers[0].until("it leads", |status| leader(status) == Some("c1"));
    site.start(&mut controllers[1..]);
    site.pool = made();
    let mut nodes = ["n1", "n2"].map(|name| site.node(name, backend.address(), &controllers));
    nodes.iter_mut().for_each(Machine::start);
    soon("two backends", || names(&controllers[0]).len() == 2 && nodes[0].serving().len() == 2);
    let made = names(&controllers[0]);
    let load = Load::start(nodes[0].door.address(), 2);

    // The only controller left is the one that no node believes.
    controllers[0].kill();
    controllers[1].process().wait_for_text("this controller leads");
    controllers[1].process().wait_for_text("this controller receives reports from none of the");
    soon("it says so in its status", || {
        controllers[1].asked(&["status"]).contains("reports from none")
    });
    load.wait_for(200);
    controllers[0].start();
    controllers[0].until("one that hears nodes leads", |status| {
        leader(status) == Some("c1") && reporting(status).contains(&"n1")
    });
    load.wait_for(200);
    let (good, failed) = load.finish();
    assert!(failed.is_empty(), "{} of {good} failed: {:?}", failed.len(), failed.first());
    assert_eq!(names(&controllers[0]), made, "nothing was removed or made anew");
}
