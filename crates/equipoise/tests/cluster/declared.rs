//! Elastic pools that the controllers' file declares once for all nodes.

use std::collections::BTreeSet;

use equipoise_testkit::HttpBackend;

use crate::bed::{Machine, Site, reporting, soon};
use crate::common::{EQUIPOISE, equipoise, stderr, stdout, text};
use crate::pools::{QUICK, children, names};
use crate::seen::controller;

fn declared() -> String {
    format!(
        "[pool.elastic]\ndeclared = \"controllers\"\nmin = 1\nmax = 4\nin-cool-down = \"1m\"\nwarm-up = \"0s\"\n\
         drain-timeout = \"1s\"\n\
         [pool.elastic.process]\n\
         command = [\"{EQUIPOISE}\", \"sample-backend\", \"--name\", \"{{name}}\", \"--http\", \"{{port}}\"]\n"
    )
}

/// Everything that the nodes' files have about the pool.
const AWAITED: &str = "[pool.elastic]\ndeclared = \"controllers\"\n";

fn made(nodes: &[Machine; 2]) -> BTreeSet<String> {
    nodes.iter().flat_map(children).collect()
}

#[test]
fn nodes_make_the_backends_that_the_controllers_declare_and_keep_them_without_controllers() {
    let backend = HttpBackend::named("unused");
    let Some(mut site) = Site::new("cluster-declared") else { return };
    site.load = QUICK.to_string();
    site.pool = declared();
    let mut one = controller(&site, &backend);
    site.pool = AWAITED.to_string();
    let mut nodes =
        ["n1", "n2"].map(|name| site.node(name, backend.address(), std::slice::from_ref(&one)));
    nodes.iter_mut().for_each(Machine::start);
    one.until("all report", |status| reporting(status).len() == 3);
    let is_ready = |count: usize| {
        let now = names(&one);
        now.len() == count && now.iter().all(|(_, _, state)| state == "ready")
    };
    // A node that has not read the declaration yet would get none of the four.
    soon("the least number is ready, which takes several reports of both nodes", || is_ready(1));
    one.asked(&["plan", "pin", "web", "4"]);
    soon("four are ready", || is_ready(4));
    let by: Vec<usize> = nodes.iter().map(|node| children(node).len()).collect();
    assert_eq!(by, [2, 2], "the controller makes none");
    for machine in [&one, &nodes[0], &nodes[1]] {
        soon("each machine gives them work", || machine.serving().len() == 4);
    }

    // Without a controller, a restarted node has the pool with the other node's backends.
    one.kill();
    nodes[0].kill();
    nodes[0].start();
    let of_other = children(&nodes[1]);
    let serves = || of_other.iter().all(|name| nodes[0].serving().contains(name));
    soon("the backends of n2 get work at n1", serves);
    assert_eq!(children(&nodes[1]), of_other);

    one.start();
    soon("what n1 lost is made anew", || {
        let now = names(&one);
        now.len() == 4
            && now.iter().all(|(_, _, state)| state == "ready")
            && made(&nodes).len() == 4
    });
    assert!(of_other.is_subset(&made(&nodes)), "nothing else was taken away");

    // The controller's file does not declare the pool any more.
    site.pool = "backends = [\"BACKEND\"]\n".to_string();
    let listen = one.cluster.address();
    let cluster = format!("name = \"test\"\nstore = {{}}\nlisten = \"{listen}\"");
    site.write(&one, backend.address(), &cluster);
    one.asked(&["reload"]);
    soon("the processes end", || made(&nodes).is_empty());
    let problem =
        "this node's file expects the controllers to declare the elastic pool web, but c1 does not";
    soon("a node says so", || nodes[0].asked(&["status"]).contains(problem));
}

#[test]
fn a_pool_is_declared_in_one_place() {
    let backend = HttpBackend::named("unused");
    let Some(mut site) = Site::new("cluster-declared-once") else { return };
    let refused = |machine: &Machine| {
        let output = equipoise(&["check", text(&machine.file)]);
        assert!(!output.status.success());
        format!("{}{}", stdout(&output), stderr(&output))
    };
    site.pool = AWAITED.to_string();
    let one = site.machine("c1", backend.address(), |machine| {
        format!("name = \"test\"\nstore = {{}}\nlisten = \"{}\"", machine.cluster.address())
    });
    let said = refused(&one);
    assert!(said.contains("elastic.max: missing"), "{said}");
    assert!(said.contains("no driver is stated"), "{said}");
    site.pool = declared();
    let node =
        site.machine("n1", backend.address(), |_| "controllers = [\"192.0.2.1:7700\"]".to_string());
    let said = refused(&node);
    for option in ["min", "max", "process"] {
        let problem = format!("elastic.{option}: stated, and the controllers' files declare");
        assert!(said.contains(&problem), "{said}");
    }
}
