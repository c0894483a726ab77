//! Wall clocks that jump while processes run, and a leader that is paused for a while.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use equipoise_testkit::HttpBackend;

use crate::bed::{Machine, Site, generation, leader, reporting, term};
use crate::common::{Load, text};
use crate::watching::watch;

const DAY: i64 = 86_400;

/// Compiles the library that shifts clocks. Without a compiler it prints this and returns `None`.
pub(crate) fn library(site: &Site) -> Option<PathBuf> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/clock.c");
    let library = site.folder.path("clock.so");
    let compiled =
        Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o", text(&library), source]).status();
    match compiled {
        Ok(status) => {
            assert!(status.success());
            Some(library)
        }
        Err(error) => {
            println!("skipped: cc cannot be run ({error})");
            None
        }
    }
}

/// Gives a machine its own clock.
pub(crate) fn clock_of(site: &Site, machine: &mut Machine, library: &std::path::Path) -> File {
    let name = site.folder.path(&format!("{}.clock", machine.name));
    let file = File::options().create(true).truncate(true).write(true).open(&name).unwrap();
    set(&file, 0);
    let variable = |name: &str, path: &std::path::Path| (name.to_string(), text(path).to_string());
    machine.environment.push(variable("LD_PRELOAD", library));
    machine.environment.push(variable("CLOCK_SHIFT_FILE", &name));
    file
}

pub(crate) fn set(clock: &File, seconds: i64) {
    clock.write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
}

/// Checks that controllers and a node continue to plan and to receive plans.
fn goes_on(machines: &[Machine], what: &str) {
    let answers = machines[0].until("it answers", |_| true);
    let (planned_from, all) = (generation(&answers), machines.len() + 1);
    for one in machines {
        one.until(what, |status| {
            generation(status) > planned_from && reporting(status).len() == all
        });
    }
}

#[test]
fn wall_clocks_that_jump_fail_no_request_and_everybody_finds_together_again() {
    let backend = HttpBackend::named("a");
    let Some(site) = Site::new("cluster-clocks") else { return };
    let Some(library) = library(&site) else { return };
    let mut controllers = site.made_controllers(backend.address());
    let clocks: Vec<File> =
        controllers.iter_mut().map(|one| clock_of(&site, one, &library)).collect();
    site.start(&mut controllers);
    let mut node = site.node("n1", backend.address(), &controllers);
    let node_clock = clock_of(&site, &mut node, &library);
    node.start();
    node.process().wait_for_text("following instructions");
    goes_on(&controllers, "all report");
    let load = Load::start(node.door.address(), 2);
    // Jumps in seconds: an hour; longer than certificates are valid; before they are valid.
    for jump in [3600, 2 * DAY, -2 * DAY] {
        let status = controllers[0].until("a leader", |status| leader(status).is_some());
        let place = controllers.iter().position(|it| Some(&*it.name) == leader(&status)).unwrap();
        let other = (place + 1) % controllers.len();
        for clock in [&clocks[place], &node_clock] {
            let before = generation(&controllers[other].until("it answers", |_| true));
            set(clock, jump);
            load.wait_for(50);
            // Planning continues, whichever controller leads, and whichever is believed in between.
            controllers[other].until("newer plans", |status| {
                generation(status).map(|(term, generation)| (term, generation.saturating_sub(2)))
                    > before
            });
            load.wait_for(50);
            set(clock, 0);
            goes_on(&controllers, &format!("after a jump of {jump} s"));
        }
    }
    let (good, bad) = load.finish();
    assert!(bad.is_empty(), "{} of {good} failed: {:?}", bad.len(), bad.first());
}

#[test]
fn a_leader_that_stood_still_for_longer_than_its_lease_leads_no_more() {
    let backend = HttpBackend::named("a");
    let Some(site) = Site::new("cluster-still") else { return };
    let controllers = site.controllers(backend.address());
    let mut node = site.node("n1", backend.address(), &controllers);
    node.start();
    node.process().wait_for_text("following instructions");
    goes_on(&controllers, "all report");
    let load = Load::start(node.door.address(), 2);
    let status = controllers[0].until("a leader", |status| leader(status).is_some());
    let name = leader(&status).unwrap().to_string();
    let place = controllers.iter().position(|it| it.name == name).unwrap();
    let other = (place + 1) % controllers.len();
    let stop = Arc::new(AtomicBool::new(false));
    let watching = watch(node.file.with_extension("sock"), &stop);
    controllers[place].process().signal(libc::SIGSTOP);
    let after = controllers[other].until("another leader", |now| term(now) > term(&status));
    controllers[other].until("it plans", |now| {
        generation(now).is_some_and(|(planned, _)| planned == term(&after))
    });
    controllers[place].process().signal(libc::SIGCONT);
    let back = controllers[place].until("it knows", |now| {
        term(now) == term(&after) && generation(now).is_some_and(|(it, _)| it == term(&after))
    });
    assert_ne!(leader(&back), Some(&*name));
    load.wait_for(50);
    let (good, bad) = load.finish();
    assert!(bad.is_empty(), "{} of {good} failed: {:?}", bad.len(), bad.first());
    // Its instructions have no effect: no plan goes back to its term, and the node never follows
    // one of them.
    let now = controllers[other].until("it answers", |_| true);
    assert!(generation(&now).unwrap().0 >= term(&after));
    controllers[place].until("the node goes by the new one", |status| {
        let members = status["view"]["members"].as_array().unwrap();
        let applied = |m: &serde_json::Value| m["applied"]["term"].as_u64() >= Some(term(&after));
        members.iter().any(|m| m["name"] == "n1" && applied(m))
    });
    stop.store(true, Relaxed);
    let (looks, terms) = watching.join().expect("instructions never went back");
    assert!(looks > 10 && terms >= 2, "{looks} {terms}");
}
