//! Failures of backends and clients are answered or cut, counted under their reason, and leave
//! nothing open.

mod common;

use std::thread;

use common::{Plan, Proxy, both_upstreams, get, post, request};
use equipoise_session::Reason;
use equipoise_session::config::Upstream;
use equipoise_session::stats::{BackendStats, Counter};
use equipoise_testkit::{
    Answer, Client, Ending, Gate, HttpBackend, Intake, Pattern, Step, TcpBackend, TcpBehaviour,
    WireError, eventually, free_port,
};

/// Responses that must not reach a client, and why.
const GARBAGE: &[(&str, &str)] = &[
    ("no HTTP", "SSH-2.0-OpenSSH_9.2p1\r\n\r\n"),
    ("version 2", "HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n"),
    ("version 0.9", "<html></html>\r\n\r\n"),
    ("no status", "HTTP/1.1\r\nContent-Length: 0\r\n\r\n"),
    ("status of two digits", "HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n"),
    ("status of four digits", "HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n"),
    ("status in letters", "HTTP/1.1 abc OK\r\nContent-Length: 0\r\n\r\n"),
    ("status below 100", "HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n"),
    (
        "length beside coding",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ),
    ("two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"),
    ("length as a list", "HTTP/1.1 200 OK\r\nContent-Length: 3, 4\r\n\r\nabcd"),
    ("length with a plus", "HTTP/1.1 200 OK\r\nContent-Length: +3\r\n\r\nabc"),
    ("length below zero", "HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\nabc"),
    ("length of 2^64", "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\nabc"),
    ("coding that is not chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nabc"),
    (
        "coding after chunked",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    ),
    ("coding in HTTP/1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("folded header", "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 0\r\n\r\n"),
    ("bare CR in a value", "HTTP/1.1 200 OK\r\nX: a\rb\r\nContent-Length: 0\r\n\r\n"),
    ("NUL in a value", "HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 0\r\n\r\n"),
    ("blank before a colon", "HTTP/1.1 200 OK\r\nContent-Length : 0\r\n\r\n"),
    ("header without a colon", "HTTP/1.1 200 OK\r\nX\r\nContent-Length: 0\r\n\r\n"),
    (
        "switch that nobody asked for",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    ),
];

/// Beginnings of a response that is then cut off.
const BROKEN: &[(&str, &str)] = &[
    ("within a length", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"),
    ("before a length's first byte", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"),
    ("within a chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc"),
    ("between chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"),
    ("within a chunk line", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1"),
    (
        "before the end of the trailers",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n",
    ),
];

both_upstreams! {
    a_response_that_is_not_http_becomes_502,
    a_response_head_without_end_becomes_502,
    a_chunk_that_is_not_one_cuts_the_response,
    a_response_that_breaks_off_is_seen_to_break_off,
    a_backend_that_closes_before_it_answers_becomes_502,
    a_session_that_went_stale_between_requests_is_never_shown_to_the_client,
    a_get_on_a_session_that_dies_under_it_is_sent_again,
    a_post_that_was_sent_is_not_sent_again,
    a_backend_that_refuses_is_passed_over_for_another,
    backends_that_all_refuse_become_502,
    a_pool_without_an_eligible_backend_becomes_503_with_retry_after,
    a_row_of_failures_is_reported,
    a_row_of_statuses_is_reported_only_if_they_are_listed,
    a_client_gone_during_the_response_closes_the_session_and_is_counted,
    a_client_gone_during_its_request_closes_the_session_and_is_counted,
    a_client_gone_while_its_answer_is_awaited_is_noticed,
    a_client_gone_within_its_head_reaches_no_backend,
    an_early_refusal_reaches_a_client_that_is_still_sending,
    what_a_backend_sends_beyond_its_response_is_given_to_nobody,
    what_a_backend_sends_on_an_idle_session_is_given_to_nobody,
    a_backend_that_talks_first_is_not_believed,
    the_death_of_a_backend_under_load_fails_no_idempotent_request,
}

fn a_response_that_is_not_http_becomes_502(mode: Upstream) {
    for (name, garbage) in GARBAGE {
        let backend = HttpBackend::always(Answer::raw(garbage));
        let proxy = Plan::new(mode, &[backend.address()]).pool(|p| p.retries = 0).start();
        let response = proxy.connect().ask(get("/"));
        assert_eq!(response.map(|r| r.status()), Ok(502), "{name}");
        proxy.assert_drops(&[(Reason::UpstreamMalformed, 1)]);
        assert!(backend.acceptor().wait(|c| c.open == 0), "{name}: the session is closed");
        proxy.assert_nothing_in_flight();
    }
}

fn a_response_head_without_end_becomes_502(mode: Upstream) {
    let head = Answer::raw("HTTP/1.1 200 OK\r\nX: ").then(Step::Pattern {
        seed: 1,
        bytes: 0,
        chunk: None,
    });
    let endless = (0..40).fold(head, |a, _| a.then(Step::Send(vec![b'x'; 100_000])));
    let backend = HttpBackend::always(endless);
    let proxy = Plan::new(mode, &[backend.address()]).pool(|p| p.retries = 0).start();
    assert_eq!(proxy.ask(get("/")).status(), 502);
    assert!(backend.acceptor().wait(|c| c.open == 0));
    proxy.assert_drops(&[(Reason::UpstreamMalformed, 1)]);
}

fn a_chunk_that_is_not_one_cuts_the_response(mode: Upstream) {
    for chunks in [
        "g\r\nabc\r\n0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "3\nabc\r\n0\r\n\r\n",
        "10000000000000003\r\nabc\r\n0\r\n\r\n",
    ] {
        let backend = HttpBackend::always(Answer::raw(format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"
        )));
        let proxy = Plan::new(mode, &[backend.address()]).pool(|p| p.retries = 0).start();
        let response = proxy.connect().ask(get("/"));
        let is_refused = response.as_ref().is_ok_and(|r| r.status() == 502);
        assert!(is_refused || response.is_err(), "{chunks:?}: {response:?}");
        proxy.assert_drops(&[(Reason::UpstreamMalformed, 1)]);
    }
}

fn a_response_that_breaks_off_is_seen_to_break_off(mode: Upstream) {
    for (name, beginning) in BROKEN {
        for end in [Step::Close, Step::Reset] {
            let gate = Gate::new();
            let answer = Answer::raw(beginning).then(Step::Wait(gate.clone())).then(end.clone());
            let backend = HttpBackend::always(answer);
            let proxy = Plan::new(mode, &[backend.address()]).pool(|p| p.retries = 0).start();
            let mut client = proxy.connect();
            client.send(get("/"));
            assert_eq!(client.head().map(|h| h.status()), Ok(200), "{name}");
            gate.open();
            let (rest, ending) = client.read_to_end();
            assert_ne!(ending, Ending::StillOpen, "{name}, {end:?}");
            assert!(!rest.ends_with(b"0\r\n\r\n") && rest.len() < 20, "{name}, {end:?}: {rest:?}");
            proxy.assert_drops(&[(Reason::UpstreamClosed, 1)]);
            proxy.assert_nothing_in_flight();
        }
    }
}

fn a_backend_that_closes_before_it_answers_becomes_502(mode: Upstream) {
    let half = Answer::raw("HTTP/1.1 200 OK\r\nContent-").then(Step::Close);
    for answer in [Answer::close(), Answer::reset(), half] {
        for (request, tries) in [(get("/"), 2), (post("/", "abc"), 1)] {
            let backend = HttpBackend::always(answer.clone());
            let proxy = Proxy::before(mode, &backend);
            assert_eq!(proxy.ask(&request).status(), 502, "{answer:?}");
            assert!(backend.requests().len() <= tries, "{answer:?}: {request}");
            assert!(eventually(|| proxy.drops(Reason::UpstreamClosed) == 1));
            proxy.assert_nothing_in_flight();
        }
    }
}

fn a_session_that_went_stale_between_requests_is_never_shown_to_the_client(mode: Upstream) {
    let backend = HttpBackend::always(Answer::ok("x").then(Step::Close));
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    for round in 0..50 {
        let request = if round % 2 == 0 { get("/") } else { post("/", "abc") };
        assert_eq!(client.ask(request).map(|r| r.status()), Ok(200), "request {round}");
        assert!(backend.acceptor().wait(|c| c.open == 0), "the backend has closed");
    }
    proxy.assert_drops(&[]);
    assert_eq!(backend.requests().len(), 50);
}

fn a_get_on_a_session_that_dies_under_it_is_sent_again(mode: Upstream) {
    let backend = HttpBackend::start(|r| match r.on_connection {
        0 => Answer::ok("x"),
        _ if r.connection % 2 == 0 => Answer::close(),
        _ => Answer::reset(),
    });
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    for round in 0..20 {
        assert_eq!(client.ask(get("/")).map(|r| r.status()), Ok(200), "request {round}");
    }
    proxy.assert_drops(&[]);
    assert!(proxy.stats.sum(|s| s.retries.get()) > 0);
}

fn a_post_that_was_sent_is_not_sent_again(mode: Upstream) {
    let backend = HttpBackend::start(|r| match r.head.method() {
        "GET" => Answer::ok("x"),
        _ => Answer::close(),
    });
    let other = HttpBackend::named("other");
    let proxy = Plan::new(mode, &[backend.address()]).start();
    for _ in 0..5 {
        assert_eq!(proxy.ask(get("/")).status(), 200);
        assert_eq!(proxy.ask(post("/", "abc")).status(), 502);
    }
    let posts = backend.requests().iter().filter(|r| r.head.method() == "POST").count();
    assert_eq!((posts, other.requests().len()), (5, 0));
    proxy.assert_drops(&[(Reason::UpstreamClosed, 5)]);
}

fn a_backend_that_refuses_is_passed_over_for_another(mode: Upstream) {
    let (dead, alive) = (free_port(), HttpBackend::named("alive"));
    let proxy = Plan::new(mode, &[dead.address(), alive.address()]).start();
    for round in 0..10 {
        let request = if round % 2 == 0 { get("/") } else { post("/", "abc") };
        assert_eq!(proxy.ask(request).text(), "alive", "request {round}");
    }
    proxy.assert_drops(&[]);
    assert!(proxy.stats.sum(|s| s.retries.get()) > 0);
    let failures = |s: &equipoise_session::stats::BackendStats| {
        s.failures[Reason::ConnectRefused as usize].get()
    };
    assert!(proxy.backends[0].live.stats.sum(failures) > 0);
}

fn backends_that_all_refuse_become_502(mode: Upstream) {
    let (one, two) = (free_port(), free_port());
    let proxy = Plan::new(mode, &[one.address(), two.address()]).start();
    let mut client = proxy.connect();
    assert_eq!(client.ask(get("/")).map(|r| r.status()), Ok(502));
    assert_eq!(client.ask(post("/", "abc")).map(|r| r.status()), Ok(502));
    proxy.assert_drops(&[(Reason::ConnectRefused, 2)]);
    proxy.assert_nothing_in_flight();
}

fn a_pool_without_an_eligible_backend_becomes_503_with_retry_after(mode: Upstream) {
    let proxy =
        Plan::new(mode, &[]).pool(|p| p.retry_after = std::time::Duration::from_secs(7)).start();
    let mut client = proxy.connect();
    for request in [get("/"), request("HEAD", "/", ""), get("/")] {
        let response = client.ask(request).expect("an answer");
        assert_eq!((response.status(), response.header("retry-after")), (503, Some("7")));
    }
    proxy.assert_drops(&[(Reason::NoBackend, 3)]);
}

fn a_row_of_failures_is_reported(mode: Upstream) {
    let dead = free_port();
    let mut proxy = Plan::new(mode, &[dead.address()]).start();
    assert!(eventually(|| {
        assert_eq!(proxy.ask(get("/")).status(), 502);
        proxy.failing.try_recv().is_ok()
    }));
}

fn a_row_of_statuses_is_reported_only_if_they_are_listed(mode: Upstream) {
    for (statuses, failures) in [(&[][..], 0), (&[(500, 502), (504, 599)], 0), (&[(500, 503)], 40)]
    {
        let backend = HttpBackend::always(Answer::sized(503, ""));
        let mut plan = Plan::new(mode, &[backend.address()]);
        plan.passive.statuses = statuses.into();
        let mut proxy = plan.start();
        let mut client = proxy.connect();
        for _ in 0..40 {
            assert_eq!(client.ask(get("/?c=503")).map(|r| r.status()), Ok(503));
        }
        // The thread handles this request after it has counted the others.
        assert_eq!(proxy.ask(request("CONNECT", "/", "")).status(), 405);
        let stats = &proxy.backends[0].live.stats;
        assert_eq!(stats.sum(|s| s.failures[Reason::BackendError as usize].get()), failures);
        assert_eq!(proxy.failing.try_recv().is_ok(), failures > 0, "{statuses:?}");
    }
}

fn a_client_gone_during_the_response_closes_the_session_and_is_counted(mode: Upstream) {
    let backend = HttpBackend::always(Answer::pattern(1, 1 << 40));
    let proxy = Proxy::before(mode, &backend);
    for reset in [false, true] {
        let mut client = proxy.connect();
        client.send(get("/")).head().expect("it has begun");
        if reset {
            client.reset()
        } else {
            drop(client)
        }
        assert!(backend.acceptor().wait(|c| c.open == 0), "the session is closed");
    }
    proxy.assert_drops(&[(Reason::ClientGone, 2)]);
    proxy.assert_nothing_in_flight();
}

fn a_client_gone_during_its_request_closes_the_session_and_is_counted(mode: Upstream) {
    let backend = HttpBackend::echo();
    let proxy = Proxy::before(mode, &backend);
    for framing in ["Content-Length: 1000\r\n", "Transfer-Encoding: chunked\r\n"] {
        for reset in [false, true] {
            let mut client = proxy.connect();
            client.send(request("POST", "/", framing)).send("3\r\nabc\r\n");
            assert!(backend.wait(|r| r.last().is_some_and(|r| r.body_bytes > 0)));
            if reset {
                client.reset()
            } else {
                drop(client)
            }
            assert!(backend.acceptor().wait(|c| c.open == 0), "the session is closed");
        }
    }
    assert_eq!(backend.completed(), 0);
    proxy.assert_drops(&[(Reason::ClientGone, 4)]);
    proxy.assert_nothing_in_flight();
}

fn a_client_gone_while_its_answer_is_awaited_is_noticed(mode: Upstream) {
    let backend = HttpBackend::always(Answer::hang());
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    client.send(post("/", "abc"));
    assert!(backend.wait(|r| r.len() == 1));
    client.reset();
    assert!(backend.acceptor().wait(|c| c.open == 0), "the session is closed");
    proxy.assert_drops(&[(Reason::ClientGone, 1)]);
    proxy.assert_nothing_in_flight();
    let failures = |s: &BackendStats| s.failures.iter().map(Counter::get).sum();
    assert_eq!(proxy.backends[0].live.stats.sum(failures), 0, "the client's end blames no backend");
}

fn a_client_gone_within_its_head_reaches_no_backend(mode: Upstream) {
    let backend = HttpBackend::echo();
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n").finish();
    assert_ne!(client.read_to_end().1, Ending::StillOpen);
    assert_eq!(backend.counts().bytes, 0);
}

fn an_early_refusal_reaches_a_client_that_is_still_sending(mode: Upstream) {
    let answer = Answer::sized(413, "too large").header_lines("Connection: close\r\n");
    let backend = HttpBackend::always(answer.intake(Intake::Ignore));
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    let mut writer = Client::over(client.stream().try_clone().expect("a descriptor is free"));
    let sender = thread::spawn(move || {
        writer.send(request("POST", "/", "Content-Length: 3000000\r\n"));
        let _ = writer.try_send(Pattern::bytes(1, 3_000_000));
    });
    assert_eq!(
        client.response().map(|r| (r.status(), r.text())),
        Ok((413, "too large".to_owned()))
    );
    drop(client);
    sender.join().expect("it gives up at most");
    proxy.assert_nothing_in_flight();
}

fn what_a_backend_sends_beyond_its_response_is_given_to_nobody(mode: Upstream) {
    let surplus = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL";
    let backend = HttpBackend::start(move |r| match r.head.target() {
        "/surplus" => Answer::raw(surplus),
        target => Answer::ok(target),
    });
    let proxy = Proxy::before(mode, &backend);
    for n in 0..10 {
        let first = proxy.connect().ask(get("/surplus")).expect("an answer");
        assert!(first.text() == "ok" || first.status() == 502, "{first:?}");
        assert_eq!(proxy.ask(get(&format!("/{n}"))).text(), format!("/{n}"));
    }
}

fn what_a_backend_sends_on_an_idle_session_is_given_to_nobody(mode: Upstream) {
    let (gate, sent) = (Gate::new(), Gate::new());
    let evil = Step::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL".to_vec());
    let first =
        Answer::ok("ok").then(Step::Wait(gate.clone())).then(evil).then(Step::Open(sent.clone()));
    let backend = HttpBackend::start(move |r| match r.number {
        0 => first.clone(),
        _ => Answer::ok(r.head.target()),
    });
    let proxy = Proxy::before(mode, &backend);
    assert_eq!(proxy.ask(get("/")).text(), "ok");
    gate.open();
    assert!(sent.wait(), "it is sent before the next request");
    for n in 0..20 {
        assert_eq!(proxy.ask(get(&format!("/{n}"))).text(), format!("/{n}"));
    }
}

fn a_backend_that_talks_first_is_not_believed(mode: Upstream) {
    let talker = TcpBackend::start(TcpBehaviour::Say(
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL".to_vec(),
    ));
    let proxy = Plan::new(mode, &[talker.address()]).pool(|p| p.retries = 0).start();
    // The order of its bytes and the request may vary; a connection with leftover bytes must never
    // answer a second request.
    let mut client = proxy.connect();
    for _ in 0..3 {
        if !matches!(client.ask(get("/")), Ok(response) if response.status() == 502 || response.text() == "EVIL")
        {
            break;
        }
    }
    proxy.assert_nothing_in_flight();
}

fn the_death_of_a_backend_under_load_fails_no_idempotent_request(mode: Upstream) {
    let whole = |name: &str| {
        Answer::raw(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len()))
    };
    let (doomed, alive) =
        (HttpBackend::always(whole("doomed")), HttpBackend::always(whole("alive")));
    let proxy = Plan::new(mode, &[doomed.address(), alive.address()]).start();
    let address = proxy.address;
    thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(move || {
                    let mut client = Client::connect(address);
                    (0..100)
                        .map(|_| client.ask(get("/")).map(|r| r.status()))
                        .filter(|s| *s != Ok(200))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        assert!(doomed.wait(|r| r.len() > 50));
        doomed.acceptor().stop();
        for client in clients {
            assert_eq!(
                client.join().expect("it runs to its end"),
                Vec::<Result<u16, WireError>>::new()
            );
        }
    });
    proxy.assert_drops(&[]);
    proxy.assert_nothing_in_flight();
    doomed.acceptor().restart();
    assert!(eventually(|| proxy.ask(get("/")).text() == "doomed"), "it is used again");
}
