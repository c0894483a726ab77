//! The machines of a cluster as processes on loopback, with a real etcd.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use equipoise_testkit::{EtcdMembers, ReservedPort, free_port};

use crate::common::{EQUIPOISE, Folder, Process, equipoise, stderr, stdout, text};

/// Longest time to wait. Elections of real processes take long on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster's etcd, and a folder for its machines.
pub(crate) struct Site {
    pub(crate) folder: Folder,
    pub(crate) etcd: EtcdMembers,
    /// Text after `name = "web"` in the pool's table, and `[load]`, of machines that are created
    /// from now on. `BACKEND` stands for the backend's address.
    pub(crate) pool: String,
    pub(crate) load: String,
    /// Further tables.
    pub(crate) rest: String,
}

const BY_LOAD: &str =
    "weights = \"load\"\nscheduler = \"weighted-least-connection\"\nbackends = [\"BACKEND\"]\n";

/// A machine with its configuration.
pub(crate) struct Machine {
    pub(crate) name: String,
    pub(crate) file: PathBuf,
    pub(crate) door: ReservedPort,
    pub(crate) cluster: ReservedPort,
    pub(crate) process: Option<Process>,
    /// Environment variables of its process.
    pub(crate) environment: Vec<(String, String)>,
}

impl Site {
    pub(crate) fn new(test: &str) -> Option<Site> {
        let folder = Folder::new(test);
        let state = folder.path("etcd");
        std::fs::create_dir_all(&state).unwrap();
        let etcd = EtcdMembers::start(&state, 1, "http", &[])?;
        let (pool, load, rest) = (BY_LOAD.to_string(), String::new(), String::new());
        Some(Site { folder, etcd, pool, load, rest })
    }

    /// Creates a machine. `cluster` is its `[cluster]` table.
    pub(crate) fn machine(
        &self,
        name: &str,
        backend: SocketAddr,
        cluster: impl Fn(&Machine) -> String,
    ) -> Machine {
        let file = self.folder.path(&format!("{name}.toml"));
        let (door, port) = (free_port(), free_port());
        let (process, environment) = (None, Vec::new());
        let mut machine =
            Machine { name: name.into(), file, door, cluster: port, process, environment };
        machine.file = self.write(&machine, backend, &cluster(&machine));
        machine
    }

    pub(crate) fn write(&self, machine: &Machine, backend: SocketAddr, cluster: &str) -> PathBuf {
        let (name, state) = (&machine.name, self.folder.path(&machine.name));
        let socket = self.folder.path(&format!("{name}.sock"));
        let door = machine.door.address();
        let config = format!(
            "[instance]\nname = \"{name}\"\nthreads = 1\n[api]\nsocket = \"{}\"\nlisten = \"off\"\n\
             [controller]\nstate = \"{state}\"\n\
             [cluster]\nstate = \"{state}\"\n{cluster}\n\
             [[session]]\nlisten = \"{door}\"\nprotocol = \"http\"\npool = \"web\"\n\
             [[pool]]\nname = \"web\"\n{pool}\n[load]\n{load}\n{rest}\n",
            socket.display(),
            state = state.display(),
            pool = self.pool.replace("BACKEND", &backend.to_string()),
            load = self.load,
            rest = self.rest,
        );
        self.folder.write(&format!("{name}.toml"), &config)
    }

    pub(crate) fn controller(&self, name: &str, backend: SocketAddr) -> Machine {
        let etcd = format!("{:?}", self.etcd.endpoints());
        self.machine(name, backend, |machine| {
            let listen = machine.cluster.address();
            format!("name = \"test\"\nlisten = \"{listen}\"\nstore = {{ etcd = {etcd} }}")
        })
    }

    /// Starts three controllers with one authority.
    pub(crate) fn controllers(&self, backend: SocketAddr) -> Vec<Machine> {
        let mut all = self.made_controllers(backend);
        self.start(&mut all);
        all
    }

    /// Creates three controllers with one authority, and does not start them.
    pub(crate) fn made_controllers(&self, backend: SocketAddr) -> Vec<Machine> {
        self.controllers_of(&["c1", "c2", "c3"], backend)
    }

    /// Creates controllers with these names and one authority, and does not start them.
    pub(crate) fn controllers_of(&self, names: &[&str], backend: SocketAddr) -> Vec<Machine> {
        let all: Vec<Machine> = names.iter().map(|name| self.controller(name, backend)).collect();
        let said = command(&["cluster", "init", "--config", text(&all[0].file)]);
        assert!(said.contains("created the cluster test;"), "{said}");
        for other in &names[1..] {
            std::fs::create_dir_all(self.folder.path(other)).unwrap();
            for file in ["ca.pem", "ca.key"] {
                let from = self.folder.path(names[0]).join(file);
                std::fs::copy(from, self.folder.path(other).join(file)).unwrap();
            }
        }
        all
    }

    pub(crate) fn start(&self, all: &mut [Machine]) {
        all.iter_mut().for_each(Machine::start);
        for one in all {
            one.process().wait_for_text("cluster API");
        }
    }

    pub(crate) fn node(&self, name: &str, backend: SocketAddr, controllers: &[Machine]) -> Machine {
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
    pub(crate) fn start(&mut self) {
        let mut command = std::process::Command::new(EQUIPOISE);
        command.args(["run", text(&self.file)]).envs(self.environment.iter().cloned());
        let process = Process::of(command);
        process.wait_for_text(" ready ");
        self.process = Some(process);
    }

    /// Ends the process as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        drop(self.process.take());
    }

    /// Runs a command over the machine's unix socket, and returns its output. It is repeated while
    /// it fails, as it does without a leader, so it must have the same effect when run twice.
    pub(crate) fn asked(&self, args: &[&str]) -> String {
        let (socket, end) = (self.file.with_extension("sock"), Instant::now() + PATIENCE);
        loop {
            let output = equipoise(&[args, &["--api", text(&socket)]].concat());
            if output.status.success() {
                return stdout(&output);
            }
            assert!(Instant::now() < end, "{args:?}: {}", stderr(&output));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Names of the pool's backends that receive new work.
    pub(crate) fn serving(&self) -> Vec<String> {
        let socket = self.file.with_extension("sock");
        let output = equipoise(&["status", "--json", "--api", text(&socket)]);
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let backends = status["pools"][0]["backends"].as_array().cloned().unwrap_or_default();
        let up = backends.iter().filter(|it| it["state"] == "up");
        let mut names: Vec<_> =
            up.filter_map(|it| it["name"].as_str()).map(str::to_string).collect();
        names.sort();
        names
    }

    pub(crate) fn process(&self) -> &Process {
        self.process.as_ref().expect("it runs")
    }

    /// A controller's view of the cluster, asked from this machine; `None` while no controller
    /// answers.
    pub(crate) fn status(&self) -> Option<serde_json::Value> {
        let file = text(&self.file);
        let output = equipoise(&["status", "--cluster", "--json", "--config", file]);
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        Some(said).filter(|said| said["view"].is_object())
    }

    /// Waits until its view of the cluster fits.
    pub(crate) fn until(
        &self,
        what: &str,
        holds: impl Fn(&serde_json::Value) -> bool,
    ) -> serde_json::Value {
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

/// Runs a command that must succeed, and returns its output.
pub(crate) fn command(args: &[&str]) -> String {
    let output = equipoise(args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    stdout(&output)
}

pub(crate) fn leader(status: &serde_json::Value) -> Option<&str> {
    status["view"]["leader"].as_str()
}

pub(crate) fn term(status: &serde_json::Value) -> u64 {
    status["view"]["term"].as_u64().unwrap_or(0)
}

pub(crate) fn generation(status: &serde_json::Value) -> Option<(u64, u64)> {
    let edition = &status["view"]["instructions"];
    Some((edition["term"].as_u64()?, edition["generation"].as_u64()?))
}

/// The members with a recent report.
pub(crate) fn reporting(status: &serde_json::Value) -> Vec<&str> {
    let members = status["view"]["members"].as_array().map(Vec::as_slice).unwrap_or_default();
    let fresh = |member: &&serde_json::Value| member["report_age"]["secs"].as_u64() < Some(5);
    members
        .iter()
        .filter(|m| m["report_age"].is_object())
        .filter(fresh)
        .filter_map(|m| m["name"].as_str())
        .collect()
}

/// Waits until `holds` returns true.
pub(crate) fn soon(what: &str, holds: impl FnMut() -> bool) {
    soon_within(PATIENCE, what, holds);
}

/// Waits for a condition that takes longer than most.
pub(crate) fn soon_within(patience: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + patience;
    while !holds() {
        assert!(Instant::now() < end, "never came: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A pool's roster: name, executor and state of each backend.
pub(crate) fn roster(status: &serde_json::Value) -> Vec<(String, String, String)> {
    let backends = status["view"]["rosters"]["web"]["backends"].as_object();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_string();
    let entry = |(name, it): (&String, &serde_json::Value)| {
        (name.clone(), text(&it["executor"]), text(&it["state"]))
    };
    backends.into_iter().flatten().map(entry).collect()
}
