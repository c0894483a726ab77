//! Node mode with applications that have a concurrency limit: the room of peers, and which requests
//! are delegated.

mod common_dispatch;

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use common_dispatch::{MARKER, Node, Plan, get, of_all, post, seen, with_lines};
use equipoise_core::load::{ClassRule, ClassRules, RequestClass};
use equipoise_session::Reason;
use equipoise_session::config::{Concurrency, Upstream};
use equipoise_session::registry::{BackendStatus, PoolStatus};
use equipoise_testkit::{Answer, Client, Gate, HttpBackend, PATIENCE, Step, eventually};

/// The header by which nodes report their room to each other.
const ROOM: &str = "equipoise-room";

/// An application that answers requests below `/held` when the gate opens, and others at once.
fn holding(name: &'static str, gate: &Gate) -> HttpBackend {
    let held = Answer::ok(name).first(Step::Wait(gate.clone()));
    HttpBackend::start(move |request| match request.head.target().starts_with("/held") {
        true => held.clone(),
        false => Answer::ok(name),
    })
}

/// `/light` is light, and paths that end in `/compute` are computing.
fn classes() -> ClassRules {
    let rule =
        |class, path: &str| ClassRule { class, paths: vec![path.into()], ..ClassRule::default() };
    ClassRules::new(vec![
        rule(RequestClass::Light, "/light"),
        rule(RequestClass::Computing, "/held/compute"),
    ])
}

/// A node with an application with this limit, at which requests wait for as long as a test may
/// take.
fn limited(name: &str, app: &HttpBackend, limit: u32) -> Plan {
    let mut plan = Plan::new(name, app).node(|node| node.classes = classes());
    plan.config.pools[0].concurrency =
        Concurrency::Fixed(NonZeroU32::new(limit).expect("a limit is above 0"));
    plan.config.pools[0].options.queue.wait = PATIENCE;
    plan
}

fn pool(node: &Node, name: &str) -> PoolStatus {
    let status = node.runtime.block_on(node.registry.status()).expect("it runs");
    status.pools.into_iter().find(|pool| &*pool.name == name).expect("it has this pool")
}

/// The peer as the node sees it.
fn peer(node: &Node, name: &str) -> BackendStatus {
    let backends = pool(node, "app.peers").backends;
    backends.into_iter().find(|backend| &*backend.name == name).expect("it has this peer")
}

/// Sends a request on its own connection.
fn send(node: &Node, request: impl AsRef<[u8]>) -> Client {
    let mut client = Client::connect(node.address);
    client.send(request);
    client
}

/// Sends a request that the application holds, and waits until the application has it.
fn send_held(node: &Node, app: &HttpBackend) -> Client {
    let before = app.requests().len();
    let client = send(node, get("/held"));
    assert!(app.wait(|requests| requests.len() > before), "the application has it");
    client
}

/// Sends a request that finds no room, and waits until it is in the node's queue.
fn send_queued(node: &Node, request: impl AsRef<[u8]>) -> Client {
    let before = pool(node, "app").queued;
    let client = send(node, request);
    assert!(eventually(|| pool(node, "app").queued == before + 1), "it waits");
    client
}

#[track_caller]
fn text(client: &mut Client) -> String {
    client.response().expect("a whole response").text()
}

#[test]
fn light_requests_overtake_heavy_requests_that_hold_every_permit() {
    let gate = Gate::new();
    let app = holding("here", &gate);
    let node = limited("a", &app, 1).start();
    let mut running = send_held(&node, &app);
    let mut waiting = send_queued(&node, get("/held"));
    for _ in 0..20 {
        assert_eq!(node.ask(get("/light")).text(), "here");
    }
    assert_eq!(pool(&node, "app").queued, 1, "the heavy one still waits");
    gate.open();
    assert_eq!((text(&mut running), text(&mut waiting)), ("here".into(), "here".into()));
    assert!(node.status().drops.is_empty());
}

#[test]
fn the_lowest_class_is_refused_first() {
    let gate = Gate::new();
    let app = holding("here", &gate);
    let mut plan = limited("a", &app, 1);
    plan.config.pools[0].options.queue.length = 2;
    let node = plan.start();
    let mut running = send_held(&node, &app);
    let mut first = send_queued(&node, get("/held/compute"));
    let mut second = send_queued(&node, get("/held/compute"));
    let mut small = send(&node, get("/held/page"));
    let refused = second.response().expect("a whole response");
    assert_eq!((refused.status(), refused.header("retry-after")), (503, Some("5")));
    assert_eq!(node.ask(get("/light")).text(), "here");
    gate.open();
    for client in [&mut running, &mut first, &mut small] {
        assert_eq!(text(client), "here");
    }
    node.assert_drops(&[(Reason::QueueFull, 1)]);
}

#[test]
fn requests_without_local_room_are_served_by_a_peer_with_room() {
    let gate = Gate::new();
    let (here, there) = (holding("here", &gate), HttpBackend::named("there"));
    let taker = limited("b", &there, 5).start();
    let giver = limited("a", &here, 1).peers(&[("b", taker.address)]).start();
    assert_eq!(giver.ask(get("/")).text(), "here", "there is room");
    assert!(eventually(|| pool(&giver, "app").backends[0].in_flight == 0));
    let mut running = send_held(&giver, &here);
    assert_eq!(giver.ask(get("/")).text(), "there", "nothing is known of the peer yet");
    assert_eq!(peer(&giver, "b").limit, Some(5), "the response announced the free permits");
    for _ in 0..20 {
        assert_eq!(giver.ask(post("/", "abc")).text(), "there");
    }
    giver.assert_counts((23, 21, 0));
    taker.assert_counts((0, 0, 21));
    gate.open();
    assert_eq!(text(&mut running), "here");
    assert!(giver.status().drops.is_empty() && taker.status().drops.is_empty());
}

#[test]
fn a_request_handed_back_is_served_locally_and_counts_no_failure() {
    let (gate_here, gate_there) = (Gate::new(), Gate::new());
    let (here, there) = (holding("here", &gate_here), holding("there", &gate_there));
    let taker = limited("b", &there, 1).start();
    let giver = limited("a", &here, 1).peers(&[("b", taker.address)]).start();
    let mut busy_there = send_held(&taker, &there);
    let mut busy_here = send_held(&giver, &here);
    let since = Instant::now();
    let mut waiting: Vec<Client> =
        (0..5).map(|_| send_queued(&giver, post("/held", "abc"))).collect();
    let refused = || {
        let drops = taker.status().drops;
        drops.iter().find(|(reason, _)| *reason == Reason::NoRoom).map_or(0, |(_, count)| *count)
    };
    // The first request asks the peer. The others know the answer, except one every 250 ms.
    assert!(eventually(|| refused() >= 1));
    let most = 2 + since.elapsed().as_millis() as u64 / 250;
    assert!(refused() <= most, "{} of at most {most}", refused());
    assert_eq!(peer(&giver, "b").limit, Some(0));
    assert_eq!(peer(&giver, "b").failures, []);
    gate_here.open();
    assert_eq!(text(&mut busy_here), "here");
    for client in &mut waiting {
        let answer = client.response().expect("a whole response");
        assert_eq!((answer.text().as_str(), answer.header(MARKER)), ("here", None));
        assert_eq!(answer.header(ROOM), None);
    }
    assert_eq!(here.requests().last().expect("it was asked").body, b"abc");
    assert_eq!(there.requests().len(), 1);
    gate_there.open();
    assert_eq!(text(&mut busy_there), "there");
    taker.assert_counts((1, 0, 0));
    let counts = taker.dispatch().classes.small_transfer;
    assert_eq!((counts.taken, counts.handed_back), (refused(), refused()), "counters only rise");
    giver.assert_counts((6, 0, 0));
    assert_eq!(giver.dispatch().returned, 0);
    assert!(giver.status().drops.is_empty());
}

#[test]
fn a_refusal_keeps_the_session_between_the_nodes() {
    let (gate_here, gate_there) = (Gate::new(), Gate::new());
    let (here, there) = (holding("here", &gate_here), holding("there", &gate_there));
    let taker = limited("b", &there, 1).start();
    let giver = limited("a", &here, 1).peers(&[("b", taker.address)]).start();
    let _busy = (send_held(&taker, &there), send_held(&giver, &here));
    let mut waiting = Vec::new();
    let end = Instant::now() + PATIENCE;
    while peer(&giver, "b").requests < 3 {
        assert!(Instant::now() < end, "the peer is asked again and again");
        waiting.push(send_queued(&giver, get("/held")));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(eventually(|| peer(&giver, "b").in_flight == 0));
    assert_eq!(peer(&giver, "b").sessions_opened, 1);
    gate_here.open();
    gate_there.open();
}

#[test]
fn waiting_requests_are_delegated_once_a_peer_has_room() {
    let (gate_here, gate_there) = (Gate::new(), Gate::new());
    let (here, there) = (holding("here", &gate_here), holding("there", &gate_there));
    let taker = limited("b", &there, 1).start();
    let giver = limited("a", &here, 1).peers(&[("b", taker.address)]).start();
    let mut busy_here = send_held(&giver, &here);
    let mut busy_there = send_held(&giver, &there);
    let mut waiting: Vec<Client> = (0..4).map(|_| send_queued(&giver, get("/"))).collect();
    gate_there.open();
    assert_eq!(text(&mut busy_there), "there");
    for client in &mut waiting {
        assert_eq!(text(client), "there");
    }
    assert_eq!(here.requests().len(), 1);
    gate_here.open();
    assert_eq!(text(&mut busy_here), "here");
    giver.assert_counts((6, 5, 0));
}

#[test]
fn a_request_without_a_local_backend_waits_at_the_peer() {
    let (gate, here) = (Gate::new(), HttpBackend::named("here"));
    let there = holding("there", &gate);
    let taker = limited("b", &there, 1).start();
    let giver = limited("a", &here, 1).peers(&[("b", taker.address)]).start();
    let down = giver.registry.set_admin("app", "app", equipoise_core::AdminState::Down);
    giver.runtime.block_on(down).expect("it is there");
    let mut busy = send_held(&taker, &there);
    let mut waiting = send(&giver, get("/"));
    assert!(eventually(|| pool(&taker, "app").queued == 1));
    gate.open();
    assert_eq!((text(&mut busy), text(&mut waiting)), ("there".into(), "there".into()));
    assert!(taker.status().drops.is_empty());
}

#[test]
fn instructions_delegate_nothing_beyond_the_room_of_a_peer() {
    let gate = Gate::new();
    let (here, there) = (HttpBackend::named("here"), holding("there", &gate));
    let taker = limited("b", &there, 2).start();
    let giver = limited("a", &here, 1000).peers(&[("b", taker.address)]).start();
    giver.goes_by(of_all(0.0), &[("b", 1.0)]);
    assert_eq!(giver.ask(get("/")).text(), "there");
    let mut held: Vec<Client> = (0..2).map(|_| send_held(&giver, &there)).collect();
    assert_eq!(giver.ask(get("/")).text(), "here", "the peer has no room");
    gate.open();
    held.iter_mut().for_each(|client| assert_eq!(text(client), "there"));
    assert!(eventually(|| giver.ask(get("/")).text() == "there"), "it has room again");
    assert_eq!(giver.dispatch().returned, 0);
}

#[test]
fn clients_and_applications_cannot_see_or_forge_the_room_field() {
    for upstream in [Upstream::Exclusive, Upstream::Multiplexed] {
        let said = "HTTP/1.1 200 OK\r\nEquipoise-Room: 99\r\nContent-Length: 5\r\n\r\nthere";
        let (gate, there) = (Gate::new(), HttpBackend::always(Answer::raw(said)));
        let here = holding("here", &gate);
        let mut plan = limited("b", &there, 7);
        plan.config.pools[0].options.upstream = upstream;
        let taker = plan.start();
        let giver = limited("a", &here, 1).peers(&[("b", taker.address)]).start();
        let mut busy = send_held(&giver, &here);
        for node in [&giver, &taker] {
            let answer = node.ask(with_lines("GET", "/", "Equipoise-Room: asked\r\n"));
            assert_eq!((answer.text().as_str(), answer.header(ROOM)), ("there", None));
            assert!(seen(&there, ROOM).is_empty());
        }
        assert_eq!(peer(&giver, "b").limit, Some(7), "the node's word, not its application's");
        gate.open();
        assert_eq!(text(&mut busy), "here");
    }
}

#[test]
fn a_node_with_a_keep_share_of_zero_announces_no_room() {
    let gate = Gate::new();
    let (here, there) = (holding("here", &gate), HttpBackend::named("there"));
    let taker = limited("b", &there, 7).start();
    taker.goes_by(of_all(0.0), &[]);
    let giver = limited("a", &here, 1).peers(&[("b", taker.address)]).start();
    let mut busy = send_held(&giver, &here);
    assert_eq!(giver.ask(get("/")).text(), "there", "it was asked before anything was known");
    assert_eq!(peer(&giver, "b").limit, Some(0));
    gate.open();
    assert_eq!(text(&mut busy), "here");
}

#[test]
fn the_reported_room_of_a_peer_is_used_without_a_response() {
    let gate = Gate::new();
    let (here, there) = (holding("here", &gate), HttpBackend::named("there"));
    let taker = Plan::new("b", &there).start();
    let giver = limited("a", &here, 1).peers(&[("b", taker.address)]).start();
    let mut busy = send_held(&giver, &here);
    let view = giver.registry.stats();
    let peers = view.pools.iter().find(|pool| &*pool.name == "app.peers").expect("it is there");
    peers.backends[0].live.set_reported_room(3);
    assert_eq!(peer(&giver, "b").limit, Some(3));
    assert_eq!(giver.ask(get("/")).text(), "there");
    gate.open();
    assert_eq!(text(&mut busy), "here");
}

/// Sends the head of an upload and a part of its body.
fn send_half(node: &Node) -> Client {
    send(node, with_lines("POST", "/", "Content-Length: 6\r\n") + "abc")
}

/// The values of the room's field in the requests of an application.
fn questions(app: &HttpBackend) -> Vec<String> {
    let fields = app.requests().into_iter().flat_map(|request| request.head.headers);
    fields.filter(|(name, _)| name.eq_ignore_ascii_case(ROOM)).map(|(_, value)| value).collect()
}

#[test]
fn the_wait_at_a_peer_is_limited_by_the_delegating_node() {
    let (gate, here) = (Gate::new(), HttpBackend::named("here"));
    let there = holding("there", &gate);
    let taker = limited("b", &there, 1).start();
    let mut plan = limited("a", &here, 1).peers(&[("b", taker.address)]);
    plan.config.pools[0].options.queue.wait = Duration::from_millis(300);
    let giver = plan.start();
    let down = giver.registry.set_admin("app", "app", equipoise_core::AdminState::Down);
    giver.runtime.block_on(down).expect("it is there");
    let mut busy = send_held(&taker, &there);
    let begun = Instant::now();
    let refused = giver.ask(post("/", "abc"));
    assert_eq!((refused.status(), refused.header(MARKER), refused.header(ROOM)), (503, None, None));
    let took = begun.elapsed();
    assert!((Duration::from_millis(300)..PATIENCE / 2).contains(&took), "{took:?}");
    taker.assert_drops(&[(Reason::QueueTimeout, 1)]);
    giver.assert_drops(&[(Reason::NoBackend, 1)]);
    assert_eq!(pool(&taker, "app").queued, 0);
    assert_eq!(peer(&giver, "b").failures, [], "a refusal is no failure");
    gate.open();
    assert_eq!(text(&mut busy), "there");
    assert_eq!(there.requests().len(), 1);
}

#[test]
fn a_peer_receives_the_shorter_of_remaining_wait_and_request_time() {
    let (here, there) = (HttpBackend::named("here"), HttpBackend::named("there"));
    let ask = |wait: Duration, whole: Option<Duration>| {
        let mut plan = limited("a", &here, 1).keep(0.0).peers(&[("b", there.address())]);
        plan.config.pools[0].options.queue.wait = wait;
        plan.config.front_doors[0].timeouts.request = whole;
        let giver = plan.start();
        assert_eq!(giver.ask(get("/")).text(), "there");
        assert!(eventually(|| peer(&giver, "b").in_flight == 0));
        let mut upload = send_half(&giver);
        assert!(eventually(|| peer(&giver, "b").in_flight == 1));
        upload.send("def");
        assert_eq!(text(&mut upload), "there");
    };
    let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3600));
    ask(minute, None);
    ask(minute, Some(hour));
    ask(hour, Some(minute));
    let questions = questions(&there);
    assert_eq!(questions[..3], ["asked", "wait 60000", "asked"]);
    assert_eq!(questions[3], "wait 60000");
    let left = questions[5].strip_prefix("wait ").and_then(|it| it.parse::<u64>().ok());
    assert!(left.is_some_and(|ms| (1..=60_000).contains(&ms)), "{questions:?}");
}

#[test]
fn a_room_field_from_a_client_sets_no_wait_time() {
    let gate = Gate::new();
    let app = holding("here", &gate);
    let node = limited("a", &app, 1).start();
    let mut busy = send_held(&node, &app);
    let mut waiting: Vec<Client> = ["asked", "wait 1"]
        .iter()
        .map(|value| send_queued(&node, with_lines("GET", "/", &format!("{ROOM}: {value}\r\n"))))
        .collect();
    gate.open();
    assert_eq!(text(&mut busy), "here");
    waiting.iter_mut().for_each(|client| assert_eq!(text(client), "here"));
}

#[test]
fn an_upload_is_delegated_only_to_a_peer_with_announced_room() {
    let (gate, here) = (Gate::new(), HttpBackend::named("here"));
    let there = holding("there", &gate);
    let taker = limited("b", &there, 1).start();
    let giver = limited("a", &here, 9).keep(0.0).peers(&[("b", taker.address)]).start();
    assert_eq!(giver.ask(get("/")).text(), "there");
    assert!(eventually(|| peer(&giver, "b").in_flight == 0));
    let mut upload = send_half(&giver);
    assert!(eventually(|| peer(&giver, "b").in_flight == 1), "it has announced a permit");
    upload.send("def");
    assert_eq!(text(&mut upload), "there");

    let mut busy = send_held(&taker, &there);
    let end = Instant::now() + PATIENCE;
    loop {
        // From 250 ms on another request would ask, and from 1 s on an upload would.
        let announced = Instant::now();
        assert!(eventually(|| {
            let before = peer(&giver, "b").requests;
            giver.ask(get("/")).text() == "here" && peer(&giver, "b").requests > before
        }));
        let (asked, last) = (peer(&giver, "b").requests, Instant::now());
        assert!(eventually(|| last.elapsed() > Duration::from_millis(260)));
        let mut upload = send_half(&giver);
        let is_here = || pool(&giver, "app").backends[0].in_flight == 1;
        assert!(eventually(|| is_here() || pool(&taker, "app").queued == 1));
        if announced.elapsed() < Duration::from_millis(900) {
            assert!(is_here() && peer(&giver, "b").requests == asked);
            upload.send("def");
            assert_eq!(text(&mut upload), "here");
            break;
        }
        assert!(Instant::now() < end, "this machine is too slow");
    }
    gate.open();
    assert_eq!(text(&mut busy), "there");
}

#[test]
fn an_upload_is_handed_back_if_the_announced_room_is_taken() {
    let (gate, here) = (Gate::new(), HttpBackend::named("here"));
    let there = holding("there", &gate);
    let taker = limited("b", &there, 1).start();
    let mut plan = limited("a", &here, 9).keep(0.0).peers(&[("b", taker.address)]);
    plan.config.pools[0].options.queue.wait = Duration::from_millis(300);
    let giver = plan.start();
    assert_eq!(giver.ask(get("/")).text(), "there");
    let mut busy = send_held(&taker, &there);
    let mut upload = send_half(&giver);
    assert!(eventually(|| taker.dispatch().classes.small_transfer.handed_back == 1));
    assert!(eventually(|| pool(&giver, "app").backends[0].in_flight == 1), "it is here");
    upload.send("def");
    assert_eq!(text(&mut upload), "here");
    assert_eq!(here.requests()[0].body, b"abcdef");
    taker.assert_drops(&[(Reason::QueueTimeout, 1)]);
    gate.open();
    assert_eq!(text(&mut busy), "there");
}
