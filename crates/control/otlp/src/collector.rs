//! The collector: a POST for each batch.

use std::fmt;
use std::time::Duration;

use equipoise_http_client::{Authorities, AuthoritiesError, HttpError, head};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, StatusCode, Uri};
use serde_json::Value;

/// Longest time until the head of a response, and then until its end.
const WITHIN: Duration = Duration::from_secs(10);
/// Largest response that is read.
const RESPONSE_BYTES_MAX: u64 = 64 << 10;

/// Where spans are sent.
pub(crate) struct Collector {
    /// With the path of traces.
    url: Uri,
    /// `None`: the URL is of http.
    authorities: Option<Authorities>,
}

/// The reason why spans were not exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The URL of the collector.
    #[error("{0} is not a URL that begins with http:// or https://")]
    Url(String),
    /// No certificate of the collector could be verified.
    #[error(transparent)]
    Authorities(#[from] AuthoritiesError),
    /// There is no response.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// It refused the spans.
    #[error("it answered {0}")]
    Status(StatusCode),
}

impl ExportError {
    /// Whether the same spans may be accepted later. A collector that does not answer in time may
    /// have accepted them.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            ExportError::Http(HttpError::Connect { .. }) => true,
            ExportError::Status(status) => matches!(status.as_u16(), 429 | 502 | 503 | 504),
            ExportError::Url(_) | ExportError::Authorities(_) | ExportError::Http(_) => false,
        }
    }
}

impl Collector {
    /// The collector at this URL. With https, its certificate is of an authority in `ca` (PEM), or
    /// of one that the system trusts.
    pub(crate) fn new(url: &str, ca: Option<&str>) -> Result<Collector, ExportError> {
        let invalid = || ExportError::Url(url.to_owned());
        let whole: Uri =
            format!("{}/v1/traces", url.trim_end_matches('/')).parse().map_err(|_| invalid())?;
        let authorities = match (whole.scheme_str(), ca) {
            (Some("http"), _) => None,
            (Some("https"), Some(ca)) => Some(Authorities::from_pem(ca.as_bytes(), "`ca`")?),
            (Some("https"), None) => Some(Authorities::of_system()?),
            _ => return Err(invalid()),
        };
        Ok(Collector { url: whole, authorities })
    }

    /// Sends a body; returns the number of spans that the collector has rejected.
    pub(crate) async fn send(&self, body: Vec<u8>) -> Result<u64, ExportError> {
        let response = head(self.request(body), self.authorities.as_ref(), WITHIN).await?;
        match response.status() {
            StatusCode::OK => {}
            status => return Err(ExportError::Status(status)),
        }
        // The spans are accepted, whatever follows the status.
        let body = response.body(RESPONSE_BYTES_MAX, WITHIN).await;
        Ok(body.map_or(0, |body| rejected(&body)))
    }

    fn request(&self, body: Vec<u8>) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body.into()));
        *request.method_mut() = hyper::Method::POST;
        *request.uri_mut() = self.url.clone();
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
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
        let shown = |url: &str| Collector::new(url, None).map(|collector| collector.to_string());
        let at = "http://127.0.0.1:4318/v1/traces";
        assert_eq!(shown("http://127.0.0.1:4318").unwrap(), at);
        assert_eq!(shown("http://127.0.0.1:4318/").unwrap(), at);
        assert_eq!(shown("http://[::1]/otlp").unwrap(), "http://[::1]/otlp/v1/traces");
        for url in ["ftp://a:4318", "a:4318", "http://", ""] {
            assert!(shown(url).is_err(), "{url}");
        }
        let wrong = Collector::new("https://a:4318", Some("not PEM")).err().unwrap().to_string();
        assert_eq!(wrong, "`ca` has no certificate that can be used; accepted: PEM");
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
