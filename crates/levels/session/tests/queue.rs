//! Backends with a concurrency limit, and the queue of requests that find no permit free.

#[path = "queue/changes.rs"]
mod changes;
mod common;
mod common_dispatch;
#[path = "queue/figures.rs"]
mod figures;
#[path = "queue/order.rs"]
mod order;

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use common::{Plan, Proxy, both_upstreams, get, post, request};
use equipoise_session::Reason;
use equipoise_session::config::Upstream;
use equipoise_testkit::{Answer, Client, Gate, HttpBackend, PATIENCE, Step, eventually};

both_upstreams! {
    no_backend_ever_has_more_than_its_limit,
    a_failed_request_frees_its_permit_for_the_next,
    a_tunnel_holds_no_permit,
    a_client_that_does_not_read_holds_no_permit,
    a_client_that_stalls_in_its_upload_holds_no_permit,
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
