//! Nodes: hosts with a share of a core, an equipoise and its application on each.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail, ensure};
use equipoise_netns::{CpuGroup, Guest, Host, Switch, unavailable};
use rustix::process::Signal;
use serde_json::Value;

/// For anything to come about, on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(90);

const CONTROLLER: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);
/// Addresses from which clients ask for the name, as if behind so many resolvers.
pub(crate) const RESOLVERS: usize = 24;
const CLUSTER_PORT: u16 = 9911;
const APPLICATION_PORT: u16 = 8080;
const DOOR_PORT: u16 = 80;
const ZONE: &str = "lab.example";

/// The address of a resolver.
pub(crate) fn resolver(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 78, 3, 1 + number as u8)
}

/// The program under test and a folder for files, which goes with it.
pub(crate) struct Place {
    pub(crate) equipoise: String,
    folder: PathBuf,
}

impl Place {
    /// Beside this program, unless an option says where equipoise is.
    pub(crate) fn find(equipoise: Option<PathBuf>) -> Result<Place> {
        if let Some(reason) = unavailable() {
            bail!("no hosts can be made to measure between: {reason}");
        }
        let here = std::env::current_exe()?;
        let equipoise = equipoise.unwrap_or_else(|| here.with_file_name("equipoise"));
        let equipoise = std::path::absolute(equipoise)?;
        if !equipoise.exists() {
            bail!("{} does not exist: build it with `make lab-tllb`", equipoise.display());
        }
        let folder = std::env::temp_dir().join(format!("equipoise-tllb-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        Ok(Place { equipoise: equipoise.to_string_lossy().into_owned(), folder })
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> Result<String> {
        let path = self.path(name);
        fs::write(&path, text)?;
        Ok(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Starts the program on a host, in a group if one is given, and waits until it reports to be
    /// ready.
    ///
    /// In a group it runs as on a machine of its own: it does not see this machine's processors
    /// work for others, which would make every node look as loaded as all are together. Its
    /// replacement of `/proc/stat` is constant.
    pub(crate) fn start(
        &self,
        host: &Host,
        group: Option<&CpuGroup>,
        arguments: &[&str],
    ) -> Result<Guest> {
        let guest = match group {
            None => host.start(&self.equipoise, arguments)?,
            Some(group) => {
                let stat = self.write("stat", &fs::read_to_string("/proc/stat")?)?;
                let alone = format!("mount --bind '{stat}' /proc/stat && exec \"$@\"");
                let alone = ["--mount", "sh", "-c", &alone, "sh", &self.equipoise];
                let words = group.enter_and_become("unshare", &[&alone, arguments].concat());
                host.start("sh", &words.iter().map(String::as_str).collect::<Vec<_>>())?
            }
        };
        let ready = |printed: &str| printed.contains("ready").then_some(());
        guest.wait_for(PATIENCE, ready).map_err(|printed| {
            anyhow!("`equipoise {}` on {} is not ready:\n{printed}", arguments[0], host.name())
        })?;
        Ok(guest)
    }

    /// A host of the switch's network.
    pub(crate) fn host(&self, switch: &Host, name: &str, address: Ipv4Addr) -> Result<Host> {
        let host = Host::new(name)?;
        host.ip("link set lo up")?;
        Switch::on(switch, "lan").plug(&host, "eth0")?;
        host.address("eth0", address.into(), 16)?;
        Ok(host)
    }

    /// Removes the folder.
    fn clean(&self) {
        let _ = fs::remove_dir_all(&self.folder);
        let _ = fs::create_dir_all(&self.folder);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Which of the two levels are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Levels {
    pub(crate) dns: bool,
    pub(crate) dispatch: bool,
}

impl Levels {
    pub(crate) fn of(word: &str) -> Result<Levels> {
        let (dns, dispatch) = match word {
            "none" => (false, false),
            "dns" => (true, false),
            "disp" => (false, true),
            "dns_disp" => (true, true),
            other => bail!("no levels `{other}`: accepted are none, dns, disp, dns_disp"),
        };
        Ok(Levels { dns, dispatch })
    }

    fn is_planned(self) -> bool {
        self.dns || self.dispatch
    }
}

/// Parameters of the site.
pub(crate) struct Shape {
    pub(crate) levels: Levels,
    /// Of a core, for each node.
    pub(crate) cores: Vec<f64>,
    /// CPU time of a request at its application.
    pub(crate) work_ms: usize,
    /// Between checks of the nodes by each node's DNS level, and the time to live of its answers.
    pub(crate) checks_ms: usize,
    /// Bandwidth of each node's link in each direction, if it has a limit; then names go by load.
    pub(crate) link_mbit: Option<usize>,
}

/// A node. Its processes end before its group and host do.
struct Node {
    equipoise: Guest,
    application: Guest,
    _group: CpuGroup,
    _host: Host,
}

/// All of it, running.
pub(crate) struct Site<'a> {
    place: &'a Place,
    nodes: Vec<Node>,
    controller: Option<(Host, Guest)>,
    pub(crate) client: Host,
    switch: Host,
    shape: Shape,
}

/// Where a node serves clients; from 0.
pub(crate) fn door(node: usize) -> SocketAddr {
    (address(node), DOOR_PORT).into()
}

fn address(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 78, 1, 1 + node as u8)
}

/// Lets an interface send no more than so much: a veth pair has no speed of its own.
fn limit(host: &Host, interface: &str, mbit: usize) -> Result<()> {
    let rate = format!("{mbit}mbit");
    let words = ["qdisc", "add", "dev", interface, "root", "tbf", "rate", &rate];
    host.run("tc", &[&words[..], &["burst", "64k", "latency", "200ms"]].concat())?;
    Ok(())
}

/// The name that clients ask the nodes' DNS servers for.
pub(crate) const NAME: [&str; 3] = ["www", "lab", "example"];

impl<'a> Site<'a> {
    /// Builds it, and waits until every node takes its part.
    pub(crate) fn build(place: &'a Place, shape: Shape) -> Result<Site<'a>> {
        place.clean();
        let switch = Host::new("switch")?;
        Switch::new(&switch, "lan")?;
        let client = place.host(&switch, "client", CLIENT)?;
        for number in 0..RESOLVERS {
            client.address("eth0", resolver(number).into(), 16)?;
        }
        let mut site = Site { place, nodes: Vec::new(), controller: None, client, switch, shape };
        if site.shape.levels.is_planned() {
            site.start_controller()?;
        }
        for number in 0..site.shape.cores.len() {
            let node = site.node(number)?;
            site.nodes.push(node);
        }
        site.wait_for_all()?;
        Ok(site)
    }

    /// The servers of the name.
    pub(crate) fn servers(&self) -> Vec<SocketAddr> {
        (0..self.nodes.len()).map(|node| (address(node), 53).into()).collect()
    }

    /// Every node's door.
    pub(crate) fn doors(&self) -> Vec<SocketAddr> {
        (0..self.nodes.len()).map(door).collect()
    }

    fn start_controller(&mut self) -> Result<()> {
        let place = self.place;
        let host = place.host(&self.switch, "controller", CONTROLLER)?;
        let (socket, state) = (place.path("controller.sock"), place.path("controller"));
        // All nodes have one machine's memory, and without a limit their network has none either:
        // neither says how loaded one of them is.
        let net = if self.shape.link_mbit.is_some() { 2.0 } else { 0.0 };
        let file = place.write(
            "controller.toml",
            &format!(
                "[instance]\nname = \"controller\"\nthreads = 1\n[api]\nsocket = {socket:?}\nlisten = \"off\"\n\
                 [load]\nnet = {net:.1}\nmemory = 0.0\n[controller]\nstate = {state:?}\n\
                 [cluster]\nstate = {state:?}\nname = \"lab\"\nlisten = \"{CONTROLLER}:{CLUSTER_PORT}\"\nstore = {{}}\n"
            ),
        )?;
        host.run(&place.equipoise, &["cluster", "init", "--config", &file])?;
        let guest = place.start(&host, None, &["run", &file])?;
        guest
            .wait_for(PATIENCE, |printed| printed.contains("cluster API").then_some(()))
            .map_err(|printed| anyhow!("the controller serves no cluster:\n{printed}"))?;
        self.controller = Some((host, guest));
        Ok(())
    }

    fn node(&self, number: usize) -> Result<Node> {
        let (place, name) = (self.place, format!("n{number}"));
        let host = place.host(&self.switch, &name, address(number))?;
        if let Some(mbit) = self.shape.link_mbit {
            limit(&host, "eth0", mbit)?;
            limit(&self.switch, &format!("{name}-eth0"), mbit)?;
        }
        let unique = format!("equipoise-tllb-{}-{name}", std::process::id());
        let group = CpuGroup::create(&unique, self.shape.cores[number])?;
        let file = place.write(&format!("{name}.toml"), &self.config(number))?;
        if let Some((controller, _)) = &self.controller {
            let config = place.path("controller.toml");
            let words = ["cluster", "token", "create", "--config", &config];
            let token = controller.run(&place.equipoise, &words)?;
            place.write(&format!("{name}.token"), &token)?;
        }
        let (port, work) = (APPLICATION_PORT.to_string(), format!("{}ms", self.shape.work_ms));
        let words = ["sample-backend", "--name", &name, "--http", &port, "--work", &work];
        let application = place.start(&host, Some(&group), &words)?;
        let equipoise = place.start(&host, Some(&group), &["run", &file])?;
        Ok(Node { equipoise, application, _group: group, _host: host })
    }

    fn config(&self, number: usize) -> String {
        let (place, levels, own) = (self.place, self.shape.levels, address(number));
        let name = format!("n{number}");
        let (socket, state) = (place.path(&format!("{name}.sock")), place.path(&name));
        let mut text = format!(
            "[instance]\nname = \"{name}\"\nthreads = 1\n[api]\nsocket = {socket:?}\nlisten = \"off\"\n\
             [[pool]]\nname = \"application\"\nbackends = [\"127.0.0.1:{APPLICATION_PORT}\"]\n"
        );
        if let Some(mbit) = self.shape.link_mbit {
            text += &format!(
                "[load]\nlinks = [{{ interface = \"eth0\", speed = \"{mbit}Mbit/s\" }}]\n"
            );
        }
        if levels.is_planned() {
            let token = place.path(&format!("{name}.token"));
            text += &format!(
                "[controller]\nstate = {state:?}\n[cluster]\nstate = {state:?}\n\
                 controllers = \"{CONTROLLER}:{CLUSTER_PORT}\"\njoin-token-file = {token:?}\n"
            );
        }
        text += &match levels.dispatch {
            true => format!(
                "[[dispatch]]\nlisten = \"{own}:{DOOR_PORT}\"\npool = \"application\"\n\
                 class = [{{ class = \"light\", paths = [\"/healthz\"] }}, {{ class = \"large-transfer\", paths = [\"/echo\"] }}, \
                 {{ class = \"computing\", paths = [\"/work\"] }}]\n"
            ),
            false => format!(
                "[[session]]\nlisten = \"{own}:{DOOR_PORT}\"\nprotocol = \"http\"\npool = \"application\"\n"
            ),
        };
        if levels.dns {
            text += &self.names(own);
        }
        text
    }

    /// The DNS level's part of a node's file.
    fn names(&self, own: Ipv4Addr) -> String {
        let count = self.shape.cores.len();
        let all = |of: &dyn Fn(usize) -> String| (0..count).map(of).collect::<Vec<_>>().join(", ");
        let nodes = all(&|n| format!("{{ name = \"n{n}\", address = \"{}\" }}", door(n)));
        let servers = all(&|n| format!("{{ name = \"ns{n}\", addresses = \"{}\" }}", address(n)));
        let every = self.shape.checks_ms;
        let by_load = self.shape.link_mbit.is_some() && self.shape.levels.dispatch;
        let shares = if by_load { "load" } else { "weights" };
        format!(
            "[[pool]]\nname = \"nodes\"\nbackends = [{nodes}]\n\
             health = {{ tcp = true, interval = \"{every}ms\", timeout = \"{every}ms\", rise = 1, fall = 2 }}\n\
             [[dns]]\nzone = \"{ZONE}.\"\nlisten = \"{own}:53\"\npool = \"nodes\"\nttl = \"1s\"\nshares = \"{shares}\"\n\
             ns = [{servers}]\nnames = [\"www\"]\n"
        )
    }

    /// The members, as the controller has them.
    fn members(&self) -> Result<Vec<Value>> {
        let Some((host, _)) = &self.controller else { return Ok(Vec::new()) };
        let config = self.place.path("controller.toml");
        let words = ["status", "--cluster", "--json", "--config", &config];
        let said: Value = serde_json::from_str(&host.run(&self.place.equipoise, &words)?)?;
        Ok(said["view"]["members"].as_array().cloned().unwrap_or_default())
    }

    /// The planned keep shares of the nodes: 0 to 1.
    pub(crate) fn keeps(&self) -> Result<Vec<f64>> {
        let members = self.members()?;
        let keep = |node: usize| {
            let name = format!("n{node}");
            let member = members.iter().find(|member| member["name"] == name.as_str());
            member.and_then(|member| member["keep"].as_f64()).unwrap_or(f64::NAN)
        };
        Ok((0..self.nodes.len()).map(keep).collect())
    }

    fn wait_for_all(&self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while self.controller.is_some() {
            let members = self.members()?;
            let is_there = |it: &&Value| it["standing"].as_str() == Some("present");
            let there = members.iter().filter(is_there).count();
            if there >= self.nodes.len() {
                break;
            }
            ensure!(Instant::now() < end, "only {there} nodes take part: {members:#?}");
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    /// Kills a node: nothing on it says goodbye.
    pub(crate) fn kill(&mut self, node: usize) -> Result<()> {
        let node = &mut self.nodes[node];
        for guest in [&mut node.equipoise, &mut node.application] {
            guest.signal(Signal::KILL);
            guest.wait()?;
        }
        Ok(())
    }
}
