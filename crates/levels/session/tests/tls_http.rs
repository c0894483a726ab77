//! HTTP front doors with TLS: requests, names, certificates and ends.

mod common;
mod common_tls;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::num::NonZeroU32;
use std::time::Duration;

use common::{Plan, Proxy, both_upstreams};
use common_tls::{NAME, Site, closing, finish, get, rest};
use equipoise_session::Reason;
use equipoise_session::config::{Forwarded, FrontDoor, TrustedSources, Upstream};
use equipoise_testkit::{
    Answer, Client, Ending, Gate, HttpBackend, Intake, Pattern, Step, eventually,
};
use equipoise_tls::TlsOptions;

both_upstreams![
    requests_on_one_connection_are_served,
    large_bodies_pass_both_ways,
    a_request_in_pieces_is_one_request,
];

fn before(site: &Site, mode: Upstream, backend: &HttpBackend) -> Proxy {
    Plan::new(mode, &[backend.address()]).front(|front| front.tls = site.http()).start()
}

fn with(site: &Site, backend: &HttpBackend, change: impl FnOnce(&mut FrontDoor)) -> Proxy {
    let plan = Plan::new(Upstream::Exclusive, &[backend.address()]);
    plan.front(|front| front.tls = site.http()).front(change).start()
}

fn requests_on_one_connection_are_served(mode: Upstream) {
    let (site, backend) = (Site::new(), HttpBackend::echo());
    let proxy = before(&site, mode, &backend);
    let mut stream = site.connect(proxy.address);
    for turn in 0..20 {
        let body = format!("body {turn}");
        let length = body.len();
        let request = format!(
            "POST /{turn} HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).expect("it is taken");
        let mut answer = Vec::new();
        while !answer.ends_with(body.as_bytes()) {
            let mut piece = [0; 1024];
            let read = stream.read(&mut piece).expect("an answer");
            assert!(read > 0, "{}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&piece[..read]);
        }
    }
    assert_eq!(stream.conn.alpn_protocol(), None);
    stream.write_all(closing(&get("/last")).as_bytes()).expect("it is taken");
    assert!(rest(&mut stream).expect("an announced end").starts_with("HTTP/1.1 200"));
    assert_eq!(backend.requests().len(), 21);
    proxy.assert_nothing_in_flight();
    proxy.assert_drops(&[]);
}

fn large_bodies_pass_both_ways(mode: Upstream) {
    const BYTES: u64 = 3 << 20;
    let backend = HttpBackend::start(|request| match request.head.target() {
        "/up" => Answer::ok("up").intake(Intake::Check(1)),
        "/chunks" => Answer::pattern_chunked(2, BYTES, 10_000),
        _ => Answer::pattern(2, BYTES),
    });
    let site = Site::new();
    let proxy = before(&site, mode, &backend);
    let mut stream = site.connect(proxy.address);
    stream.write_all(closing(&get("/down")).as_bytes()).expect("it is taken");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("an announced end");
    let head = bytes.windows(4).position(|it| it == b"\r\n\r\n").expect("a head") + 4;
    assert_eq!(Pattern::new(2).check(&bytes[head..]), Ok(()));
    assert_eq!((bytes.len() - head) as u64, BYTES);
    let mut stream = site.connect(proxy.address);
    stream.write_all(closing(&get("/chunks")).as_bytes()).expect("it is taken");
    assert!(rest(&mut stream).expect("an announced end").ends_with("\r\n0\r\n\r\n"));
    let mut stream = site.connect(proxy.address);
    let head = format!("POST /up HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: {BYTES}\r\n\r\n");
    stream.write_all(closing(&head).as_bytes()).expect("it is taken");
    let mut pattern = Pattern::new(1);
    while pattern.offset() < BYTES {
        let piece = pattern.next((BYTES - pattern.offset()) as usize);
        stream.write_all(piece).expect("it is taken");
    }
    assert!(rest(&mut stream).expect("an announced end").ends_with("up"));
    assert!(backend.requests().iter().all(|it| it.complete));
    proxy.assert_drops(&[]);
}

fn a_request_in_pieces_is_one_request(mode: Upstream) {
    let (site, backend) = (Site::new(), HttpBackend::echo());
    let proxy = before(&site, mode, &backend);
    let mut stream = site.connect(proxy.address);
    for byte in closing(&get("/pieces")).bytes() {
        // A record of its own for each byte.
        stream.write_all(&[byte]).expect("it is taken");
        stream.flush().expect("it is sent");
    }
    assert!(rest(&mut stream).expect("an announced end").starts_with("HTTP/1.1 200"));
    assert_eq!(backend.requests()[0].head.target(), "/pieces");
}

#[test]
fn backends_learn_that_clients_use_https() {
    let (site, backend) = (Site::new(), HttpBackend::echo());
    let proxy = with(&site, &backend, |front| front.forwarded = Forwarded::ALL);
    let forged = format!(
        "GET https://{NAME}:443/a HTTP/1.1\r\nHost: {NAME}\r\nX-Forwarded-Proto: gopher\r\n\
         X-Forwarded-For: 192.0.2.1\r\n\r\n"
    );
    assert!(site.ask(proxy.address, &forged).expect("an answer").starts_with("HTTP/1.1 200"));
    let head = &backend.requests()[0].head;
    assert_eq!(head.all("x-forwarded-proto"), ["https"]);
    assert_eq!(head.all("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(head.all("forwarded"), [format!("for=127.0.0.1;host=\"{NAME}:443\";proto=https")]);
    // Port 80 is not the default here.
    let other = format!("GET https://{NAME}:80/a HTTP/1.1\r\nHost: {NAME}\r\n\r\n");
    assert!(site.ask(proxy.address, &other).expect("an answer").starts_with("HTTP/1.1 400"));
}

#[test]
fn a_proxy_header_before_the_handshake_is_accepted() {
    let (site, backend) = (Site::new(), HttpBackend::echo());
    let proxy = with(&site, &backend, |front| {
        front.accept_proxy = true;
        front.trusted = TrustedSources::from_iter([([127, 0, 0, 1].into(), 32)]);
    });
    // Header and handshake come together, or apart.
    for pause in [false, true] {
        let stream = TcpStream::connect(proxy.address).expect("it listens");
        let header = b"PROXY TCP4 203.0.113.7 192.0.2.1 4711 443\r\n";
        let mut tls = if pause {
            (&stream).write_all(header).expect("it is taken");
            assert!(eventually(|| proxy.stats.sum(|it| it.connections_open.get()) == 1));
            site.over(stream, NAME)
        } else {
            let mut tls = site.over(stream, NAME);
            let mut together = header.to_vec();
            tls.conn.write_tls(&mut together).expect("memory");
            tls.sock.write_all(&together).expect("it is taken");
            tls
        };
        tls.write_all(closing(&get("/")).as_bytes()).expect("it is taken");
        assert!(rest(&mut tls).expect("an announced end").starts_with("HTTP/1.1 200"));
        let heads = backend.requests();
        let head = &heads.last().expect("a request").head;
        assert_eq!(head.all("x-forwarded-for"), ["203.0.113.7"]);
        assert_eq!(head.all("x-forwarded-proto"), ["https"]);
    }
    proxy.assert_drops(&[]);
}

#[test]
fn plain_http_is_answered_400_in_the_clear() {
    let (site, backend) = (Site::new(), HttpBackend::echo());
    let proxy = before(&site, Upstream::Exclusive, &backend);
    let answer = Client::exchange(proxy.address, get("/")).expect("a whole response");
    assert_eq!(answer.status(), 400);
    assert!(answer.text().contains("this port speaks TLS; use https://"), "{}", answer.text());
    proxy.assert_drops(&[(Reason::TlsMissing, 1)]);
    assert!(backend.requests().is_empty());
}

#[test]
fn a_client_gets_the_certificate_of_the_name_that_it_asks_for() {
    let (site, backend) = (Site::of(&[NAME, "*.example.org"]), HttpBackend::echo());
    let usual = before(&site, Upstream::Exclusive, &backend);
    let strict = with(&site, &backend, |front| {
        front.tls = site.tls(TlsOptions { strict: true, ..TlsOptions::default() });
    });
    let ask = |proxy: &Proxy, name: &str| {
        let mut tls = site.over(TcpStream::connect(proxy.address).expect("it listens"), name);
        tls.write_all(closing(&get("/")).as_bytes()).and_then(|()| rest(&mut tls))
    };
    for proxy in [&usual, &strict] {
        for name in [NAME, "a.example.org", "B.Example.ORG"] {
            assert!(ask(proxy, name).is_ok_and(|it| it.starts_with("HTTP/1.1 200")), "{name}");
        }
    }
    // The default certificate is not for this name, and strict front doors have none.
    let told = |proxy: &Proxy| ask(proxy, "a.b.example.org").expect_err("no name").to_string();
    assert!(told(&usual).contains("not valid for name"), "{}", told(&usual));
    assert!(told(&strict).contains("alert"), "{}", told(&strict));
}

#[test]
fn a_new_certificate_applies_to_new_connections_only() {
    let (old, new, backend) = (Site::new(), Site::new(), HttpBackend::echo());
    let mut proxy = before(&old, Upstream::Exclusive, &backend);
    let mut open = old.connect(proxy.address);
    open.write_all(get("/before").as_bytes()).expect("it is taken");
    open.read_exact(&mut [0; 12]).expect("an answer");
    proxy.fronts[0].1.tls = new.http();
    proxy.publish().expect("nothing is bound");
    assert!(new.ask(proxy.address, &get("/new")).expect("trust").starts_with("HTTP/1.1 200"));
    assert!(old.ask(proxy.address, &get("/old")).is_err(), "it is not presented any more");
    open.write_all(closing(&get("/after")).as_bytes()).expect("it is open");
    assert!(rest(&mut open).expect("an announced end").contains("HTTP/1.1 200"));
    let targets: Vec<_> =
        backend.requests().iter().map(|it| it.head.target().to_string()).collect();
    assert_eq!(targets, ["/before", "/new", "/after"]);
}

#[test]
fn a_slow_reader_receives_the_whole_body_and_a_tls_close() {
    // The response ends with the connection, so that only TLS tells its end from a cut.
    let body = Pattern::bytes(3, 8 << 20);
    let (site, backend) = (Site::new(), HttpBackend::always(Answer::to_close(&body)));
    let proxy = before(&site, Upstream::Exclusive, &backend);
    let mut tls = site.connect(proxy.address);
    let request = format!("GET / HTTP/1.0\r\nHost: {NAME}\r\n\r\n");
    tls.write_all(request.as_bytes()).expect("it is taken");
    // Everything is on its way, and the buffers of the kernel are full.
    let moved = || proxy.stats.sum(|it| it.bytes_out.get());
    let mut last = 0;
    assert!(eventually(|| {
        let now = moved();
        std::mem::replace(&mut last, now) == now && now > 0
    }));
    assert!(moved() < body.len() as u64, "it is held up");
    let mut bytes = Vec::new();
    tls.read_to_end(&mut bytes).expect("an announced end");
    assert!(bytes.ends_with(&body), "{} bytes", bytes.len());
}

#[test]
fn a_client_that_sends_a_tls_close_leaves_the_queue() {
    let (site, gate) = (Site::new(), Gate::new());
    let backend = HttpBackend::start({
        let gate = gate.clone();
        move |_| Answer::ok("late").first(Step::Wait(gate.clone()))
    });
    let proxy = before(&site, Upstream::Exclusive, &backend);
    proxy.backends[0].live.set_limit(NonZeroU32::new(1));
    let mut held = site.connect(proxy.address);
    held.write_all(closing(&get("/held")).as_bytes()).expect("it is taken");
    assert!(backend.wait(|requests| requests.len() == 1));
    let mut leaves = site.connect(proxy.address);
    leaves.write_all(get("/leaves").as_bytes()).expect("it is taken");
    assert!(eventually(|| proxy.queue.len() == 1));
    finish(&mut leaves);
    assert!(eventually(|| proxy.queue.is_empty()));
    gate.open();
    assert!(rest(&mut held).expect("an announced end").ends_with("late"));
    assert_eq!(backend.requests().len(), 1);
    proxy.assert_drops(&[(Reason::ClientGone, 1)]);
}

#[test]
fn a_tunnel_passes_bytes_and_the_tls_close_both_ways() {
    let (site, backend) = (Site::new(), HttpBackend::always(Answer::upgrade("websocket")));
    let proxy = before(&site, Upstream::Exclusive, &backend);
    let mut tls = site.connect(proxy.address);
    let request = format!(
        "GET / HTTP/1.1\r\nHost: {NAME}\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    );
    tls.write_all(request.as_bytes()).expect("it is taken");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        tls.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101"));
    let mut pattern = Pattern::new(3);
    for _ in 0..40 {
        let piece = pattern.next(50_000).to_vec();
        tls.write_all(&piece).expect("it is taken");
        let mut back = vec![0; piece.len()];
        tls.read_exact(&mut back).expect("it comes back");
        assert_eq!(back, piece);
    }
    finish(&mut tls);
    assert_eq!(rest(&mut tls).expect("an announced end"), "");
    proxy.assert_drops(&[]);
}

#[test]
fn an_idle_connection_is_ended_with_a_tls_close() {
    let (site, backend) = (Site::new(), HttpBackend::echo());
    let idle = Duration::from_millis(200);
    let proxy = with(&site, &backend, |front| front.timeouts.idle = idle);
    let mut tls = site.connect(proxy.address);
    tls.write_all(get("/").as_bytes()).expect("it is taken");
    assert!(rest(&mut tls).expect("an announced end").starts_with("HTTP/1.1 200"));
    proxy.assert_drops(&[]);
    let mut plain = Client::connect(proxy.address);
    plain.patience(Duration::from_secs(30));
    assert_eq!(plain.send("").finish().read_to_end(), (Vec::new(), Ending::Closed));
}

/// The status and the location of the answer to a request in the clear.
fn moved(proxy: &Proxy, request: &str) -> (u16, Option<String>) {
    let answer = Client::exchange(proxy.address, request).expect("a whole answer");
    (answer.status(), answer.head.header("location").map(str::to_string))
}

#[test]
fn a_clear_text_door_redirects_to_https_and_serves_challenges() {
    let backend = HttpBackend::always(Answer::ok("challenge"));
    let plan = Plan::new(Upstream::Exclusive, &[backend.address()]);
    let proxy = plan.front(|front| front.redirect = Some(8443)).start();
    let place = |path: &str| Some(format!("https://{NAME}:8443{path}"));
    assert_eq!(moved(&proxy, &get("/a?b=c")), (301, place("/a?b=c")));
    let posted = format!("POST /form HTTP/1.1\r\nHost: {NAME}:80\r\nContent-Length: 3\r\n\r\nabc");
    assert_eq!(moved(&proxy, &posted), (308, place("/form")));
    let absolute = format!("GET http://{NAME}/x HTTP/1.1\r\nHost: {NAME}\r\n\r\n");
    assert_eq!(moved(&proxy, &absolute), (301, place("/x")));
    let old = "GET / HTTP/1.0\r\n\r\n";
    assert_eq!(moved(&proxy, old), (400, None));
    let other = "/.well-known/acme-challenge/../x";
    assert_eq!(moved(&proxy, &get(other)), (301, place(other)));
    assert_eq!(backend.requests().len(), 0);
    assert_eq!(moved(&proxy, &get("/.well-known/acme-challenge/token")), (200, None));
    assert_eq!(backend.requests().len(), 1);
    // The connection stays open, also behind a body.
    let mut client = proxy.connect();
    for request in [&posted, &get("/"), &posted, &get("/")] {
        assert!(client.ask(request).expect("an answer").head.header("location").is_some());
    }
    // A body that has not come is not awaited.
    client.send(format!("POST / HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 9999\r\n\r\n"));
    let answer = client.response().expect("an answer");
    assert_eq!((answer.status(), answer.head.header("connection")), (308, Some("close")));
    proxy.assert_nothing_in_flight();
    proxy.assert_drops(&[(Reason::RequestHost, 1)]);
}

#[test]
fn hsts_is_in_every_response_once_and_not_in_the_clear() {
    const LINE: &str = "Strict-Transport-Security: max-age=31536000; includeSubDomains\r\n";
    let own = Answer::ok("own").header_lines("strict-transport-security: max-age=1\r\n");
    let backend = HttpBackend::start(move |request| match request.head.target() {
        "/own" => own.clone(),
        "/interim" => Answer::ok("i").after_interim("HTTP/1.1 103 Early Hints\r\n\r\n"),
        _ => Answer::ok("none"),
    });
    let site = Site::new();
    for mode in [Upstream::Exclusive, Upstream::Multiplexed] {
        let plan = Plan::new(mode, &[backend.address()]).front(|front| front.tls = site.http());
        let proxy = plan.front(|front| front.hsts = Some(LINE.into())).start();
        let refused = format!("GET / HTTP/1.1\r\nHost: {NAME}\r\nExpect: more\r\n\r\n");
        for request in [get("/own"), get("/interim"), get("/none"), refused] {
            let answer = site.ask(proxy.address, &request).expect("an answer");
            assert_eq!(answer.matches(LINE).count(), 1, "{answer}");
            assert_eq!(answer.to_lowercase().matches("strict-transport").count(), 1, "{answer}");
        }
        let clear = Client::exchange(proxy.address, get("/")).expect("an answer");
        assert_eq!((clear.status(), clear.head.header("strict-transport-security")), (400, None));
    }
}
