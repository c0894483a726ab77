//! A controller on a host of its own, with machines beside it for simulated nodes.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use equipoise_netns::{Host, Switch};

use crate::etcd::{self, Etcd};
use crate::fleet::{self, Fleet};
use crate::place::{Equipoise, Place};
use crate::traffic::Traffic;

const CONTROLLER: &str = "10.77.0.1";
const PORT: u16 = 9911;
const DOOR: u16 = 80;
/// Largest number of joins in a row from one address.
const NODES_OF_A_MACHINE: usize = 20;
/// For all to join, and to go by a plan.
const JOINING: Duration = Duration::from_secs(120);

/// Running; the fleet ends first.
pub(crate) struct Cluster {
    pub(crate) fleet: Fleet,
    pub(crate) equipoise: Equipoise,
    _etcd: Option<Etcd>,
    pub(crate) host: Host,
    _machines: Vec<Host>,
}

/// How large, and how.
pub(crate) struct Shape<'a> {
    pub(crate) nodes: usize,
    pub(crate) period: Duration,
    /// `file` or `etcd`.
    pub(crate) store: &'a str,
}

impl Cluster {
    /// Starts a cluster, and waits until every node has joined and follows a plan. Each is the
    /// machine of one backend of a pool with weights by load.
    pub(crate) fn start(place: &Place, shape: &Shape<'_>) -> Result<Cluster> {
        let folder = place.fresh("cluster")?;
        let host = Host::new("controller")?;
        let lan = Switch::new(&host, "lan")?;
        host.address("lan", CONTROLLER.parse()?, 16)?;
        let mut machines = Vec::new();
        for number in 1..=shape.nodes.div_ceil(NODES_OF_A_MACHINE) {
            let machine = Host::new(&format!("m{number}"))?;
            lan.plug(&machine, "eth0")?;
            machine.address("eth0", format!("10.77.1.{number}").parse()?, 16)?;
            machines.push(machine);
        }
        let etcd = match shape.store {
            "file" => None,
            "etcd" => Some(Etcd::start(&host, &folder)?),
            other => bail!("no store `{other}`: accepted are `file` and `etcd`"),
        };
        let config = config(shape, &folder);
        let file = folder.join("init.toml");
        std::fs::write(&file, &config)?;
        place.command(&host, &["cluster", "init", "--config", &file.to_string_lossy()])?;
        let equipoise = place.run(&host, "cluster", &config)?;
        let token =
            place.command(&host, &["cluster", "token", "create", "--config", &equipoise.file])?;
        let wanted = fleet::Wanted {
            nodes: shape.nodes,
            per_machine: NODES_OF_A_MACHINE,
            period: shape.period,
            controller: format!("{CONTROLLER}:{PORT}").parse()?,
            token: token.trim().parse()?,
            folder,
        };
        let fleet = Fleet::start(&machines, wanted)?;
        let cluster = Cluster { fleet, equipoise, _etcd: etcd, host, _machines: machines };
        cluster.wait_for_all(shape.nodes)?;
        Ok(cluster)
    }

    /// Sends requests through the pool's front door until the result is dropped.
    pub(crate) fn traffic(&self) -> Result<Traffic> {
        Traffic::start(&self.host, format!("{CONTROLLER}:{DOOR}").parse()?)
    }

    fn wait_for_all(&self, nodes: usize) -> Result<()> {
        let end = Instant::now() + JOINING;
        loop {
            let status = self.equipoise.get("/v1/nodes")?;
            let all = status["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
            let follows = |it: &&serde_json::Value| {
                it["applied"].is_string() && it["name"].as_str().is_some_and(fleet::is_simulated)
            };
            let follow = all.iter().filter(follows).count();
            if follow == nodes {
                return Ok(());
            }
            ensure!(
                Instant::now() < end,
                "only {follow} of {nodes} nodes go by a plan:\n{}\n{}",
                self.fleet.problems(),
                self.equipoise.printed()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn config(shape: &Shape<'_>, folder: &Path) -> String {
    let state = folder.join("state").display().to_string();
    let store = match shape.store {
        "etcd" => format!("etcd = [\"{}\"]", etcd::ENDPOINT),
        _ => String::new(),
    };
    let backend = |number: usize| {
        let (name, node) = (fleet::backend(number), fleet::node(number));
        format!(
            "{{ name = \"{name}\", address = \"10.77.1.{}:{}\", node = \"{node}\" }}",
            1 + number / NODES_OF_A_MACHINE,
            fleet::port(number)
        )
    };
    let backends: Vec<String> = (0..shape.nodes).map(backend).collect();
    format!(
        "[instance]\nname = \"c1\"\nthreads = 1\n[load]\nperiod = \"{}ms\"\n[controller]\nstate = \"{state}\"\n\
         [cluster]\nname = \"lab\"\nstate = \"{state}\"\nlisten = \"{CONTROLLER}:{PORT}\"\nstore = {{ {store} }}\n\
         [[pool]]\nname = \"web\"\nweights = \"load\"\nconcurrency = \"none\"\nscheduler = \"weighted-round-robin\"\nbackends = [{}]\n\
         [[session]]\nlisten = \"{CONTROLLER}:{DOOR}\"\nprotocol = \"http\"\npool = \"web\"\n",
        shape.period.as_millis(),
        backends.join(", ")
    )
}
