//! The order of requests that wait, and those that do not.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use equipoise_session::Reason;
use equipoise_session::config::{Concurrency, FrontDoor, Protocol, Upstream};
use equipoise_session::stats::Sharded;
use equipoise_testkit::{
    Answer, Client, Gate, HttpBackend, PATIENCE, ReservedPort, Step, eventually, free_port,
};

use crate::common::{Plan, Proxy, both_upstreams, get, request};
use crate::common_dispatch;
use crate::{hold, holding, limited, started, targets, wait_for};

both_upstreams! {
    waiting_requests_are_served_in_order_of_arrival,
    a_front_door_of_higher_priority_is_served_first,
    a_request_with_an_earlier_deadline_is_served_first,
    a_request_that_waits_too_long_is_refused,
    a_request_that_finds_a_full_queue_is_refused_at_once,
    a_client_that_leaves_while_it_waits_is_not_served,
    a_pipelined_request_waits_and_both_are_served,
}

/// Adds a front door of the same pool.
fn second_door(proxy: &mut Proxy, set: impl Fn(&mut FrontDoor)) -> (SocketAddr, ReservedPort) {
    let port = free_port();
    let mut front = FrontDoor::new(port.address(), Protocol::Http, "web");
    set(&mut front);
    let stats = Arc::new(Sharded::new(1));
    proxy.add_front(front, stats);
    proxy.publish().expect("the port is reserved");
    (port.address(), port)
}

fn waiting_requests_are_served_in_order_of_arrival(mode: Upstream) {
    let gate = Gate::new();
    let backend = holding(&gate);
    let proxy = limited(mode, &[backend.address()], 1);
    let mut held = hold(&proxy, &backend);
    let names = ["/a", "/b", "/c", "/d"];
    let waiting = names.iter().zip(1..);
    let clients: Vec<_> =
        waiting.map(|(target, at)| wait_for(&proxy, proxy.address, target, at)).collect();
    gate.open();
    assert_eq!(held.response().map(|r| r.text()), Ok("held".to_owned()));
    for (mut client, name) in clients.into_iter().zip(names) {
        assert_eq!(client.response().map(|r| r.text()), Ok(name.to_owned()));
    }
    assert_eq!(targets(&backend), ["/held", "/a", "/b", "/c", "/d"]);
    proxy.assert_nothing_in_flight();
}

fn a_front_door_of_higher_priority_is_served_first(mode: Upstream) {
    let gate = Gate::new();
    let backend = holding(&gate);
    let mut proxy = limited(mode, &[backend.address()], 1);
    let (urgent, _port) = second_door(&mut proxy, |front| front.priority = 1);
    let _held = hold(&proxy, &backend);
    let mut clients = [
        wait_for(&proxy, proxy.address, "/low-1", 1),
        wait_for(&proxy, proxy.address, "/low-2", 2),
        wait_for(&proxy, urgent, "/high-1", 3),
        wait_for(&proxy, urgent, "/high-2", 4),
    ];
    gate.open();
    for client in &mut clients {
        assert_eq!(client.response().map(|r| r.status()), Ok(200));
    }
    assert_eq!(targets(&backend), ["/held", "/high-1", "/high-2", "/low-1", "/low-2"]);
}

fn a_request_with_an_earlier_deadline_is_served_first(mode: Upstream) {
    let gate = Gate::new();
    let backend = holding(&gate);
    let mut proxy = limited(mode, &[backend.address()], 1);
    let (hasty, _port) =
        second_door(&mut proxy, |front| front.timeouts.request = Some(PATIENCE / 2));
    let _held = hold(&proxy, &backend);
    let mut clients = [
        wait_for(&proxy, proxy.address, "/a", 1),
        wait_for(&proxy, hasty, "/hasty-1", 2),
        wait_for(&proxy, proxy.address, "/b", 3),
        wait_for(&proxy, hasty, "/hasty-2", 4),
    ];
    gate.open();
    for client in &mut clients {
        assert_eq!(client.response().map(|r| r.status()), Ok(200));
    }
    assert_eq!(targets(&backend), ["/held", "/hasty-1", "/hasty-2", "/a", "/b"]);
}

fn a_request_that_waits_too_long_is_refused(mode: Upstream) {
    const WAIT: Duration = Duration::from_millis(100);
    let gate = Gate::new();
    let backend = holding(&gate);
    let plan = Plan::new(mode, &[backend.address()]).pool(|pool| pool.queue.wait = WAIT);
    let proxy = started(plan, 1);
    let mut held = hold(&proxy, &backend);
    let since = Instant::now();
    let refused = proxy.ask(get("/a"));
    assert_eq!((refused.status(), refused.header("Retry-After")), (503, Some("5")));
    assert!(since.elapsed() >= WAIT, "after {:?}", since.elapsed());
    assert_eq!(proxy.queue.len(), 0);
    gate.open();
    assert_eq!(held.response().map(|r| r.status()), Ok(200));
    proxy.assert_drops(&[(Reason::QueueTimeout, 1)]);
    assert!(proxy.queue.stats.histogram(|shard| &shard.wait).sum_us >= 100_000);
    assert_eq!(targets(&backend), ["/held"]);
}

fn a_request_that_finds_a_full_queue_is_refused_at_once(mode: Upstream) {
    let gate = Gate::new();
    let backend = holding(&gate);
    let plan = Plan::new(mode, &[backend.address()]).pool(|pool| {
        pool.queue.wait = PATIENCE;
        pool.queue.length = 1;
    });
    let proxy = started(plan, 1);
    let _held = hold(&proxy, &backend);
    let mut waiting = wait_for(&proxy, proxy.address, "/a", 1);
    let refused = proxy.ask(get("/b"));
    assert_eq!((refused.status(), refused.header("Retry-After")), (503, Some("5")));
    gate.open();
    assert_eq!(waiting.response().map(|r| r.text()), Ok("/a".to_owned()));
    proxy.assert_drops(&[(Reason::QueueFull, 1)]);
}

fn a_client_that_leaves_while_it_waits_is_not_served(mode: Upstream) {
    let gate = Gate::new();
    let backend = holding(&gate);
    let proxy = limited(mode, &[backend.address()], 1);
    let mut held = hold(&proxy, &backend);
    let closes = wait_for(&proxy, proxy.address, "/closes", 1);
    let resets = wait_for(&proxy, proxy.address, "/resets", 2);
    let mut stays = wait_for(&proxy, proxy.address, "/stays", 3);
    drop(closes);
    assert!(eventually(|| proxy.queue.len() == 2));
    resets.reset();
    assert!(eventually(|| proxy.queue.len() == 1));
    gate.open();
    assert_eq!(held.response().map(|r| r.status()), Ok(200));
    assert_eq!(stays.response().map(|r| r.text()), Ok("/stays".to_owned()));
    assert_eq!(targets(&backend), ["/held", "/stays"]);
    proxy.assert_drops(&[(Reason::ClientGone, 2)]);
    proxy.assert_nothing_in_flight();
}

fn a_pipelined_request_waits_and_both_are_served(mode: Upstream) {
    let gate = Gate::new();
    let backend = holding(&gate);
    let proxy = limited(mode, &[backend.address()], 1);
    let _held = hold(&proxy, &backend);
    let mut client = wait_for(&proxy, proxy.address, "/first", 1);
    client.send(get("/second")).finish();
    gate.open();
    assert_eq!(client.response().map(|r| r.text()), Ok("/first".to_owned()));
    assert_eq!(client.response().map(|r| r.text()), Ok("/second".to_owned()));
}

#[test]
fn a_retry_waits_for_another_backend_while_a_later_request_passes() {
    let (gate, fails) = (Gate::new(), Gate::new());
    let answer = Answer::close().first(Step::Wait(fails.clone()));
    let failing = HttpBackend::start(move |request| match request.number {
        0 => answer.clone(),
        _ => Answer::ok("failing"),
    });
    let good = holding(&gate);
    let mut proxy = limited(Upstream::Exclusive, &[good.address()], 1);
    let mut held = hold(&proxy, &good);
    proxy.add_backend(failing.address());
    proxy.backends[1].live.set_limit(NonZeroU32::new(1));
    proxy.publish().expect("no new door");
    let mut retried = proxy.connect();
    retried.send(get("/retried"));
    assert!(failing.wait(|requests| requests.len() == 1));
    let mut later = wait_for(&proxy, proxy.address, "/later", 1);
    fails.open();
    // The later one has the permit that the failure freed: the retry avoids that backend.
    assert_eq!(later.response().map(|r| r.text()), Ok("failing".to_owned()));
    assert!(eventually(|| proxy.queue.len() == 1), "the retry waits");
    gate.open();
    assert_eq!(held.response().map(|r| r.text()), Ok("held".to_owned()));
    assert_eq!(retried.response().map(|r| r.text()), Ok("/retried".to_owned()));
    proxy.assert_drops(&[]);
    proxy.assert_nothing_in_flight();
}

#[test]
fn a_health_check_from_a_peer_does_not_enter_the_queue() {
    let gate = Gate::new();
    let backend = holding(&gate);
    // Peers are recognized by their addresses.
    let peers = [("peer", ([127, 0, 0, 1], 9).into())];
    let mut plan = common_dispatch::Plan::new("n", &backend).peers(&peers);
    plan.config.pools[0].concurrency = Concurrency::Fixed(NonZeroU32::MIN);
    plan.config.pools[0].options.queue.wait = PATIENCE;
    let node = plan.start();
    let mut held = Client::connect(node.address);
    held.send(get("/held"));
    assert!(backend.wait(|requests| requests.len() == 1));
    let mut waiting = Client::connect(node.address);
    waiting.send(get("/a"));
    let pool = || node.runtime.block_on(node.registry.status()).expect("it runs").pools.remove(0);
    assert!(eventually(|| pool().queued == 1));
    let check = node.ask(request("GET", "/check", "equipoise-check: 1\r\n"));
    assert_eq!(check.text(), "/check");
    assert_eq!((pool().queued, targets(&backend).len()), (1, 2));
    gate.open();
    assert_eq!(held.response().map(|r| r.status()), Ok(200));
    assert_eq!(waiting.response().map(|r| r.text()), Ok("/a".to_owned()));
    assert!(eventually(|| pool().backends[0].in_flight == 0));
}
