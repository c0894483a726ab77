//! A controller with an embedded store that is restored from an older copy after further terms.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use equipoise_testkit::HttpBackend;

use crate::bed::{Machine, Site, command, generation, reporting, roster, soon, term};
use crate::common::scripts::Fleet;
use crate::common::{Load, text};
use crate::watching::status;

/// The path of the controller's store.
fn stored(site: &Site) -> PathBuf {
    site.folder.path("c1").join("c1/controller.store")
}

/// Edition of the instructions that a node follows.
fn goes_by(node: &Machine) -> (u64, u64) {
    let status = status(&node.file.with_extension("sock")).unwrap_or_default();
    let number = |what: &str| status["cluster"][what].as_u64().unwrap_or(0);
    (number("term"), number("generation"))
}

/// A controller with the embedded store, and two nodes that follow its plans.
fn cluster(site: &Site, backend: &HttpBackend) -> (Machine, [Machine; 2]) {
    let mut controller = site.machine("c1", backend.address(), |machine| {
        format!("name = \"test\"\nstore = {{}}\nlisten = \"{}\"", machine.cluster.address())
    });
    command(&["cluster", "init", "--config", text(&controller.file)]);
    site.start(std::slice::from_mut(&mut controller));
    let all = std::slice::from_ref(&controller);
    let mut nodes = ["n1", "n2"].map(|name| site.node(name, backend.address(), all));
    nodes.iter_mut().for_each(Machine::start);
    controller.until("all report", |status| reporting(status).len() == 3);
    (controller, nodes)
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    std::fs::copy(from, to).unwrap();
}

/// Restarts the controller, and waits until the node has a plan of its later term.
fn begins_again(controller: &mut Machine, node: &Machine) {
    let before = goes_by(node).0;
    controller.kill();
    controller.start();
    soon("a plan of the next term", || goes_by(node).0 > before);
}

/// Starts the controller with an older store. The node follows its plans soon, without any
/// intervention.
fn is_followed(controller: &mut Machine, node: &Machine) {
    let before = goes_by(node);
    controller.start();
    let began = Instant::now();
    soon("the node goes by a later plan", || goes_by(node) > before);
    let took = began.elapsed();
    println!("followed {took:.1?} after the start");
    // A period or two, a pause of the node before it reconnects, and other work of this machine.
    assert!(took < Duration::from_secs(30), "{took:?}");
    let planned = controller.until("it says the same term", |status| {
        generation(status).is_some_and(|(planned, _)| planned == goes_by(node).0)
    });
    assert_eq!(term(&planned), goes_by(node).0);
}

#[test]
fn nodes_follow_a_restored_store_and_the_log_reports_the_restore() {
    let backend = HttpBackend::named("a");
    let Some(mut site) = Site::new("cluster-put-back") else { return };
    site.load = "period = \"250ms\"\n".to_string();
    let (mut controller, nodes) = cluster(&site, &backend);
    let load = Load::start(nodes[0].door.address(), 1);
    controller.kill();
    let (store, aside) = (stored(&site), site.folder.path("aside"));
    copy(&store, &aside);
    copy(&store.with_extension("store.mark"), &aside.with_extension("mark"));
    controller.start();
    begins_again(&mut controller, &nodes[0]);
    // An eviction that the copy does not have.
    command(&["cluster", "evict", "n2", "--config", text(&controller.file)]);
    controller.until("n2 is out", |status| reporting(status) == ["c1", "n1"]);
    begins_again(&mut controller, &nodes[0]);

    // Only the file is restored: the file beside it shows that there was more.
    controller.kill();
    copy(&aside, &store);
    is_followed(&mut controller, &nodes[0]);
    let printed = controller.process().printed();
    assert!(printed.contains("is a copy of 20"), "{printed}");
    assert!(printed.contains("equipoise cluster evict"), "what to do: {printed}");
    controller.until("n2 is back, as printed", |status| reporting(status).len() == 3);
    command(&["cluster", "evict", "n2", "--config", text(&controller.file)]);
    controller.until("n2 is out again", |status| reporting(status) == ["c1", "n1"]);

    // Everything is restored, as from last night's copy of the disk: the nodes show that there was
    // more.
    controller.kill();
    copy(&aside, &store);
    copy(&aside.with_extension("mark"), &store.with_extension("store.mark"));
    is_followed(&mut controller, &nodes[0]);
    let printed = controller.process().printed();
    assert!(!printed.contains("is a copy of"), "nothing beside it knows: {printed}");
    assert!(printed.contains("a node follows later instructions"), "{printed}");

    // Later terms are newer than what was restored, also after a restart.
    begins_again(&mut controller, &nodes[0]);
    load.wait_for(20);
    let (_, failed) = load.finish();
    assert!(failed.is_empty(), "{:?}", failed.first());
}

#[test]
fn script_backends_newer_than_a_restored_store_return_to_the_roster() {
    let backend = HttpBackend::named("unused");
    let Some(mut site) = Site::new("cluster-put-back-made") else { return };
    let fleet = Fleet::new(&site.folder);
    site.load = "period = \"250ms\"\n".to_string();
    let elastic = "[pool.elastic]\nmin = 1\nmax = 4\nin-cool-down = \"10m\"\nwarm-up = \"0s\"\n";
    site.pool = format!("{elastic}{}", fleet.table());
    let (mut controller, nodes) = cluster(&site, &backend);
    let there_are = |controller: &Machine, count: usize| {
        let all = controller.until("its roster", |status| {
            let all = roster(status);
            all.len() == count && all.iter().all(|(_, _, state)| state == "ready")
        });
        let names: Vec<String> = roster(&all).into_iter().map(|it| it.0).collect();
        soon("both nodes use them", || nodes.iter().all(|node| node.serving() == names));
        names
    };
    there_are(&controller, 1);
    controller.kill();
    let (store, aside) = (stored(&site), site.folder.path("aside"));
    copy(&store, &aside);
    controller.start();
    controller.until("all report", |status| reporting(status).len() == 3);
    controller.asked(&["plan", "pin", "web", "3"]);
    let names = there_are(&controller, 3);
    let there = fleet.there();
    let load = Load::start(nodes[0].door.address(), 1);
    controller.kill();
    copy(&aside, &store);
    is_followed(&mut controller, &nodes[0]);
    assert_eq!(there_are(&controller, 3), names);
    assert_eq!(fleet.there(), there, "the same ones, none made again");
    load.wait_for(20);
    let (_, failed) = load.finish();
    assert!(failed.is_empty(), "{:?}", failed.first());
    controller.asked(&["plan", "pin", "web", "1"]);
    there_are(&controller, 1);
    soon("the others are removed", || fleet.there().len() == 1);
}
