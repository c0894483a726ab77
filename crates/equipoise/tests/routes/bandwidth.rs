//! Bounds on the rate of responses.

use std::time::{Duration, Instant};

use equipoise_testkit::{Answer, Client, HttpBackend, Pattern};

use super::Rig;

const BYTES: u64 = 1_000_000;

#[test]
fn responses_come_at_the_rate_of_their_route_or_front_door() {
    let backend = || {
        HttpBackend::start(|request| match request.head.target() {
            "/chunked" => Answer::pattern_chunked(7, BYTES, 50_000),
            _ => Answer::pattern(7, BYTES),
        })
    };
    let rig = Rig::before(
        "routes-bandwidth",
        [backend(), backend(), backend()],
        "bandwidth = \"1MB/s\"",
        r#"
        [[session.route]]
        path-prefix = "/half"
        bandwidth = "2MB/s"
        [[session.route]]
        path-prefix = "/fast"
        bandwidth = "1GB/s"
        "#,
    );
    // The first tenth of a second is free, and a busy machine takes longer.
    for (path, least) in [("/", 0.88), ("/chunked", 0.88), ("/half", 0.38), ("/fast", 0.0)] {
        let mut client = Client::connect(rig.front.address());
        let (mut pattern, begun) = (Pattern::new(7), Instant::now());
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n"));
        let head = client.response_into(&mut |bytes| pattern.check(bytes).expect("the pattern"));
        assert_eq!(head.expect("an answer").status(), 200);
        let took = begun.elapsed();
        assert_eq!(pattern.offset(), BYTES, "{path}");
        println!("{path}: {took:?}");
        assert!(took >= Duration::from_secs_f64(least), "{path}: {took:?}");
        assert!(took < Duration::from_secs_f64(least + 5.0), "{path}: {took:?}");
    }
    let begun = Instant::now();
    let shown = rig.curl("/", &["--output", "/dev/null"]);
    assert!(shown.contains("2 200"), "{shown}");
    assert!(begun.elapsed() >= Duration::from_millis(880), "{:?}", begun.elapsed());
    // Another client's response does not wait.
    let mut slow = Client::connect(rig.front.address());
    slow.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    let begun = Instant::now();
    assert_eq!(rig.ask("a.example", "HEAD /", "").status(), 200);
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
}
