//! `GET /v1/events` and `equipoise events`, through the real binary.

mod common;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use common::{Folder, Process, equipoise, get_unix, post_unix, reload, stderr, stdout, text};
use equipoise_api::events::KINDS;
use equipoise_testkit::{HttpBackend, PATIENCE, ReservedPort, eventually, free_port};
use serde_json::Value;

struct Instance {
    process: Process,
    folder: Folder,
    socket: PathBuf,
    door: ReservedPort,
}

impl Instance {
    fn start(test: &str, backends: &str) -> Instance {
        let (folder, door) = (Folder::new(test), free_port());
        let socket = folder.path("api.sock");
        let file = write(&folder, &door, backends);
        Instance { process: run(&file), folder, socket, door }
    }

    fn rewrite(&self, backends: &str) {
        write(&self.folder, &self.door, backends);
    }

    /// Runs a command over the unix socket. Returns whether it succeeded, and its output.
    fn command(&self, args: &[&str]) -> (bool, String) {
        let args = [args, &["--api", text(&self.socket)]].concat();
        let output = equipoise(&args);
        (output.status.success(), stdout(&output) + &stderr(&output))
    }

    /// The events that the process keeps.
    fn events(&self, query: &str) -> Value {
        let answer = get_unix(&self.socket, &format!("/v1/events{query}"));
        let (_, body) = answer.split_once("\r\n\r\n").expect("it answers");
        serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"))
    }
}

fn run(file: &Path) -> Process {
    let process = Process::start(&["run", text(file)]);
    process.wait_for_text(" ready ");
    process
}

fn write(folder: &Folder, door: &ReservedPort, backends: &str) -> PathBuf {
    let config = format!(
        "[api]\nsocket = \"{}\"\nlisten = \"off\"\n[instance]\nname = \"under-test\"\nthreads = 1\n\
         [[session]]\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"web\"\n\
         [[pool]]\nname = \"web\"\nbackends = [{backends}]\n\
         health = {{ tcp = true, interval = \"100ms\", rise = 1, fall = 1 }}\n",
        folder.path("api.sock").display(),
        door.address(),
    );
    folder.write("equipoise.toml", &config)
}

fn named(name: &str, backend: &HttpBackend) -> String {
    format!("{{ name = \"{name}\", address = \"{}\" }},", backend.address())
}

/// An event stream.
struct Stream {
    lines: BufReader<UnixStream>,
    head: String,
}

impl Stream {
    fn open(socket: &Path, query: &str, last: Option<&str>) -> Stream {
        let mut stream = UnixStream::connect(socket).expect("the API listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("it is not zero");
        let last = last.map_or(String::new(), |id| format!("Last-Event-ID: {id}\r\n"));
        let request = format!(
            "GET /v1/events{query} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{last}\r\n"
        );
        stream.write_all(request.as_bytes()).expect("the API reads");
        let mut stream = Stream { lines: BufReader::new(stream), head: String::new() };
        while !stream.head.ends_with("\r\n\r\n") {
            stream.lines.read_line(&mut stream.head).expect("the API answers");
        }
        stream
    }

    /// The next event; `None` at the end of the stream, or if there was none for 15 s.
    fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        while self.lines.read_line(&mut line).expect("it goes on or ends") > 0 {
            if let Some(data) = line.strip_prefix("data: ") {
                return Some(serde_json::from_str(data).expect("it is JSON"));
            }
            if line.starts_with(':') {
                return None;
            }
            line.clear();
        }
        None
    }

    /// Reads until each of these events has come, in any order.
    fn until_all(&mut self, wanted: &[(&str, &str)]) {
        let mut left = wanted.to_vec();
        while !left.is_empty() {
            let event = self.next().unwrap_or_else(|| panic!("without {left:?}"));
            left.retain(|(kind, subject)| event["type"] != *kind || event["subject"] != *subject);
        }
    }

    /// Reads until an event of this type about this object.
    fn until(&mut self, kind: &str, subject: &str) -> Value {
        let mut seen = Vec::new();
        while let Some(event) = self.next() {
            if event["type"] == kind && event["subject"] == subject {
                return event;
            }
            seen.push(event);
        }
        panic!("no {kind} of {subject}: {seen:#?}")
    }
}

#[test]
fn changes_are_streamed_as_they_happen_with_their_reasons() {
    let (a, b, c) = (HttpBackend::named("a"), HttpBackend::named("b"), HttpBackend::named("c"));
    let instance = Instance::start("events", &(named("a", &a) + &named("b", &b)));
    let mut stream = Stream::open(&instance.socket, "", None);
    assert!(stream.head.contains("content-type: text/event-stream\r\n"), "{}", stream.head);
    stream.until_all(&[("process.ready", ""), ("backend.healthy", "web/b")]);
    drop(b);
    let down = stream.until("backend.unhealthy", "web/b");
    assert_eq!(down["level"], "warning");
    assert!(down["words"].as_str().is_some_and(|it| it.contains("refused")), "{down}");
    assert!(instance.command(&["drain", "web/a"]).0);
    stream.until("backend.draining", "web/a");
    stream.until("pool.empty", "web");
    let change = stream.until("change.done", "/v1/pools/web/backends/a/drain");
    assert!(change["words"].as_str().is_some_and(|it| it.starts_with("uid:")), "{change}");

    instance.rewrite(&(named("a", &a) + &named("c", &c)));
    assert_eq!(reload(&instance.socket).0, 200);
    stream.until("configuration.applied", "");
    stream.until("backend.added", "web/c");
    stream.until("backend.removed", "web/b");
    let file = instance.folder.path("equipoise.toml");
    stream.until("reload.applied", text(&file));
    instance.rewrite("nonsense");
    assert_eq!(reload(&instance.socket).0, 422);
    let refused = stream.until("reload.refused", text(&file));
    assert_eq!(refused["level"], "error");
    assert!(
        refused["words"].as_str().is_some_and(|it| it.contains("equipoise.toml:")),
        "{refused}"
    );

    let healthy = "?type=backend.healthy&subject=web/c";
    assert!(eventually(|| instance.events(healthy)["events"][0].is_object()), "its first check");
    // Every event was streamed once and in order.
    let kept = instance.events("");
    let numbers: Vec<u64> = ids(&kept).iter().map(|(_, number)| *number).collect();
    let expected: Vec<u64> = (1..=numbers.len() as u64).collect();
    assert_eq!(numbers, expected, "{kept:#}");
    instance.process.signal(libc::SIGTERM);
    stream.until("process.stopping", "");
    assert_eq!(stream.next(), None, "the stream ends with the process");
}

/// Epochs and numbers of the events.
fn ids(events: &Value) -> Vec<(String, u64)> {
    let id = |event: &Value| {
        let (epoch, number) = event["id"].as_str()?.rsplit_once('-')?;
        Some((epoch.to_owned(), number.parse().ok()?))
    };
    let events = events["events"].as_array().into_iter().flatten();
    events.map(|event| id(event).expect("it has an id")).collect()
}

#[test]
fn a_reader_resumes_and_learns_of_a_restart() {
    let a = HttpBackend::named("a");
    let mut instance = Instance::start("events-resume", &named("a", &a));
    assert!(eventually(|| instance.events("?type=backend.healthy")["events"][0].is_object()));
    let last = instance.events("")["last"].as_str().expect("it has one").to_owned();
    assert!(instance.command(&["weight", "web/a", "7"]).0);
    let mut stream = Stream::open(&instance.socket, "?type=backend,pool", Some(&last));
    assert_eq!(stream.next().expect("it goes on")["type"], "backend.weight");
    let after = instance.events(&format!("?after={last}"));
    assert_eq!(ids(&after).len(), 2, "the weight, and the request for it: {after:#}");

    instance.process.signal(libc::SIGKILL);
    instance.process.ended();
    instance.process = run(&instance.folder.path("equipoise.toml"));
    let mut stream = Stream::open(&instance.socket, "?type=process", Some(&last));
    let lost = stream.next().expect("it goes on");
    assert_eq!((&lost["type"], &lost["lost"]), (&"events.lost".into(), &Value::Null), "{lost}");
    let ready = stream.next().expect("it goes on");
    assert_eq!(ready["type"], "process.ready");
    let epoch = last.rsplit_once('-').expect("it is an id").0;
    assert!(!ready["id"].as_str().expect("it has one").starts_with(epoch), "{ready}");
}

#[test]
fn a_slow_reader_loses_events_and_streams_are_bounded() {
    let a = HttpBackend::named("a");
    let instance = Instance::start("events-slow", &named("a", &a));
    let mut slow = Stream::open(&instance.socket, "", None);
    for number in 0..3000 {
        let action = if number % 2 == 0 { "drain" } else { "undrain" };
        let path = format!("/v1/pools/web/backends/a/{action}");
        assert_eq!(post_unix(&instance.socket, &path, "").0, 200);
    }
    let newest = instance.events("")["last"].as_str().expect("it has one").to_owned();
    let (mut seen, mut lost, mut last) = (0, 0, String::new());
    while last != newest {
        let event = slow.next().expect("the stream goes on");
        last = event["id"].as_str().expect("it has one").to_owned();
        match event["lost"].as_u64() {
            Some(count) => lost += count,
            None => seen += 1,
        }
    }
    let all: u64 = newest.rsplit_once('-').and_then(|it| it.1.parse().ok()).expect("it is an id");
    assert!(lost > 0 && seen > 1000, "{seen} of {all} seen, {lost} lost");
    assert_eq!(seen + lost, all, "every event was seen or is known to be lost");

    let mut streams = vec![slow];
    while streams.len() < 32 {
        let stream = Stream::open(&instance.socket, "", Some(&newest));
        assert!(stream.head.starts_with("HTTP/1.1 200"), "{}: {}", streams.len(), stream.head);
        streams.push(stream);
    }
    let refused = Stream::open(&instance.socket, "", Some(&newest));
    assert!(refused.head.starts_with("HTTP/1.1 503"), "{}", refused.head);
    assert!(instance.events("")["events"].is_array(), "a document is still answered");
    drop(streams);
    let is_free = || Stream::open(&instance.socket, "", None).head.starts_with("HTTP/1.1 200");
    assert!(eventually(is_free), "the end of a client frees its place");
}

#[test]
fn an_invalid_query_is_refused_with_the_accepted_keys_or_values() {
    let a = HttpBackend::named("a");
    let instance = Instance::start("events-query", &named("a", &a));
    for (query, expected) in [
        (
            "/v1/events?type=nosuch",
            "`nosuch` is no type of events; accepted: a whole type, such as",
        ),
        ("/v1/events?type=pool,backend.nosuch", "accepted: backend, backend.added,"),
        ("/v1/events?after=zzz", "`zzz` is no id of an event; accepted: the `id` of an event"),
        (
            "/v1/events?kind=pool",
            "`kind` is no key of the query of GET /v1/events; accepted: `after`, `subject`, `type`",
        ),
        ("/v1/status?watch=1", "`watch` is no key of the query of GET /v1/status; it has no query"),
        ("/v1/plan?nxt=true", "`nxt` is no key of the query of GET /v1/plan; accepted: `next`"),
    ] {
        let answer = get_unix(&instance.socket, query);
        assert!(answer.starts_with("HTTP/1.1 400"), "{query}: {answer}");
        let (_, body) = answer.split_once("\r\n\r\n").expect("it answers");
        let problem: Value = serde_json::from_str(body).expect("it is JSON");
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(detail.contains(expected), "{query}: {detail}");
    }
    let probed = get_unix(&instance.socket, "/metrics?verbose");
    assert!(probed.starts_with("HTTP/1.1 200"), "{probed}");
    for follow in [&[][..], &["--follow"]] {
        let (worked, text) = instance.command(&[&["events", "--type", "nosuch"], follow].concat());
        assert!(!worked && text.contains("`nosuch` is no type of events"), "{text}");
    }
}

#[test]
fn the_command_prints_events_and_follows_them_over_a_restart() {
    let a = HttpBackend::named("a");
    let mut instance = Instance::start("events-command", &named("a", &a));
    assert!(eventually(|| instance.events("?type=backend.healthy")["events"][0].is_object()));
    assert!(instance.command(&["drain", "web/a"]).0);
    let (worked, page) = instance.command(&["events"]);
    assert!(worked, "{page}");
    let line = page.lines().find(|line| line.contains("backend.draining")).expect("it is there");
    assert!(line.ends_with("pool web: backend a is draining"), "{line}");
    let (worked, lines) = instance.command(&["events", "--json", "--type", "change,process"]);
    let kinds: Vec<_> = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("it is JSON")["type"].clone())
        .collect();
    assert!(worked && kinds == ["process.ready", "change.done"], "{lines}");
    let (_, lines) = instance.command(&["events", "--subject", "web"]);
    assert!(lines.contains("backend.draining") && !lines.contains("process."), "{lines}");

    let follow =
        ["events", "--follow", "--type", "process,backend", "--api", text(&instance.socket)];
    let follower = Process::start(&follow);
    follower.wait_for_text("backend.draining");
    assert!(instance.command(&["undrain", "web/a"]).0);
    follower.wait_for_text("backend.up");
    instance.process.signal(libc::SIGKILL);
    instance.process.ended();
    instance.process = run(&instance.folder.path("equipoise.toml"));
    let ready = || follower.printed().matches("process.ready").count();
    assert!(eventually(|| ready() == 2), "{}", follower.printed());
    let printed = follower.printed();
    assert!(
        printed.contains("events.lost") && printed.contains("restarted or replaced"),
        "{printed}"
    );
}

/// The folder of the sources.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The types of events in the sources.
fn types(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("it is a folder").flatten() {
        let path = entry.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && name != "tests" && name != "target" {
            types(&path, found);
        }
        if !path.is_file() || !name.ends_with(".rs") || name == "tests.rs" {
            continue;
        }
        let source = std::fs::read_to_string(&path).expect("it is UTF-8");
        let literal = |rest: &str| Some(rest.split('"').nth(1)?.to_owned());
        found.extend(
            source
                .split("event = ")
                .skip(1)
                .filter_map(|rest| rest.starts_with('"').then(|| literal(rest)).flatten()),
        );
        // The types of notices are in a function.
        let of_notices = source.split("fn event(&self)").skip(1);
        let bodies = of_notices.filter_map(|rest| rest.split("\n    }\n").next());
        found.extend(bodies.flat_map(|body| body.split('"').skip(1).step_by(2).map(str::to_owned)));
    }
}

#[test]
fn the_page_of_events_lists_every_type() {
    let mut found = BTreeSet::new();
    types(&root().join("crates"), &mut found);
    found.insert("events.lost".into());
    let page = std::fs::read_to_string(root().join("docs/operations/events.md"));
    let page = page.expect("the page is there");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let listed = rows.flat_map(|row| {
        let cell = row.split('|').next().unwrap_or_default();
        let names = cell.split('`').step_by(2).map(|name| name.trim().to_owned());
        let names: Vec<_> = names.filter(|name| name.contains('.')).collect();
        names
    });
    let listed: BTreeSet<_> = listed.collect();
    assert!(found.len() > 40, "{found:?}");
    assert_eq!(found, listed);
    let accepted: BTreeSet<_> = KINDS.iter().map(|kind| (*kind).to_owned()).collect();
    assert_eq!(found, accepted);
}
