//! Requests of many clients on few pooled sessions: no client gets another's answer or waits for a
//! slow answer of another, and the end of a session counts only against its backend.

mod common;
#[path = "multiplexed/faults.rs"]
mod faults;
#[path = "multiplexed/held.rs"]
mod held;
#[path = "multiplexed/slow.rs"]
mod slow;

use std::net::SocketAddr;
use std::thread;

use common::{Plan, Proxy, get, post, request};
use equipoise_session::config::Upstream;
use equipoise_testkit::{Answer, Client, HttpBackend, PATIENCE, Pattern, eventually};
use held::Held;

fn multiplexed(backend: SocketAddr) -> Plan {
    Plan::new(Upstream::Multiplexed, &[backend])
}

fn naming() -> HttpBackend {
    HttpBackend::start(|r| Answer::ok(r.head.target()))
}

/// Runs `clients` clients with `requests` requests each, and checks that each gets its own answers.
fn everybody_gets_their_own(address: SocketAddr, clients: usize, requests: usize) {
    thread::scope(|scope| {
        for c in 0..clients {
            scope.spawn(move || {
                let mut client = Client::connect(address);
                for n in 0..requests {
                    let target = format!("/{c}/{n}");
                    let response = client.ask(get(&target)).expect("an answer");
                    assert_eq!((response.status(), response.text()), (200, target));
                }
            });
        }
    });
}

#[test]
fn many_clients_share_few_sessions_and_each_gets_its_own_answers() {
    let backend = naming();
    let proxy = multiplexed(backend.address()).pool(|p| {
        p.multiplex_sessions = 2;
        // No backend may count as slow here, even on a busy machine.
        p.multiplex_slow = PATIENCE;
    });
    let proxy = proxy.start();
    everybody_gets_their_own(proxy.address, 32, 50);
    // A thread of the backend that does not run for a while makes a response late.
    let repeated = proxy.backends[0].live.stats.sum(|s| s.multiplex_repeated.get()) as usize;
    assert!((1600..=1600 + repeated).contains(&backend.completed()), "{}", backend.completed());
    proxy.assert_drops(&[]);
    proxy.assert_nothing_in_flight();
    let late = proxy.backends[0].live.stats.sum(|s| s.multiplex_handed_over.get());
    let most = 2 + late + repeated as u64;
    assert!(backend.counts().open_max <= most, "{:?}, {most}", backend.counts());
}

#[test]
fn responses_of_every_framing_reach_their_own_requests() {
    let backend = HttpBackend::start(|r| {
        let target = r.head.target();
        let number: u32 = target[1..].parse().expect("a number");
        match number % 6 {
            0 => Answer::ok(target),
            1 => Answer::chunked(&[target, "!"], &["X-Sum: 1"][..(number % 2) as usize]),
            2 => Answer::bare(204).header_lines(&format!("X-Target: {target}\r\n")),
            3 => Answer::bare(304).header_lines(&format!("X-Target: {target}\r\n")),
            4 => Answer::ok(target).after_interim("HTTP/1.1 103 Early Hints\r\n\r\n"),
            _ => Answer::pattern(u64::from(number), 100_000),
        }
    });
    let proxy = multiplexed(backend.address()).pool(|p| p.multiplex_sessions = 1).start();
    let address = proxy.address;
    thread::scope(|scope| {
        for c in 0..16_u32 {
            scope.spawn(move || {
                let mut client = Client::connect(address);
                for number in (0..30).map(|n| c * 31 + n) {
                    check_shape(&mut client, number);
                }
            });
        }
    });
    proxy.assert_drops(&[]);
}

fn check_shape(client: &mut Client, number: u32) {
    let target = format!("/{number}");
    let method = if number.is_multiple_of(5) { "HEAD" } else { "GET" };
    let mut response = client.ask(request(method, &target, "")).expect("an answer");
    if response.status() == 103 {
        response = client.response_to(method).expect("the final answer");
    }
    let expected = match number % 6 {
        _ if method == "HEAD" => Vec::new(),
        0 | 4 => target.clone().into_bytes(),
        1 => format!("{target}!").into_bytes(),
        2 | 3 => Vec::new(),
        _ => Pattern::bytes(u64::from(number), 100_000),
    };
    assert!(response.body == expected, "{method} {target}: {:?}", response.head);
    if let 2 | 3 = number % 6 {
        assert_eq!(response.header("x-target"), Some(&target[..]));
    }
}

/// Faulty framing by the only backend.
fn multiplex_faults(proxy: &Proxy) -> u64 {
    proxy.backends[0].live.stats.sum(|s| s.multiplex_faults.get())
}

#[test]
fn a_client_reset_does_not_affect_other_clients() {
    let backend = HttpBackend::start(|r| match r.head.target() {
        "/gone" => Answer::pattern_chunked(1, 300_000, 1000),
        target => Answer::ok(target),
    });
    let proxy = multiplexed(backend.address()).pool(|p| p.multiplex_sessions = 1).start();
    let address = proxy.address;
    thread::scope(|scope| {
        scope.spawn(move || everybody_gets_their_own(address, 4, 50));
        scope.spawn(move || {
            for _ in 0..50 {
                let mut client = Client::connect(address);
                client.send(get("/gone"));
                client.reset();
            }
        });
    });
    proxy.assert_nothing_in_flight();
    assert!(
        proxy.all_drops().iter().all(|(name, _)| *name == "client_gone"),
        "{:?}",
        proxy.all_drops()
    );
}

#[test]
fn a_request_that_is_not_idempotent_never_shares_a_session() {
    let backend = Held::start();
    let proxy = multiplexed(backend.address()).pool(|p| {
        p.multiplex_sessions = 1;
        // No response may count as slow here, even on a busy machine.
        p.multiplex_slow = 2 * PATIENCE;
    });
    let proxy = proxy.start();
    let others = [
        post("/", "abc"),
        request("POST", "/", "Content-Length: 0\r\n"),
        request("PATCH", "/", ""),
        request("LOCK", "/", ""),
    ];
    let mut clients: Vec<_> = (0..12).map(|_| proxy.connect()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client.send(if n % 3 == 0 { others[n / 3].clone() } else { get("/") });
    }
    let held = || backend.held.lock().expect("no holder panics").concat();
    assert!(eventually(|| held().matches("HTTP/1.1").count() == 12), "{}", held());
    let sessions = backend.held.lock().expect("no holder panics").clone();
    let mut counts: Vec<_> = sessions.iter().map(|it| it.matches("HTTP/1.1").count()).collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 1, 1, 1, 8], "{sessions:#?}");
    let gets = |session: &&String| session.matches("GET / HTTP/1.1").count() == 8;
    assert_eq!(sessions.iter().filter(gets).count(), 1, "{sessions:#?}");
    backend.gate.open();
    for client in &mut clients {
        assert_eq!(client.response().map(|r| r.status()), Ok(200));
    }
}

#[test]
fn a_session_carries_no_more_requests_than_its_depth() {
    let backend = Held::start();
    let proxy = multiplexed(backend.address()).pool(|p| {
        p.multiplex_sessions = 2;
        p.multiplex_depth = 3;
    });
    let proxy: Proxy = proxy.start();
    let mut clients: Vec<_> = (0..20).map(|_| proxy.connect()).collect();
    for client in &mut clients {
        client.send(get("/"));
    }
    let depths = || -> Vec<usize> {
        let held = backend.held.lock().expect("no holder panics");
        held.iter().map(|session| session.matches("HTTP/1.1").count()).collect()
    };
    // Two sessions of depth three are full: other requests go elsewhere or wait.
    assert!(eventually(|| depths().iter().sum::<usize>() >= 6), "{:?}", depths());
    backend.gate.open();
    for client in &mut clients {
        assert_eq!(client.response().map(|r| r.status()), Ok(200));
    }
    assert!(backend.deepest() <= 3, "{}", backend.deepest());
}
