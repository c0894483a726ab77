//! TLS to backends through the real binary: nginx, HAProxy and openssl as backends.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::certificates::Certificates;
use common::peer::{Peer, spawn};
use common::{Process, equipoise, stderr, stdout, text};
use equipoise_testkit::{HttpBackend, ReservedPort, eventually, free_port};
use rcgen::{CertificateParams, DnType, KeyPair, SanType};

/// The beginning of 1975, since 1970: where rcgen's certificates begin.
const YEAR_1975: Duration = Duration::from_secs(157_766_400);

/// The name of the backends.
const NAME: &str = "app.internal";

impl Certificates {
    /// Writes `FILE.pem` with a certificate and its key.
    fn issue(&self, file: &str, params: &CertificateParams) {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.authority).expect("a certificate");
        let both = format!("{}{}", certificate.pem(), key.serialize_pem());
        let path = self.folder.write(&format!("{file}.pem"), &both);
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .expect("a mode");
    }
}

fn of(name: &str) -> CertificateParams {
    CertificateParams::new(vec![name.to_string()]).expect("a name")
}

/// nginx with `app.pem`, which answers what it knows of the connection. With `clients` it requires
/// certificates of the authority.
fn nginx(certificates: &Certificates, listens: SocketAddr, clients: bool) -> Peer {
    let folder = certificates.path("");
    let clients = match clients {
        true => format!("ssl_client_certificate {folder}ca.pem; ssl_verify_client on;"),
        false => String::new(),
    };
    let config = format!(
        "daemon off; master_process off; worker_processes 1; pid {folder}nginx.pid;\n\
         error_log {folder}nginx.log;\nevents {{ }}\n\
         http {{ access_log off;\n\
         client_body_temp_path {folder}t1; proxy_temp_path {folder}t2; fastcgi_temp_path {folder}t3;\n\
         uwsgi_temp_path {folder}t4; scgi_temp_path {folder}t5;\n\
         server {{ listen {listens} ssl http2; server_name {NAME}; keepalive_requests 4;\n\
         ssl_protocols TLSv1.2 TLSv1.3; ssl_certificate {folder}app.pem; ssl_certificate_key {folder}app.pem; {clients}\n\
         location / {{ add_header X-Protocol $server_protocol; return 200 \"$ssl_protocol $ssl_server_name $ssl_session_reused \
         $ssl_client_s_dn $ssl_client_serial\"; }} }} }}\n"
    );
    let file = certificates.folder.write("nginx.conf", &config);
    spawn(Command::new("/usr/sbin/nginx").args(["-c", text(&file), "-e", "stderr"]), listens)
}

/// A running equipoise with an HTTP and a TCP front door before one pool.
struct Instance {
    process: Process,
    socket: PathBuf,
    file: PathBuf,
    http: ReservedPort,
    tcp: ReservedPort,
}

impl Instance {
    /// `pool` has the options of the pools behind their name.
    fn start(certificates: &Certificates, pool: &str) -> Instance {
        let (http, tcp) = (free_port(), free_port());
        let socket = certificates.folder.path("api.sock");
        let door = |listen: SocketAddr, protocol: &str| {
            format!(
                "[[session]]\nname = \"{protocol}\"\nlisten = \"{listen}\"\n\
                 protocol = \"{protocol}\"\npool = \"{protocol}\"\n\
                 [[pool]]\nname = \"{protocol}\"\n{pool}\n"
            )
        };
        let config = format!(
            "[api]\nsocket = \"{}\"\nlisten = \"off\"\n[instance]\nthreads = 1\n{}{}",
            text(&socket),
            door(http.address(), "http"),
            door(tcp.address(), "tcp"),
        );
        let file = certificates.folder.write("equipoise.toml", &config);
        let process = Process::start(&["run", text(&file)]);
        process.wait_for_text(" ready ");
        Instance { process, socket, file, http, tcp }
    }

    /// The answer of a front door to a request on a new connection.
    fn ask(&self, door: &ReservedPort) -> String {
        let mut stream = TcpStream::connect(door.address()).expect("it listens");
        let request = format!("GET / HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it is taken");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    /// The body of the HTTP front door's answer.
    fn body(&self) -> String {
        let answer = self.ask(&self.http);
        answer.split_once("\r\n\r\n").map(|(_, body)| body.to_string()).unwrap_or(answer)
    }

    fn api(&self, path: &str) -> String {
        ask_unix(&self.socket, path)
    }

    fn status(&self) -> String {
        stdout(&equipoise(&["status", "--api", text(&self.socket)]))
    }
}

/// The answer of the API to a GET, with its head.
fn ask_unix(socket: &Path, path: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("the API listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("the API reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the API answers");
    answer
}

#[test]
fn nginx_is_verified_checked_and_resumed() {
    let certificates = Certificates::new("tls-nginx");
    certificates.issue("app", &of(NAME));
    let port = free_port();
    let _nginx = nginx(&certificates, port.address(), false);
    let ca = certificates.path("ca.pem");
    let address = port.address();
    for mode in ["exclusive", "multiplexed"] {
        let pool = format!(
            "backends = [\"{address}\"]\nupstream = \"{mode}\"\nsession-idle-timeout = \"100ms\"\n\
             tls = {{ ca = \"{ca}\", server-name = \"{NAME}\" }}\n\
             health = {{ http = \"/up\", interval = \"200ms\", rise = 1 }}\n"
        );
        let instance = Instance::start(&certificates, &pool);
        instance.process.wait_for_text("is healthy");
        let begin = format!("TLSv1.3 {NAME} ");
        assert!(instance.body().starts_with(&begin), "{mode}: {}", instance.body());
        let stream = instance.ask(&instance.tcp);
        assert!(stream.contains(&begin), "{mode}: {stream}");
        // A later session resumes.
        let resumed = format!("{begin}r ");
        assert!(eventually(|| instance.body().starts_with(&resumed)), "{}", instance.body());
        let status = instance.api("/v1/status");
        assert!(status.contains("\"handshakes_total\":"), "{status}");
        let metrics = instance.api("/metrics");
        let line = "equipoise_backend_tls_certificate_expiry_timestamp_seconds{pool=\"http\"";
        assert!(metrics.contains(line), "{metrics}");
    }
}

#[test]
fn nginx_speaks_http2_over_tls_to_clients_and_checks() {
    let certificates = Certificates::new("tls-http2");
    certificates.issue("app", &of(NAME));
    let (nginx_port, port) = (free_port(), free_port());
    let _nginx = nginx(&certificates, nginx_port.address(), false);
    let (ca, socket) = (certificates.path("ca.pem"), certificates.path("api.sock"));
    let config = format!(
        "[api]\nsocket = \"{socket}\"\nlisten = \"off\"\n[instance]\nthreads = 1\n\
         [[pool]]\nname = \"web\"\nupstream = \"http2\"\nbackends = [\"{}\"]\n\
         tls = {{ ca = \"{ca}\", server-name = \"{NAME}\" }}\n\
         health = {{ http = \"/up\", interval = \"200ms\", rise = 1 }}\n\
         [[session]]\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"web\"\n",
        nginx_port.address(),
        port.address()
    );
    let file = certificates.folder.write("equipoise.toml", &config);
    let process = Process::start(&["run", text(&file)]);
    process.wait_for_text("is healthy");
    // nginx ends each connection after four requests.
    for request in 0..12 {
        let mut stream = TcpStream::connect(port.address()).expect("it listens");
        let head = format!("GET / HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("it is taken");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert!(answer.contains(&format!("TLSv1.3 {NAME} ")), "{request}: {answer}");
        assert!(answer.contains("x-protocol: HTTP/2.0"), "{request}: {answer}");
    }
}

#[test]
fn haproxy_serves_tls_1_2_by_an_address_in_its_certificate() {
    let certificates = Certificates::new("tls-haproxy");
    let port = free_port();
    let mut params = of(NAME);
    params.subject_alt_names.push(SanType::IpAddress(port.address().ip()));
    certificates.issue("app", &params);
    let (address, pem) = (port.address(), certificates.path("app.pem"));
    let backend = HttpBackend::echo();
    let config = format!(
        "defaults\n mode http\n timeout client 60s\n timeout server 60s\n timeout connect 60s\n\
         frontend f\n bind {address} ssl crt {pem} ssl-max-ver TLSv1.2 alpn h2,http/1.1\n \
         http-request set-header X-Version %[ssl_fc_protocol]\n default_backend b\n\
         backend b\n server s {}\n",
        backend.address()
    );
    let file = certificates.folder.write("haproxy.cfg", &config);
    let _haproxy =
        spawn(Command::new("/usr/sbin/haproxy").args(["-db", "-f", text(&file)]), address);
    let ca = certificates.path("ca.pem");
    let instance = Instance::start(
        &certificates,
        &format!(
            "backends = [\"{address}\"]\ntls = {{ ca = \"{ca}\" }}\n\
             health = {{ tcp = true, interval = \"200ms\", rise = 1 }}\n"
        ),
    );
    instance.process.wait_for_text("is healthy");
    for door in [&instance.http, &instance.tcp] {
        let answer = instance.ask(door);
        assert!(answer.to_lowercase().contains("x-version: tlsv1.2"), "{answer}");
    }
}

#[test]
fn a_client_certificate_is_shown_and_read_again_when_its_file_changes() {
    let certificates = Certificates::new("tls-client");
    certificates.issue("app", &of(NAME));
    let client = || {
        let mut params = of("balancer");
        params.distinguished_name.push(DnType::CommonName, "balancer");
        certificates.issue("client", &params);
    };
    client();
    let port = free_port();
    let _nginx = nginx(&certificates, port.address(), true);
    let (ca, pem) = (certificates.path("ca.pem"), certificates.path("client.pem"));
    let pool = |certificate: &str| {
        format!(
            "backends = [\"{}\"]\nsession-idle-timeout = \"100ms\"\n\
             tls = {{ ca = \"{ca}\", server-name = \"{NAME}\"{certificate} }}\n",
            port.address()
        )
    };
    let instance = Instance::start(&certificates, &pool(&format!(", certificate = \"{pem}\"")));
    let before = instance.body();
    assert!(before.contains("CN=balancer"), "{before}");
    let serial = |body: String| body.rsplit(' ').next().unwrap_or_default().to_string();
    let before = serial(before);
    client();
    instance.process.wait_for_text("certificate.exchanged\" certificates=\"balancer\"");
    assert!(eventually(|| serial(instance.body()) != before));
    assert!(instance.body().contains("CN=balancer"));
    drop(instance);
    // Without it nginx answers 400, over TLS.
    let bare = Instance::start(&certificates, &pool(""));
    assert!(bare.body().contains("No required SSL certificate"), "{}", bare.body());
}

/// `openssl s_server` with `app.pem`, which answers requests itself.
fn s_server(certificates: &Certificates, listens: SocketAddr, args: &[&str]) -> Peer {
    let pem = certificates.path("app.pem");
    let accept = listens.to_string();
    let mut command = Command::new("openssl");
    command.args(["s_server", "-accept", &accept, "-cert", &pem, "-key", &pem, "-www"]).args(args);
    spawn(&mut command, listens)
}

#[test]
fn a_wrong_certificate_is_named_in_log_status_and_checks() {
    let certificates = Certificates::new("tls-wrong");
    certificates.issue("app", &of("other.internal"));
    let port = free_port();
    let _server = s_server(&certificates, port.address(), &[]);
    let ca = certificates.path("ca.pem");
    let pool = |health: &str| {
        format!(
            "backends = [\"{}\"]\ntls = {{ ca = \"{ca}\", server-name = \"{NAME}\" }}\n{health}",
            port.address()
        )
    };
    let said = "TLS failed: its certificate is for `other.internal`, not for `app.internal`";
    let instance = Instance::start(&certificates, &pool(""));
    for _ in 0..3 {
        let answer = instance.ask(&instance.http);
        assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    }
    instance.process.wait_for_text(said);
    assert!(instance.status().contains(said), "{}", instance.status());
    assert!(instance.api("/metrics").contains("reason=\"upstream_tls_name\""));
    let lines = instance.process.printed();
    assert_eq!(lines.matches(said).count(), 1, "once a minute: {lines}");
    drop(instance);
    for health in ["tcp = true", "http = \"/\""] {
        let health = format!("health = {{ {health}, interval = \"200ms\" }}\n");
        let checked = Instance::start(&certificates, &pool(&health));
        checked.process.wait_for_text(&format!("is unhealthy: {said}"));
        assert!(checked.status().contains(&format!("last check failed: {said}")));
    }
}

#[test]
fn a_certificate_that_ends_soon_is_warned_of_once_and_in_status() {
    let certificates = Certificates::new("tls-soon");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
    let mut params = of(NAME);
    params.not_after = params.not_before + now - YEAR_1975 + Duration::from_secs(20 * 86_400);
    certificates.issue("app", &params);
    let port = free_port();
    let _server = s_server(&certificates, port.address(), &[]);
    let ca = certificates.path("ca.pem");
    let instance = Instance::start(
        &certificates,
        &format!(
            "backends = [\"{}\"]\ntls = {{ ca = \"{ca}\", server-name = \"{NAME}\" }}\n\
             health = {{ http = \"/\", interval = \"100ms\", rise = 1 }}\n",
            port.address()
        ),
    );
    instance.process.wait_for_text("its certificate expires in ");
    assert!(eventually(|| instance.status().contains("its certificate expires in ")));
}

#[test]
fn a_self_signed_certificate_of_openssl_is_trusted_if_it_is_listed_or_nothing_is_verified() {
    let certificates = Certificates::new("tls-self");
    let pem = certificates.path("app.pem");
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        .args(["-subj", "/CN=app", "-addext", "subjectAltName=DNS:app.internal"])
        .args(["-keyout", &certificates.path("app.key"), "-out", &pem])
        .output()
        .expect("openssl runs; `make test-setup` installs it");
    assert!(made.status.success(), "{}", stderr(&made));
    let key = std::fs::read_to_string(certificates.path("app.key")).expect("a key");
    let both = std::fs::read_to_string(&pem).expect("a certificate") + &key;
    certificates.folder.write("app.pem", &both);
    let port = free_port();
    let _server = s_server(&certificates, port.address(), &[]);
    let ca = certificates.path("ca.pem");
    for (tls, is_trusted) in [
        (format!("ca = \"{pem}\", server-name = \"{NAME}\""), true),
        (format!("ca = \"{ca}\", server-name = \"{NAME}\""), false),
        ("verify = false".to_string(), true),
    ] {
        let backends = format!("backends = [\"{}\"]\ntls = {{ {tls} }}\n", port.address());
        let instance = Instance::start(&certificates, &backends);
        let answer = instance.ask(&instance.http);
        assert_eq!(answer.starts_with("HTTP/1.1 200"), is_trusted, "{tls}: {answer}");
        let checked = equipoise(&["check", text(&instance.file)]);
        let said = stdout(&checked) + &stderr(&checked);
        assert_eq!(said.contains("backends are not verified"), tls.contains("verify"), "{said}");
    }
}
