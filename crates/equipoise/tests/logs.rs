//! The output of `equipoise run` on standard error: events and the access log, in the format of
//! `log.format`.

mod common;

use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{EQUIPOISE, Folder, Process, equipoise, get, kill, post_unix, stderr, text};
use equipoise_testkit::{Client, HttpBackend, eventually, free_port, spawn_bound};
use serde_json::Value;

#[test]
fn access_log_lines_that_a_full_disk_does_not_take_are_counted() {
    let (folder, door, api) = (Folder::new("full-log"), free_port(), free_port());
    let backend = HttpBackend::named("a");
    let config = format!(
        "[api]\nsocket = \"{}\"\nlisten = \"{}\"\n[log]\naccess-log = \"/dev/full\"\n\
         [[session]]\nname = \"door\"\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"web\"\naccess-log = 1.0\n\
         [[pool]]\nname = \"web\"\nbackends = [\"{}\"]\n",
        folder.path("api.sock").display(),
        api.address(),
        door.address(),
        backend.address(),
    );
    let file = folder.write("equipoise.toml", &config);
    let process = Process::start(&["run", text(&file)]);
    process.wait_for_text(" ready ");
    for _ in 0..7 {
        assert_eq!(get(door.address(), "/").text(), "a");
    }
    let counted = "equipoise_access_log_dropped_total{front_door=\"door\",pool=\"web\"} 7\n";
    let metrics = || get(api.address(), "/metrics").text();
    assert!(eventually(|| metrics().contains(counted)), "{}", metrics());
    process.wait_for_text("cannot write the access log");
}

#[test]
fn events_and_access_log_are_json_objects_with_pool_and_backend() {
    let (folder, door, dead) = (Folder::new("json-logs"), free_port(), free_port());
    let backend = HttpBackend::named("a");
    let config = format!(
        "[api]\nsocket = \"{}\"\nlisten = \"off\"\n[log]\nformat = \"json\"\n\
         [[session]]\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"web\"\naccess-log = 1.0\n\
         [[pool]]\nname = \"web\"\nhealth = {{ tcp = true, interval = \"100ms\" }}\n\
         backends = [{{ name = \"a\", address = \"{}\" }}, {{ name = \"dead\", address = \"{}\" }}]\n",
        folder.path("api.sock").display(),
        door.address(),
        backend.address(),
        dead.address(),
    );
    let file = folder.write("equipoise.toml", &config);
    let process = Process::start(&["run", text(&file)]);
    process.wait_for_text("is unhealthy");
    assert_eq!(get(door.address(), "/path").text(), "a");
    let objects = || -> Vec<Value> {
        let printed = process.printed();
        printed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    let find = |key: &str, value: &str| objects().into_iter().find(|it| it[key] == value);
    let both = || find("kind", "request").is_some() && find("backend", "dead").is_some();
    assert!(eventually(both), "{}", process.printed());

    let request = find("kind", "request").expect("it was found");
    assert_eq!((&request["path"], &request["backend"]), (&"/path".into(), &"a".into()));
    assert_eq!((&request["pool"], &request["status"]), (&"web".into(), &200.into()));
    let event = find("backend", "dead").expect("it was waited for");
    assert_eq!((&event["level"], &event["pool"]), (&"WARN".into(), &"web".into()), "{event}");
}

/// Number of changes that fills a log larger than any pipe.
const CHANGES: usize = 300;

#[test]
fn a_reader_of_standard_error_that_stands_still_delays_nothing() {
    let (folder, door, api) = (Folder::new("blocked-log"), free_port(), free_port());
    let (backend, socket) = (HttpBackend::named("a"), folder.path("api.sock"));
    let config = format!(
        "[api]\nsocket = {socket:?}\nlisten = \"{}\"\n\
         [[session]]\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"web\"\naccess-log = 1.0\n\
         [[pool]]\nname = \"web\"\nbackends = [{{ name = \"a\", address = \"{}\" }}]\n",
        api.address(),
        door.address(),
        backend.address(),
    );
    let file = folder.write("equipoise.toml", &config);
    let (mut reader, writer) = std::io::pipe().expect("a pipe can be made");
    let mut command = Command::new(EQUIPOISE);
    command.args(["run", text(&file)]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(writer);
    let mut process = spawn_bound(command).expect("the binary runs");
    // Reads the first byte, so that the process is known to log; then the reader stops.
    reader.read_exact(&mut [0; 1]).expect("it logs");
    let is_ready = || equipoise(&["status", "--api", text(&socket)]).status.success();
    assert!(eventually(is_ready), "the process does not start");

    for number in 0..CHANGES {
        let action = ["drain", "undrain"][number % 2];
        let path = format!("/v1/pools/web/backends/a/{action}");
        let (status, answer) = post_unix(&socket, &path, "");
        assert_eq!(status, 200, "{number}: {answer}");
        // The status may be that of either state: a busy thread may see a change late.
        get(door.address(), "/");
    }
    for path in ["/v1/health", "/v1/status", "/metrics"] {
        assert_eq!(get(api.address(), path).status(), 200, "{path}");
    }
    let shown = equipoise(&["status", "--api", text(&socket)]);
    assert!(shown.status.success(), "{}", stderr(&shown));

    kill(process.id(), libc::SIGTERM);
    let mut ended = None;
    let has_ended = eventually(|| {
        ended = process.try_wait().expect("it is our child");
        ended.is_some()
    });
    if !has_ended {
        let _ = process.kill();
    }
    assert!(ended.is_some_and(|status| status.success()), "one SIGTERM: {ended:?}");
    // The pipe was full: the last line did not fit.
    let mut log = Vec::new();
    reader.read_to_end(&mut log).expect("a pipe can be read");
    let log = String::from_utf8_lossy(&log);
    assert!(!log.contains(" stopped\n"), "the pipe took all {} bytes", log.len());
}

#[test]
fn the_last_lines_of_a_normal_end_are_in_the_log() {
    let (folder, door) = (Folder::new("last-lines"), free_port());
    let config = format!(
        "[api]\nsocket = {:?}\nlisten = \"off\"\n\
         [[session]]\nlisten = \"{}\"\nprotocol = \"tcp\"\npool = \"web\"\n\
         [[pool]]\nname = \"web\"\nbackends = [\"127.0.0.1:9\"]\n",
        folder.path("api.sock"),
        door.address(),
    );
    let file = folder.write("equipoise.toml", &config);
    let mut process = Process::start(&["run", text(&file)]);
    process.wait_for_text(" ready ");
    process.signal(libc::SIGTERM);
    assert!(process.ended().success());
    assert!(process.printed().contains(" stopped\n"), "{}", process.printed());
    // An error at the start is the last line, after the lines of the log.
    let second = Folder::new("last-error");
    let config = config.replace("127.0.0.1:9", "127.0.0.1:9\", \"127.0.0.1:10");
    let taken = std::net::TcpListener::bind(door.address()).expect("the port is reserved");
    let file = second.write("equipoise.toml", &config);
    let failed = equipoise(&["run", text(&file)]);
    drop(taken);
    assert!(!failed.status.success());
    let printed = stderr(&failed);
    let last = printed.lines().last().unwrap_or_default();
    assert!(last.starts_with("equipoise: cannot open the front doors"), "{printed}");
}

/// A front door with a route that rewrites the path, and these options of `[log]`.
fn routed(folder: &Folder, door: SocketAddr, backend: SocketAddr, log: &str) -> PathBuf {
    let config = format!(
        "[instance]\nname = \"edge-1\"\n[api]\nsocket = {:?}\nlisten = \"off\"\n[log]\n{log}\n\
         [[session]]\nlisten = \"{door}\"\nprotocol = \"http\"\npool = \"web\"\naccess-log = 1.0\n\
         [[session.route]]\nname = \"api\"\npath-prefix = \"/api\"\nrewrite.prefix = \"/v1\"\n\
         [[pool]]\nname = \"web\"\nbackends = [\"{backend}\"]\n",
        folder.path("api.sock"),
    );
    folder.write("equipoise.toml", &config)
}

/// Asks for `/api/a` with a user agent that tries to forge a line, and headers `more`.
fn ask_routed(door: SocketAddr, more: &str) -> String {
    let head = format!(
        "GET /api/a HTTP/1.1\r\nHost: a.example\r\nUser-Agent: x\" 200 \\\t\u{e9}\r\n{more}\r\n"
    );
    Client::connect(door).ask(head).expect("an answer").text()
}

#[test]
fn the_access_log_may_be_combined_lines_over_syslog() {
    let (folder, door, backend) = (Folder::new("syslog"), free_port(), HttpBackend::named("a"));
    let socket = folder.path("log");
    let server = UnixDatagram::bind(&socket).expect("the folder is writable");
    server.set_read_timeout(Some(Duration::from_secs(30))).expect("a time is valid");
    let log = format!("access-log = \"syslog:{}\"\naccess-format = \"combined\"", text(&socket));
    let file = routed(&folder, door.address(), backend.address(), &log);
    let process = Process::start(&["run", text(&file)]);
    process.wait_for_text(" ready ");
    let referer = "Referer: https://b.example/\r\n";
    assert_eq!(ask_routed(door.address(), referer), "a");
    assert_eq!(backend.requests()[0].head.target(), "/v1/a");

    let mut buffer = [0; 4096];
    let length = server.recv(&mut buffer).expect("a message");
    let message = std::str::from_utf8(&buffer[..length]).expect("it is text");
    let (head, line) = message.split_once(" - 127.0.0.1 - - [").expect("the client's address");
    assert!(head.starts_with("<134>1 20"), "{message}");
    let sender = format!(" edge-1 equipoise {} access", process.pid());
    assert!(head.ends_with(&sender), "{message}");
    let (time, line) = line.split_once(" +0000] ").expect("a time in UTC");
    assert_eq!(time.len(), "29/Feb/2000:00:00:00".len(), "{message}");
    let (request, line) = line.split_once(" 200 ").expect("the status");
    assert_eq!(request, "\"GET /api/a HTTP/1.1\"");
    let (bytes, line) = line.split_once(' ').expect("the bytes");
    assert!(bytes.parse().is_ok_and(|bytes: u64| bytes > 20), "{message}");
    assert_eq!(line, r#""https://b.example/" "x\x22 200 \x5C\x09\xC3\xA9""#);
}

#[test]
fn the_access_log_may_be_chosen_fields_on_standard_output() {
    let (folder, door, backend) = (Folder::new("stdout-log"), free_port(), HttpBackend::named("a"));
    let log = "access-log = \"stdout\"\naccess-format = \"json\"\n\
               access-fields = [\"route\", \"path\", \"status\", \"protocol\", \"referer\", \"user_agent\"]";
    let file = routed(&folder, door.address(), backend.address(), log);
    let output = folder.path("stdout");
    let mut command = Command::new("sh");
    let script = "exec \"$0\" run \"$1\" > \"$2\"";
    command.args(["-c", script, EQUIPOISE, text(&file), text(&output)]);
    let process = Process::of(command);
    process.wait_for_text(" ready ");
    assert_eq!(ask_routed(door.address(), ""), "a");
    assert_eq!(get(door.address(), "/b").text(), "a");

    let printed = || std::fs::read_to_string(&output).expect("it is text");
    assert!(eventually(|| printed().lines().count() == 2), "{}", printed());
    let printed = printed();
    // Threads write in either order.
    let mut lines: Vec<_> = printed.lines().collect();
    lines.sort_unstable();
    let agent = r#"x\" 200 \\\u0009é"#;
    let expected = format!(
        r#"{{"path":"/api/a","protocol":"HTTP/1.1","status":200,"route":"api","referer":null,"user_agent":"{agent}"}}"#
    );
    assert_eq!(lines[0], expected);
    let other: Value = serde_json::from_str(lines[1]).expect("JSON");
    assert_eq!((&other["path"], &other["route"]), (&"/b".into(), &Value::Null));
}
