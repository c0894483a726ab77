//! `equipoise why` against a running process: the backend that it names serves the request, its
//! reasons are those of the process, and asking changes nothing.

mod common;
#[path = "why/routes.rs"]
mod routes;

use std::net::SocketAddr;

use common::certificates::Certificates;
use common::{Folder, Process, equipoise, stderr, stdout, text};
use equipoise_testkit::{Answer, Client, HttpBackend, ReservedPort, eventually, free_port};
use rcgen::{CertificateParams, KeyPair};
use serde_json::Value;

/// A process with an HTTP front door.
struct Rig {
    folder: Folder,
    front: ReservedPort,
    _process: Process,
}

impl Rig {
    /// `pools` are tables of pools, `door` further lines of the front door and its routes.
    fn new(test: &str, pools: &str, door: &str) -> Rig {
        let (folder, front) = (Folder::new(test), free_port());
        let config = format!(
            "[api]\nsocket = \"{}\"\nlisten = \"off\"\n[instance]\nthreads = 1\n{pools}\n\
             [[session]]\nname = \"door\"\nlisten = \"{}\"\nprotocol = \"http\"\n{door}\n",
            text(&folder.path("api.sock")),
            front.address(),
        );
        let file = folder.write("equipoise.toml", &config);
        let process = Process::start(&["run", text(&file)]);
        process.wait_for_text(" ready ");
        Rig { folder, front, _process: process }
    }

    fn command(&self, args: &[&str]) -> String {
        let socket = self.folder.path("api.sock");
        let output = equipoise(&[args, &["--api", text(&socket)]].concat());
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        stdout(&output)
    }

    /// The explanation of a subject that the process does not take.
    fn not_taken(&self, args: &[&str]) -> String {
        let socket = self.folder.path("api.sock");
        let output = equipoise(&[&["why"], args, &["--api", text(&socket)]].concat());
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", stderr(&output));
        assert_eq!(stderr(&output), "", "the answer is on standard output");
        stdout(&output)
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.front.address())
    }

    /// The explanation of a GET.
    fn why(&self, path: &str, args: &[&str]) -> String {
        self.command(&[&["why", &self.url(path)], args].concat())
    }

    fn why_json(&self, path: &str, args: &[&str]) -> Value {
        let args = [args, &["--json"]].concat();
        serde_json::from_str(&self.why(path, &args)).expect("it is JSON")
    }

    /// The backend that serves a request with these header lines, over `client`.
    fn served(&self, client: &mut Client, path: &str, headers: &[String]) -> String {
        let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        let host = self.front.address();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n");
        let response = client.ask(request).expect("an answer");
        assert_eq!(response.status(), 200, "{path}: {}", response.text());
        response.text()
    }

    /// Asserts that `why` names the backend that then serves the request.
    fn assert_named(&self, path: &str, headers: &[String]) -> String {
        let mut client = Client::connect(self.front.address());
        let from = client.stream().local_addr().expect("it is connected").to_string();
        let mut args = vec!["--from", &from];
        headers.iter().for_each(|line| args.extend(["--header", line]));
        let answer = self.why_json(path, &args);
        let served = self.served(&mut client, path, headers);
        assert_eq!(answer["backend"], *served, "{path} {headers:?}: {answer:#}");
        served
    }
}

/// Backends of a pool, each of which answers with `POOL/NAME`.
fn backends(pool: &str, count: usize) -> Vec<HttpBackend> {
    (0..count).map(|at| HttpBackend::always(Answer::ok(format!("{pool}/b{at}")))).collect()
}

/// The table of a pool.
fn pool(name: &str, backends: &[HttpBackend], more: &str) -> String {
    let addresses: Vec<_> = backends.iter().map(HttpBackend::address).collect();
    pool_of(name, &addresses, more)
}

fn pool_of(name: &str, backends: &[SocketAddr], more: &str) -> String {
    let backend = |(at, address): (usize, &SocketAddr)| {
        format!("{{ name = \"b{at}\", address = \"{address}\" }}")
    };
    let backends: Vec<_> = backends.iter().enumerate().map(backend).collect();
    format!("[[pool]]\nname = \"{name}\"\nbackends = [{}]\n{more}\n", backends.join(", "))
}

#[test]
fn the_named_backend_serves_the_request() {
    let one = backends("one", 1);
    let [hash, flow, stay, other] = ["hash", "flow", "stay", "other"].map(|name| backends(name, 3));
    let pools = [
        pool("one", &one, ""),
        pool("hash", &hash, "scheduler = \"source-hash\"\nhash-by = \"query:user\""),
        pool("flow", &flow, "scheduler = \"maglev\""),
        pool("stay", &stay, "scheduler = \"round-robin\"\nsticky = { cookie = \"stay\" }"),
        pool("other", &other, "scheduler = \"source-hash\"\nhash-by = \"header:X-User\""),
    ]
    .concat();
    let rig = Rig::new(
        "why-named",
        &pools,
        r#"pool = "one"
        [[session.route]]
        path-prefix = "/hash"
        pool = "hash"
        [[session.route]]
        path-prefix = "/flow"
        pool = "flow"
        [[session.route]]
        path-prefix = "/stay"
        pool = "stay"
        [[session.route]]
        name = "shared"
        path-prefix = "/shared"
        pools = [{ pool = "hash", weight = 2 }, { pool = "other" }]
        sticky = "cookie:user"
        rewrite = { prefix = "/inner" }
        "#,
    );
    let mut served = Vec::new();
    for n in 0..12 {
        served.push(rig.assert_named("/", &[]));
        served.push(rig.assert_named(&format!("/hash?user={n}"), &[]));
        served.push(rig.assert_named("/flow", &[]));
        let headers = [format!("Cookie: user={n}"), format!("X-User: {n}")];
        served.push(rig.assert_named(&format!("/shared/x?user={n}"), &headers));
    }
    for pool in ["one", "hash", "flow", "other"] {
        assert!(served.iter().any(|it| it.starts_with(pool)), "{pool}: {served:?}");
    }
    // The cookie that a first response sets.
    for _ in 0..3 {
        let mut client = Client::connect(rig.front.address());
        let first = client.ask("GET /stay HTTP/1.1\r\nHost: a\r\n\r\n").expect("an answer");
        let cookie = first.header("set-cookie").and_then(|it| it.split(';').next());
        let cookie = format!("Cookie: {}", cookie.expect("a cookie"));
        assert_eq!(rig.assert_named("/stay", &[cookie]), first.text());
    }
}

#[test]
fn routes_and_answers_of_the_proxy_have_reasons() {
    let (main, canary) = (backends("main", 1), backends("canary", 1));
    let pools = [pool("main", &main, ""), pool("canary", &canary, "")].concat();
    let rig = Rig::new(
        "why-routes",
        &pools,
        r#"pool = "main"
        allow = ["127.0.0.0/8", "192.0.2.0/24"]
        [[session.route]]
        host = "old.example"
        redirect = { status = 301, to = "https://new.example{path}" }
        [[session.route]]
        name = "canary"
        header = "X-Test: 1"
        pool = "canary"
        [[session.route]]
        path-prefix = "/api"
        method = "POST"
        rewrite = { prefix = "/v1" }
        [[session.route]]
        path = "/robots.txt"
        answer = { status = 200, body = "none" }
        [[session.route]]
        path-prefix = "/split"
        pools = [{ pool = "main", weight = 3 }, { pool = "canary" }]
        "#,
    );
    let plain = rig.why("/cart?x=1", &[]);
    assert!(plain.starts_with(&format!("GET {} from 127.0.0.1", rig.url("/cart?x=1"))), "{plain}");
    for line in [
        ": backend main/b0\n",
        &format!("session: front door \"door\" at {} (http) takes it\n", rig.front.address()),
        "session: access: the client's address is allowed\n",
        "session: route 1: no: the host does not match\n",
        "session: route 2 \"canary\": no: header x-test is missing\n",
        "session: route 3: no: the path does not match\n",
        "session: no route matches: the pool of the front door\n",
        "session: pool main: least-connection over 1 of 1 backends\n",
        &format!("session: backend main/b0 ({}): 100 %: up, not checked", main[0].address()),
    ] {
        assert!(plain.contains(line), "{line}\nin\n{plain}");
    }
    let test = rig.why("/", &["--header", "X-Test: 1"]);
    assert!(test.contains("route 2 \"canary\": yes: pool canary\n"), "{test}");
    assert!(test.contains(": backend canary/b0\n") && !test.contains("route 3"), "{test}");
    let other = rig.why("/", &["--header", "X-Test: 2"]);
    assert!(other.contains("header x-test has another value\n"), "{other}");
    let get = rig.why("/api/x", &[]);
    assert!(get.contains("route 3: no: the method does not match\n"), "{get}");
    let post = rig.why("/api/../api/x", &["--method", "POST"]);
    assert!(post.contains("session: the backend gets /v1/x, Host 127.0.0.1:"), "{post}");
    let robots = rig.why("/robots.txt", &[]);
    assert!(robots.contains(": answered: fixed answer 200\n"), "{robots}");
    let moved = rig.why("/x", &["--header", "Host: old.example"]);
    assert!(moved.contains(": answered: redirect 301\n"), "{moved}");
    let split = rig.why("/split", &[]);
    assert!(split.contains(": one of main/b0 75 %, canary/b0 25 %\n"), "{split}");
    let denied = rig.why("/", &["--from", "198.51.100.1"]);
    assert!(denied.contains(": refused with 403: the client's address is not allowed"), "{denied}");
    let far = rig.why("/", &["--from", "192.0.2.7"]);
    assert!(far.contains("from 192.0.2.7: backend main/b0\n"), "{far}");

    let away = format!("http://127.0.0.1:{}/", free_port().address().port());
    let away = rig.not_taken(&[&away]);
    assert!(away.contains("no front door listens there: name one with --front-door"), "{away}");
    let named = rig.command(&["why", "http://shop.example/", "--front-door", "door"]);
    assert!(named.contains(": backend main/b0\n"), "{named}");
    let tls = rig.command(&["why", &rig.url("/").replace("http:", "https:")]);
    assert!(tls.contains("the front door has no TLS"), "{tls}");
    assert_eq!(main[0].requests().len() + canary[0].requests().len(), 0, "nothing was sent");
}

#[test]
fn backends_that_take_nothing_have_reasons() {
    let good = HttpBackend::named("good");
    let closed = free_port();
    let addresses: Vec<_> = (0..6).map(|_| free_port()).collect();
    let mut all = vec![good.address(), closed.address()];
    all.extend(addresses.iter().map(ReservedPort::address));
    let backend =
        |at: usize, more: &str| format!("{{ name = \"b{at}\", address = \"{}\"{more} }}", all[at]);
    let list = [
        backend(0, ""),
        backend(2, ", weight = 0"),
        backend(3, ", backup = true"),
        backend(4, ""),
        backend(5, ""),
    ];
    let pools = format!(
        "[[pool]]\nname = \"web\"\nbackends = [{}]\n\
         [[pool]]\nname = \"checked\"\nbackends = [\"{}\"]\nhealth = {{ tcp = true, interval = \"100ms\" }}\n",
        list.join(", "),
        all[1]
    );
    let door = "pool = \"web\"\n[[session.route]]\npath = \"/checked\"\npool = \"checked\"\n";
    let rig = Rig::new("why-reasons", &pools, door);
    rig.command(&["drain", "web/b4"]);
    rig.command(&["disable", "web/b5"]);
    let why = rig.why("/", &[]);
    for line in [
        ": backend web/b0\n",
        "pool web: least-connection over 2 of 5 backends\n",
        &format!("backend web/b2 ({}): no: weight 0, 0 in flight\n", all[2]),
        &format!("backend web/b3 ({}): no: a backup, and other backends take the work\n", all[3]),
        &format!("backend web/b4 ({}): no: drained by an operator, 0 in flight\n", all[4]),
        &format!("backend web/b5 ({}): no: disabled by an operator\n", all[5]),
    ] {
        assert!(why.contains(line), "{line}\nin\n{why}");
    }
    let answer = rig.why_json("/", &[]);
    let shown = answer["steps"].as_array().expect("steps").iter();
    let shown = shown.filter_map(|step| step.get("backend"));
    let shown: Vec<_> = shown.map(|it| (it["name"].as_str(), it["state"].as_str())).collect();
    let expected = [("b0", "up"), ("b2", "drained"), ("b3", "standby"), ("b4", "drained")];
    for (name, state) in expected.into_iter().chain([("b5", "down")]) {
        assert!(shown.contains(&(Some(name), Some(state))), "{name} {state} in {shown:?}");
    }
    let failed = || rig.why("/checked", &[]);
    let is_refused = || failed().contains(": refused with 503: no backend may be picked\n");
    assert!(eventually(is_refused), "{}", failed());
    let failed = failed();
    let reason = format!("backend checked/{}: no: last check failed: ", all[1]);
    assert!(failed.contains(&reason), "{failed}");
}

#[test]
fn a_question_changes_nothing() {
    let turns = backends("turns", 2);
    let pools = pool("turns", &turns, "scheduler = \"round-robin\"\nconcurrency = \"none\"");
    let door =
        "pool = \"turns\"\n[[session.limit]]\nby = \"header:X-Key\"\nrate = \"1/h\"\nburst = 1\n";
    let rig = Rig::new("why-nothing", &pools, door);
    let mut client = Client::connect(rig.front.address());
    let mut served = Vec::new();
    for key in 0..6 {
        let header = format!("X-Key: {key}");
        for _ in 0..3 {
            let why = rig.why("/", &["--header", &header]);
            assert!(why.contains(": one of turns/b0 50 %, turns/b1 50 %\n"), "{why}");
            let limit = "limit of each value of the header x-key: 1 in 3600 s with bursts of 1: not exceeded";
            assert!(why.contains(limit), "{why}");
        }
        served.push(rig.served(&mut client, "/", &[header]));
    }
    assert!(served.windows(2).all(|two| two[0] != two[1]), "turns go on: {served:?}");
    let why = rig.why("/", &["--header", "X-Key: 0"]);
    assert!(why.contains(": refused with 429: the client has sent too many requests\n"), "{why}");
    assert!(why.contains(": exceeded, for 3"), "{why}");
    let status: Value = serde_json::from_str(&rig.command(&["status", "--json"])).expect("JSON");
    assert_eq!(status["front_doors"][0]["requests_total"], 6);
}

#[test]
fn a_connection_has_its_front_door_and_its_certificate() {
    let certificates = Certificates::new("why-tls");
    let issue = |name: &str| {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_string()]).expect("a name");
        let certificate = params.signed_by(&key, &certificates.authority).expect("a certificate");
        let chain = certificates.folder.write(&format!("{name}.pem"), &certificate.pem());
        let key = certificates.folder.write(&format!("{name}.key"), &key.serialize_pem());
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&key, mode).expect("it is ours");
        format!("{{ chain = \"{}\", key = \"{}\" }}", text(&chain), text(&key))
    };
    let tls = ["main.example", "shop.example"].map(issue).join(", ");
    let (web, flows) = (backends("web", 1), backends("flows", 3));
    let tcp = free_port();
    let pools = [
        pool("web", &web, ""),
        pool("flows", &flows, "scheduler = \"maglev\""),
        format!(
            "[[session]]\nname = \"tcp\"\nlisten = \"{}\"\nprotocol = \"tcp\"\npool = \"flows\"\n",
            tcp.address()
        ),
    ]
    .concat();
    let door = format!("pool = \"web\"\ntls = {{ certificates = [{tls}] }}\n");
    let rig = Rig::new("why-connections", &pools, &door);
    let port = rig.front.address().port();
    let why = |url: &str, args: &[&str]| rig.command(&[&["why", url], args].concat());
    let named = why(&format!("https://shop.example:{port}/"), &[]);
    assert!(named.contains("certificate \"shop.example\" has the name shop.example\n"), "{named}");
    assert!(named.contains(": backend web/b0\n"), "{named}");
    let default = why(&format!("https://other.example:{port}/"), &[]);
    let line = "certificate \"main.example\" is the default: no other has the name other.example\n";
    assert!(default.contains(line), "{default}");
    let clear = why(&format!("http://shop.example:{port}/"), &[]);
    let line = ": refused with 400: the front door speaks TLS, and the client does not\n";
    assert!(clear.contains(line), "{clear}");

    // Twelve connections, each to the backend that is named for its two ends.
    for _ in 0..12 {
        let mut client = Client::connect(tcp.address());
        let from = client.stream().local_addr().expect("it is connected").to_string();
        let to = tcp.address().to_string();
        let answer = rig.command(&["why", "tcp", &from, &to, "--json"]);
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        let response = client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("an answer");
        assert_eq!(answer["backend"], *response.text(), "{answer:#}");
    }
    let udp = rig.not_taken(&["udp", "127.0.0.1:1", "127.0.0.1:2"]);
    assert!(udp.contains("no front door takes it: there is none of this protocol\n"), "{udp}");
}
