//! Backends with a concurrency limit, and the queue of requests that find no permit free.

mod common;
mod common_dispatch;

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::{Plan, Proxy, both_upstreams, get, post, request};
use equipoise_core::LineFormat;
use equipoise_core::concurrency::Region;
use equipoise_session::Reason;
use equipoise_session::config::{Concurrency, FrontDoor, Protocol, Upstream};
use equipoise_session::stats::Sharded;
use equipoise_testkit::{
    Answer, Client, Gate, HttpBackend, PATIENCE, ReservedPort, Step, eventually, free_port,
};
use serde_json::Value;

both_upstreams! {
    no_backend_ever_has_more_than_its_limit,
    those_that_wait_are_served_in_the_order_in_which_they_came,
    a_front_door_of_higher_priority_is_served_first,
    a_request_with_less_time_of_its_own_is_served_first,
    a_request_that_waits_too_long_is_refused,
    a_request_that_finds_a_full_queue_is_refused_at_once,
    a_client_that_leaves_while_it_waits_is_not_served,
    a_pipelined_request_waits_and_both_are_served,
    without_a_backend_those_that_wait_are_refused_at_once,
    a_backend_that_comes_serves_those_that_wait,
    a_raised_limit_serves_those_that_wait,
    a_failed_request_frees_its_permit_for_the_next,
    a_stop_serves_those_that_wait,
    those_that_wait_are_served_after_their_front_door_and_then_its_pool_were_removed,
    a_tunnel_holds_no_permit,
    a_client_that_does_not_read_holds_no_permit,
    a_client_that_stalls_in_its_upload_holds_no_permit,
    a_stated_limit_shows_the_region_of_the_moment,
    a_backend_counts_the_wait_of_the_requests_that_it_served,
}

/// A proxy with these backends, each with this limit, at which requests wait for as long as a test
/// may take.
fn limited(mode: Upstream, backends: &[SocketAddr], limit: u32) -> Proxy {
    started(Plan::new(mode, backends).pool(|pool| pool.queue.wait = PATIENCE), limit)
}

fn started(plan: Plan, limit: u32) -> Proxy {
    let proxy = plan.start();
    for backend in &proxy.backends {
        backend.live.set_limit(NonZeroU32::new(limit));
    }
    proxy
}

/// A backend that answers requests for `/held` when the gate opens, and others at once.
fn holding(gate: &Gate) -> HttpBackend {
    let held = Answer::ok("held").first(Step::Wait(gate.clone()));
    HttpBackend::start(move |request| match request.head.target() {
        "/held" => held.clone(),
        target => Answer::ok(target),
    })
}

/// A client with a request that holds the backend's only permit.
fn hold(proxy: &Proxy, backend: &HttpBackend) -> Client {
    let mut client = proxy.connect();
    let before = backend.requests().len();
    client.send(get("/held"));
    assert!(backend.wait(|requests| requests.len() > before), "it arrives");
    client
}

/// A client with a waiting request, the last of `waiting`.
fn wait_for(proxy: &Proxy, address: SocketAddr, target: &str, waiting: usize) -> Client {
    let mut client = Client::connect(address);
    client.send(get(target));
    assert!(eventually(|| proxy.queue.len() == waiting), "{target}: {}", proxy.queue.len());
    client
}

fn targets(backend: &HttpBackend) -> Vec<String> {
    backend.requests().iter().map(|request| request.head.target().to_owned()).collect()
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

/// The access log in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no writer panics").extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn no_backend_ever_has_more_than_its_limit(mode: Upstream) {
    const LIMIT: usize = 3;
    const CLIENTS: usize = 16;
    const REQUESTS: usize = 60;
    let in_flight = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let most = Arc::new(AtomicUsize::new(0));
    let backends = [0, 1].map(|at| {
        let (in_flight, most) = (in_flight.clone(), most.clone());
        // Counted before the answer is sent, which frees the permit.
        HttpBackend::start(move |_| {
            most.fetch_max(in_flight[at].fetch_add(1, SeqCst) + 1, SeqCst);
            thread::sleep(Duration::from_micros(500));
            in_flight[at].fetch_sub(1, SeqCst);
            Answer::ok("done")
        })
    });
    let addresses = backends.each_ref().map(HttpBackend::address);
    let plan = Plan::new(mode, &addresses).threads(3).pool(|pool| pool.queue.wait = PATIENCE);
    let proxy = started(plan, LIMIT as u32);
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let proxy = &proxy;
            scope.spawn(move || {
                let mut connection = proxy.connect();
                for at in 0..REQUESTS {
                    let request = if (client + at) % 3 == 0 { post("/", "abc") } else { get("/") };
                    let response = connection.ask(request).expect("a whole response");
                    assert_eq!(response.status(), 200);
                }
            });
        }
    });
    assert!(most.load(SeqCst) <= LIMIT, "{} at once", most.load(SeqCst));
    proxy.assert_drops(&[]);
    proxy.assert_nothing_in_flight();
    assert_eq!(proxy.queue.len(), 0);
    assert!(proxy.queue.stats.sum(|shard| shard.waited.get()) > 0, "some had to wait");
}

fn those_that_wait_are_served_in_the_order_in_which_they_came(mode: Upstream) {
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

fn a_request_with_less_time_of_its_own_is_served_first(mode: Upstream) {
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

fn a_failed_request_frees_its_permit_for_the_next(mode: Upstream) {
    let gate = Gate::new();
    let fails = Answer::close().first(Step::Wait(gate.clone()));
    let backend = HttpBackend::start(move |request| match request.number {
        0 => fails.clone(),
        _ => Answer::ok(request.head.target()),
    });
    let proxy = limited(mode, &[backend.address()], 1);
    let mut failing = proxy.connect();
    failing.send(post("/fails", "abc"));
    assert!(backend.wait(|requests| requests.len() == 1));
    let mut waiting = wait_for(&proxy, proxy.address, "/a", 1);
    gate.open();
    assert_eq!(failing.response().map(|r| r.status()), Ok(502));
    assert_eq!(waiting.response().map(|r| r.text()), Ok("/a".to_owned()));
    proxy.assert_nothing_in_flight();
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

fn a_tunnel_holds_no_permit(mode: Upstream) {
    let backend = HttpBackend::start(|request| match request.head.target() {
        "/tunnel" => Answer::upgrade("websocket"),
        target => Answer::ok(target),
    });
    let proxy = limited(mode, &[backend.address()], 1);
    let mut tunnel = proxy.connect();
    tunnel.send(request("GET", "/tunnel", "Connection: upgrade\r\nUpgrade: websocket\r\n"));
    assert_eq!(tunnel.response().map(|r| r.status()), Ok(101));
    assert_eq!(proxy.ask(get("/a")).text(), "/a");
    let live = &proxy.backends[0].live;
    assert!(eventually(|| (live.in_flight(), live.permits_held()) == (1, 0)));
    tunnel.send("ping");
    assert_eq!(tunnel.read_exactly(4), Ok(b"ping".to_vec()));
    drop(tunnel);
    proxy.assert_nothing_in_flight();
    assert_eq!(proxy.backends[0].live.permits_held(), 0);
}

fn a_client_that_does_not_read_holds_no_permit(mode: Upstream) {
    const BYTES: u64 = 64 << 20;
    const SLOW: Duration = Duration::from_millis(100);
    let backend = HttpBackend::start(|request| match request.head.target() {
        "/large" => Answer::pattern(1, BYTES),
        target => Answer::ok(target),
    });
    let proxy = limited(mode, &[backend.address()], 1);
    let mut slow = proxy.connect();
    slow.send(get("/large"));
    assert!(backend.wait(|requests| requests.len() == 1));
    assert_eq!(proxy.ask(get("/a")).text(), "/a");
    // Its permit was freed before the other request had it.
    thread::sleep(SLOW);
    let mut read = 0;
    let head = slow.response_into(&mut |piece| read += piece.len() as u64);
    assert_eq!(head.map(|head| head.status()), Ok(200));
    assert_eq!(read, BYTES);
    proxy.assert_nothing_in_flight();
    let live = &proxy.backends[0].live;
    assert_eq!(live.permits_held(), 0);
    let responses = live.stats.histogram(|shard| &shard.response_time).sum_us;
    let permits = live.stats.sum(|shard| shard.permit_time_us.get());
    assert!(
        responses >= permits + SLOW.as_micros() as u64,
        "{responses} us, with permits {permits}"
    );
}

fn a_stated_limit_shows_the_region_of_the_moment(mode: Upstream) {
    let gate = Gate::new();
    let backend = holding(&gate);
    let proxy = limited(mode, &[backend.address()], 4);
    let live = &proxy.backends[0].live;
    let mut held = Vec::new();
    for region in [Region::UnderUsed, Region::UnderUsed, Region::Best, Region::Best] {
        assert_eq!(live.region(), Some(region), "{} held", held.len());
        held.push(hold(&proxy, &backend));
    }
    assert_eq!(live.region(), Some(Region::Best), "full");
    live.set_limit(NonZeroU32::new(3));
    assert_eq!(live.region(), Some(Region::Over));
    live.set_limit(None);
    assert_eq!((live.region(), live.learned()), (None, None), "without a limit");
    gate.open();
    assert!(held.iter_mut().all(|client| client.response().is_ok()));
}

fn a_backend_counts_the_wait_of_the_requests_that_it_served(mode: Upstream) {
    let (a, b) = (Gate::new(), Gate::new());
    let backends = [holding(&a), holding(&b)];
    let proxy = limited(mode, &backends.each_ref().map(HttpBackend::address), 1);
    let wait_us = |at: usize| {
        let stats = &proxy.backends[at].live.stats;
        stats.sum(|shard| shard.queue_wait_us.get())
    };
    let mut held: Vec<_> = (0..2).map(|_| proxy.connect()).collect();
    for client in &mut held {
        client.send(get("/held"));
    }
    let both = || backends.iter().all(|backend| backend.requests().len() == 1);
    assert!(eventually(both), "each has one");
    assert_eq!((wait_us(0), wait_us(1)), (0, 0), "they did not wait");
    let mut waiting = wait_for(&proxy, proxy.address, "/a", 1);
    let since = Instant::now();
    thread::sleep(Duration::from_millis(20));
    let waited_us = since.elapsed().as_micros() as u64;
    b.open();
    assert_eq!(waiting.response().map(|r| r.text()), Ok("/a".to_owned()));
    assert!(wait_us(1) >= waited_us, "{} of {waited_us} us", wait_us(1));
    assert_eq!(wait_us(0), 0, "the other has not served it");
    a.open();
    assert!(held.iter_mut().all(|client| client.response().is_ok()));
}

fn a_client_that_stalls_in_its_upload_holds_no_permit(mode: Upstream) {
    let backend = HttpBackend::start(|request| match request.head.method() {
        "POST" => Answer::ok("uploaded"),
        _ => Answer::ok(request.head.target()),
    });
    let proxy = limited(mode, &[backend.address()], 1);
    let mut slow = proxy.connect();
    slow.send(request("POST", "/", "Content-Length: 6\r\n")).send("abc");
    assert!(backend.wait(|requests| requests.len() == 1));
    assert_eq!(proxy.ask(get("/a")).text(), "/a");
    assert_eq!(slow.send("def").response().map(|r| r.text()), Ok("uploaded".to_owned()));
    assert!(backend.wait(|requests| requests.iter().any(|r| r.body == b"abcdef")));
    proxy.assert_nothing_in_flight();
    assert_eq!(proxy.backends[0].live.permits_held(), 0);
}

#[test]
fn a_retry_waits_for_another_backend_before_those_that_came_later() {
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
fn without_a_limit_no_request_waits() {
    let gate = Gate::new();
    let backend = holding(&gate);
    let proxy = Plan::new(Upstream::Exclusive, &[backend.address()]).start();
    let mut clients: Vec<_> = (0..50).map(|_| hold(&proxy, &backend)).collect();
    assert_eq!(proxy.backends[0].live.in_flight(), 50);
    gate.open();
    for client in &mut clients {
        assert_eq!(client.response().map(|r| r.status()), Ok(200));
    }
    assert_eq!(proxy.queue.stats.sum(|shard| shard.waited.get()), 0);
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

#[test]
fn the_access_log_has_the_time_in_the_queue() {
    let gate = Gate::new();
    let backend = holding(&gate);
    let log = Log::default();
    let plan = Plan::new(Upstream::Exclusive, &[backend.address()]).access_log(log.clone());
    let mut plan = plan.front(|front| front.access_log = 1.0);
    plan.access_log_format = LineFormat::JSON;
    let proxy = started(plan.pool(|pool| pool.queue.wait = PATIENCE), 1);
    let mut held = hold(&proxy, &backend);
    let mut waiting = wait_for(&proxy, proxy.address, "/a", 1);
    gate.open();
    assert_eq!(held.response().map(|r| r.status()), Ok(200));
    assert_eq!(waiting.response().map(|r| r.status()), Ok(200));
    let queued = |path: &str| {
        let lines = log.0.lock().expect("no writer panics").clone();
        let lines = String::from_utf8(lines).expect("it is text");
        let mut lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect(line));
        lines.find(|line| line["path"] == path).map(|line| line["queue_seconds"].clone())
    };
    assert!(eventually(|| queued("/a").is_some() && queued("/held").is_some()));
    assert_eq!(queued("/held"), Some(Value::Null));
    assert!(queued("/a").is_some_and(|seconds| seconds.as_f64() > Some(0.0)));
}

#[test]
fn a_peers_check_of_this_node_waits_behind_no_request() {
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

#[test]
fn retries_end_where_their_budget_is_used_up() {
    let backends = [0, 1].map(|_| HttpBackend::always(Answer::close()));
    let addresses = backends.each_ref().map(HttpBackend::address);
    let proxy = Plan::new(Upstream::Exclusive, &addresses).start();
    let since = Instant::now();
    let mut statuses = Vec::new();
    // The budget allows 10 retries a second, for 10 s. A machine so slow that the budget refills
    // for all requests makes 10,000 attempts.
    while statuses.last() != Some(&503) && statuses.len() < 10_000 {
        statuses.push(proxy.ask(get("/")).status());
    }
    let (last, before) = statuses.split_last().expect("there was one");
    assert_eq!(*last, 503);
    assert!(before.len() >= 100 && before.iter().all(|status| *status == 502), "{before:?}");
    let retries = proxy.stats.sum(|stats| stats.retries.get()) as f64;
    let most = 100.0 + 10.0 * since.elapsed().as_secs_f64() + 0.1 * 2.0 * statuses.len() as f64;
    assert!(retries <= most + 1.0, "{retries} of {most}");
    assert!(eventually(|| proxy.drops(Reason::RetryBudget) == 1));
}
