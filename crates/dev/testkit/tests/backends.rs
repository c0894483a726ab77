//! The samples themselves, without a proxy between.

use std::net::UdpSocket;
use std::time::Duration;

use equipoise_testkit::{
    Answer, Client, Ending, HttpBackend, Intake, Pattern, Step, TcpBackend, TcpBehaviour, UdpEcho,
    WireError,
};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn an_echo_backend_returns_the_request_unchanged() {
    let backend = HttpBackend::echo();
    let request = "POST /x HTTP/1.1\r\nHost: a\r\nA:  b\r\nContent-Length: 3\r\n\r\nxyz";
    let response = Client::exchange(backend.address(), request).expect("a response");
    assert_eq!((response.status(), response.text()), (200, request.to_owned()));
    assert_eq!(backend.completed(), 1);
    assert_eq!(backend.counts().bytes, request.len() as u64);
}

#[test]
fn pipelined_requests_are_answered_in_order_on_one_connection() {
    let backend = HttpBackend::start(|r| Answer::ok(r.head.target()));
    let mut client = Client::connect(backend.address());
    client.send("GET /1 HTTP/1.1\r\n\r\nHEAD /2 HTTP/1.1\r\n\r\nGET /3 HTTP/1.1\r\n\r\n");
    assert_eq!(client.response().expect("the first").text(), "/1");
    assert_eq!(client.response_to("HEAD").expect("the second").text(), "");
    assert_eq!(client.response().expect("the third").text(), "/3");
    assert_eq!(backend.counts().accepted, 1);
}

#[test]
fn every_kind_of_body_is_read_back() {
    let cases = [
        (Answer::chunked(&["ab", "cde"], &["T: 1"]), "abcde"),
        (Answer::to_close("abc"), "abc"),
        (Answer::http10("abc"), "abc"),
        (Answer::bare(204), ""),
        (Answer::ok("abc").then(Step::Close), "abc"),
    ];
    for (answer, body) in cases {
        let backend = HttpBackend::always(answer.clone());
        let response = Client::exchange(backend.address(), GET);
        assert_eq!(response.expect("a response").text(), body, "{answer:?}");
    }
}

#[test]
fn the_client_reports_the_kind_of_each_injected_fault() {
    let cut = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc";
    let cases = [
        (Answer::close(), WireError::Closed),
        (Answer::reset(), WireError::Reset),
        (Answer::raw(cut).then(Step::Close), WireError::Truncated),
        (Answer::hang(), WireError::TimedOut),
    ];
    for (answer, error) in cases {
        let backend = HttpBackend::always(answer);
        let mut client = Client::connect(backend.address());
        if error == WireError::TimedOut {
            client.patience(Duration::from_millis(200));
        }
        assert_eq!(client.ask(GET), Err(error));
    }
}

#[test]
fn generated_bodies_are_checked_on_both_sides() {
    let bytes = 3 << 20;
    for answer in [Answer::pattern(5, bytes), Answer::pattern_chunked(5, bytes, 1000)] {
        let backend = HttpBackend::always(answer.intake(Intake::Check(6)));
        let mut client = Client::connect(backend.address());
        client.send(format!("POST / HTTP/1.1\r\nContent-Length: {bytes}\r\n\r\n"));
        client.send(Pattern::bytes(6, bytes as usize));
        let mut pattern = Pattern::new(5);
        let mut verdict = Ok(());
        let read = client.response_into(&mut |b| verdict = verdict.and_then(|()| pattern.check(b)));
        read.expect("a response");
        assert_eq!((verdict, pattern.offset()), (Ok(()), bytes));
        assert_eq!(backend.completed(), 1);
    }
}

#[test]
fn a_stopped_backend_refuses_connections_and_restarts_on_its_port() {
    let backend = HttpBackend::named("b");
    let mut client = Client::connect(backend.address());
    client.ask(GET).expect("a response");
    backend.acceptor().stop();
    assert_eq!(client.read_to_end().1, Ending::Closed);
    assert!(std::net::TcpStream::connect(backend.address()).is_err());
    backend.acceptor().restart();
    assert_eq!(Client::exchange(backend.address(), GET).expect("a response").text(), "b");
    assert!(backend.acceptor().wait(|c| c.open == 0));
    assert_eq!(backend.counts().accepted, 2);
}

#[test]
fn tcp_and_udp_samples_behave_as_named() {
    let count = TcpBackend::start(TcpBehaviour::CountAtEnd);
    let mut client = Client::connect(count.address());
    assert_eq!(client.send("12345").finish().read_to_end(), (b"5".to_vec(), Ending::Closed));

    let source = TcpBackend::start(TcpBehaviour::Source { seed: 1, bytes: 200_000 });
    let (bytes, ending) = Client::connect(source.address()).read_to_end();
    assert_eq!(
        (Pattern::new(1).check(&bytes), bytes.len(), ending),
        (Ok(()), 200_000, Ending::Closed)
    );

    let reset = TcpBackend::start(TcpBehaviour::ResetAfter(1));
    assert_eq!(Client::connect(reset.address()).send("1").read_to_end().1, Ending::Reset);

    let echo = UdpEcho::start();
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.send_to(b"hello", echo.address()).expect("sent");
    let mut buffer = [0; 16];
    assert_eq!(socket.recv(&mut buffer).expect("an answer"), 5);
    assert_eq!(echo.seen(), [(socket.local_addr().expect("bound"), b"hello".to_vec())]);
}
