//! HTTP/2 and gRPC through the real binary, with grpcio, nghttpd, h2load and curl as peers.
//!
//! Needs Python and nghttp2: `make test-setup grpc-python` installs them.

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use common::{Folder, Process, stderr, stdout, text};
use equipoise_testkit::{ReservedPort, free_port, python_programs, workspace};

/// A running equipoise with an HTTP front door before backends.
struct Instance {
    process: Process,
    door: ReservedPort,
    _folder: Folder,
}

impl Instance {
    /// `pool`: lines of the pool's table.
    fn start(test: &str, backend: &ReservedPort, pool: &str) -> Instance {
        Instance::before(test, &[backend], pool)
    }

    fn before(test: &str, backends: &[&ReservedPort], pool: &str) -> Instance {
        let backends: Vec<_> =
            backends.iter().map(|backend| backend.address().to_string()).collect();
        let (folder, door) = (Folder::new(test), free_port());
        let config = format!(
            "[api]\nsocket = \"{}\"\nlisten = \"off\"\n[instance]\nthreads = 2\n\
             [[session]]\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"p\"\nhttp2 = true\n\
             [[pool]]\nname = \"p\"\nupstream = \"http2\"\nconcurrency = \"none\"\nbackends = {backends:?}\n{pool}",
            text(&folder.path("api.sock")),
            door.address(),
        );
        let file = folder.write("equipoise.toml", &config);
        let process = Process::start(&["run", text(&file)]);
        process.wait_for_text(" ready ");
        Instance { process, door, _folder: folder }
    }

    fn port(&self) -> String {
        self.door.address().port().to_string()
    }
}

/// The programs in Python, and the interpreter that runs them.
struct Peers {
    python: PathBuf,
    folder: PathBuf,
}

impl Peers {
    fn find() -> Peers {
        let programs = python_programs("grpc-python");
        let programs = programs.expect("python3 is installed; `make test-setup` installs it");
        let folder = workspace().join("crates/equipoise/tests/grpc_peers");
        Peers { python: programs.join("python"), folder }
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(&self.python);
        command.arg(self.folder.join(program)).args(args);
        command
    }

    fn serve(&self, port: &ReservedPort, more: &[&str]) -> Process {
        let port = port.address().port().to_string();
        let server = Process::of(self.command("server.py", &[&[port.as_str()], more].concat()));
        server.wait_for_text("ready");
        server
    }

    /// Runs a check of the client; returns what it prints.
    #[track_caller]
    fn check(&self, instance: &Instance, check: &str) -> String {
        self.check_with(instance, check, &[])
    }

    #[track_caller]
    fn check_with(&self, instance: &Instance, check: &str, more: &[&str]) -> String {
        let mut client = self.command("client.py", &[&[&instance.port(), check], more].concat());
        succeeded(&client.output().expect("Python runs"))
    }
}

#[track_caller]
fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}{}", stdout(output), stderr(output));
    stdout(output)
}

#[test]
fn calls_of_every_kind_pass_as_they_are() {
    let (peers, port) = (Peers::find(), free_port());
    let _server = peers.serve(&port, &[]);
    let instance = Instance::start("grpc-calls", &port, "health = { grpc = \"demo.Demo\" }\n");
    for check in ["unary", "statuses", "streams", "deadline", "cancel"] {
        peers.check(&instance, check);
    }
}

#[test]
fn no_call_is_lost_when_the_server_sends_goaway() {
    let (peers, port) = (Peers::find(), free_port());
    let _server = peers.serve(&port, &["500"]);
    let instance = Instance::start("grpc-goaway", &port, "");
    peers.check(&instance, "goaway");
}

#[test]
fn a_listed_status_is_retried_while_no_response_has_begun() {
    let (peers, busy, idle) = (Peers::find(), free_port(), free_port());
    let _servers = [peers.serve(&busy, &["busy"]), peers.serve(&idle, &[])];
    let backends = [&busy, &idle];
    let scheduler = "scheduler = \"round-robin\"\n";
    let retries = format!("{scheduler}retry-on = [\"connect\", \"reset\", \"grpc-unavailable\"]\n");
    let instance = Instance::before("grpc-retried", &backends, &retries);
    peers.check_with(&instance, "retried", &[&busy.address().port().to_string()]);
    let instance = Instance::before("grpc-not-retried", &backends, scheduler);
    peers.check(&instance, "not_retried");
    let others = retries.replace("grpc-unavailable", "grpc-internal");
    let instance = Instance::before("grpc-others-retried", &backends, &others);
    peers.check(&instance, "not_retried");
}

#[test]
fn the_health_service_decides_and_refusals_are_statuses_of_grpc() {
    let (peers, port) = (Peers::find(), free_port());
    let server = peers.serve(&port, &[]);
    let health = "health = { grpc = \"demo.Demo\", interval = \"1s\", timeout = \"1s\", rise = 1, fall = 1 }\n";
    let instance = Instance::start("grpc-health", &port, health);
    peers.check(&instance, "statuses");
    server.signal(libc::SIGUSR1);
    instance.process.wait_for_text("NOT_SERVING");
    assert_eq!(peers.check(&instance, "down"), "no backend is available\n");
    server.signal(libc::SIGUSR1);
    instance.process.wait_for_text("can take work again");
    peers.check(&instance, "statuses");

    let unknown = health.replace("demo.Demo", "other.Service");
    let other = Instance::start("grpc-unknown", &port, &unknown);
    other.process.wait_for_text("gRPC status 5: unknown service");

    let unchecked = Instance::start("grpc-down", &port, "");
    drop(server);
    assert_eq!(peers.check(&unchecked, "down"), "the backend refused the connection\n");
}

#[test]
fn nghttpd_serves_curl_and_h2load_over_both_protocols() {
    let (root, port) = (Folder::new("nghttpd"), free_port());
    let file = root.write("file", &"0123456789".repeat(10_000));
    let mut nghttpd = Command::new("nghttpd");
    let number = port.address().port().to_string();
    nghttpd.args(["--no-tls", "--address=127.0.0.1", "--htdocs", text(root.root()), &number]);
    assert!(installed("nghttpd") && installed("h2load"), "`make test-setup` installs nghttp2");
    let _server = Process::of(nghttpd);
    let health = "health = { http = \"/file\", interval = \"5s\", timeout = \"5s\" }\n";
    let instance = Instance::start("nghttpd-door", &port, health);
    let url = format!("http://127.0.0.1:{}/file", instance.port());
    let wanted = fs::read_to_string(file).expect("it was written");
    for protocol in ["--http1.1", "--http2-prior-knowledge"] {
        let mut curl = Command::new("curl");
        // The first check may come before the server listens.
        curl.args(["--silent", "--show-error", "--fail", "--retry", "50", "--retry-delay", "1"]);
        let output = curl.args([protocol, &url]).output();
        let output = output.expect("curl runs; `make test-setup` installs it");
        assert!(succeeded(&output) == wanted, "{protocol}: another body");
    }
    for how in [&["--h1", "-c20"] as &[&str], &["-c4", "-m10"]] {
        let output = Command::new("h2load").args(how).args(["-n1000", &url]).output();
        let report = succeeded(&output.expect("h2load runs"));
        assert!(report.contains("1000 succeeded, 0 failed"), "{report}");
    }
}

fn installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}
