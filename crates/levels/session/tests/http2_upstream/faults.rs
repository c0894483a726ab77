//! Faults of backends and clients, and which requests are retried.

use super::*;

#[test]
fn a_refused_stream_is_retried_for_every_method() {
    const METHODS: [&str; 6] = ["GET", "PUT", "DELETE", "POST", "PATCH", "LOCK"];
    let refusals = Arc::new(AtomicUsize::new(0));
    let count = refusals.clone();
    let backend = Http2Backend::start(move |mut arrived| {
        let count = count.clone();
        async move {
            // Every second one, so that the retry succeeds.
            match count.fetch_add(1, SeqCst) % 2 {
                0 => arrived.reset(h2::Reason::REFUSED_STREAM),
                _ => arrived.say("ok"),
            }
        }
    });
    let proxy = plan(&[&backend]).pool(|pool| pool.retry_budget = 1.0).start();
    for method in METHODS {
        for request in [ask(method, "/", ""), ask(method, "/", "Content-Length: 3\r\n") + "abc"] {
            assert_eq!(proxy.ask(request).text(), "ok", "{method}");
        }
    }
    assert_eq!(refusals.load(SeqCst), 4 * METHODS.len());
    assert_eq!(backend.connections(), 1);
    proxy.assert_drops(&[]);
}

#[test]
fn a_request_that_may_have_been_processed_is_retried_if_it_is_idempotent() {
    let failing = Http2Backend::start(|mut arrived| async move {
        arrived.reset(h2::Reason::INTERNAL_ERROR);
    });
    let proxy = plan(&[&failing]).pool(|pool| pool.retry_budget = 1.0).start();
    assert_eq!(proxy.ask(post("/", "abc")).status(), 502);
    assert_eq!(failing.heads().len(), 1);
    assert_eq!(proxy.ask(get("/")).status(), 502);
    assert_eq!(failing.heads().len(), 3);
    proxy.assert_drops(&[(Reason::UpstreamClosed, 2)]);
}

#[test]
fn requests_above_the_goaway_stream_are_retried_and_others_complete() {
    let backend = RawBackend::start();
    let proxy = Plan::new(Upstream::Http2, &[backend.address()]).start();
    let mut clients: Vec<_> = (0..3).map(|_| proxy.connect()).collect();
    clients[0].send(post("/0", "abc"));
    let mut first = backend.accept(&[]);
    assert_eq!(first.read_until(HEADERS).stream, 1);
    for (at, client) in clients.iter_mut().enumerate().skip(1) {
        client.send(post(&format!("/{at}"), "abc"));
        assert_eq!(first.read_until(HEADERS).stream, 2 * at as u32 + 1);
    }
    // Streams 1 and 3 are processed, 5 is not.
    let goaway = [3u32.to_be_bytes(), 0u32.to_be_bytes()].concat();
    first.frame(GOAWAY, 0, 0, &goaway);
    let mut second = backend.accept(&[]);
    assert_eq!(second.read_until(HEADERS).stream, 1);
    response(&mut first, 3, &[(":status", "204")], END_STREAM);
    response(&mut second, 1, &[(":status", "204")], END_STREAM);
    response(&mut first, 1, &[(":status", "204")], END_STREAM);
    for client in &mut clients {
        assert_eq!(client.response().expect("a response").status(), 204);
    }
    // The first connection ends with its last stream.
    assert_eq!(std::iter::from_fn(|| first.read()).filter(|f| f.kind == HEADERS).count(), 0);
    clients[0].send(get("/more"));
    assert_eq!(second.read_until(HEADERS).stream, 3);
    response(&mut second, 3, &[(":status", "204")], END_STREAM);
    assert_eq!(clients[0].response().expect("a response").status(), 204);
    proxy.assert_drops(&[]);
}

#[test]
fn a_backend_that_does_not_speak_http2_counts_as_failed() {
    let backend = HttpBackend::echo();
    let proxy = Plan::new(Upstream::Http2, &[backend.address()]).start();
    let reply = proxy.ask(post("/", "abc"));
    assert_eq!(reply.status(), 502, "{}", reply.text());
    assert!(backend.requests().iter().all(|request| request.head.target() == "*"));
    let failures = |reason: Reason| {
        proxy.backends[0].live.stats.sum(|stats| stats.failures[reason as usize].get())
    };
    assert!(failures(Reason::UpstreamMalformed) + failures(Reason::UpstreamClosed) > 0);
    let refused = equipoise_testkit::free_port();
    let proxy = Plan::new(Upstream::Http2, &[refused.address()]).start();
    assert_eq!(proxy.ask(post("/", "abc")).status(), 502);
    proxy.assert_drops(&[(Reason::ConnectRefused, 1)]);
}

#[test]
fn malformed_responses_are_refused() {
    let backend = RawBackend::start();
    let address = backend.address();
    let rows: [&[(&str, &str)]; 8] = [
        &[("x-a", "1")],
        &[(":status", "101")],
        &[(":status", "200"), ("connection", "close")],
        &[(":status", "200"), ("transfer-encoding", "chunked")],
        &[(":status", "200"), ("X-Upper", "1")],
        &[(":status", "200"), ("x-a", " spaced")],
        &[(":status", "200"), ("x-a", "a\r\nb: c")],
        &[(":status", "200"), ("content-length", "1"), ("content-length", "2")],
    ];
    let serving = std::thread::spawn(move || {
        for fields in rows {
            let mut raw = backend.accept(&[]);
            let stream = raw.read_until(HEADERS).stream;
            response(&mut raw, stream, fields, 0);
            // The proxy resets the stream or ends the connection.
            while raw.read().is_some_and(|f| ![GOAWAY, common_http2::RST_STREAM].contains(&f.kind))
            {
            }
        }
    });
    for fields in rows {
        // A connection each.
        let proxy = Plan::new(Upstream::Http2, &[address]).pool(|pool| pool.retries = 0).start();
        let reply = proxy.ask(post("/", "abc"));
        assert_eq!(reply.status(), 502, "{fields:?}: {}", reply.text());
        proxy.assert_drops(&[(Reason::UpstreamMalformed, 1)]);
    }
    serving.join().expect("it served");
}

#[test]
fn a_response_reset_by_the_backend_is_cut_for_the_client() {
    let backend = Http2Backend::start(|mut arrived| async move {
        let mut stream = arrived.respond.send_response(Response::new(()), false).expect("taken");
        stream.send_data("abc".into(), false).expect("it is taken");
        arrived.request.body_mut().data().await;
        stream.send_reset(h2::Reason::INTERNAL_ERROR);
    });
    let proxy = before(&backend);
    let mut client = proxy.connect();
    client.send(ask("POST", "/", "Content-Length: 3\r\n"));
    assert_eq!(client.head().expect("a head").status(), 200);
    client.send("abc");
    assert_ne!(client.read_to_end().1, equipoise_testkit::Ending::StillOpen);
    run(async {
        let connection = Connection::to(proxy.address).await;
        let (response, mut stream) = connection.begin(request("POST", "/"), false).await;
        let mut body = response.await.expect("a head").into_body();
        stream.send_data("abc".into(), true).expect("it is taken");
        let cut = read_body(&mut body).await.expect_err("it is cut");
        assert_eq!(cut.reason(), Some(h2::Reason::INTERNAL_ERROR));
    });
    proxy.assert_drops(&[(Reason::UpstreamClosed, 2)]);
}

#[test]
fn a_leaving_client_cancels_only_its_own_stream() {
    let (cancelled, count) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (at_backend, go) = (cancelled.clone(), count.clone());
    let backend = Http2Backend::start(move |mut arrived| {
        let (cancelled, go) = (at_backend.clone(), go.clone());
        async move {
            if arrived.path() == "/leaves" {
                let reason = poll_fn(|cx| arrived.respond.poll_reset(cx)).await;
                assert_eq!(reason.expect("a reset"), h2::Reason::CANCEL);
                cancelled.fetch_add(1, SeqCst);
            } else {
                go.notified().await;
                arrived.say("stays");
            }
        }
    });
    let proxy = before(&backend);
    let mut stays = proxy.connect();
    stays.send(get("/stays"));
    let mut leaves = proxy.connect();
    leaves.send(get("/leaves"));
    assert!(eventually(|| backend.heads().len() == 2));
    leaves.reset();
    assert!(eventually(|| cancelled.load(SeqCst) == 1));
    run(async {
        let connection = Connection::to(proxy.address).await;
        let (response, mut stream) = connection.begin(request("POST", "/leaves"), false).await;
        while backend.heads().len() < 3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        stream.send_reset(h2::Reason::CANCEL);
        drop(response);
        while cancelled.load(SeqCst) < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    count.notify_waiters();
    assert_eq!(stays.response().expect("a response").text(), "stays");
    assert_eq!(backend.connections(), 1);
    proxy.assert_drops(&[(Reason::ClientGone, 2)]);
}

#[test]
fn a_silent_connection_gets_no_further_streams() {
    let backend = RawBackend::start();
    let within = Duration::from_millis(5100);
    let proxy = Plan::new(Upstream::Http2, &[backend.address()])
        .pool(|pool| pool.response_timeout = within)
        .start();
    let mut client = proxy.connect();
    client.send(get("/"));
    let mut silent = backend.accept(&[]);
    silent.read_until(HEADERS);
    assert_eq!(client.response().expect("a response").status(), 504);
    let mut client = proxy.connect();
    client.send(get("/"));
    let mut second = backend.accept(&[]);
    let stream = second.read_until(HEADERS).stream;
    response(&mut second, stream, &[(":status", "204")], END_STREAM);
    assert_eq!(client.response().expect("a response").status(), 204);
    proxy.assert_drops(&[(Reason::ResponseTimeout, 1)]);
}

#[test]
fn a_retry_at_a_silent_backend_opens_a_new_connection() {
    // The kernel accepts connections; no settings follow.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("it is bound");
    let proxy = Plan::new(Upstream::Http2, &[address])
        .pool(|pool| (pool.connect_timeout, pool.retries) = (Duration::from_millis(300), 1))
        .start();
    let mut client = proxy.connect();
    client.send(get("/"));
    assert_eq!(client.response().expect("a response").status(), 504);
    silent.set_nonblocking(true).expect("it is a socket");
    let opened = std::iter::from_fn(|| silent.accept().ok()).count();
    assert_eq!(opened, 2, "each counted try has its own connection");
    proxy.assert_drops(&[(Reason::ConnectTimeout, 1)]);
}
