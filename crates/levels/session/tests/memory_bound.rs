//! Beyond the bound on the process's memory, no work is accepted, and slow clients lose their
//! responses. The memory in use is a number that the tests set.

mod common;
mod common_http2;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use common::{Plan, Proxy, get};
use common_http2::{Connection, GET, Raw, SETTINGS, WINDOW_UPDATE, read_body, request, run};
use equipoise_session::config::Upstream;
use equipoise_session::{MemoryBound, Reason};
use equipoise_testkit::{Answer, HttpBackend, Pattern, eventually};

/// The bound, and a number beyond it.
const MAX: usize = 1000;
const TOO_MUCH: usize = MAX + 1;

/// More than the buffers between a backend and a client hold.
const LARGE_BYTES: u64 = 256 << 20;

/// The size of the response to a client that takes it.
const TAKEN_BYTES: u64 = 512 << 20;

/// A response that `h2` holds whole, and so many that sockets do not hold all of them.
const SMALL_BYTES: u64 = 60 << 10;
const SMALL: u32 = 120;

fn plan(upstream: Upstream, backend: &HttpBackend, used_bytes: fn() -> usize) -> Plan {
    let mut plan = Plan::new(upstream, &[backend.address()]).front(|front| front.http2 = true);
    plan.memory = MemoryBound { max_bytes: MAX, used_bytes };
    plan
}

fn backend() -> HttpBackend {
    HttpBackend::start(|request| match request.head.target() {
        "/large" => Answer::pattern(1, LARGE_BYTES),
        "/taken" => Answer::pattern(2, TAKEN_BYTES),
        "/small" => Answer::pattern(3, SMALL_BYTES),
        _ => Answer::ok("ok"),
    })
}

fn pauses(proxy: &Proxy) -> u64 {
    proxy.stats.sum(|stats| stats.accept_pauses.get())
}

#[test]
fn requests_are_refused_and_connections_wait_while_memory_is_short() {
    static USED: AtomicUsize = AtomicUsize::new(MAX);
    let backend = backend();
    let proxy = plan(Upstream::Exclusive, &backend, || USED.load(Relaxed)).start();
    let mut client = proxy.connect();
    assert_eq!(client.ask(get("/")).unwrap().status(), 200, "the bound itself is not beyond it");

    USED.store(TOO_MUCH, Relaxed);
    assert!(eventually(|| client.ask(get("/")).unwrap().status() == 503));
    assert!(proxy.drops(Reason::MemoryShort) >= 1);
    let served = backend.completed();
    let mut waiting = proxy.connect();
    waiting.send(get("/"));
    let before = pauses(&proxy);
    assert!(eventually(|| pauses(&proxy) > before), "it is not accepted");

    USED.store(0, Relaxed);
    assert_eq!(waiting.response().unwrap().status(), 200);
    assert!(eventually(|| client.ask(get("/")).unwrap().status() == 200));
    assert!(backend.completed() > served);
    proxy.assert_nothing_in_flight();
}

fn slow_clients_make_way(plan: Plan, used: &AtomicUsize) {
    let proxy = plan.start();
    let mut stalled = proxy.connect();
    stalled.send(get("/large")).head().expect("it has begun");
    // One byte of each 10 ms.
    let mut trickling = proxy.connect();
    trickling.send(get("/large")).head().expect("it has begun");
    let is_over = Arc::new(AtomicBool::new(false));
    let trickle = thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            while !is_over.load(Relaxed) && trickling.read_exactly(1).is_ok() {
                thread::sleep(Duration::from_millis(10));
            }
        }
    });
    let mut quick = proxy.connect();
    quick.send(get("/taken")).head().expect("it has begun");
    let taking = thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            let (mut pattern, mut taken) = (Pattern::new(2), 0);
            while taken < TAKEN_BYTES {
                let part = quick.read_exactly(16 << 10).expect("the response goes on");
                taken += part.len() as u64;
                pattern.check(&part).expect("no byte is lost");
                // 16 MB/s at the most, until the others are cut.
                if !is_over.load(Relaxed) {
                    thread::sleep(Duration::from_millis(1));
                }
            }
        }
    });
    used.store(TOO_MUCH, Relaxed);
    let are_cut = eventually(|| proxy.drops(Reason::ClientStalled) == 2);
    is_over.store(true, Relaxed);
    trickle.join().expect("it ends");
    taking.join().expect("a client that takes its response has it whole");
    assert!(are_cut, "{}", proxy.drops(Reason::ClientStalled));
    proxy.assert_nothing_in_flight();
}

#[test]
fn memory_shortage_cuts_slow_clients_on_exclusive_sessions() {
    static USED: AtomicUsize = AtomicUsize::new(0);
    let backend = backend();
    slow_clients_make_way(plan(Upstream::Exclusive, &backend, || USED.load(Relaxed)), &USED);
}

#[test]
fn memory_shortage_cuts_slow_clients_on_multiplexed_sessions() {
    static USED: AtomicUsize = AtomicUsize::new(0);
    let backend = backend();
    slow_clients_make_way(plan(Upstream::Multiplexed, &backend, || USED.load(Relaxed)), &USED);
}

#[test]
fn memory_shortage_resets_slow_streams_but_keeps_their_connection() {
    static USED: AtomicUsize = AtomicUsize::new(0);
    let backend = backend();
    let proxy = plan(Upstream::Exclusive, &backend, || USED.load(Relaxed)).start();
    run(async {
        let mut how = h2::client::Builder::new();
        how.initial_connection_window_size(16 << 20);
        let connection = Connection::with(proxy.address, &mut how).await;
        let mut stalled = Vec::new();
        for _ in 0..20 {
            let (response, stream) = connection.begin(request("GET", "/large"), true).await;
            stalled.push((response.await.expect("it has begun").into_body(), stream));
        }
        USED.store(TOO_MUCH, Relaxed);
        while proxy.drops(Reason::ClientStalled) < 20 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let refused = connection.get("/").await.expect("an answer");
        assert_eq!(refused.status, 503);
        USED.store(0, Relaxed);
        for (body, _) in &mut stalled {
            let cut = read_body(body).await.expect_err("it is cut");
            assert_eq!(cut.reason(), Some(h2::Reason::INTERNAL_ERROR));
        }
        while connection.get("/").await.expect("an answer").status != 200 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    proxy.assert_nothing_in_flight();
}

#[test]
fn memory_shortage_closes_a_connection_with_unread_responses() {
    static USED: AtomicUsize = AtomicUsize::new(0);
    let backend = backend();
    let proxy = plan(Upstream::Exclusive, &backend, || USED.load(Relaxed)).start();
    let mut client = Raw::to(proxy.address);
    let window = i32::MAX as u32;
    client.frame(SETTINGS, 0, 0, &[&[0, 4][..], &window.to_be_bytes()].concat());
    client.frame(WINDOW_UPDATE, 0, 0, &(window - 65_535).to_be_bytes());
    for number in 0..SMALL {
        client.ask(2 * number + 1, &[GET[0], GET[1], GET[2], (":path", "/small")]);
        assert!(eventually(|| proxy.stats.sum(|stats| stats.requests.get()) > number.into()));
        assert!(eventually(|| proxy.stats.sum(|stats| stats.requests_in_flight.get()) == 0));
    }
    USED.store(TOO_MUCH, Relaxed);
    assert!(eventually(|| proxy.stats.sum(|stats| stats.connections_open.get()) == 0));
}
