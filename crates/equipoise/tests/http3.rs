//! HTTP/3 from clients through the real binary, with clients of quinn and h3, and of aioquic.

#[path = "http3_peers/client.rs"]
mod client;
mod common;
#[path = "http3_peers/mutated.rs"]
mod mutated;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use client::{Client, answer, within};
use common::certificates::Certificates;
use common::{Process, equipoise, kill, reload, stderr, stdout, text};
use equipoise_testkit::{
    Answer, Gate, HttpBackend, PATIENCE, Step, UdpPort, eventually, python_programs,
};
use h3::error::{Code, StreamError};
use http::Method;
use quinn::rustls::pki_types::CertificateDer;
use rcgen::{CertificateParams, KeyPair};

const NAME: &str = "www.example.com";

/// Time in which a stream of one direction can be opened, if there is room for one.
const ONE_WAY_WITHIN: Duration = Duration::from_millis(100);

/// A running equipoise with an HTTP/3 front door.
struct Instance {
    process: Process,
    certificates: Certificates,
    authority: CertificateDer<'static>,
    file: PathBuf,
    socket: PathBuf,
    port: UdpPort,
}

impl Instance {
    fn start(test: &str, backend: &HttpBackend, access_format: &str) -> Instance {
        let certificates = Certificates::new(test);
        issue(&certificates, &[NAME]);
        let authority = certificates.authority.der().clone();
        let port = UdpPort::reserve();
        let socket = certificates.folder.path("api.sock");
        let config = format!(
            "[api]\nsocket = \"{}\"\nlisten = \"off\"\n[instance]\nthreads = 2\n[log]\naccess-format = \"{access_format}\"\n\
             [[session]]\nname = \"web\"\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"web\"\n\
             http2 = true\nhttp3 = true\naccess-log = 1.0\n\
             tls = {{ certificates = [{{ chain = \"{}\", key = \"{}\" }}] }}\n\
             [[session.route]]\npath = \"/missing\"\nanswer = {{ status = 404, body = \"no\" }}\n\
             [[pool]]\nname = \"web\"\nbackends = [\"{}\"]\n",
            text(&socket),
            port.address(),
            certificates.path("site.pem"),
            certificates.path("site.key"),
            backend.address()
        );
        let file = certificates.folder.write("equipoise.toml", &config);
        let process = Process::start(&["run", text(&file)]);
        process.wait_for_text(" ready ");
        Instance { process, certificates, authority, file, socket, port }
    }

    fn address(&self) -> SocketAddr {
        self.port.address()
    }

    async fn client(&self) -> Client {
        Client::open(&self.authority, self.address()).await
    }

    /// Replaces a part of the file, and reloads it. Returns the error.
    fn change(&self, from: &str, to: &str) -> Result<(), String> {
        let config = std::fs::read_to_string(&self.file).expect("it is there");
        assert!(config.contains(from), "{config}");
        std::fs::write(&self.file, config.replace(from, to)).expect("it is ours");
        let (status, said) = reload(&self.socket);
        if status == 200 { Ok(()) } else { Err(said) }
    }

    /// The output of a command about the process.
    fn command(&self, args: &[&str]) -> String {
        let output = equipoise(&[args, &["--api", text(&self.socket)]].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    }

    /// The head of the answer to curl.
    fn curl(&self, version: &str, path: &str) -> String {
        let port = self.address().port();
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--max-time", "60", "--include", version])
            .args(["--cacert", &self.certificates.path("ca.pem")])
            .args(["--resolve", &format!("{NAME}:{port}:127.0.0.1")])
            .arg(format!("https://{NAME}:{port}{path}"))
            .output()
            .expect("curl runs; `make test-setup` installs it");
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    }
}

/// Writes the front door's certificate.
fn issue(certificates: &Certificates, names: &[&str]) {
    let names: Vec<_> = names.iter().map(|name| name.to_string()).collect();
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(names).expect("names");
    let certificate = params.signed_by(&key, &certificates.authority).expect("a certificate");
    certificates.folder.write("site.pem", &certificate.pem());
    let key = certificates.folder.write("site.key", &key.serialize_pem());
    let _ = std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600));
}

/// A backend that answers with the target, and on /echo with the request.
fn backend() -> HttpBackend {
    HttpBackend::start(|request| match request.head.target() {
        "/echo" => Answer::echo(),
        target => Answer::ok(target),
    })
}

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(test);
}

#[test]
fn requests_and_bodies_pass_both_ways() {
    let backend = backend();
    let instance = Instance::start("http3-requests", &backend, "combined");
    run(async {
        let mut client = instance.client().await;
        let (response, body) = client.ask(Method::GET, "/a?b=c").await;
        assert_eq!((response.status().as_u16(), &body[..]), (200, &b"/a?b=c"[..]));
        let (response, body) = client.ask(Method::HEAD, "/a").await;
        assert_eq!((response.status().as_u16(), body.len()), (200, 0));
        assert_eq!(response.headers()["content-length"], "2");
        let (response, _) = client.ask(Method::GET, "/missing").await;
        assert_eq!(response.status().as_u16(), 404);
        let sent: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 251) as u8).collect();
        let (response, body) = client.post("/echo", &sent).await;
        assert_eq!(response.status().as_u16(), 200);
        assert!(body.ends_with(&sent), "{} bytes", body.len());
    });
    let requests = backend.requests();
    let first = &requests[0].head;
    assert_eq!(first.start, "GET /a?b=c HTTP/1.1");
    assert_eq!(first.header("host"), Some(NAME));
    assert_eq!(first.header("x-forwarded-proto"), Some("https"));
    assert_eq!(first.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(first.header("transfer-encoding"), None, "a GET has no body");
    assert!(backend.malformed().is_empty());
    instance.process.wait_for("lines of the access log", |printed| {
        (printed.matches("HTTP/3.0").count() >= 4).then_some(())
    });
}

#[test]
fn trailers_and_a_body_without_length_pass() {
    let backend = HttpBackend::always(Answer::chunked(&["one", "two"], &["x-after: yes"]));
    let instance = Instance::start("http3-trailers", &backend, "text");
    run(async {
        let mut client = instance.client().await;
        let mut stream = client.begin(Method::POST, "/").await.expect("a request");
        within(stream.send_data(Bytes::from_static(b"three"))).await.expect("a body");
        let mut trailers = http::HeaderMap::new();
        trailers.insert("x-behind", "too".parse().expect("a value"));
        within(stream.send_trailers(trailers)).await.expect("trailers");
        within(stream.finish()).await.expect("an end");
        let (_, body) = answer(&mut stream).await.expect("an answer");
        assert_eq!(body, b"onetwo");
        let trailers = within(stream.recv_trailers()).await.expect("trailers").expect("some");
        assert_eq!(trailers["x-after"], "yes");
    });
    let request = &backend.requests()[0];
    assert_eq!(request.body, b"three");
    assert_eq!(request.trailers, [("x-behind".to_string(), "too".to_string())]);
}

#[test]
fn many_requests_run_at_once() {
    const STREAMS: usize = 100;
    let gate = Gate::new();
    let held = gate.clone();
    let backend = HttpBackend::start(move |request| {
        Answer::ok(request.head.target()).before_body(Step::Wait(held.clone()))
    });
    let instance = Instance::start("http3-many", &backend, "text");
    run(async {
        let client = instance.client().await;
        let one = |number: usize| {
            let mut requests = client.requests.clone();
            async move {
                let uri = format!("https://{NAME}/{number}");
                let request = http::Request::get(uri).body(()).expect("a request");
                let mut stream = within(requests.send_request(request)).await.expect("a request");
                within(stream.finish()).await.expect("an end");
                let (_, body) = answer(&mut stream).await.expect("an answer");
                assert_eq!(body, format!("/{number}").as_bytes());
            }
        };
        // Twice as many as may run at once.
        let all: Vec<_> = (0..2 * STREAMS).map(|number| tokio::spawn(one(number))).collect();
        let reached = tokio::task::spawn_blocking({
            let gate = gate.clone();
            move || (backend.wait(|requests| requests.len() >= STREAMS), gate.open(), backend)
        });
        let (reached, (), backend) = reached.await.expect("it waits");
        assert!(reached, "requests wait for each other");
        for one in all {
            one.await.expect("a right answer");
        }
        assert_eq!(backend.requests().len(), 2 * STREAMS);
        assert!(backend.in_flight_max() >= STREAMS);
    });
}

#[test]
fn other_versions_announce_it() {
    let backend = HttpBackend::start(|request| match request.head.target() {
        "/own" => Answer::ok("").header_lines("Alt-Svc: clear\r\n"),
        _ => Answer::ok(""),
    });
    let instance = Instance::start("http3-alt-svc", &backend, "text");
    let line = format!("alt-svc: h3=\":{}\"; ma=86400\r\n", instance.address().port());
    for version in ["--http1.1", "--http2"] {
        for path in ["/", "/missing"] {
            let head = instance.curl(version, path).to_ascii_lowercase();
            assert!(head.contains(&line), "{version}: {head}");
        }
        let head = instance.curl(version, "/own").to_ascii_lowercase();
        assert!(head.contains("alt-svc: clear\r\n") && !head.contains("h3="), "{head}");
    }
}

/// Encoded lines: `:method GET`, `:scheme https`, `:path /`, and an authority.
const LINES: [&[u8]; 4] = [&[0xd1], &[0xd7], &[0xc1], &[0x50, 1, b'a']];

/// A frame with a payload shorter than 64 bytes.
fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    [&[kind, payload.len() as u8], payload].concat()
}

/// A HEADERS frame with these lines.
fn head(lines: &[&[u8]]) -> Vec<u8> {
    frame(1, &[&[0, 0], lines.concat().as_slice()].concat())
}

/// The code with which the stream of a request with these bytes is reset; `None`: it is answered.
async fn code_of(quic: &quinn::Connection, bytes: &[u8]) -> Option<u64> {
    let (mut send, mut receive) = within(quic.open_bi()).await.expect("a stream");
    // The other side may have refused it already.
    let _ = send.write_all(bytes).await;
    let _ = send.finish();
    match within(receive.read_to_end(1 << 16)).await {
        Ok(_) => None,
        Err(quinn::ReadToEndError::Read(quinn::ReadError::Reset(code))) => Some(code.into_inner()),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn malformed_requests_are_refused_and_reach_no_backend() {
    let backend = backend();
    let instance = Instance::start("http3-malformed", &backend, "text");
    let [method, scheme, path, authority] = LINES;
    let whole = head(&LINES);
    let message_error = Code::H3_MESSAGE_ERROR.value();
    let refused: [(&str, Vec<u8>, u64); 14] = [
        ("no method", head(&[scheme, path, authority]), message_error),
        ("no scheme", head(&[method, path, authority]), message_error),
        ("no path", head(&[method, scheme, authority]), message_error),
        ("no authority", head(&[method, scheme, path]), message_error),
        ("two methods", head(&[method, method, scheme, path, authority]), message_error),
        ("two paths", head(&[method, scheme, path, authority, path]), message_error),
        ("a status", head(&[method, scheme, path, authority, &[0xd9]]), message_error),
        ("a late path", head(&[method, scheme, authority, &[0xdd], path]), message_error),
        ("an unknown one", head(&[&LINES.concat(), &[0x22, b':', b'x', 1, b'y']]), message_error),
        ("upper case", head(&[&LINES.concat(), &[0x21, b'X', 1, b'y']]), message_error),
        ("connection", head(&[&LINES.concat(), b"\x27\x03connection\x05close"]), message_error),
        (
            "too short a body",
            [head(&[&LINES.concat(), &[0x54, 1, b'5']]), frame(0, b"1234")].concat(),
            message_error,
        ),
        (
            "too long a body",
            [head(&[&LINES.concat(), &[0x54, 1, b'3']]), frame(0, b"1234")].concat(),
            message_error,
        ),
        ("a large head", vec![1, 0x80, 0x10, 0, 0], Code::H3_EXCESSIVE_LOAD.value()),
    ];
    let fatal: [(&str, Vec<u8>, Code); 6] = [
        ("DATA first", frame(0, b"x"), Code::H3_FRAME_UNEXPECTED),
        ("SETTINGS", [whole.clone(), frame(4, b"")].concat(), Code::H3_FRAME_UNEXPECTED),
        ("a frame of HTTP/2", [whole.clone(), frame(6, b"")].concat(), Code::H3_FRAME_UNEXPECTED),
        ("a cut frame", [whole.clone(), vec![0, 9, 1]].concat(), Code::H3_FRAME_ERROR),
        ("a cut head", whole[..5].to_vec(), Code::H3_FRAME_ERROR),
        ("the dynamic table", head(&[&LINES.concat(), &[0x80]]), Code::QPACK_DECOMPRESSION_FAILED),
    ];
    run(async {
        let (_endpoint, quic) = client::connect(&instance.authority, instance.address()).await;
        for (what, bytes, code) in &refused {
            assert_eq!(code_of(&quic, bytes).await, Some(*code), "{what}");
        }
        // An unknown frame is ignored, whatever its length.
        let unknown = [vec![0x21, 0x80, 0, 0x20, 0], vec![7; 0x2000], whole.clone()].concat();
        assert_eq!(code_of(&quic, &unknown).await, None);
        for (what, bytes, code) in &fatal {
            let (_endpoint, quic) = client::connect(&instance.authority, instance.address()).await;
            let (mut send, _receive) = within(quic.open_bi()).await.expect("a stream");
            within(send.write_all(bytes)).await.expect("bytes can be sent");
            let _ = send.finish();
            match within(quic.closed()).await {
                quinn::ConnectionError::ApplicationClosed(close) => {
                    assert_eq!(close.error_code.into_inner(), code.value(), "{what}");
                }
                error => panic!("{what}: {error}"),
            }
        }
    });
    assert!(backend.malformed().is_empty());
    let whole = backend.requests().into_iter().filter(|request| request.complete).count();
    assert_eq!(whole, 1, "{:?}", backend.requests());
}

#[test]
fn mutated_requests_leave_the_process_serving() {
    let backend = backend();
    let instance = Instance::start("http3-mutated", &backend, "text");
    let mut inputs = mutated::Mutations::start();
    run(async {
        let mut connection = None;
        while let Some(input) = inputs.next() {
            let is_closed = |it: &(_, quinn::Connection)| it.1.close_reason().is_some();
            if connection.as_ref().is_none_or(is_closed) {
                let new = client::connect(&instance.authority, instance.address()).await;
                connection = Some(new);
            }
            let Some((_, quic)) = &connection else { unreachable!() };
            let (is_one_way, resets) = (inputs.is_one_way(), inputs.resets());
            let sent = async {
                if is_one_way {
                    let opened = tokio::time::timeout(ONE_WAY_WITHIN, quic.open_uni()).await;
                    // As many may be open as the server permits.
                    let mut send = opened.inspect_err(|_| quic.close(0u32.into(), &[]))??;
                    send.write_all(&input).await?;
                    return Ok::<_, Box<dyn std::error::Error>>(());
                }
                let (mut send, mut receive) = quic.open_bi().await?;
                send.write_all(&input).await?;
                if resets {
                    send.reset(0u32.into())?;
                } else {
                    send.finish()?;
                }
                receive.read_to_end(1 << 16).await?;
                Ok(())
            };
            // A refusal is an error of the stream or of the connection.
            let answered = tokio::time::timeout(PATIENCE, sent).await;
            assert!(answered.is_ok(), "no answer to {}", input.escape_ascii());
            assert_eq!(backend.malformed(), [""; 0], "{}", input.escape_ascii());
        }
        let (response, body) = instance.client().await.ask(Method::GET, "/good").await;
        assert_eq!((response.status().as_u16(), &body[..]), (200, &b"/good"[..]));
    });
    let none_in_flight = || {
        let status = instance.command(&["status", "--json"]);
        let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
        status["front_doors"][0]["requests_in_flight"] == 0
    };
    assert!(eventually(none_in_flight), "{}", instance.command(&["status", "--json"]));
}

#[test]
fn heads_and_resets_are_bounded() {
    let backend = backend();
    let instance = Instance::start("http3-bounds", &backend, "text");
    // Each `accept: */*` is one byte, and counts 41 (RFC 9114, section 4.2.2).
    let block = [&[0, 0], LINES.concat().as_slice(), &[0xdd; 1000]].concat();
    let length = (block.len() as u16 | 0x4000).to_be_bytes();
    let large = [&[1], &length[..], &block].concat();
    run(async {
        let (_endpoint, quic) = client::connect(&instance.authority, instance.address()).await;
        assert_eq!(code_of(&quic, &large).await, None, "the answer is 431");
        assert!(backend.requests().is_empty());
        let malformed = head(&[LINES[0]]);
        let flood = async {
            while let Ok((mut send, mut receive)) = quic.open_bi().await {
                let _ = send.write_all(&malformed).await;
                let _ = send.finish();
                let _ = receive.read_to_end(1 << 16).await;
            }
        };
        within(flood).await;
        match within(quic.closed()).await {
            quinn::ConnectionError::ApplicationClosed(close) => {
                assert_eq!(close.error_code.into_inner(), Code::H3_EXCESSIVE_LOAD.value());
            }
            error => panic!("{error}"),
        }
    });
    instance.process.wait_for_text("http3_flood");
    assert!(backend.requests().is_empty());
}

#[test]
fn a_client_that_resets_a_request_cancels_it() {
    let backend = HttpBackend::always(Answer::hang());
    let instance = Instance::start("http3-reset", &backend, "text");
    run(async {
        let mut client = instance.client().await;
        let mut stream = client.begin(Method::GET, "/").await.expect("a request");
        within(stream.finish()).await.expect("an end");
        let (backend, reached) = tokio::task::spawn_blocking(move || {
            let reached = backend.wait(|requests| requests.len() == 1);
            (backend, reached)
        })
        .await
        .expect("it waits");
        assert!(reached, "no request arrives");
        // Its request has ended, so that it can only stop the response.
        stream.stop_sending(Code::H3_REQUEST_CANCELLED);
        instance.process.wait_for_text("client_gone");
        drop(backend);
    });
}

#[test]
fn certificates_are_exchanged_without_a_restart() {
    let backend = backend();
    let instance = Instance::start("http3-reload", &backend, "text");
    run(async {
        let mut old = instance.client().await;
        let shown = |client: &Client| {
            let identity = client.quic.peer_identity().expect("a certificate");
            identity.downcast::<Vec<CertificateDer<'static>>>().expect("certificates")[0].clone()
        };
        let before = shown(&old);
        issue(&instance.certificates, &[NAME]);
        let (status, said) = reload(&instance.socket);
        assert_eq!(status, 200, "{said}");
        let mut new = instance.client().await;
        assert_ne!(shown(&new), before);
        for client in [&mut old, &mut new] {
            assert_eq!(client.ask(Method::GET, "/").await.0.status().as_u16(), 200);
        }
    });
}

#[test]
fn a_reload_turns_it_off_and_on() {
    let backend = backend();
    let instance = Instance::start("http3-toggle", &backend, "text");
    run(async {
        let mut old = instance.client().await;
        assert_eq!(old.ask(Method::GET, "/").await.1, b"/");
        instance.change("http3 = true", "http3 = false").expect("a right file");
        within(old.quic.closed()).await;
        let head = instance.curl("--http2", "/").to_ascii_lowercase();
        assert!(!head.contains("alt-svc"), "{head}");
        // The socket is closed once the client has acknowledged the end, or after a while.
        drop(old);
        instance.change("http3 = false", "http3 = true").unwrap_or_default();
        let is_on = || reload(&instance.socket).0 == 200;
        assert!(eventually(is_on), "{:?}", reload(&instance.socket));
        let mut new = instance.client().await;
        assert_eq!(new.ask(Method::GET, "/").await.1, b"/");
    });
}

#[test]
fn certificates_of_clients_are_reported_to_backends() {
    let backend = backend();
    let instance = Instance::start("http3-clients", &backend, "text");
    let ca = instance.certificates.path("ca.pem");
    let clients = format!("}}], clients = {{ ca = \"{ca}\" }} }}");
    instance.change("}] }", &clients).expect("a right file");
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, "somebody");
    let certificate =
        params.signed_by(&key, &instance.certificates.authority).expect("a certificate");
    let identity = (certificate.der().clone(), key.serialize_der());
    run(async {
        let mut client =
            Client::open_as(&instance.authority, instance.address(), Some(identity)).await;
        assert_eq!(client.ask(Method::GET, "/").await.0.status().as_u16(), 200);
        client.close().await;
    });
    let requests = backend.requests();
    assert_eq!(requests[0].head.header("x-forwarded-client-subject"), Some("CN=somebody"));
}

#[test]
fn a_drain_lets_requests_end_and_takes_no_more() {
    let gate = Gate::new();
    let held = gate.clone();
    let backend =
        HttpBackend::start(move |_| Answer::ok("late").before_body(Step::Wait(held.clone())));
    let mut instance = Instance::start("http3-drain", &backend, "text");
    run(async {
        let mut client = instance.client().await;
        let mut stream = client.begin(Method::GET, "/").await.expect("a request");
        within(stream.finish()).await.expect("an end");
        let reached = tokio::task::spawn_blocking(move || {
            (backend.wait(|requests| requests.len() == 1), backend)
        });
        let (reached, backend) = reached.await.expect("it waits");
        assert!(reached, "no request arrives");
        instance.process.signal(libc::SIGTERM);
        // GOAWAY comes; until then, requests are accepted.
        let began = SystemTime::now();
        loop {
            match client.begin(Method::GET, "/more").await {
                Err(StreamError::RemoteClosing) => break,
                Ok(mut more) => within(more.finish()).await.expect("an end"),
                Err(error) => panic!("{error}"),
            }
            assert!(began.elapsed().is_ok_and(|waited| waited < PATIENCE), "no GOAWAY comes");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        gate.open();
        let (response, body) = answer(&mut stream).await.expect("the answer comes whole");
        assert_eq!((response.status().as_u16(), &body[..]), (200, &b"late"[..]));
        client.close().await;
        drop((stream, backend));
    });
    assert!(instance.process.ended().success(), "{}", instance.process.printed());
}

#[test]
fn an_upgrade_ends_connections_and_the_new_process_serves() {
    let backend = backend();
    let instance = Instance::start("http3-upgrade", &backend, "text");
    run(async {
        let mut old = instance.client().await;
        assert_eq!(old.ask(Method::GET, "/").await.1, b"/");
        instance.command(&["upgrade"]);
        let status: serde_json::Value =
            serde_json::from_str(&instance.command(&["status", "--json"])).expect("it is JSON");
        let new = status["pid"].as_u64().expect("a number") as u32;
        let _killed = Killed(new);
        assert_ne!(new, instance.process.pid());
        match within(old.quic.closed()).await {
            quinn::ConnectionError::ApplicationClosed(close) => {
                assert_eq!(close.error_code.into_inner(), Code::H3_NO_ERROR.value());
            }
            error => panic!("{error}"),
        }
        let mut new = instance.client().await;
        assert_eq!(new.ask(Method::GET, "/").await.1, b"/");
    });
}

/// Kills the process when it is dropped.
struct Killed(u32);

impl Drop for Killed {
    fn drop(&mut self) {
        kill(self.0, libc::SIGKILL);
    }
}

#[test]
fn aioquic_is_served() {
    let Some(programs) = python_programs("quic-python") else { return };
    let backend = backend();
    let instance = Instance::start("http3-aioquic", &backend, "combined");
    let output = Command::new(programs.join("python"))
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/http3_peers/aioquic_client.py"))
        .args([&instance.certificates.path("ca.pem"), &instance.address().port().to_string(), NAME])
        .output()
        .expect("Python runs");
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output), "GET 200 /aioquic\nPOST 200 True\nMANY 80 []\n");
    assert!(eventually(|| instance.process.printed().matches("HTTP/3.0").count() == 82));
}
