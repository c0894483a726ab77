//! Bodies of every size and framing arrive as they were sent.

mod common;

use std::thread;
use std::time::Duration;

use common::{Proxy, both_upstreams, post_chunked, request};
use equipoise_session::config::Upstream;
use equipoise_testkit::{Answer, Client, HttpBackend, Intake, PATIENCE, Pattern, Step};

const LARGE_BYTES: u64 = 64 << 20;

/// Sizes around every buffer size that an implementation may use.
fn edges() -> Vec<usize> {
    let mut sizes = vec![0, 1, 2, 100, 1000];
    for power in 10..=18 {
        let size = 1 << power;
        sizes.extend([size - 100, size - 1, size, size + 1]);
    }
    sizes
}

#[derive(Clone, Copy, Debug)]
enum Framed {
    Sized,
    Chunks(usize),
}

/// Sends a head and the first `bytes` bytes of a pattern from its own thread, as a client that must
/// read while it writes.
fn upload(client: &Client, framed: Framed, seed: u64, bytes: u64) -> thread::JoinHandle<()> {
    let mut writer = Client::over(client.stream().try_clone().expect("a descriptor is free"));
    let framing = match framed {
        Framed::Sized => format!("Content-Length: {bytes}\r\n"),
        Framed::Chunks(_) => "Transfer-Encoding: chunked\r\n".to_owned(),
    };
    thread::spawn(move || {
        writer.send(request("POST", "/", &framing));
        let mut pattern = Pattern::new(seed);
        while pattern.offset() < bytes {
            let left = (bytes - pattern.offset()) as usize;
            match framed {
                Framed::Sized => drop(writer.send(pattern.next(left))),
                Framed::Chunks(size) => {
                    let piece = pattern.next(left.min(size));
                    let line = format!("{:x}\r\n", piece.len());
                    writer.send([line.as_bytes(), piece, b"\r\n"].concat());
                }
            }
        }
        if let Framed::Chunks(_) = framed {
            writer.send("0\r\n\r\n");
        }
    })
}

/// Reads a response and checks that its body is the pattern.
#[track_caller]
fn download(client: &mut Client, seed: u64, bytes: u64) {
    // A backend that checks a large body answers only when it has all of it.
    client.patience(6 * PATIENCE);
    let mut pattern = Pattern::new(seed);
    let mut verdict = Ok(());
    let head = client.response_into(&mut |b| verdict = verdict.and_then(|()| pattern.check(b)));
    assert_eq!(head.map(|h| h.status()), Ok(200));
    assert_eq!((verdict, pattern.offset()), (Ok(()), bytes));
}

both_upstreams! {
    bodies_of_every_size_arrive_both_ways_on_one_connection,
    bodies_of_64_mib_arrive_both_ways,
    a_large_body_up_to_the_close_arrives_whole,
    tiny_chunks_arrive_both_ways,
    a_backend_that_reads_slowly_gets_the_whole_body,
    a_client_that_reads_slowly_gets_the_whole_body,
    a_response_that_begins_before_the_request_has_ended_flows_at_once,
    pieces_of_a_response_are_not_held_back,
    pieces_of_a_request_are_not_held_back,
    get_and_delete_may_have_a_body,
}

fn bodies_of_every_size_arrive_both_ways_on_one_connection(mode: Upstream) {
    let backend = HttpBackend::start(|r| {
        let (_, query) = r.head.target().split_once('?').expect("it has a query");
        let (bytes, chunk) = query.split_once(',').expect("two numbers");
        let (bytes, chunk) = (bytes.parse().expect("a number"), chunk.parse().expect("a number"));
        let answer = if chunk == 0 {
            Answer::pattern(2, bytes)
        } else {
            Answer::pattern_chunked(2, bytes, chunk)
        };
        answer.intake(Intake::Check(1))
    });
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    for bytes in edges() {
        for chunk in [0, 1000, 65_536] {
            let body = Pattern::bytes(1, bytes);
            let target = format!("/?{bytes},{chunk}");
            let sized = request("POST", &target, &format!("Content-Length: {bytes}\r\n"));
            client.send([sized.as_bytes(), &body].concat());
            download(&mut client, 2, bytes as u64);
            client.send(request("PUT", &target, "Transfer-Encoding: chunked\r\n"));
            for piece in body.chunks(chunk.max(7000)) {
                client.send([format!("{:X}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
            }
            client.send("0\r\n\r\n");
            download(&mut client, 2, bytes as u64);
        }
    }
    assert_eq!(backend.completed(), edges().len() * 6);
    proxy.assert_drops(&[]);
}

fn bodies_of_64_mib_arrive_both_ways(mode: Upstream) {
    for (sent, chunk) in [(Framed::Sized, None), (Framed::Chunks(50_000), Some(10_000))] {
        let answer = match chunk {
            None => Answer::pattern(4, LARGE_BYTES),
            Some(chunk) => Answer::pattern_chunked(4, LARGE_BYTES, chunk),
        };
        let backend = HttpBackend::always(answer.intake(Intake::Check(3)));
        let proxy = Proxy::before(mode, &backend);
        let mut client = proxy.connect();
        let sender = upload(&client, sent, 3, LARGE_BYTES);
        download(&mut client, 4, LARGE_BYTES);
        sender.join().expect("all was sent");
        assert_eq!((backend.completed(), backend.requests()[0].body_bytes), (1, LARGE_BYTES));
        proxy.assert_drops(&[]);
    }
}

fn a_large_body_up_to_the_close_arrives_whole(mode: Upstream) {
    let bytes = 5_000_000;
    let answer =
        Answer::raw("HTTP/1.1 200 OK\r\n\r\n").then(Step::Pattern { seed: 9, bytes, chunk: None });
    let backend = HttpBackend::always(answer.then(Step::Close));
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    client.send(request("GET", "/", ""));
    download(&mut client, 9, bytes);
    proxy.assert_drops(&[]);
}

fn tiny_chunks_arrive_both_ways(mode: Upstream) {
    let backend =
        HttpBackend::always(Answer::pattern_chunked(2, 20_000, 1).intake(Intake::Check(1)));
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    let sender = upload(&client, Framed::Chunks(1), 1, 20_000);
    download(&mut client, 2, 20_000);
    sender.join().expect("all was sent");
    assert_eq!(backend.completed(), 1);
}

fn a_backend_that_reads_slowly_gets_the_whole_body(mode: Upstream) {
    let backend = HttpBackend::always(
        Answer::ok("x").intake(Intake::Slow(32 << 10, Duration::from_millis(2))),
    );
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    let sender = upload(&client, Framed::Sized, 1, 4 << 20);
    assert_eq!(client.response().expect("an answer").status(), 200);
    sender.join().expect("all was sent");
    assert_eq!(Pattern::new(1).check(&backend.requests()[0].body), Ok(()));
    assert_eq!(backend.requests()[0].body_bytes, 4 << 20);
}

fn a_client_that_reads_slowly_gets_the_whole_body(mode: Upstream) {
    let bytes = 4 << 20;
    let backend = HttpBackend::always(Answer::pattern(2, bytes));
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    client.send(request("GET", "/", ""));
    let mut pattern = Pattern::new(2);
    let mut verdict = Ok(());
    let head = client.response_into(&mut |piece| {
        thread::sleep(Duration::from_millis(2));
        verdict = verdict.and_then(|()| pattern.check(piece));
    });
    assert_eq!(head.map(|h| h.status()), Ok(200));
    assert_eq!((verdict, pattern.offset()), (Ok(()), bytes));
}

fn a_response_that_begins_before_the_request_has_ended_flows_at_once(mode: Upstream) {
    let begin = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n";
    let answer = Answer::default()
        .before_body(Step::Send(begin.to_vec()))
        .then(Step::Send(b"4\r\nlast\r\n0\r\n\r\n".to_vec()));
    let backend = HttpBackend::always(answer);
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    client.send(request("POST", "/", "Content-Length: 6\r\n")).send("abc");
    assert_eq!(client.head().expect("it has begun").status(), 200);
    let mut seen = Vec::new();
    while !seen.ends_with(b"first") {
        seen.extend(client.read_exactly(1).expect("the first piece"));
    }
    client.send("def");
    while !seen.ends_with(b"0\r\n\r\n") {
        seen.extend(client.read_exactly(1).expect("the rest"));
    }
    assert!(String::from_utf8_lossy(&seen).contains("last"));
    assert_eq!(backend.requests()[0].body, b"abcdef");
}

fn pieces_of_a_response_are_not_held_back(mode: Upstream) {
    let gate = equipoise_testkit::Gate::new();
    let answer = Answer::raw("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc")
        .then(Step::Wait(gate.clone()));
    let backend = HttpBackend::always(answer.then(Step::Send(b"def".to_vec())));
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    client.send(request("GET", "/", ""));
    client.head().expect("it has begun");
    assert_eq!(client.read_exactly(3), Ok(b"abc".to_vec()));
    gate.open();
    assert_eq!(client.read_exactly(3), Ok(b"def".to_vec()));
}

fn pieces_of_a_request_are_not_held_back(mode: Upstream) {
    let backend = HttpBackend::always(Answer::ok("x"));
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    client.send(request("POST", "/", "Content-Length: 6\r\n")).send("abc");
    assert!(backend.wait(|r| r.first().is_some_and(|r| r.body == b"abc")));
    client.send("def");
    assert_eq!(client.response().expect("an answer").status(), 200);
}

fn get_and_delete_may_have_a_body(mode: Upstream) {
    let backend = HttpBackend::echo();
    let proxy = Proxy::before(mode, &backend);
    for method in ["GET", "DELETE", "OPTIONS", "PATCH", "REPORT"] {
        let sized = format!("{}abc", request(method, "/", "Content-Length: 3\r\n"));
        let chunked = post_chunked("/", "abc").replacen("POST", method, 1);
        let mut client = proxy.connect();
        for request in [sized, chunked] {
            assert_eq!(client.ask(request).map(|r| r.status()), Ok(200), "{method}");
            assert_eq!(backend.requests().pop().map(|r| r.body), Some(b"abc".to_vec()), "{method}");
        }
    }
}
