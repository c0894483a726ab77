//! A controller and nodes as processes on loopback, each node with a simulated machine.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use equipoise_testkit::{ReservedPort, free_port};
use serde_json::Value;

use crate::common::{EQUIPOISE, Folder, Process, equipoise, stderr, stdout, text};
use crate::machine::{self, Machine};

/// Longest time to wait. Real processes take long on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

const NAMES: [&str; 3] = ["n0", "n1", "n2"];

/// Four plans per second. All nodes have the memory of one machine, and its network has no limit.
const LOAD: &str = "[load]\nperiod = \"250ms\"\nnet = 0.0\nmemory = 0.0\n";

pub(crate) struct Site {
    nodes: Vec<Node>,
    _controller: Process,
    folder: Folder,
}

struct Node {
    process: Process,
    socket: PathBuf,
    door: ReservedPort,
    _machine: Machine,
}

impl Site {
    /// Starts nodes `n0`, `n1`, ... that know each other. `works` has the processor time of a
    /// request at each node. Prints the reason and returns `None` if processes cannot get their own
    /// `/proc/stat`.
    pub(crate) fn start(test: &str, works: &[Duration]) -> Option<Site> {
        Site::start_with(test, works, "")
    }

    /// The same, with more options in the `[load]` table.
    pub(crate) fn start_with(test: &str, works: &[Duration], load: &str) -> Option<Site> {
        let folder = Folder::new(test);
        if let Some(reason) = machine::unavailable(&folder) {
            println!("skipped {test}: a node cannot be shown a processor of its own: {reason}");
            return None;
        }
        let cluster = free_port();
        let file = controller(&folder, cluster.address(), load);
        command(&["cluster", "init", "--config", text(&file)]);
        let controller = Process::start(&["run", text(&file)]);
        controller.wait_for_text("cluster API");
        let node = |(name, work): (&&'static str, &Duration)| {
            node(&folder, (name, load), *work, &file, cluster.address())
        };
        let nodes = NAMES.iter().zip(works).map(node).collect();
        let site = Site { nodes, _controller: controller, folder };
        site.until("all nodes know each other", || {
            (0..works.len()).all(|node| site.peers(node) + 1 == works.len())
        });
        site.until("shares are planned", || {
            (0..works.len()).all(|node| site.dispatch(node)["planned"] == true)
        });
        Some(site)
    }

    /// The addresses for clients.
    pub(crate) fn doors(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.door.address()).collect()
    }

    /// A total of a node's dispatch front door, over all classes.
    pub(crate) fn total(&self, node: usize, what: &str) -> u64 {
        let dispatch = self.dispatch(node);
        let classes = dispatch["classes"].as_array().unwrap();
        classes.iter().map(|class| class[what].as_u64().unwrap()).sum()
    }

    /// The planned share of computing requests that a node keeps.
    pub(crate) fn keep(&self, node: usize) -> f64 {
        self.of_class(node, "computing", "keep")
    }

    /// A figure of a class at a node's dispatch front door.
    pub(crate) fn of_class(&self, node: usize, class: &str, what: &str) -> f64 {
        let dispatch = self.dispatch(node);
        let classes = dispatch["classes"].as_array().unwrap();
        classes.iter().find(|it| it["class"] == class).unwrap()[what].as_f64().unwrap()
    }

    /// Waits until `holds` returns true.
    pub(crate) fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !holds() {
            let printed = || self.nodes.iter().map(|node| node.process.printed());
            assert!(
                Instant::now() < end,
                "never came: {what}\n{}\n{}",
                self.cluster(),
                printed().collect::<String>()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The state of the cluster, for the message of a failure.
    fn cluster(&self) -> String {
        let file = self.folder.path("c0.toml");
        stdout(&equipoise(&["status", "--cluster", "--config", text(&file)]))
    }

    fn status(&self, node: usize) -> Value {
        let socket = &self.nodes[node].socket;
        serde_json::from_str(&command(&["status", "--json", "--api", text(socket)])).unwrap()
    }

    fn dispatch(&self, node: usize) -> Value {
        self.status(node)["front_doors"][0]["dispatch"].clone()
    }

    /// Number of peers that a node may pick.
    fn peers(&self, node: usize) -> usize {
        let status = self.status(node);
        let pools = status["pools"].as_array().unwrap();
        let Some(peers) = pools.iter().find(|pool| pool["name"] == "app.peers") else { return 0 };
        let is_up = |it: &&Value| it["health"] == "healthy" && it["state"] == "up";
        peers["backends"].as_array().unwrap().iter().filter(is_up).count()
    }
}

fn head(folder: &Folder, (name, load): (&str, &str)) -> String {
    let (socket, state) = (folder.path(&format!("{name}.sock")), folder.path(name));
    format!(
        "[instance]\nname = \"{name}\"\nthreads = 1\n[api]\nsocket = {socket:?}\nlisten = \"off\"\n{LOAD}{load}\
         [controller]\nstate = {state:?}\n[cluster]\nstate = {state:?}\n"
    )
}

fn controller(folder: &Folder, listen: SocketAddr, load: &str) -> PathBuf {
    let head = head(folder, ("c0", load));
    folder
        .write("c0.toml", &format!("{head}name = \"test\"\nlisten = \"{listen}\"\nstore = {{}}\n"))
}

fn node(
    folder: &Folder,
    (name, load): (&'static str, &str),
    work: Duration,
    controller: &Path,
    cluster: SocketAddr,
) -> Node {
    let (machine, door) = (Machine::start(folder, name, work), free_port());
    let token = command(&["cluster", "token", "create", "--config", text(controller)]);
    let token = folder.write(&format!("{name}.token"), &token);
    let (head, app, listen) = (head(folder, (name, load)), machine.app.address(), door.address());
    let file = folder.write(
        &format!("{name}.toml"),
        &format!(
            "{head}controllers = [\"{cluster}\"]\njoin-token-file = {token:?}\n\
             [[pool]]\nname = \"app\"\nbackends = [\"{app}\"]\n\
             [[dispatch]]\nlisten = \"{listen}\"\npool = \"app\"\n\
             class = [{{ class = \"light\", paths = [\"/light\"] }}, {{ class = \"computing\", paths = [\"/work\"] }}]\n"
        ),
    );
    let mut command = Command::new("unshare");
    command.args(machine::with_stat(&machine.stat, &[EQUIPOISE, "run", text(&file)]));
    let process = Process::of(command);
    process.wait_for_text(" ready ");
    let socket = folder.path(&format!("{name}.sock"));
    Node { process, socket, door, _machine: machine }
}

/// Runs a command that must succeed, and returns its output.
fn command(args: &[&str]) -> String {
    let output = equipoise(args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    stdout(&output)
}
