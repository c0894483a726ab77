//! A node that is killed and restarted while no controller can be reached.

use equipoise_testkit::HttpBackend;

use crate::bed::{Machine, Site, reporting, soon, term};
use crate::common::scripts::Fleet;
use crate::common::{Load, get};
use crate::watching::status;

const ELASTIC: &str = "[pool.elastic]\nmin = 1\nmax = 4\nin-cool-down = \"1m\"\nwarm-up = \"0s\"\n";

/// A node's status of its instructions.
fn cluster(node: &Machine) -> serde_json::Value {
    status(&node.file.with_extension("sock"))
        .map_or_else(Default::default, |it| it["cluster"].clone())
}

#[test]
fn a_node_restarted_without_controllers_serves_its_elastic_backends() {
    let backend = HttpBackend::named("unused");
    let Some(mut site) = Site::new("cluster-restart") else { return };
    let fleet = Fleet::new(&site.folder);
    site.load = "period = \"250ms\"\n".to_string();
    site.pool = format!("{ELASTIC}{}", fleet.table());
    let mut controllers = site.controllers(backend.address());
    // The node balances, and creates nothing.
    site.pool = ELASTIC.to_string();
    let mut node = site.node("n1", backend.address(), &controllers);
    node.start();
    controllers[0].until("all report", |status| reporting(status).len() == 4);
    controllers[0].asked(&["plan", "pin", "web", "2"]);
    soon("two serve", || node.serving().len() == 2);
    let names = node.serving();
    let before = controllers[0].until("a leader", |status| term(status) > 0);
    let file = site.folder.path("n1").join("instructions.json");
    let kept = || std::fs::read_to_string(&file).unwrap_or_default();
    let is_kept = |names: &[String]| names.iter().all(|name| kept().contains(name.as_str()));
    soon("both are kept", || is_kept(&names));
    controllers.iter_mut().for_each(Machine::kill);

    node.kill();
    node.start();
    assert_eq!(node.serving(), names, "from the start on");
    assert_eq!(get(node.door.address(), "/").status(), 200);
    let load = Load::start(node.door.address(), 2);
    load.wait_for(50);
    let now = cluster(&node);
    assert!(now["kept"] == true && now["following"].is_null(), "{now:#}");
    assert!(now["age_seconds"].as_f64() > Some(0.0), "{now:#}");
    assert!(node.asked(&["status"]).contains("old, saved before the restart"));
    let (_, failed) = load.finish();
    assert!(failed.is_empty(), "{:?}", failed.first());

    // A file that cannot be used is reported and renamed, and the node runs by its configuration.
    node.kill();
    let good = std::fs::read(&file).unwrap();
    std::fs::write(&file, &good[..good.len() - 10]).unwrap();
    node.start();
    let printed = node.process().printed();
    assert!(printed.contains("cannot use saved instructions: the file is damaged"), "{printed}");
    assert_eq!(std::fs::read(file.with_extension("json.bad")).unwrap().len(), good.len() - 10);
    assert!(node.serving().is_empty() && cluster(&node)["term"].is_null());

    // Controllers are back: the node follows the newest instructions, like every other member.
    node.kill();
    std::fs::write(&file, &good).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    node.start();
    assert_eq!(cluster(&node)["kept"], true);
    site.start(&mut controllers);
    soon("it goes by newer ones", || {
        let now = cluster(&node);
        now["kept"] == false && now["term"].as_u64() > Some(term(&before))
    });
    assert_eq!(node.serving(), names, "the same all the time");
}
