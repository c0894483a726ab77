//! Limits and body sizes of routes.

use equipoise_testkit::{Answer, Client, Gate, HttpBackend, Step, eventually};

use super::Rig;

/// The statuses of several requests with this line.
fn statuses(rig: &Rig, line: &str, count: usize) -> Vec<u16> {
    (0..count).map(|_| rig.ask("a.example", line, "").status()).collect()
}

#[test]
fn a_route_has_a_rate_of_its_own() {
    let rig = Rig::with(
        "routes-rates",
        "limit = [{ by = \"front-door\", rate = \"1/h\", burst = 6 }]",
        r#"
        [[session.route]]
        path-prefix = ["/login", "/password"]
        [[session.route.limit]]
        rate = "2/h"
        burst = 2
        [[session.route]]
        path-prefix = "/moved"
        redirect = { to = "/login" }
        limit = [{ by = "header:X-Key", rate = "1/h" }]
        "#,
    );
    assert_eq!(statuses(&rig, "GET /login", 1), [200]);
    // Both paths of the route count together.
    assert_eq!(statuses(&rig, "GET /password", 2), [200, 429]);
    let refused = rig.ask("a.example", "GET /login", "");
    assert_eq!(refused.status(), 429);
    // The route's rate, not that of the front door, which is slower.
    let wait = refused.header("retry-after").and_then(|it| it.parse().ok());
    assert!(wait.is_some_and(|wait| (1700..=1800).contains(&wait)), "{wait:?}");
    let shown = rig.curl("/login", &[]);
    assert!(shown.contains("\n2 429"), "{shown}");
    let keyed = |key: &str| rig.ask("a.example", "GET /moved", &format!("X-Key: {key}\r\n"));
    assert_eq!([keyed("a"), keyed("a"), keyed("b")].map(|it| it.status()), [302, 429, 302]);
    // Requests that a route refused do not count at the front door, which permits two more.
    assert_eq!(statuses(&rig, "GET /", 3), [200, 200, 429]);
    let status: serde_json::Value =
        serde_json::from_str(&rig.command(&["status", "--json"])).expect("JSON");
    assert_eq!(status["front_doors"][0]["drops"]["rate_limited"], 5, "{status}");
}

#[test]
fn a_header_that_a_route_removes_counts_as_the_client_sent_it() {
    let rig = Rig::with(
        "routes-removed-keys",
        "limit = [{ by = \"header:X-Door\", rate = \"1/h\" }]",
        r#"
        [[session.route]]
        request-headers = { remove = ["X-Key", "X-Door"], set = "X-Key: ours" }
        limit = [{ by = "header:X-Key", rate = "2/h", burst = 2 }]
        "#,
    );
    let keyed = |key: &str, door: &str| {
        let lines = format!("X-Key: {key}\r\nX-Door: {door}\r\n");
        rig.ask("a.example", "GET /", &lines).status()
    };
    assert_eq!([keyed("a", "1"), keyed("b", "2"), keyed("b", "3")], [200; 3]);
    assert_eq!([keyed("b", "4"), keyed("c", "3"), keyed("c", "5")], [429, 429, 200]);
    let url = format!("http://{}/", rig.front.address());
    let asked = ["why", &url, "--header", "X-Key: b", "--header", "X-Door: 6"];
    let said = rig.command(&asked);
    assert!(said.contains("exceeded, for"), "{said}");
}

#[test]
fn a_route_bounds_the_requests_in_flight_tunnels_included() {
    let gate = Gate::new();
    let waiting = {
        let gate = gate.clone();
        HttpBackend::start(move |request| match request.head.target() {
            "/slow" => Answer::ok("late").first(Step::Wait(gate.clone())),
            "/slow/tunnel" => Answer::upgrade("websocket"),
            _ => Answer::ok("at once"),
        })
    };
    let backend = || HttpBackend::always(Answer::ok("else"));
    let routes = "[[session.route]]\npath-prefix = \"/slow\"\npool = \"other\"\n\
                  limit = [{ by = \"route\", concurrency = 2 }]\n";
    let rig = Rig::before("routes-concurrency", [backend(), waiting, backend()], "", routes);
    let mut tunnel = Client::connect(rig.front.address());
    tunnel.send(
        "GET /slow/tunnel HTTP/1.1\r\nHost: a.example\r\nConnection: upgrade\r\n\
         Upgrade: websocket\r\n\r\n",
    );
    assert_eq!(tunnel.head().expect("a head").status(), 101);
    let mut client = Client::connect(rig.front.address());
    client.send("GET /slow HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert!(rig.backends[1].wait(|requests| requests.len() == 2));
    let refused = rig.ask("a.example", "GET /slow/more", "");
    assert_eq!(refused.status(), 429);
    assert!(refused.text().contains("too many requests at once"), "{}", refused.text());
    assert_eq!(rig.ask("a.example", "GET /", "").status(), 200);
    gate.open();
    assert_eq!(client.response().expect("an answer").status(), 200);
    // The tunnel and one more are the two.
    assert!(eventually(|| rig.ask("a.example", "GET /slow/more", "").status() == 200));
    drop(tunnel);
}

#[test]
fn a_route_has_a_body_size_of_its_own() {
    let rig = Rig::with(
        "routes-bodies",
        "body-max = \"1000B\"",
        r#"
        [[session.route]]
        path-prefix = "/small"
        body-max = "10B"
        [[session.route]]
        path-prefix = "/large"
        body-max = "10KB"
        "#,
    );
    let size = |path: &str, bytes: usize, is_chunked: bool| {
        let body = "x".repeat(bytes);
        let (framing, body) = match is_chunked {
            false => (format!("Content-Length: {bytes}\r\n"), body),
            true => (
                "Transfer-Encoding: chunked\r\n".into(),
                format!("{bytes:x}\r\n{body}\r\n0\r\n\r\n"),
            ),
        };
        let request = format!("POST {path} HTTP/1.1\r\nHost: a.example\r\n{framing}\r\n{body}");
        let mut client = Client::connect(rig.front.address());
        let _ = client.try_send(request);
        client.response().expect("an answer").status()
    };
    for is_chunked in [false, true] {
        for (path, bytes, status) in [
            ("/small", 10, 200),
            ("/small", 11, 413),
            ("/else", 1000, 200),
            ("/else", 1001, 413),
            ("/large", 10_000, 200),
            ("/large", 10_001, 413),
        ] {
            assert_eq!(size(path, bytes, is_chunked), status, "{path} {bytes} {is_chunked}");
        }
    }
    let shown = rig.curl("/small", &["--data", "1234567890"]);
    assert!(shown.contains("\n2 200"), "{shown}");
}

#[test]
fn a_reload_keeps_the_counts_of_a_limit_that_stays() {
    let route = |name: &str, rate: &str| {
        format!(
            "[[session.route]]\nname = \"{name}\"\npath = \"/\"\nlimit = [{{ rate = \"{rate}\" }}]\n"
        )
    };
    let rig = Rig::new("routes-limits-reload", &route("a", "1/h"));
    assert_eq!(statuses(&rig, "GET /", 2), [200, 429]);
    rig.reload(
        "",
        &format!("[[session.route]]\npath = \"/x\"\nanswer = {{}}\n{}", route("a", "1/h")),
    );
    assert_eq!(statuses(&rig, "GET /", 1), [429]);
    rig.reload("", &route("a", "2/h"));
    assert_eq!(statuses(&rig, "GET /", 2), [200, 429]);
    rig.reload("", &route("b", "2/h"));
    assert_eq!(statuses(&rig, "GET /", 2), [200, 429]);
}
