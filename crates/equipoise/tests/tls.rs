//! TLS of front doors through the real binary, with curl and openssl as clients.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::certificates::Certificates;
use common::{Process, equipoise, reload, stderr, stdout, text};
use equipoise_testkit::{Answer, HttpBackend, Pattern, ReservedPort, eventually, free_port};
use rcgen::{
    CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PKCS_RSA_SHA256,
    SignatureAlgorithm,
};

const NAME: &str = "www.example.com";

/// The beginning of 1975, since 1970.
const YEAR_1975: Duration = Duration::from_secs(157_766_400);

impl Certificates {
    /// Writes `FILE.pem` and `FILE.key`; returns the table that names them.
    fn issue(&self, file: &str, names: &[&str], algorithm: &'static SignatureAlgorithm) -> String {
        let names: Vec<_> = names.iter().map(|name| name.to_string()).collect();
        let key = KeyPair::generate_for(algorithm).expect("a key");
        let params = CertificateParams::new(names).expect("names");
        let certificate = params.signed_by(&key, &self.authority).expect("a certificate");
        let chain = self.folder.write(&format!("{file}.pem"), &certificate.pem());
        let key = self.folder.write(&format!("{file}.key"), &key.serialize_pem());
        let _ = std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600));
        format!("{{ chain = \"{}\", key = \"{}\" }}", text(&chain), text(&key))
    }
}

/// A running equipoise with an HTTP and a TCP front door with the same `tls`, before one backend.
struct Instance {
    process: Process,
    certificates: Certificates,
    socket: PathBuf,
    file: PathBuf,
    http: ReservedPort,
    tcp: ReservedPort,
}

impl Instance {
    fn start(certificates: Certificates, tls: &str, backend: &HttpBackend) -> Instance {
        let (http, tcp) = (free_port(), free_port());
        let socket = certificates.folder.path("api.sock");
        let door = |listen: SocketAddr, protocol: &str| {
            format!(
                "[[session]]\nname = \"{protocol}\"\nlisten = \"{listen}\"\nprotocol = \"{protocol}\"\npool = \"web\"\n\
                 tls = {tls}\naccess-log = 1.0\n"
            )
        };
        let config = format!(
            "[api]\nsocket = \"{}\"\nlisten = \"off\"\n[instance]\nthreads = 2\n{}{}\
             [[pool]]\nname = \"web\"\nbackends = [\"{}\"]\n",
            text(&socket),
            door(http.address(), "http"),
            door(tcp.address(), "tcp"),
            backend.address()
        );
        let file = certificates.folder.write("equipoise.toml", &config);
        let process = Process::start(&["run", text(&file)]);
        process.wait_for_text(" ready ");
        Instance { process, certificates, socket, file, http, tcp }
    }

    /// Runs curl for a path of a front door; returns its output, or its error.
    fn curl(&self, door: &ReservedPort, name: &str, args: &[&str]) -> Result<String, String> {
        let port = door.address().port();
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--max-time", "60"])
            .args(["--cacert", &self.certificates.path("ca.pem")])
            .args(["--resolve", &format!("{name}:{port}:127.0.0.1")])
            .args(args.iter().map(|arg| arg.replace("URL", &format!("https://{name}:{port}"))))
            .output()
            .expect("curl runs; `make test-setup` installs it");
        match output.status.success() {
            true => Ok(stdout(&output)),
            false => Err(stderr(&output)),
        }
    }

    /// Starts `openssl s_client` for the HTTP front door.
    fn s_client(&self, args: &[&str]) -> Child {
        Command::new("openssl")
            .args(["s_client", "-connect", &self.http.address().to_string(), "-servername", NAME])
            .args(["-CAfile", &self.certificates.path("ca.pem")])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("openssl runs; `make test-setup` installs it")
    }

    /// The output of `openssl s_client` for a connection that it closes at once.
    fn described(&self, args: &[&str]) -> String {
        let mut client = self.s_client(args);
        drop(client.stdin.take());
        let output = client.wait_with_output().expect("it ends");
        stdout(&output) + &stderr(&output)
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

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {NAME}\r\n\r\n")
}

#[test]
fn curl_is_served_in_every_version_over_both_kinds_of_front_doors() {
    let certificates = Certificates::new("tls-curl");
    let site = certificates.issue("site", &[NAME, "*.example.org"], &PKCS_ECDSA_P256_SHA256);
    let backend = HttpBackend::start(|request| match request.head.target() {
        "/large" => Answer::pattern(1, 8 << 20),
        "/proto" => Answer::ok(request.head.header("x-forwarded-proto").unwrap_or("none")),
        _ => Answer::echo(),
    });
    let tls = format!("{{ certificates = [{site}] }}");
    let instance = Instance::start(certificates, &tls, &backend);
    let (http, tcp) = (&instance.http, &instance.tcp);
    for version in [&["--tlsv1.2", "--tls-max", "1.2"][..], &["--tlsv1.3"], &["--http2"]] {
        let asked = |door, name| instance.curl(door, name, &[version, &["URL/proto"]].concat());
        assert_eq!(asked(http, NAME), Ok("https".into()), "{version:?}");
        assert_eq!(asked(http, "a.example.org"), Ok("https".into()), "{version:?}");
        assert_eq!(asked(tcp, NAME), Ok("none".into()), "{version:?}");
        assert!(asked(http, "example.net").is_err_and(|it| it.contains("subject")), "{version:?}");
    }
    let body = instance.certificates.folder.path("body");
    std::fs::write(&body, Pattern::bytes(2, 5 << 20)).expect("a file");
    let (upload, download) =
        (format!("@{}", text(&body)), instance.certificates.folder.path("download"));
    for door in [http, tcp] {
        let args = ["--data-binary", &upload, "--output", text(&download), "URL/echo"];
        instance.curl(door, NAME, &args).expect("it comes back");
        // The echo has the head, too.
        let echo = std::fs::read(&download).expect("a file");
        assert!(echo.ends_with(&Pattern::bytes(2, 5 << 20)), "{} bytes", echo.len());
        let args = ["--limit-rate", "16M", "--output", text(&download), "URL/large"];
        instance.curl(door, NAME, &args).expect("it is whole");
        assert!(std::fs::read(&download).expect("a file") == Pattern::bytes(1, 8 << 20));
    }
    instance.process.wait_for_text(" scheme=https method=\"GET\" ");
}

#[test]
fn curl_speaks_http_2_where_the_front_door_does() {
    let certificates = Certificates::new("tls-http2");
    let site = certificates.issue("site", &[NAME], &PKCS_ECDSA_P256_SHA256);
    certificates.issue("client", &["alice"], &PKCS_ECDSA_P256_SHA256);
    let ca = certificates.path("ca.pem");
    let (chain, key) = (certificates.path("client.pem"), certificates.path("client.key"));
    let tls = format!("{{ certificates = [{site}], clients = {{ ca = \"{ca}\" }} }}\nhttp2 = true");
    let backend = HttpBackend::echo();
    let instance = Instance::start(certificates, &tls, &backend);
    for (protocol, version) in [("--http2", "2"), ("--http1.1", "1.1")] {
        let args = ["--cert", &chain, "--key", &key, "--write-out", "%{http_version}", "URL/a"];
        let asked = instance.curl(&instance.http, NAME, &[&[protocol][..], &args].concat());
        let answer = asked.expect("an answer");
        assert!(answer.starts_with("GET /a HTTP/1.1\r\n"), "{answer}");
        assert!(answer.ends_with(version), "{protocol}: {answer}");
        assert!(answer.contains("X-Forwarded-Client-SHA256: "), "{protocol}: {answer}");
        assert!(answer.contains("X-Forwarded-Proto: https"), "{protocol}: {answer}");
    }
}

#[test]
fn openssl_finds_the_versions_key_types_and_tickets_of_the_profile() {
    let certificates = Certificates::new("tls-openssl");
    let tables = [
        certificates.issue("rsa", &[NAME], &PKCS_RSA_SHA256),
        certificates.issue("ecdsa", &[NAME], &PKCS_ECDSA_P256_SHA256),
        certificates.issue("ed25519", &["ed.example.com"], &PKCS_ED25519),
    ];
    let tls = format!("{{ certificates = [{}] }}", tables.join(", "));
    let instance = Instance::start(certificates, &tls, &HttpBackend::echo());
    let session = instance.certificates.path("session");
    for (args, expected) in [
        (&["-tls1_3"][..], "Server public key is 256 bit"),
        (&["-tls1_3", "-sigalgs", "RSA-PSS+SHA256"], "Server public key is 2048 bit"),
        (&["-tls1_2", "-sigalgs", "RSA+SHA256"], "Server public key is 2048 bit"),
        (&["-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"], "Server public key is 2048 bit"),
        (&["-servername", "ed.example.com"], "Peer signature type: ed25519"),
        (&["-alpn", "h2,http/1.1"], "ALPN protocol: http/1.1"),
        (&["-alpn", "h2"], "alert no application protocol"),
        (&["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"], "alert handshake failure"),
        (&["-tls1_2", "-cipher", "AES128-SHA:@SECLEVEL=0"], "alert handshake failure"),
        (&["-tls1_2", "-sess_out", &session], "New, TLSv1.2"),
        (&["-tls1_2", "-sess_in", &session], "Reused, TLSv1.2"),
    ] {
        let described = instance.described(args);
        assert!(described.contains(expected), "{args:?}\n{described}\nlacks: {expected}");
    }
    // Tickets of TLS 1.3 come after the handshake.
    let mut client = instance.s_client(&["-tls1_3", "-sess_out", &session, "-ign_eof"]);
    let closing = get("/").replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    client.stdin.take().expect("a pipe").write_all(closing.as_bytes()).expect("it is taken");
    let output = client.wait_with_output().expect("it ends");
    assert!(stdout(&output).contains("New, TLSv1.3"), "{}", stdout(&output));
    let described = instance.described(&["-tls1_3", "-sess_in", &session]);
    assert!(described.contains("Reused, TLSv1.3"), "{described}");
}

/// Reports of testssl.sh, by id, that are no faults of a front door.
const NO_FAULTS: [&str; 9] = [
    // Mozilla's intermediate profile has no suite that a client should not choose.
    "cipher_order",
    // Of this test's certificate.
    "cert_expirationStatus",
    "cert_notAfter",
    "cert_revocation",
    "cert_validityPeriod",
    // Of the site's names and backends.
    "DNS_CAArecord",
    "HSTS",
    "security_headers",
    // Of the scanner's openssl.
    "engine_problem",
];

#[test]
#[ignore = "a minute, needs testssl.sh: make test-testssl"]
fn testssl_finds_no_fault() {
    let certificates = Certificates::new("tls-testssl");
    let site = certificates.issue("site", &[NAME], &PKCS_ECDSA_P256_SHA256);
    let tls = format!("{{ certificates = [{site}] }}");
    let backend = HttpBackend::always(Answer::ok("ok"));
    let instance = Instance::start(certificates, &tls, &backend);
    let report = instance.certificates.path("testssl.json");
    let output = Command::new("testssl")
        .args(["--quiet", "--color", "0", "--warnings", "off", "--nodns", "none"])
        .args(["--ip", "127.0.0.1", "--jsonfile", &report])
        .args(["--add-ca", &instance.certificates.path("ca.pem")])
        .arg(format!("https://{NAME}:{}", instance.http.address().port()))
        .output()
        .expect("testssl runs; `make test-testssl` installs it");
    let report = std::fs::read(&report).unwrap_or_else(|_| panic!("{}", stdout(&output)));
    let findings: Vec<serde_json::Value> = serde_json::from_slice(&report).expect("JSON");
    let of = |id: &str| {
        let found = findings.iter().find(|finding| finding["id"] == id);
        found.unwrap_or_else(|| panic!("no {id}: {}", stdout(&output)))["finding"].clone()
    };
    assert_eq!((of("TLS1_1"), of("TLS1_2")), ("not offered".into(), "offered".into()));
    assert_eq!(of("TLS1_3"), "offered with final");
    let faults: Vec<_> = findings
        .iter()
        .filter(|finding| finding["severity"] != "OK" && finding["severity"] != "INFO")
        .filter(|finding| !NO_FAULTS.iter().any(|id| finding["id"] == *id))
        .collect();
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(findings.len() > 100, "{}", stdout(&output));
}

#[test]
fn a_client_renegotiation_is_refused_and_other_clients_are_served() {
    let certificates = Certificates::new("tls-renegotiation");
    let site = certificates.issue("site", &[NAME], &PKCS_RSA_SHA256);
    let tls = format!("{{ certificates = [{site}] }}");
    let instance = Instance::start(certificates, &tls, &HttpBackend::echo());
    let mut client = instance.s_client(&["-tls1_2"]);
    // `R` asks for a new handshake on the same connection.
    client.stdin.take().expect("a pipe").write_all(b"R\n").expect("it is taken");
    let output = client.wait_with_output().expect("it ends");
    let said = stdout(&output) + &stderr(&output);
    assert!(said.contains("RENEGOTIATING") && said.contains("no renegotiation"), "{said}");
    assert!(instance.curl(&instance.http, NAME, &["URL/"]).is_ok());
}

#[test]
fn a_reload_exchanges_certificates_and_drops_no_connection() {
    let certificates = Certificates::new("tls-reload");
    let site = certificates.issue("site", &[NAME], &PKCS_ECDSA_P256_SHA256);
    let tls = format!("{{ certificates = [{site}] }}");
    let backend = HttpBackend::start(|request| Answer::ok(request.head.target()));
    let instance = Instance::start(certificates, &tls, &backend);
    let serial = || {
        let pem = instance.described(&["-showcerts"]);
        let start = pem.find("-----BEGIN CERTIFICATE-----").expect("a certificate");
        pem[start..].lines().take(8).collect::<String>()
    };
    let mut open = instance.s_client(&["-quiet"]);
    let mut requests = open.stdin.take().expect("a pipe");
    let mut answers = BufReader::new(open.stdout.take().expect("a pipe"));
    let mut ask = |path: &str| {
        requests.write_all(get(path).as_bytes()).expect("it is open");
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            assert!(answers.read_line(&mut line).expect("an answer") > 0, "it was closed");
        }
        let mut body = vec![0; path.len()];
        answers.read_exact(&mut body).expect("a body");
        assert_eq!(body, path.as_bytes());
    };
    ask("/before");
    let before = serial();
    instance.certificates.issue("site", &[NAME], &PKCS_ECDSA_P256_SHA256);
    let (status, said) = reload(&instance.socket);
    assert_eq!(status, 200, "{said}");
    ask("/after");
    assert_ne!(serial(), before);
    // A key of another certificate changes nothing.
    let good = serial();
    let other = instance.certificates.issue("other", &[NAME], &PKCS_ECDSA_P256_SHA256);
    assert!(!other.is_empty());
    std::fs::copy(instance.certificates.path("other.key"), instance.certificates.path("site.key"))
        .expect("a file");
    let (status, said) = reload(&instance.socket);
    assert_ne!(status, 200);
    assert!(said.contains("that does not match the certificate"), "{said}");
    assert_eq!(serial(), good);
    ask("/still");
    let _ = open.kill();
    let _ = open.wait();
}

#[test]
fn a_changed_file_is_presented_without_a_command_and_a_wrong_one_is_not() {
    let certificates = Certificates::new("tls-watch");
    let site = certificates.issue("site", &[NAME], &PKCS_ECDSA_P256_SHA256);
    let tls = format!("{{ certificates = [{site}] }}");
    let backend = HttpBackend::start(|request| Answer::ok(request.head.target()));
    let instance = Instance::start(certificates, &tls, &backend);
    let shown = || {
        let described = instance.described(&["-showcerts"]);
        let start = described.find("-----BEGIN CERTIFICATE-----").expect("a certificate");
        described[start..].lines().take(8).collect::<String>()
    };
    let status = |path: &str| ask_unix(&instance.socket, path);
    let before = shown();
    instance.certificates.issue("site", &[NAME], &PKCS_ECDSA_P256_SHA256);
    assert!(eventually(|| shown() != before));
    instance.process.wait_for_text("certificate.exchanged\" certificates=\"www.example.com\"");
    let good = shown();
    assert!(!status("/v1/status").contains("\"problem\""));
    // The key of another certificate.
    instance.certificates.issue("other", &[NAME], &PKCS_RSA_SHA256);
    let (other, key) =
        (instance.certificates.path("other.key"), instance.certificates.path("site.key"));
    let kept = std::fs::read(&key).expect("a file");
    std::fs::copy(other, &key).expect("a file");
    instance.process.wait_for_text("the previous certificate stays in use");
    assert_eq!(shown(), good);
    assert!(eventually(|| status("/v1/status").contains("that does not match the certificate")));
    let door = "front_door=\"http\",certificate=\"www.example.com\"";
    let metrics = status("/metrics");
    let lines = |name: &str| -> Vec<String> {
        let start = format!("equipoise_tls_certificate_{name}{{{door}");
        metrics.lines().filter(|it| it.starts_with(&start)).map(str::to_string).collect()
    };
    assert!(lines("stale")[0].ends_with(" 1"), "{:?}", lines("stale"));
    // The year 4096.
    assert!(lines("expiry_timestamp_seconds")[0].ends_with(" 67090118400"), "{metrics}");
    let shown_by = equipoise(&["status", "--api", text(&instance.socket)]);
    assert!(stdout(&shown_by).contains("is still in use: "), "{}", stdout(&shown_by));
    // It is right again.
    std::fs::write(&key, kept).expect("a file");
    assert!(eventually(|| !status("/v1/status").contains("\"problem\"")));
    assert_eq!(shown(), good);
}

#[test]
fn an_expiring_certificate_is_reported_by_check_log_and_status() {
    let certificates = Certificates::new("tls-expiry");
    let mut params = CertificateParams::new(vec![NAME.to_string()]).expect("a name");
    // rcgen's certificates begin in 1975.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
    params.not_after = params.not_before + now - YEAR_1975 + Duration::from_secs(20 * 86_400);
    let key = KeyPair::generate().expect("a key");
    let soon = params.self_signed(&key).expect("a certificate").pem();
    let both = certificates.folder.write("soon.pem", &format!("{}{soon}", key.serialize_pem()));
    let tls = format!("{{ certificates = [\"{}\"] }}", text(&both));
    let instance = Instance::start(certificates, &tls, &HttpBackend::echo());
    let said = "has a certificate (`www.example.com`) that expires in ";
    instance.process.wait_for_text(said);
    let checked = equipoise(&["check", text(&instance.file)]);
    assert!((stdout(&checked) + &stderr(&checked)).contains(said));
    let status = stdout(&equipoise(&["status", "--api", text(&instance.socket)]));
    assert!(status.contains("soon.pem) expires in "), "{status}");
}

/// The client headers that a backend received, and how the request ended.
fn seen_of_clients(backend: &HttpBackend) -> Vec<(String, String)> {
    let last = backend.requests().pop().expect("a request");
    let of_client = |name: &str| name.replace('_', "-").to_lowercase().contains("client");
    last.head.headers.iter().filter(|(name, _)| of_client(name)).cloned().collect()
}

#[test]
fn backends_receive_verified_client_certificates_and_no_forged_headers() {
    let backend = HttpBackend::echo();
    let other = Certificates::new("tls-other-clients");
    other.issue("mallory", &["mallory.example"], &PKCS_ECDSA_P256_SHA256);
    let mallory = [other.path("mallory.pem"), other.path("mallory.key")];
    for required in [true, false] {
        let certificates = Certificates::new("tls-clients");
        let site = certificates.issue("site", &[NAME], &PKCS_ECDSA_P256_SHA256);
        certificates.issue("alice", &["alice.example"], &PKCS_RSA_SHA256);
        let (alice, ca) = (
            [certificates.path("alice.pem"), certificates.path("alice.key")],
            certificates.path("ca.pem"),
        );
        let tls = format!(
            "{{ certificates = [{site}], clients = {{ ca = \"{ca}\", required = {required} }} }}\n\
             trusted = \"127.0.0.0/8\""
        );
        let instance = Instance::start(certificates, &tls, &backend);
        let forged = ["X-Forwarded-Client-Subject: CN=root", "x-forwarded-CLIENT-sha256: 00"];
        let ask = |door: &ReservedPort, version: &[&str], own: &[String]| {
            let headers = ["--header", forged[0], "--header", forged[1], "URL/"];
            let mut args = [version, &headers].concat();
            if let [certificate, key] = own {
                args.extend(["--cert", certificate, "--key", key]);
            }
            instance.curl(door, NAME, &args)
        };
        let fingerprint = Command::new("openssl")
            .args(["x509", "-noout", "-fingerprint", "-sha256", "-in", &alice[0]])
            .output()
            .expect("openssl runs");
        let fingerprint = stdout(&fingerprint).trim().replace(':', "").to_lowercase();
        let fingerprint = fingerprint.rsplit('=').next().unwrap_or_default().to_string();
        for version in [&["--tlsv1.3"][..], &["--tls-max", "1.2"]] {
            ask(&instance.http, version, &alice).expect("alice is known");
            let name = |name: &str, value: &str| (name.to_string(), value.to_string());
            assert_eq!(
                seen_of_clients(&backend),
                [
                    name("X-Forwarded-Client-Subject", "CN=rcgen self signed cert"),
                    name("X-Forwarded-Client-SHA256", &fingerprint),
                ],
                "{version:?}"
            );
            assert_eq!(ask(&instance.tcp, version, &alice).map(|_| ()), Ok(()));
            let before = backend.requests().len();
            for door in [&instance.http, &instance.tcp] {
                assert!(ask(door, version, &mallory).is_err(), "another authority");
                assert_eq!(ask(door, version, &[]).is_err(), required, "{version:?}");
            }
            match required {
                true => assert_eq!(backend.requests().len(), before),
                // The TCP front door was asked last, and changes nothing.
                false => assert_eq!(backend.requests().len(), before + 2),
            }
            if !required {
                ask(&instance.http, version, &[]).expect("it is optional");
                assert_eq!(seen_of_clients(&backend), []);
            }
        }
    }
}

#[test]
fn check_reports_a_key_that_does_not_match_its_certificate() {
    let certificates = Certificates::new("tls-check");
    let backend = HttpBackend::echo();
    let site = certificates.issue("site", &[NAME], &PKCS_ECDSA_P256_SHA256);
    certificates.issue("other", &[NAME], &PKCS_RSA_SHA256);
    let wrong = site.replace("site.key", "other.key");
    let tls = format!("{{ certificates = [{site}] }}");
    let instance = Instance::start(certificates, &tls, &backend);
    let file = text(&instance.file);
    let fine = equipoise(&["check", file]);
    assert!(fine.status.success(), "{}{}", stdout(&fine), stderr(&fine));
    let config = std::fs::read_to_string(file).expect("a file");
    std::fs::write(file, config.replace(&site, &wrong)).expect("a file");
    let checked = equipoise(&["check", file]);
    let said = stdout(&checked) + &stderr(&checked);
    assert!(!checked.status.success());
    let expected = "other.key\" has a key (RSA, 2048 bits) that does not match the certificate `www.example.com` (ECDSA, \
                    256 bits)";
    assert!(said.contains(expected), "{said}");
}

impl Certificates {
    /// Writes the authority's OCSP response about `FILE.pem` to `to`. `status` is that of
    /// openssl's index: V, or R for revoked.
    fn respond(&self, file: &str, status: &str, to: &str) {
        let key = self.folder.write("ca.key", &self.authority.key().serialize_pem());
        let (ca, certificate) = (self.path("ca.pem"), self.path(&format!("{file}.pem")));
        let openssl = |args: &[&str]| {
            let output = Command::new("openssl").args(args).output();
            let output = output.expect("openssl runs; `make test-setup` installs it");
            assert!(output.status.success(), "{args:?}: {}", stderr(&output));
            stdout(&output)
        };
        let serial = openssl(&["x509", "-in", &certificate, "-noout", "-serial"]);
        let serial = serial.trim().trim_start_matches("serial=");
        let revoked = if status == "R" { "260101000000Z" } else { "" };
        let line = format!("{status}\t401231235959Z\t{revoked}\t{serial}\tunknown\t/CN=site\n");
        let index = self.folder.write("index.txt", &line);
        // The file changes at once, as an operator's would.
        let new = self.path("new.ocsp");
        openssl(&[
            "ocsp",
            "-index",
            text(&index),
            "-CA",
            &ca,
            "-rsigner",
            &ca,
            "-rkey",
            text(&key),
            "-issuer",
            &ca,
            "-cert",
            &certificate,
            "-respout",
            &new,
            "-nmin",
            "60",
            "-noverify",
        ]);
        std::fs::rename(new, self.folder.path(to)).expect("a file");
    }
}

#[test]
fn an_ocsp_response_is_stapled_while_it_is_that_of_the_certificate() {
    let backend = HttpBackend::echo();
    let certificates = Certificates::new("tls-ocsp");
    let table = certificates.issue("site", &[NAME], &PKCS_ECDSA_P256_SHA256);
    certificates.issue("other", &["other.example"], &PKCS_ECDSA_P256_SHA256);
    // curl looks for the issuer in the chain.
    let chain = std::fs::read_to_string(certificates.path("site.pem")).expect("a file");
    certificates.folder.write("site.pem", &(chain + &certificates.authority.pem()));
    certificates.respond("other", "V", "site.ocsp");
    let ocsp = format!(", ocsp = \"{}\" }}", certificates.path("site.ocsp"));
    let tls = format!("{{ certificates = [{}] }}", table.replace(" }", &ocsp));
    let instance = Instance::start(certificates, &tls, &backend);
    let warning = "site.ocsp\" is for another certificate; it is not stapled";
    instance.process.wait_for_text(warning);
    let checked = equipoise(&["check", text(&instance.file)]);
    assert!((stdout(&checked) + &stderr(&checked)).contains(warning));
    let status = |args: &[&str]| instance.described(&[args, &["-status"]].concat());
    assert!(status(&[]).contains("OCSP response: no response sent"), "{}", status(&[]));
    let shown = || stdout(&equipoise(&["status", "--api", text(&instance.socket)]));
    assert!(shown().contains("has no OCSP response to staple"), "{}", shown());
    // The right one is used once its file rests.
    instance.certificates.respond("site", "V", "site.ocsp");
    let is_good = |said: String| {
        said.contains("OCSP Response Status: successful") && said.contains("Cert Status: good")
    };
    assert!(eventually(|| is_good(status(&[]))), "{}", status(&[]));
    assert!(is_good(status(&["-tls1_2"])), "{}", status(&["-tls1_2"]));
    assert!(!shown().contains("OCSP"), "{}", shown());
    let asked = instance.curl(&instance.http, NAME, &["--cert-status", "URL/"]);
    assert!(asked.is_ok(), "{asked:?}");
    instance.certificates.respond("site", "R", "site.ocsp");
    instance.process.wait_for_text("site.ocsp\" says that the certificate is revoked");
    assert!(eventually(|| status(&[]).contains("no response sent")), "{}", status(&[]));
}
