//! Names: answers follow the plan, without members that are lost or drained.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use equipoise_testkit::{
    Answer, Client, Gate, HttpBackend, ReservedPort, Step, UdpPort, free_port,
};

use crate::bed::{Machine, Site, leader, reporting, soon};
use crate::common::dns::{A, addresses, ask};
use crate::common::scripts::NUMBERED;
use crate::common::text;

const N1: [u8; 4] = [192, 0, 2, 11];
const N2: [u8; 4] = [192, 0, 2, 12];

/// A member's share of the zone in `status --cluster`.
fn share(status: &serde_json::Value, node: &str) -> Option<f64> {
    let members = status["view"]["members"].as_array()?;
    let member = members.iter().find(|member| member["name"] == node)?;
    member["shares"]["cluster.example."].as_f64()
}

/// Two running nodes that dispatch to their applications, with the front door of each. `pool` has
/// options of the applications' pools.
fn dispatching(
    site: &mut Site,
    controllers: &[Machine],
    backend: SocketAddr,
    apps: [SocketAddr; 2],
    pool: &str,
) -> [(Machine, ReservedPort); 2] {
    [("n1", apps[0]), ("n2", apps[1])].map(|(name, app)| {
        let door = free_port();
        site.rest = format!(
            "[[pool]]\nname = \"app\"\nbackends = [\"{app}\"]\n{pool}\n\
             [[dispatch]]\nlisten = \"{}\"\npool = \"app\"\n",
            door.address()
        );
        let mut node = site.node(name, backend, controllers);
        node.start();
        (node, door)
    })
}

/// A running node that answers a name over the two others by load, and its port. Its pool has no
/// health check: it knows the members' state only from the controller.
fn name_server(
    site: &mut Site,
    controllers: &[Machine],
    backend: SocketAddr,
    options: &str,
) -> (UdpPort, Machine) {
    let port = UdpPort::reserve();
    site.rest = format!(
        "[[pool]]\nname = \"members\"\nbackends = [\
         {{ name = \"n1\", address = \"192.0.2.11:80\" }}, {{ name = \"n2\", address = \"192.0.2.12:80\" }}]\n\
         [[dns]]\nzone = \"cluster.example.\"\nlisten = \"{}\"\npool = \"members\"\n{options}\nshares = \"load\"\n\
         ns = [\"ns.other.example.\"]\n[nameserver]\nrate-limit = 0\n",
        port.address()
    );
    let mut answers = site.node("d1", backend, controllers);
    answers.start();
    (port, answers)
}

#[test]
fn answers_follow_planned_shares_and_omit_dead_or_drained_members() {
    let backend = HttpBackend::named("a");
    let Some(mut site) = Site::new("cluster-names") else { return };
    site.load = "period = \"250ms\"\n".to_string();
    let mut controllers = site.controllers(backend.address());
    let mut nodes = ["n1", "n2"].map(|name| site.node(name, backend.address(), &controllers));
    nodes.iter_mut().for_each(Machine::start);
    // This node answers names, and controllers know of the names only from its reports.
    let port = UdpPort::reserve();
    site.rest = format!(
        "[[pool]]\nname = \"members\"\nbackends = [\
         {{ name = \"n1\", address = \"192.0.2.11:80\", weight = 100 }}, \
         {{ name = \"second\", node = \"n2\", address = \"192.0.2.12:80\" }}]\n\
         [[dns]]\nzone = \"cluster.example.\"\nlisten = \"{}\"\npool = \"members\"\nmode = \"ordered\"\nshares = \"load\"\n\
         ns = [{{ name = \"ns1\", addresses = \"192.0.2.1\" }}]\nnames = [\"www\"]\n\
         [nameserver]\nrate-limit = 0\n",
        port.address()
    );
    let mut answers = site.node("d1", backend.address(), &controllers);
    answers.start();
    let given = |name: &str| addresses(&ask(port.address(), name, A)).0;
    let status = controllers[0].until("everybody is in the plan", |status| {
        reporting(status).len() == 6 && share(status, "n1").is_some()
    });
    let (one, other) = (share(&status, "n1").unwrap(), share(&status, "n2").unwrap());
    assert!((one + other - 1.0).abs() < 1e-6, "{one} {other}");
    assert!(share(&status, "c1").is_none(), "it is no member of the zone");
    soon("both are given", || given("cluster.example") == [N1, N2]);
    // Shares do not follow the weights of the file, 100 to 1.
    assert!((0.3..0.7).contains(&one), "{one}");
    let shown = answers.asked(&["status"]);
    assert!(shown.contains("members/second"), "{shown}");

    nodes[0].kill();
    let died = Instant::now();
    soon("it is not given any more", || given("www.cluster.example") == [N2]);
    println!("a member that was killed left the answers after {:?}", died.elapsed());
    controllers[0].until("its share is none", |status| share(status, "n1") == Some(0.0));
    nodes[0].start();
    soon("it returns", || given("cluster.example") == [N1, N2]);

    let said = controllers[1].asked(&["drain", "n2"]);
    assert!(said.contains("node n2: wanted drain"), "{said}");
    soon("it is drained", || given("cluster.example") == [N1]);
    // The drain is in the store: the next leader follows it.
    let status = controllers[0].until("a leader", |status| leader(status).is_some());
    let place = controllers.iter().position(|it| Some(&*it.name) == leader(&status)).unwrap();
    controllers[place].kill();
    let other = &controllers[(place + 1) % controllers.len()];
    let before = leader(&status).unwrap().to_string();
    other.until("another leads", |status| leader(status).is_some_and(|it| it != before));
    let status = other.until("it plans", |status| {
        status["view"]["instructions"]["term"].as_u64() == status["view"]["term"].as_u64()
    });
    assert_eq!(share(&status, "n2"), Some(0.0));
    soon("the other is given all the same", || given("cluster.example") == [N1]);
    other.asked(&["undrain", "n2"]);
    soon("it is given again", || given("cluster.example") == [N1, N2]);

    // Without any controller the last shares stay in effect.
    controllers.iter_mut().for_each(Machine::kill);
    answers.process().wait_for_text("no controller has newer instructions");
    assert_eq!(given("cluster.example"), [N1, N2]);
}

#[test]
fn load_based_names_omit_a_node_with_a_dead_application() {
    let backend = HttpBackend::named("a");
    let Some(mut site) = Site::new("cluster-names-dead") else { return };
    site.load = "period = \"250ms\"\n".to_string();
    let mut controllers = site.controllers_of(&["c1"], backend.address());
    site.start(&mut controllers);
    let apps = ["n1", "n2"].map(HttpBackend::named);
    let apps_at = [0, 1].map(|at| apps[at].address());
    let checked =
        "health = { http = \"/\", interval = \"100ms\", timeout = \"20s\", rise = 1, fall = 2 }";
    let _nodes = dispatching(&mut site, &controllers, backend.address(), apps_at, checked);
    let (port, _answers) =
        name_server(&mut site, &controllers, backend.address(), "mode = \"ordered\"");
    let given = || addresses(&ask(port.address(), "cluster.example", A)).0;
    soon("both are given", || given() == [N1, N2]);
    apps[0].acceptor().stop();
    soon("the node with a dead application is left out", || given() == [N2]);
    controllers[0].until("its share is none", |status| share(status, "n1") == Some(0.0));
    apps[0].acceptor().restart();
    soon("it returns", || given() == [N1, N2]);
}

#[test]
fn a_node_with_a_full_application_receives_a_smaller_share() {
    let backend = HttpBackend::named("a");
    let Some(mut site) = Site::new("cluster-names-full") else { return };
    site.load = "period = \"250ms\"\n".to_string();
    let mut controllers = site.controllers_of(&["c1"], backend.address());
    site.start(&mut controllers);
    let gate = Gate::new();
    let held = Answer::ok("held").first(Step::Wait(gate.clone()));
    let apps = [HttpBackend::start(move |_| held.clone()), HttpBackend::named("n2")];
    let apps_at = [0, 1].map(|at| apps[at].address());
    let nodes = dispatching(&mut site, &controllers, backend.address(), apps_at, "concurrency = 1");
    let (_port, _answers) = name_server(&mut site, &controllers, backend.address(), "ttl = \"1s\"");
    controllers[0].until("both have the same share", |status| {
        ["n1", "n2"].iter().all(|node| share(status, node).is_some_and(|it| it > 0.4))
    });
    let mut client = Client::connect(nodes[0].1.address());
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(apps[0].wait(|requests| requests.len() == 1));
    controllers[0]
        .until("the full node has less", |status| share(status, "n1").is_some_and(|it| it < 0.42));
    gate.open();
    assert_eq!(client.response().map(|it| it.text()), Ok("held".to_owned()));
}

#[test]
fn names_of_elastic_pools_follow_the_roster_and_drain_before_removal() {
    let backend = HttpBackend::named("unused");
    let Some(mut site) = Site::new("cluster-names-elastic") else { return };
    site.load = "period = \"250ms\"\n".to_string();
    let elastic = "[pool.elastic]\nmin = 1\nmax = 4\nwarm-up = \"0s\"\nin-cool-down = \"1m\"\ndrain-timeout = \"10s\"\n";
    site.pool = elastic.to_string();
    let mut controllers = site.controllers_of(&["c1"], backend.address());
    site.start(&mut controllers);
    // One node creates the backends and answers no names; the other answers names and creates none.
    let (script, log) = (site.folder.write("script.py", NUMBERED), site.folder.path("log"));
    let words = format!("[\"python3\", {:?}, {:?}]", text(&script), text(&log));
    site.pool = format!("{elastic}[pool.elastic.exec]\nadd = {words}\nremove = {words}\n");
    let mut maker = site.node("n1", backend.address(), &controllers);
    let port = UdpPort::reserve();
    site.pool = elastic.to_string();
    site.rest = format!(
        "[[dns]]\nzone = \"cluster.example.\"\nlisten = \"{}\"\npool = \"web\"\nmode = \"ordered\"\nttl = \"3s\"\n\
         ttl-draining = \"1s\"\nns = [\"ns.other.example.\"]\n[nameserver]\nrate-limit = 0\n",
        port.address()
    );
    let mut answers = site.node("d1", backend.address(), &controllers);
    [&mut maker, &mut answers].into_iter().for_each(Machine::start);
    let given = || addresses(&ask(port.address(), "cluster.example", A));
    let [e1, e2] = [1, 2].map(|last| [192, 0, 2, last]);
    soon("the first", || given() == (vec![e1], 3));
    controllers[0].asked(&["plan", "pin", "web", "2"]);
    soon("both", || given() == (vec![e1, e2], 3));

    let begun = Instant::now();
    controllers[0].asked(&["plan", "pin", "web", "1"]);
    // The backend still exists, although no request goes to it here.
    soon("one drains", || matches!(given(), (given, 1) if given.len() == 1));
    let log = || std::fs::read_to_string(site.folder.path("log")).unwrap_or_default();
    soon("it is removed", || log().contains("remove web-e"));
    assert!(begun.elapsed() >= Duration::from_secs(10), "{:?}: {}", begun.elapsed(), log());
    soon("none drains", || given().1 == 3);
    controllers[0].kill();
    answers.process().wait_for_text("no controller has newer instructions");
    assert_eq!(given().0.len(), 1);
}

#[test]
fn a_name_server_learns_the_client_subnets_of_other_nodes() {
    let backend = HttpBackend::named("a");
    let Some(mut site) = Site::new("cluster-sources") else { return };
    site.load = "period = \"250ms\"\n".to_string();
    let controllers = site.controllers(backend.address());
    let mut busy = site.node("n1", backend.address(), &controllers);
    busy.start();
    let port = UdpPort::reserve();
    site.rest = format!(
        "[[dns]]\nzone = \"cluster.example.\"\nlisten = \"{}\"\npool = \"web\"\nns = [{{ name = \"ns1\", addresses = \"192.0.2.1\" }}]\n",
        port.address()
    );
    let mut answers = site.node("d1", backend.address(), &controllers);
    answers.start();
    let known = || {
        let status: serde_json::Value =
            serde_json::from_str(&answers.asked(&["status", "--json"])).unwrap();
        status["dns"]["sources_known"].as_u64().unwrap()
    };
    assert_eq!(known(), 0);
    let mut client = Client::connect(busy.door.address());
    soon("127.0.0.0/24 is known where none of its clients came", || {
        for _ in 0..100 {
            let answer = client.ask("GET / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
            assert_eq!(answer.status(), 200);
        }
        known() == 1
    });
}
