//! Nodes that delegate requests to each other, as real processes on loopback.
#![allow(clippy::unwrap_used, reason = "tests say what they expect by failing")]

mod common;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use common::{Folder, Load, Process, equipoise, get, stderr, stdout, text};
use equipoise_testkit::{Answer, HttpBackend, ReservedPort, UdpPort, eventually, free_port};
use serde_json::Value;

/// Longest time to wait. Real processes take long on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A node with its configuration, and the application behind it.
struct Node {
    name: &'static str,
    /// More lines for its pool's table.
    pool: &'static str,
    door: ReservedPort,
    app: HttpBackend,
    file: PathBuf,
    socket: PathBuf,
    process: Option<Process>,
}

impl Node {
    fn new(folder: &Folder, name: &'static str) -> Node {
        let socket = folder.path(&format!("{name}.sock"));
        let file = folder.path(&format!("{name}.toml"));
        // In one piece: a response that has begun when its node is killed cannot be served again
        // elsewhere.
        let answer =
            Answer::raw(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len()));
        let (door, app) = (free_port(), HttpBackend::always(answer));
        Node { name, pool: "", door, app, file, socket, process: None }
    }

    fn address(&self) -> SocketAddr {
        self.door.address()
    }

    /// Writes the file. `dispatch` has lines of its table, `rest` has other tables.
    fn write(&self, folder: &Folder, dispatch: &str, rest: &str) {
        let config = format!(
            "[instance]\nname = \"{}\"\nthreads = 1\n[api]\nsocket = {:?}\nlisten = \"off\"\n{rest}\n\
             [[pool]]\nname = \"app\"\nbackends = [\"{}\"]\n{}\n\
             [[dispatch]]\nlisten = \"{}\"\npool = \"app\"\n{dispatch}\n",
            self.name,
            text(&self.socket),
            self.app.address(),
            self.pool,
            self.address(),
        );
        folder.write(&format!("{}.toml", self.name), &config);
    }

    fn start(&mut self) {
        let process = Process::start(&["run", text(&self.file)]);
        process.wait_for_text(" ready ");
        self.process = Some(process);
    }

    fn command(&self, args: &[&str]) -> String {
        let output = equipoise(&[args, &["--api", text(&self.socket)]].concat());
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        stdout(&output)
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.command(&["status", "--json"])).unwrap()
    }

    /// A total of the dispatch front door, over all classes.
    fn total(&self, what: &str) -> u64 {
        let status = self.status();
        let classes = status["front_doors"][0]["dispatch"]["classes"].as_array().unwrap();
        classes.iter().map(|class| class[what].as_u64().unwrap()).sum()
    }

    /// Waits until its status fits.
    fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) {
        let end = Instant::now() + PATIENCE;
        loop {
            let status = self.status();
            if holds(&status) {
                return;
            }
            let printed = self.process.as_ref().map(Process::printed).unwrap_or_default();
            assert!(Instant::now() < end, "never came: {what}; {status:#}\n{printed}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until `count` peers may be picked.
    fn until_peers(&self, count: u64) {
        self.until(&format!("{count} peers"), |status| {
            let pools = status["pools"].as_array().unwrap();
            let peers = pools.iter().find(|pool| pool["name"] == "app.peers").unwrap();
            let healthy = |it: &&Value| it["health"] == "healthy" && it["state"] == "up";
            peers["backends"].as_array().unwrap().iter().filter(healthy).count() as u64 == count
        });
    }

    /// Waits until all peers have reported this room.
    fn until_room(&self, room: u64) {
        self.until("the room of peers, by their reports", |status| {
            let pools = status["pools"].as_array().unwrap();
            let peers = pools.iter().find(|pool| pool["name"] == "app.peers").unwrap();
            peers["backends"].as_array().unwrap().iter().all(|peer| peer["limit"] == room)
        });
    }
}

/// Nodes that know each other by their files and share a secret. Each keeps the share `keep`.
fn nodes(folder: &Folder, names: &[&'static str], keep: &[f64]) -> Vec<Node> {
    nodes_of(folder, names, keep, "")
}

/// The same, with more lines in the table of each pool.
fn nodes_of(
    folder: &Folder,
    names: &[&'static str],
    keep: &[f64],
    pool: &'static str,
) -> Vec<Node> {
    let secret = folder.write("secret", "0123456789abcdef0123456789abcdef\n");
    let mut all: Vec<Node> =
        names.iter().map(|name| Node { pool, ..Node::new(folder, name) }).collect();
    let peers = peers(&all);
    for (node, keep) in all.iter().zip(keep) {
        let lines = format!("secret = {:?}\nkeep = {keep}\n{peers}", text(&secret));
        node.write(folder, &lines, "");
    }
    all.iter_mut().for_each(Node::start);
    for node in &all {
        node.until_peers(names.len() as u64 - 1);
    }
    all
}

/// The list of peers, which is the same in every file and includes the node itself.
fn peers(all: &[Node]) -> String {
    let one =
        |node: &Node| format!("{{ node = \"{}\", address = \"{}\" }}", node.name, node.address());
    format!("peers = [{}]\n", all.iter().map(one).collect::<Vec<_>>().join(", "))
}

#[test]
fn three_nodes_with_keep_zero_serve_every_request_once() {
    let folder = Folder::new("dispatch-three");
    let all = nodes(&folder, &["a", "b", "c"], &[0.0; 3]);
    for turn in 0..60 {
        let own = &all[turn % 3];
        let answer = get(own.address(), "/");
        assert_eq!(answer.status(), 200);
        assert_ne!(answer.text(), own.name, "it keeps nothing");
    }
    let sum = |what| all.iter().map(|node| node.total(what)).sum::<u64>();
    // Counters may change shortly after an answer.
    let all_three = || [sum("arrived_total"), sum("delegated_total"), sum("taken_total")];
    assert!(eventually(|| all_three() == [60; 3]), "{:?}", all_three());
    assert_eq!(all.iter().map(|node| node.app.requests().len()).sum::<usize>(), 60);
    let why = all[0].command(&["why", &format!("http://{}/", all[0].address())]);
    for part in [
        ": one of peer b ",
        "dispatch: class ",
        ": this node serves 0 %, peer b ",
        " %, peer c ",
        "(instructions: keep 0 %)\n",
    ] {
        assert!(why.contains(part), "{part} in {why}");
    }
    let page = all[0].command(&["status"]);
    assert!(page.contains("DISPATCH") && page.contains("app.peers/b"), "{page}");
}

#[test]
fn a_peer_that_is_killed_under_load_fails_no_request_and_takes_again_when_it_is_back() {
    let folder = Folder::new("dispatch-killed");
    let mut all = nodes(&folder, &["a", "b"], &[0.0, 1.0]);
    let load = Load::start(all[0].address(), 4);
    load.wait_for(200);
    assert!(all[1].total("taken_total") > 0);
    drop(all[1].process.take());
    load.wait_for(200);
    all[0].until_peers(0);
    let by_now = all[0].app.requests().len();
    load.wait_for(100);
    assert!(all[0].app.requests().len() > by_now, "what the peer would have done is done here");
    all[1].start();
    all[0].until_peers(1);
    let end = Instant::now() + PATIENCE;
    while all[1].total("taken_total") == 0 {
        assert!(Instant::now() < end, "it takes nothing");
        load.wait_for(10);
    }
    let (good, bad) = load.finish();
    assert!(good >= 500 && bad.is_empty(), "{} of {good}: {bad:?}", bad.len());
}

#[test]
fn a_peer_paused_by_sigstop_fails_no_request_and_serves_again() {
    let folder = Folder::new("dispatch-stopped");
    // Longer than a client waits, so that no request ends because of it.
    let all = nodes_of(&folder, &["a", "b"], &[0.0, 1.0], "response-timeout = \"10m\"");
    let load = Load::start(all[0].address(), 4);
    load.wait_for(100);
    assert!(all[1].total("taken_total") > 0);
    let process = all[1].process.as_ref().unwrap();
    process.signal(libc::SIGSTOP);
    all[0].until_peers(0);
    load.wait_for(100);
    assert!(all[0].app.requests().len() >= 100, "what the peer would have done is done here");
    process.signal(libc::SIGCONT);
    all[0].until_peers(1);
    let before = all[1].total("taken_total");
    let end = Instant::now() + PATIENCE;
    while all[1].total("taken_total") == before {
        assert!(Instant::now() < end, "it takes nothing");
        load.wait_for(10);
    }
    let (good, bad) = load.finish();
    assert!(good >= 200 && bad.is_empty(), "{} of {good}: {bad:?}", bad.len());
}

#[test]
fn an_application_that_dies_under_load_at_either_end_fails_no_request() {
    let folder = Folder::new("dispatch-dead-app");
    // No health check tests the applications.
    let all = nodes(&folder, &["a", "b"], &[0.5, 1.0]);
    let loads = [0, 1].map(|node| Load::start(all[node].address(), 2));
    let wait = || loads.iter().for_each(|load| load.wait_for(100));
    wait();
    // In this order, because a peer that hands back three requests in a row is ejected for a while
    // and cannot serve as a last resort.
    for (dead, alive) in [(0, 1), (1, 0)] {
        // Like the death of its process: it refuses connections, and open ones are closed.
        all[dead].app.acceptor().stop();
        let before = all[alive].app.requests().len();
        wait();
        assert!(all[alive].app.requests().len() >= before + 200, "what both get is done there");
        all[dead].app.acceptor().restart();
        wait();
    }
    for load in loads {
        let (good, bad) = load.finish();
        assert!(good >= 500 && bad.is_empty(), "{} of {good}: {bad:?}", bad.len());
    }
}

#[test]
fn names_omit_a_node_with_a_dead_application_while_peers_serve() {
    let folder = Folder::new("dispatch-names");
    let secret = folder.write("secret", "0123456789abcdef0123456789abcdef\n");
    let mut all: Vec<Node> = ["a", "b"].map(|name| Node::new(&folder, name)).into();
    let dispatch = format!("secret = {:?}\nkeep = 1.0\n{}", text(&secret), peers(&all));
    let door =
        |node: &Node| format!("{{ name = \"{}\", address = \"{}\" }}", node.name, node.address());
    let port = UdpPort::reserve();
    let names = format!(
        "[[pool]]\nname = \"doors\"\nbackends = [{}, {}]\n\
         health = {{ http = \"/\", interval = \"100ms\", timeout = \"20s\", rise = 1, fall = 2 }}\n\
         [[dns]]\nzone = \"z.example.\"\nlisten = \"{}\"\npool = \"doors\"\nns = [\"ns.example.\"]\n",
        door(&all[0]),
        door(&all[1]),
        port.address()
    );
    all[0].write(&folder, &dispatch, &names);
    all[1].write(&folder, &dispatch, "");
    all.iter_mut().for_each(Node::start);
    all.iter().for_each(|node| node.until_peers(1));
    let is = |status: &Value, expected: [&str; 2]| {
        let backends = status["dns"]["names"][0]["backends"].as_array().unwrap();
        backends.iter().map(|backend| backend["state"].as_str().unwrap()).eq(expected)
    };
    all[0].until("both are given", |status| is(status, ["serving", "serving"]));
    all[1].app.acceptor().stop();
    all[0].until("the dead one is not", |status| is(status, ["serving", "unhealthy"]));
    assert_eq!(get(all[1].address(), "/").text(), "a", "its peer does what clients bring");
    all[1].app.acceptor().restart();
    all[0].until("it is given again", |status| is(status, ["serving", "serving"]));
}

#[test]
fn delegation_is_turned_on_and_off_by_reloads_that_fail_no_request() {
    let folder = Folder::new("dispatch-reload");
    let all = nodes(&folder, &["a", "b"], &[1.0, 1.0]);
    let secret = folder.path("secret");
    let load = Load::start(all[0].address(), 2);
    load.wait_for(100);
    assert_eq!(all[1].app.requests().len(), 0);
    for (keep, moves) in [("0.5", true), ("1.0", false)] {
        let lines = format!("secret = {:?}\nkeep = {keep}\n{}", text(&secret), peers(&all));
        all[0].write(&folder, &lines, "");
        all[0].command(&["reload"]);
        load.wait_for(100);
        let before = all[1].app.requests().len();
        load.wait_for(100);
        assert_eq!(all[1].app.requests().len() > before, moves, "keep = {keep}");
    }
    let (_, bad) = load.finish();
    assert!(bad.is_empty(), "{bad:?}");
}

/// Creates an authority's certificate, and for each name a certificate and key, as files.
fn certificates(folder: &Folder, names: &[&str]) {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    folder.write("ca.pem", &authority.pem());
    for name in names {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_string()]).unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap();
        folder.write(&format!("{name}.pem"), &certificate.pem());
        folder.write(&format!("{name}.key"), &key.serialize_pem());
    }
}

#[test]
fn listed_peers_use_tls_from_files_and_reload_changed_files() {
    let folder = Folder::new("dispatch-files");
    let secret = folder.write("secret", "0123456789abcdef0123456789abcdef\n");
    certificates(&folder, &["a", "b"]);
    let mut all: Vec<Node> = ["a", "b"].map(|name| Node::new(&folder, name)).into();
    let lines = |own: &Node, keep: &str, all: &[Node]| {
        let path = |file: String| text(&folder.path(&file)).to_string();
        format!(
            "secret = {:?}\nkeep = {keep}\n{}tls = {{ certificate = {:?}, key = {:?}, authority = {:?} }}\n",
            text(&secret),
            peers(all),
            path(format!("{}.pem", own.name)),
            path(format!("{}.key", own.name)),
            path("ca.pem".to_string()),
        )
    };
    for node in &all {
        node.write(&folder, &lines(node, "0.0", &all), "");
    }
    all.iter_mut().for_each(Node::start);
    all.iter().for_each(|node| node.until_peers(1));
    let failures = |node: &Node| node.status()["pools"][1]["backends"][0]["failures"].clone();
    assert_eq!(all[0].status()["front_doors"][0]["dispatch"]["peer_tls"], "required");
    assert_eq!(get(all[0].address(), "/").text(), "b", "{}", failures(&all[0]));
    // Certificates of another authority, which only one of the two nodes has read.
    certificates(&folder, &["a", "b"]);
    all[0].command(&["reload"]);
    assert_eq!(get(all[0].address(), "/").text(), "a", "{}", failures(&all[0]));
    all[1].command(&["reload"]);
    let end = Instant::now() + PATIENCE;
    while get(all[0].address(), "/").text() != "b" {
        assert!(Instant::now() < end, "{}", failures(&all[0]));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn in_a_cluster_peers_and_the_secret_are_learnt_and_the_share_is_planned() {
    let folder = Folder::new("dispatch-cluster");
    let mut all: Vec<Node> = ["c1", "n1", "n2"].map(|name| Node::new(&folder, name)).into();
    all.iter_mut().for_each(|node| node.pool = "concurrency = 4");
    let cluster = free_port();
    let state = |name: &str| format!("state = {:?}\n", text(&folder.path(name)));
    let controller = format!(
        "[controller]\n{0}[cluster]\n{0}name = \"test\"\nlisten = \"{1}\"\nstore = {{}}\n",
        state("c1"),
        cluster.address(),
    );
    all[0].write(&folder, "", &controller);
    let file = all[0].file.clone();
    let config = ["--config", text(&file)];
    let output = equipoise(&["cluster", "init", config[0], config[1]]);
    assert!(output.status.success(), "{}", stderr(&output));
    all[0].start();
    all[0].process.as_ref().unwrap().wait_for_text("cluster API");
    for node in &mut all[1..] {
        let created = equipoise(&["cluster", "token", "create", config[0], config[1]]);
        assert!(created.status.success(), "{}", stderr(&created));
        let token = folder.write(&format!("{}.token", node.name), &stdout(&created));
        let rest = format!(
            "[controller]\n{0}[cluster]\n{0}controllers = [\"{1}\"]\njoin-token-file = {2:?}\n",
            state(node.name),
            cluster.address(),
            text(&token),
        );
        node.write(&folder, "", &rest);
        node.start();
    }
    for node in &all {
        node.until_peers(2);
        node.until("a planned share", |status| {
            status["front_doors"][0]["dispatch"]["planned"] == true
        });
    }
    all.iter().for_each(|node| node.until_room(4));
    // A node without an application delegates everything to its peers, which accept it.
    let app = format!("app/{}", all[1].app.address());
    all[1].command(&["drain", &app]);
    for _ in 0..20 {
        let answer = get(all[1].address(), "/");
        assert!(["c1", "n2"].contains(&&*answer.text()), "{}", answer.text());
    }
    assert!(eventually(|| all[1].total("delegated_total") == 20));
    let taken = || all[0].total("taken_total") + all[2].total("taken_total");
    assert!(eventually(|| taken() == 20), "{}", taken());
    // It is no longer a peer that could be picked: as an idle node it would be.
    all[2].until_peers(1);
    let mut page = String::new();
    let shows_it = eventually(|| {
        page = stdout(&equipoise(&["status", "--cluster", config[0], config[1]]));
        let row = page.lines().find(|line| line.starts_with("n2 ")).unwrap_or_default();
        page.contains("KEEP") && row.contains("100 %")
    });
    assert!(shows_it, "{page}");
    for node in &all {
        assert_eq!(node.status()["front_doors"][0]["dispatch"]["peer_tls"], "required");
    }
    // Its peers also refuse an evicted node.
    let evicted = equipoise(&["cluster", "evict", "n2", config[0], config[1]]);
    assert!(evicted.status.success(), "{}", stderr(&evicted));
    all[2].command(&["drain", &format!("app/{}", all[2].app.address())]);
    all[0].until("the evicted node's requests refused", |status| {
        get(all[2].address(), "/");
        let drops = &status["front_doors"][0]["drops"];
        drops["peer_refused"].as_u64().is_some_and(|count| count > 0)
    });
    // Losing the controller stops nothing: nodes continue with what they know.
    drop(all[0].process.take());
    all[1].until_peers(1);
    all[1].command(&["undrain", &app]);
    assert_eq!(get(all[1].address(), "/").text(), "n1");
}
