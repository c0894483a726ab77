//! WebSockets between a client and a server of Python's standard library.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use equipoise_testkit::{ReservedPort, eventually, free_port};

use crate::common::{Folder, Process, equipoise, stderr, stdout, text};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/routes/websocket.py");

/// A server, which ends with this.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start() -> Server {
        let mut child = Command::new("python3")
            .args([PROGRAM, "server"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs; `make test-setup` installs it");
        let mut line = String::new();
        let output = child.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut line).expect("a line");
        let port = line.trim().strip_prefix("ready http=").and_then(|port| port.parse().ok());
        Server { child, port: port.unwrap_or_else(|| panic!("no port in {line:?}")) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn client(front: &ReservedPort, path: &str, work: &str) -> Child {
    let mut command = Command::new("python3");
    let place = front.address().to_string();
    command.args([PROGRAM, &place, path, work]).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("python3 runs; `make test-setup` installs it")
}

/// The last words of a client.
fn result(child: Child) -> String {
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output).trim().to_string()
}

fn ended_after(child: Child) -> f64 {
    let result = result(child);
    let seconds = result.strip_prefix("ended ").and_then(|seconds| seconds.parse().ok());
    seconds.unwrap_or_else(|| panic!("{result}"))
}

#[test]
fn a_silent_tunnel_ends_after_its_time_and_one_that_talks_does_not() {
    let server = Server::start();
    let (folder, front) = (Folder::new("routes-tunnels"), free_port());
    let config = format!(
        r#"
        [api]
        socket = "{}"
        [instance]
        threads = 2
        [[pool]]
        name = "sockets"
        backends = ["127.0.0.1:{}"]
        [[session]]
        name = "door"
        listen = "{}"
        protocol = "http"
        pool = "sockets"
        idle-timeout = "500ms"
        tunnel-timeout = "1s"
        [[session.route]]
        path-prefix = "/long"
        tunnel-timeout = "2s"
        [[session.route]]
        path-prefix = "/without"
        tunnel-timeout = "1h"
        "#,
        text(&folder.path("api.sock")),
        server.port,
        front.address(),
    );
    let process = Process::start(&["run", text(&folder.write("equipoise.toml", &config))]);
    process.wait_for_text(" ready ");
    // They talk for 3 s, in both directions or in one.
    let talking = [client(&front, "/chat", "talk"), client(&front, "/push", "listen")];
    let mut silent = [client(&front, "/chat", "idle"), client(&front, "/long/chat", "idle")];
    let mut forever = client(&front, "/without/chat", "idle");
    let [short, long] = silent.each_mut();
    assert!(short.wait().is_ok() && long.wait().is_ok());
    let [short, long] = silent.map(ended_after);
    assert!((1.0..2.0).contains(&short), "ended after {short} s, with 1 s stated");
    assert!((2.0..4.0).contains(&long), "ended after {long} s, with 2 s stated");
    assert_eq!(talking.map(result), ["talked 30", "heard 30"]);
    assert!(matches!(forever.try_wait(), Ok(None)), "a tunnel of the third route ended");
    let drops = || {
        let socket = folder.path("api.sock");
        let output = equipoise(&["status", "--json", "--api", text(&socket)]);
        let status: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("JSON");
        status["front_doors"][0]["drops"].clone()
    };
    let expected = serde_json::json!({ "idle_timeout": 2 });
    eventually(|| drops() == expected);
    assert_eq!(drops(), expected);
    let _ = forever.kill();
    let _ = forever.wait();
}

#[test]
fn a_websocket_over_http2_talks_with_a_server_of_http1() {
    let server = Server::start();
    let (folder, front) = (Folder::new("routes-tunnels-http2"), free_port());
    let config = format!(
        "[api]\nsocket = \"{}\"\nlisten = \"off\"\n[instance]\nthreads = 2\n\
         [[pool]]\nname = \"sockets\"\nbackends = [\"127.0.0.1:{}\"]\n\
         [[session]]\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"sockets\"\nhttp2 = true\n",
        text(&folder.path("api.sock")),
        server.port,
        front.address(),
    );
    let file = folder.write("equipoise.toml", &config);
    let process = Process::start(&["run", text(&file)]);
    process.wait_for_text(" ready ");
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/routes/websocket_http2.py");
    // The library is a package of Debian, for Debian's interpreter.
    let client = Command::new("/usr/bin/python3")
        .args([program, &front.address().to_string(), "/chat"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("/usr/bin/python3 runs; `make test-setup` installs it, and python3-h2");
    assert_eq!(result(client), "status 200\nechoed\nclosed", "{}", process.printed());
}
