//! The access log of HTTP front doors: the contents of a line, for served and refused requests.

mod common;

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use common::{Plan, Proxy, both_upstreams, get, post, request};
use equipoise_core::LineFormat;
use equipoise_session::config::{TrustedSources, Upstream};
use equipoise_testkit::{Answer, HttpBackend, LogBuffer, Step, eventually, free_port};
use serde_json::Value;

both_upstreams! {
    a_request_is_logged_with_all_its_fields,
    client_input_is_escaped_and_cannot_forge_a_log_line,
    log_lines_have_the_failure_reason_backend_and_retries,
}

/// Waits for this number of lines, which are JSON objects.
#[track_caller]
fn objects(lines: &LogBuffer, count: usize) -> Vec<Value> {
    let parsed =
        |line: String| serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
    lines.wait(count).into_iter().map(parsed).collect()
}

/// A proxy that logs every request.
fn logged(plan: Plan, format: LineFormat) -> (Proxy, LogBuffer) {
    let lines = LogBuffer::default();
    let mut plan = plan.access_log(lines.clone()).front(|front| front.access_log = 1.0);
    plan.access_log_format = format;
    (plan.start(), lines)
}

fn a_request_is_logged_with_all_its_fields(mode: Upstream) {
    let backend = HttpBackend::named("a");
    let (proxy, lines) = logged(Plan::new(mode, &[backend.address()]), LineFormat::JSON);
    let mut client = proxy.connect();
    let headers = "User-Agent: probe/1.0\r\nX-Request-ID: r-17\r\n";
    let asked = request("GET", "/one?x=\"y", headers);
    client.ask(&asked).expect("an answer");
    client.ask(post("/two", "abcde")).expect("an answer");
    drop(client);
    let objects = objects(&lines, 2);
    let (one, two) = (&objects[0], &objects[1]);
    for (key, value) in [
        ("kind", "request"),
        ("method", "GET"),
        ("host", "a.example"),
        ("path", "/one?x=\"y"),
        ("pool", "web"),
        ("backend", &backend.address().to_string()),
        ("user_agent", "probe/1.0"),
        ("request_id", "r-17"),
    ] {
        assert_eq!(one[key], value, "{key} of {one}");
    }
    assert_eq!((&one["status"], &one["retries"]), (&200.into(), &0.into()));
    assert_eq!((&one["reason"], &two["user_agent"]), (&Value::Null, &Value::Null));
    assert_eq!(one["bytes_in"], asked.len());
    assert_eq!(two["bytes_in"], post("/two", "abcde").len());
    assert!(one["bytes_out"].as_u64() > Some(20), "{one}");
    assert!(one["seconds"].as_f64().is_some_and(|seconds| (0.0..60.0).contains(&seconds)), "{one}");
    assert!(two["first_byte_seconds"].is_number(), "{two}");
    let time = one["time"].as_str().expect("it is text");
    assert_eq!(
        (time.len(), &time[4..5], &time[10..11], &time[23..]),
        (24, "-", "T", "Z"),
        "{time}"
    );
    assert!(one["client"].as_str().is_some_and(|client| client.starts_with("127.0.0.1:")));
}

fn client_input_is_escaped_and_cannot_forge_a_log_line(mode: Upstream) {
    let backend = HttpBackend::named("a");
    let (proxy, lines) = logged(Plan::new(mode, &[backend.address()]), LineFormat::TEXT);
    // Tab is the one control character that a value may hold; a quote would end the field.
    let lines_sent = "User-Agent: a\" status=500\tb\r\nX-Request-ID: \u{85}\r\n";
    proxy.ask(request("GET", "/\"x", lines_sent));
    let line = lines.wait(1).remove(0);
    assert!(
        line.contains(r#"user_agent="a\" status=500\x09b" request_id="\x85" reason=-"#),
        "{line}"
    );
    assert!(line.contains(r#" path="/\"x" status=200 "#), "{line}");
}

fn log_lines_have_the_failure_reason_backend_and_retries(mode: Upstream) {
    let closing = HttpBackend::always(Answer::raw("").then(Step::Close));
    let (dead, plan) = (free_port(), Plan::new(mode, &[closing.address()]));
    let (proxy, lines) = logged(plan.pool(|pool| pool.retries = 2), LineFormat::JSON);
    for (number, (request, retries)) in [(post("/", "x"), 0), (get("/"), 2)].iter().enumerate() {
        assert_eq!(proxy.ask(request).status(), 502);
        let line = objects(&lines, number + 1).remove(number);
        assert_eq!(
            (&line["status"], &line["reason"]),
            (&502.into(), &"upstream_closed".into()),
            "{line}"
        );
        assert_eq!(line["backend"], closing.address().to_string());
        assert_eq!(line["retries"], *retries, "{line}");
    }

    let alive = HttpBackend::named("a");
    let plan = Plan::new(mode, &[dead.address(), alive.address()]);
    let (proxy, lines) = logged(plan, LineFormat::JSON);
    assert_eq!(proxy.ask(get("/")).status(), 200);
    assert_eq!(proxy.ask(get("/")).status(), 200);
    let lines = objects(&lines, 2);
    let retries: u64 = lines.iter().filter_map(|line| line["retries"].as_u64()).sum();
    assert!(retries >= 1, "{lines:#?}");
    assert!(lines.iter().all(|line| line["backend"] == alive.address().to_string()), "{lines:#?}");
}

/// Takes this number of bytes, then fails like a full disk, until there is room again.
#[derive(Clone)]
struct Disk {
    lines: LogBuffer,
    room: Arc<Mutex<usize>>,
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut room = self.room.lock().expect("no writer panics");
        let count = bytes.len().min(*room);
        *room -= count;
        match count {
            0 => Err(io::ErrorKind::StorageFull.into()),
            _ => self.lines.write(&bytes[..count]),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn log_lines_lost_to_a_full_disk_are_counted() {
    let backend = HttpBackend::named("a");
    let disk = Disk { lines: LogBuffer::default(), room: Arc::new(Mutex::new(usize::MAX)) };
    let room = |bytes| *disk.room.lock().expect("no writer panics") = bytes;
    let plan = Plan::new(Upstream::Exclusive, &[backend.address()]).access_log(disk.clone());
    let mut plan = plan.front(|front| front.access_log = 1.0);
    plan.access_log_format = LineFormat::JSON;
    let proxy = plan.start();
    let mut client = proxy.connect();
    let mut ask = |target| assert_eq!(client.ask(get(target)).map(|r| r.status()), Ok(200));
    ask("/before");
    disk.lines.wait(1);
    room(5);
    (0..20).for_each(|_| ask("/lost"));
    let lost = || proxy.stats.sum(|s| s.access_log_unwritten.get());
    assert!(eventually(|| lost() == 20), "{}: {}", lost(), disk.lines.text());
    assert_eq!(disk.lines.wait(2)[1].len(), 5, "the first of them is cut");

    // The next line begins after a line break, behind the partial one.
    room(usize::MAX);
    ask("/after");
    let last: Value = serde_json::from_str(&disk.lines.wait(3)[2]).expect("it is JSON");
    assert_eq!((&last["path"], lost()), (&"/after".into(), 20));
}

#[test]
fn a_refused_request_is_logged_with_its_readable_parts() {
    let backend = HttpBackend::named("a");
    let refused: [(&[u8], u64, &str, &str, &str); 4] = [
        (
            b"GET /a HTTP/1.1\r\nHost: a\r\nUser-Agent: u\r\nContent-Length: x\r\n\r\n",
            400,
            "request_framing",
            "/a",
            "u",
        ),
        (
            b"CONNECT b:1 HTTP/1.1\r\nHost: b:1\r\nUser-Agent: u\r\n\r\n",
            405,
            "method_not_allowed",
            "b:1",
            "u",
        ),
        (b"GET /c HTTP/9.9\r\nUser-Agent: u\r\n\r\n", 505, "version_not_supported", "/c", "u"),
        (
            b"GET /d HTTP/1.1\r\nUser-Agent: u\x1b[31m\r\n\r\n",
            400,
            "request_malformed",
            "/d",
            "u\u{1b}[31m",
        ),
    ];
    for (bytes, status, reason, path, agent) in refused {
        let plan = Plan::new(Upstream::Exclusive, &[backend.address()]);
        let (proxy, lines) = logged(plan, LineFormat::JSON);
        proxy.ask(bytes);
        let line = objects(&lines, 1).remove(0);
        assert_eq!((&line["status"], &line["reason"]), (&status.into(), &reason.into()), "{line}");
        assert_eq!((&line["path"], &line["user_agent"]), (&path.into(), &agent.into()), "{line}");
        assert_eq!((&line["backend"], &line["bytes_in"]), (&Value::Null, &bytes.len().into()));
        assert!(line["client"].as_str().is_some_and(|client| client.starts_with("127.0.0.1:")));
    }
    assert_eq!(backend.requests().len(), 0);
}

#[test]
fn a_head_timeout_and_an_untrusted_proxy_source_are_logged() {
    let backend = HttpBackend::named("a");
    let plan = Plan::new(Upstream::Exclusive, &[backend.address()]);
    let slow = plan.front(|front| front.timeouts.header = std::time::Duration::from_millis(200));
    let (proxy, lines) = logged(slow, LineFormat::JSON);
    let mut client = proxy.connect();
    client.send("GET /slow HTTP/1.1\r\nHost: a");
    assert_eq!(client.response().expect("an answer").status(), 408);
    let line = objects(&lines, 1).remove(0);
    assert_eq!((&line["reason"], &line["path"]), (&"header_timeout".into(), &"/slow".into()));
    assert!(line["seconds"].as_f64() >= Some(0.2), "{line}");

    let plan = Plan::new(Upstream::Exclusive, &[backend.address()]).front(|front| {
        front.accept_proxy = true;
        front.trusted = TrustedSources::from_iter([([192, 0, 2, 9].into(), 32)]);
    });
    let (proxy, lines) = logged(plan, LineFormat::JSON);
    // The reset may arrive before the client notices that it is connected.
    let _ = TcpStream::connect(proxy.address);
    let line = objects(&lines, 1).remove(0);
    assert_eq!((&line["reason"], &line["status"]), (&"proxy_untrusted".into(), &Value::Null));
}
