//! Encryption between nodes: accepted peers, requests without an acceptable peer, and connections
//! that break or carry garbage.

mod common_dispatch;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use common_dispatch::tls::{Fleet, ask, connect, eavesdrop, one_answer};
use common_dispatch::{MARKER, Node, Plan, get, post, seen, signed_lines, with_lines};
use equipoise_core::delegation::Encryption;
use equipoise_dispatch::Transport;
use equipoise_session::Reason;
use equipoise_testkit::{Answer, Client, Ending, HttpBackend, Intake, Pattern, eventually};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// A source `a` that keeps nothing, and a target `b`, of one fleet.
fn pair(fleet: &Fleet, here: &HttpBackend, there: &HttpBackend) -> (Node, Node) {
    let taker = Plan::new("b", there).travels(fleet.required("b")).start();
    let giver = giver(fleet.required("a"), here, taker.address);
    (giver, taker)
}

fn giver(transport: Transport, here: &HttpBackend, peer: SocketAddr) -> Node {
    Plan::new("a", here).keep(0.0).travels(transport).peers(&[("b", peer)]).start()
}

/// Checks that requests are served here because the peer is not trusted. That holds for any method,
/// since the peer has executed nothing.
#[track_caller]
fn assert_done_here(giver: &Node, here: &HttpBackend) {
    let before = here.requests().len();
    assert_eq!(giver.ask(get("/")).text(), "here");
    assert_eq!(giver.ask(post("/", "abc")).text(), "here", "{:?}", giver.failures("b"));
    assert_eq!(here.requests().len(), before + 2);
    assert_eq!(giver.failures("b"), [(Reason::PeerTls, 2)]);
    assert_eq!(giver.dispatch().returned, 2);
}

#[test]
fn delegated_requests_are_encrypted_in_transit() {
    let (fleet, here, there) =
        (Fleet::new(), HttpBackend::named("here"), HttpBackend::named("there"));
    let taker = Plan::new("b", &there).travels(fleet.required("b")).start();
    let (between, heard) = eavesdrop(taker.address);
    let giver = giver(fleet.required("a"), &here, between);
    assert_eq!(giver.ask(with_lines("GET", "/secret", "Cookie: password\r\n")).text(), "there");
    assert_eq!(giver.ask(post("/secret", "password")).text(), "there");
    assert_eq!(seen(&there, "x-forwarded-for"), ["127.0.0.1"]);
    assert!(seen(&there, MARKER).is_empty());
    taker.assert_counts((0, 0, 2));
    let heard = heard.lock().expect("nobody panics with it").clone();
    assert_eq!(heard[0], 0x16, "a handshake");
    for word in ["secret", "password", "Equipoise"] {
        let found = heard.windows(word.len()).any(|it| it == word.as_bytes());
        assert!(!found, "{word} goes in the clear");
    }
    assert_eq!(taker.dispatch().encryption, Encryption::Required);
}

#[test]
fn encrypted_sessions_are_kept_open_for_many_requests() {
    let (fleet, here, there) =
        (Fleet::new(), HttpBackend::named("here"), HttpBackend::named("there"));
    let (giver, taker) = pair(&fleet, &here, &there);
    let mut client = Client::connect(giver.address);
    for _ in 0..50 {
        assert_eq!(client.ask(get("/")).expect("a whole response").text(), "there");
    }
    let status = giver.runtime.block_on(giver.registry.status()).expect("it runs");
    let peer = &status.pools[1].backends[0];
    assert_eq!((peer.sessions_opened, peer.sessions_reused), (1, 49));
    taker.assert_counts((0, 0, 50));
}

#[test]
fn a_session_that_ends_with_its_certificate_fails_no_request() {
    let (fleet, here, there) =
        (Fleet::new(), HttpBackend::named("here"), HttpBackend::named("there"));
    let (giver, taker) = pair(&fleet, &here, &there);
    fleet.lasts(Duration::from_millis(200));
    let mut asked = 0;
    let peer = || {
        let status = giver.runtime.block_on(giver.registry.status()).expect("it runs");
        status.pools[1].backends[0].clone()
    };
    // Several sessions, each for several requests. On a busy machine a session may end during a
    // request.
    let opened_and_used = eventually(|| {
        assert_eq!(giver.ask(get("/")).text(), "there");
        assert_eq!(giver.ask(post("/", "abc")).text(), "there");
        asked += 2;
        (5..asked / 2).contains(&peer().sessions_opened)
    });
    let peer = peer();
    assert!(opened_and_used, "{} of {asked}", peer.sessions_opened);
    assert!(peer.failures.is_empty() && taker.status().drops.is_empty(), "told, and not cut");
}

#[test]
fn large_bodies_pass_between_nodes_in_both_directions() {
    const BYTES: u64 = 5 << 20;
    let fleet = Fleet::new();
    let here = HttpBackend::named("here");
    let there = HttpBackend::start(|request| match request.head.target() {
        "/up" => Answer::ok("up").intake(Intake::Check(1)),
        "/chunks" => Answer::pattern_chunked(2, BYTES, 10_000),
        _ => Answer::pattern(2, BYTES),
    });
    let (giver, taker) = pair(&fleet, &here, &there);
    for target in ["/down", "/chunks"] {
        let (mut client, mut pattern) = (Client::connect(giver.address), Pattern::new(2));
        client.send(get(target));
        client.response_into(&mut |piece| assert_eq!(pattern.check(piece), Ok(()))).expect("whole");
        assert_eq!(pattern.offset(), BYTES, "{target}");
    }
    let (mut client, mut pattern) = (Client::connect(giver.address), Pattern::new(1));
    client.send(with_lines("POST", "/up", &format!("Content-Length: {BYTES}\r\n")));
    while pattern.offset() < BYTES {
        client.send(pattern.next((BYTES - pattern.offset()) as usize));
    }
    assert_eq!(client.response().expect("a whole response").text(), "up");
    assert!(there.requests()[2].complete);
    taker.assert_counts((0, 0, 3));
}

#[test]
fn a_tunnel_between_nodes_passes_bytes_and_its_close() {
    let (fleet, here) = (Fleet::new(), HttpBackend::named("here"));
    let there = HttpBackend::always(Answer::upgrade("websocket"));
    let (giver, _taker) = pair(&fleet, &here, &there);
    let mut client = Client::connect(giver.address);
    client.send(with_lines("GET", "/", "Connection: upgrade\r\nUpgrade: websocket\r\n"));
    assert_eq!(client.head().expect("a head").status(), 101);
    let mut pattern = Pattern::new(3);
    for _ in 0..40 {
        let piece = pattern.next(50_000).to_vec();
        client.send(&piece);
        assert_eq!(client.read_exactly(piece.len()).expect("it comes back"), piece);
    }
    client.finish();
    assert_eq!(client.read_to_end(), (Vec::new(), Ending::Closed), "the end is passed on");
}

#[test]
fn a_peer_with_a_certificate_of_another_authority_gets_no_request() {
    let (fleet, other) = (Fleet::new(), Fleet::new());
    let (here, there) = (HttpBackend::named("here"), HttpBackend::named("there"));
    let taker = Plan::new("b", &there).travels(other.required("b")).start();
    let giver = giver(fleet.required("a"), &here, taker.address);
    assert_done_here(&giver, &here);
    assert!(there.requests().is_empty());
}

#[test]
fn a_request_is_served_locally_if_the_peer_rejects_the_certificate() {
    // The source trusts both authorities, so it learns only after its own part of the handshake
    // that it is refused.
    let (fleet, other) = (Fleet::new(), Fleet::new());
    let (here, there) = (HttpBackend::named("here"), HttpBackend::named("there"));
    let taker = Plan::new("b", &there).travels(fleet.required("b")).start();
    let stranger = fleet.tls_with(other.client_trusting("a", &fleet), "a");
    let giver = giver(Transport::Encrypted(Some(stranger)), &here, taker.address);
    assert_done_here(&giver, &here);
    assert!(there.requests().is_empty());
    taker.assert_drops(&[(Reason::PeerRefused, 2)]);
}

#[test]
fn a_peer_with_the_certificate_of_another_node_gets_no_request() {
    let (fleet, here, there) =
        (Fleet::new(), HttpBackend::named("here"), HttpBackend::named("there"));
    let taker = Plan::new("b", &there).travels(fleet.required("c")).start();
    let giver = giver(fleet.required("a"), &here, taker.address);
    assert_done_here(&giver, &here);
    assert!(there.requests().is_empty());
}

#[test]
fn a_peer_that_speaks_no_tls_gets_no_request() {
    let (fleet, here, there) =
        (Fleet::new(), HttpBackend::named("here"), HttpBackend::named("there"));
    let taker = Plan::new("b", &there).start();
    let giver = giver(fleet.required("a"), &here, taker.address);
    assert_done_here(&giver, &here);
    assert!(there.requests().is_empty());
}

#[test]
fn a_node_without_a_certificate_delegates_nothing_and_trusts_no_marker() {
    let (here, there) = (HttpBackend::named("here"), HttpBackend::named("there"));
    let taker = Plan::new("b", &there).travels(Transport::Encrypted(None)).start();
    let waiting = giver(Transport::Encrypted(None), &here, taker.address);
    assert_eq!(waiting.ask(get("/")).text(), "here");
    assert_eq!(waiting.dispatch().encryption, Encryption::Waiting);
    let plain = giver(Transport::Plain, &here, taker.address);
    assert_eq!(plain.ask(get("/")).text(), "there", "as what a client brings");
    assert_eq!(taker.dispatch().markers_refused, 1);
}

#[test]
fn a_peer_without_a_certificate_of_this_authority_is_refused() {
    let (fleet, other) = (Fleet::new(), Fleet::new());
    let there = HttpBackend::named("there");
    let taker = Plan::new("b", &there).travels(fleet.required("b")).start();
    for config in [fleet.nobody(), other.client_trusting("a", &fleet)] {
        let told = ask(taker.address, &config, &get("/")).expect_err("it is refused");
        assert!(told.contains("alert"), "it is told why: {told}");
    }
    assert!(there.requests().is_empty());
    taker.assert_drops(&[(Reason::PeerRefused, 2)]);
    assert_eq!(taker.ask(get("/")).text(), "there", "clients come as ever");
}

#[test]
fn an_unencrypted_marker_is_refused_where_encryption_is_required() {
    let (fleet, here, there, far) = (
        Fleet::new(),
        HttpBackend::named("here"),
        HttpBackend::named("there"),
        HttpBackend::named("far"),
    );
    let next = Plan::new("c", &far).apart(23).travels(fleet.required("c")).start();
    let taker = Plan::new("b", &there).apart(22).keep(0.0).travels(fleet.required("b"));
    let taker = taker.peers(&[("c", next.address)]).start();
    // The peer's address is not 127.0.0.1, so the request may be delegated like any client's.
    let plain = giver(Transport::Plain, &here, taker.address);
    assert_eq!(plain.ask(get("/")).text(), "far");
    assert_eq!(taker.dispatch().markers_refused, 1);
    taker.assert_counts((1, 1, 0));
}

#[test]
fn nodes_that_accept_encryption_receive_both_and_send_plain() {
    let (fleet, here, there) =
        (Fleet::new(), HttpBackend::named("here"), HttpBackend::named("there"));
    let taker = Plan::new("b", &there).travels(fleet.accepted("b")).start();
    for transport in [Transport::Plain, fleet.accepted("a"), fleet.required("a")] {
        let giver = giver(transport, &here, taker.address);
        assert_eq!(giver.ask(get("/")).text(), "there");
        assert!(giver.failures("b").is_empty());
    }
    taker.assert_counts((0, 0, 3));
    let old = Plan::new("b", &there).start();
    let changing = giver(fleet.accepted("a"), &here, old.address);
    assert_eq!(changing.ask(get("/")).text(), "there");
    old.assert_counts((0, 0, 1));
}

#[test]
fn a_marker_is_refused_with_the_certificate_of_another_node() {
    let fleet = Fleet::new();
    let (here, there, thief) =
        (HttpBackend::named("here"), HttpBackend::named("there"), HttpBackend::named("thief"));
    let plain = giver(Transport::Plain, &here, thief.address());
    plain.ask(get("/seen"));
    let line = signed_lines(&thief);
    let taker = Plan::new("b", &there).travels(fleet.required("b")).start();
    let request = with_lines("GET", "/seen", &line);
    for (node, believed) in [("c", 0), ("a", 1)] {
        let answer = ask(taker.address, &fleet.client(node), &request).expect("a peer is served");
        assert!(answer.ends_with("there"), "{answer}");
        assert!(eventually(|| taker.counts().2 == believed), "{node}: {:?}", taker.counts());
    }
    assert_eq!(taker.dispatch().markers_refused, 1);
}

#[test]
fn a_request_from_a_peer_is_served_locally_without_a_marker() {
    let fleet = Fleet::new();
    let (there, far) = (HttpBackend::named("there"), HttpBackend::named("far"));
    let next = Plan::new("c", &far).travels(fleet.required("c")).start();
    let taker = Plan::new("b", &there).keep(0.0).travels(fleet.required("b"));
    let taker = taker.peers(&[("c", next.address)]).start();
    let answer = ask(taker.address, &fleet.client("a"), &get("/")).expect("it is served");
    assert!(answer.ends_with("there"), "{answer}");
    assert_eq!(taker.ask(get("/")).text(), "far");
}

#[test]
fn an_evicted_node_is_refused_on_open_sessions_too() {
    let (fleet, here, there) =
        (Fleet::new(), HttpBackend::named("here"), HttpBackend::named("there"));
    let (giver, taker) = pair(&fleet, &here, &there);
    assert_eq!(giver.ask(get("/")).text(), "there");
    let config = fleet.client("a");
    let mut open = connect(taker.address, &config);
    open.write_all(get("/open").as_bytes()).expect("it is taken");
    let mut first = [0; 12];
    open.read_exact(&mut first).expect("it is answered");
    assert_eq!(&first, b"HTTP/1.1 200");
    fleet.shut_out("a");
    open.write_all(get("/late").as_bytes()).expect("the connection is open");
    let mut rest = Vec::new();
    let _ = open.read_to_end(&mut rest);
    assert!(!rest.windows(4).any(|it| it == b"HTTP"), "{}", String::from_utf8_lossy(&rest));
    assert!(!there.requests().iter().any(|it| it.head.target() == "/late"));
    let told = ask(taker.address, &config, &get("/")).expect_err("nor may it come again");
    assert!(!told.is_empty());
    taker.assert_drops(&[(Reason::PeerRefused, 2)]);
    // In the other direction: an evicted target receives nothing, not even on open sessions.
    fleet.shut_out("b");
    let before = there.requests().len();
    assert_eq!(giver.ask(get("/")).text(), "here");
    assert_eq!(there.requests().len(), before);
}

#[test]
fn a_response_truncated_by_a_peer_is_not_taken_as_complete() {
    let (fleet, here) = (Fleet::new(), HttpBackend::named("here"));
    let head = "HTTP/1.1 200 OK\r\n";
    let cut = [
        format!("{head}Content-Length: 10\r\n\r\nhello"),
        format!("{head}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"),
        // The body ends with the connection, without a TLS close: an attacker may have cut it.
        format!("{head}Connection: close\r\n\r\nhello"),
    ];
    for bytes in cut {
        let peer = one_answer(fleet.server("b"), bytes.clone().into_bytes(), false);
        let giver = giver(fleet.required("a"), &here, peer);
        let mut client = Client::connect(giver.address);
        client.send(get("/"));
        assert!(client.response().is_err(), "{bytes}");
    }
    let whole = format!("{head}Connection: close\r\n\r\nhello").into_bytes();
    let peer = one_answer(fleet.server("b"), whole, true);
    let giver = giver(fleet.required("a"), &here, peer);
    assert_eq!(giver.ask(get("/")).text(), "hello", "this one was announced");
    assert!(here.requests().is_empty());
}

#[test]
fn a_request_is_served_locally_if_the_peer_dies_before_responding() {
    let (fleet, here) = (Fleet::new(), HttpBackend::named("here"));
    let peer = one_answer(fleet.server("b"), Vec::new(), false);
    let giver = giver(fleet.required("a"), &here, peer);
    assert_eq!(giver.ask(get("/")).text(), "here");
    assert_eq!(giver.dispatch().returned, 1);
}

/// Sends bytes, ends its side, and waits for the end of the other side.
fn throw(at: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(at).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.read_to_end(&mut Vec::new());
}

/// The first flight of a client.
fn hello(fleet: &Fleet) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut client = connect_nowhere(fleet);
    client.write_tls(&mut bytes).expect("a vector takes it");
    bytes
}

fn connect_nowhere(fleet: &Fleet) -> rustls::ClientConnection {
    let name = "peer.invalid".try_into().expect("a host name");
    rustls::ClientConnection::new(fleet.client("a"), name).expect("a client")
}

#[test]
fn truncated_and_garbled_handshakes_are_refused_and_counted() {
    let (fleet, there) = (Fleet::new(), HttpBackend::named("there"));
    let taker = Plan::new("b", &there).travels(fleet.required("b")).start();
    let hello = hello(&fleet);
    let mut thrown = 0;
    for cut in (1..hello.len()).step_by(7) {
        throw(taker.address, &hello[..cut]);
        thrown += 1;
    }
    let mut rng = SmallRng::seed_from_u64(6);
    for _ in 0..150 {
        let mut bytes = match rng.random_bool(0.5) {
            true => hello.clone(),
            false => (0..rng.random_range(1..2000)).map(|_| rng.random()).collect(),
        };
        for _ in 0..rng.random_range(1..4) {
            let at = rng.random_range(0..bytes.len());
            bytes[at] = rng.random();
        }
        bytes[0] = 0x16;
        throw(taker.address, &bytes);
        thrown += 1;
    }
    taker.assert_drops(&[(Reason::PeerRefused, thrown)]);
    assert_eq!(taker.ask(get("/")).text(), "there");
    assert!(eventually(|| taker.status().connections_open == 0), "nothing is held");
}

#[test]
fn garbage_after_the_handshake_ends_the_connection_and_is_discarded() {
    let (fleet, there) = (Fleet::new(), HttpBackend::named("there"));
    let taker = Plan::new("b", &there).travels(fleet.required("b")).start();
    let config = fleet.client("a");
    let mut rng = SmallRng::seed_from_u64(7);
    for turn in 0..60 {
        let mut stream = connect(taker.address, &config);
        stream.write_all(get("/fine").as_bytes()).expect("it is taken");
        stream.read_exact(&mut [0; 12]).expect("it is answered");
        let length = rng.random_range(1..40_000);
        let mut garbage: Vec<u8> = (0..length).map(|_| rng.random()).collect();
        if turn % 2 == 0 {
            // A well-formed record with unencrypted content.
            let payload = (garbage.len() as u16).min(16_000).to_be_bytes();
            garbage.splice(..0, [23, 3, 3, payload[0], payload[1]]);
        }
        let mut raw = stream.sock.try_clone().expect("a descriptor");
        let _ = raw.write_all(&garbage);
        let _ = raw.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert_eq!(there.requests().len(), 60, "only what was encrypted");
    assert!(eventually(|| taker.status().connections_open == 0), "nothing is held");
}

#[test]
fn garbage_instead_of_a_response_fails_the_request() {
    let (fleet, here) = (Fleet::new(), HttpBackend::named("here"));
    let mut rng = SmallRng::seed_from_u64(8);
    for _ in 0..20 {
        let bytes = (0..rng.random_range(1..3000)).map(|_| rng.random()).collect();
        // TLS is valid, and its content is not.
        let peer = one_answer(fleet.server("b"), bytes, true);
        let giver = giver(fleet.required("a"), &here, peer);
        assert_eq!(giver.ask(get("/")).status(), 502);
        assert_eq!(giver.failures("b"), [(Reason::UpstreamMalformed, 1)]);
        giver.assert_drops(&[(Reason::UpstreamMalformed, 1)]);
    }
    assert!(here.requests().is_empty(), "the peer may have processed it");
}
