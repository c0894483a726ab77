//! Changes of pools, limits and front doors while requests wait.

use std::num::NonZeroU32;
use std::thread;

use equipoise_session::Reason;
use equipoise_session::config::{Concurrency, Upstream};
use equipoise_testkit::{Client, Gate, HttpBackend, PATIENCE, eventually};

use crate::common::{both_upstreams, get};
use crate::common_dispatch;
use crate::{hold, holding, limited, targets, wait_for};

both_upstreams! {
    without_a_backend_those_that_wait_are_refused_at_once,
    a_backend_that_comes_serves_those_that_wait,
    a_raised_limit_serves_those_that_wait,
    a_stop_serves_those_that_wait,
    those_that_wait_are_served_after_their_front_door_and_then_its_pool_were_removed,
}

fn without_a_backend_those_that_wait_are_refused_at_once(mode: Upstream) {
    let gate = Gate::new();
    let backend = holding(&gate);
    let mut proxy = limited(mode, &[backend.address()], 1);
    let mut held = hold(&proxy, &backend);
    let mut waiting = wait_for(&proxy, proxy.address, "/a", 1);
    let drained = proxy.backends.remove(0);
    proxy.publish().expect("no new door");
    assert_eq!(waiting.response().map(|r| r.status()), Ok(503));
    proxy.assert_drops(&[(Reason::NoBackend, 1)]);
    gate.open();
    assert_eq!(held.response().map(|r| r.status()), Ok(200), "a drained backend finishes");
    assert!(eventually(|| drained.live.in_flight() == 0));
    proxy.backends.push(drained);
    proxy.publish().expect("no new door");
    assert_eq!(proxy.ask(get("/b")).text(), "/b");
}

fn a_backend_that_comes_serves_those_that_wait(mode: Upstream) {
    let gate = Gate::new();
    let (backend, other) = (holding(&gate), HttpBackend::named("other"));
    let mut proxy = limited(mode, &[backend.address()], 1);
    let mut held = hold(&proxy, &backend);
    let mut clients = ["/a", "/b"].iter().zip(1..);
    let clients: Vec<_> =
        clients.by_ref().map(|(it, at)| wait_for(&proxy, proxy.address, it, at)).collect();
    proxy.add_backend(other.address());
    proxy.backends[1].live.set_limit(NonZeroU32::new(1));
    proxy.publish().expect("no new door");
    for mut client in clients {
        assert_eq!(client.response().map(|r| r.text()), Ok("other".to_owned()));
    }
    gate.open();
    assert_eq!(held.response().map(|r| r.status()), Ok(200));
    assert_eq!(targets(&backend), ["/held"]);
}

fn a_raised_limit_serves_those_that_wait(mode: Upstream) {
    let gate = Gate::new();
    let backend = holding(&gate);
    let proxy = limited(mode, &[backend.address()], 1);
    let _held = hold(&proxy, &backend);
    for limit in [NonZeroU32::new(2), None] {
        proxy.backends[0].live.set_limit(NonZeroU32::new(1));
        let mut waiting = wait_for(&proxy, proxy.address, "/a", 1);
        proxy.backends[0].live.set_limit(limit);
        proxy.queue.look();
        assert_eq!(waiting.response().map(|r| r.text()), Ok("/a".to_owned()));
    }
    gate.open();
}

fn a_stop_serves_those_that_wait(mode: Upstream) {
    let gate = Gate::new();
    let backend = holding(&gate);
    let proxy = limited(mode, &[backend.address()], 1);
    let address = proxy.address;
    let mut held = hold(&proxy, &backend);
    let mut waiting = wait_for(&proxy, proxy.address, "/a", 1);
    let stopping = thread::spawn(move || proxy.stop(PATIENCE));
    assert!(eventually(|| std::net::TcpStream::connect(address).is_err()), "the door closes");
    gate.open();
    assert_eq!(held.response().map(|r| r.status()), Ok(200));
    assert_eq!(waiting.response().map(|r| r.text()), Ok("/a".to_owned()));
    assert_eq!(stopping.join().expect("it stops").cut, 0);
}

fn those_that_wait_are_served_after_their_front_door_and_then_its_pool_were_removed(
    mode: Upstream,
) {
    let gate = Gate::new();
    let backend = holding(&gate);
    let mut proxy = limited(mode, &[backend.address()], 1);
    let mut held = hold(&proxy, &backend);
    let mut waiting = wait_for(&proxy, proxy.address, "/a", 1);
    proxy.fronts.clear();
    proxy.publish().expect("no new door");
    proxy.publish_nothing();
    gate.open();
    assert_eq!(held.response().map(|r| r.text()), Ok("held".to_owned()));
    assert_eq!(waiting.response().map(|r| r.text()), Ok("/a".to_owned()));
    proxy.assert_nothing_in_flight();
}

#[test]
fn a_reload_that_changes_the_limit_acts_at_once() {
    let gate = Gate::new();
    let backend = holding(&gate);
    let mut plan = common_dispatch::Plan::new("n", &backend);
    let limit = |limit| Concurrency::Fixed(NonZeroU32::new(limit).expect("above zero"));
    plan.config.pools[0].concurrency = limit(9);
    plan.config.pools[0].backends[0].concurrency = Some(limit(1));
    plan.config.pools[0].options.queue.wait = PATIENCE;
    let mut config = plan.config.clone();
    let node = plan.start();
    let status = || {
        let status = node.runtime.block_on(node.registry.status()).expect("it runs");
        (
            status.pools[0].queued,
            status.pools[0].backends[0].in_flight,
            status.pools[0].backends[0].limit,
        )
    };
    let mut held = Client::connect(node.address);
    held.send(get("/held"));
    assert!(backend.wait(|requests| requests.len() == 1));
    let mut waiting = Client::connect(node.address);
    waiting.send(get("/a"));
    assert!(eventually(|| status() == (1, 1, Some(1))), "{:?}", status());
    config.pools[0].backends[0].concurrency = None;
    node.runtime.block_on(node.registry.apply(config.clone())).expect("nothing new is bound");
    assert_eq!(waiting.response().map(|r| r.text()), Ok("/a".to_owned()));
    assert!(eventually(|| status() == (0, 1, Some(9))), "{:?}", status());
    config.pools[0].concurrency = Concurrency::None;
    node.runtime.block_on(node.registry.apply(config)).expect("nothing new is bound");
    assert_eq!(status(), (0, 1, None));
    gate.open();
    assert_eq!(held.response().map(|r| r.text()), Ok("held".to_owned()));
}
