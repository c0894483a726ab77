//! The machines of the demo and their processes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use equipoise_netns::{CpuGroup, Guest, Host, Switch};
use rustix::process::Signal;

use crate::files::Folder;

/// Machines of the cluster.
pub(crate) const NODES: usize = 5;
/// Share of a core that each node may use.
pub(crate) const CORES: f64 = 0.2;
/// CPU time that the application needs for a request.
pub(crate) const WORK: Duration = Duration::from_millis(8);
/// The balanced name.
pub(crate) const NAME: &str = "www.demo.example";
/// Longest time for any step; then it has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

const ZONE: &str = "demo.example";
const APPLICATION_PORT: u16 = 8080;
const CLUSTER_PORT: u16 = 9911;

/// Port at which a node's dispatcher listens.
const DOOR_PORT: u16 = 80;

/// A cluster and a client. Dropping it removes everything.
#[derive(Debug)]
pub(crate) struct Stage {
    /// The guests must end before their groups and hosts.
    nodes: Vec<Node>,
    resolver: Option<Guest>,
    pub(crate) client: Host,
    switch: Host,
    folder: Folder,
}

/// A machine of the cluster.
#[derive(Debug)]
struct Node {
    equipoise: Guest,
    application: Guest,
    name: String,
    host: Host,
    group: CpuGroup,
}

/// A node's address, 1 to [`NODES`].
pub(crate) fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, 10 + number as u8)
}

/// The address at which a node serves clients.
pub(crate) fn door(number: usize) -> SocketAddr {
    (address(number), DOOR_PORT).into()
}

/// The address of the client's resolver.
pub(crate) const RESOLVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 53);

impl Stage {
    pub(crate) fn build() -> anyhow::Result<Stage> {
        let folder = Folder::create().context("cannot make a folder for the demo's files")?;
        let switch_host = Host::new("switch")?;
        let switch = Switch::new(&switch_host, "lan")?;
        let client = Host::new("client")?;
        switch.plug(&client, "eth0")?;
        client.address("eth0", Ipv4Addr::new(10, 77, 0, 2).into(), 24)?;
        drop(switch);
        let mut stage =
            Stage { nodes: Vec::new(), resolver: None, client, switch: switch_host, folder };
        for number in 1..=NODES {
            let node = stage.node(number)?;
            stage.nodes.push(node);
        }
        stage.resolver = Some(stage.start_resolver()?);
        Ok(stage)
    }

    /// Starts a machine with its application and its equipoise, and waits until both are ready. The
    /// first machine is also the controller.
    fn node(&self, number: usize) -> anyhow::Result<Node> {
        let name = format!("node-{number}");
        let host = Host::new(&name)?;
        Switch::on(&self.switch, "lan").plug(&host, "eth0")?;
        host.address("eth0", address(number).into(), 24)?;
        let unique = format!("equipoise-demo-{}-{number}", std::process::id());
        let group = CpuGroup::create(&unique, CORES)?;
        let config = self.folder.write(&format!("{name}.toml"), &self.config(number))?;
        let config = config.display().to_string();
        if number == 1 {
            host.run(&program(), &["cluster", "init", "--config", &config])?;
        } else {
            let first = self.path("node-1.toml").display().to_string();
            let words = ["cluster", "token", "create", "--config", &first];
            let token = self.nodes[0].host.run(&program(), &words)?;
            self.folder.write(&format!("{name}.token"), &token)?;
        }
        let (port, work) = (APPLICATION_PORT.to_string(), format!("{}ms", WORK.as_millis()));
        let words = ["sample-backend", "--name", &name, "--http", &port, "--work", &work];
        let application = start(&host, &group, &words, "ready")?;
        let equipoise = start(&host, &group, &["run", &config], " ready ")?;
        Ok(Node { equipoise, application, name, host, group })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path(name)
    }

    /// The file of a node. All nodes have the same file, except for name, addresses, and the
    /// controller's options.
    fn config(&self, number: usize) -> String {
        let (name, own) = (format!("node-{number}"), address(number));
        let state = self.path(&name).display().to_string();
        let cluster = if number == 1 {
            format!("listen = \"{own}:{CLUSTER_PORT}\"\nstore = {{}}")
        } else {
            let token = self.path(&format!("{name}.token")).display().to_string();
            let controller = address(1);
            format!("controllers = \"{controller}:{CLUSTER_PORT}\"\njoin-token-file = {token:?}")
        };
        let all = |of: &dyn Fn(usize) -> String| (1..=NODES).map(of).collect::<Vec<_>>().join(", ");
        let nodes = all(&|n| format!("{{ name = \"node-{n}\", address = \"{}\" }}", door(n)));
        let servers = all(&|n| format!("{{ name = \"ns{n}\", addresses = \"{}\" }}", address(n)));
        let socket = self.path(&format!("{name}.sock")).display().to_string();
        format!(
            "[instance]\nname = \"{name}\"\nthreads = 1\n\
             [api]\nsocket = {socket:?}\nlisten = \"off\"\n\
             [controller]\nstate = {state:?}\n\
             [cluster]\nstate = {state:?}\n{cluster}\n\n\
             # The local application, and the node's front door, which serves requests or delegates them.\n\
             [[pool]]\nname = \"application\"\nbackends = [\"127.0.0.1:{APPLICATION_PORT}\"]\n\
             [[dispatch]]\nlisten = \"{own}:{DOOR_PORT}\"\npool = \"application\"\n\
             class = [{{ class = \"light\", paths = [\"/healthz\"] }}, {{ class = \"computing\", paths = [\"/work\"] }}]\n\n\
             # The name that clients ask for.\n\
             [[pool]]\nname = \"nodes\"\nbackends = [{nodes}]\n\
             health = {{ http = \"/healthz\", interval = \"500ms\", timeout = \"2s\", rise = 1, fall = 2 }}\n\
             [[dns]]\nzone = \"{ZONE}.\"\nlisten = \"{own}:53\"\npool = \"nodes\"\nttl = \"1s\"\nshares = \"load\"\n\
             ns = [{servers}]\nnames = [\"www\"]\n",
        )
    }

    /// Starts unbound on the client. It queries the nodes and caches nothing, so that every query
    /// shows their current answer.
    fn start_resolver(&self) -> anyhow::Result<Guest> {
        let stubs = (1..=NODES).map(|n| format!(" stub-addr: {}\n", address(n)));
        let text = format!(
            "server:\n directory: {0:?}\n chroot: \"\"\n username: \"\"\n pidfile: \"\"\n use-syslog: no\n do-daemonize: no\n\
             \x20interface: 127.0.0.1\n cache-max-ttl: 0\n module-config: \"iterator\"\n num-threads: 1\n infra-host-ttl: 1\n\
             stub-zone:\n name: \"{ZONE}\"\n{1}remote-control:\n control-enable: no\n",
            self.path("").display().to_string(),
            stubs.collect::<String>(),
        );
        let file = self.folder.write("unbound.conf", &text)?.display().to_string();
        self.client.ip("link set lo up")?;
        let mut guest = self.client.start("unbound", &["-d", "-c", &file])?;
        let end = Instant::now() + PATIENCE;
        while self.client.enter(|| super::load::resolve(NAME, RESOLVER)).is_err() {
            let ended = guest.ended()?;
            ensure!(
                ended.is_none() && Instant::now() < end,
                "unbound does not resolve {NAME}; it printed:\n{}",
                guest.printed()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(guest)
    }

    /// A list of the hosts and their addresses.
    pub(crate) fn map(&self) -> String {
        let mut text = format!(
            "equipoise as a cluster: {NODES} machines made of network namespaces, each held to {CORES} of a core; a request \
             takes {} ms of CPU time.\n\n  client {}, with unbound as its resolver",
            WORK.as_millis(),
            "10.77.0.2"
        );
        for (number, node) in (1..).zip(&self.nodes) {
            let role = if number == 1 { ", the controller" } else { "" };
            text += &format!(
                "\n  {} {}: application (pid {}), DNS and dispatcher (pid {}){role}",
                node.name,
                address(number),
                node.application.pid(),
                node.equipoise.pid()
            );
        }
        text
    }

    /// Runs a command of this program on the first node.
    pub(crate) fn command(&self, words: &[&str]) -> anyhow::Result<String> {
        let file = self.path("node-1.toml").display().to_string();
        Ok(self.nodes[0].host.run(&program(), &[words, &["--config", &file]].concat())?)
    }

    /// Waits until the controller has a report of every node.
    pub(crate) fn wait_for_members(&self) -> anyhow::Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let told = self.command(&["status", "--cluster"])?;
            // A member that joins starts slowly, but counts as present.
            let there = |word: &str| told.matches(word).count();
            if there(" present ") + there(" joining ") >= NODES {
                return Ok(());
            }
            ensure!(Instant::now() < end, "not all nodes are present:\n{told}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Processor time of all nodes so far.
    pub(crate) fn processor_time(&self) -> Duration {
        self.nodes.iter().filter_map(|node| node.group.used().ok()).sum()
    }

    /// Kills a machine, without any goodbye from its processes.
    pub(crate) fn kill(&mut self, number: usize) -> anyhow::Result<()> {
        let node = &mut self.nodes[number - 1];
        for guest in [&mut node.equipoise, &mut node.application] {
            guest.signal(Signal::KILL);
            guest.wait()?;
        }
        Ok(())
    }

    /// Stops every running equipoise as an operator would.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        for node in self.nodes.iter_mut().rev() {
            if node.equipoise.ended()?.is_some() {
                continue;
            }
            node.equipoise.signal(Signal::TERM);
            let status = node.equipoise.wait()?;
            ensure!(
                status.success(),
                "{} ended with {status}; it printed:\n{}",
                node.name,
                node.equipoise.printed()
            );
        }
        Ok(())
    }
}

/// Path of this program for another program to start. It is not the program's name, because another
/// build may have replaced that file.
fn program() -> String {
    format!("/proc/{}/exe", std::process::id())
}

/// Starts this program on a host in a group, and waits until it prints `ready`.
fn start(host: &Host, group: &CpuGroup, arguments: &[&str], ready: &str) -> anyhow::Result<Guest> {
    let words = group.enter_and_become(&program(), arguments);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let guest = host.start("sh", &words)?;
    let word = arguments.first().copied().unwrap_or_default();
    let waited = guest.wait_for(PATIENCE, |printed| printed.contains(ready).then_some(()));
    waited.map_err(|printed| {
        anyhow!("`equipoise {word}` on {} is not ready; it printed:\n{printed}", host.name())
    })?;
    Ok(guest)
}
