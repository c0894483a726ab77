//! Planning through the real binary: weights by load, the plan that outlives a kill, a store that is damaged.

mod common;
#[path = "control/full.rs"]
mod full;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::scripts::Fleet;
use common::{Folder, Load, Process, equipoise, get, kill, post, stderr, stdout, text};
use equipoise_testkit::{Answer, HttpBackend, ReservedPort, Step, eventually, free_port};
use serde_json::Value;

/// An equipoise with a state folder of its own, that can be started again.
struct Instance {
    process: Option<Process>,
    folder: Folder,
    socket: PathBuf,
    door: ReservedPort,
    api: ReservedPort,
}

impl Instance {
    fn new(test: &str) -> Instance {
        let (folder, door, api) = (Folder::new(test), free_port(), free_port());
        Instance { process: None, socket: folder.path("api.sock"), folder, door, api }
    }

    /// `pool` follows the pool's name in the file.
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
             [load]\nperiod = \"100ms\"\n\
             [controller]\nstate = \"{}\"\n\
             [[session]]\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"web\"\n\
             [[pool]]\nname = \"web\"\n{pool}\n",
            self.socket.display(),
            self.api.address(),
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

    /// A command over the unix socket: whether it worked, and what it printed.
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
    fn until(&self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
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
    slow.steps.insert(0, Step::Pause(Duration::from_millis(50)));
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
    let before = counts();
    load.wait_for(200);
    let after = counts();
    let (to_slow, to_fast) = (after.0 - before.0, after.1 - before.1);
    assert!(to_fast > 4 * to_slow, "{to_fast} to the fast one, {to_slow} to the slow one");

    let (worked, page) = instance.command(&["plan"]);
    assert!(worked && page.contains("pool web") && page.contains("slow"), "{page}");
    assert!(page.contains(" by under-test, "), "{page}");
    let status = instance.json("/v1/status");
    let shown = status["pools"][0]["backends"][1]["weight"].as_u64().unwrap();
    assert!(shown > 100, "the session level goes by it: {shown}");
    let metrics = get(instance.api.address(), "/metrics").text();
    for family in ["equipoise_plan_generation ", "equipoise_node_load_percent{node=\"under-test\""]
    {
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
fn a_link_whose_speed_is_stated_is_measured_from_the_next_reload_on() {
    let backend = HttpBackend::named("a");
    let pool = format!("backends = [\"{}\"]", backend.address());
    let mut instance = Instance::new("links");
    instance.start(&pool);
    let metrics = || get(instance.api.address(), "/metrics").text();
    let has = |what: &str| eventually(|| metrics().contains(what));
    assert!(has("equipoise_used_percent{resource=\"cpu\"}"), "{}", metrics());
    if std::path::Path::new("/proc/pressure/io").exists() {
        assert!(has("equipoise_pressure_percent{resource=\"io\"}"), "{}", metrics());
    }
    let of_lo = "equipoise_interface_used_percent{interface=\"lo\"}";
    assert!(!metrics().contains(of_lo), "it has no device");
    // Slow enough to be full with any traffic.
    let links = "[{ interface = \"lo\", speed = \"1Kbit/s\" }, { interface = \"eth-none\", speed = \"1Gbit/s\" }]";
    let file = std::fs::read_to_string(instance.write(&pool)).expect("it was just written");
    let file = file.replace("[load]\n", &format!("[load]\nlinks = {links}\n"));
    instance.folder.write("equipoise.toml", &file);
    assert_eq!(post(instance.api.address(), "/v1/reload").status(), 200);
    assert!(has(&format!("{of_lo} 100.0")), "{}", metrics());
    assert!(metrics().contains("equipoise_interface_bits_per_second{interface=\"lo\",direction="));
    let node = || instance.json("/v1/nodes")["nodes"][0].clone();
    assert!(eventually(|| node()["net_percent"] == 100.0), "{:#}", node());
    assert!(instance.printed().contains("interface that is not there"), "{}", instance.printed());
}

fn weight_in_force(instance: &Instance) -> u64 {
    let status = instance.json("/v1/status");
    status["pools"][0]["backends"][1]["weight"].as_u64().unwrap_or(0)
}

/// Damages the store's file; what it has then.
fn damage(instance: &Instance) -> Vec<u8> {
    let mut bytes = std::fs::read(instance.store()).expect("the store's file is there");
    let middle = bytes.len() / 2;
    bytes[..64].fill(0xAA);
    bytes[middle..middle + 64].fill(0xAA);
    std::fs::write(instance.store(), &bytes).expect("the folder is ours");
    bytes
}

#[test]
fn a_damaged_store_stops_planning_alone_and_is_left_as_it_is() {
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
    assert_eq!(std::fs::read(instance.store()).expect("it is there"), bytes, "nobody touched it");

    // As the message says: the copy from when it was last opened, and a reload.
    std::fs::remove_file(instance.store()).expect("the folder is ours");
    let copy = instance.store().with_file_name("controller.store.backup");
    if copy.exists() {
        std::fs::copy(copy, instance.store()).expect("the folder is ours");
    }
    assert_eq!(post(instance.api.address(), "/v1/reload").status(), 200);
    instance.until("it plans again", |plan| edition(plan).1 > 0);
    let status = instance.json("/v1/status")["controller"].clone();
    assert!(status["state"] == "leads" && status["problem"].is_null(), "{status:#}");
    let (_, page) = instance.command(&["status"]);
    assert!(page.contains("\ncontroller: leads · plan "), "{page}");
    assert_eq!(instance.json("/v1/health")["degraded"], Value::Array(Vec::new()));
    let metrics = get(instance.api.address(), "/metrics").text();
    assert!(metrics.contains("\nequipoise_controller_running 1\n"), "{metrics}");
    assert!(figure(&instance, "equipoise_plan_age_seconds") < 5.0, "{metrics}");
}

/// A figure without labels.
fn figure(instance: &Instance, name: &str) -> f64 {
    let metrics = get(instance.api.address(), "/metrics").text();
    let found = metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    found.unwrap_or_else(|| panic!("{name} is missing: {metrics}"))
}

/// Wherever an operator or their alerts look, although traffic goes on.
fn shows_that_it_does_not_run(instance: &Instance) {
    let (worked, page) = instance.command(&["status"]);
    let line = page.lines().find(|line| line.starts_with("controller: not running for "));
    let line = line.unwrap_or_else(|| panic!("{page}"));
    assert!(worked && line.contains("is damaged") && line.ends_with("equipoise reload"), "{line}");
    let status = instance.json("/v1/status")["controller"].clone();
    assert!(status["state"] == "stopped" && status["problem"].is_string(), "{status:#}");
    assert!(status["plan_age_seconds"].is_number() && status["plan"].is_null(), "{status:#}");

    let health = get(instance.api.address(), "/v1/health");
    assert_eq!(health.status(), 200, "traffic is served");
    // Everybody may ask, so it says no more.
    assert_eq!(health.text(), r#"{"phase":"running","degraded":["controller"]}"#);

    assert_eq!(figure(instance, "equipoise_controller_running"), 0.0);
    assert_eq!(figure(instance, "equipoise_controller_leads"), 0.0);
    let age = || figure(instance, "equipoise_plan_age_seconds");
    let before = age();
    assert!(eventually(|| age() > before + 0.5), "a plan's age grows, so that an alert fires");
}

#[test]
fn without_a_pool_that_asks_nothing_is_planned_and_the_history_is_kept() {
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

    // A reload asks for it, and another one does no longer.
    let (slow, fast) = slow_and_fast();
    instance.write(&by_load(&slow, &fast));
    assert_eq!(post(instance.api.address(), "/v1/reload").status(), 200);
    instance.until("weights are planned", |plan| weight(plan, "fast") > 0);
    assert!(eventually(|| weight_in_force(&instance) >= 50), "and in force");
    let configured = by_load(&slow, &fast).replace("weights = \"load\"\n", "");
    instance.write(&configured);
    assert_eq!(post(instance.api.address(), "/v1/reload").status(), 200);
    assert_eq!(weight_in_force(&instance), 1, "as configured");
    assert_eq!(get(instance.api.address(), "/v1/plan").status(), 404);
}

#[test]
fn an_elastic_pool_is_pinned_paused_and_resumed_by_command_and_that_outlives_a_kill() {
    let backend = HttpBackend::named("a");
    let pool = format!("backends = [\"{}\"]\nelastic = {{ max = 4 }}", backend.address());
    let mut instance = Instance::new("pinned");
    instance.start(&pool);
    let scaling = |plan: &Value, what: &str| plan["pools"][0]["scaling"][what].clone();
    instance.until("a plan", |plan| scaling(plan, "action") == "hold");
    let (worked, said) = instance.command(&["plan", "pin", "web", "3"]);
    assert!(worked && said.contains("add 2: pinned at 3, there are 1"), "{said}");
    let (worked, said) = instance.command(&["plan", "pin", "web", "9"]);
    assert!(!worked && said.contains("accepted: 1 to 4, its `min` and `max`"), "{said}");
    let (worked, said) = instance.command(&["plan", "pin", "web", "0"]);
    assert!(!worked && said.contains("fewer than the `min`") && said.contains("--force"), "{said}");
    let (worked, said) = instance.command(&["plan", "pin", "web", "0", "--force"]);
    assert!(worked && said.contains("pinned at 0, fewer than its min of 1"), "{said}");
    let (worked, said) = instance.command(&["plan", "pin", "web", "3"]);
    assert!(worked, "{said}");
    let (worked, said) = instance.command(&["plan", "pause", "other"]);
    assert!(!worked && said.contains("elastic pools: web"), "{said}");
    instance.kill();

    instance.start(&pool);
    let plan = instance.until("it is pinned still", |plan| scaling(plan, "mode") == "pinned");
    assert_eq!(scaling(&plan, "pinned"), 3);
    // A pause keeps the pin, also over a restart.
    for _ in 0..2 {
        let (worked, said) = instance.command(&["plan", "pause", "web"]);
        assert!(worked && said.contains("plan resume web` pins it at 3 again"), "{said}");
    }
    instance.kill();
    instance.start(&pool);
    let plan = instance.until("it is paused still", |plan| scaling(plan, "mode") == "paused");
    assert_eq!(scaling(&plan, "pinned"), 3);
    let (_, page) = instance.command(&["plan"]);
    assert!(page.contains(", paused, then pinned at 3"), "{page}");
    let (worked, said) = instance.command(&["plan", "resume", "web"]);
    assert!(worked && said.contains("pinned at 3 again"), "{said}");
    instance.until("the pin holds again", |plan| scaling(plan, "mode") == "pinned");
    let (worked, said) = instance.command(&["plan", "resume", "web"]);
    assert!(worked && said.contains("the planner decides"), "{said}");
    instance.until("it decides", |plan| scaling(plan, "mode") == "auto");
    let (worked, page) = instance.command(&["plan", "--next"]);
    assert!(worked && page.contains("nothing follows from it"), "{page}");
}

/// A pool whose backends are processes that equipoise makes.
fn made_of_processes() -> String {
    format!(
        "[pool.elastic]\nmin = 1\nmax = 8\nin-cool-down = \"1m\"\nwarm-up = \"0s\"\n\
         [pool.elastic.process]\n\
         command = [\"{}\", \"sample-backend\", \"--name\", \"{{name}}\", \"--http\", \"{{port}}\"]\n",
        common::EQUIPOISE
    )
}

/// Addresses of the pool's backends that are given new work.
fn serving(instance: &Instance) -> Vec<std::net::SocketAddr> {
    let status = instance.json("/v1/status");
    let backends = status["pools"][0]["backends"].as_array().cloned().unwrap_or_default();
    let up = backends.iter().filter(|it| it["state"] == "up");
    up.filter_map(|it| it["address"].as_str()?.parse().ok()).collect()
}

#[test]
fn an_elastic_pool_makes_its_backends_drains_those_that_leave_and_ends_them_with_itself() {
    let mut instance = Instance::new("processes");
    instance.start(&made_of_processes());
    assert!(eventually(|| serving(&instance).len() == 1), "{:#}", instance.plan());
    assert!(eventually(|| get(instance.door.address(), "/").status() == 200));
    let printed = instance.printed();
    assert!(printed.contains("INFO pool web: starting its first backends"), "{printed}");
    assert!(!printed.contains("no backend can take work"), "{printed}");

    let load = Load::start(instance.door.address(), 4);
    load.wait_for(50);
    let (worked, said) = instance.command(&["plan", "pin", "web", "3"]);
    assert!(worked, "{said}");
    assert!(eventually(|| serving(&instance).len() == 3), "{:#}", instance.plan());
    load.wait_for(200);
    // Not one more than was asked for, whatever was planned while they were coming.
    let plan = instance.plan();
    assert_eq!(plan["pools"][0]["scaling"]["backends"], 3, "{plan:#}");
    let printed = instance.printed();
    assert_eq!(printed.matches("added=[").count(), 2, "one at the start, two at once: {printed}");
    assert!(!printed.contains("removed=["), "{printed}");
    let (worked, said) = instance.command(&["plan", "pin", "web", "1"]);
    assert!(worked, "{said}");
    assert!(eventually(|| instance.json("/v1/status")["pools"][0]["backends"]
        .as_array()
        .is_some_and(|all| all.len() == 1)));
    load.wait_for(100);
    let (good, failed) = load.finish();
    assert!(failed.is_empty() && good > 300, "{good} were answered, and failed: {failed:?}");

    let left = serving(&instance);
    let answers = |at: &std::net::SocketAddr| std::net::TcpStream::connect(at).is_ok();
    assert!(left.iter().all(answers));
    instance.kill();
    assert!(eventually(|| !left.iter().any(answers)), "children die with their parent");
}

const ELASTIC: &str = "[pool.elastic]\nmin = 1\nmax = 3\nin-cool-down = \"1m\"\nwarm-up = \"0s\"\n";

#[test]
fn backends_made_by_scripts_outlive_a_kill_and_are_gone_on_with() {
    let mut instance = Instance::new("scripts");
    let fleet = Fleet::new(&instance.folder);
    let pool = format!("{ELASTIC}{}", fleet.table());
    instance.start(&pool);
    assert!(eventually(|| serving(&instance).len() == 1), "{:#}", instance.plan());
    let (worked, said) = instance.command(&["plan", "pin", "web", "3"]);
    assert!(worked, "{said}");
    assert!(eventually(|| serving(&instance).len() == 3), "{:#}", instance.plan());
    let before = (fleet.there(), serving(&instance));
    instance.kill();
    instance.start(&pool);
    assert!(eventually(|| serving(&instance) == before.1), "{:?}", serving(&instance));
    assert_eq!(fleet.there(), before.0, "the same ones, none made again");
    assert!(eventually(|| get(instance.door.address(), "/").status() == 200));
    let (worked, said) = instance.command(&["plan", "pin", "web", "1"]);
    assert!(worked, "{said}");
    assert!(eventually(|| fleet.there().len() == 1 && serving(&instance).len() == 1));
    // A script notes what it has done after it is done.
    let kinds = |word: &str| fleet.log().iter().filter(|line| line.starts_with(word)).count();
    assert!(eventually(|| kinds("removed") == 2), "{:?}", fleet.log());
    assert_eq!((kinds("made"), kinds("removed"), kinds("doubled")), (3, 2, 0), "{:?}", fleet.log());
}

/// Vertical and diagonal scaling: by what a size does for its price, up and down again.
#[test]
fn under_load_sizes_are_chosen_by_speed_for_their_price_and_an_idle_pool_is_the_cheapest_one() {
    let mut instance = Instance::new("sizes");
    let fleet = Fleet::sized(&instance.folder);
    let elastic = "scheduler = \"least-connection\"\n[pool.elastic]\nmin = 1\nmax = 3\nwarm-up = \"0s\"\n\
                   out-cool-down = \"500ms\"\nin-cool-down = \"700ms\"\ngrowth-max = 10.0\n\
                   sizes = [{ name = \"small\", speed = 1.0, price = 1.0 }, { name = \"large\", speed = 4.0, price = 2.0 }]\n";
    instance.start(&format!("{elastic}{}", fleet.table()));
    assert!(eventually(|| serving(&instance).len() == 1), "{:#}", instance.plan());
    assert_eq!(fleet.sizes(), ["small"], "the cheapest is enough before anything is measured");
    // For several periods: how fast it is when it is calm is what use is judged by.
    let calm = Load::start(instance.door.address(), 1);
    calm.wait_for(150);
    let (_, failed) = calm.finish();
    assert!(failed.is_empty(), "{failed:?}");
    // Sixteen at once are far more than it does.
    let load = Load::start(instance.door.address(), 16);
    let has_large = || fleet.sizes().iter().any(|size| size == "large");
    assert!(eventually(has_large), "{:?} {:#}", fleet.log(), instance.plan());
    load.wait_for(100);
    let (good, failed) = load.finish();
    assert!(failed.is_empty() && good > 100, "{good} were answered, and failed: {failed:?}");
    assert!(eventually(|| fleet.sizes() == ["small"]), "{:?} {:#}", fleet.log(), instance.plan());
    assert!(eventually(|| serving(&instance).len() == 1), "{:#}", instance.plan());
    assert_eq!(get(instance.door.address(), "/").status(), 200);
}

#[test]
fn a_reload_with_another_driver_replaces_what_there_is_and_no_request_fails() {
    let mut instance = Instance::new("driver");
    let fleet = Fleet::new(&instance.folder);
    let elastic = "[pool.elastic]\nmin = 2\nmax = 3\nin-cool-down = \"1m\"\nwarm-up = \"200ms\"\n";
    instance.start(&format!("{elastic}{}", fleet.table()));
    assert!(eventually(|| serving(&instance).len() == 2), "{:#}", instance.plan());
    let by_scripts = serving(&instance);
    let load = Load::start(instance.door.address(), 2);
    load.wait_for(20);

    // One that cannot make any takes nothing away.
    let process = |command: &str| format!("{elastic}[pool.elastic.process]\ncommand = {command}\n");
    instance.write(&process("[\"/no/such/program\", \"{port}\"]"));
    assert_eq!(post(instance.api.address(), "/v1/reload").status(), 200);
    let said = || instance.printed().contains("not added");
    assert!(eventually(said), "{}", instance.printed());
    load.wait_for(50);
    assert_eq!(serving(&instance), by_scripts);

    let sample = format!(
        "[\"{}\", \"sample-backend\", \"--name\", \"{{name}}\", \"--http\", \"{{port}}\"]",
        common::EQUIPOISE
    );
    instance.write(&process(&sample));
    assert_eq!(post(instance.api.address(), "/v1/reload").status(), 200);
    let all_new = || {
        let now = serving(&instance);
        now.len() == 2 && now.iter().all(|address| !by_scripts.contains(address))
    };
    assert!(eventually(all_new), "{:?} {}", serving(&instance), instance.printed());
    assert!(eventually(|| fleet.there().is_empty()), "the scripts took away theirs");
    let of = |word: &str| fleet.log().iter().filter(|line| line.starts_with(word)).count();
    assert!(eventually(|| of("removed") == 2) && of("made") == 2, "{:?}", fleet.log());
    load.wait_for(50);
    let (good, failed) = load.finish();
    assert!(failed.is_empty(), "{} of {good} failed: {:?}", failed.len(), failed.first());
    let plan = instance.plan();
    assert_eq!(plan["pools"][0]["scaling"]["backends"], 2, "{plan:#}");
}

/// Kills equipoise when `has_come` says so, in the middle of a change from one fleet's scripts to `new`, starts it again,
/// and waits until the change is done.
fn killed_in_a_change(
    test: &str,
    new: impl Fn(&Fleet) -> String,
    has_come: impl Fn(&Instance, &Fleet, &Fleet) -> bool,
) -> (Instance, Fleet, Fleet) {
    let mut instance = Instance::new(test);
    let (old, next) =
        (Fleet::named(&instance.folder, "old"), Fleet::named(&instance.folder, "new"));
    let elastic = "[pool.elastic]\nmin = 2\nmax = 3\nparallel = 1\nin-cool-down = \"1m\"\nwarm-up = \"300ms\"\n";
    instance.start(&format!("{elastic}{}", old.table()));
    assert!(eventually(|| serving(&instance).len() == 2), "{:#}", instance.plan());
    let changed = format!("{elastic}{}", new(&next));
    instance.write(&changed);
    assert_eq!(post(instance.api.address(), "/v1/reload").status(), 200);
    assert!(eventually(|| has_come(&instance, &old, &next)), "{}", instance.printed());
    instance.kill();
    instance.start(&changed);
    let by_new = || {
        let serving = serving(&instance);
        serving.len() == 2 && old.there().is_empty()
    };
    assert!(eventually(by_new), "{test}: {:?} {}", old.there(), instance.printed());
    let count = |fleet: &Fleet, word: &str| {
        fleet.log().iter().filter(|line| line.starts_with(word)).count()
    };
    // A script notes what it has done after it is done.
    assert!(eventually(|| count(&old, "removed") == 2), "{test}: {:?}", old.log());
    assert_eq!(count(&old, "made"), 2, "{test}: {:?}", old.log());
    assert_eq!(count(&next, "doubled") + count(&old, "doubled"), 0, "{test}");
    let plan = instance.plan();
    assert_eq!(plan["pools"][0]["scaling"]["backends"], 2, "{test}: {plan:#}");
    assert_eq!(get(instance.door.address(), "/").status(), 200);
    (instance, old, next)
}

#[test]
fn killed_while_its_driver_changes_it_goes_on_with_that_and_no_backend_is_lost_or_doubled() {
    type Moment = fn(&Instance, &Fleet, &Fleet) -> bool;
    let moments: [(&str, Moment); 3] = [
        ("change-asked", |_, _, _| true),
        ("change-made", |_, _, next| !next.there().is_empty()),
        ("change-removed", |_, old, _| old.there().len() < 2),
    ];
    for (test, has_come) in moments {
        let (instance, _old, next) = killed_in_a_change(test, Fleet::table, has_come);
        let there = next.there();
        assert_eq!(there.len(), 2, "{test}: {:?} {}", next.log(), instance.printed());
        let runs = |pid: &u32| std::path::Path::new(&format!("/proc/{pid}")).exists();
        assert!(there.values().all(runs), "{test}: {there:?}");
    }
    // The next ones die with the process; those of the scripts are taken away by their own scripts all the same.
    let process = |_: &Fleet| {
        format!(
            "[pool.elastic.process]\ncommand = [\"{}\", \"sample-backend\", \"--name\", \"{{name}}\", \
             \"--http\", \"{{port}}\"]\n",
            common::EQUIPOISE
        )
    };
    let one_is_made: Moment = |instance, _, _| serving(instance).len() > 2;
    let (_instance, _old, _next) = killed_in_a_change("change-to-processes", process, one_is_made);
}

#[test]
fn a_service_that_fails_now_and_then_makes_each_backend_once() {
    // By idempotency key; every other question fails before it is answered.
    let made: Arc<Mutex<BTreeMap<String, HttpBackend>>> = Arc::default();
    let known = Arc::clone(&made);
    let service = HttpBackend::start(move |request| {
        let answer = if request.head.target() == "/add" {
            let key = request.head.header("idempotency-key").unwrap_or_default().to_string();
            let mut made = known.lock().expect("no test panics here");
            let name = format!("b{}", made.len());
            let backend = made.entry(key).or_insert_with(|| HttpBackend::named(&name));
            Answer::ok(format!("{{\"address\": \"{}\"}}", backend.address()))
        } else {
            Answer::ok("{}")
        };
        if request.number % 2 == 0 { Answer::sized(503, "") } else { answer }
    });
    let url = |path: &str| format!("http://{}/{path}", service.address());
    let mut instance = Instance::new("webhook");
    let token = instance.folder.write("token", "secret-of-the-service\n");
    instance.start(&format!(
        "{ELASTIC}[pool.elastic.webhook]\nadd = {:?}\nremove = {:?}\ntoken-file = {:?}\n",
        url("add"),
        url("remove"),
        text(&token)
    ));
    assert!(eventually(|| serving(&instance).len() == 1), "{}", instance.printed());
    let (worked, said) = instance.command(&["plan", "pin", "web", "3"]);
    assert!(worked, "{said}");
    assert!(eventually(|| serving(&instance).len() == 3), "{}", instance.printed());
    let mut addresses: Vec<_> =
        made.lock().expect("no test panics here").values().map(HttpBackend::address).collect();
    let mut served = serving(&instance);
    addresses.sort();
    served.sort();
    assert_eq!(served, addresses, "each was made once, whatever failed");
    assert_eq!(get(instance.door.address(), "/").status(), 200);
    let (worked, said) = instance.command(&["plan", "pin", "web", "1"]);
    assert!(worked, "{said}");
    assert!(eventually(|| serving(&instance).len() == 1));
    let removed = || {
        let asked = service.requests();
        let asked = asked.iter().filter(|it| it.head.target() == "/remove");
        let names = asked.filter_map(|it| serde_json::from_slice::<Value>(&it.body).ok());
        names.filter_map(|it| it["name"].as_str().map(str::to_string)).collect::<BTreeSet<_>>()
    };
    assert!(eventually(|| removed().len() == 2), "{:?}", removed());
    let authorized = |it: &equipoise_testkit::Received| {
        it.head.header("authorization") == Some("Bearer secret-of-the-service")
    };
    assert!(service.requests().iter().all(authorized));
}
