//! h2spec against front doors. docs/conformance.md has its results.

mod common;

use std::process::Command;

use common::certificates::Certificates;
use common::{Process, stdout, text};
use equipoise_testkit::{Answer, HttpBackend, free_port};
use rcgen::{CertificateParams, KeyPair};

/// Writes a certificate and its key. Returns the `tls` of a front door with them.
fn issue(by: &Certificates) -> String {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(["localhost".to_string()]).expect("a name");
    let certificate = params.signed_by(&key, &by.authority).expect("a certificate");
    let chain = by.folder.write("site.pem", &certificate.pem());
    let key = by.folder.write("site.key", &key.serialize_pem());
    let (chain, key) = (text(&chain), text(&key));
    format!("tls = {{ certificates = [{{ chain = \"{chain}\", key = \"{key}\" }}] }}\n")
}

/// The output of h2spec for a front door with or without TLS.
fn asked(name: &str, tls: bool) -> String {
    let h2spec = std::env::var("H2SPEC").expect("`make test-h2spec` builds it and names it");
    let certificates = Certificates::new(name);
    let encryption = if tls { issue(&certificates) } else { String::new() };
    let (backend, door) = (HttpBackend::always(Answer::ok("a response")), free_port());
    let config = format!(
        "[api]\nsocket = \"{}\"\nlisten = \"off\"\n[[session]]\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"web\"\n\
         http2 = true\n{encryption}[[pool]]\nname = \"web\"\nbackends = [\"{}\"]\n",
        text(&certificates.folder.path("api.sock")),
        door.address(),
        backend.address(),
    );
    let file = certificates.folder.write("equipoise.toml", &config);
    let process = Process::start(&["run", text(&file)]);
    process.wait_for_text(" ready ");
    let (host, port) = (door.address().ip().to_string(), door.address().port().to_string());
    let encrypted: &[&str] = if tls { &["--tls", "--insecure"] } else { &[] };
    let mut command = Command::new(h2spec);
    command.args(["--host", &host, "--port", &port, "--timeout", "5"]).args(encrypted);
    stdout(&command.output().expect("h2spec runs"))
}

/// The counts of tests, which h2spec prints last.
fn counts(printed: &str) -> &str {
    printed.lines().rfind(|line| line.contains(" tests, ")).unwrap_or_default()
}

#[test]
#[ignore = "needs h2spec: make test-h2spec"]
fn all_cases_pass_over_tls() {
    let printed = asked("h2spec-tls", true);
    let counts = counts(&printed);
    assert!(counts.contains("145 passed") && counts.ends_with("0 failed"), "{printed}");
}

/// In clear text the port serves HTTP/1.1 too, and answers what is no preface.
#[test]
#[ignore = "needs h2spec: make test-h2spec"]
fn all_cases_but_an_invalid_preface_pass_in_clear_text() {
    let printed = asked("h2spec-clear", false);
    let counts = counts(&printed);
    assert!(counts.contains("144 passed") && counts.ends_with("1 failed"), "{printed}");
    let (_, failures) = printed.split_once("Failures:").expect("the failed case");
    assert!(failures.contains("invalid connection preface"), "{printed}");
}
