//! Snapshots change under load without effect on established connections; a stop finishes open
//! requests if it can.

mod common;
mod common_dispatch;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use common::{Plan, Proxy, both_upstreams, get, post, request};
use common_dispatch::{Node, of_all, pool};
use equipoise_session::config::{FrontDoor, Protocol, SessionConfig, Upstream};
use equipoise_session::stats::Sharded;
use equipoise_session::{Reason, Snapshot};
use equipoise_testkit::{
    Answer, Client, Ending, Gate, HttpBackend, PATIENCE, ReservedPort, Step, eventually, free_port,
};

/// Sends requests without pause until the stop, on one connection or on a new one each time;
/// returns their number and the failures.
fn load(address: std::net::SocketAddr, keep: bool, stop: &AtomicBool) -> (usize, Vec<String>) {
    let (mut count, mut wrong) = (0, Vec::new());
    let mut client = Client::connect(address);
    while !stop.load(Relaxed) {
        if !keep {
            client = Client::connect(address);
        }
        let request = if count % 3 == 0 { post("/", "abc") } else { get("/") };
        match client.ask(request) {
            Ok(response) if response.status() == 200 => {}
            other => {
                wrong.push(format!("{other:?}"));
                client = Client::connect(address);
            }
        }
        count += 1;
    }
    (count, wrong)
}

both_upstreams! {
    two_hundred_snapshots_under_load_fail_no_request,
    a_request_in_flight_outlives_its_backends_removal,
    a_tunnel_outlives_its_backends_and_its_front_doors_removal,
    a_backend_that_is_set_down_has_its_requests_cut,
    a_removed_front_door_refuses_connections_and_finishes_requests,
    a_second_front_door_opens_and_serves_the_same_pool,
    new_limits_hold_for_the_next_request_of_an_open_connection,
    a_stop_finishes_requests_in_flight_and_refuses_connections,
    a_stop_cuts_and_counts_requests_that_exceed_the_grace,
}

fn two_hundred_snapshots_under_load_fail_no_request(mode: Upstream) {
    let backends: Vec<_> = (0..3).map(|n| HttpBackend::named(&n.to_string())).collect();
    let addresses: Vec<_> = backends.iter().map(HttpBackend::address).collect();
    let mut proxy = Plan::new(mode, &addresses).threads(2).start();
    let (address, stop) = (proxy.address, AtomicBool::new(false));
    thread::scope(|scope| {
        let clients: Vec<_> = (0..6)
            .map(|c| {
                let stop = &stop;
                scope.spawn(move || load(address, c % 2 == 0, stop))
            })
            .collect();
        let all = proxy.backends.clone();
        for round in 0..200 {
            // One backend leaves or returns, as a new object or as the same one.
            proxy.backends = all.clone();
            if round % 2 == 0 {
                proxy.backends.remove(round / 2 % 3);
            }
            if round % 5 == 0 {
                proxy.add_backend(addresses[0]);
            }
            proxy.options.retries = 1 + (round % 2) as u32;
            let now = || backends.iter().map(|b| b.counts().bytes).sum::<u64>();
            let seen = now();
            proxy.publish().expect("no new door");
            assert!(eventually(|| now() > seen), "the load goes on");
        }
        stop.store(true, Relaxed);
        for client in clients {
            let (count, wrong) = client.join().expect("it runs to its end");
            assert!(
                count > 0 && wrong.is_empty(),
                "{} of {count}: {}",
                wrong.len(),
                wrong.join("\n")
            );
        }
    });
    proxy.assert_drops(&[]);
    proxy.assert_nothing_in_flight();
}

fn a_request_in_flight_outlives_its_backends_removal(mode: Upstream) {
    let gate = Gate::new();
    let held = HttpBackend::always(Answer::ok("old").first(Step::Wait(gate.clone())));
    let fresh = HttpBackend::named("new");
    let mut proxy = Plan::new(mode, &[held.address()]).start();
    let mut client = proxy.connect();
    client.send(post("/", "abc"));
    assert!(held.wait(|r| r.len() == 1));
    proxy.backends.clear();
    proxy.add_backend(fresh.address());
    proxy.publish().expect("no new door");
    assert_eq!(proxy.ask(get("/")).text(), "new");
    gate.open();
    assert_eq!(client.response().map(|r| r.text()), Ok("old".to_owned()));
    assert_eq!(client.ask(get("/")).map(|r| r.text()), Ok("new".to_owned()));
    assert!(held.acceptor().wait(|c| c.open == 0), "sessions to a removed backend are not kept");
    proxy.assert_drops(&[]);
}

fn a_tunnel_outlives_its_backends_and_its_front_doors_removal(mode: Upstream) {
    let backend = HttpBackend::always(Answer::upgrade("websocket"));
    let mut proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    client.send(request("GET", "/", "Connection: upgrade\r\nUpgrade: websocket\r\n"));
    assert_eq!(client.response().map(|r| r.status()), Ok(101));
    proxy.backends.clear();
    proxy.publish().expect("no new door");
    proxy.fronts.clear();
    proxy.publish().expect("no new door");
    for _ in 0..3 {
        client.send("ping");
        assert_eq!(client.read_exactly(4), Ok(b"ping".to_vec()));
    }
}

fn a_backend_that_is_set_down_has_its_requests_cut(mode: Upstream) {
    let backend = HttpBackend::always(Answer::hang());
    let mut proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    client.send(post("/", "abc"));
    assert!(backend.wait(|r| r.len() == 1));
    proxy.backends[0].live.cut.store(true, Relaxed);
    let cut = proxy.backends.remove(0);
    proxy.publish().expect("no new door");
    assert_eq!(client.response().map(|r| r.status()), Ok(502));
    assert!(backend.acceptor().wait(|c| c.open == 0), "the session is closed");
    proxy.assert_drops(&[(Reason::BackendRemoved, 1)]);
    assert!(eventually(|| cut.live.in_flight() == 0));
}

fn a_removed_front_door_refuses_connections_and_finishes_requests(mode: Upstream) {
    let backend = HttpBackend::named("x");
    let mut proxy = Proxy::before(mode, &backend);
    let gate = Gate::new();
    let held = HttpBackend::always(Answer::ok("held").first(Step::Wait(gate.clone())));
    let mut client = proxy.connect();
    assert_eq!(client.ask(get("/")).map(|r| r.text()), Ok("x".to_owned()));
    proxy.backends.clear();
    proxy.add_backend(held.address());
    proxy.publish().expect("no new door");
    client.send(get("/"));
    assert!(held.wait(|r| r.len() == 1));
    let front = proxy.fronts.remove(0);
    proxy.publish().expect("no new door");
    assert!(eventually(|| std::net::TcpStream::connect(proxy.address).is_err()), "it refuses");
    gate.open();
    assert_eq!(client.response().map(|r| r.text()), Ok("held".to_owned()));
    let (_, config, stats) = front;
    proxy.add_front(config, stats);
    proxy.publish().expect("the port is reserved");
    assert_eq!(proxy.ask(get("/")).text(), "held", "it opens again on its port");
}

fn a_second_front_door_opens_and_serves_the_same_pool(mode: Upstream) {
    let backend = HttpBackend::named("x");
    let mut proxy = Proxy::before(mode, &backend);
    let port = free_port();
    let stats = Arc::new(Sharded::new(1));
    proxy.add_front(FrontDoor::new(port.address(), Protocol::Http, "web"), stats.clone());
    proxy.publish().expect("the port is reserved");
    assert_eq!(Client::exchange(port.address(), get("/")).map(|r| r.text()), Ok("x".to_owned()));
    assert_eq!(proxy.ask(get("/")).text(), "x");
    assert_eq!((stats.sum(|s| s.requests.get()), proxy.stats.sum(|s| s.requests.get())), (1, 1));
}

fn new_limits_hold_for_the_next_request_of_an_open_connection(mode: Upstream) {
    let backend = HttpBackend::named("x");
    let mut proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    assert_eq!(client.ask(post("/", "abc")).map(|r| r.status()), Ok(200));
    proxy.fronts[0].1.limits.body_bytes_max = Some(2);
    proxy.publish().expect("no new door");
    assert_eq!(client.ask(post("/", "abc")).map(|r| r.status()), Ok(413));
}

fn a_stop_finishes_requests_in_flight_and_refuses_connections(mode: Upstream) {
    let gate = Gate::new();
    let backend = HttpBackend::always(Answer::ok("late").first(Step::Wait(gate.clone())));
    let proxy = Proxy::before(mode, &backend);
    let address = proxy.address;
    let mut idle = proxy.connect();
    let mut client = proxy.connect();
    client.send(get("/"));
    assert!(backend.wait(|r| r.len() == 1));
    let stopping = thread::spawn(move || proxy.stop(PATIENCE));
    assert_eq!(
        idle.read_to_end(),
        (Vec::new(), Ending::Closed),
        "an idle connection is closed at once"
    );
    assert!(eventually(|| std::net::TcpStream::connect(address).is_err()), "it refuses");
    gate.open();
    let response = client.response().expect("what is in flight is finished");
    assert_eq!(
        (response.text().as_str(), response.head.says("connection", "close")),
        ("late", true)
    );
    assert_eq!(client.read_to_end().1, Ending::Closed);
    assert_eq!(stopping.join().expect("it ends").cut, 0);
}

fn a_stop_cuts_and_counts_requests_that_exceed_the_grace(mode: Upstream) {
    let backend = HttpBackend::always(Answer::hang());
    let proxy = Proxy::before(mode, &backend);
    let mut clients: Vec<_> = (0..3).map(|_| proxy.connect()).collect();
    for (count, client) in (1..).zip(&mut clients) {
        client.send(post("/", "abc"));
        assert!(backend.wait(|r| r.len() == count));
    }
    let stats = proxy.stats.clone();
    let report = proxy.stop(Duration::from_millis(100));
    assert_eq!(report.cut, 3);
    for client in &mut clients {
        assert_ne!(client.read_to_end().1, Ending::StillOpen);
    }
    assert_eq!(stats.sum(|s| s.drops[Reason::ShuttingDown as usize].get()), 3);
    assert!(backend.acceptor().wait(|c| c.open == 0));
}

#[test]
fn a_used_port_is_reported_with_its_front_door_without_changes() {
    let backend = HttpBackend::named("x");
    let mut proxy = Proxy::before(Default::default(), &backend);
    let taken = free_port();
    let _listener = taken.listen();
    let door = FrontDoor::new(taken.address(), Protocol::Http, "web");
    proxy.add_front(door, Arc::new(Sharded::new(1)));
    let error = proxy.publish().expect_err("the port is in use");
    let message = error.to_string();
    for part in [&taken.address().to_string()[..], "`listen`", &error.front_door] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(error.source.kind(), std::io::ErrorKind::AddrInUse);
    assert_eq!(proxy.ask(get("/")).text(), "x");
    proxy.fronts.pop();
    proxy.publish().expect("what was running still can be changed");
    assert_eq!(proxy.ask(get("/")).text(), "x");
}

#[test]
fn an_older_snapshot_changes_nothing() {
    let backend = HttpBackend::named("x");
    let proxy = Proxy::before(Default::default(), &backend);
    proxy.engine().publish(Arc::new(Snapshot::default())).expect("it is ignored");
    assert_eq!(proxy.ask(get("/")).text(), "x");
}

/// The two halves of a request's head.
const HALVES: [&str; 2] = ["GET / HTTP/1.1\r\nHo", "st: a.example\r\n\r\n"];

/// A client that has sent half a head to the node's first front door, which has read it.
fn half_a_head(node: &Node) -> Client {
    let mut client = Client::connect(node.address);
    client.send(HALVES[0]);
    let read = || node.status().bytes_in == HALVES[0].len() as u64;
    assert!(eventually(read), "{:?}", node.status());
    client
}

fn text_of_the_rest(mut client: Client) -> String {
    client.send(HALVES[1]);
    client.response().expect("a whole response").text()
}

/// Two front doors, each with its own pool of one application; the port of the second is reserved.
fn two_doors(apps: [&HttpBackend; 2]) -> (common_dispatch::Plan, SessionConfig, ReservedPort) {
    let port = free_port();
    let mut plan = common_dispatch::Plan::new("n", apps[0]);
    let door = |address, pool| FrontDoor::new(address, Protocol::Http, pool);
    let config = SessionConfig {
        pools: vec![
            pool("a", &[("app", apps[0].address())]),
            pool("b", &[("app", apps[1].address())]),
        ],
        front_doors: vec![door(plan.address(), "a"), door(port.address(), "b")],
    };
    plan.config = config.clone();
    (plan, config, port)
}

#[test]
fn clients_of_a_front_door_removed_with_its_pool_are_served() {
    let (a, b) = (HttpBackend::named("a"), HttpBackend::named("b"));
    let (plan, mut config, _port) = two_doors([&a, &b]);
    let node = plan.start();
    let half = half_a_head(&node);
    config.pools.remove(0);
    config.front_doors.remove(0);
    let address = config.front_doors[0].listen;
    node.runtime.block_on(node.registry.apply(config)).expect("nothing new");
    let asked = Client::exchange(address, get("/")).map(|response| response.text());
    assert_eq!(asked, Ok("b".to_string()), "the other one stands where it stood");
    assert_eq!(text_of_the_rest(half), "a");
    assert_eq!(b.requests().len(), 1, "nobody else's request came there");
}

#[test]
fn clients_of_a_removed_front_door_follow_changes_of_its_pool() {
    let (a, b, next) =
        (HttpBackend::named("a"), HttpBackend::named("b"), HttpBackend::named("next"));
    let (plan, mut config, _port) = two_doors([&a, &b]);
    let node = plan.start();
    let half = half_a_head(&node);
    config.front_doors.remove(0);
    config.pools.reverse();
    config.pools[1].backends = pool("a", &[("next", next.address())]).backends;
    node.runtime.block_on(node.registry.apply(config)).expect("nothing new");
    assert_eq!(text_of_the_rest(half), "next");
    assert!(b.requests().is_empty());
}

#[test]
fn a_closed_front_door_delegates_to_the_planned_peer() {
    let apps = ["here", "b", "c"].map(HttpBackend::named);
    let takers = [1, 2].map(|n| common_dispatch::Plan::new(["", "b", "c"][n], &apps[n]).start());
    let peers = [("b", takers[0].address), ("c", takers[1].address)];
    let plan = common_dispatch::Plan::new("a", &apps[0]).peers(&peers);
    let mut config = plan.config.clone();
    let giver = plan.start();
    giver.goes_by(of_all(0.0), &[("c", 1.0)]);
    let half = half_a_head(&giver);
    config.front_doors.clear();
    config.pools.reverse();
    config.pools[0].backends.reverse();
    giver.runtime.block_on(giver.registry.apply(config)).expect("nothing new");
    assert_eq!(text_of_the_rest(half), "c");
}
