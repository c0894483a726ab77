//! A controller that does not run or does not plan while traffic continues, and where this is
//! visible.

use equipoise_testkit::HttpBackend;
use serde_json::Value;

use crate::bed::{Machine, Site, command, leader, soon};
use crate::common::{equipoise, get, stderr, stdout, text};
use crate::watching::status;

/// A machine's own status of its controller, over its socket.
fn controller(machine: &Machine) -> Value {
    let status = status(&machine.file.with_extension("sock")).unwrap_or_default();
    status["controller"].clone()
}

fn problem(machine: &Machine) -> String {
    controller(machine)["problem"].as_str().unwrap_or_default().to_string()
}

/// The output of `status --cluster`, and whether it could show the cluster.
fn page(machine: &Machine) -> (bool, String) {
    let output = equipoise(&["status", "--cluster", "--config", text(&machine.file)]);
    (output.status.success(), stdout(&output) + &stderr(&output))
}

#[test]
fn a_damaged_store_is_reported_by_node_status_and_cluster_status() {
    let backend = HttpBackend::named("a");
    let Some(site) = Site::new("cluster-damaged") else { return };
    let mut one = site.machine("c1", backend.address(), |machine| {
        format!("name = \"test\"\nstore = {{}}\nlisten = \"{}\"", machine.cluster.address())
    });
    command(&["cluster", "init", "--config", text(&one.file)]);
    site.start(std::slice::from_mut(&mut one));
    one.until("it leads", |status| leader(status) == Some("c1"));
    soon("its plans come", || controller(&one)["state"] == "leads");
    one.kill();
    let store = site.folder.path("c1").join("c1/controller.store");
    let whole = std::fs::read(&store).unwrap();
    std::fs::write(&store, vec![0xAA; whole.len()]).unwrap();

    one.start();
    soon("it has tried", || controller(&one)["state"] == "stopped");
    assert_eq!(get(one.door.address(), "/").status(), 200, "traffic goes on");
    let shown = one.asked(&["status"]);
    let line = shown.lines().find(|line| line.starts_with("controller: ")).unwrap();
    assert!(line.contains("not running for ") && line.contains("is damaged"), "{line}");
    assert!(line.contains("the start is retried"), "what to do: {line}");
    let (worked, shown) = page(&one);
    assert!(!worked && shown.starts_with("no controller answers:"), "{shown}");
    assert!(shown.contains("c1 by its own knowledge") && shown.contains("is damaged"), "{shown}");

    // It continues by itself once the file is whole again.
    std::fs::write(&store, whole).unwrap();
    one.until("it leads again", |status| leader(status) == Some("c1"));
    soon("its plans come again", || controller(&one)["problem"].is_null());
    one.kill();
    let (_, shown) = page(&one);
    assert!(shown.contains("no controller runs on this machine"), "{shown}");
}

#[test]
fn a_controller_reports_a_store_outage_with_its_duration_and_cause() {
    let backend = HttpBackend::named("a");
    let Some(mut site) = Site::new("cluster-no-store") else { return };
    let mut one = site.controller("c1", backend.address());
    command(&["cluster", "init", "--config", text(&one.file)]);
    site.start(std::slice::from_mut(&mut one));
    soon("its plans come", || {
        let now = controller(&one);
        now["state"] == "leads" && now["plan"].is_string() && now["problem"].is_null()
    });
    site.etcd.kill(0);
    soon("it says why there are no plans", || problem(&one).starts_with("no plan for "));
    assert!(problem(&one).contains("did not answer"), "{}", problem(&one));
    assert_eq!(get(one.door.address(), "/").status(), 200, "traffic goes on");
    let (worked, shown) = page(&one);
    assert!(worked && shown.contains("\ncontroller c1: no plan for "), "{shown}");
    assert!(shown.contains("\nstore: failing for "), "{shown}");
    let shown = one.asked(&["status"]);
    assert!(shown.contains("repair the store"), "{shown}");
    site.etcd.start_member(0);
    soon("it plans again", || {
        let now = controller(&one);
        now["state"] == "leads" && now["problem"].is_null()
    });
}
