use std::pin::pin;
use std::sync::Arc;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{self, CONNECTION, HOST};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Check, Origin, http2};
use crate::CheckError;
use crate::fields::{BODY_BYTES, BUFFER_BYTES, CHECK_FIELD, USER_AGENT};

/// Passes if the answer to an HTTP request meets the criteria: the status is accepted, the body is
/// not cut off within its first 32 KB, and these contain the configured text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpCheck {
    /// Whether the request is sent over HTTP/2, by prior knowledge.
    pub http2: bool,
    /// Request method.
    pub method: CheckMethod,
    /// Request target in origin form, such as `/healthz`.
    pub path: Arc<str>,
    /// Value of the `Host` header; `None`: the checked address.
    pub host: Option<Arc<str>>,
    /// First and last status of each accepted range.
    pub statuses: Arc<[(u16, u16)]>,
    /// Text that the first 32 KB of the body must contain; `None`: any body passes.
    pub body: Option<Arc<str>>,
}

impl HttpCheck {
    /// Makes a check `GET path` that accepts statuses 200 to 299.
    pub fn get(path: &str) -> HttpCheck {
        HttpCheck {
            http2: false,
            method: CheckMethod::Get,
            path: path.into(),
            host: None,
            statuses: [(200, 299)].into(),
            body: None,
        }
    }
}

/// Request methods of checks: safe methods, and POST for applications that require it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckMethod {
    /// GET.
    #[default]
    Get,
    /// HEAD; the response has no body.
    Head,
    /// OPTIONS.
    Options,
    /// POST, with an empty body.
    Post,
}

impl Check for HttpCheck {
    async fn ask(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        origin: Origin<'_>,
    ) -> Result<(), CheckError> {
        match self.http2 {
            true => exchange_http2(stream, origin, self).await,
            false => exchange(stream, request(self, origin.host)?, self).await,
        }
    }
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
    Origin { scheme, host }: Origin<'_>,
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
        Some(text) if !contains(&answer.body, text) => Err(missing(text, answer.body.len())),
        _ => Ok(()),
    }
}

fn accept_status(check: &HttpCheck, got: u16) -> Result<(), CheckError> {
    match check.statuses.iter().any(|(first, last)| (*first..=*last).contains(&got)) {
        true => Ok(()),
        false => Err(CheckError::Status { got, wanted: check.statuses.clone() }),
    }
}

/// The error of a body without the check's text in its first bytes.
fn missing(wanted: &str, read: usize) -> CheckError {
    CheckError::Answer(format!("the body does not contain {wanted:?} in its first {read} bytes"))
}

fn contains(body: &[u8], text: &str) -> bool {
    body.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Sends a request over a new connection, which ends with the check.
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
async fn find(text: &str, mut body: Incoming) -> Result<(), CheckError> {
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
    Err(missing(text, read.len()))
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
    use std::time::Duration;

    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;
    use crate::checks::HealthCheck;
    use crate::checks::tests::{PATIENT, SHORT, backend, probed};

    fn http() -> HealthCheck {
        HealthCheck::Http(HttpCheck::get("/healthz"))
    }

    async fn answered(answer: impl Into<Vec<u8>>, timeout: Duration) -> Result<(), CheckError> {
        let (address, _task) = backend(answer.into(), true).await;
        probed(&http(), address, timeout).await
    }

    #[tokio::test]
    async fn an_http_check_asks_for_its_path_at_its_host_on_a_connection_to_be_closed() {
        let ok = "HTTP/1.1 204 No Content\r\n\r\n";
        let (address, task) = backend(ok.into(), false).await;
        assert_eq!(probed(&http(), address, PATIENT).await, Ok(()));
        let asked = task.await.unwrap().to_ascii_lowercase();
        assert!(asked.starts_with("get /healthz http/1.1\r\n"), "{asked}");
        assert!(asked.contains(&format!("host: {address}\r\n")), "{asked}");
        assert!(asked.contains("connection: close\r\n"), "{asked}");
        assert!(asked.contains("equipoise-check: 1\r\n"), "{asked}");

        let (address, task) = backend(ok.into(), false).await;
        let host = Some("app.example".into());
        let statuses = [(204, 204)].into();
        let check = HealthCheck::Http(HttpCheck { host, statuses, ..HttpCheck::get("/") });
        assert_eq!(probed(&check, address, PATIENT).await, Ok(()));
        assert!(task.await.unwrap().to_ascii_lowercase().contains("host: app.example\r\n"));
    }

    #[tokio::test]
    async fn an_unaccepted_status_fails_the_check_and_is_named() {
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
    async fn a_status_in_any_accepted_range_passes() {
        let statuses: Arc<[_]> = [(200, 299), (401, 401)].into();
        let check = HttpCheck { statuses: statuses.clone(), ..HttpCheck::get("/") };
        let check = HealthCheck::Http(check);
        let failed = |got| Err(CheckError::Status { got, wanted: statuses.clone() });
        for (status, want) in [(204, Ok(())), (401, Ok(())), (400, failed(400)), (402, failed(402))]
        {
            let answer = format!("HTTP/1.1 {status} Some\r\nContent-Length: 0\r\n\r\n");
            let (address, _task) = backend(answer.into(), true).await;
            assert_eq!(probed(&check, address, PATIENT).await, want, "{status}");
        }
    }

    #[tokio::test]
    async fn the_request_has_the_checks_method_and_head_expects_no_body() {
        for (method, name, length) in [
            (CheckMethod::Get, "get", "2\r\n\r\nhi"),
            (CheckMethod::Head, "head", "2\r\n\r\n"),
            (CheckMethod::Options, "options", "0\r\n\r\n"),
            (CheckMethod::Post, "post", "0\r\n\r\n"),
        ] {
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}");
            let (address, task) = backend(answer.into(), false).await;
            let check = HealthCheck::Http(HttpCheck { method, ..HttpCheck::get("/up") });
            assert_eq!(probed(&check, address, PATIENT).await, Ok(()), "{name}");
            let asked = task.await.unwrap().to_ascii_lowercase();
            assert!(asked.starts_with(&format!("{name} /up http/1.1\r\n")), "{asked}");
        }
    }

    #[tokio::test]
    async fn the_body_has_to_contain_the_checks_text() {
        let check = |text: &str| {
            HealthCheck::Http(HttpCheck { body: Some(text.into()), ..HttpCheck::get("/") })
        };
        let missing = |wanted: &str, read| {
            let text = format!(r#"the body does not contain "{wanted}" in its first {read} bytes"#);
            Err(CheckError::Answer(text))
        };
        let plain =
            |body: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let long = |text: &str, at: usize| plain(&("x".repeat(at) + text + &"x".repeat(64 << 10)));
        let chunked =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nre\r\n3\r\nady\r\n0\r\n\r\n";
        for (answer, text, want) in [
            (plain("{\"state\": \"ready\"}"), "\"ready\"", Ok(())),
            (plain("starting"), "ready", missing("ready", 8)),
            (plain(""), "ready", missing("ready", 0)),
            (plain("starting"), "\"ready\"", missing(r#"\"ready\""#, 8)),
            (chunked.to_owned(), "ready", Ok(())),
            (long("ready", BODY_BYTES - 5), "ready", Ok(())),
            (long("ready", BODY_BYTES - 4), "ready", missing("ready", BODY_BYTES)),
        ] {
            let (address, _task) = backend(answer.clone().into(), true).await;
            let result = probed(&check(text), address, PATIENT).await;
            assert_eq!(result, want, "{text} in {:.60}", answer);
        }
        let cut = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi";
        let (address, _task) = backend(cut.into(), true).await;
        assert_eq!(probed(&check("ready"), address, PATIENT).await, Err(CheckError::Closed));
    }

    #[tokio::test]
    async fn an_answer_without_length_ends_with_its_connection() {
        assert_eq!(answered("HTTP/1.0 200 OK\r\n\r\nhello", PATIENT).await, Ok(()));
    }

    #[tokio::test]
    async fn truncated_responses_are_distinguished_from_responses_that_are_not_http() {
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
        assert_eq!(probed(&http(), address, PATIENT).await, Ok(()));
        writer.await.unwrap();
    }

    #[tokio::test]
    async fn an_incomplete_answer_fails_the_check_at_the_timeout() {
        let stalled = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi";
        for answer in ["", "HTTP/1.1 200 OK\r\n", stalled] {
            let (address, _task) = backend(answer.into(), false).await;
            let result = probed(&http(), address, SHORT).await;
            assert_eq!(result, Err(CheckError::AnswerTimeout(SHORT)), "{answer:?}");
        }
    }

    #[tokio::test]
    async fn an_invalid_path_or_host_is_reported_as_unaskable() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        for (path, host) in [("/a b", None), ("/", Some("a\nb".into()))] {
            let check = HealthCheck::Http(HttpCheck { host, ..HttpCheck::get(path) });
            let result = probed(&check, address, PATIENT).await;
            assert!(matches!(result, Err(CheckError::Unaskable(_))), "{result:?}");
        }
    }
}
