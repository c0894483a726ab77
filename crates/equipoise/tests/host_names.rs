//! Backends that the file names by host name: resolved by a DNS server of the test, through a
//! `resolv.conf` of the process's own.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use common::{EQUIPOISE, Folder, Process, get, reload, stderr, stdout, text};
use equipoise_testkit::{ReservedPort, eventually, free_port};

/// Bound for an operator's command. Three names and a dead resolver took 28 s when loads resolved.
const COMMAND_WITHIN: Duration = Duration::from_secs(15);

/// A bind mount of `/etc/resolv.conf` needs root.
fn may_mount() -> bool {
    // SAFETY: geteuid reads a number of this process and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        eprintln!("skipped: needs root, for a resolv.conf of the process's own");
    }
    is_root
}

/// A loopback address that no other test uses, for port 53.
fn server_address() -> Ipv4Addr {
    static NUMBER: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 100 + NUMBER.fetch_add(1, Relaxed), high, low)
}

/// Sessions are kept open, so that a change of address has to end them.
fn serve(stream: TcpStream, name: &str) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 {
        if line == "\r\n" {
            let length = name.len();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{name}");
            reader.get_mut().write_all(answer.as_bytes())?;
        }
        line.clear();
    }
    Ok(())
}

/// Has servers listen at these addresses, all at one port. Each answers every request with its name.
fn serve_at(servers: &[(&str, &'static str)]) -> u16 {
    let bind = |address: &str, port| TcpListener::bind((address.parse::<IpAddr>().unwrap(), port));
    let mut listeners = Vec::new();
    let all_bound = eventually(|| {
        listeners.clear();
        let mut port = 0;
        for (address, _) in servers {
            let Ok(listener) = bind(address, port) else { return false };
            port = listener.local_addr().unwrap().port();
            listeners.push(listener);
        }
        true
    });
    assert!(all_bound, "no port is free at all of {servers:?}");
    let port = listeners[0].local_addr().unwrap().port();
    for (listener, (_, name)) in listeners.into_iter().zip(servers.iter().copied()) {
        thread::spawn(move || {
            for stream in listener.incoming() {
                thread::spawn(move || serve(stream?, name));
            }
        });
    }
    port
}

/// The zone `names.test.`, served by a process of its own.
struct Zone {
    _process: Process,
    folder: Folder,
    address: Ipv4Addr,
}

impl Zone {
    fn start(test: &str, records: &str) -> Zone {
        let (folder, address) = (Folder::new(test), server_address());
        folder.write("names.zone", records);
        let file = folder.write(
            "dns.toml",
            &format!(
                "[api]\nsocket = '{}'\nlisten = 'off'\n[instance]\nthreads = 1\n\
                 [[dns]]\nzone = 'names.test.'\nlisten = '{address}:53'\nzone-file = '{}'\n\
                 ns = [{{ name = 'ns1', addresses = '{address}' }}]\n[nameserver]\nrate-limit = 0\n",
                folder.path("dns.sock").display(),
                folder.path("names.zone").display(),
            ),
        );
        let process = Process::start(&["run", text(&file)]);
        process.wait_for_text(" ready ");
        Zone { _process: process, folder, address }
    }

    fn change(&self, records: &str) {
        self.folder.write("names.zone", records);
        let (status, answer) = reload(&self.folder.path("dns.sock"));
        assert_eq!(status, 200, "{answer}");
    }
}

/// A process that has files of its own in the place of those of `/etc`.
struct Instance {
    process: Process,
    folder: Folder,
    file: PathBuf,
    door: ReservedPort,
}

impl Instance {
    fn start(test: &str, server: Ipv4Addr, pool: &str) -> Instance {
        let (folder, door) = (Folder::new(&format!("{test}-balancer")), free_port());
        folder
            .write("resolv.conf", &format!("nameserver {server}\noptions timeout:5 attempts:2\n"));
        folder.write("hosts", "127.0.0.1 localhost\n127.0.0.1 listed.test\n");
        let file = folder.write(
            "equipoise.toml",
            &format!(
                "[api]\nsocket = '{}'\nlisten = 'off'\n[instance]\nthreads = 2\n\
                 [[session]]\nlisten = '{}'\nprotocol = 'http'\npool = 'web'\n\
                 [[pool]]\nname = 'web'\n{pool}\n",
                folder.path("api.sock").display(),
                door.address()
            ),
        );
        let process = Process::of(with_own_files(&folder, &["run", text(&file)]));
        process.wait_for_text(" ready ");
        Instance { process, folder, file, door }
    }

    fn command(&self, args: &[&str]) -> (bool, String) {
        let socket = self.folder.path("api.sock");
        let output = common::equipoise(&[args, &["--api", text(&socket)]].concat());
        (output.status.success(), stdout(&output) + &stderr(&output))
    }

    fn check(&self) -> Output {
        with_own_files(&self.folder, &["check", text(&self.file)]).output().unwrap()
    }

    /// The first backend in `status`.
    fn backend(&self) -> serde_json::Value {
        let (worked, printed) = self.command(&["status", "--json"]);
        assert!(worked, "{printed}");
        let status: serde_json::Value = serde_json::from_str(&printed).unwrap();
        status["pools"][0]["backends"][0].clone()
    }

    fn ask(&self) -> (u16, String) {
        let response = get(self.door.address(), "/");
        (response.status(), response.text())
    }

    /// Waits until requests arrive at the server of this name.
    fn arrives_at(&self, name: &str) {
        let arrived = eventually(|| self.ask() == (200, name.to_owned()));
        assert!(arrived, "{:?}; {:#}\n{}", self.ask(), self.backend(), self.process.printed());
    }
}

/// The binary in a mount namespace with `resolv.conf` and `hosts` of this folder.
fn with_own_files(folder: &Folder, args: &[&str]) -> Command {
    let mount = |name: &str| format!("mount --bind '{}' /etc/{name}", folder.path(name).display());
    let script = format!("{} && {} && exec \"$0\" \"$@\"", mount("resolv.conf"), mount("hosts"));
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script, EQUIPOISE]);
    command.args(args);
    command
}

#[test]
fn a_name_joins_its_pool_when_it_resolves_and_follows_its_record() {
    if !may_mount() {
        return;
    }
    let port = serve_at(&[("127.0.0.1", "a"), ("127.0.0.2", "b")]);
    let zone = Zone::start("names-follow", "other 1 IN A 127.0.0.9\n");
    let pool = format!("backends = ['app.names.test:{port}']");
    let instance = Instance::start("names-follow", zone.address, &pool);
    assert_eq!(instance.ask().0, 503, "the place is empty, and nothing else is refused");
    instance.process.wait_for_text("not resolved, it gets no requests");
    let backend = instance.backend();
    assert_eq!(
        (&backend["state"], &backend["resolved"]),
        (&"unhealthy".into(), &serde_json::json!([]))
    );
    assert!(backend["health_detail"].as_str().unwrap().contains("not resolved"), "{backend:#}");
    let (worked, said) = instance.command(&["reload"]);
    assert!(worked, "{said}");
    let checked = instance.check();
    assert!(checked.status.success(), "{}", stdout(&checked));
    assert!(
        stdout(&checked).contains("\"app.names.test\" is not resolved"),
        "{}",
        stdout(&checked)
    );

    zone.change("app 1 IN A 127.0.0.1\n");
    instance.arrives_at("a");
    assert_eq!(instance.backend()["resolved"], serde_json::json!([format!("127.0.0.1:{port}")]));
    zone.change("app 1 IN A 127.0.0.2\n");
    instance.arrives_at("b");
    for _ in 0..10 {
        assert_eq!(
            instance.ask(),
            (200, "b".to_owned()),
            "sessions to the old address are not used"
        );
    }
    // The last good answer stays when the record goes.
    zone.change("other 1 IN A 127.0.0.9\n");
    instance.process.wait_for_text("not resolved, it stays at 127.0.0.2");
    assert_eq!(instance.ask(), (200, "b".to_owned()));
}

#[test]
fn the_first_address_of_a_name_that_connects_serves_in_both_families() {
    if !may_mount() {
        return;
    }
    let port = serve_at(&[("127.0.0.3", "live"), ("::1", "v6")]);
    let records = "app 1 IN A 127.0.0.2\napp 1 IN A 127.0.0.3\nsix 1 IN AAAA ::1\n";
    let zone = Zone::start("names-families", records);
    // No second try: the dead address costs no request.
    let pool = format!(
        "backends = ['app.names.test:{port}']\nretries = 0\n[pool.health]\ntcp = true\ninterval = '1s'"
    );
    let instance = Instance::start("names-families", zone.address, &pool);
    instance.arrives_at("live");
    for _ in 0..20 {
        assert_eq!(instance.ask(), (200, "live".to_owned()));
    }
    assert!(eventually(|| instance.backend()["health"] == "healthy"), "{:#}", instance.backend());
    let file = std::fs::read_to_string(&instance.file).unwrap();
    std::fs::write(&instance.file, file.replace("app.names", "six.names")).unwrap();
    let (worked, said) = instance.command(&["reload"]);
    assert!(worked, "{said}");
    instance.arrives_at("v6");
}

#[test]
fn a_name_of_the_hosts_file_needs_no_server() {
    if !may_mount() {
        return;
    }
    let port = serve_at(&[("127.0.0.1", "a")]);
    let silent = Silent::start();
    let pool = format!("backends = ['listed.test:{port}']");
    let instance = Instance::start("names-hosts", silent.address, &pool);
    assert_eq!(instance.ask(), (200, "a".to_owned()), "it is known when the process is ready");
}

fn get_unix(socket: &Path, path: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// A DNS server that never answers.
struct Silent {
    _socket: UdpSocket,
    address: Ipv4Addr,
}

impl Silent {
    fn start() -> Silent {
        let address = server_address();
        Silent { _socket: UdpSocket::bind((address, 53)).unwrap(), address }
    }
}

#[test]
fn a_dead_resolver_holds_up_no_command() {
    if !may_mount() {
        return;
    }
    let port = serve_at(&[("127.0.0.1", "a")]);
    let silent = Silent::start();
    let pool = format!(
        "backends = [{{ name = 'live', address = '127.0.0.1:{port}' }}, 'x.names.test:1', 'y.names.test:2', 'z.names.test:3']"
    );
    let instance = Instance::start("names-dead", silent.address, &pool);
    let file = std::fs::read_to_string(&instance.file).unwrap();
    std::fs::write(&instance.file, file.replace(".names.test", ".other.test")).unwrap();
    let commands = [&["reload"][..], &["drain", "web/live"], &["undrain", "web/live"], &["status"]];
    for args in commands {
        let begun = Instant::now();
        let (worked, said) = instance.command(args);
        let took = begun.elapsed();
        assert!(worked, "{args:?}: {said}");
        assert!(took < COMMAND_WITHIN, "{args:?} took {took:?}");
    }
    let begun = Instant::now();
    let health = get_unix(&instance.folder.path("api.sock"), "/v1/health");
    assert!(health.starts_with("HTTP/1.1 200"), "{health}");
    assert!(begun.elapsed() < COMMAND_WITHIN, "health took {:?}", begun.elapsed());
    // And while a reload waits for names.
    thread::scope(|scope| {
        std::fs::write(&instance.file, file.replace(".names.test", ".third.test")).unwrap();
        let reload = scope.spawn(|| instance.command(&["reload"]));
        let begun = Instant::now();
        let (worked, said) = instance.command(&["drain", "web/live"]);
        assert!(worked && begun.elapsed() < COMMAND_WITHIN, "{said} after {:?}", begun.elapsed());
        let (worked, said) = reload.join().unwrap();
        assert!(worked, "{said}");
    });
    let (worked, said) = instance.command(&["undrain", "web/live"]);
    assert!(worked, "{said}");
    instance.arrives_at("a");
}
