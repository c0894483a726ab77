//! Faults that are easily overlooked: processes of a node that was evicted, and pools that no
//! controller scales.

use equipoise_testkit::HttpBackend;
use serde_json::json;

use crate::bed::{Machine, Site, command, reporting, soon};
use crate::common::{EQUIPOISE, text};
use crate::pools::{QUICK, children, names};
use crate::seen::controller;
use crate::watching::ask;

/// A pool of two processes, as in the controller's file.
const PLANNED: &str = "[pool.elastic]\nmin = 2\nmax = 2\nwarm-up = \"0s\"\n";

/// The same pool, as in a node's file.
fn made() -> String {
    format!(
        "{PLANNED}[pool.elastic.process]\n\
         command = [\"{EQUIPOISE}\", \"sample-backend\", \"--name\", \"{{name}}\", \"--http\", \"{{port}}\"]\n"
    )
}

/// Whether the pool has two backends that serve, both created by this node.
fn both_are_made_by(node: &str, controller: &Machine) -> bool {
    let now = names(controller);
    now.len() == 2 && now.iter().all(|(_, by, state)| by == node && state == "ready")
}

#[test]
fn an_evicted_node_ends_its_processes_and_is_listed_as_evicted() {
    let backend = HttpBackend::named("unused");
    let Some(mut site) = Site::new("cluster-evicted") else { return };
    site.load = QUICK.to_string();
    site.pool = PLANNED.to_string();
    let one = controller(&site, &backend);
    site.pool = made();
    let mut nodes =
        ["n1", "n2"].map(|name| site.node(name, backend.address(), std::slice::from_ref(&one)));
    nodes[0].start();
    soon("n1 makes both", || both_are_made_by("n1", &one) && nodes[0].serving().len() == 2);
    nodes[1].start();
    one.until("n2 reports", |status| reporting(status).contains(&"n2"));

    let config = text(&one.file);
    command(&["cluster", "evict", "n1", "--config", config]);
    soon("the processes of n1 end", || children(&nodes[0]).is_empty());
    soon("n1 gives them no work", || nodes[0].serving().is_empty());
    soon("n2 makes two others", || both_are_made_by("n2", &one));
    assert!(children(&nodes[0]).is_empty(), "n1 makes none again");
    soon("n1 says so", || nodes[0].asked(&["status"]).contains("this node was evicted"));

    let listed = command(&["cluster", "node", "list", "--config", config]);
    let line = |node: &str| listed.lines().find(|line| line.starts_with(node)).unwrap_or_default();
    assert!(line("n1").contains(" evicted ") && line("n1").contains(" refused "), "{listed}");
    assert!(line("n2").contains(" joined ") && line("n2").contains(" good for "), "{listed}");
}

#[test]
fn a_pool_that_is_elastic_on_a_node_alone_shows_in_its_log_status_and_health() {
    let backend = HttpBackend::named("a");
    let Some(mut site) = Site::new("cluster-unscaled") else { return };
    site.load = QUICK.to_string();
    let one = controller(&site, &backend);
    site.pool = made();
    let mut node = site.node("n1", backend.address(), std::slice::from_ref(&one));
    node.start();
    let socket = node.file.with_extension("sock");
    let degraded = || ask(&socket, "/v1/health").map(|health| health["degraded"].clone());
    soon("health lists it", || degraded() == Some(json!(["elastic"])));
    let said = node.asked(&["status"]);
    let problem =
        "pool web is elastic in this node's file but not in the file of the controller c1";
    assert!(said.contains(&format!("cluster: {problem}")), "{said}");
    node.process().wait_for_text(problem);

    // With the table in the controller's file too, the node creates them.
    site.pool = PLANNED.to_string();
    let listen = one.cluster.address();
    let cluster = format!("name = \"test\"\nstore = {{}}\nlisten = \"{listen}\"");
    site.write(&one, backend.address(), &cluster);
    one.asked(&["reload"]);
    soon("n1 makes both", || both_are_made_by("n1", &one));
    soon("nothing is degraded", || degraded() == Some(json!([])));
    assert!(!node.asked(&["status"]).contains(problem));
}
