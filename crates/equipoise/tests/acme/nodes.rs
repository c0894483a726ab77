//! Certificates that the controllers of a cluster give to nodes.

use std::net::SocketAddr;
use std::path::PathBuf;

use equipoise_testkit::{EtcdMembers, HttpBackend, ReservedPort, eventually, free_port};

use crate::common::s_client::s_client;
use crate::common::{Process, equipoise, stderr, stdout, text};
use crate::pebble::Pebble;
use crate::{DAY, api, ask, serial};

const NAMES: [&str; 2] = ["a.example.org", "b.example.org"];
/// A name that the controllers do not give.
const OTHER: &str = "other.example.org";

/// A controller or a node.
struct Machine {
    name: String,
    file: PathBuf,
    /// The https front door of a node.
    https: SocketAddr,
    process: Option<Process>,
}

impl Machine {
    fn start(&mut self) {
        let process = Process::start(&["run", text(&self.file)]);
        process.wait_for_text(" ready ");
        self.process = Some(process);
    }

    fn status(&self) -> String {
        api(&self.file.with_extension("sock"), "/v1/status")
    }

    fn serials(&self) -> Vec<String> {
        NAMES.iter().map(|name| serial(name, self.https)).collect()
    }

    fn printed(&self) -> String {
        self.process.as_ref().map(Process::printed).unwrap_or_default()
    }
}

struct Site {
    pebble: Pebble,
    etcd: EtcdMembers,
    backend: HttpBackend,
    ports: [ReservedPort; 4],
}

impl Site {
    fn new(test: &str) -> Option<Site> {
        let ports = [free_port(), free_port(), free_port(), free_port()];
        let [http, _, nowhere, _] = &ports;
        let pebble = Pebble::stopped(test, http.address(), nowhere.address(), 90 * DAY);
        let state = pebble.folder.path("etcd");
        std::fs::create_dir_all(&state).expect("a folder");
        let etcd = EtcdMembers::start(&state, 1, "http", &[])?;
        Some(Site { pebble, etcd, backend: HttpBackend::echo(), ports })
    }

    fn machine(&self, name: &str, ip: &str, rest: &str) -> Machine {
        let [folder, state] = [&self.pebble.folder, &self.pebble.folder].map(|it| it.path(name));
        std::fs::create_dir_all(&folder).expect("a folder");
        let config = format!(
            "[api]\nsocket = \"{}\"\nlisten = \"off\"\n[instance]\nname = \"{name}\"\nthreads = 1\n\
             [controller]\nstate = \"{state}\"\n[[pool]]\nname = \"web\"\nbackends = [\"{}\"]\n\
             [cluster]\nstate = \"{state}\"\n{rest}",
            text(&self.pebble.folder.path(&format!("{name}.sock"))),
            self.backend.address(),
            state = text(&state),
        );
        let file = self.pebble.folder.write(&format!("{name}.toml"), &config);
        let https = SocketAddr::new(ip.parse().expect("it"), self.ports[1].address().port());
        Machine { name: name.into(), file, https, process: None }
    }

    /// A controller without front doors for the names.
    fn controller(&self, name: &str, cluster: &ReservedPort) -> Machine {
        let acme = format!(
            "[acme]\nterms-agreed = true\ndirectory = \"https://{}/dir\"\nca = \"{}\"\nfor-nodes = {NAMES:?}\n",
            self.pebble.listen.address(),
            text(&self.pebble.folder.path("ca.pem")),
        );
        let door = free_port();
        let rest = format!(
            "name = \"test\"\nlisten = \"{}\"\nstore = {{ etcd = {:?} }}\n{acme}\
             [[session]]\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"web\"\n",
            cluster.address(),
            self.etcd.endpoints(),
            door.address(),
        );
        self.machine(name, "127.0.0.1", &rest)
    }

    /// A node with front doors at an address of its own.
    fn node(
        &self,
        name: &str,
        ip: &str,
        controllers: &[&ReservedPort],
        first: &Machine,
    ) -> Machine {
        let token = equipoise(&["cluster", "token", "create", "--config", text(&first.file)]);
        assert!(token.status.success(), "{}", stderr(&token));
        let token = self.pebble.folder.write(&format!("{name}.token"), &stdout(&token));
        let controllers: Vec<_> = controllers.iter().map(|it| it.address().to_string()).collect();
        let [http, https, _, given] = self.ports.each_ref().map(|it| it.address().port());
        let rest = format!(
            "controllers = {controllers:?}\njoin-token-file = {:?}\n[acme]\nfrom-controllers = true\n\
             [[session]]\nlisten = \"{ip}:{http}\"\nprotocol = \"http\"\npool = \"web\"\n\
             [[session]]\nlisten = \"{ip}:{https}\"\nprotocol = \"http\"\npool = \"web\"\n\
             tls = {{ auto = {:?} }}\n\
             [[session]]\nlisten = \"{ip}:{given}\"\nprotocol = \"http\"\npool = \"web\"\n\
             tls = {{ auto = {NAMES:?} }}\n",
            text(&token),
            [NAMES[0], NAMES[1], OTHER],
        );
        self.machine(name, ip, &rest)
    }
}

#[test]
fn nodes_serve_certificates_of_the_controllers_also_without_them() {
    let Some(mut site) = Site::new("acme-nodes") else { return };
    let (first, second) = (free_port(), free_port());
    let mut controllers = [site.controller("c1", &first), site.controller("c2", &second)];
    let made = equipoise(&["cluster", "init", "--config", text(&controllers[0].file)]);
    assert!(made.status.success(), "{}", stderr(&made));
    for file in ["ca.pem", "ca.key"] {
        let [from, to] = ["c1", "c2"].map(|it| site.pebble.folder.path(it).join(file));
        std::fs::copy(from, to).expect("a copy");
    }
    controllers.iter_mut().for_each(Machine::start);
    let mut nodes = [("n1", "127.0.0.12"), ("n2", "127.0.0.13")]
        .map(|(name, ip)| site.node(name, ip, &[&first, &second], &controllers[0]));
    nodes.iter_mut().for_each(Machine::start);
    for node in &nodes {
        // It has asked a controller.
        let is_known = || node.status().contains("do not have it in `[acme] for-nodes`");
        assert!(eventually(is_known), "{}\n{}", node.status(), node.printed());
    }
    // Each name leads to one node alone: the directory finds the answer there at its first look.
    for (name, node) in NAMES.iter().zip(&nodes) {
        site.pebble.point(name, node.https.ip());
    }
    site.pebble.start_again();
    let mut serials = [Vec::new(), Vec::new()];
    let served = eventually(|| {
        serials = [nodes[0].serials(), nodes[1].serials()];
        serials[0] == serials[1] && serials[0].iter().all(|serial| !serial.is_empty())
    });
    let printed = || controllers.iter().chain(&nodes).map(Machine::printed).collect::<String>();
    assert!(served, "{serials:?}\n{}", printed());
    for (node, name) in nodes.iter().flat_map(|node| NAMES.map(|name| (node, name))) {
        let answer = ask(&site.pebble, name, node.https);
        assert!(answer.is_ok(), "{}, {name}: {answer:?}", node.name);
        assert!(!node.printed().contains("certificate issued"), "{}", node.printed());
    }
    let ordered: String = controllers.iter().map(Machine::printed).collect();
    assert_eq!(ordered.matches("certificate issued").count(), 2, "{ordered}");
    assert!(!ordered.contains("could not verify"), "{ordered}");
    // Sessions are resumed at the other node, if the controllers give all names of the front door.
    let session = site.pebble.folder.path("session");
    let resumes = |port: u16| {
        let [from, to] = [&nodes[0], &nodes[1]].map(|it| SocketAddr::new(it.https.ip(), port));
        s_client(from, NAMES[0], &["-sess_out", text(&session)]);
        s_client(to, NAMES[0], &["-sess_in", text(&session)]).contains("Reused, TLSv1.3")
    };
    let [_, https, _, given] = site.ports.each_ref().map(|it| it.address().port());
    assert!(eventually(|| resumes(given)), "{}", printed());
    assert!(!resumes(https));
    // A new process of a node has them while no controller is there.
    controllers.iter_mut().for_each(|it| it.process = None);
    nodes[0].process = None;
    nodes[0].start();
    assert_eq!(nodes[0].serials(), serials[0]);
    assert!(ask(&site.pebble, NAMES[0], nodes[0].https).is_ok());
}
