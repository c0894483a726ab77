//! Nodes in control groups with a quota of processor time, on a busy machine.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use equipoise_netns::CpuGroup;
use equipoise_testkit::{HttpBackend, ReservedPort, free_port};
use serde_json::Value;

use crate::common::{EQUIPOISE, Folder, Process, get, text};
use crate::site::PATIENCE;

/// A process alone in a group that may use this share of a core.
struct Node {
    cores: f64,
    api: ReservedPort,
    /// The process must end before its group.
    _process: Process,
    _group: CpuGroup,
}

impl Node {
    /// Prints the reason and returns `None` if no group can be created.
    fn start(folder: &Folder, backend: SocketAddr, cores: f64) -> Option<Node> {
        let name = format!("quota-{}", cores * 100.0);
        let group = match CpuGroup::create(&format!("eqp-{name}-{}", std::process::id()), cores) {
            Ok(group) => group,
            Err(error) => {
                println!("skipped: no control group can be made here: {error}");
                return None;
            }
        };
        let (api, door) = (free_port(), free_port());
        let socket = folder.path(&format!("{name}.sock"));
        let config = format!(
            "[instance]\nname = \"{name}\"\nthreads = 1\n\
             [api]\nsocket = {socket:?}\nlisten = \"{}\"\n[load]\nperiod = \"500ms\"\n\
             [[session]]\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"web\"\n\
             [[pool]]\nname = \"web\"\nbackends = [\"{backend}\"]\n",
            api.address(),
            door.address()
        );
        let file = folder.write(&format!("{name}.toml"), &config);
        let mut command = Command::new("sh");
        command.args(group.enter_and_become(EQUIPOISE, &["run", text(&file)]));
        let process = Process::of(command);
        process.wait_for_text(" ready ");
        Some(Node { cores, api, _process: process, _group: group })
    }

    /// The only node that it knows: itself.
    fn status(&self) -> Value {
        let answer: Value =
            serde_json::from_str(&get(self.api.address(), "/v1/nodes").text()).unwrap();
        answer["nodes"][0].clone()
    }
}

#[test]
fn a_node_in_a_quota_reports_the_quota_and_is_not_full_because_its_machine_is() {
    let (folder, backend) = (Folder::new("quota"), HttpBackend::named("a"));
    let start = |cores| Node::start(&folder, backend.address(), cores);
    let Some(nodes) = [0.08, 0.24].into_iter().map(start).collect::<Option<Vec<Node>>>() else {
        return;
    };
    let stop = AtomicBool::new(false);
    let processors = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let end = Instant::now() + PATIENCE;
        for node in &nodes {
            let is_so = |status: &Value| {
                let percent = |what: &str| status[what].as_f64();
                status["capacity"] == node.cores
                    && percent("machine_cpu_percent")
                        .zip(percent("cpu_percent"))
                        .is_some_and(|(machine, own)| machine > 90.0 && own < 60.0)
            };
            while !is_so(&node.status()) {
                if Instant::now() > end {
                    stop.store(true, Relaxed);
                    panic!("{} of a core: {:#}", node.cores, node.status());
                }
                // Each answer costs the node a part of its quota.
                thread::sleep(Duration::from_millis(250));
            }
        }
        stop.store(true, Relaxed);
    });
}
