//! Threads lend each other sessions to small backends.

mod common;
mod common_tls;
mod common_tls_backend;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use common::{Plan, Proxy, get, request};
use common_tls::Site;
use common_tls_backend::{behind_tls, options, to_backends};
use equipoise_session::config::{Concurrency, Upstream};
use equipoise_session::stats::BackendStats;
use equipoise_testkit::{Answer, Client, HttpBackend, PATIENCE, eventually};
use equipoise_tls::TlsOptions;

const THREADS: usize = 4;

/// A backend that serves as many connections as it has workers, each to its end.
struct Workers {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
}

impl Workers {
    fn start(workers: usize) -> Workers {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let (accepted, open) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let listener = Arc::new(listener);
        for _ in 0..workers {
            let (listener, accepted, open) =
                (Arc::clone(&listener), Arc::clone(&accepted), Arc::clone(&open));
            std::thread::spawn(move || {
                while let Ok((mut stream, _)) = listener.accept() {
                    accepted.fetch_add(1, SeqCst);
                    open.fetch_add(1, SeqCst);
                    let (mut read, mut buffer) = (Vec::new(), [0; 4096]);
                    while let Ok(count @ 1..) = stream.read(&mut buffer) {
                        read.extend_from_slice(&buffer[..count]);
                        if read.ends_with(b"\r\n\r\n") {
                            read.clear();
                            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                            if stream.write_all(answer).is_err() {
                                break;
                            }
                        }
                    }
                    open.fetch_sub(1, SeqCst);
                }
            });
        }
        Workers { address, accepted, open }
    }
}

fn before(backend: SocketAddr, limit: u32) -> Proxy {
    let plan = Plan::new(Upstream::Exclusive, &[backend]).threads(THREADS);
    let proxy = plan.pool(|pool| pool.queue.wait = PATIENCE).start();
    proxy.backends[0].live.set_limit(NonZeroU32::new(limit));
    proxy
}

/// Each of so many clients makes requests, one after the other, on a connection of its own.
fn load(proxy: &Proxy, clients: usize, requests: usize) {
    let mut clients: Vec<Client> = (0..clients).map(|_| proxy.connect()).collect();
    std::thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(move || {
                for _ in 0..requests {
                    assert_eq!(client.ask(get("/")).expect("an answer").status(), 200);
                }
            });
        }
    });
}

#[test]
fn threads_open_no_more_sessions_to_a_small_backend_than_its_limit() {
    let backend = Workers::start(2);
    let proxy = before(backend.address, 2);
    load(&proxy, 16, 50);
    // Each further session would have waited for a worker for ever.
    let accepted = backend.accepted.load(SeqCst);
    assert!(accepted <= 4, "{accepted} connections for {} threads", THREADS);
    let sum = |count: fn(&BackendStats) -> u64| proxy.backends[0].live.stats.sum(count);
    assert_eq!(sum(|stats| stats.requests.get()), 800);
    assert_eq!(sum(|stats| stats.sessions_open.get()), backend.open.load(SeqCst) as u64);
    assert!(sum(|stats| stats.sessions_reused.get()) >= 790);
    proxy.assert_nothing_in_flight();
    proxy.assert_drops(&[]);
}

#[test]
fn threads_open_no_more_sessions_than_a_limit_that_is_learnt() {
    let backend = HttpBackend::named("small");
    let plan = Plan::new(Upstream::Exclusive, &[backend.address()]).threads(THREADS);
    let proxy = plan.pool(|pool| pool.queue.wait = PATIENCE).start();
    let live = &proxy.backends[0].live;
    live.set_concurrency(Concurrency::Learnt, PATIENCE);
    // Each round's clients fall on other threads. At most eight requests are in flight, and the
    // last ones of a round may not have left their session when the next one begins.
    for _ in 0..40 {
        load(&proxy, 8, 2);
        proxy.assert_nothing_in_flight();
    }
    let open = live.stats.sum(|stats| stats.sessions_open.get());
    assert!(open <= 10, "{open} sessions for 8 clients");
    proxy.assert_drops(&[]);
}

#[test]
fn threads_share_a_small_limit_between_the_sessions_that_requests_share() {
    let backend = HttpBackend::named("small");
    let plan = Plan::new(Upstream::Multiplexed, &[backend.address()]).threads(THREADS);
    let plan = plan.pool(|pool| {
        pool.multiplex_sessions = 4;
        pool.multiplex_slow = PATIENCE;
        pool.queue.wait = PATIENCE;
    });
    let proxy = plan.start();
    let live = &proxy.backends[0].live;
    live.set_limit(NonZeroU32::new(8));
    // Two sessions of each thread; each thread would open four.
    load(&proxy, 64, 5);
    let sum = |count: fn(&BackendStats) -> u64| live.stats.sum(count);
    let opened = sum(|stats| stats.sessions_opened.get());
    // On a busy machine a response may be late, and gets its session for itself.
    let alone = sum(|stats| stats.multiplex_handed_over.get() + stats.multiplex_alone.get());
    assert!(opened <= 8 + alone, "{opened} sessions, {alone} for single requests");
    proxy.assert_nothing_in_flight();
    proxy.assert_drops(&[]);
}

#[test]
fn sessions_with_tls_are_lent_too() {
    let site = Site::new();
    let backend = HttpBackend::named("small");
    let tls = behind_tls(&site, TlsOptions::default(), backend.address());
    let plan = Plan::new(Upstream::Exclusive, &[tls.address]).threads(THREADS).pool(|pool| {
        pool.tls = to_backends(options(site.trust()));
        pool.queue.wait = PATIENCE;
    });
    let proxy = plan.start();
    let live = &proxy.backends[0].live;
    live.set_limit(NonZeroU32::new(4));
    load(&proxy, 16, 50);
    let sum = |count: fn(&BackendStats) -> u64| live.stats.sum(count);
    assert_eq!(sum(|stats| stats.requests.get()), 800);
    assert!(sum(|stats| stats.sessions_open.get()) <= 4);
    let handshakes = sum(|stats| stats.tls_handshakes.get());
    assert!(handshakes <= 8, "{handshakes} handshakes");
    assert_eq!(sum(|stats| stats.sessions_reused.get()), 800 - handshakes);
    proxy.assert_nothing_in_flight();
    proxy.assert_drops(&[]);
}

#[test]
fn tunnels_do_not_keep_sessions_from_being_used_again() {
    let backend = HttpBackend::start(|request| match request.head.target() {
        "/tunnel" => Answer::upgrade("websocket"),
        _ => Answer::ok("ok"),
    });
    let proxy = before(backend.address(), 4);
    let open_tunnel = |_| {
        let mut client = proxy.connect();
        client.send(request("GET", "/tunnel", "Connection: upgrade\r\nUpgrade: websocket\r\n"));
        assert_eq!(client.response().map(|response| response.status()), Ok(101));
        client
    };
    let _tunnels: Vec<_> = (0..8).map(open_tunnel).collect();
    load(&proxy, 4, 50);
    let opened = proxy.backends[0].live.stats.sum(|stats| stats.sessions_opened.get());
    assert!(opened <= 8 + 4, "{opened} sessions");
    proxy.assert_drops(&[]);
}

#[test]
fn idle_sessions_of_a_removed_backend_are_closed() {
    let backend = Workers::start(2);
    let mut proxy = before(backend.address, 2);
    load(&proxy, 8, 5);
    assert!(backend.open.load(SeqCst) > 0);
    proxy.backends.clear();
    proxy.publish().expect("it can be published");
    assert!(eventually(|| backend.open.load(SeqCst) == 0));
}
