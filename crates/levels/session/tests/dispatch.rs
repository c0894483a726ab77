//! Node mode: kept and delegated requests, and markers.

mod common_dispatch;
#[path = "dispatch/faults.rs"]
mod faults;

use std::net::SocketAddr;

use common_dispatch::{
    MARKER, Node, Plan, get, keys, of_all, post, seen, signed_lines, with_lines,
};
use equipoise_core::load::{ClassRule, ClassRules, PerClass, RequestClass};
use equipoise_dispatch::DelegationKeys;
use equipoise_session::Reason;
use equipoise_session::config::{Forwarded, Place, TrustedSources, Upstream};
use equipoise_testkit::{Answer, Client, Gate, HttpBackend, Step, eventually};

/// A node that delegates, with this as its only peer.
fn before(here: &HttpBackend, peer: SocketAddr) -> Node {
    Plan::new("a", here).keep(0.0).peers(&[("b", peer)]).start()
}

#[test]
fn a_delegated_request_reaches_the_peer_with_its_client_origin() {
    let (here, there) = (HttpBackend::named("here"), HttpBackend::named("there"));
    let taker = Plan::new("b", &there).start();
    let mut giver = Plan::new("a", &here).keep(0.0).peers(&[("b", taker.address)]);
    // The target node does not trust this address, only the source's marker.
    giver.config.front_doors[0].trusted = TrustedSources::from_iter([([127, 0, 0, 1].into(), 32)]);
    giver.config.front_doors[0].forwarded = Forwarded::ALL;
    let giver = giver.start();
    let lines = "X-Forwarded-For: 192.0.2.7\r\nForwarded: for=192.0.2.7\r\n";
    assert_eq!(giver.ask(with_lines("GET", "/x?y=1", lines)).text(), "there");
    assert_eq!(seen(&there, "x-forwarded-for"), ["192.0.2.7, 127.0.0.1"]);
    let elements = "for=192.0.2.7, for=127.0.0.1;host=\"a.example\";proto=http";
    assert_eq!(seen(&there, "forwarded"), [elements]);
    assert_eq!(seen(&there, "host"), ["a.example"]);
    assert!(seen(&there, MARKER).is_empty(), "the marker is the nodes' own");
    assert_eq!(giver.ask(post("/", "abc")).text(), "there");
    assert_eq!(there.requests()[1].body, b"abc");
    giver.assert_counts((2, 2, 0));
    taker.assert_counts((0, 0, 2));
    assert!(here.requests().is_empty());
}

#[test]
fn a_peer_accepts_the_markers_of_requests_of_every_form() {
    let (here, there) = (HttpBackend::named("here"), HttpBackend::named("there"));
    let taker = Plan::new("b", &there).start();
    let giver = Plan::new("a", &here).keep(0.0).peers(&[("b", taker.address)]).start();
    let forms = [
        "GET http://a.example/p HTTP/1.1\r\nHost: a.example\r\n\r\n".to_string(),
        "GET http://a.example?q HTTP/1.1\r\nHost:   a.example  \r\n\r\n".to_string(),
        "OPTIONS * HTTP/1.1\r\nHost: a.example:80\r\nConnection: close\r\n\r\n".to_string(),
        "GET /old HTTP/1.0\r\n\r\n".to_string(),
        with_lines("HEAD", "/", "Connection: equipoise-delegated\r\n"),
        with_lines("POST", "/", "Transfer-Encoding: chunked\r\n") + "3\r\nabc\r\n0\r\n\r\n",
    ];
    for form in &forms {
        let mut client = Client::connect(giver.address);
        client.send(form);
        let method = form.split(' ').next().expect("it has one");
        assert_eq!(client.response_to(method).map(|r| r.status()), Ok(200), "{form}");
    }
    taker.assert_counts((0, 0, forms.len() as u64));
    assert_eq!(taker.dispatch().markers_refused, 0);
}

#[test]
fn a_request_is_never_delegated_twice() {
    let apps: Vec<_> = ["a", "b", "c"].map(HttpBackend::named).into_iter().collect();
    let plans: Vec<_> =
        ["a", "b", "c"].iter().zip(&apps).map(|(n, app)| Plan::new(n, app)).collect();
    let places: Vec<_> = ["a", "b", "c"].into_iter().zip(plans.iter().map(Plan::address)).collect();
    let others = |own: usize| -> Vec<_> {
        places.iter().enumerate().filter(|(at, _)| *at != own).map(|(_, it)| *it).collect()
    };
    let nodes: Vec<_> = plans
        .into_iter()
        .enumerate()
        .map(|(own, plan)| plan.keep(0.0).peers(&others(own)).start())
        .collect();
    for turn in 0..60 {
        assert_eq!(nodes[turn % 3].ask(get("/")).status(), 200);
    }
    let sum =
        || nodes.iter().map(Node::counts).fold((0, 0, 0), |a, b| (a.0 + b.0, a.1 + b.1, a.2 + b.2));
    assert!(eventually(|| sum() == (60, 60, 60)), "{:?}", sum());
}

#[test]
fn a_forged_marker_is_counted_ignored_and_not_forwarded() {
    let (here, there) = (HttpBackend::named("here"), HttpBackend::named("there"));
    let taker = Plan::new("b", &there).apart(12).start();
    let giver = Plan::new("a", &here).apart(11).keep(0.0).peers(&[("b", taker.address)]).start();
    let good = "0123456789abcdef0123456789abcdef";
    let forgeries = [
        format!("Equipoise-Delegated: b {good}\r\n"),
        format!("equipoise-delegated: b {good}\r\nEQUIPOISE-DELEGATED: b {good}\r\n"),
        "Equipoise-Delegated:\r\n".to_string(),
    ];
    for lines in &forgeries {
        assert_eq!(giver.ask(with_lines("GET", "/", lines)).text(), "there", "{lines}");
        assert!(seen(&there, MARKER).is_empty());
    }
    assert_eq!(giver.dispatch().markers_refused, forgeries.len() as u64);
    let keeper = Plan::new("c", &here).start();
    assert_eq!(keeper.ask(with_lines("GET", "/", &forgeries[0])).text(), "here");
    assert!(seen(&here, MARKER).is_empty());
}

#[test]
fn a_marker_is_refused_for_another_request() {
    // The "peer" is an eavesdropper that learns a valid marker.
    let (here, thief) = (HttpBackend::named("here"), HttpBackend::named("thief"));
    let giver = Plan::new("a", &here).keep(0.0).peers(&[("b", thief.address())]).start();
    giver.ask(get("/seen"));
    let line = signed_lines(&thief);
    let (there, far) = (HttpBackend::named("there"), HttpBackend::named("far"));
    let next = Plan::new("c", &far).apart(14).start();
    let taker = Plan::new("b", &there).apart(13).keep(0.0).peers(&[("c", next.address)]).start();
    assert_eq!(taker.ask(with_lines("GET", "/seen", &line)).text(), "there", "it is the same");
    assert_eq!(taker.ask(with_lines("GET", "/other", &line)).text(), "far");
    assert_eq!(taker.ask(with_lines("PUT", "/seen", &line)).text(), "far");
    let as_another = line.replace("For: 127.0.0.1", "For: 192.0.2.7");
    assert_eq!(taker.ask(with_lines("GET", "/seen", &as_another)).text(), "far");
    let of_nobody = format!("{MARKER}: {}\r\n", seen(&thief, MARKER)[0]);
    assert_eq!(taker.ask(with_lines("GET", "/seen", &of_nobody)).text(), "far");
    assert_eq!(taker.dispatch().markers_refused, 4);
}

#[test]
fn nodes_with_different_secrets_do_not_loop_a_request() {
    let (here, there) = (HttpBackend::named("here"), HttpBackend::named("there"));
    let (a, b) = (Plan::new("a", &here), Plan::new("b", &there));
    let places = (a.address(), b.address());
    let b = b.keep(0.0).node(|node| node.keys = keys("other")).peers(&[("a", places.0)]).start();
    let a = a.keep(0.0).peers(&[("b", places.1)]).start();
    assert_eq!(a.ask(get("/")).text(), "there");
    b.assert_counts((1, 0, 0));
    assert_eq!(b.dispatch().markers_refused, 1);
}

#[test]
fn without_a_secret_nothing_is_delegated() {
    let (here, there) = (HttpBackend::named("here"), HttpBackend::named("there"));
    let taker = Plan::new("b", &there).start();
    let giver = Plan::new("a", &here).keep(0.0).peers(&[("b", taker.address)]);
    let giver = giver.node(|node| node.keys = DelegationKeys::default()).start();
    assert_eq!(giver.ask(get("/")).text(), "here");
    assert_eq!(giver.dispatch().keep, of_all(1.0));
}

#[test]
fn the_given_counter_excludes_requests_returned_by_a_peer() {
    let (here, gate) = (HttpBackend::named("here"), Gate::new());
    let held = gate.clone();
    let peer = HttpBackend::start(move |request| match request.head.target() {
        "/fails" => Answer::default().then(Step::Wait(held.clone())).then(Step::Close),
        _ => Answer::default()
            .then(Step::Wait(held.clone()))
            .then(Step::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nthere".to_vec())),
    });
    let giver = before(&here, peer.address());
    let mut clients = ["/works", "/fails"].map(|target| {
        let mut client = Client::connect(giver.address);
        client.send(get(target));
        client
    });
    let counts = || {
        let class = giver.dispatch().classes.small_transfer;
        (class.given, class.delegated)
    };
    assert!(eventually(|| counts() == (2, 0)), "{:?}", counts());
    gate.open();
    let texts = clients.each_mut().map(|client| client.response().expect("whole").text());
    assert_eq!(texts, ["there", "here"]);
    assert!(eventually(|| counts() == (1, 1)), "{:?}", counts());
}

#[test]
fn a_marker_in_an_application_response_is_ignored_and_removed() {
    let said = "HTTP/1.1 503 No\r\nEquipoise-Delegated: undone\r\nContent-Length: 0\r\n\r\n";
    let (here, there) = (HttpBackend::named("here"), HttpBackend::always(Answer::raw(said)));
    let taker = Plan::new("b", &there).start();
    let giver = before(&here, taker.address);
    for node in [&giver, &taker] {
        let answer = node.ask(get("/"));
        assert_eq!((answer.status(), answer.header(MARKER)), (503, None));
    }
    assert!(here.requests().is_empty());
    assert_eq!(giver.dispatch().returned, 0);
}

#[test]
fn the_local_application_may_listen_on_a_unix_socket() {
    use std::io::{Read, Write};
    let path = std::env::temp_dir().join(format!("eqp-dispatch-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("the folder is ours");
    let app = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the node connects");
        let mut read = Vec::new();
        for answer in ["one", "two"] {
            while !read.ends_with(b"\r\n\r\n") {
                let mut buffer = [0; 4096];
                let count = stream.read(&mut buffer).expect("the session is kept open");
                assert!(count > 0, "the session is kept open");
                read.extend_from_slice(&buffer[..count]);
            }
            read.clear();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{answer}");
            stream.write_all(answer.as_bytes()).expect("it is read");
        }
    });
    let unused = HttpBackend::named("unused");
    let mut plan = Plan::new("a", &unused);
    plan.config.pools[0].backends[0].place = Place::Socket(path.as_path().into());
    let node = plan.start();
    assert_eq!(node.ask(get("/")).text(), "one");
    assert_eq!(node.ask(get("/")).text(), "two");
    app.join().expect("it was asked twice");
    assert_eq!(node.ask(post("/", "abc")).status(), 502, "nobody listens any more");
    std::fs::remove_file(&path).expect("it is there");
    assert_eq!(node.ask(get("/")).status(), 502);
    assert!(unused.requests().is_empty());
}

#[test]
fn instructions_set_delegated_shares_by_class_and_peer() {
    let apps = ["here", "b", "c"].map(HttpBackend::named);
    let takers = [Plan::new("b", &apps[1]).start(), Plan::new("c", &apps[2]).start()];
    let peers = [("b", takers[0].address), ("c", takers[1].address)];
    let computing = ClassRule {
        class: RequestClass::Computing,
        paths: vec!["/compute".into()],
        ..ClassRule::default()
    };
    let light = ClassRule {
        class: RequestClass::Light,
        methods: vec!["HEAD".into()],
        ..ClassRule::default()
    };
    let rules = ClassRules::new(vec![light, computing]);
    let giver = Plan::new("a", &apps[0]).node(|node| node.classes = rules).peers(&peers).start();
    let ask = |count: usize, target: &str| {
        let mut client = Client::connect(giver.address);
        let mut tally = [0; 3];
        for _ in 0..count {
            let text = client.ask(get(target)).expect("a whole response").text();
            tally[["here", "b", "c"].iter().position(|app| *app == text).expect("one of them")] +=
                1;
        }
        tally
    };
    assert_eq!(ask(20, "/compute"), [20, 0, 0], "nothing is planned yet");
    giver.goes_by(PerClass { computing: 0.5, ..of_all(1.0) }, &[("b", 1.0), ("c", 3.0)]);
    assert_eq!(ask(20, "/page"), [20, 0, 0], "another class stays");
    // Binomial: each is within eight sigmas.
    let [kept, b, c] = ask(400, "/compute");
    assert!((120..=280).contains(&kept), "{kept}");
    assert!((0..=100).contains(&b) && (100..=220).contains(&c) && b > 0, "{b} {c}");
    giver.goes_by(of_all(0.0), &[("c", 1.0)]);
    assert_eq!(ask(20, "/page"), [0, 0, 20], "the newest instructions hold at once");
    let drained = giver.registry.set_admin("app.peers", "c", equipoise_core::AdminState::Drain);
    giver.runtime.block_on(drained).expect("it is there");
    assert_eq!(ask(20, "/page"), [20, 0, 0], "who takes the rest is not there");
    assert!(giver.dispatch().is_planned);
    let classes = giver.dispatch().classes;
    assert_eq!((classes.computing.arrived, classes.small_transfer.arrived), (420, 60));
}

#[test]
fn a_request_is_classified_by_normalized_path_and_sent_unchanged() {
    let rule =
        |class, path: &str| ClassRule { class, paths: vec![path.into()], ..ClassRule::default() };
    let rules = ClassRules::new(vec![
        rule(RequestClass::Light, "/light"),
        rule(RequestClass::Computing, "/work"),
    ]);
    let app = HttpBackend::named("here");
    let node = Plan::new("a", &app).node(|node| node.classes = rules).start();
    let spellings = ["/work", "//work", "/./work?a=//b", "/%77ork", "/light/../work"];
    let mut client = Client::connect(node.address);
    for spelt in spellings {
        assert_eq!(client.ask(get(spelt)).expect("a whole response").status(), 200);
    }
    let classes = node.dispatch().classes;
    assert_eq!((classes.computing.arrived, classes.light.arrived), (5, 0));
    let asked: Vec<String> =
        app.requests().iter().map(|request| request.head.target().to_string()).collect();
    assert_eq!(asked, spellings);
}

#[test]
fn a_health_check_is_served_locally_or_refused_with_503() {
    let apps = ["here", "there"].map(HttpBackend::named);
    let taker = Plan::new("b", &apps[1]).start();
    let node = Plan::new("a", &apps[0]).keep(0.0).peers(&[("b", taker.address)]).start();
    let check = || node.ask(with_lines("GET", "/", "equipoise-CHECK: 1\r\n"));
    assert_eq!(node.ask(get("/")).text(), "there");
    assert_eq!(check().text(), "here");
    let down = node.registry.set_admin("app", "app", equipoise_core::AdminState::Down);
    node.runtime.block_on(down).expect("it is there");
    assert_eq!(check().status(), 503);
    assert_eq!(node.ask(get("/")).text(), "there", "a request is still done by the peer");
}

#[test]
fn between_plans_a_peer_with_waiting_requests_receives_less() {
    let (here, gate) = (HttpBackend::named("here"), Gate::new());
    let held = gate.clone();
    let peer = HttpBackend::start(move |_| {
        Answer::default()
            .then(Step::Wait(held.clone()))
            .then(Step::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nthere".to_vec()))
    });
    let giver = Plan::new("a", &here).peers(&[("b", peer.address())]).start();
    giver.goes_by(of_all(0.5), &[("b", 1.0)]);
    let given = || giver.dispatch().classes.small_transfer.given;
    let mut clients = Vec::new();
    for count in 1..=300 {
        let mut client = Client::connect(giver.address);
        client.send(get("/"));
        clients.push(client);
        let begun = || given() + here.requests().len() as u64;
        assert!(eventually(|| begun() == count), "{} of {count}", begun());
    }
    // Binomial, about a quarter: the peer gets a request when it wins both draws.
    let waiting = given();
    assert!((20..=115).contains(&waiting), "{waiting}");
    gate.open();
    clients.iter_mut().for_each(|client| {
        client.response().expect("whole");
    });
    // If no request waits, the plan decides.
    let mut client = Client::connect(giver.address);
    (0..400).for_each(|_| {
        client.ask(get("/")).expect("whole");
    });
    let then = given() - waiting;
    assert!((140..=260).contains(&then), "six sigmas: {then}");
}

#[test]
fn refusals_apply_by_class_and_not_to_delegated_requests() {
    let apps = ["a", "b"].map(HttpBackend::named);
    let rules = || {
        let rule = |class, path: &str| ClassRule {
            class,
            paths: vec![path.into()],
            ..ClassRule::default()
        };
        let computing = rule(RequestClass::Computing, "/compute");
        ClassRules::new(vec![computing, rule(RequestClass::Light, "/light")])
    };
    let taker = Plan::new("b", &apps[1]).node(|node| node.classes = rules()).start();
    let giver = Plan::new("a", &apps[0]).node(|node| node.classes = rules());
    let giver = giver.peers(&[("b", taker.address)]).start();
    let all = PerClass { computing: 1.0, ..PerClass::default() };
    taker.goes_by_and_refuses(of_all(1.0), &[], all);
    let mut client = Client::connect(taker.address);
    let refused = client.ask(get("/compute")).expect("a whole response");
    assert_eq!((refused.status(), refused.header("retry-after")), (503, Some("5")));
    for path in ["/light", "/page"] {
        let answer = client.ask(get(path)).expect("the connection is kept");
        assert_eq!(answer.text(), "b", "{path}");
    }
    giver.goes_by(of_all(0.0), &[("b", 1.0)]);
    assert_eq!(giver.ask(get("/compute")).text(), "b", "it was let in where it arrived");
    let half = PerClass { computing: 0.5, ..PerClass::default() };
    taker.goes_by_and_refuses(of_all(1.0), &[], half);
    let status = |client: &mut Client| client.ask(get("/compute")).expect("whole").status();
    let let_in = (0..400).filter(|_| status(&mut client) == 200).count();
    assert!((120..=280).contains(&let_in), "eight sigmas: {let_in}");
    let classes = taker.dispatch().classes;
    assert_eq!(classes.computing.refused, 401 - let_in as u64);
    assert_eq!((classes.light.refused, classes.small_transfer.refused), (0, 0));
    taker.assert_drops(&[(Reason::Overloaded, classes.computing.refused)]);
}

/// Waits until this number of bytes is counted, apart from heads.
#[track_caller]
fn assert_bytes(node: &Node, expected: u64) {
    let bytes = || node.dispatch().classes.small_transfer.bytes;
    assert!(eventually(|| (expected..expected + 2_000).contains(&bytes())), "{}", bytes());
}

#[test]
fn bytes_of_locally_served_requests_are_counted() {
    let here = HttpBackend::always(Answer::pattern(1, 200_000));
    let node = Plan::new("a", &here).start();
    let mut client = Client::connect(node.address);
    client.send(post("/", &"x".repeat(50_000)));
    client.response_into(&mut |_| {}).expect("a whole response");
    assert_bytes(&node, 250_000);
}

#[test]
fn bytes_are_counted_over_multiplexed_sessions_too() {
    let here = HttpBackend::start(|request| match request.head.target() {
        "/large" => Answer::pattern(1, 500_000),
        _ => Answer::pattern(1, 10_000),
    });
    let mut plan = Plan::new("a", &here);
    plan.config.pools[0].options.upstream = Upstream::Multiplexed;
    let node = plan.start();
    let mut client = Client::connect(node.address);
    for _ in 0..4 {
        client.send(get("/"));
        client.response_into(&mut |_| {}).expect("a whole response");
    }
    assert_bytes(&node, 40_000);
    // A request that gets the session for itself in the middle.
    client.send(get("/large"));
    client.response_into(&mut |_| {}).expect("a whole response");
    assert_bytes(&node, 540_000);
}

#[test]
fn bytes_of_a_tunnel_are_counted_while_it_is_open() {
    let here = HttpBackend::always(Answer::upgrade("websocket"));
    let node = Plan::new("a", &here).start();
    let mut client = Client::connect(node.address);
    client.send(with_lines("GET", "/", "Connection: upgrade\r\nUpgrade: websocket\r\n"));
    assert_eq!(client.response().map(|r| r.status()), Ok(101));
    let echoed = vec![b'x'; 30_000];
    client.send(&echoed);
    assert_eq!(client.read_exactly(30_000), Ok(echoed));
    assert_bytes(&node, 60_000);
    let sent = || {
        let status = node.runtime.block_on(node.registry.status()).expect("it runs");
        status.pools[0].backends[0].bytes_out
    };
    drop(client);
    assert!(eventually(|| node.status().requests_in_flight == 0));
    assert!((30_000..31_000).contains(&sent()), "{}", sent());
}
