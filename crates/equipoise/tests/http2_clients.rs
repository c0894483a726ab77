//! Clients of HTTP/2 that we did not write, at a front door with TLS: nghttp and httpx.
//!
//! Needs nghttp2 and httpx: `make test-setup` installs them.

mod common;

use std::process::{Command, Output};

use common::certificates::Certificates;
use common::{Process, stderr, stdout, text};
use equipoise_testkit::{HttpBackend, ReservedPort, free_port, workspace};
use rcgen::{CertificateParams, KeyPair};

/// A running equipoise with an HTTPS front door. Its backend answers with what it received.
struct Instance {
    _process: Process,
    certificates: Certificates,
    backend: HttpBackend,
    door: ReservedPort,
}

impl Instance {
    fn start(test: &str) -> Instance {
        let certificates = Certificates::new(test);
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["127.0.0.1".to_string()]).expect("an address");
        let site = params.signed_by(&key, &certificates.authority).expect("a certificate");
        let chain = certificates.folder.write("site.pem", &site.pem());
        let key = certificates.folder.write("site.key", &key.serialize_pem());
        let (backend, door) = (HttpBackend::echo(), free_port());
        let config = format!(
            "[api]\nsocket = \"{}\"\nlisten = \"off\"\n[instance]\nthreads = 2\n\
             [[session]]\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"p\"\nhttp2 = true\n\
             tls = {{ certificates = [{{ chain = \"{}\", key = \"{}\" }}] }}\n\
             [[pool]]\nname = \"p\"\nbackends = [\"{}\"]\n",
            certificates.path("api.sock"),
            door.address(),
            text(&chain),
            text(&key),
            backend.address()
        );
        let file = certificates.folder.write("equipoise.toml", &config);
        let process = Process::start(&["run", text(&file)]);
        process.wait_for_text(" ready ");
        Instance { _process: process, certificates, backend, door }
    }

    fn url(&self) -> String {
        format!("https://{}", self.door.address())
    }
}

#[track_caller]
fn succeeded(output: Output) -> String {
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    stdout(&output)
}

fn nghttp(args: &[&str]) -> String {
    // It has no option for an authority.
    let output = Command::new("nghttp").arg("--no-verify-peer").args(args).output();
    succeeded(output.expect("nghttp runs; `make test-setup` installs it"))
}

#[test]
fn nghttp_asks_many_times_on_one_connection_and_sends_a_body_with_trailers() {
    let instance = Instance::start("nghttp");
    let url = instance.url();

    let frames = nghttp(&["--verbose", "--null-out", "--multiply=50", &url]);
    assert!(frames.contains("The negotiated protocol: h2"), "{frames}");
    assert_eq!(frames.matches(":status: 200").count(), 50, "{frames}");
    assert_eq!(frames.matches("recv RST_STREAM").count(), 0, "{frames}");

    let body = "0123456789".repeat(50_000);
    let upload = instance.certificates.folder.write("upload", &body);
    let upload = format!("--data={}", text(&upload));
    let with_trailers = ["--no-content-length", "--trailer=x-sum: 500000"];
    let answer = nghttp(&[&[upload.as_str(), &url] as &[&str], &with_trailers].concat());
    assert!(answer.contains(&body), "{} bytes", answer.len());
    let received = instance.backend.requests().pop().expect("a request");
    assert_eq!(received.body_bytes, body.len() as u64);
    assert_eq!(received.trailers, [("x-sum".to_string(), "500000".to_string())]);
    assert_eq!(instance.backend.malformed(), Vec::<String>::new());
}

#[test]
fn httpx_asks_at_once_streams_a_body_and_leaves_an_answer() {
    let instance = Instance::start("httpx");
    let client = workspace().join("crates/equipoise/tests/http2_clients/httpx_client.py");
    let args = [instance.url(), instance.certificates.path("ca.pem")];
    // httpx is Debian's, for its own Python.
    let output = Command::new("/usr/bin/python3").arg(client).args(args).output();
    succeeded(output.expect("/usr/bin/python3 runs; `make test-setup` installs it, and httpx"));
    assert_eq!(instance.backend.malformed(), Vec::<String>::new());
}
