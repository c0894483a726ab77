//! Planning through the real binary: weights by load, a plan that outlives a kill, a damaged store.

mod common;
#[path = "control/drivers.rs"]
mod drivers;
#[path = "control/full.rs"]
mod full;
#[path = "control/record.rs"]
mod record;
#[path = "control/rosters.rs"]
mod rosters;
#[path = "control/sizes.rs"]
mod sizes;
#[path = "control/slots.rs"]
mod slots;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::scripts::{Fleet, server_of_one_thread};
use common::{Folder, Load, Process, equipoise, get, kill, reload, stderr, stdout, text};
use equipoise_testkit::{Answer, HttpBackend, ReservedPort, Step, eventually, free_port};
use serde_json::Value;

/// An equipoise with its own state folder, which can be started again.
struct Instance {
    process: Option<Process>,
    folder: Folder,
    socket: PathBuf,
    door: ReservedPort,
    api: ReservedPort,
    /// Interval between reports and plans.
    period: &'static str,
}

impl Instance {
    fn new(test: &str) -> Instance {
        let (folder, door, api) = (Folder::new(test), free_port(), free_port());
        let (process, socket, period) = (None, folder.path("api.sock"), "100ms");
        Instance { process, socket, folder, door, api, period }
    }

    /// Starts the process. `pool` follows the pool's name in the file.
    fn start(&mut self, pool: &str) -> &Process {
        let file = self.write(pool);
        let process = self.process.insert(Process::start(&["run", text(&file)]));
        process.wait_for_text(" ready ");
        process
    }

    fn write(&self, pool: &str) -> PathBuf {
        let config = format!(
            "[api]\nsocket = \"{}\"\nlisten = \"{}\"\n\
             [instance]\nname = \"under-test\"\nthreads = 1\n\
             [load]\nperiod = \"{}\"\n\
             [controller]\nstate = \"{}\"\n\
             [[session]]\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"web\"\n\
             [[pool]]\nname = \"web\"\n{pool}\n",
            self.socket.display(),
            self.api.address(),
            self.period,
            self.folder.path("state").display(),
            self.door.address(),
        );
        self.folder.write("equipoise.toml", &config)
    }

    fn store(&self) -> PathBuf {
        self.folder.path("state").join("under-test/controller.store")
    }

    fn printed(&self) -> String {
        self.process.as_ref().map(Process::printed).unwrap_or_default()
    }

    fn kill(&mut self) {
        let mut process = self.process.take().expect("it runs");
        kill(process.pid(), libc::SIGKILL);
        process.ended();
    }

    /// Runs a command over the unix socket. Returns whether it succeeded, and its output.
    fn command(&self, args: &[&str]) -> (bool, String) {
        let args = [args, &["--api", text(&self.socket)]].concat();
        let output = equipoise(&args);
        (output.status.success(), stdout(&output) + &stderr(&output))
    }

    fn json(&self, path: &str) -> Value {
        let answer = get(self.api.address(), path);
        serde_json::from_slice(&answer.body).unwrap_or_else(|_| panic!("{path}: {}", answer.text()))
    }

    fn plan(&self) -> Value {
        self.json("/v1/plan")
    }

    /// Waits until the plan fits.
    fn until(&self, what: &str, mut fits: impl FnMut(&Value) -> bool) -> Value {
        let mut plan = Value::Null;
        let fitted = eventually(|| {
            plan = self.plan();
            fits(&plan)
        });
        assert!(fitted, "{what}: {plan:#}");
        plan
    }
}

fn weight(plan: &Value, backend: &str) -> u64 {
    let weights = plan["pools"][0]["weights"].as_array().into_iter().flatten();
    let found = weights.into_iter().find(|it| it["backend"] == backend);
    found.and_then(|it| it["weight"].as_u64()).unwrap_or(0)
}

fn edition(plan: &Value) -> (u64, u64) {
    let number = |name: &str| plan[name].as_u64().unwrap_or(0);
    (number("term"), number("generation"))
}

fn slow_and_fast() -> (HttpBackend, HttpBackend) {
    let mut slow = Answer::ok("slow");
    // Slower than the other backend can be on a busy machine.
    slow.steps.insert(0, Step::Pause(Duration::from_millis(200)));
    (HttpBackend::always(slow), HttpBackend::named("fast"))
}

fn by_load(slow: &HttpBackend, fast: &HttpBackend) -> String {
    format!(
        "scheduler = \"weighted-round-robin\"\nweights = \"load\"\nbackends = [\
         {{ name = \"slow\", address = \"{}\" }}, {{ name = \"fast\", address = \"{}\" }}]",
        slow.address(),
        fast.address()
    )
}

#[test]
fn weights_by_load_move_traffic_from_a_slow_backend_and_outlive_a_kill() {
    let (slow, fast) = slow_and_fast();
    let pool = by_load(&slow, &fast);
    let mut instance = Instance::new("by-load");
    instance.start(&pool);
    let load = Load::start(instance.door.address(), 8);
    let moved = |plan: &Value| weight(plan, "fast") > 5 * weight(plan, "slow").max(1);
    instance.until("traffic goes to the fast one", moved);
    let counts = || (slow.requests().len(), fast.requests().len());
    let mut shares = Vec::new();
    let goes_there = eventually(|| {
        let before = counts();
        load.wait_for(200);
        let after = counts();
        let (to_slow, to_fast) = (after.0 - before.0, after.1 - before.1);
        shares.push((to_slow, to_fast));
        to_fast > 4 * to_slow
    });
    assert!(goes_there, "to the slow one and to the fast one: {shares:?}");

    let (worked, page) = instance.command(&["plan"]);
    assert!(worked && page.contains("pool web") && page.contains("slow"), "{page}");
    assert!(page.contains(" by under-test, "), "{page}");
    let status = instance.json("/v1/status");
    let shown = status["pools"][0]["backends"][1]["weight"].as_u64().unwrap();
    assert!(shown > 100, "the session level goes by it: {shown}");
    let metrics = get(instance.api.address(), "/metrics").text();
    for family in ["equipoise_plan_generation ", "equipoise_node_load_ratio{node=\"under-test\""] {
        assert!(metrics.contains(family), "{family} is missing");
    }

    let (_, failed) = load.finish();
    assert!(failed.is_empty(), "{failed:?}");

    // Every tenth plan is in the store.
    let last = instance.plan();
    let written = instance.until("some later plan", |plan| edition(plan).1 > edition(&last).1 + 12);
    instance.kill();
    instance.start(&pool);
    let next = instance.until("it goes on", |plan| edition(plan).0 > edition(&written).0);
    assert!(edition(&next).1 >= edition(&last).1, "{:?} {:?}", edition(&next), edition(&last));
    assert!(moved(&next), "what was learnt is kept: {next:#}");
    assert!(eventually(|| weight_in_force(&instance) > 100), "and in force");
}

#[test]
fn a_link_with_a_configured_speed_is_measured_after_a_reload() {
    let backend = HttpBackend::named("a");
    let pool = format!("backends = [\"{}\"]", backend.address());
    let mut instance = Instance::new("links");
    instance.start(&pool);
    let metrics = || get(instance.api.address(), "/metrics").text();
    let has = |what: &str| eventually(|| metrics().contains(what));
    assert!(has("equipoise_used_ratio{resource=\"cpu\"}"), "{}", metrics());
    if std::path::Path::new("/proc/pressure/io").exists() {
        assert!(has("equipoise_pressure_ratio{resource=\"io\"}"), "{}", metrics());
    }
    let of_lo = "equipoise_interface_used_ratio{interface=\"lo\"}";
    assert!(!metrics().contains(of_lo), "it has no device");
    // Slow enough to be full with any traffic.
    let links = "[{ interface = \"lo\", speed = \"1Kbit/s\" }, { interface = \"eth-none\", speed = \"1Gbit/s\" }]";
    let file = std::fs::read_to_string(instance.write(&pool)).expect("it was just written");
    let file = file.replace("[load]\n", &format!("[load]\nlinks = {links}\n"));
    instance.folder.write("equipoise.toml", &file);
    assert_eq!(reload(&instance.socket).0, 200);
    assert!(has(&format!("{of_lo} 1.0")), "{}", metrics());
    assert!(metrics().contains("equipoise_interface_bytes_per_second{interface=\"lo\",direction="));
    let node = || instance.json("/v1/nodes")["nodes"][0].clone();
    assert!(eventually(|| node()["net_percent"] == 100.0), "{:#}", node());
    let is_warned = || instance.printed().contains("interface that does not exist");
    assert!(eventually(is_warned), "{}", instance.printed());
}

fn weight_in_force(instance: &Instance) -> u64 {
    let status = instance.json("/v1/status");
    status["pools"][0]["backends"][1]["weight"].as_u64().unwrap_or(0)
}

/// Damages the store's file; returns the damaged content.
fn damage(instance: &Instance) -> Vec<u8> {
    let mut bytes = std::fs::read(instance.store()).expect("the store's file is there");
    let middle = bytes.len() / 2;
    bytes[..64].fill(0xAA);
    bytes[middle..middle + 64].fill(0xAA);
    std::fs::write(instance.store(), &bytes).expect("the folder is ours");
    bytes
}

#[test]
fn a_damaged_store_stops_only_planning_and_stays_unchanged() {
    let (slow, fast) = slow_and_fast();
    let pool = by_load(&slow, &fast);
    let mut instance = Instance::new("damaged");
    instance.start(&pool);
    instance.until("a plan", |plan| edition(plan).1 > 0);
    instance.kill();
    let bytes = damage(&instance);

    let process = instance.start(&pool);
    process.wait_for_text("the controller does not run");
    let printed = process.printed();
    assert!(printed.contains("is damaged") && printed.contains("It is left as it is"), "{printed}");
    assert_eq!(get(instance.door.address(), "/").status(), 200, "traffic is served");
    let (worked, said) = instance.command(&["plan"]);
    assert!(!worked && said.contains("the controller does not run"), "{said}");
    shows_that_it_does_not_run(&instance);
    assert_eq!(
        std::fs::read(instance.store()).expect("it is there"),
        bytes,
        "the file is unchanged"
    );

    // Does what the message says: restores the copy of the last opening, and reloads.
    std::fs::remove_file(instance.store()).expect("the folder is ours");
    let copy = instance.store().with_file_name("controller.store.backup");
    if copy.exists() {
        std::fs::copy(copy, instance.store()).expect("the folder is ours");
    }
    assert_eq!(reload(&instance.socket).0, 200);
    instance.until("it plans again", |plan| edition(plan).1 > 0);
    let status = instance.json("/v1/status")["controller"].clone();
    assert!(status["state"] == "leads" && status["problem"].is_null(), "{status:#}");
    let (_, page) = instance.command(&["status"]);
    assert!(page.contains("\ncontroller: leads · plan "), "{page}");
    assert_eq!(instance.json("/v1/health")["degraded"], Value::Array(Vec::new()));
    let metrics = get(instance.api.address(), "/metrics").text();
    assert!(metrics.contains("\nequipoise_controller_running 1\n"), "{metrics}");
    assert!(eventually(|| figure(&instance, "equipoise_plan_age_seconds") < 5.0), "{metrics}");
}

/// The value of a metric without labels.
fn figure(instance: &Instance, name: &str) -> f64 {
    let metrics = get(instance.api.address(), "/metrics").text();
    let found = metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    found.unwrap_or_else(|| panic!("{name} is missing: {metrics}"))
}

/// Checks every place where operators and alerts look, although traffic continues.
fn shows_that_it_does_not_run(instance: &Instance) {
    let (worked, page) = instance.command(&["status"]);
    let line = page.lines().find(|line| line.starts_with("controller: not running for "));
    let line = line.unwrap_or_else(|| panic!("{page}"));
    assert!(
        worked && line.contains("is damaged") && line.contains("run `equipoise reload`"),
        "{line}"
    );
    let status = instance.json("/v1/status")["controller"].clone();
    assert!(status["state"] == "stopped" && status["problem"].is_string(), "{status:#}");
    assert!(status["plan_age_seconds"].is_number() && status["plan"].is_null(), "{status:#}");

    let health = get(instance.api.address(), "/v1/health");
    assert_eq!(health.status(), 200, "traffic is served");
    // Everybody may read the health page, so it has no further details.
    assert_eq!(health.text(), r#"{"phase":"running","degraded":["controller"]}"#);

    assert_eq!(figure(instance, "equipoise_controller_running"), 0.0);
    assert_eq!(figure(instance, "equipoise_controller_leads"), 0.0);
    let age = || figure(instance, "equipoise_plan_age_seconds");
    let before = age();
    assert!(eventually(|| age() > before + 0.5), "a plan's age grows, so that an alert fires");
}

#[test]
fn without_planned_pools_no_plan_exists_and_history_is_recorded() {
    let backend = HttpBackend::named("a");
    let pool = format!("backends = [\"{}\"]", backend.address());
    let mut instance = Instance::new("unasked");
    instance.start(&pool);
    let (worked, said) = instance.command(&["plan"]);
    assert!(!worked && said.contains("no pool has weights = \"load\""), "{said}");
    assert!(!instance.folder.path("state").exists(), "no store is made");
    let history = || instance.json("/v1/nodes/under-test/history?seconds=60");
    let kept = eventually(|| history()["points"].as_array().is_some_and(|it| !it.is_empty()));
    assert!(kept, "{:#}", history());
    assert_eq!(instance.json("/v1/nodes")["nodes"][0]["name"], "under-test");
    if std::path::Path::new("/proc/pressure/cpu").exists() {
        let waited = eventually(|| history()["points"][0]["cpu_pressure"].is_object());
        assert!(waited, "{:#}", history());
    }
    assert_eq!(get(instance.api.address(), "/v1/nodes/nobody/history").status(), 404);

    // A reload asks for planning, and a second reload ends it.
    let (slow, fast) = slow_and_fast();
    instance.write(&by_load(&slow, &fast));
    assert_eq!(reload(&instance.socket).0, 200);
    instance.until("weights are planned", |plan| weight(plan, "fast") > 0);
    assert!(eventually(|| weight_in_force(&instance) >= 50), "and in force");
    let configured = by_load(&slow, &fast).replace("weights = \"load\"\n", "");
    instance.write(&configured);
    assert_eq!(reload(&instance.socket).0, 200);
    assert_eq!(weight_in_force(&instance), 1, "as configured");
    assert_eq!(get(instance.api.address(), "/v1/plan").status(), 404);
}

/// A pool with processes that equipoise creates as backends.
fn made_of_processes() -> String {
    format!(
        "[pool.elastic]\nmin = 1\nmax = 8\nin-cool-down = \"1m\"\nwarm-up = \"0s\"\n\
         [pool.elastic.process]\n\
         command = [\"{}\", \"sample-backend\", \"--name\", \"{{name}}\", \"--http\", \"{{port}}\"]\n",
        common::EQUIPOISE
    )
}

/// Addresses of the pool's backends that receive new work.
fn serving(instance: &Instance) -> Vec<std::net::SocketAddr> {
    let status = instance.json("/v1/status");
    let backends = status["pools"][0]["backends"].as_array().cloned().unwrap_or_default();
    let up = backends.iter().filter(|it| it["state"] == "up");
    up.filter_map(|it| it["address"].as_str()?.parse().ok()).collect()
}

const ELASTIC: &str = "[pool.elastic]\nmin = 1\nmax = 3\nin-cool-down = \"1m\"\nwarm-up = \"0s\"\n";

/// A pool of three backends that scripts created, with its table.
fn three_by_scripts(name: &str) -> (Instance, Fleet, String) {
    let mut instance = Instance::new(name);
    let fleet = Fleet::new(&instance.folder);
    let pool = format!("{ELASTIC}{}", fleet.table());
    instance.start(&pool);
    assert!(eventually(|| serving(&instance).len() == 1), "{:#}", instance.plan());
    let (worked, said) = instance.command(&["plan", "pin", "web", "3"]);
    assert!(worked, "{said}");
    assert!(eventually(|| serving(&instance).len() == 3), "{:#}", instance.plan());
    (instance, fleet, pool)
}
