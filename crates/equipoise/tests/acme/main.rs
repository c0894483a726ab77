//! Automatic certificates from a real ACME server: Let's Encrypt's pebble, with its DNS server for
//! tests. `make test-setup` installs both (Debian's package pebble).

#[path = "../common/mod.rs"]
mod common;

mod cluster;
mod dns;
mod nodes;
mod pebble;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Process, equipoise, reload, stderr, stdout, text};
use equipoise_testkit::{HttpBackend, eventually, free_port};
use pebble::Pebble;

const NAME: &str = "www.example.org";

/// equipoise with an https front door that has an automatic certificate.
struct Instance {
    process: Process,
    socket: PathBuf,
    file: PathBuf,
    https: SocketAddr,
}

impl Instance {
    /// With an http front door too, if `http` has its address.
    fn start(
        pebble: &Pebble,
        http: Option<SocketAddr>,
        https: SocketAddr,
        backend: &HttpBackend,
    ) -> Instance {
        let folder = &pebble.folder;
        let socket = folder.path("api.sock");
        let door = |listen: SocketAddr, more: &str| {
            format!(
                "[[session]]\nlisten = \"{listen}\"\nprotocol = \"http\"\npool = \"web\"\n{more}\n"
            )
        };
        let config = format!(
            "[api]\nsocket = \"{}\"\nlisten = \"off\"\n[instance]\nname = \"edge\"\nthreads = 2\n\
             [controller]\nstate = \"{}\"\n[acme]\nterms-agreed = true\nemail = \"ops@example.org\"\n\
             directory = \"https://{}/dir\"\nca = \"{}\"\n{}{}[[pool]]\nname = \"web\"\nbackends = [\"{}\"]\n",
            text(&socket),
            text(&folder.path("state")),
            pebble.listen.address(),
            text(&folder.path("ca.pem")),
            door(https, &format!("tls = {{ auto = [\"{NAME}\"] }}")),
            http.map(|http| door(http, "")).unwrap_or_default(),
            backend.address(),
        );
        let file = folder.write("equipoise.toml", &config);
        let process = Process::start(&["run", text(&file)]);
        process.wait_for_text(" ready ");
        Instance { process, socket, file, https }
    }

    /// Asks the https front door with curl, which trusts pebble's root.
    fn ask(&self, pebble: &Pebble) -> Result<String, String> {
        ask(pebble, NAME, self.https)
    }

    /// The serial number of the certificate that clients get; empty if they get none.
    fn serial(&self) -> String {
        serial(NAME, self.https)
    }

    fn api(&self, path: &str) -> String {
        api(&self.socket, path)
    }

    /// `equipoise status` for people.
    fn status(&self) -> String {
        stdout(&equipoise(&["status", "--api", text(&self.socket)]))
    }

    fn waits_for(&self, text: &str) {
        self.process.wait_for_text(text);
    }
}

/// Asks for this name at this address with curl, which trusts pebble's root.
fn ask(pebble: &Pebble, name: &str, https: SocketAddr) -> Result<String, String> {
    let port = https.port();
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "60"])
        .args(["--cacert", text(&pebble.folder.path("root.pem"))])
        .args(["--resolve", &format!("{name}:{port}:{}", https.ip())])
        .arg(format!("https://{name}:{port}/hello"))
        .output()
        .expect("curl runs; `make test-setup` installs it");
    if output.status.success() { Ok(stdout(&output)) } else { Err(stderr(&output)) }
}

/// The serial number of the certificate that clients get for this name; empty if they get none.
fn serial(name: &str, https: SocketAddr) -> String {
    let output = Command::new("sh")
        .arg("-c")
        .arg(format!(
            "openssl s_client -connect {https} -servername {name} </dev/null 2>/dev/null | \
             openssl x509 -noout -serial 2>/dev/null"
        ))
        .output()
        .expect("openssl runs; `make test-setup` installs it");
    stdout(&output).trim().to_string()
}

/// The answer of an instance's API.
fn api(socket: &Path, path: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("the API listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("the API reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the API answers");
    answer
}

/// The only folder of a directory's account and certificates.
fn acme_folder(pebble: &Pebble) -> PathBuf {
    let all = pebble.folder.path("state").join("edge/acme");
    let mut entries = std::fs::read_dir(all).expect("a folder");
    entries.next().expect("one directory").expect("it is readable").path()
}

fn mode(path: &Path) -> u32 {
    path.metadata().expect("it exists").permissions().mode() & 0o777
}

const DAY: u64 = 86_400;

#[test]
fn a_certificate_is_obtained_by_http_01_and_kept_over_a_restart() {
    let backend = HttpBackend::echo();
    let (http, https, nowhere) = (free_port(), free_port(), free_port());
    let mut pebble = Pebble::stopped("acme-http", http.address(), nowhere.address(), 90 * DAY);
    // Of three attempts in a row one is usually enough.
    pebble.nonces_rejected = 20;
    pebble.start_again();
    let instance = Instance::start(&pebble, Some(http.address()), https.address(), &backend);
    instance.waits_for("certificate issued");
    assert!(eventually(|| !instance.serial().is_empty()));
    let answer = instance.ask(&pebble).expect("it is trusted");
    assert!(answer.starts_with("GET /hello "), "{answer}");
    // Challenges are not the backend's.
    assert!(backend.requests().iter().all(|it| it.head.target() == "/hello"));
    let folder = acme_folder(&pebble);
    let (certificate, account) = (folder.join(format!("{NAME}.pem")), folder.join("account.json"));
    assert_eq!((mode(&folder), mode(&certificate), mode(&account)), (0o700, 0o600, 0o600));
    let status = instance.api("/v1/status");
    assert!(
        status.contains(r#""stage":"issued","failures":0,"next_try_unix_seconds":"#),
        "{status}"
    );
    assert!(!instance.status().contains("certificate"), "{}", instance.status());
    let metrics = instance.api("/metrics");
    let family = format!(
        "equipoise_tls_automatic_failures{{front_door=\"http:{}\",name=\"{NAME}\"}} 0",
        https.address()
    );
    assert!(metrics.contains(&family), "{metrics}");
    // Another process has the certificate from its start, and orders none.
    let serial = instance.serial();
    let before = [std::fs::read(&certificate), std::fs::read(&account)].map(|it| it.expect("it"));
    drop(instance);
    let instance = Instance::start(&pebble, Some(http.address()), https.address(), &backend);
    assert_eq!(instance.serial(), serial);
    let issued = || instance.api("/v1/status").contains(r#""stage":"issued""#);
    assert!(eventually(issued), "{}", instance.api("/v1/status"));
    let after = [std::fs::read(&certificate), std::fs::read(&account)].map(|it| it.expect("it"));
    assert!(before == after && !instance.process.printed().contains("certificate issued"));
    let checked = equipoise(&["check", text(&instance.file)]);
    assert!(checked.status.success(), "{}", stderr(&checked));
    // Ports below 1024 are not the test's.
    assert!((stdout(&checked) + &stderr(&checked)).contains("connects to port 80 or 443"));
}

#[test]
fn a_certificate_is_obtained_by_tls_alpn_01() {
    let backend = HttpBackend::echo();
    let (https, nowhere) = (free_port(), free_port());
    let pebble = Pebble::start("acme-alpn", nowhere.address(), https.address(), 90 * DAY);
    let instance = Instance::start(&pebble, None, https.address(), &backend);
    instance.waits_for("certificate issued");
    assert!(eventually(|| instance.ask(&pebble).is_ok()), "{:?}", instance.ask(&pebble));
    // The directory has connected to the https front door alone.
    assert!(backend.requests().iter().all(|it| it.head.target() == "/hello"));
}

#[test]
fn a_certificate_is_renewed_while_clients_are_served() {
    let backend = HttpBackend::echo();
    let (http, https, nowhere) = (free_port(), free_port(), free_port());
    let pebble = Pebble::start("acme-renew", http.address(), nowhere.address(), 30);
    let instance = Instance::start(&pebble, Some(http.address()), https.address(), &backend);
    instance.waits_for("certificate issued");
    assert!(eventually(|| !instance.serial().is_empty()));
    let first = instance.serial();
    let served = || instance.ask(&pebble).expect("there is a valid certificate at all times");
    let renewed = || {
        served();
        instance.serial() != first
    };
    assert!(eventually(renewed));
}

#[test]
fn the_last_certificate_is_kept_while_the_directory_is_down() {
    let backend = HttpBackend::echo();
    let (http, https, nowhere) = (free_port(), free_port(), free_port());
    let mut pebble = Pebble::start("acme-down", http.address(), nowhere.address(), 15);
    let instance = Instance::start(&pebble, Some(http.address()), https.address(), &backend);
    instance.waits_for("certificate issued");
    assert!(eventually(|| !instance.serial().is_empty()));
    let first = instance.serial();
    pebble.stop();
    instance.waits_for("the last certificate stays in use, and the next attempt is in");
    assert_eq!(instance.serial(), first);
    let status = instance.status();
    assert!(
        status.contains(&format!("the certificate for {NAME} could not be renewed")),
        "{status}"
    );
    let said = "cannot be reached: Connection refused";
    assert!(status.contains("https://127.0.0.1") && status.contains(said), "{status}");
    // The new one knows neither the account nor the certificate.
    pebble.start_again();
    let renewed = || instance.serial() != first && instance.ask(&pebble).is_ok();
    assert!(eventually(renewed), "{:?}\n{}", instance.ask(&pebble), instance.process.printed());
    assert!(!instance.status().contains("could not be renewed"), "{}", instance.status());
}

#[test]
fn a_process_starts_without_its_acme_directory_and_reports_the_failure() {
    let backend = HttpBackend::echo();
    let (http, https, nowhere) = (free_port(), free_port(), free_port());
    let mut pebble = Pebble::stopped("acme-late", http.address(), nowhere.address(), 90 * DAY);
    let instance = Instance::start(&pebble, Some(http.address()), https.address(), &backend);
    instance.waits_for("there is no certificate yet, and the next attempt is in");
    pebble.folder.write("root.pem", "");
    assert_eq!(instance.serial(), "");
    let counted = || instance.status().contains("tls_no_certificate");
    assert!(eventually(counted), "{}", instance.status());
    let status = instance.status();
    assert!(
        status.contains(&format!("the certificate for {NAME} could not be obtained")),
        "{status}"
    );
    // Clients of other front doors are served.
    assert_eq!(common::get(http.address(), "/").status(), 200);
    pebble.start_again();
    assert!(eventually(|| instance.ask(&pebble).is_ok()), "{}", instance.process.printed());
}

#[test]
fn a_reload_keeps_the_retry_delay_of_an_unverified_name() {
    let backend = HttpBackend::echo();
    let (http, https, nowhere) = (free_port(), free_port(), free_port());
    // The directory connects to ports at which nothing listens.
    let mut pebble = Pebble::stopped("acme-refused", nowhere.address(), nowhere.address(), DAY);
    pebble.nonces_rejected = 0;
    pebble.start_again();
    let instance = Instance::start(&pebble, Some(http.address()), https.address(), &backend);
    instance.waits_for("the directory could not verify the name by http-01: ");
    instance.waits_for("the directory could not verify the name by tls-alpn-01: ");
    assert_eq!(reload(&instance.socket).0, 200);
    // A change of the names is an order of its own, and the first one keeps its wait.
    let config = std::fs::read_to_string(&instance.file).expect("a file");
    let names = format!("\"{NAME}\", \"second.example.org\"");
    std::fs::write(&instance.file, config.replace(&format!("\"{NAME}\""), &names)).expect("a file");
    assert_eq!(reload(&instance.socket).0, 200);
    let failures = || instance.process.printed().matches("could not obtain a certificate").count();
    assert!(eventually(|| failures() == 4));
    let printed = instance.process.printed();
    assert!(printed.contains("second.example.org"), "{printed}");
    let status = instance.status();
    let waits = ["9 min", "10 min", "11 min", "12 min"];
    let said = waits.map(|wait| format!("(failed attempts: 2; next in {wait})"));
    let count: usize = said.iter().map(|said| status.matches(said).count()).sum();
    assert_eq!(count, 2, "{status}");
}
