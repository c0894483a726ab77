//! The collector: a POST for each batch, over a connection of its own.

use std::fmt;
use std::io;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longest time of a request.
const WITHIN: Duration = Duration::from_secs(10);
/// Largest response that is read.
const RESPONSE_BYTES_MAX: usize = 64 << 10;

/// Where spans are sent.
pub(crate) struct Collector {
    /// With the path of traces.
    url: Uri,
    host: HeaderValue,
}

/// The reason why spans were not exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The URL of the collector.
    #[error("{0} is not a URL that begins with http://")]
    Url(String),
    /// No connection was made.
    #[error("it cannot be reached")]
    Connect(#[source] io::Error),
    /// No response came in time.
    #[error("it did not answer within {0:?}")]
    Late(Duration),
    /// The response is not HTTP, or did not come.
    #[error("it did not answer in HTTP")]
    Exchange(#[source] hyper::Error),
    /// It refused the spans.
    #[error("it answered {0}")]
    Status(StatusCode),
}

impl ExportError {
    /// Whether the same spans may be accepted later. A collector that does not answer in time may
    /// have accepted them.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            ExportError::Connect(_) => true,
            ExportError::Status(status) => matches!(status.as_u16(), 429 | 502 | 503 | 504),
            ExportError::Url(_) | ExportError::Late(_) | ExportError::Exchange(_) => false,
        }
    }
}

impl Collector {
    pub(crate) fn new(url: &str) -> Result<Collector, ExportError> {
        let invalid = || ExportError::Url(url.to_owned());
        let whole: Uri =
            format!("{}/v1/traces", url.trim_end_matches('/')).parse().map_err(|_| invalid())?;
        let host = whole.authority().and_then(|it| HeaderValue::from_str(it.as_str()).ok());
        match (whole.scheme_str(), host) {
            (Some("http"), Some(host)) => Ok(Collector { url: whole, host }),
            _ => Err(invalid()),
        }
    }

    /// Sends a body; returns the number of spans that the collector has rejected.
    pub(crate) async fn send(&self, body: Vec<u8>) -> Result<u64, ExportError> {
        timeout(WITHIN, self.exchange(body)).await.unwrap_or(Err(ExportError::Late(WITHIN)))
    }

    async fn exchange(&self, body: Vec<u8>) -> Result<u64, ExportError> {
        let name = self.url.host().unwrap_or_default();
        // IPv6 addresses have brackets in a URL, and none in names.
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        let port = self.url.port_u16().unwrap_or(80);
        let stream = TcpStream::connect((bare, port)).await.map_err(ExportError::Connect)?;
        let opened = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = opened.map_err(ExportError::Exchange)?;
        let answer = async {
            let request = self.request(body);
            let response = sender.send_request(request).await.map_err(ExportError::Exchange)?;
            match response.status() {
                StatusCode::OK => Ok(response.into_body()),
                status => Err(ExportError::Status(status)),
            }
        };
        let read = async {
            let body = Limited::new(answer.await?, RESPONSE_BYTES_MAX).collect().await;
            // The spans are accepted, whatever follows the status.
            Ok(body.map_or(0, |body| rejected(&body.to_bytes())))
        };
        // The connection is driven here, so that it ends with this call.
        let mut read = std::pin::pin!(read);
        tokio::select! {
            read = &mut read => read,
            // It ends before its response is read.
            _ = connection => read.await,
        }
    }

    fn request(&self, body: Vec<u8>) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body.into()));
        *request.method_mut() = hyper::Method::POST;
        let path = self.url.path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() = path.parse().unwrap_or_default();
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static("equipoise"));
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        request
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

/// Spans that the response of a collector rejects. It writes numbers of 64 bits as text or not.
fn rejected(response: &[u8]) -> u64 {
    let response: Value = serde_json::from_slice(response).unwrap_or_default();
    let count = &response["partialSuccess"]["rejectedSpans"];
    count.as_u64().or_else(|| count.as_str()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_traces_follows_the_url() {
        let shown = |url: &str| Collector::new(url).map(|collector| collector.to_string());
        let at = "http://127.0.0.1:4318/v1/traces";
        assert_eq!(shown("http://127.0.0.1:4318").unwrap(), at);
        assert_eq!(shown("http://127.0.0.1:4318/").unwrap(), at);
        assert_eq!(shown("http://[::1]/otlp").unwrap(), "http://[::1]/otlp/v1/traces");
        for url in ["https://a:4318", "a:4318", "http://", ""] {
            assert!(shown(url).is_err(), "{url}");
        }
    }

    #[test]
    fn rejected_spans_are_read_in_either_form() {
        for (response, expected) in [
            (r#"{"partialSuccess":{"rejectedSpans":"3"}}"#, 3),
            (r#"{"partialSuccess":{"rejectedSpans":4}}"#, 4),
            (r#"{"partialSuccess":{}}"#, 0),
            ("{}", 0),
            ("", 0),
        ] {
            assert_eq!(rejected(response.as_bytes()), expected, "{response}");
        }
    }
}
