//! Requests of many clients on few pooled sessions: no client gets another's answer or waits for a
//! slow answer of another, and the end of a session counts only against its backend.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use common::{Plan, Proxy, get, post, request};
use equipoise_session::Reason;
use equipoise_session::config::Upstream;
use equipoise_session::stats::{BackendStats, Counter};
use equipoise_testkit::{
    Answer, Client, Gate, HttpBackend, PATIENCE, Pattern, Received, ReservedPort, Step, eventually,
    free_port,
};

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
fn answers_of_every_shape_stay_with_their_requests() {
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

#[test]
fn nobody_waits_behind_a_slow_answer_for_ever() {
    let gate = Gate::new();
    let slow = Answer::ok("slow").first(Step::Wait(gate.clone()));
    let backend = HttpBackend::start(move |r| match r.head.target() {
        "/slow" => slow.clone(),
        target => Answer::ok(target),
    });
    let proxy = multiplexed(backend.address()).pool(|p| p.multiplex_sessions = 1).start();
    everybody_gets_their_own(proxy.address, 4, 10);
    let mut slow: Vec<_> = (0..3).map(|_| proxy.connect()).collect();
    for client in &mut slow {
        client.send(get("/slow"));
    }
    assert!(backend.wait(|r| r.iter().any(|r| r.head.target() == "/slow")));
    // The gate is closed, so these can only be answered before the slow ones.
    everybody_gets_their_own(proxy.address, 8, 10);
    gate.open();
    for client in &mut slow {
        assert_eq!(client.response().map(|r| r.text()), Ok("slow".to_owned()));
    }
    proxy.assert_drops(&[]);
}

#[test]
fn a_slow_path_gets_sessions_of_its_own_and_the_others_go_on_sharing() {
    let gate = Gate::new();
    let slow = Answer::ok("slow").first(Step::Wait(gate.clone()));
    let backend = HttpBackend::start(move |r| match r.head.target().split('?').next() {
        Some("/slow") => slow.clone(),
        _ => Answer::ok(r.head.target()),
    });
    let proxy = multiplexed(backend.address()).pool(|p| {
        p.multiplex_sessions = 1;
        // The others may not count as slow, even on a busy machine.
        p.multiplex_slow = Duration::from_secs(2);
    });
    let proxy = proxy.start();
    let count =
        |of: fn(&BackendStats) -> &Counter| proxy.backends[0].live.stats.sum(|s| of(s).get());
    let mut first = proxy.connect();
    first.send(get("/slow?1"));
    assert!(eventually(|| count(|s| &s.multiplex_handed_over) == 1));
    everybody_gets_their_own(proxy.address, 4, 10);
    assert_eq!(count(|s| &s.multiplex_alone), 0, "the backend is shared as before");
    let mut others: Vec<_> = (0..10).map(|_| proxy.connect()).collect();
    for (number, client) in others.iter_mut().enumerate() {
        client.send(get(&format!("/slow?{number}")));
    }
    assert!(eventually(|| count(|s| &s.multiplex_alone) == 10));
    everybody_gets_their_own(proxy.address, 4, 10);
    assert_eq!(count(|s| &s.multiplex_handed_over), 1);
    gate.open();
    for client in others.iter_mut().chain([&mut first]) {
        assert_eq!(client.response().map(|r| r.text()), Ok("slow".to_owned()));
    }
    assert_eq!(count(|s| &s.multiplex_shared), 81);
    proxy.assert_drops(&[]);
}

/// A backend with one slow response in so many.
fn slow_in(every: u64, slow: Duration) -> HttpBackend {
    HttpBackend::start(move |r| match r.number as u64 % every {
        1 => Answer::ok(r.head.target()).first(Step::Pause(slow)),
        _ => Answer::ok(r.head.target()),
    })
}

#[test]
fn rare_slow_answers_anywhere_leave_the_sharing_and_the_sessions_as_they_are() {
    let (clients, requests, every) = (24, 250, 100);
    let backend = slow_in(every, Duration::from_millis(50));
    let proxy = multiplexed(backend.address()).start();
    everybody_gets_their_own(proxy.address, clients, requests);
    let count =
        |of: fn(&BackendStats) -> &Counter| proxy.backends[0].live.stats.sum(|s| of(s).get());
    let all = (clients * requests) as u64;
    // Sessions with a late response are used again, so that a client has at most one of its own.
    let accepted = backend.counts().accepted;
    assert!(accepted <= clients as u64 + 4, "{accepted} sessions for {} slow", all / every);
    assert_eq!(count(|s| &s.multiplex_faults), 0);
    let (shared, repeated) = (count(|s| &s.multiplex_shared), count(|s| &s.multiplex_repeated));
    assert!(shared > all / 2 && repeated < all / 4, "{shared} shared, {repeated} repeated");
    proxy.assert_drops(&[]);
    proxy.assert_nothing_in_flight();
}

#[test]
fn sharing_falls_to_exclusive_sessions_if_many_answers_are_slow() {
    let (clients, requests) = (24, 100);
    let backend = slow_in(2, Duration::from_millis(5));
    let proxy = multiplexed(backend.address()).start();
    everybody_gets_their_own(proxy.address, clients, requests);
    let count =
        |of: fn(&BackendStats) -> &Counter| proxy.backends[0].live.stats.sum(|s| of(s).get());
    let (all, repeated) = ((clients * requests) as u64, count(|s| &s.multiplex_repeated));
    assert!(repeated < all / 2, "{repeated} repeated");
    let accepted = backend.counts().accepted;
    assert!(accepted <= clients as u64 + 4, "{accepted} sessions");
    proxy.assert_drops(&[]);
}

#[test]
fn a_session_is_used_again_once_a_late_answer_and_those_behind_it_have_come() {
    let (gate, at_gate) = (Gate::new(), Gate::new());
    let reached = Answer::default().then(Step::Open(at_gate.clone()));
    let late = reached.then(Step::Wait(gate.clone()));
    let late = late.then(Step::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate".to_vec()));
    let backend = HttpBackend::start(move |r| match r.head.target() {
        "/late" => late.clone(),
        target => Answer::ok(target),
    });
    let proxy = multiplexed(backend.address()).pool(|p| p.multiplex_sessions = 1).start();
    let (mut front, mut behind) = (proxy.connect(), proxy.connect());
    front.send(get("/late"));
    assert!(at_gate.wait(), "it is with the backend");
    // Answered on a second session, while the first has it behind the late one.
    assert_eq!(behind.ask(get("/behind")).map(|r| r.text()), Ok("/behind".to_owned()));
    gate.open();
    assert_eq!(front.response().map(|r| r.text()), Ok("late".to_owned()));
    let is_behind = |r: &&Received| r.head.target() == "/behind";
    assert!(backend.wait(|r| r.iter().filter(is_behind).count() == 2), "it runs twice");
    let idle = || proxy.backends[0].live.stats.sum(|s| s.sessions_open.get());
    assert_eq!(idle(), 2);
    for _ in 0..20 {
        // On a session of its own: the first one, when it is idle.
        assert_eq!(front.ask(post("/own", "x")).map(|r| r.text()), Ok("/own".to_owned()));
    }
    assert!(backend.counts().accepted <= 3, "{:?}", backend.counts());
    assert_eq!(multiplex_faults(&proxy), 0);
    proxy.assert_drops(&[]);
}

#[test]
fn answers_behind_one_that_was_handed_over_are_no_fault() {
    let (first, second, at_gate) = (Gate::new(), Gate::new(), Gate::new());
    let reached = Answer::default().then(Step::Open(at_gate.clone()));
    let begun = reached
        .then(Step::Wait(first.clone()))
        .then(Step::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfro".to_vec()));
    let rest = b"ntHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nbehind".to_vec();
    let front = begun.then(Step::Wait(second.clone())).then(Step::Send(rest));
    let backend = HttpBackend::start(move |r| match (r.head.target(), r.connection) {
        ("/front", _) => front.clone(),
        (_, 0) => Answer::default(),
        (target, _) => Answer::ok(target),
    });
    let proxy = multiplexed(backend.address()).pool(|p| {
        p.multiplex_sessions = 1;
        p.multiplex_slow = Duration::from_millis(300);
    });
    let proxy = proxy.start();
    let (mut front, mut behind) = (proxy.connect(), proxy.connect());
    front.send(get("/front"));
    assert!(at_gate.wait(), "it is with the backend");
    behind.send(get("/behind"));
    assert!(eventually(|| proxy.stats.sum(|s| s.requests.get()) == 2));
    first.open();
    assert_eq!(behind.response().map(|r| r.text()), Ok("/behind".to_owned()));
    second.open();
    assert_eq!(front.response().map(|r| r.text()), Ok("front".to_owned()));
    assert_eq!(proxy.ask(get("/next")).text(), "/next");
    assert_eq!(multiplex_faults(&proxy), 0);
    proxy.assert_drops(&[]);
}

#[test]
fn nobody_waits_behind_a_client_that_does_not_read() {
    let backend = HttpBackend::start(|r| match r.head.target() {
        "/large" => Answer::pattern(1, 100 << 20),
        target => Answer::ok(target),
    });
    let proxy = multiplexed(backend.address()).pool(|p| p.multiplex_sessions = 1).start();
    everybody_gets_their_own(proxy.address, 4, 10);
    let mut stalled = proxy.connect();
    stalled.send(get("/large")).head().expect("it has begun");
    everybody_gets_their_own(proxy.address, 8, 10);
    drop(stalled);
    proxy.assert_drops(&[(Reason::ClientGone, 1)]);
}

#[test]
fn a_session_that_dies_has_the_requests_behind_answered_elsewhere() {
    let backend = HttpBackend::start(|r| match r.on_connection {
        0..5 => Answer::ok(r.head.target()),
        _ if r.connection % 2 == 0 => Answer::close(),
        _ => Answer::reset(),
    });
    let proxy = multiplexed(backend.address()).pool(|p| {
        p.multiplex_sessions = 2;
        // A request may meet several ended sessions in a row; each costs an attempt.
        p.retries = 20;
    });
    let proxy = proxy.start();
    everybody_gets_their_own(proxy.address, 8, 25);
    proxy.assert_drops(&[]);
    assert!(proxy.stats.sum(|s| s.retries.get()) > 0);
    proxy.assert_nothing_in_flight();
}

#[test]
fn a_broken_answer_is_the_failure_of_its_own_request_only() {
    let backend = HttpBackend::start(|r| match r.head.target() {
        "/bad" => Answer::raw("HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\nx"),
        target => Answer::ok(target),
    });
    let proxy = multiplexed(backend.address()).pool(|p| {
        p.multiplex_sessions = 2;
        p.retries = 20;
    });
    let proxy = proxy.start();
    let address = proxy.address;
    thread::scope(|scope| {
        scope.spawn(move || everybody_gets_their_own(address, 6, 30));
        scope.spawn(move || {
            for _ in 0..5 {
                let response = Client::exchange(address, get("/bad"));
                assert_eq!(response.map(|r| r.status()), Ok(502));
            }
        });
    });
    proxy.assert_drops(&[(Reason::UpstreamMalformed, 5)]);
}

/// Faulty framing by the only backend.
fn multiplex_faults(proxy: &Proxy) -> u64 {
    proxy.backends[0].live.stats.sum(|s| s.multiplex_faults.get())
}

#[test]
fn the_body_of_an_answer_to_head_is_no_other_clients_answer() {
    let other = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL";
    let with_body = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{other}", other.len());
    let backend = HttpBackend::start(move |r| match r.head.method() {
        "HEAD" => Answer::raw(&with_body),
        _ => Answer::ok(r.head.target()),
    });
    let proxy = multiplexed(backend.address()).pool(|p| p.multiplex_sessions = 1).start();
    let address = proxy.address;
    thread::scope(|scope| {
        scope.spawn(move || everybody_gets_their_own(address, 8, 40));
        for _ in 0..4 {
            scope.spawn(move || {
                for _ in 0..40 {
                    let head = Client::connect(address).ask(request("HEAD", "/", ""));
                    assert_eq!(head.map(|r| r.status()), Ok(200));
                }
            });
        }
    });
    proxy.assert_drops(&[]);
    assert!(multiplex_faults(&proxy) > 0 && proxy.backends[0].live.is_multiplexing_lost());
}

#[test]
fn a_request_behind_an_answer_with_a_surplus_is_answered_elsewhere() {
    for surplus in ["surplus", "HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n"] {
        let (gate, at_gate) = (Gate::new(), Gate::new());
        let front = format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfront{surplus}");
        let reached =
            Answer::default().then(Step::Open(at_gate.clone())).then(Step::Wait(gate.clone()));
        let surplus = reached.then(Step::Send(front.into_bytes()));
        let backend = HttpBackend::start(move |r| match r.head.target() {
            "/front" => surplus.clone(),
            target => Answer::ok(target),
        });
        let proxy = multiplexed(backend.address()).pool(|p| {
            p.multiplex_sessions = 1;
            p.multiplex_slow = PATIENCE * 2;
        });
        let proxy = proxy.start();
        let (mut front, mut behind) = (proxy.connect(), proxy.connect());
        front.send(get("/front"));
        assert!(at_gate.wait(), "it is with the backend");
        behind.send(get("/behind"));
        assert!(eventually(|| proxy.stats.sum(|s| s.requests.get()) == 2));
        gate.open();
        assert_eq!(front.response().map(|r| r.text()), Ok("front".to_owned()));
        assert_eq!(behind.response().map(|r| r.text()), Ok("/behind".to_owned()));
        assert!(eventually(|| multiplex_faults(&proxy) == 1));
        proxy.assert_drops(&[]);
    }
}

#[test]
fn a_backend_whose_answers_cannot_be_framed_for_certain_is_multiplexed_no_more() {
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    for (name, answer, status) in [
        ("a surplus", format!("{ok}x"), 200),
        ("two answers", ok.repeat(2), 200),
        ("204 with a length", "HTTP/1.1 204 No\r\nContent-Length: 2\r\n\r\nok".into(), 204),
        ("204 in chunks", "HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\n".into(), 204),
        ("103 with a length", format!("HTTP/1.1 103 Hm\r\nContent-Length: 2\r\n\r\n{ok}"), 103),
        ("two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n".into(), 502),
        ("no HTTP", "SSH-2.0-OpenSSH_9.2p1\r\n\r\n".into(), 502),
    ] {
        let gate = Gate::new();
        let waits = Answer::ok("late").first(Step::Wait(gate.clone()));
        let backend = HttpBackend::start(move |r| match r.head.target() {
            "/bad" => Answer::raw(&answer),
            _ => waits.clone(),
        });
        let proxy = multiplexed(backend.address()).pool(|p| {
            p.multiplex_sessions = 1;
            p.multiplex_slow = PATIENCE * 2;
        });
        let proxy = proxy.start();
        assert_eq!(proxy.ask(get("/bad")).status(), status, "{name}");
        assert!(eventually(|| multiplex_faults(&proxy) == 1), "{name}");
        // On a shared session only the first would reach the backend.
        let mut clients: Vec<_> = (0..3).map(|_| proxy.connect()).collect();
        for client in &mut clients {
            client.send(get("/late"));
        }
        let is_late = |r: &&Received| r.head.target() == "/late";
        let are_all_there = backend.wait(|r| r.iter().filter(is_late).count() == 3);
        assert!(are_all_there, "{name}: their sessions are exclusive");
        gate.open();
        for client in &mut clients {
            assert_eq!(client.response().map(|r| r.text()), Ok("late".to_owned()), "{name}");
        }
    }
}

#[test]
fn a_backend_that_speaks_unasked_is_multiplexed_no_more_and_one_that_closes_is() {
    for (name, step, faults) in [
        ("a byte", Step::Send(b"x".to_vec()), 1),
        ("its end", Step::Close, 0),
        ("a reset", Step::Reset, 0),
    ] {
        let gate = Gate::new();
        let first = Answer::ok("ok").then(Step::Wait(gate.clone())).then(step);
        let backend = HttpBackend::start(move |r| match r.number {
            0 => first.clone(),
            _ => Answer::ok(r.head.target()),
        });
        let proxy = multiplexed(backend.address()).start();
        assert_eq!(proxy.ask(get("/")).text(), "ok");
        gate.open();
        assert!(eventually(|| multiplex_faults(&proxy) == faults), "{name}");
        let reused = || proxy.backends[0].live.stats.sum(|s| s.sessions_reused.get());
        let before = reused();
        everybody_gets_their_own(proxy.address, 4, 10);
        assert_eq!(multiplex_faults(&proxy), faults, "{name}");
        assert!(faults == 0 || reused() == before, "{name}: a session carried two requests");
        assert_eq!(proxy.backends[0].live.is_multiplexing_lost(), faults > 0, "{name}");
        proxy.assert_drops(&[]);
    }
}

#[test]
fn a_client_that_goes_away_takes_nobody_with_it() {
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
fn what_is_not_idempotent_is_never_put_behind_another_request() {
    let backend = Held::start();
    let proxy = multiplexed(backend.address()).pool(|p| p.multiplex_sessions = 1).start();
    let mut clients: Vec<_> = (0..12).map(|_| proxy.connect()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client.send(if n % 3 == 0 { post("/", "abc") } else { get("/") });
    }
    let held = || backend.held.lock().expect("no holder panics").concat();
    assert!(eventually(|| held().matches("HTTP/1.1").count() == 12), "{}", held());
    for session in backend.held.lock().expect("no holder panics").iter() {
        let alone = session.matches("HTTP/1.1").count() == 1;
        assert!(alone || !session.contains("POST"), "{session}");
    }
    backend.gate.open();
    for client in &mut clients {
        assert_eq!(client.response().map(|r| r.status()), Ok(200));
    }
}

#[test]
fn a_session_carries_no_more_than_its_depth() {
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

/// A backend that answers nothing until its gate opens, and shows the requests that arrived before.
/// Scripts of [`HttpBackend`] see a request only when the previous one is answered.
struct Held {
    port: ReservedPort,
    gate: Gate,
    held: Arc<Mutex<Vec<String>>>,
    deepest: Arc<Mutex<usize>>,
}

impl Held {
    fn start() -> Held {
        let held = Held {
            port: free_port(),
            gate: Gate::new(),
            held: Arc::default(),
            deepest: Arc::default(),
        };
        let listener: TcpListener = held.port.listen();
        let (gate, all, deepest) = (held.gate.clone(), held.held.clone(), held.deepest.clone());
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let (gate, all, deepest) = (gate.clone(), all.clone(), deepest.clone());
                thread::spawn(move || hold(stream, &gate, &all, &deepest));
            }
        });
        held
    }

    fn address(&self) -> SocketAddr {
        self.port.address()
    }

    fn deepest(&self) -> usize {
        *self.deepest.lock().expect("no holder panics")
    }
}

/// Collects the requests of one connection, and answers them when the gate is open.
fn hold(mut stream: TcpStream, gate: &Gate, all: &Mutex<Vec<String>>, deepest: &Mutex<usize>) {
    let place = {
        let mut all = all.lock().expect("no holder panics");
        all.push(String::new());
        all.len() - 1
    };
    let answers = Arc::new(Answers::default());
    let (writer, ours) = (stream.try_clone().expect("a descriptor is free"), answers.clone());
    let gate = gate.clone();
    thread::spawn(move || {
        gate.wait();
        ours.write(writer);
    });
    let mut buffer = [0; 4096];
    while let Ok(bytes) = stream.read(&mut buffer)
        && bytes > 0
    {
        let mut all = all.lock().expect("no holder panics");
        all[place].push_str(&String::from_utf8_lossy(&buffer[..bytes]));
        let unanswered = answers.seen(all[place].matches("HTTP/1.1").count());
        let mut deepest = deepest.lock().expect("no holder panics");
        *deepest = unanswered.max(*deepest);
    }
    answers.seen(usize::MAX);
}

/// Numbers of requests that arrived and were answered on a connection.
#[derive(Default)]
struct Answers {
    counts: Mutex<(usize, usize)>,
    changed: Condvar,
}

impl Answers {
    /// Records the number of requests that arrived; returns the number without an answer.
    fn seen(&self, seen: usize) -> usize {
        let mut counts = self.counts.lock().expect("no holder panics");
        counts.0 = seen;
        self.changed.notify_all();
        seen - counts.1
    }

    /// Answers all requests until writing fails.
    fn write(&self, mut stream: TcpStream) {
        let mut counts = self.counts.lock().expect("no holder panics");
        loop {
            counts = self
                .changed
                .wait_while(counts, |(seen, answered)| seen == answered)
                .expect("no holder panics");
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_err() {
                return;
            }
            counts.1 += 1;
        }
    }
}
