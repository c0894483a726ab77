//! A process with a front door of each protocol, TLS and DNS, and commands for it.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use equipoise_testkit::{
    Answer, HttpBackend, ReservedPort, TcpBackend, TcpBehaviour, UdpEcho, UdpPort, eventually,
    free_port,
};
use rcgen::{CertificateParams, KeyPair};
use serde_json::Value;

use crate::common::certificates::Certificates;
use crate::common::{EQUIPOISE, Process, equipoise, kill, stderr, stdout, text};

pub const NAME: &str = "www.example.com";

pub struct Bed {
    pub process: Process,
    pub certificates: Certificates,
    pub http: ReservedPort,
    pub tls: ReservedPort,
    pub tcp: ReservedPort,
    pub dns: ReservedPort,
    pub udp: UdpPort,
    pub udp_backend: UdpEcho,
    _http_backend: HttpBackend,
    /// The program that the process runs: a link, or what a test puts in its place.
    pub program: PathBuf,
    pub file: PathBuf,
    pub socket: PathBuf,
    _tcp_backend: TcpBackend,
}

impl Bed {
    /// Starts the process. `more` is appended to its configuration.
    pub fn start(test: &str, more: &str) -> Bed {
        let certificates = Certificates::new(test);
        let tls_table = issue(&certificates);
        let (http, tls, tcp, dns) = (free_port(), free_port(), free_port(), free_port());
        let (udp, udp_backend) = (UdpPort::reserve(), UdpEcho::start());
        let http_backend = HttpBackend::start(|request| match request.head.header("upgrade") {
            Some(protocol) => Answer::upgrade(protocol),
            None => Answer::ok("ok"),
        });
        let tcp_backend = TcpBackend::start(TcpBehaviour::Echo);
        let socket = certificates.folder.path("api.sock");
        let config = format!(
            "[api]\nsocket = \"{}\"\nlisten = \"off\"\n[instance]\nname = \"under-test\"\nthreads = 2\n\
             [[session]]\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"web\"\n\
             [[session]]\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"web\"\nhttp2 = true\ntls = {tls_table}\n\
             [[session]]\nlisten = \"{}\"\nprotocol = \"tcp\"\npool = \"echo\"\n\
             [[session]]\nlisten = \"{}\"\nprotocol = \"udp\"\npool = \"datagrams\"\n\
             [[pool]]\nname = \"web\"\nbackends = [{{ name = \"a\", address = \"{}\" }}]\n\
             [[pool]]\nname = \"echo\"\nbackends = [\"{}\"]\n\
             [[pool]]\nname = \"datagrams\"\nbackends = [\"{}\"]\n\
             [nameserver]\nrate-limit-exempt = [\"127.0.0.0/8\"]\n[[dns]]\nzone = \"cluster.example.\"\nlisten = \"{}\"\npool = \"web\"\n\
             ns = [{{ name = \"ns1\", addresses = \"192.0.2.1\" }}]\n\
             nodes = [{{ backend = \"a\", addresses = \"192.0.2.11\" }}]\n{more}",
            socket.display(),
            http.address(),
            tls.address(),
            tcp.address(),
            udp.address(),
            http_backend.address(),
            tcp_backend.address(),
            udp_backend.address(),
            dns.address(),
        );
        let file = certificates.folder.write("equipoise.toml", &config);
        let program = certificates.folder.path("equipoise");
        std::os::unix::fs::symlink(EQUIPOISE, &program).expect("the folder is empty");
        let mut command = Command::new(&program);
        command.args(["run", text(&file)]);
        let process = Process::of(command);
        process.wait_for_text(" ready ");
        Bed {
            process,
            certificates,
            http,
            tls,
            tcp,
            dns,
            udp,
            udp_backend,
            _http_backend: http_backend,
            program,
            file,
            socket,
            _tcp_backend: tcp_backend,
        }
    }

    /// Puts another program in the place of equipoise.
    pub fn replace_program(&self, script: &str) {
        std::fs::remove_file(&self.program).expect("it is there");
        self.certificates.folder.write("equipoise", script);
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&self.program, mode).expect("it is there");
    }

    /// Puts equipoise back.
    pub fn restore_program(&self) {
        std::fs::remove_file(&self.program).expect("it is there");
        std::os::unix::fs::symlink(EQUIPOISE, &self.program).expect("the place is free");
    }

    /// Runs a command about the process.
    pub fn command(&self, args: &[&str]) -> Output {
        equipoise(&[args, &["--api", text(&self.socket)]].concat())
    }

    /// Upgrades, and returns the output.
    ///
    /// # Panics
    /// If the upgrade fails.
    pub fn upgrade(&self) -> String {
        let output = self.command(&["upgrade"]);
        assert!(output.status.success(), "{}\n{}", stderr(&output), self.process.printed());
        stdout(&output)
    }

    /// Tries an upgrade that must fail, and returns the error.
    pub fn failed_upgrade(&self, args: &[&str]) -> String {
        let output = self.command(&[&["upgrade"], args].concat());
        assert!(!output.status.success(), "{}", stdout(&output));
        stderr(&output)
    }

    pub fn status(&self) -> Value {
        let output = self.command(&["status", "--json"]);
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_str(&stdout(&output)).expect("it is JSON")
    }

    /// Process id of the process that serves now.
    pub fn pid(&self) -> u32 {
        self.status()["pid"].as_u64().expect("a number") as u32
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let output = self.command(&["status", "--json"]);
        let status: Option<Value> = serde_json::from_str(&stdout(&output)).ok();
        let Some(status) = status else { return };
        let replaced = status["replaced"].as_array().cloned().unwrap_or_default();
        for process in [&[status][..], &replaced[..]].concat() {
            if let Some(pid) = process["pid"].as_u64().filter(|pid| is_running(*pid as u32)) {
                kill(pid as u32, libc::SIGKILL);
            }
        }
    }
}

/// Whether a process exists, and is not a zombie.
pub fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Waits until a process has ended.
pub fn await_end(pid: u32) {
    assert!(eventually(|| !is_running(pid)), "process {pid} does not end");
}

/// A certificate's table for [`NAME`].
fn issue(certificates: &Certificates) -> String {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec![NAME.to_string()]).expect("a name");
    let certificate = params.signed_by(&key, &certificates.authority).expect("a certificate");
    let chain = certificates.folder.write("chain.pem", &certificate.pem());
    let key = certificates.folder.write("key.pem", &key.serialize_pem());
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).expect("it is ours");
    let (chain, key) = (text(&chain), text(&key));
    format!("{{ certificates = [{{ chain = \"{chain}\", key = \"{key}\" }}] }}")
}

/// The URL of [`NAME`] at a port.
pub fn url(door: SocketAddr) -> String {
    format!("https://{NAME}:{}", door.port())
}
