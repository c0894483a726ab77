//! HTTPS to the directory, within a time and a size.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use equipoise_basics::{lock, with_causes};
use equipoise_http_client::{Authorities, HttpError, whole};
use equipoise_tls::{Fault, FaultKind};
use hyper::body::Bytes;
use hyper::header::{HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};

/// Longest time for a request and its answer.
const WITHIN: Duration = Duration::from_secs(30);

/// Largest accepted answer, in bytes.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

const AGENT: &str = concat!("equipoise/", env!("CARGO_PKG_VERSION"));

/// A client of one directory.
#[derive(Clone)]
pub(crate) struct Client {
    authorities: Authorities,
    /// The directory asked for no request before this time.
    not_before: Arc<Mutex<Option<SystemTime>>>,
}

/// The reason why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error("\"{0}\" is not a URL of https")]
    Url(Uri),
    #[error("{url}: {}{}", with_causes(.failure), advice(.failure))]
    Exchange { url: Uri, failure: HttpError },
}

/// The option to set if no known authority issued the directory's certificate.
fn advice(failure: &HttpError) -> &'static str {
    let HttpError::Connect { source, .. } = failure else { return "" };
    let is_unknown = Fault::within(source).is_some_and(|it| matches!(it.kind, FaultKind::Issuer));
    if is_unknown { "; an authority of your own belongs into `ca` of [acme]" } else { "" }
}

impl Client {
    /// With the authorities in `ca`, or those of the system. Reads files of the system.
    ///
    /// # Errors
    /// There are no authorities.
    pub(crate) fn new(ca: Option<&str>) -> Result<Client, String> {
        let authorities = match ca {
            Some(pem) => Authorities::from_pem(pem.as_bytes(), "`ca`")
                .map_err(|_| "`ca` has no certificates; accepted: a file of PEM"),
            None => Authorities::of_system().map_err(|_| {
                "this system trusts no authorities; install the package ca-certificates, or set `ca` in [acme]"
            }),
        };
        Ok(Client { authorities: authorities?, not_before: Arc::default() })
    }

    /// The time before which the directory asked for no request, since the last call.
    pub(crate) fn take_not_before(&self) -> Option<SystemTime> {
        lock(&self.not_before).take()
    }

    async fn ask(
        self,
        mut request: Request<BodyWrapper<Bytes>>,
    ) -> Result<BytesResponse, ClientError> {
        let url = request.uri().clone();
        if url.scheme_str() != Some("https") {
            return Err(ClientError::Url(url));
        }
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(AGENT));
        let answer = whole(request, Some(&self.authorities), WITHIN, ANSWER_BYTES_MAX).await;
        let answer = answer.map_err(|failure| ClientError::Exchange { url, failure })?;
        let (parts, body) = answer.into_parts();
        let is_refusal =
            matches!(parts.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        let stated = parts.headers.get(RETRY_AFTER).filter(|_| is_refusal);
        let seconds = stated.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        if let Some(seconds) = seconds {
            let until = SystemTime::now().checked_add(Duration::from_secs(seconds));
            *lock(&self.not_before) = until;
        }
        Ok(BytesResponse { parts, body: Box::new(body) })
    }
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let client = self.clone();
        Box::pin(async move { client.ask(request).await.map_err(|it| Error::Other(Box::new(it))) })
    }
}
