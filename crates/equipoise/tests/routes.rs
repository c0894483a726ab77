//! Routes of http front doors with the real binary: each condition and action, over HTTP/1.1 and
//! HTTP/2, and through a reload.

#[path = "routes/bandwidth.rs"]
mod bandwidth;
mod common;
#[path = "routes/limits.rs"]
mod limits;
#[path = "routes/mirror.rs"]
mod mirror;
#[path = "routes/tunnels.rs"]
mod tunnels;

use std::path::PathBuf;
use std::process::Command;

use common::{Folder, Process, equipoise, get, reload, stderr, stdout, text};
use equipoise_testkit::{
    Answer, Client, Gate, HttpBackend, ReservedPort, Response, Step, free_port,
};

/// A process with backends `main`, `other` and `canary`, each of which answers with its name and
/// the head that it has received.
struct Rig {
    folder: Folder,
    front: ReservedPort,
    api: ReservedPort,
    backends: [HttpBackend; 3],
    process: Process,
}

const POOLS: [&str; 3] = ["main", "other", "canary"];

impl Rig {
    fn new(test: &str, routes: &str) -> Rig {
        Rig::with(test, "", routes)
    }

    /// `door` has further lines of the front door, `routes` its routes.
    fn with(test: &str, door: &str, routes: &str) -> Rig {
        let backend = |pool: &'static str| {
            HttpBackend::start(move |request| {
                let lines =
                    request.head.headers.iter().map(|(name, value)| format!("{name}: {value}\n"));
                let body = format!("{pool} {}\n{}", request.head.start, lines.collect::<String>());
                Answer::ok(body).header_lines("Server: sample\r\nX-Frame-Options: ALLOW\r\n")
            })
        };
        Rig::before(test, POOLS.map(backend), door, routes)
    }

    fn before(test: &str, backends: [HttpBackend; 3], door: &str, routes: &str) -> Rig {
        let (folder, front, api) = (Folder::new(test), free_port(), free_port());
        let file = Rig::write(&folder, [&front, &api], &backends, door, routes);
        let process = Process::start(&["run", text(&file)]);
        process.wait_for_text(" ready ");
        Rig { folder, front, api, backends, process }
    }

    fn write(
        folder: &Folder,
        [front, api]: [&ReservedPort; 2],
        backends: &[HttpBackend; 3],
        door: &str,
        routes: &str,
    ) -> PathBuf {
        let pool = |(name, backend): (&&str, &HttpBackend)| {
            format!("[[pool]]\nname = \"{name}\"\nbackends = [\"{}\"]\n", backend.address())
        };
        let config = format!(
            "[api]\nsocket = \"{}\"\nlisten = \"{}\"\n[instance]\nthreads = 2\n{}\
             [[session]]\nname = \"door\"\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"main\"\n\
             http2 = true\n{door}\n{routes}",
            text(&folder.path("api.sock")),
            api.address(),
            POOLS.iter().zip(backends).map(pool).collect::<String>(),
            front.address(),
        );
        folder.write("equipoise.toml", &config)
    }

    fn reload(&self, door: &str, routes: &str) {
        Rig::write(&self.folder, [&self.front, &self.api], &self.backends, door, routes);
        let (status, answer) = reload(&self.folder.path("api.sock"));
        assert_eq!(status, 200, "{answer}");
    }

    /// The answer to a request with this line and these further lines.
    fn ask(&self, host: &str, line: &str, more: &str) -> Response {
        let (method, _) = line.split_once(' ').expect("a method");
        let request = format!("{line} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n");
        let mut client = Client::connect(self.front.address());
        client.send(request).response_to(method).expect("an answer")
    }

    /// The pool that serves a request.
    fn pool(&self, host: &str, line: &str, more: &str) -> String {
        let response = self.ask(host, line, more);
        assert_eq!(response.status(), 200, "{line}: {}", response.text());
        response.text().split(' ').next().unwrap_or_default().to_string()
    }

    /// The output of curl over HTTP/2 for a path, with the status at the end.
    fn curl(&self, path: &str, more: &[&str]) -> String {
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--max-time", "60", "--http2-prior-knowledge"])
            .args(["--path-as-is", "--write-out", "\n%{http_version} %{http_code} %{redirect_url}"])
            .args(more)
            .arg(format!("http://{}{path}", self.front.address()))
            .output()
            .expect("curl runs; `make test-setup` installs it");
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    }

    fn command(&self, args: &[&str]) -> String {
        let socket = self.folder.path("api.sock");
        let output = equipoise(&[args, &["--api", text(&socket)]].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    }
}

#[test]
fn each_condition_chooses_the_pool() {
    let rig = Rig::new(
        "routes-conditions",
        r#"
        [[session.route]]
        host = ["api.example", "*.svc.example"]
        pool = "other"
        [[session.route]]
        path = "/exact"
        path-prefix = ["/api", "/v2/"]
        path-regex = '^/item/[0-9]+$'
        pool = "other"
        [[session.route]]
        path-prefix = "/write"
        method = ["POST", "PUT"]
        pool = "other"
        [[session.route]]
        header = ["X-Canary: yes", 'Cookie: ~(^|; )beta=1(;|$)']
        pool = "canary"
        [[session.route]]
        query = ["v=2", "debug"]
        pool = "canary"
        [[session.route]]
        path-prefix = "/office"
        source = "127.0.0.0/8"
        pool = "canary"
        [[session.route]]
        path-prefix = "/far"
        source = "192.0.2.0/24"
        pool = "canary"
        "#,
    );
    let cookie = "X-Canary: yes\r\nCookie: a=b; beta=1\r\n";
    for (host, line, more, pool) in [
        ("a.example", "GET /", "", "main"),
        ("api.example", "GET /", "", "other"),
        ("API.Example.:80", "GET /", "", "other"),
        ("x.y.svc.example", "GET /", "", "other"),
        ("svc.example", "GET /", "", "main"),
        ("a.example", "GET http://a.example/exact", "", "other"),
        ("a.example", "GET /exact?x", "", "other"),
        ("a.example", "GET /exact/", "", "main"),
        ("a.example", "GET /api", "", "other"),
        ("a.example", "GET /api/x", "", "other"),
        ("a.example", "GET /apis", "", "main"),
        ("a.example", "GET /v2", "", "other"),
        ("a.example", "GET /item/17", "", "other"),
        ("a.example", "GET /item/x", "", "main"),
        ("a.example", "POST /write", "Content-Length: 0\r\n", "other"),
        ("a.example", "GET /write", "", "main"),
        ("a.example", "GET /", cookie, "canary"),
        ("a.example", "GET /", "X-Canary: yes\r\n", "main"),
        ("a.example", "GET /?debug&v=2", "", "canary"),
        ("a.example", "GET /?%76=%32&debug=1", "", "canary"),
        ("a.example", "GET /?v=2", "", "main"),
        ("a.example", "GET /office", "", "canary"),
        ("a.example", "GET /far", "", "main"),
        ("a.example", "OPTIONS *", "", "main"),
    ] {
        assert_eq!(rig.pool(host, line, more), pool, "{host} {line}");
    }
    for (path, pool) in [("/", "main"), ("/api/x", "other"), ("/?v=2&debug", "canary")] {
        let shown = rig.curl(path, &[]);
        assert!(shown.starts_with(pool) && shown.contains("\n2 200"), "{path}: {shown}");
    }
}

#[test]
fn requests_are_counted_by_route() {
    let rig = Rig::new(
        "routes-counts",
        r#"
        [[session.route]]
        path-prefix = "/none"
        answer = {}
        [[session.route]]
        path-prefix = "/api"
        pool = "other"
        "#,
    );
    for path in ["/api", "/", "/api/x", "/api/y"] {
        rig.ask("a.example", &format!("GET {path}"), "");
    }
    let status = rig.command(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    let routes = &status["front_doors"][0]["routes"];
    assert_eq!(routes[1]["name"], "2");
    assert_eq!(routes[1]["leads_to"], "other");
    assert_eq!(routes[1]["requests_total"], 3, "{routes}");
    assert_eq!(routes[0]["requests_total"], 0, "{routes}");
    assert!(rig.command(&["status"]).contains("LEADS TO"));
    let metrics = get(rig.api.address(), "/metrics").text();
    let line = "equipoise_route_requests_total{front_door=\"door\",route=\"2\"} 3";
    assert!(metrics.contains(line), "{metrics}");
}

#[test]
fn no_path_encoding_bypasses_a_route() {
    let rig = Rig::new(
        "routes-evasion",
        r#"
        [[session.route]]
        path-prefix = "/admin"
        answer = { status = 403, body = "no" }
        "#,
    );
    for path in [
        "/admin",
        "/admin/",
        "//admin",
        "/./admin",
        "/x/../admin",
        "/x/%2e%2e/admin",
        "/x/.%2E//admin/y",
        "/%61dmin",
        "/%61%64%6D%69%6e/?q",
        "/../admin",
        "http://a.example//admin",
    ] {
        assert_eq!(rig.ask("a.example", &format!("GET {path}"), "").status(), 403, "{path}");
    }
    for path in [
        "/x%2fadmin",
        "/x/..%2fadmin",
        "/x\\..\\admin",
        "/x/..;/admin",
        "/%5cadmin",
        "/a%00",
        "/a%",
    ] {
        assert_eq!(rig.ask("a.example", &format!("GET {path}"), "").status(), 400, "{path}");
    }
    // Backends get the path that was compared.
    for (sent, received) in [
        ("/x/../y//z?a=../b", "GET /y/z?a=../b HTTP/1.1"),
        ("/a%20b%7e", "GET /a%20b~ HTTP/1.1"),
        ("/administrator", "GET /administrator HTTP/1.1"),
        ("http://a.example?q", "GET /?q HTTP/1.1"),
    ] {
        let shown = rig.ask("a.example", &format!("GET {sent}"), "").text();
        assert!(shown.starts_with(&format!("main {received}\n")), "{sent}: {shown}");
    }
    let shown = rig.curl("/x/%2e%2e//admin", &[]);
    assert!(shown.ends_with("\n2 403 "), "{shown}");
    let shown = rig.curl("/x%2fadmin", &[]);
    assert!(shown.ends_with("\n2 400 "), "{shown}");
}

#[test]
fn redirects_and_fixed_answers_need_no_backend() {
    let folder = Folder::new("routes-answers-page");
    let page = folder.write("sorry.html", "<h1>sorry</h1>");
    let routes = format!(
        r#"
        [[session.route]]
        host = "old.example"
        redirect = {{ to = "https://www.example{{path}}{{query}}", status = 308 }}
        response-headers = {{ set = "X-Why: moved" }}
        [[session.route]]
        path-prefix = "/old"
        rewrite = {{ prefix = "/new" }}
        redirect = {{ to = "{{scheme}}://{{host}}:8443{{path}}" }}
        [[session.route]]
        path = "/robots.txt"
        answer = {{ body = "User-agent: *\n" }}
        [[session.route]]
        path-prefix = "/down"
        answer = {{ status = 503, file = "{}", content-type = "text/html" }}
        response-headers = {{ add = "Retry-After: 120" }}
        [[session.route]]
        path = "/nothing"
        answer = {{ status = 204 }}
        "#,
        text(&page)
    );
    let rig = Rig::with("routes-answers", "security-headers = \"basic\"", &routes);
    let moved = rig.ask("Old.example:80", "GET /a//b?c=d", "");
    assert_eq!((moved.status(), moved.text().as_str()), (308, ""));
    assert_eq!(moved.header("location"), Some("https://www.example/a/b?c=d"));
    assert_eq!(moved.header("x-why"), Some("moved"));
    let renamed = rig.ask("a.example:80", "GET /old/x?y", "");
    assert_eq!(renamed.status(), 302);
    assert_eq!(renamed.header("location"), Some("http://a.example:8443/new/x"));
    let robots = rig.ask("a.example", "GET /robots.txt", "");
    assert_eq!((robots.status(), robots.text().as_str()), (200, "User-agent: *\n"));
    assert_eq!(robots.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(robots.header("x-content-type-options"), Some("nosniff"));
    let head = rig.ask("a.example", "HEAD /robots.txt", "");
    assert_eq!((head.header("content-length"), head.text().as_str()), (Some("14"), ""));
    let down = rig.ask("a.example", "GET /down/x", "");
    assert_eq!((down.status(), down.text().as_str()), (503, "<h1>sorry</h1>"));
    assert_eq!(down.header("retry-after"), Some("120"));
    assert_eq!(rig.ask("a.example", "GET /nothing", "").status(), 204);
    // The connection goes on, and a body that was not read ends it.
    let mut client = Client::connect(rig.front.address());
    for _ in 0..3 {
        let request = "GET /robots.txt HTTP/1.1\r\nHost: a.example\r\n\r\n";
        assert_eq!(client.ask(request).expect("an answer").status(), 200);
    }
    let partial = "POST /down HTTP/1.1\r\nHost: a.example\r\nContent-Length: 9\r\n\r\nabc";
    let closed = client.ask(partial).expect("an answer");
    assert_eq!((closed.status(), closed.header("connection")), (503, Some("close")));
    assert_eq!(rig.backends[0].requests().len(), 0);
    let shown = rig.curl("/old/x", &[]);
    assert!(shown.ends_with("\n2 302 http://127.0.0.1:8443/new/x"), "{shown}");
    let shown = rig.curl("/down", &[]);
    assert!(shown.starts_with("<h1>sorry</h1>\n2 503"), "{shown}");
}

#[test]
fn paths_hosts_and_headers_are_changed() {
    let rig = Rig::with(
        "routes-changes",
        "security-headers = \"strict\"",
        r#"
        [[session.route]]
        path-prefix = ["/app", "/app/deep/"]
        rewrite = { prefix = "/", host = "inner.example" }
        pool = "other"
        [session.route.request-headers]
        set = "X-Team: a"
        add = ["X-Tag: 1", "X-Tag: 2"]
        remove = "X-Secret"
        [session.route.response-headers]
        set = "Server: proxy"
        remove = ["X-Frame-Options"]
        [[session.route]]
        path-regex = '^/user/(?<id>[0-9]+)/'
        rewrite = { regex = '^/user/(?<id>[0-9]+)/(.*)$', to = '/u//${id}/../${2}' }
        [[session.route]]
        path-prefix = "/plain"
        rewrite = { prefix = "/more/" }
        "#,
    );
    let more = "X-Team: b\r\nX-Secret: s\r\nX-Tag: 0\r\n";
    let changed = rig.ask("a.example", "GET /app/x?y=/app", more);
    let shown = changed.text();
    assert!(shown.starts_with("other GET /x?y=/app HTTP/1.1\nHost: inner.example\n"), "{shown}");
    assert!(shown.contains("\nX-Tag: 0\n") && shown.contains("\nX-Tag: 1\nX-Tag: 2\n"), "{shown}");
    assert!(shown.contains("\nX-Team: a\n") && !shown.contains("X-Team: b"), "{shown}");
    assert!(!shown.contains("X-Secret"), "{shown}");
    assert!(shown.contains("\nX-Forwarded-Host: a.example\n"), "{shown}");
    assert_eq!(changed.header("server"), Some("proxy"));
    assert_eq!(changed.header("x-frame-options"), None);
    assert!(changed.header("content-security-policy").is_some());
    for (sent, received) in [
        ("/app", "other GET / HTTP"),
        ("/app/", "other GET / HTTP"),
        ("/app/deep/x", "other GET /x HTTP"),
        ("/application", "main GET /application HTTP"),
        ("/user/7/x/y?z", "main GET /u/x/y?z HTTP"),
        ("/plain", "main GET /more HTTP"),
        ("/plain/x", "main GET /more/x HTTP"),
    ] {
        let shown = rig.ask("a.example", &format!("GET {sent}"), "").text();
        assert!(shown.starts_with(received), "{sent}: {shown}");
    }
    // The backend's own header stays.
    let other = rig.ask("a.example", "GET /", "");
    assert_eq!(
        (other.header("server"), other.header("x-frame-options")),
        (Some("sample"), Some("ALLOW"))
    );
    assert_eq!(other.header("x-content-type-options"), Some("nosniff"));
    let shown = rig.curl("/app/x", &["--include"]);
    assert!(shown.contains("server: proxy\r\n") && !shown.contains("x-frame-options"), "{shown}");
    assert!(shown.contains("\r\n\r\nother GET /x HTTP/1.1\n"), "{shown}");
}

#[test]
fn pools_share_requests_by_weight_and_keep_their_clients() {
    let rig = Rig::new(
        "routes-weights",
        r#"
        [[session.route]]
        path-prefix = "/random"
        pools = [{ pool = "main", weight = 3 }, { pool = "canary" }]
        [[session.route]]
        path-prefix = "/sticky"
        pools = [{ pool = "main" }, { pool = "canary" }]
        sticky = "cookie:user"
        [[session.route]]
        path-prefix = "/source"
        pools = [{ pool = "main" }, { pool = "canary" }]
        sticky = "source"
        "#,
    );
    let canary = |path: &str, more: &str| rig.pool("a.example", path, more) == "canary";
    let count = (0..400).filter(|_| canary("GET /random", "")).count();
    assert!((50..150).contains(&count), "{count} of 400, with a quarter wanted");
    let of_user = |user: usize| format!("Cookie: a=b; user={user}\r\nCookie: c=d\r\n");
    let users: Vec<bool> = (0..100).map(|user| canary("GET /sticky", &of_user(user))).collect();
    let count = users.iter().filter(|it| **it).count();
    assert!((20..80).contains(&count), "{count} of 100, with a half wanted");
    for (user, is_canary) in users.iter().enumerate() {
        assert_eq!(canary("GET /sticky", &of_user(user)), *is_canary, "user {user}");
    }
    for path in ["GET /sticky", "GET /source"] {
        let first = canary(path, "");
        assert!((0..20).all(|_| canary(path, "") == first), "{path}");
    }
}

#[test]
fn a_status_is_retried_only_where_the_route_or_its_pool_allows_it() {
    let flaky = || {
        HttpBackend::start(|request| match request.number % 2 {
            0 => Answer::sized(503, "busy"),
            _ => Answer::ok("fine"),
        })
    };
    let retrying = flaky();
    let routes = format!(
        r#"
        [[session.route]]
        path-prefix = "/retried"
        retry-on = ["connect", "reset", "502-504"]
        [[session.route]]
        path-prefix = "/once"
        retry-on = ["503"]
        retries = 0
        pool = "other"
        [[session.route]]
        path-prefix = "/of-pool"
        pool = "retrying"
        [[session.route]]
        path-prefix = "/of-route"
        retry-on = ["connect", "reset"]
        pool = "retrying"
        [[pool]]
        name = "retrying"
        retry-on = ["503"]
        backends = ["{}"]
        "#,
        retrying.address()
    );
    let rig = Rig::before("routes-retries", [flaky(), flaky(), flaky()], "", &routes);
    let answer = |line: &str, more: &str| rig.ask("a.example", line, more).status();
    assert_eq!(answer("GET /retried", ""), 200);
    assert_eq!(rig.backends[0].requests().len(), 2);
    assert_eq!(answer("POST /retried", "Content-Length: 0\r\n"), 503);
    assert_eq!(rig.backends[0].requests().len(), 3);
    assert_eq!(answer("GET /retried", ""), 200);
    assert_eq!(answer("GET /once", ""), 503);
    assert_eq!(answer("GET /else", ""), 503);
    // By the pool's option, unless the route has its own.
    assert_eq!(answer("GET /of-pool", ""), 200);
    assert_eq!(retrying.requests().len(), 2);
    assert_eq!(answer("POST /of-pool", "Content-Length: 0\r\n"), 503);
    assert_eq!(retrying.requests().len(), 3);
    assert_eq!(answer("GET /of-pool", ""), 200);
    assert_eq!(retrying.requests().len(), 4);
    assert_eq!(answer("GET /of-route", ""), 503);
    assert_eq!(retrying.requests().len(), 5);
}

#[test]
fn a_route_has_time_outs_of_its_own() {
    let slow = || HttpBackend::always(Answer::hang());
    let rig = Rig::before(
        "routes-timeouts",
        [slow(), slow(), slow()],
        "",
        r#"
        [[session.route]]
        path-prefix = "/response"
        response-timeout = "100ms"
        retries = 0
        [[session.route]]
        path-prefix = "/request"
        request-timeout = "100ms"
        "#,
    );
    for path in ["/response", "/request"] {
        let response = rig.ask("a.example", &format!("GET {path}"), "");
        assert_eq!(response.status(), 504, "{path}");
    }
}

#[test]
fn error_responses_of_the_proxy_use_the_configured_pages() {
    let folder = Folder::new("routes-pages");
    folder.write("503.html", "<h1>back soon</h1>");
    let door = format!("error-pages = \"{}\"", text(folder.root()));
    let rig = Rig::with("routes-errors", &door, "");
    rig.command(&["disable", &format!("main/{}", rig.backends[0].address())]);
    let response = rig.ask("a.example", "GET /", "");
    assert_eq!((response.status(), response.text().as_str()), (503, "<h1>back soon</h1>"));
    assert_eq!(response.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(response.header("proxy-status").is_some() && response.header("retry-after").is_some());
    let head = rig.ask("a.example", "HEAD /", "");
    assert_eq!((head.header("content-length"), head.text().as_str()), (Some("18"), ""));
    // The others have a line of text.
    let connect = rig.ask("a.example", "CONNECT a.example:1", "");
    assert_eq!(connect.text(), "405 Method Not Allowed: this server does not tunnel\n");
}

#[test]
fn responses_of_shared_sessions_and_streams_are_changed() {
    let shared = HttpBackend::always(Answer::ok("shared").header_lines("Server: sample\r\n"));
    let routes = format!(
        r#"
        [[session.route]]
        path-prefix = "/shared"
        pool = "shared"
        response-headers = {{ set = "Server: proxy" }}
        [[pool]]
        name = "shared"
        upstream = "multiplexed"
        backends = ["{}"]
        "#,
        shared.address()
    );
    let rig = Rig::with("routes-shared", "security-headers = \"basic\"", &routes);
    for _ in 0..4 {
        let response = rig.ask("a.example", "GET /shared", "");
        assert_eq!((response.status(), response.text().as_str()), (200, "shared"));
        assert_eq!(response.header("server"), Some("proxy"));
        assert_eq!(response.header("x-frame-options"), Some("SAMEORIGIN"));
        assert_eq!(rig.ask("a.example", "GET /", "").header("server"), Some("sample"));
    }
}

#[test]
fn a_request_keeps_its_route_over_a_reload() {
    let gate = Gate::new();
    let waiting = {
        let gate = gate.clone();
        HttpBackend::start(move |_| Answer::ok("late").first(Step::Wait(gate.clone())))
    };
    let backend = || HttpBackend::always(Answer::ok("at once"));
    let routes = "[[session.route]]\npath-prefix = \"/late\"\npool = \"other\"\n\
                  response-headers = { set = \"X-Route: late\" }\n";
    let rig = Rig::before("routes-kept", [backend(), waiting, backend()], "", routes);
    let mut client = Client::connect(rig.front.address());
    client.send("GET /late HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert!(rig.backends[1].wait(|requests| requests.len() == 1));
    rig.reload("", "[[session.route]]\npath-prefix = \"/other\"\nanswer = {}\n");
    gate.open();
    let response = client.response().expect("an answer");
    assert_eq!((response.header("x-route"), response.text().as_str()), (Some("late"), "late"));
    let response = client.ask("GET /late HTTP/1.1\r\nHost: a.example\r\n\r\n");
    let response = response.expect("an answer on the same connection");
    assert_eq!((response.header("x-route"), response.text().as_str()), (None, "at once"));
}

#[test]
fn a_reload_changes_routes_and_drops_no_connection() {
    let first = "[[session.route]]\nname = \"api\"\npath-prefix = \"/api\"\npool = \"other\"\n";
    let rig = Rig::new("routes-reload", first);
    let mut client = Client::connect(rig.front.address());
    let mut ask = |path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n");
        let response = client.ask(request).expect("an answer on the same connection");
        response.text().split(' ').next().unwrap_or_default().to_string()
    };
    assert_eq!(ask("/api"), "other");
    let second = "[[session.route]]\npath = \"/new\"\npool = \"canary\"\n\
                  [[session.route]]\nname = \"api\"\npath-prefix = \"/api\"\npool = \"canary\"\n";
    rig.reload("", second);
    assert_eq!([ask("/api"), ask("/new"), ask("/")], ["canary", "canary", "main"]);
    let status: serde_json::Value =
        serde_json::from_str(&rig.command(&["status", "--json"])).expect("JSON");
    let routes = &status["front_doors"][0]["routes"];
    assert_eq!((&routes[1]["name"], &routes[1]["requests_total"]), (&"api".into(), &2.into()));
    rig.reload("", "");
    assert_eq!([ask("/api"), ask("/new")], ["main", "main"]);
    assert_eq!(rig.process.printed().matches("panicked").count(), 0);
}
