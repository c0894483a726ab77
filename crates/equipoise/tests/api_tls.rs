//! The API over TLS, with roles by client certificates, through the real binary and curl.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::certificates::Certificates;
use common::{EQUIPOISE, Process, equipoise, get_unix, reload, stderr, stdout, text};
use equipoise_testkit::{PATIENCE, ReservedPort, eventually, free_port};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

const NAME: &str = "api.example.com";

/// Writes `FILE.pem` and `FILE.key`: a certificate with this common name and alternative name.
fn issue(by: &Certificates, file: &str, common_name: &str, name: &str) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(vec![name.to_string()]).expect("a name");
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    let certificate = params.signed_by(&key, &by.authority).expect("a certificate");
    by.folder.write(&format!("{file}.pem"), &certificate.pem());
    let key = by.folder.write(&format!("{file}.key"), &key.serialize_pem());
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(key, mode).expect("it was written");
}

/// The fingerprint of a certificate, as openssl prints it.
fn fingerprint(by: &Certificates, file: &str) -> String {
    let output = Command::new("openssl")
        .args(["x509", "-noout", "-fingerprint", "-sha256", "-in", &by.path(file)])
        .output()
        .expect("openssl runs; `make test-setup` installs it");
    let said = stdout(&output);
    said.trim().split_once('=').expect("a fingerprint").1.to_string()
}

struct Instance {
    process: Process,
    certificates: Certificates,
    socket: PathBuf,
    file: PathBuf,
    port: ReservedPort,
}

impl Instance {
    /// Starts an instance with `server.pem` as the certificate of its API. `api` has further lines
    /// of `[api]`, such as its clients.
    fn start(test: &str, tls: &str, api: impl Fn(&Certificates) -> String) -> Instance {
        let certificates = Certificates::new(test);
        issue(&certificates, "server", "server", NAME);
        issue(&certificates, "alice", "alice", "alice.example.com");
        issue(&certificates, "bob", "bob", "bob.example.com");
        issue(&certificates, "carol", "carol", "carol.example.com");
        let port = free_port();
        let path = |file: &str| certificates.path(file);
        let config = format!(
            "[api]\nsocket = \"{}\"\nlisten = \"{}\"\n\
             tls = {{ certificates = [{{ chain = \"{}\", key = \"{}\" }}], {} }}\n{}\n\
             [[pool]]\nname = \"web\"\nbackends = [{{ name = \"a\", address = \"127.0.0.1:9\" }}]\n",
            path("api.sock"),
            port.address(),
            path("server.pem"),
            path("server.key"),
            tls.replace("CA", &path("ca.pem")),
            api(&certificates),
        );
        let socket = certificates.folder.path("api.sock");
        let file = certificates.folder.write("equipoise.toml", &config);
        let process = Process::start(&["run", text(&file)]);
        process.wait_for_text(" ready ");
        Instance { process, certificates, socket, file, port }
    }

    /// Starts an instance that requires certificates of clients: alice is an admin, and bob reads.
    fn with_clients(test: &str) -> Instance {
        Instance::start(test, "clients = { ca = \"CA\" }", |certificates| {
            format!(
                "[[api.client]]\nname = \"ops\"\nrole = \"admin\"\nsubject = \"CN=alice\"\n\
                 sha256 = \"{}\"\n\
                 [[api.client]]\nname = \"viewer\"\nrole = \"read\"\nsan = \"bob.example.com\"\n",
                fingerprint(certificates, "alice.pem")
            )
        })
    }

    /// Runs curl; returns the status and the body, or its error. `URL` stands for the API's.
    fn curl(&self, args: &[&str]) -> Result<(u16, String), String> {
        let port = self.port.address().port();
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--max-time", "60"])
            .args(["--write-out", "\n%{http_code}"])
            .args(["--resolve", &format!("{NAME}:{port}:127.0.0.1")])
            .args(args.iter().map(|arg| arg.replace("URL", &format!("https://{NAME}:{port}"))))
            .output()
            .expect("curl runs; `make test-setup` installs it");
        if !output.status.success() {
            return Err(stderr(&output));
        }
        let said = stdout(&output);
        let (body, status) = said.rsplit_once('\n').expect("a status");
        Ok((status.parse().expect("a number"), body.to_string()))
    }

    /// The same with the API's authority, and with the certificate of a client.
    fn as_client(&self, client: &str, args: &[&str]) -> Result<(u16, String), String> {
        let path = |file: String| self.certificates.path(&file);
        let (ca, chain, key) =
            (path("ca.pem".into()), path(format!("{client}.pem")), path(format!("{client}.key")));
        self.curl(&[&["--cacert", &ca, "--cert", &chain, "--key", &key], args].concat())
    }

    /// Runs a command of the binary; returns whether it succeeded, and its output.
    fn command(&self, args: &[&str], variables: &[(&str, &str)]) -> (bool, String) {
        let mut command = Command::new(EQUIPOISE);
        command.args(args).envs(variables.iter().copied());
        let output = command.output().expect("the binary runs");
        (output.status.success(), stdout(&output) + &stderr(&output))
    }
}

const DRAIN: [&str; 3] = ["-X", "POST", "URL/v1/pools/web/backends/a/drain"];

#[test]
fn the_role_of_a_caller_is_that_of_its_certificate() {
    let instance = Instance::with_clients("api-mtls");
    let (status, body) = instance.as_client("alice", &DRAIN).expect("alice is known");
    assert_eq!(status, 200, "{body}");
    let (status, body) = instance.as_client("bob", &["URL/v1/status"]).expect("bob is known");
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("\"api_tls\":{\"handshakes_total\":2"), "{body}");
    let (status, body) = instance.as_client("bob", &DRAIN).expect("bob is known");
    assert_eq!(status, 403, "{body}");
    assert!(body.contains("client `viewer` has the role `read`"), "{body}");
    let (status, body) = instance.as_client("carol", &["URL/v1/status"]).expect("an answer");
    assert_eq!(status, 401, "{body}");
    assert!(body.contains("`CN=carol` is none of an [[api.client]]"), "{body}");
    // Health needs no role, but the certificate is required by the handshake.
    let (status, _) = instance.as_client("carol", &["URL/v1/health"]).expect("an answer");
    assert_eq!(status, 200);
    instance.process.wait_for("the lines of the audit log", |printed| {
        let line = |who: &str, path: &str| {
            printed.lines().any(|it| it.contains(&format!("who=\"{who}\"")) && it.contains(path))
        };
        (line("client:ops", "/drain") && line("client:viewer", "/drain")).then_some(())
    });
    // A reload that removes a client holds for open sessions, too.
    let config = std::fs::read_to_string(&instance.file).expect("it was written");
    std::fs::write(&instance.file, config.replace("CN=alice", "CN=alicia")).expect("a file");
    let (status, said) = reload(&instance.socket);
    assert_eq!(status, 200, "{said}");
    let (status, body) = instance.as_client("alice", &DRAIN).expect("an answer");
    assert_eq!(status, 401, "{body}");
}

#[test]
fn a_client_without_a_certificate_or_with_that_of_another_authority_is_refused() {
    let instance = Instance::with_clients("api-mtls-wrong");
    let ca = instance.certificates.path("ca.pem");
    let none = instance.curl(&["--cacert", &ca, "URL/v1/health"]).expect_err("it is refused");
    assert!(none.contains("certificate required"), "{none}");
    let stranger = Certificates::new("api-mtls-stranger");
    issue(&stranger, "alice", "alice", "alice.example.com");
    let (chain, key) = (stranger.path("alice.pem"), stranger.path("alice.key"));
    let args = ["--cacert", &ca, "--cert", &chain, "--key", &key, "URL/v1/health"];
    let wrong = instance.curl(&args).expect_err("it is refused");
    assert!(wrong.contains("alert"), "{wrong}");
    let other = stranger.path("ca.pem");
    let distrusted = instance.curl(&["--cacert", &other, "URL/v1/health"]);
    let distrusted = distrusted.expect_err("curl verifies the API");
    // Both authorities have the same name, so that OpenSSL says that the signature is wrong.
    assert!(
        ["curl: (60)", "curl: (35)"].iter().any(|it| distrusted.starts_with(it)),
        "{distrusted}"
    );
    let metrics = || get_unix(&instance.socket, "/metrics");
    let counted = "equipoise_api_turned_away_total{reason=\"handshake\"} 3";
    assert!(eventually(|| metrics().contains(counted)), "{}", metrics());
    // HTTP in the clear is answered with the remedy.
    let mut plain = TcpStream::connect(instance.port.address()).expect("it listens");
    plain.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    plain.read_to_string(&mut answer).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("https://"), "{answer}");
}

#[test]
fn tokens_serve_over_tls_beside_certificates_that_are_not_required() {
    let instance = Instance::start(
        "api-tls-tokens",
        "clients = { ca = \"CA\", required = false }",
        |certificates| {
            let file = certificates.path("token");
            assert!(equipoise(&["api-token", &file]).status.success());
            format!(
                "[[api.token]]\nname = \"ci\"\nrole = \"operate\"\nfile = \"{file}\"\n\
                 [[api.client]]\nname = \"viewer\"\nrole = \"read\"\nsubject = \"CN=bob\"\n"
            )
        },
    );
    let ca = instance.certificates.path("ca.pem");
    let token = std::fs::read_to_string(instance.certificates.path("token")).expect("a token");
    let header = format!("Authorization: Bearer {}", token.trim());
    let plain = |args: &[&str]| instance.curl(&[&["--cacert", &ca], args].concat());
    let status = |answer: Result<(u16, String), String>| answer.expect("an answer").0;
    assert_eq!(status(plain(&["URL/v1/status"])), 401);
    assert_eq!(status(plain(&["URL/v1/health"])), 200);
    let with_token = [&["-H", &*header][..], &DRAIN].concat();
    assert_eq!(status(plain(&with_token)), 200);
    assert_eq!(status(instance.as_client("bob", &["URL/v1/status"])), 200);
    assert_eq!(status(instance.as_client("bob", &DRAIN)), 403);
    // The token decides.
    assert_eq!(status(instance.as_client("bob", &with_token)), 200);
    let wrong = ["-H", "Authorization: Bearer wrong", "URL/v1/status"];
    assert_eq!(status(instance.as_client("bob", &wrong)), 401);
}

#[test]
fn a_changed_certificate_is_presented_and_open_connections_continue() {
    let instance = Instance::start("api-tls-reload", "profile = \"modern\"", |_| String::new());
    let ca = instance.certificates.path("ca.pem");
    let mut open = Command::new("openssl")
        .args(["s_client", "-quiet", "-connect", &instance.port.address().to_string()])
        .args(["-servername", NAME, "-CAfile", &ca])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl runs; `make test-setup` installs it");
    let mut requests = open.stdin.take().expect("a pipe");
    let mut answers = BufReader::new(open.stdout.take().expect("a pipe"));
    let mut ask = || {
        let request = format!("GET /v1/health HTTP/1.1\r\nHost: {NAME}\r\n\r\n");
        requests.write_all(request.as_bytes()).expect("it is open");
        let (mut line, mut length) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            assert!(answers.read_line(&mut line).expect("an answer") > 0, "it was closed");
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse().expect("a length");
            }
        }
        let mut body = vec![0; length];
        answers.read_exact(&mut body).expect("a body");
        assert!(body.starts_with(b"{\"phase\":\"running\""), "{body:?}");
    };
    ask();
    let serves = |name: &str| {
        let port = instance.port.address().port();
        let resolve = format!("{name}:{port}:127.0.0.1");
        let url = format!("https://{name}:{port}/v1/health");
        instance.curl(&["--cacert", &ca, "--resolve", &resolve, &url]).is_ok()
    };
    assert!(serves(NAME) && !serves("new.example.com"));
    issue(&instance.certificates, "server", "server", "new.example.com");
    instance.process.wait_for_text("certificates=\"new.example.com\"");
    assert!(serves("new.example.com") && !serves(NAME));
    ask();
    // A key of another certificate leaves the one in use.
    let (from, to) =
        (instance.certificates.path("bob.key"), instance.certificates.path("server.key"));
    std::fs::copy(from, to).expect("a file");
    instance.process.wait_for_text("the previous certificate stays in use");
    assert!(serves("new.example.com"));
    let metrics = get_unix(&instance.socket, "/metrics");
    let stale = "equipoise_api_tls_certificate_stale{certificate=\"new.example.com\",";
    let stale = metrics.lines().find(|line| line.starts_with(stale)).expect("a line");
    assert!(stale.ends_with(" 1"), "{stale}");
    let shown = equipoise(&["status", "--api", text(&instance.socket)]);
    assert!(stdout(&shown).contains("API: certificate new.example.com"), "{}", stdout(&shown));
    ask();
    let _ = open.kill();
    let _ = open.wait();
}

#[test]
fn a_reload_adds_and_removes_tls() {
    let instance = Instance::start("api-tls-toggle", "profile = \"modern\"", |_| String::new());
    let ca = instance.certificates.path("ca.pem");
    let config = std::fs::read_to_string(&instance.file).expect("it was written");
    let without: Vec<&str> = config.lines().filter(|line| !line.starts_with("tls")).collect();
    let health = ["--cacert", &ca, "URL/v1/health"];
    assert!(instance.curl(&health).is_ok());
    std::fs::write(&instance.file, without.join("\n")).expect("a file");
    assert_eq!(reload(&instance.socket).0, 200);
    assert!(instance.curl(&health).is_err());
    assert_eq!(common::get(instance.port.address(), "/v1/health").status(), 200);
    std::fs::write(&instance.file, config).expect("a file");
    assert_eq!(reload(&instance.socket).0, 200);
    assert!(instance.curl(&health).is_ok());
}

#[test]
fn a_handshake_that_does_not_end_gives_its_place_back() {
    let instance = Instance::with_clients("api-tls-slow");
    let begun = Instant::now();
    let connect = || {
        let stream = TcpStream::connect(instance.port.address()).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("PATIENCE is not zero");
        stream
    };
    let (mut silent, mut slow) = (connect(), connect());
    // The head of a record without most of its content.
    slow.write_all(&[0x16, 3, 1, 1, 0, 1]).expect("it reads");
    assert!(instance.as_client("bob", &["URL/v1/status"]).is_ok());
    let mut rest = Vec::new();
    let _ = silent.read_to_end(&mut rest);
    let _ = slow.read_to_end(&mut rest);
    assert!(begun.elapsed() > Duration::from_secs(5), "both had some time");
    let metrics = || get_unix(&instance.socket, "/metrics");
    let counted = "equipoise_api_turned_away_total{reason=\"handshake\"} 2";
    assert!(eventually(|| metrics().contains(counted)), "{}", metrics());
    assert!(instance.as_client("bob", &["URL/v1/status"]).is_ok());
}

#[test]
fn commands_reach_the_api_by_its_url_and_by_its_file() {
    let instance = Instance::with_clients("api-tls-commands");
    let path = |file: &str| instance.certificates.path(file);
    let (ca, chain, key) = (path("ca.pem"), path("alice.pem"), path("alice.key"));
    // The certificate is for another name than the address.
    let url = format!("https://{}", instance.port.address());
    let (worked, said) = instance.command(&["status", "--api", &url, "--ca", &ca], &[]);
    assert!(
        !worked && said.contains("its certificate is for `api.example.com`, not for"),
        "{said}"
    );
    assert!(said.contains("name the API by a name of its certificate: --api"), "{said}");
    issue(&instance.certificates, "server", "server", "localhost");
    assert_eq!(reload(&instance.socket).0, 200);
    let url = format!("https://localhost:{}", instance.port.address().port());
    let api = ["--api", &url];
    let own = ["--ca", &ca, "--certificate", &chain, "--key", &key];
    let (worked, said) = instance.command(&[&["status"], &api[..], &own].concat(), &[]);
    assert!(worked && said.contains("web/a"), "{said}");
    let (worked, said) = instance.command(&[&["drain", "web/a"], &api[..], &own].concat(), &[]);
    assert!(worked && said.contains("web/a: drained"), "{said}");
    let variables = [
        ("EQUIPOISE_API", &*url),
        ("EQUIPOISE_API_CA", &ca),
        ("EQUIPOISE_API_CERTIFICATE", &chain),
        ("EQUIPOISE_API_KEY", &key),
    ];
    let (worked, said) = instance.command(&["undrain", "web/a"], &variables);
    assert!(worked, "{said}");
    let (worked, said) = instance.command(&[&["status"], &api[..], &own[..2]].concat(), &[]);
    assert!(!worked && said.contains("it requires a client certificate"), "{said}");
    assert!(said.contains("--certificate FILE names your own") && !said.contains("--ca"), "{said}");
    let stranger = Certificates::new("api-tls-commands-stranger");
    let wrong = ["--ca", &stranger.path("ca.pem"), "--certificate", &chain, "--key", &key];
    let (worked, said) = instance.command(&[&["status"], &api[..], &wrong].concat(), &[]);
    assert!(!worked && said.contains("no trusted authority issued its certificate"), "{said}");
    assert!(said.contains("--ca FILE names the authority"), "{said}");
    let swapped = ["--ca", &ca, "--certificate", &key];
    let (worked, said) = instance.command(&[&["status"], &api[..], &swapped].concat(), &[]);
    assert!(!worked && said.contains("--certificate cannot be used: "), "{said}");
    let (worked, said) =
        instance.command(&["status", "--api", &url, "--ca", &ca, "--key", &key], &[]);
    assert!(!worked && said.contains("--key needs --certificate"), "{said}");

    // By the file: another process has the default socket's folder.
    issue(&instance.certificates, "server", "server", NAME);
    let config = std::fs::read_to_string(&instance.file).expect("it was written");
    let without: Vec<&str> = config.lines().filter(|line| !line.starts_with("socket")).collect();
    std::fs::write(&instance.file, without.join("\n")).expect("a file");
    assert_eq!(reload(&instance.socket).0, 200);
    let folder = [("RUNTIME_DIRECTORY", text(instance.certificates.folder.root()))];
    let elsewhere = path("elsewhere");
    let nowhere = [("RUNTIME_DIRECTORY", &*elsewhere)];
    let by_file = ["status", "--config", text(&instance.file)];
    let args = [&by_file[..], &own[2..]].concat();
    let (worked, said) = instance.command(&args, &nowhere);
    assert!(worked && said.contains("web/a"), "{said}");
    let (worked, said) = instance.command(&by_file, &nowhere);
    assert!(!worked && said.contains("it requires a client certificate"), "{said}");
    let (worked, said) = instance.command(&by_file, &folder);
    assert!(worked, "the socket needs no certificate: {said}");
}
