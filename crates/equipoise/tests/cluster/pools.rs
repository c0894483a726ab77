//! Elastic pools: members create the backends that the leader assigns. Whichever process dies, no
//! backend is lost or doubled.

use std::collections::BTreeSet;
use std::time::Duration;

use equipoise_testkit::HttpBackend;

use crate::bed::{Machine, Site, generation, leader, reporting, roster, soon, soon_within};
use crate::common::scripts::Fleet;
use crate::common::{EQUIPOISE, Load};

const ELASTIC: &str = "[pool.elastic]\nmin = 1\nmax = 4\nin-cool-down = \"1m\"\nwarm-up = \"0s\"\ndrain-timeout = \"20s\"\n";
pub(crate) const QUICK: &str = "period = \"250ms\"\n";

/// Names of the sample backends that are children of a machine's process.
pub(crate) fn children(machine: &Machine) -> BTreeSet<String> {
    let parent = machine.process().pid().to_string();
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let read = |file: &str| std::fs::read_to_string(entry.path().join(file));
        let (Ok(stat), Ok(words)) = (read("stat"), read("cmdline")) else { continue };
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        if after_name.split_whitespace().nth(1) != Some(&parent) {
            continue;
        }
        let mut words = words.split('\0').skip_while(|word| *word != "--name");
        found.extend(words.nth(1).map(str::to_string));
    }
    found
}

pub(crate) fn names(machine: &Machine) -> Vec<(String, String, String)> {
    machine.status().map(|status| roster(&status)).unwrap_or_default()
}

/// Waits until `count` backends are ready and receive work from every machine, and no others exist.
fn until_there_are(count: usize, seen_by: &[&Machine]) -> Vec<(String, String, String)> {
    let mut now = Vec::new();
    let is_so = || {
        now = names(seen_by[0]);
        let ready = now.iter().filter(|(_, _, state)| state == "ready");
        let ready: Vec<String> = ready.map(|(name, ..)| name.clone()).collect();
        now.len() == count
            && ready.len() == count
            && seen_by.iter().all(|machine| machine.serving() == ready)
    };
    // Three removals may last for `drain-timeout` each, one after the other.
    soon_within(Duration::from_secs(150), &format!("{count} backends"), is_so);
    now
}

#[test]
fn elastic_processes_outlive_a_leader_and_are_replaced_on_node_loss() {
    let backend = HttpBackend::named("unused");
    let Some(mut site) = Site::new("cluster-processes") else { return };
    site.load = QUICK.to_string();
    // Controllers balance and plan; nodes create the processes.
    site.pool = ELASTIC.to_string();
    let mut controllers = site.controllers(backend.address());
    site.pool = format!(
        "{ELASTIC}[pool.elastic.process]\n\
         command = [\"{EQUIPOISE}\", \"sample-backend\", \"--name\", \"{{name}}\", \"--http\", \"{{port}}\"]\n"
    );
    let mut nodes = ["n1", "n2"].map(|name| site.node(name, backend.address(), &controllers));
    nodes.iter_mut().for_each(Machine::start);
    controllers[0].until("all report", |status| reporting(status).len() == 5);
    until_there_are(1, &[&controllers[0], &nodes[0], &nodes[1]]);

    let load = Load::start(nodes[0].door.address(), 2);
    load.wait_for(50);
    // A member that has not reported creates nothing.
    controllers[0].until("all report", |status| reporting(status).len() == 5);
    controllers[1].asked(&["plan", "pin", "web", "4"]);
    let four = until_there_are(4, &[&controllers[0], &nodes[0], &nodes[1]]);
    let has = |name: &str| four.iter().filter(|(_, executor, _)| executor == name).count();
    assert_eq!((has("n1"), has("n2")), (2, 2), "{four:?}");
    load.wait_for(100);

    // The leader dies during a change.
    let status = controllers[0].until("a leader", |status| leader(status).is_some());
    let place = controllers.iter().position(|it| Some(&*it.name) == leader(&status)).unwrap();
    let other = (place + 1) % controllers.len();
    controllers[place].asked(&["plan", "pin", "web", "2"]);
    controllers[place].kill();
    let two = until_there_are(2, &[&controllers[other], &nodes[0], &nodes[1]]);
    let had: BTreeSet<&String> = four.iter().map(|(name, ..)| name).collect();
    assert!(two.iter().all(|(name, ..)| had.contains(name)), "none was made anew: {two:?}");
    load.wait_for(100);
    let (good, failed) = load.finish();
    assert!(failed.is_empty(), "{} of {good} failed: {:?}", failed.len(), failed.first());
    let made: BTreeSet<String> = nodes.iter().flat_map(children).collect();
    assert_eq!(made, two.iter().map(|(name, ..)| name.clone()).collect(), "nothing is left over");

    // A node dies with its processes; the other node creates what is missing.
    controllers[other].asked(&["plan", "pin", "web", "4"]);
    let four = until_there_are(4, &[&controllers[other], &nodes[0]]);
    nodes[1].kill();
    let is_made_anew = || {
        let now = names(&controllers[other]);
        now.len() == 4
            && now.iter().all(|(_, executor, state)| executor == "n1" && state == "ready")
    };
    soon("the other node makes them", is_made_anew);
    assert_eq!(children(&nodes[0]).len(), 4);
    let now: BTreeSet<String> = names(&controllers[other]).into_iter().map(|it| it.0).collect();
    let before: BTreeSet<String> = four.into_iter().map(|it| it.0).collect();
    let again = now.difference(&before).count();
    assert!(again >= 1, "they have names that were never used: {before:?} {now:?}");

    // It returns without processes, and no backend is created twice.
    nodes[1].start();
    controllers[other].until("it reports", |status| reporting(status).contains(&"n2"));
    until_there_are(4, &[&controllers[other], &nodes[0], &nodes[1]]);
    assert_eq!(children(&nodes[1]).len() + children(&nodes[0]).len(), 4);
}

#[test]
fn one_member_runs_scripts_and_another_takes_over_if_it_dies() {
    let backend = HttpBackend::named("unused");
    let Some(mut site) = Site::new("cluster-scripts") else { return };
    let fleet = Fleet::new(&site.folder);
    site.load = QUICK.to_string();
    site.pool = format!("{ELASTIC}{}", fleet.table());
    let mut controllers = site.controllers(backend.address());
    {
        let all: Vec<&Machine> = controllers.iter().collect();
        until_there_are(1, &all);
        controllers[0].asked(&["plan", "pin", "web", "3"]);
        let three = until_there_are(3, &all);
        let executors: BTreeSet<&String> = three.iter().map(|(_, executor, _)| executor).collect();
        assert_eq!(executors.len(), 1, "{three:?}");
    }
    let executor = names(&controllers[0])[0].1.clone();
    let place = controllers.iter().position(|it| it.name == executor).unwrap();
    let other = (place + 1) % controllers.len();
    // It dies while its script adds another backend.
    controllers[other].asked(&["plan", "pin", "web", "4"]);
    controllers[place].kill();
    let gone_on = || {
        let now = names(&controllers[other]);
        now.len() == 4 && now.iter().all(|(_, by, state)| *by != executor && state == "ready")
    };
    soon("another member goes on", gone_on);
    let there: Vec<String> = fleet.there().into_keys().collect();
    assert_eq!(there, names(&controllers[other]).into_iter().map(|it| it.0).collect::<Vec<_>>());
    controllers[place].start();
    controllers[other].asked(&["plan", "pin", "web", "1"]);
    let one = until_there_are(1, &controllers.iter().collect::<Vec<_>>());
    assert_eq!(fleet.there().into_keys().collect::<Vec<_>>(), [one[0].0.clone()]);
    let log = fleet.log();
    let kinds = |word: &str| log.iter().filter(|line| line.starts_with(word)).count();
    assert_eq!((kinds("made"), kinds("removed"), kinds("doubled")), (4, 3, 0), "{log:?}");
}

#[test]
fn a_returning_member_with_another_driver_leaves_adopted_backends_alone() {
    let backend = HttpBackend::named("unused");
    let Some(mut site) = Site::new("cluster-other-driver") else { return };
    let fleet = Fleet::new(&site.folder);
    site.load = QUICK.to_string();
    site.pool = ELASTIC.to_string();
    let mut controllers = site.controllers_of(&["c1"], backend.address());
    site.start(&mut controllers);
    site.pool = format!("{ELASTIC}{}", fleet.table());
    let mut nodes = ["n1", "n2"].map(|name| site.node(name, backend.address(), &controllers));
    nodes.iter_mut().for_each(Machine::start);
    let controller = &controllers[0];
    controller.until("all report", |status| reporting(status).len() == 3);
    controller.asked(&["plan", "pin", "web", "2"]);
    let two = until_there_are(2, &[controller, &nodes[0], &nodes[1]]);
    let before = fleet.there();
    let place = nodes.iter().position(|node| node.name == two[0].1).expect("a node makes them");
    nodes[place].kill();
    let next = nodes[1 - place].name.clone();
    let is_gone_on =
        || names(controller).iter().all(|(_, by, state)| *by == next && state == "ready");
    soon("the other node goes on", is_gone_on);

    let process = format!(
        "[pool.elastic.process]\n\
         command = [\"{EQUIPOISE}\", \"sample-backend\", \"--name\", \"{{name}}\", \"--http\", \"{{port}}\"]\n"
    );
    let content = std::fs::read_to_string(&nodes[place].file).unwrap();
    std::fs::write(&nodes[place].file, content.replace(&fleet.table(), &process)).unwrap();
    nodes[place].start();
    let back = controller.until("it reports", |status| reporting(status).len() == 3);
    let later = |now: &serde_json::Value| {
        let number = |status: &serde_json::Value| generation(status).map_or(0, |it| it.1);
        number(now) > number(&back) + 20
    };
    controller.until("some plans later", later);
    let now = until_there_are(2, &[controller, &nodes[0], &nodes[1]]);
    assert_eq!((fleet.there(), is_gone_on()), (before, true), "{now:?} {:?}", fleet.log());
    assert_eq!(children(&nodes[place]).len(), 0);
    controller.asked(&["plan", "pin", "web", "1"]);
    until_there_are(1, &[controller, &nodes[0], &nodes[1]]);
    soon("the other is removed", || fleet.there().len() == 1);
}
