//! Spans of requests (`[tracing]`), with a collector that records them, and one that is deaf.

mod common;

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use common::certificates::Certificates;
use common::peer::{Peer, spawn};
use common::{Folder, Process, get, text};
use equipoise_testkit::{Answer, Client, HttpBackend, Intake, ReservedPort, eventually, free_port};
use rcgen::{CertificateParams, KeyPair};
use serde_json::Value;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// A process with one front door.
struct Rig {
    folder: Folder,
    door: ReservedPort,
    api: ReservedPort,
}

impl Rig {
    fn new(name: &str) -> Rig {
        Rig { folder: Folder::new(name), door: free_port(), api: free_port() }
    }

    /// Starts the process. `session`: options of the front door; `pool`: of its pool.
    fn start(&self, tracing: &str, session: &str, pool: &str) -> Process {
        let config = format!(
            "[instance]\nname = \"edge-1\"\nthreads = 1\n[api]\nsocket = {:?}\nlisten = \"{}\"\n{tracing}\n\
             [[session]]\nname = \"door\"\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"web\"\n{session}\n\
             [[pool]]\nname = \"web\"\nscheduler = \"round-robin\"\n{pool}\n",
            self.folder.path("api.sock"),
            self.api.address(),
            self.door.address(),
        );
        let file = self.folder.write("equipoise.toml", &config);
        let process = Process::start(&["run", text(&file)]);
        process.wait_for_text(" ready ");
        process
    }

    fn ask(&self, target: &str, more: &str) -> u16 {
        let head = format!("GET {target} HTTP/1.1\r\nHost: a.example:8080\r\n{more}\r\n");
        Client::connect(self.door.address()).ask(head).expect("an answer").status()
    }
}

/// A collector, and the options that send spans to it.
fn collector(sample: &str) -> (HttpBackend, String) {
    let answer = Answer::sized(200, "{}").intake(Intake::Keep);
    let collector = HttpBackend::always(answer);
    let url = format!("http://{}", collector.address());
    let options = format!("[tracing]\notlp = \"{url}\"\nsample = {sample}\nservice = \"shop\"");
    (collector, options)
}

/// All spans that a collector has got.
fn spans(collector: &HttpBackend) -> Vec<Value> {
    let mut all = Vec::new();
    for request in collector.requests() {
        assert_eq!(
            (request.head.method(), request.head.target()),
            ("POST", "/v1/traces"),
            "{request:?}"
        );
        assert_eq!(request.head.header("content-type"), Some("application/json"));
        let body: Value = serde_json::from_slice(&request.body).expect("it is JSON");
        for resource in body["resourceSpans"].as_array().expect("a list") {
            assert_eq!(attribute(&resource["resource"], "service.name"), "shop");
            assert_eq!(attribute(&resource["resource"], "service.instance.id"), "edge-1");
            for scope in resource["scopeSpans"].as_array().expect("a list") {
                all.extend(scope["spans"].as_array().expect("a list").iter().cloned());
            }
        }
    }
    all
}

/// The value of an attribute, as text; empty if there is none.
fn attribute<'v>(of: &'v Value, key: &str) -> &'v str {
    let attributes = of["attributes"].as_array().expect("a list");
    let found = attributes.iter().find(|it| it["key"] == key).map(|it| &it["value"]);
    let value = found.and_then(|it| it.as_object()?.values().next()?.as_str());
    value.unwrap_or_default()
}

/// The spans without a parent among the spans, each with its children.
fn traces(spans: &[Value]) -> Vec<(&Value, Vec<&Value>)> {
    let servers = spans.iter().filter(|span| span["kind"] == 2);
    let of = |server: &Value| {
        let is_child = |span: &&Value| {
            span["parentSpanId"] == server["spanId"] && span["traceId"] == server["traceId"]
        };
        spans.iter().filter(is_child).collect()
    };
    servers.map(|server| (server, of(server))).collect()
}

#[track_caller]
fn assert_attributes(span: &Value, expected: &[(&str, &str)]) {
    for (key, value) in expected {
        assert_eq!(attribute(span, key), *value, "{key} of {span:#}");
    }
}

fn nanos(span: &Value, key: &str) -> u128 {
    span[key].as_str().and_then(|text| text.parse().ok()).expect("a number as text")
}

#[track_caller]
fn assert_served_request(server: &Value) {
    assert_eq!((&server["name"], &server["parentSpanId"]), (&"GET".into(), &Value::Null));
    assert_attributes(
        server,
        &[
            ("http.request.method", "GET"),
            ("url.scheme", "http"),
            ("url.path", "/shop/a"),
            ("url.query", "b=c&sig=REDACTED"),
            ("server.address", "a.example"),
            ("server.port", "8080"),
            ("client.address", "127.0.0.1"),
            ("network.protocol.version", "1.1"),
            ("user_agent.original", "probe/1.0"),
            ("http.response.status_code", "200"),
            ("error.type", ""),
            ("equipoise.front_door", "door"),
            ("equipoise.route", "shop"),
        ],
    );
}

/// Checks the spans of an attempt at a dead backend, and of one at another.
#[track_caller]
fn assert_retry(server: &Value, attempts: &[&Value], dead: SocketAddr, backend: SocketAddr) {
    let [failed, served] = attempts else { panic!("{attempts:#?}") };
    assert_eq!((&failed["kind"], &failed["status"]["code"]), (&3.into(), &2.into()));
    assert_ne!(attribute(failed, "error.type"), "", "{failed:#}");
    assert_attributes(
        failed,
        &[
            ("equipoise.backend", "dead"),
            ("server.port", &dead.port().to_string()),
            ("http.response.status_code", ""),
        ],
    );
    let url = format!("http://{backend}/v1/a?b=c&sig=REDACTED");
    assert_attributes(
        served,
        &[
            ("equipoise.backend", "a"),
            ("equipoise.pool", "web"),
            ("server.address", "127.0.0.1"),
            ("server.port", &backend.port().to_string()),
            ("url.full", &url),
            ("http.request.resend_count", "1"),
            ("http.response.status_code", "200"),
            ("error.type", ""),
        ],
    );
    assert!(served["status"]["code"].is_null(), "{served:#}");
    let order = [
        nanos(server, "startTimeUnixNano"),
        nanos(failed, "startTimeUnixNano"),
        nanos(failed, "endTimeUnixNano"),
        nanos(served, "startTimeUnixNano"),
        nanos(served, "endTimeUnixNano"),
        nanos(server, "endTimeUnixNano"),
    ];
    assert!(order.is_sorted(), "{order:?}");
}

#[test]
fn a_request_has_a_span_and_one_for_each_attempt() {
    for upstream in ["exclusive", "multiplexed"] {
        let rig = Rig::new(&format!("spans-{upstream}"));
        let (collector, options) = collector("1.0");
        let (backend, dead) = (HttpBackend::named("a"), free_port());
        let pool = format!(
            "upstream = \"{upstream}\"\nbackends = [{{ name = \"dead\", address = \"{}\" }}, {{ name = \"a\", address = \"{}\" }}]",
            dead.address(),
            backend.address(),
        );
        let route = "access-log = 1.0\n[[session.route]]\nname = \"shop\"\npath-prefix = \"/shop\"\nrewrite.prefix = \"/v1\"";
        let options = format!("{options}\n[log]\naccess-fields = [\"trace_id\"]");
        let mut process = rig.start(&options, route, &pool);
        let more = "User-Agent: probe/1.0\r\ntracestate: a=b\r\n";
        // One of them goes to the dead backend first.
        for _ in 0..2 {
            assert_eq!(rig.ask("/shop/a?b=c&sig=x", more), 200);
        }
        // The last spans are exported before the process ends.
        process.signal(libc::SIGTERM);
        assert!(process.ended().success());

        let all = spans(&collector);
        let traces = traces(&all);
        let of_traces: usize = traces.iter().map(|(_, children)| 1 + children.len()).sum();
        assert_eq!((traces.len(), of_traces), (2, all.len()), "{all:#?}");
        let (server, children) =
            traces.iter().find(|(_, children)| children.len() == 2).expect("a retry");
        assert_served_request(server);
        assert_retry(server, children, dead.address(), backend.address());

        // The backend's parent is the attempt that it has served. A `tracestate` without a parent
        // is of no trace.
        let mut named: Vec<_> = all
            .iter()
            .filter(|span| attribute(span, "equipoise.backend") == "a")
            .map(|span| {
                let (trace, id) = (span["traceId"].as_str(), span["spanId"].as_str());
                format!("00-{}-{}-01", trace.expect("an id"), id.expect("an id"))
            })
            .collect();
        let requests = backend.requests();
        let mut received: Vec<_> =
            requests.iter().flat_map(|request| request.head.all("traceparent")).collect();
        named.sort();
        received.sort_unstable();
        assert_eq!(received, named);
        assert!(requests.iter().all(|request| request.head.header("tracestate").is_none()));
        for (server, _) in &traces {
            let line = format!("trace_id=\"{}\"\n", server["traceId"].as_str().expect("an id"));
            assert!(process.printed().contains(&line), "{line}: {}", process.printed());
        }
    }
}

#[test]
fn a_trusted_sender_decides_and_others_do_not() {
    let backend = HttpBackend::named("a");
    let pool = format!("backends = [\"{}\"]", backend.address());
    let given = |flag: &str| format!("00-{TRACE}-{PARENT}-{flag}");
    let headers = |flag: &str| format!("traceparent: {}\r\ntracestate: a=b\r\n", given(flag));
    let last = || {
        let head = backend.requests().pop().expect("a request").head;
        let (parents, state) = (head.all("traceparent"), head.header("tracestate"));
        assert_eq!((parents.len(), state), (1, Some("a=b")), "{head:?}");
        parents[0].to_owned()
    };

    let (trusting, options) = collector("0.0");
    let rig = Rig::new("spans-trusted");
    let mut process = rig.start(&options, "trusted = \"127.0.0.0/8\"", &pool);
    rig.ask("/unsampled", &headers("00"));
    assert_eq!(last(), given("00"));
    rig.ask("/none", "");
    assert_eq!(backend.requests()[1].head.header("traceparent"), None);
    rig.ask("/sampled", &headers("03"));
    let sent = last();
    process.signal(libc::SIGTERM);
    assert!(process.ended().success());
    let all = spans(&trusting);
    let [(server, children)] = &traces(&all)[..] else { panic!("{all:#?}") };
    assert_attributes(server, &[("url.path", "/sampled")]);
    assert_eq!(
        (&server["traceId"], &server["parentSpanId"]),
        (&TRACE.into(), &PARENT.into()),
        "{server:#}"
    );
    let span = children[0]["spanId"].as_str().expect("an id");
    assert_eq!(sent, format!("00-{TRACE}-{span}-03"));

    // From another sender the flag decides nothing, and the header passes as it came.
    let (wary, options) = collector("0.0");
    let rig = Rig::new("spans-wary");
    let mut process = rig.start(&options, "", &pool);
    for flag in ["01", "00"] {
        rig.ask("/", &headers(flag));
        assert_eq!(last(), given(flag));
    }
    process.signal(libc::SIGTERM);
    assert!(process.ended().success());
    assert_eq!(spans(&wary).len(), 0);

    // A header that is invalid or doubled is no parent.
    let (strict, options) = collector("1.0");
    let rig = Rig::new("spans-strict");
    let mut process = rig.start(&options, "", &pool);
    rig.ask("/", &headers("01").repeat(2));
    rig.ask("/", &headers("0x"));
    process.signal(libc::SIGTERM);
    assert!(process.ended().success());
    let all = spans(&strict);
    assert_eq!(all.len(), 4);
    assert!(all.iter().all(|span| span["traceId"] != TRACE), "{all:#?}");
    let requests = backend.requests();
    let [.., doubled, invalid] = &requests[..] else { panic!("{requests:#?}") };
    for request in [doubled, invalid] {
        assert_eq!(request.head.all("traceparent").len(), 1, "{request:?}");
        assert_eq!(request.head.header("tracestate"), None, "{request:?}");
    }
}

#[test]
fn the_headers_pass_unchanged_without_tracing() {
    let backend = HttpBackend::named("a");
    let rig = Rig::new("spans-off");
    let _process = rig.start("", "", &format!("backends = [\"{}\"]", backend.address()));
    let sent = "traceparent: 00-X\r\ntraceparent: 01-y\r\nTraceState: a=b,c=d\r\n";
    assert_eq!(rig.ask("/", sent), 200);
    let head = &backend.requests()[0].head;
    assert_eq!(head.all("traceparent"), ["00-X", "01-y"]);
    assert_eq!(head.all("tracestate"), ["a=b,c=d"]);
    assert!(!get(rig.api.address(), "/metrics").text().contains("equipoise_spans"));
}

/// Requests that are more than wait for their export.
const REQUESTS: usize = 3000;

#[test]
fn a_deaf_collector_delays_no_request_and_lost_spans_are_counted() {
    let deaf = HttpBackend::always(Answer::hang());
    let options = format!("[tracing]\notlp = \"http://{}\"\nsample = 1.0", deaf.address());
    let (backend, rig) = (HttpBackend::named("a"), Rig::new("spans-deaf"));
    let process = rig.start(&options, "", &format!("backends = [\"{}\"]", backend.address()));
    let mut client = Client::connect(rig.door.address());
    for _ in 0..REQUESTS {
        let answer = client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(answer.map(|answer| answer.status()), Ok(200));
    }
    let metrics = get(rig.api.address(), "/metrics").text();
    let value = |name: &str| -> u64 {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.trim().parse().ok()).unwrap_or_else(|| panic!("{metrics}"))
    };
    assert!(value("equipoise_spans_lost_total{reason=\"queue_full\"}") > 0);
    assert_eq!(value("equipoise_spans_exported_total"), 0);

    // It says so once the collector is gone, and counts those spans, too.
    deaf.acceptor().close_open();
    process.wait_for_text("cannot export spans to http://127.0.0.1:");
    let counted = "equipoise_spans_lost_total{reason=\"not_accepted\"} 0\n";
    assert!(eventually(|| !get(rig.api.address(), "/metrics").text().contains(counted)));
}

/// nginx with a certificate for 127.0.0.1, which passes requests on to a collector.
fn nginx(certificates: &Certificates, listens: SocketAddr, collector: SocketAddr) -> Peer {
    let params = CertificateParams::new(["127.0.0.1".to_string()]).expect("an address");
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, &certificates.authority).expect("a certificate");
    let both = format!("{}{}", certificate.pem(), key.serialize_pem());
    let pem = certificates.folder.write("collector.pem", &both);
    std::fs::set_permissions(&pem, PermissionsExt::from_mode(0o600)).expect("a mode");
    let folder = certificates.path("");
    let config = format!(
        "daemon off; master_process off; worker_processes 1; pid {folder}nginx.pid;\n\
         error_log {folder}nginx.log;\nevents {{ }}\n\
         http {{ access_log off;\n\
         client_body_temp_path {folder}t1; proxy_temp_path {folder}t2; fastcgi_temp_path {folder}t3;\n\
         uwsgi_temp_path {folder}t4; scgi_temp_path {folder}t5;\n\
         server {{ listen {listens} ssl; ssl_certificate {folder}collector.pem;\n\
         ssl_certificate_key {folder}collector.pem;\n\
         location / {{ proxy_pass http://{collector}; }} }} }}\n"
    );
    let file = certificates.folder.write("nginx.conf", &config);
    spawn(Command::new("/usr/sbin/nginx").args(["-c", text(&file), "-e", "stderr"]), listens)
}

#[test]
fn spans_are_sent_over_tls_to_a_collector_that_is_verified() {
    let (certificates, others) = (Certificates::new("spans-tls"), Certificates::new("spans-other"));
    let (collector, options) = collector("1.0");
    let listens = free_port();
    let _nginx = nginx(&certificates, listens.address(), collector.address());
    let (plain, encrypted) = (collector.address(), listens.address());
    let options = options.replace(&format!("http://{plain}"), &format!("https://{encrypted}"));
    let backend = HttpBackend::named("a");
    let pool = format!("backends = [\"{}\"]", backend.address());
    let with =
        |authorities: &Certificates| format!("{options}\nca = \"{}\"", authorities.path("ca.pem"));

    let rig = Rig::new("spans-tls-verified");
    let mut process = rig.start(&with(&certificates), "", &pool);
    assert_eq!(rig.ask("/", ""), 200);
    process.signal(libc::SIGTERM);
    assert!(process.ended().success());
    assert_eq!(spans(&collector).len(), 2, "{}", process.printed());

    let rig = Rig::new("spans-tls-unknown");
    let process = rig.start(&with(&others), "", &pool);
    assert_eq!(rig.ask("/", ""), 200);
    process.wait_for_text(&format!("cannot export spans to https://{encrypted}/v1/traces: "));
    assert!(process.printed().contains("invalid peer certificate"), "{}", process.printed());
    assert_eq!(spans(&collector).len(), 2);
}
