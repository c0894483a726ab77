//! Several machines as one, as real processes on loopback with a real etcd.
#![allow(clippy::unwrap_used, reason = "tests say what they expect by failing")]

mod common;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use common::{Folder, Load, Process, equipoise, stderr, stdout, text};
use equipoise_testkit::{EtcdMembers, HttpBackend, ReservedPort, free_port};

/// For elections of real processes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster's etcd, and a folder for its machines.
struct Site {
    folder: Folder,
    etcd: EtcdMembers,
}

/// A machine with its configuration.
struct Machine {
    name: String,
    file: PathBuf,
    door: ReservedPort,
    cluster: ReservedPort,
    process: Option<Process>,
}

impl Site {
    fn new(test: &str) -> Option<Site> {
        let folder = Folder::new(test);
        let state = folder.path("etcd");
        std::fs::create_dir_all(&state).unwrap();
        let etcd = EtcdMembers::start(&state, 1, "http", &[])?;
        Some(Site { folder, etcd })
    }

    /// A machine of that name; `cluster` is its `[cluster]` table.
    fn machine(
        &self,
        name: &str,
        backend: SocketAddr,
        cluster: impl Fn(&Machine) -> String,
    ) -> Machine {
        let file = self.folder.path(&format!("{name}.toml"));
        let (door, port) = (free_port(), free_port());
        let mut machine = Machine { name: name.into(), file, door, cluster: port, process: None };
        machine.file = self.write(&machine, backend, &cluster(&machine));
        machine
    }

    fn write(&self, machine: &Machine, backend: SocketAddr, cluster: &str) -> PathBuf {
        let (name, state) = (&machine.name, self.folder.path(&machine.name));
        let socket = self.folder.path(&format!("{name}.sock"));
        let door = machine.door.address();
        let config = format!(
            "[instance]\nname = \"{name}\"\nthreads = 1\n[api]\nsocket = \"{}\"\nlisten = \"off\"\n\
             [controller]\nstate = \"{state}\"\n\
             [cluster]\nstate = \"{state}\"\n{cluster}\n\
             [[session]]\nlisten = \"{door}\"\nprotocol = \"http\"\npool = \"web\"\n\
             [[pool]]\nname = \"web\"\nweights = \"load\"\nscheduler = \"weighted-least-connection\"\nbackends = [\"{backend}\"]\n",
            socket.display(),
            state = state.display(),
        );
        self.folder.write(&format!("{name}.toml"), &config)
    }

    fn controller(&self, name: &str, backend: SocketAddr) -> Machine {
        let etcd = format!("{:?}", self.etcd.endpoints());
        self.machine(name, backend, |machine| {
            let listen = machine.cluster.address();
            format!("name = \"test\"\nlisten = \"{listen}\"\nstore = {{ etcd = {etcd} }}")
        })
    }

    /// Three controllers with one authority, started.
    fn controllers(&self, backend: SocketAddr) -> Vec<Machine> {
        let mut all: Vec<Machine> =
            ["c1", "c2", "c3"].map(|name| self.controller(name, backend)).into();
        let said = command(&["cluster", "init", "--config", text(&all[0].file)]);
        assert!(said.contains("cluster test is made"), "{said}");
        for other in ["c2", "c3"] {
            std::fs::create_dir_all(self.folder.path(other)).unwrap();
            for file in ["ca.pem", "ca.key"] {
                let from = self.folder.path("c1").join(file);
                std::fs::copy(from, self.folder.path(other).join(file)).unwrap();
            }
        }
        all.iter_mut().for_each(Machine::start);
        for one in &all {
            one.process().wait_for_text("cluster API");
        }
        all
    }

    fn node(&self, name: &str, backend: SocketAddr, controllers: &[Machine]) -> Machine {
        let token =
            command(&["cluster", "token", "create", "--config", text(&controllers[0].file)]);
        let token = self.folder.write(&format!("{name}.token"), &token);
        let addresses: Vec<_> =
            controllers.iter().map(|one| one.cluster.address().to_string()).collect();
        self.machine(name, backend, |_| {
            format!("controllers = {addresses:?}\njoin-token-file = {:?}", text(&token))
        })
    }
}

impl Machine {
    fn start(&mut self) {
        let process = Process::start(&["run", text(&self.file)]);
        process.wait_for_text(" ready ");
        self.process = Some(process);
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("it runs")
    }

    /// What it says of the cluster.
    fn status(&self) -> Option<serde_json::Value> {
        let file = text(&self.file);
        let output = equipoise(&["status", "--cluster", "--json", "--config", file]);
        serde_json::from_slice(&output.stdout).ok()
    }

    /// Waits until what it says of the cluster is so.
    fn until(&self, what: &str, holds: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let status = self.status();
            if let Some(status) = &status
                && holds(status)
            {
                return status.clone();
            }
            assert!(
                Instant::now() < end,
                "never came: {what}; {status:?}\n{}",
                self.process().printed()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A command that works, and what it printed.
fn command(args: &[&str]) -> String {
    let output = equipoise(args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    stdout(&output)
}

fn leader(status: &serde_json::Value) -> Option<&str> {
    status["view"]["leader"].as_str()
}

fn term(status: &serde_json::Value) -> u64 {
    status["view"]["term"].as_u64().unwrap_or(0)
}

fn generation(status: &serde_json::Value) -> Option<(u64, u64)> {
    let edition = &status["view"]["instructions"];
    Some((edition["term"].as_u64()?, edition["generation"].as_u64()?))
}

/// The members with a report that is not old.
fn reporting(status: &serde_json::Value) -> Vec<&str> {
    let members = status["view"]["members"].as_array().map(Vec::as_slice).unwrap_or_default();
    let fresh = |member: &&serde_json::Value| member["report_age"]["secs"].as_u64() < Some(5);
    members
        .iter()
        .filter(|m| m["report_age"].is_object())
        .filter(fresh)
        .filter_map(|m| m["name"].as_str())
        .collect()
}

#[test]
fn a_leader_is_killed_and_another_leads_within_3_s_without_a_failed_request() {
    let backend = HttpBackend::named("a");
    let Some(site) = Site::new("cluster-leader") else { return };
    let mut controllers = site.controllers(backend.address());
    let mut node = site.node("n1", backend.address(), &controllers);
    node.start();
    let all = ["c1", "c2", "c3", "n1"];
    for one in &controllers {
        one.until("every member reports to every controller", |status| reporting(status) == all);
    }
    node.process().wait_for_text("following instructions");
    let load = Load::start(node.door.address(), 2);
    load.wait_for(100);

    let mut terms = Vec::new();
    for _ in 0..2 {
        let before = controllers[0].until("a leader", |status| leader(status).is_some());
        terms.push(term(&before));
        let name = leader(&before).unwrap().to_string();
        let place = controllers.iter().position(|one| one.name == name).unwrap();
        let other = (place + 1) % controllers.len();
        drop(controllers[place].process.take());
        let died = Instant::now();
        let after = controllers[other].until("another leader", |status| {
            leader(status).is_some_and(|it| it != name) && term(status) > term(&before)
        });
        let took = died.elapsed();
        assert!(took < Duration::from_secs(3), "vacant for {took:?}");
        println!("{name} was killed; {} leads after {took:?}", leader(&after).unwrap());
        // The new leader plans, and the node goes by it.
        let planned = controllers[other].until("a plan of the new leader", |status| {
            generation(status).is_some_and(|(term, _)| term > terms[terms.len() - 1])
        });
        let wanted = generation(&planned).unwrap().0;
        controllers[other].until("the node goes by it", |status| {
            let members = status["view"]["members"].as_array().unwrap();
            let applied = |m: &serde_json::Value| m["applied"]["term"].as_u64() >= Some(wanted);
            members.iter().any(|m| m["name"] == "n1" && applied(m))
        });
        load.wait_for(100);
        controllers[place].start();
        controllers[place].process().wait_for_text("cluster API");
    }
    let (good, bad) = load.finish();
    assert!(bad.is_empty(), "{} of {good} failed: {:?}", bad.len(), bad.first());
}

#[test]
fn a_node_serves_on_when_every_controller_is_gone_and_says_how_old_its_instructions_are() {
    let backend = HttpBackend::named("a");
    let Some(site) = Site::new("cluster-alone") else { return };
    let mut controllers = site.controllers(backend.address());
    let mut node = site.node("n1", backend.address(), &controllers);
    node.start();
    node.process().wait_for_text("following instructions");
    controllers[0].until("the node goes by a plan", |status| {
        let members = status["view"]["members"].as_array().unwrap();
        members.iter().any(|m| m["name"] == "n1" && m["applied"].is_object())
    });
    let load = Load::start(node.door.address(), 2);
    controllers.iter_mut().for_each(|one| drop(one.process.take()));
    node.process().wait_for_text("no controller has newer instructions; going on with the last");
    load.wait_for(100);
    let (_, bad) = load.finish();
    assert!(bad.is_empty(), "{:?}", bad.first());
}

#[test]
fn an_agent_joins_reports_and_is_listed_and_a_spent_token_is_refused() {
    let backend = HttpBackend::named("a");
    let Some(site) = Site::new("cluster-agent") else { return };
    let controllers = site.controllers(backend.address());
    let config = text(&controllers[0].file);
    let token = command(&[
        "cluster",
        "token",
        "create",
        "--single-use",
        "--ttl",
        "10m",
        "--config",
        config,
    ]);
    let agent = |name: &str| {
        let state = site.folder.path(name);
        let address = controllers[1].cluster.address();
        let file = site.folder.write(
            &format!("{name}.toml"),
            &format!(
                "[instance]\nname = {name:?}\n[cluster]\nstate = {:?}\ncontrollers = \"{address}\"\njoin-token = {:?}\n",
                text(&state),
                token.trim()
            ),
        );
        Process::start(&["agent", text(&file)])
    };
    let first = agent("db-1");
    first.wait_for_text("certified for the cluster");
    let second = agent("db-2");
    second.wait_for_text("a controller's log says why");
    controllers[1].process().wait_for_text("is for one use, and db-1 used it");
    controllers[1].until("it reports", |status| reporting(status).contains(&"db-1"));
    let listed = command(&["cluster", "token", "list", "--config", config]);
    assert!(listed.contains("used by db-1"), "{listed}");
    let shown = command(&["cluster", "members", "--config", text(&controllers[1].file)]);
    assert!(shown.contains("db-1") && shown.contains("agent"), "{shown}");
    assert!(!first.printed().contains(token.trim()), "a token was logged");

    command(&["cluster", "evict", "db-1", "--config", config]);
    first.wait_for_text("was evicted");
    let again = equipoise(&["cluster", "init", "--config", config]);
    assert!(
        stderr(&again).contains("is there already, and is not overwritten"),
        "{}",
        stderr(&again)
    );
}
