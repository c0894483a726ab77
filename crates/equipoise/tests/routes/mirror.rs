//! Copies of requests to another pool: what they are, and that nothing that happens to them reaches
//! the requests.

use std::collections::BTreeMap;

use equipoise_testkit::{
    Answer, Client, FullBacklog, Gate, HttpBackend, Received, Step, eventually, free_port,
};

use super::Rig;
use crate::common::get;

/// Counts of the first route's mirror that are not zero.
fn outcomes(rig: &Rig) -> BTreeMap<String, u64> {
    let status: serde_json::Value =
        serde_json::from_str(&rig.command(&["status", "--json"])).expect("JSON");
    let outcomes = status["front_doors"][0]["routes"][0]["mirror"]["outcomes"].clone();
    let mut outcomes: BTreeMap<String, u64> = serde_json::from_value(outcomes).expect("counts");
    outcomes.retain(|_, count| *count > 0);
    outcomes
}

#[track_caller]
fn assert_outcomes(rig: &Rig, expected: &[(&str, u64)]) {
    let expected: BTreeMap<_, _> =
        expected.iter().map(|(name, count)| (name.to_string(), *count)).collect();
    eventually(|| outcomes(rig) == expected);
    assert_eq!(outcomes(rig), expected);
}

/// The names and values of a request's head that its copy does not have, and the other way round.
fn differences(request: &Received, copy: &Received) -> Vec<(String, String)> {
    let (one, other) = (&request.head.headers, &copy.head.headers);
    let apart = |a: &[(String, String)], b: &[(String, String)]| {
        a.iter().filter(|field| !b.contains(field)).cloned().collect::<Vec<_>>()
    };
    [apart(one, other), apart(other, one)].concat()
}

fn whole(count: usize) -> impl FnMut(&[Received]) -> bool {
    move |requests| requests.len() == count && requests.iter().all(|it| it.complete)
}

#[test]
fn a_copy_is_the_request_with_a_mark_and_its_answer_is_dropped() {
    let rig = Rig::new(
        "mirror-copies",
        r#"
        [[session.route]]
        name = "shop"
        path-prefix = "/shop"
        mirror = { pool = "canary" }
        rewrite = { prefix = "/" }
        request-headers = { set = "X-Team: a" }
        "#,
    );
    let body = "x".repeat(60_000);
    let sized = format!("Content-Length: {}\r\n\r\n{body}", body.len());
    let chunked = format!("Transfer-Encoding: chunked\r\n\r\nea60\r\n{body}\r\n0\r\n\r\n");
    let requests = [
        "GET /shop/a HTTP/1.1\r\nHost: a.example\r\nequipoise-mirrored: forged\r\n\r\n".to_string(),
        "GET /shop/b HTTP/1.0\r\nHost: a.example\r\n\r\n".to_string(),
        format!("POST /shop/c HTTP/1.1\r\nHost: a.example\r\n{sized}"),
        format!("PUT /shop/d HTTP/1.1\r\nHost: a.example\r\n{chunked}"),
    ];
    for (count, request) in (1..).zip(&requests) {
        let mut client = Client::connect(rig.front.address());
        // The second half of a body arrives when the first has been passed on.
        let (first, second) = request.split_at(request.len() - request.len() / 3);
        client.send(first);
        if request.len() > 10_000 {
            assert!(rig.backends[0].wait(|requests| requests.len() == count));
        }
        let response = client.send(second).response().expect("an answer");
        assert!(response.text().starts_with("main "), "{}", response.text());
        assert!(rig.backends[2].wait(whole(count)), "{:?}", outcomes(&rig));
    }
    let shown = rig.curl("/shop/e", &["--data", &body]);
    assert!(shown.starts_with("main ") && shown.contains("\n2 200"), "{shown}");
    let shown = rig.curl("/shop/f", &[]);
    assert!(shown.starts_with("main ") && shown.contains("\n2 200"), "{shown}");
    assert!(rig.backends[2].wait(whole(6)), "{:?}", outcomes(&rig));
    let [main, _, canary] = &rig.backends;
    let mark = ("equipoise-mirrored".to_string(), "shop".to_string());
    for (request, copy) in main.requests().iter().zip(canary.requests()) {
        assert_eq!(request.head.start, copy.head.start);
        let differences = differences(request, &copy);
        assert_eq!(differences, std::slice::from_ref(&mark), "{}", copy.head.start);
        assert!(request.body == copy.body, "{}", copy.head.start);
        assert_eq!(copy.head.header("x-team"), Some("a"));
    }
    assert_outcomes(&rig, &[("answered", 6)]);
    // Requests of other routes are not copied, and a reload that takes the mirror away ends it.
    assert_eq!(rig.ask("a.example", "GET /", "").status(), 200);
    rig.reload("", "[[session.route]]\nname = \"shop\"\npath-prefix = \"/shop\"\n");
    assert_eq!(rig.ask("a.example", "GET /shop", "").status(), 200);
    assert_eq!(canary.requests().len(), 6);
    assert!(main.malformed().is_empty() && canary.malformed().is_empty());
}

#[test]
fn a_share_of_requests_is_copied() {
    let rig = Rig::new(
        "mirror-share",
        "[[session.route]]\npath-prefix = \"/\"\nmirror = { pool = \"canary\", share = 0.25 }\n",
    );
    for _ in 0..400 {
        assert_eq!(rig.ask("a.example", "GET /", "").status(), 200);
    }
    eventually(|| {
        outcomes(&rig).get("answered") == Some(&(rig.backends[2].requests().len() as u64))
    });
    let copies = rig.backends[2].requests().len();
    assert!((50..150).contains(&copies), "{copies} of 400, with a quarter wanted");
}

#[test]
fn a_larger_body_or_an_upgrade_is_not_copied() {
    let rig = Rig::new(
        "mirror-bodies",
        "[[session.route]]\npath-prefix = \"/\"\n\
         mirror = { pool = \"canary\", body-max = \"1KiB\" }\n",
    );
    let body = "x".repeat(100_000);
    let sized = format!("Content-Length: {}\r\n\r\n{body}", body.len());
    let chunked = format!("Transfer-Encoding: chunked\r\n\r\n186a0\r\n{body}\r\n0\r\n\r\n");
    for framed in [sized, chunked] {
        let mut client = Client::connect(rig.front.address());
        client.send(format!("POST / HTTP/1.1\r\nHost: a.example\r\n{framed}"));
        assert_eq!(client.response().expect("an answer").status(), 200);
    }
    assert_outcomes(&rig, &[("body_too_large", 2)]);
    assert!(rig.backends[0].requests().iter().all(|it| it.body_bytes == 100_000));
    let mut cut = Client::connect(rig.front.address());
    cut.send("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 100\r\n\r\nabc");
    assert!(rig.backends[0].wait(|requests| requests.len() == 3));
    drop(cut);
    assert_outcomes(&rig, &[("body_too_large", 2), ("body_incomplete", 1)]);
    let upgrade = "Connection: upgrade\r\nUpgrade: websocket\r\n";
    assert_eq!(rig.ask("a.example", "GET /", upgrade).status(), 200);
    assert_outcomes(&rig, &[("body_too_large", 2), ("body_incomplete", 1)]);
    assert_eq!(rig.backends[2].requests().len(), 0);
}

#[test]
fn requests_do_not_wait_for_a_slow_mirror_with_bounded_copies() {
    let gate = Gate::new();
    let slow = {
        let gate = gate.clone();
        HttpBackend::start(move |_| Answer::sized(500, "late").first(Step::Wait(gate.clone())))
    };
    let fast = || HttpBackend::always(Answer::ok("fast"));
    let routes = "[[session.route]]\nname = \"all\"\npath-prefix = \"/\"\n\
                  mirror = { pool = \"canary\", concurrency = 3 }\n";
    let rig = Rig::before("mirror-slow", [fast(), fast(), slow], "", routes);
    // All of them are answered while the mirror answers none.
    for _ in 0..25 {
        assert_eq!(rig.ask("a.example", "GET /", "").text(), "fast");
        let shown = rig.curl("/", &["--data", "abc"]);
        assert!(shown.starts_with("fast\n2 200"), "{shown}");
    }
    assert_outcomes(&rig, &[("in_flight", 47)]);
    let metrics = get(rig.api.address(), "/metrics").text();
    let labels = "front_door=\"door\",route=\"all\"";
    for line in [
        format!("equipoise_mirrored_requests_in_flight{{{labels}}} 3"),
        format!("equipoise_mirrored_requests_total{{{labels},outcome=\"in_flight\"}} 47"),
        format!("equipoise_mirrored_requests_total{{{labels},outcome=\"answered\"}} 0"),
    ] {
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
    assert!(rig.command(&["status"]).contains("main, copies to canary"));
    gate.open();
    assert_outcomes(&rig, &[("answered", 3), ("in_flight", 47)]);
    assert_eq!(rig.ask("a.example", "GET /", "").text(), "fast");
    assert_outcomes(&rig, &[("answered", 4), ("in_flight", 47)]);
    assert_eq!(rig.backends[2].requests().len(), 4);
}

#[test]
fn a_failing_mirror_does_not_affect_the_requests() {
    let (dead, full) = (free_port(), FullBacklog::start());
    let broken = HttpBackend::always(Answer::raw("nonsense\r\n\r\n"));
    let silent = HttpBackend::always(Answer::hang());
    let closing = HttpBackend::always(Answer::close());
    for (name, address) in [
        ("dead", dead.address()),
        ("full", full.address()),
        ("broken", broken.address()),
        ("silent", silent.address()),
        ("closing", closing.address()),
    ] {
        let routes = format!(
            "[[session.route]]\npath-prefix = \"/\"\nmirror = {{ pool = \"shadow\" }}\n\
             [[pool]]\nname = \"shadow\"\nbackends = [\"{address}\"]\n\
             connect-timeout = \"100ms\"\nresponse-timeout = \"100ms\"\n"
        );
        let rig = Rig::new(&format!("mirror-{name}"), &routes);
        let body = "x".repeat(50_000);
        for _ in 0..10 {
            let post = format!("Content-Length: {}\r\n\r\n{body}", body.len());
            let mut client = Client::connect(rig.front.address());
            client.send(format!("POST / HTTP/1.1\r\nHost: a.example\r\n{post}"));
            assert_eq!(client.response().expect("an answer").status(), 200, "{name}");
            let shown = rig.curl("/", &[]);
            assert!(shown.starts_with("main ") && shown.contains("\n2 200"), "{name}: {shown}");
        }
        let not_answered = |outcomes: &BTreeMap<String, u64>| {
            let of = |name: &str| outcomes.get(name).copied().unwrap_or_default();
            of("failed") + of("no_backend") + of("no_room") == 20 && of("failed") > 0
        };
        assert!(eventually(|| not_answered(&outcomes(&rig))), "{name}: {:?}", outcomes(&rig));
        let status: serde_json::Value =
            serde_json::from_str(&rig.command(&["status", "--json"])).expect("JSON");
        let door = &status["front_doors"][0];
        assert_eq!(door["drops"], serde_json::json!({}), "{name}");
        assert_eq!((&door["requests_total"], &door["responses"]["2xx"]), (&20.into(), &20.into()));
        // Never retried.
        let tried = [&broken, &silent, &closing].map(|backend| backend.requests().len());
        assert!(tried.iter().all(|count| *count <= 20), "{name}: {tried:?}");
        assert_eq!(rig.process.printed().matches("panicked").count(), 0);
    }
}

#[test]
fn a_mirror_pool_may_be_http2_or_multiplexed() {
    let shared = HttpBackend::named("shared");
    let rig = Rig::new("mirror-pools", "");
    let routes = format!(
        r#"
        [[session.route]]
        path-prefix = "/streams"
        header = "X-Copied: yes"
        mirror = {{ pool = "streams" }}
        request-headers = {{ remove = "X-Copied" }}
        [[session.route]]
        path-prefix = "/shared"
        mirror = {{ pool = "shared" }}
        [[session.route]]
        path-prefix = "/streams"
        pool = "canary"
        [[pool]]
        name = "streams"
        upstream = "http2"
        backends = ["{}"]
        [[pool]]
        name = "shared"
        upstream = "multiplexed"
        backends = ["{}"]
        "#,
        rig.front.address(),
        shared.address()
    );
    rig.reload("", &routes);
    for count in 1..=5 {
        let body = "x".repeat(30_000);
        let post = format!("X-Copied: yes\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let mut client = Client::connect(rig.front.address());
        client.send(format!("POST /streams HTTP/1.1\r\nHost: a.example\r\n{post}"));
        assert!(client.response().expect("an answer").text().starts_with("main "));
        assert_eq!(rig.pool("a.example", "GET /shared", ""), "main");
        // The copy comes back to this front door over HTTP/2, and goes on to the canary.
        assert!(rig.backends[2].wait(whole(count)), "{:?}", outcomes(&rig));
        assert!(shared.wait(whole(count)));
    }
    let canary = rig.backends[2].requests();
    assert!(canary.iter().all(|it| it.body_bytes == 30_000), "{canary:?}");
    assert_outcomes(&rig, &[("answered", 5)]);
}
