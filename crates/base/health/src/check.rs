use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{self, CONNECTION, HOST};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

use super::CheckError;
use crate::fields::{BODY_BYTES, BUFFER_BYTES, CHECK_FIELD, USER_AGENT};
use crate::place::connect_first;
use crate::secure::CheckTls;
use crate::{CheckMethod, HealthCheck, HttpCheck, Place, http2};

/// Runs one check of the backend at `place` (with `address` as its own address), within `timeout`.
/// `port` replaces the backend's port. With `tls` the check is encrypted. Closes the connection at
/// the end.
///
/// An HTTP check passes if the status is accepted, the body is not cut off within its first 32 KB,
/// and these contain the configured text.
///
/// # Errors
/// The [`CheckError`] that describes the backend's failure.
pub(crate) async fn probe(
    check: &HealthCheck,
    how: How<'_>,
    address: SocketAddr,
    place: &Place,
    port: Option<u16>,
    timeout: Duration,
) -> Result<(), CheckError> {
    match place {
        Place::Address => {
            let host = at_port(address, port).to_string();
            probe_first(check, how, &host, vec![address], port, timeout).await?.1
        }
        Place::Host { name, resolved } => {
            probe_first(check, how, name, resolved.ordered().collect(), port, timeout).await?.1
        }
        Place::Socket(path) => {
            let deadline = Instant::now() + timeout;
            let stream = opened(timeout_at(deadline, UnixStream::connect(path)).await, timeout)?;
            answer(check, how, "localhost", Stream::Unix(stream), deadline, timeout).await
        }
    }
}

/// How checks of a backend begin.
#[derive(Clone, Copy, Default)]
pub(crate) struct How<'a> {
    /// TLS; `None`: the check is not encrypted.
    pub(crate) tls: Option<&'a CheckTls>,
    /// Bytes that go first, in the clear.
    pub(crate) preamble: &'static [u8],
}

/// Runs one check like [`probe`], at the first of these addresses that accepts a connection.
/// Returns that address.
///
/// # Errors
/// The [`CheckError`] of the connection attempts, if no address accepts one.
pub(crate) async fn probe_first(
    check: &HealthCheck,
    how: How<'_>,
    host: &str,
    addresses: Vec<SocketAddr>,
    port: Option<u16>,
    timeout: Duration,
) -> Result<(SocketAddr, Result<(), CheckError>), CheckError> {
    let deadline = Instant::now() + timeout;
    let connect = connect_first(addresses, |address| TcpStream::connect(at_port(address, port)));
    let (address, stream) = opened(timeout_at(deadline, connect).await, timeout)?;
    Ok((address, answer(check, how, host, Stream::Tcp(stream), deadline, timeout).await))
}

fn at_port(address: SocketAddr, port: Option<u16>) -> SocketAddr {
    port.map_or(address, |port| SocketAddr::new(address.ip(), port))
}

fn opened<T>(opened: Result<io::Result<T>, Elapsed>, timeout: Duration) -> Result<T, CheckError> {
    opened
        .map_err(|_| CheckError::ConnectTimeout(timeout))?
        .map_err(|error| CheckError::connecting(&error))
}

/// Runs the check over an open connection. The limit is the check's own (`Attended`), or else
/// `deadline`, which is `timeout` after the start of the check.
async fn answer(
    check: &HealthCheck,
    how: How<'_>,
    host: &str,
    stream: Stream,
    deadline: Instant,
    timeout: Duration,
) -> Result<(), CheckError> {
    let (deadline, patience) = match check {
        HealthCheck::Attended { within } => (Instant::now() + *within, *within),
        HealthCheck::Tcp | HealthCheck::Http(_) | HealthCheck::Grpc { .. } => (deadline, timeout),
    };
    let answered = timeout_at(deadline, ask(check, how, host, stream)).await;
    answered.map_err(|_| CheckError::AnswerTimeout(patience))?
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Runs the check's exchange over an open connection. `host` is the Host header unless the check
/// sets one.
async fn ask(
    check: &HealthCheck,
    how: How<'_>,
    host: &str,
    stream: Stream,
) -> Result<(), CheckError> {
    match stream {
        Stream::Tcp(stream) => ask_encrypted(check, how, host, stream).await,
        Stream::Unix(stream) => ask_encrypted(check, how, host, stream).await,
    }
}

/// As [`ask`], with the handshake if there is `tls`.
async fn ask_encrypted(
    check: &HealthCheck,
    how: How<'_>,
    host: &str,
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
) -> Result<(), CheckError> {
    if !how.preamble.is_empty() {
        stream.write_all(how.preamble).await.map_err(|_| CheckError::Closed)?;
    }
    match how.tls {
        None => ask_over(check, "http", host, stream).await,
        Some(tls) => ask_over(check, "https", host, tls.over(stream).await?).await,
    }
}

async fn ask_over(
    check: &HealthCheck,
    scheme: &str,
    host: &str,
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
) -> Result<(), CheckError> {
    match check {
        HealthCheck::Tcp => {
            // TLS announces the end. A backend that has closed already has passed.
            let _ = stream.shutdown().await;
            Ok(())
        }
        HealthCheck::Attended { .. } => is_closed(stream).await,
        HealthCheck::Http(check) if check.http2 => {
            exchange_http2(stream, scheme, host, check).await
        }
        HealthCheck::Http(check) => exchange(stream, request(check, host)?, check).await,
        HealthCheck::Grpc { service } => {
            http2::ask_health(stream, &format!("{scheme}://{host}"), service).await
        }
    }
}

/// Closes our half of the connection, and waits until the peer closes the other half. A reset fails
/// the check: it does not show that the process is alive.
async fn is_closed(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> Result<(), CheckError> {
    let closed = |_| CheckError::Closed;
    stream.shutdown().await.map_err(closed)?;
    let mut said = [0; 512];
    while stream.read(&mut said).await.map_err(closed)? > 0 {}
    Ok(())
}

/// Builds the request. `host` is the Host header unless the check sets one.
fn request(check: &HttpCheck, host: &str) -> Result<Request<Empty<Bytes>>, CheckError> {
    Request::builder()
        .method(method(check))
        .uri(&*check.path)
        .header(HOST, check.host.as_deref().unwrap_or(host))
        .header(header::USER_AGENT, USER_AGENT)
        .header(CHECK_FIELD, "1")
        .header(CONNECTION, "close")
        .body(Empty::new())
        .map_err(|error| CheckError::Unaskable(error.to_string()))
}

fn method(check: &HttpCheck) -> Method {
    match check.method {
        CheckMethod::Get => Method::GET,
        CheckMethod::Head => Method::HEAD,
        CheckMethod::Options => Method::OPTIONS,
        CheckMethod::Post => Method::POST,
    }
}

/// As [`exchange`], over HTTP/2.
async fn exchange_http2(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    scheme: &str,
    host: &str,
    check: &HttpCheck,
) -> Result<(), CheckError> {
    let host = check.host.as_deref().unwrap_or(host);
    let request = Request::builder()
        .method(method(check))
        .uri(format!("{scheme}://{host}{}", check.path))
        .header(header::USER_AGENT, USER_AGENT)
        .header(CHECK_FIELD, "1")
        .body(())
        .map_err(|error| CheckError::Unaskable(error.to_string()))?;
    let answer = http2::exchange(stream, request, Bytes::new()).await?;
    accept_status(check, answer.status)?;
    match &check.body {
        Some(text) if !contains(&answer.body, text) => {
            Err(CheckError::Body { wanted: text.clone(), read: answer.body.len() })
        }
        _ => Ok(()),
    }
}

fn accept_status(check: &HttpCheck, got: u16) -> Result<(), CheckError> {
    match check.statuses.iter().any(|(first, last)| (*first..=*last).contains(&got)) {
        true => Ok(()),
        false => Err(CheckError::Status { got, wanted: check.statuses.clone() }),
    }
}

fn contains(body: &[u8], text: &str) -> bool {
    body.windows(text.len()).any(|window| window == text.as_bytes())
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    request: Request<Empty<Bytes>>,
    check: &HttpCheck,
) -> Result<(), CheckError> {
    let failed = |error: hyper::Error| CheckError::exchanging(&error);
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(BUFFER_BYTES)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(failed)?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(failed)?;
        accept_status(check, response.status().as_u16())?;
        match &check.body {
            None => read_bounded(response.into_body()).await,
            Some(text) => find(text, response.into_body()).await,
        }
    };
    // Polls the connection here instead of in a task, so that the end of the check closes it. It
    // may end before the answer is read; the answer then reports its error.
    let (mut answer, mut connection) = (pin!(answer), pin!(connection));
    let mut connected = true;
    loop {
        tokio::select! {
            biased;
            result = &mut answer => return result,
            _ = &mut connection, if connected => connected = false,
        }
    }
}

/// Reads the body until it contains `text`, or until the limit.
async fn find(text: &Arc<str>, mut body: Incoming) -> Result<(), CheckError> {
    let mut read = Vec::new();
    while read.len() < BODY_BYTES {
        let Some(frame) = body.frame().await else { break };
        let frame = frame.map_err(|error| CheckError::exchanging(&error))?;
        let Some(part) = frame.data_ref() else { continue };
        // The text may begin in the previous part.
        let from = read.len().saturating_sub(text.len());
        read.extend_from_slice(&part[..part.len().min(BODY_BYTES - read.len())]);
        if contains(&read[from..], text) {
            return Ok(());
        }
    }
    Err(CheckError::Body { wanted: text.clone(), read: read.len() })
}

async fn read_bounded(mut body: Incoming) -> Result<(), CheckError> {
    let mut read = 0;
    while read < BODY_BYTES {
        let Some(frame) = body.frame().await else { break };
        let frame = frame.map_err(|error| CheckError::exchanging(&error))?;
        read += frame.data_ref().map_or(0, Bytes::len);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tokio::task::JoinHandle;

    use super::*;

    /// A timeout that no answered check reaches.
    const PATIENT: Duration = Duration::from_secs(30);
    /// Timeout of checks without an answer. It also bounds connecting, which a busy machine must
    /// manage in this time.
    const SHORT: Duration = Duration::from_secs(1);

    fn http() -> HealthCheck {
        HealthCheck::Http(HttpCheck::get("/healthz"))
    }

    /// Sends `answer` on one connection, then closes it if `close`. Returns the request that it
    /// received.
    async fn backend(answer: Vec<u8>, close: bool) -> (SocketAddr, JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                if stream.read_buf(&mut asked).await.unwrap() == 0 {
                    break;
                }
            }
            // The check may have ended already.
            let _ = stream.write_all(&answer).await;
            if !close {
                while stream.read_buf(&mut asked).await.is_ok_and(|n| n > 0) {}
            }
            String::from_utf8(asked).unwrap()
        });
        (address, task)
    }

    async fn answered(answer: impl Into<Vec<u8>>, timeout: Duration) -> Result<(), CheckError> {
        let (address, _task) = backend(answer.into(), true).await;
        probe(&http(), How::default(), address, &Place::Address, None, timeout).await
    }

    #[tokio::test]
    async fn a_tcp_check_passes_where_something_listens_and_says_refused_where_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(
            probe(&HealthCheck::Tcp, How::default(), address, &Place::Address, None, PATIENT).await,
            Ok(())
        );
        drop(listener);
        let refused =
            probe(&HealthCheck::Tcp, How::default(), address, &Place::Address, None, PATIENT).await;
        assert_eq!(refused, Err(CheckError::Refused));
    }

    #[tokio::test]
    async fn where_a_process_attends_it_closes_after_us_and_a_kernel_alone_does_not() {
        let check = |within| HealthCheck::Attended { within };
        let (address, task) = backend(Vec::new(), true).await;
        assert_eq!(
            probe(&check(PATIENT), How::default(), address, &Place::Address, None, SHORT).await,
            Ok(())
        );
        assert_eq!(task.await.unwrap(), "", "it was asked nothing");
        // The kernel completes the handshake, and no process accepts the connection.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let unattended =
            probe(&check(SHORT), How::default(), address, &Place::Address, None, PATIENT).await;
        assert_eq!(unattended, Err(CheckError::AnswerTimeout(SHORT)));
        drop(listener);
        let refused =
            probe(&check(PATIENT), How::default(), address, &Place::Address, None, PATIENT).await;
        assert_eq!(refused, Err(CheckError::Refused));
    }

    #[tokio::test]
    async fn an_http_check_asks_for_its_path_at_its_host_on_a_connection_to_be_closed() {
        let ok = "HTTP/1.1 204 No Content\r\n\r\n";
        let (address, task) = backend(ok.into(), false).await;
        assert_eq!(
            probe(&http(), How::default(), address, &Place::Address, None, PATIENT).await,
            Ok(())
        );
        let asked = task.await.unwrap().to_ascii_lowercase();
        assert!(asked.starts_with("get /healthz http/1.1\r\n"), "{asked}");
        assert!(asked.contains(&format!("host: {address}\r\n")), "{asked}");
        assert!(asked.contains("connection: close\r\n"), "{asked}");
        assert!(asked.contains("equipoise-check: 1\r\n"), "{asked}");

        let (address, task) = backend(ok.into(), false).await;
        let host = Some("app.example".into());
        let statuses = [(204, 204)].into();
        let check = HealthCheck::Http(HttpCheck { host, statuses, ..HttpCheck::get("/") });
        assert_eq!(
            probe(&check, How::default(), address, &Place::Address, None, PATIENT).await,
            Ok(())
        );
        assert!(task.await.unwrap().to_ascii_lowercase().contains("host: app.example\r\n"));
    }

    #[tokio::test]
    async fn the_preamble_comes_before_the_request() {
        let (address, asked) = backend(b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), true).await;
        let how = How { tls: None, preamble: b"PROXY UNKNOWN\r\n" };
        let passed = probe(&http(), how, address, &Place::Address, None, PATIENT).await;
        assert_eq!(passed, Ok(()));
        let asked = asked.await.unwrap();
        assert!(asked.starts_with("PROXY UNKNOWN\r\nGET /healthz HTTP/1.1\r\n"), "{asked}");
    }

    #[tokio::test]
    async fn a_unix_socket_is_checked_in_the_place_of_the_address() {
        let path = std::env::temp_dir().join(format!("eqp-check-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let nobody = SocketAddr::from(([0, 0, 0, 0], 0));
        let place = Place::Socket(path.as_path().into());
        let answer = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                assert!(stream.read_buf(&mut asked).await.unwrap() > 0);
            }
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
            String::from_utf8(asked).unwrap().to_ascii_lowercase()
        });
        assert_eq!(probe(&http(), How::default(), nobody, &place, None, PATIENT).await, Ok(()));
        assert!(answer.await.unwrap().contains("host: localhost\r\n"));
        let refused = probe(&HealthCheck::Tcp, How::default(), nobody, &place, None, PATIENT).await;
        assert_eq!(refused, Err(CheckError::Refused));
        std::fs::remove_file(&path).unwrap();
    }

    #[tokio::test]
    async fn the_status_decides_and_is_named() {
        let rows = [
            ("200 OK", Ok(())),
            ("299 Fine", Ok(())),
            ("300 Choice", Err(CheckError::Status { got: 300, wanted: [(200, 299)].into() })),
            ("503 Busy", Err(CheckError::Status { got: 503, wanted: [(200, 299)].into() })),
        ];
        for (status, want) in rows {
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nhi");
            assert_eq!(answered(answer, PATIENT).await, want, "{status}");
        }
    }

    #[tokio::test]
    async fn each_part_of_the_accepted_statuses_passes() {
        let statuses: Arc<[_]> = [(200, 299), (401, 401)].into();
        let check = HttpCheck { statuses: statuses.clone(), ..HttpCheck::get("/") };
        let check = HealthCheck::Http(check);
        let failed = |got| Err(CheckError::Status { got, wanted: statuses.clone() });
        for (status, want) in [(204, Ok(())), (401, Ok(())), (400, failed(400)), (402, failed(402))]
        {
            let answer = format!("HTTP/1.1 {status} Some\r\nContent-Length: 0\r\n\r\n");
            let (address, _task) = backend(answer.into(), true).await;
            assert_eq!(
                probe(&check, How::default(), address, &Place::Address, None, PATIENT).await,
                want,
                "{status}"
            );
        }
    }

    #[tokio::test]
    async fn the_method_is_the_checks_and_an_answer_to_head_has_no_body() {
        for (method, name, length) in [
            (CheckMethod::Get, "get", "2\r\n\r\nhi"),
            (CheckMethod::Head, "head", "2\r\n\r\n"),
            (CheckMethod::Options, "options", "0\r\n\r\n"),
            (CheckMethod::Post, "post", "0\r\n\r\n"),
        ] {
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}");
            let (address, task) = backend(answer.into(), false).await;
            let check = HealthCheck::Http(HttpCheck { method, ..HttpCheck::get("/up") });
            assert_eq!(
                probe(&check, How::default(), address, &Place::Address, None, PATIENT).await,
                Ok(()),
                "{name}"
            );
            let asked = task.await.unwrap().to_ascii_lowercase();
            assert!(asked.starts_with(&format!("{name} /up http/1.1\r\n")), "{asked}");
        }
    }

    #[tokio::test]
    async fn the_body_has_to_contain_the_checks_text() {
        let check = |text: &str| {
            HealthCheck::Http(HttpCheck { body: Some(text.into()), ..HttpCheck::get("/") })
        };
        let missing = |wanted: &str, read| Err(CheckError::Body { wanted: wanted.into(), read });
        let plain =
            |body: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let long = |text: &str, at: usize| plain(&("x".repeat(at) + text + &"x".repeat(64 << 10)));
        let chunked =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nre\r\n3\r\nady\r\n0\r\n\r\n";
        for (answer, text, want) in [
            (plain("{\"state\": \"ready\"}"), "\"ready\"", Ok(())),
            (plain("starting"), "ready", missing("ready", 8)),
            (plain(""), "ready", missing("ready", 0)),
            (chunked.to_owned(), "ready", Ok(())),
            (long("ready", BODY_BYTES - 5), "ready", Ok(())),
            (long("ready", BODY_BYTES - 4), "ready", missing("ready", BODY_BYTES)),
        ] {
            let (address, _task) = backend(answer.clone().into(), true).await;
            let result =
                probe(&check(text), How::default(), address, &Place::Address, None, PATIENT).await;
            assert_eq!(result, want, "{text} in {:.60}", answer);
        }
        let cut = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi";
        let (address, _task) = backend(cut.into(), true).await;
        assert_eq!(
            probe(&check("ready"), How::default(), address, &Place::Address, None, PATIENT).await,
            Err(CheckError::Closed)
        );
    }

    #[tokio::test]
    async fn an_answer_without_length_ends_with_its_connection() {
        assert_eq!(answered("HTTP/1.0 200 OK\r\n\r\nhello", PATIENT).await, Ok(()));
    }

    #[tokio::test]
    async fn broken_answers_are_told_apart() {
        let cut = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi";
        assert_eq!(answered(cut, PATIENT).await, Err(CheckError::Closed));
        assert_eq!(answered("", PATIENT).await, Err(CheckError::Closed));
        assert_eq!(answered("HTTP/1.1 200", PATIENT).await, Err(CheckError::Closed));
        let garbage = answered("SSH-2.0-OpenSSH_9.2\r\n", PATIENT).await;
        assert!(matches!(garbage, Err(CheckError::NotHttp(_))), "{garbage:?}");
    }

    #[tokio::test]
    async fn a_head_beyond_the_buffer_is_refused() {
        let answer = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(64 << 10));
        let result = answered(answer, PATIENT).await;
        assert!(matches!(result, Err(CheckError::NotHttp(_))), "{result:?}");
    }

    #[tokio::test]
    async fn an_endless_body_is_not_read_to_its_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let writer = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            let block = [b'x'; 4096];
            while stream.write_all(&block).await.is_ok() {}
        });
        assert_eq!(
            probe(&http(), How::default(), address, &Place::Address, None, PATIENT).await,
            Ok(())
        );
        writer.await.unwrap();
    }

    #[tokio::test]
    async fn silence_is_a_failure_when_the_time_is_over() {
        let stalled = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi";
        for answer in ["", "HTTP/1.1 200 OK\r\n", stalled] {
            let (address, _task) = backend(answer.into(), false).await;
            let result =
                probe(&http(), How::default(), address, &Place::Address, None, SHORT).await;
            assert_eq!(result, Err(CheckError::AnswerTimeout(SHORT)), "{answer:?}");
        }
    }

    #[tokio::test]
    async fn a_path_or_host_that_makes_no_request_is_said_so() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        for (path, host) in [("/a b", None), ("/", Some("a\nb".into()))] {
            let check = HealthCheck::Http(HttpCheck { host, ..HttpCheck::get(path) });
            let result =
                probe(&check, How::default(), address, &Place::Address, None, PATIENT).await;
            assert!(matches!(result, Err(CheckError::Unaskable(_))), "{result:?}");
        }
    }
}
