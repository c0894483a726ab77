//! Partitions: a controller cut off from the others, a node cut off from its controllers. Each
//! machine is a network namespace.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use equipoise_testkit::netns::{Host, Switch, unavailable};
use equipoise_testkit::{EtcdMembers, HttpBackend};

use crate::bed::{generation, leader, reporting, soon, term};
use crate::common::{EQUIPOISE, Folder, Load, Process, text};
use crate::watching::{status, watch};

const PATIENCE: Duration = Duration::from_secs(90);
pub(crate) const CONTROLLERS: [&str; 3] = ["c1", "c2", "c3"];

/// Three controllers, each with an etcd member, and a node, on one network.
pub(crate) struct Network {
    pub(crate) hosts: Vec<Host>,
    hub: Host,
    pub(crate) folder: Folder,
    pub(crate) processes: Vec<Process>,
    /// Text after `name = "web"` in the pool's table, and `[load]`, of machines that start from now
    /// on. `BACKEND` stands for the backend's address.
    pub(crate) pool: String,
    pub(crate) load: String,
}

fn address(place: usize) -> String {
    format!("10.77.0.{}", place + 1)
}

impl Network {
    pub(crate) fn new(test: &str) -> Option<Network> {
        if let Some(reason) = unavailable() {
            println!("skipped: {reason}");
            return None;
        }
        EtcdMembers::is_installed().then_some(())?;
        let hub = Host::new("hub").unwrap();
        let switch = Switch::new(&hub, "lan").unwrap();
        let names = CONTROLLERS.iter().chain(&["n1"]);
        let hosts: Vec<Host> = names.map(|name| Host::new(name).unwrap()).collect();
        for (place, host) in hosts.iter().enumerate() {
            switch.plug(host, "eth0").unwrap();
            host.address("eth0", address(place).parse().unwrap(), 24).unwrap();
        }
        drop(switch);
        let (folder, load) = (Folder::new(test), String::new());
        let pool = "weights = \"load\"\nbackends = [\"BACKEND\"]\n".to_string();
        Some(Network { hosts, hub, folder, processes: Vec::new(), pool, load })
    }

    /// Unplugs a host's cable, or plugs it in again. The host sees no change of its link.
    fn cut(&self, host: usize, is_cut: bool) {
        let port = format!("{}-eth0", self.hosts[host].name());
        let master = if is_cut { "nomaster" } else { "master lan" };
        self.hub.ip(&format!("link set {port} {master}")).unwrap();
    }

    /// Separates two hosts from each other, or connects them again. Their frames go to an address
    /// that no host has; other hosts are not affected.
    fn part(&self, one: usize, other: usize, is_apart: bool) {
        for (from, to) in [(one, other), (other, one)] {
            let to = address(to);
            let change = match is_apart {
                true => {
                    format!("neigh replace {to} lladdr 02:00:00:00:00:99 dev eth0 nud permanent")
                }
                false => format!("neigh del {to} dev eth0"),
            };
            self.hosts[from].ip(&change).unwrap();
        }
    }

    /// Drops incoming TCP to `port` at a host, or stops doing so. All other traffic is unaffected.
    pub(crate) fn drop_inbound(&self, host: usize, port: u16, is_dropped: bool) {
        let drop = format!("pref 1 iif eth0 ipproto tcp dport {port} blackhole");
        let changes =
            match is_dropped {
                // The new rule must come before the lookup of the host's own addresses.
                true => ["add pref 10 lookup local", "del pref 0", &format!("add {drop}")]
                    .map(String::from),
                false => ["add pref 0 lookup local", &format!("del {drop}"), "del pref 10"]
                    .map(String::from),
            };
        for change in changes {
            self.hosts[host].ip(&format!("rule {change}")).unwrap();
        }
    }

    pub(crate) fn start_etcd(&mut self) {
        let cluster: Vec<String> =
            (0..3).map(|place| format!("m{place}=http://{}:2380", address(place))).collect();
        for place in 0..3 {
            let url = |port: u16| format!("http://{}:{port}", address(place));
            let mut command = self.hosts[place].command("etcd");
            command
                .env_clear()
                .args(["--name", &format!("m{place}"), "--logger", "zap"])
                .args(["--data-dir", text(&self.folder.path(&format!("m{place}")))])
                .args(["--listen-client-urls", &url(2379), "--advertise-client-urls", &url(2379)])
                .args([
                    "--listen-peer-urls",
                    &url(2380),
                    "--initial-advertise-peer-urls",
                    &url(2380),
                ])
                .args(["--initial-cluster", &cluster.join(","), "--initial-cluster-state", "new"]);
            self.processes.push(Process::of(command));
        }
    }

    fn write(&self, name: &str, cluster: &str, backend: &str) -> PathBuf {
        let state = self.folder.path(name);
        std::fs::create_dir_all(&state).unwrap();
        let socket = self.folder.path(&format!("{name}.sock"));
        let config = format!(
            "[instance]\nname = \"{name}\"\nthreads = 1\n[api]\nsocket = {:?}\nlisten = \"off\"\n\
             [controller]\nstate = {state:?}\n[cluster]\nstate = {state:?}\n{cluster}\n\
             [[session]]\nlisten = \"0.0.0.0:80\"\nprotocol = \"http\"\npool = \"web\"\n\
             [load]\n{}[[pool]]\nname = \"web\"\n{}",
            text(&socket),
            self.load,
            self.pool.replace("BACKEND", backend),
            state = text(&state),
        );
        self.folder.write(&format!("{name}.toml"), &config)
    }

    pub(crate) fn start(&mut self, place: usize, file: &Path) {
        let mut command = self.hosts[place].command(EQUIPOISE);
        command.args(["run", text(file)]);
        let process = Process::of(command);
        process.wait_for_text(" ready ");
        self.processes.push(process);
    }

    pub(crate) fn start_controllers(&mut self) {
        for (place, file) in self.make_controllers().iter().enumerate() {
            self.start(place, file);
        }
        (0..3).for_each(|place| drop(self.until(place, "a leader", |it| leader(it).is_some())));
    }

    /// Creates the controllers' files, with one authority.
    pub(crate) fn make_controllers(&self) -> Vec<PathBuf> {
        let etcd: Vec<String> =
            (0..3).map(|place| format!("http://{}:2379", address(place))).collect();
        let files: Vec<PathBuf> = CONTROLLERS
            .iter()
            .enumerate()
            .map(|(place, name)| {
                let own = address(place);
                let cluster = format!(
                    "name = \"test\"\nlisten = \"{own}:9911\"\nstore = {{ etcd = {etcd:?} }}"
                );
                self.write(name, &cluster, "127.0.0.1:81")
            })
            .collect();
        self.run(0, &["cluster", "init", "--config", text(&files[0])]);
        for other in &CONTROLLERS[1..] {
            for file in ["ca.pem", "ca.key"] {
                let from = self.folder.path("c1").join(file);
                std::fs::copy(from, self.folder.path(other).join(file)).unwrap();
            }
        }
        files
    }

    pub(crate) fn start_node(&mut self, backend: &str) {
        let file = self.folder.path("c1.toml");
        let token = self.run(0, &["cluster", "token", "create", "--config", text(&file)]);
        let token = self.folder.write("n1.token", &token);
        let controllers: Vec<String> =
            (0..3).map(|place| format!("{}:9911", address(place))).collect();
        let cluster =
            format!("controllers = {controllers:?}\njoin-token-file = {:?}", text(&token));
        let file = self.write("n1", &cluster, backend);
        self.start(3, &file);
    }

    fn run(&self, place: usize, args: &[&str]) -> String {
        self.hosts[place].run(EQUIPOISE, args).unwrap()
    }

    /// A controller's view of the cluster, asked on its own machine.
    fn status(&self, place: usize) -> Option<serde_json::Value> {
        let file = self.folder.path(&format!("{}.toml", CONTROLLERS[place]));
        let args = ["status", "--cluster", "--json", "--config", text(&file)];
        serde_json::from_str(&self.hosts[place].run(EQUIPOISE, &args).ok()?).ok()
    }

    pub(crate) fn until(
        &self,
        place: usize,
        what: &str,
        holds: impl Fn(&serde_json::Value) -> bool,
    ) -> serde_json::Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let status = self.status(place);
            if let Some(status) = status.as_ref().filter(|status| holds(status)) {
                return status.clone();
            }
            let printed = || self.processes.iter().map(Process::printed).collect::<String>();
            assert!(Instant::now() < end, "never came: {what}; {status:?}\n{}", printed());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

pub(crate) fn leads(status: &serde_json::Value) -> bool {
    status["view"]["leads"] == true
}

fn standing(status: &serde_json::Value, name: &str) -> String {
    let members = status["view"]["members"].as_array().cloned().unwrap_or_default();
    let member = members.iter().find(|member| member["name"] == name);
    member.and_then(|it| it["standing"].as_str()).unwrap_or_default().to_string()
}

/// The index of the leader, and those of the other two.
pub(crate) fn places(status: &serde_json::Value) -> (usize, [usize; 2]) {
    let place = CONTROLLERS.iter().position(|it| Some(*it) == leader(status)).unwrap();
    (place, [(place + 1) % 3, (place + 2) % 3])
}

/// Makes the node follow the leader, by blocking its way to the others for a moment. Returns the
/// cluster's state, the leader's index and the others'.
fn followed(network: &Network, socket: &Path) -> (serde_json::Value, usize, [usize; 2]) {
    let end = Instant::now() + PATIENCE;
    loop {
        let before = network.until(0, "a leader", |status| leader(status).is_some());
        let (place, others) = places(&before);
        let wanted = format!("{}:9911", address(place));
        others.iter().for_each(|other| network.part(3, *other, true));
        soon("it follows the leader", || {
            status(socket).is_some_and(|now| now["cluster"]["following"] == wanted)
        });
        others.iter().for_each(|other| network.part(3, *other, false));
        let now = network.until(place, "all report", |status| {
            reporting(status).len() == 4 && leader(status).is_some()
        });
        // A busy machine may have changed its leader by itself.
        if (leader(&now), term(&now)) == (leader(&before), term(&before)) {
            return (before, place, others);
        }
        assert!(Instant::now() < end, "another leads each time: {now}");
    }
}

#[test]
fn nodes_leave_a_partitioned_leader_and_apply_no_stale_plan() {
    let Some(mut network) = Network::new("cluster-parted") else { return };
    network.start_etcd();
    network.start_controllers();
    let backend = network.hosts[3].enter(|| HttpBackend::named("a"));
    network.start_node(&backend.address().to_string());
    for place in 0..3 {
        network.until(place, "all report", |status| reporting(status).len() == 4);
    }
    let socket = network.folder.path("n1.sock");
    let (before, place, others) = followed(&network, &socket);
    let wanted = format!("{}:9911", address(place));
    let stop = Arc::new(AtomicBool::new(false));
    let watching = watch(socket, &stop);
    let load = network.hosts[3].enter(|| Load::start(([127, 0, 0, 1], 80).into(), 1));
    others.iter().for_each(|other| network.part(place, *other, true));
    let after = network.until(others[0], "another leader", |now| term(now) > term(&before));
    // The stream of its instructions stays open, and brings nothing new.
    network.processes[6].wait_for_text(&format!("{wanted}: nothing new for"));
    network.until(others[0], "the node goes by the new leader", |status| {
        let members = status["view"]["members"].as_array().unwrap();
        let applied = |m: &serde_json::Value| m["applied"]["term"].as_u64() >= Some(term(&after));
        members.iter().any(|m| m["name"] == "n1" && applied(m))
    });
    let alone = network.until(place, "it knows that it leads no more", |status| !leads(status));
    assert!(generation(&alone).unwrap().0 < term(&after), "it learns nothing new");
    assert!(reporting(&alone).contains(&"n1"), "the node reaches it all the time");
    load.wait_for(50);
    others.iter().for_each(|other| network.part(place, *other, false));
    network.until(place, "it follows the others again", |status| {
        generation(status).is_some_and(|(planned, _)| planned >= term(&after))
            && reporting(status).len() == 4
    });
    stop.store(true, Relaxed);
    let (looks, terms) = watching.join().expect("instructions never went back");
    assert!(looks > 10 && terms >= 2, "{looks} {terms}");
    let (good, bad) = load.finish();
    assert!(bad.is_empty(), "{} of {good} failed: {:?}", bad.len(), bad.first());
}

#[test]
fn an_isolated_leader_steps_down_and_an_isolated_node_keeps_serving() {
    let Some(mut network) = Network::new("cluster-cut") else { return };
    network.start_etcd();
    network.start_controllers();
    let backend = network.hosts[3].enter(|| HttpBackend::named("a"));
    network.start_node(&backend.address().to_string());
    for place in 0..3 {
        network.until(place, "all report", |status| reporting(status).len() == 4);
    }
    let load = network.hosts[3].enter(|| Load::start(([127, 0, 0, 1], 80).into(), 1));
    load.wait_for(50);

    // Cuts the leader off from every other machine.
    let before = network.until(0, "a leader", |status| leader(status).is_some());
    let name = leader(&before).unwrap().to_string();
    let place = CONTROLLERS.iter().position(|it| *it == name).unwrap();
    let other = (place + 1) % 3;
    network.cut(place, true);
    let cut_at = Instant::now();
    let after = network.until(other, "another leader", |status| term(status) > term(&before));
    println!("{name} was cut off; {} leads after {:?}", leader(&after).unwrap(), cut_at.elapsed());
    let alone = network.until(place, "it knows that it leads no more", |status| !leads(status));
    let stale = generation(&alone);
    network.until(other, "the node goes by the new leader", |status| {
        let members = status["view"]["members"].as_array().unwrap();
        let applied = |m: &serde_json::Value| m["applied"]["term"].as_u64() >= Some(term(&after));
        members.iter().any(|m| m["name"] == "n1" && applied(m))
    });
    assert!(stale.unwrap().0 < term(&after), "what is cut off learns nothing new");
    network.cut(place, false);
    network.until(place, "it follows the others again", |status| {
        generation(status).is_some_and(|(planned, _)| planned >= term(&after))
            && reporting(status).len() == 4
    });

    // Cuts the node off from every other machine: its own clients notice nothing.
    network.cut(3, true);
    let late = |status: &serde_json::Value| {
        ["late", "gone"].iter().any(|word| standing(status, "n1").starts_with(word))
    };
    network.until(other, "it is missed", late);
    load.wait_for(50);
    network.processes[6]
        .wait_for_text("no controller has newer instructions; continuing with the last");
    load.wait_for(50);
    network.cut(3, false);
    for place in 0..3 {
        network.until(place, "it is there again", |status| {
            reporting(status).contains(&"n1") && !late(status)
        });
    }
    let (good, bad) = load.finish();
    assert!(bad.is_empty(), "{} of {good} failed: {:?}", bad.len(), bad.first());
}
