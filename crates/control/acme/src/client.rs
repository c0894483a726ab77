//! HTTPS to the directory, within a time and a size.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use equipoise_basics::lock;
use equipoise_tls::{Fault, FaultKind};
use http_body_util::{BodyExt, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Longest time for a request and its answer.
const WITHIN: Duration = Duration::from_secs(30);

/// Largest accepted answer, in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;

const AGENT: &str = concat!("equipoise/", env!("CARGO_PKG_VERSION"));

/// A client of one directory. Each request has a connection of its own, because requests are rare.
#[derive(Clone)]
pub(crate) struct Client {
    tls: TlsConnector,
    /// The directory asked for no request before this time.
    not_before: Arc<Mutex<Option<SystemTime>>>,
}

/// The reason why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error("\"{0}\" is not a URL of https")]
    Url(Uri),
    #[error("{url} cannot be reached: {source}{}", advice(.source))]
    Connect { url: String, source: io::Error },
    #[error("{url} did not answer: {source}")]
    Exchange { url: String, source: hyper::Error },
    #[error("{url} sent an answer that is cut or larger than {ANSWER_BYTES_MAX} bytes")]
    Answer { url: String },
    #[error("{url} did not answer within {WITHIN:?}")]
    TimedOut { url: String },
}

/// The option to set if no known authority issued the directory's certificate.
fn advice(error: &io::Error) -> &'static str {
    let is_unknown = Fault::within(error).is_some_and(|it| matches!(it.kind, FaultKind::Issuer));
    if is_unknown { "; an authority of your own belongs into `ca` of [acme]" } else { "" }
}

impl Client {
    /// With the authorities in `ca`, or those of the system. Reads files of the system.
    ///
    /// # Errors
    /// There are no authorities.
    pub(crate) fn new(ca: Option<&str>) -> Result<Client, String> {
        let mut roots = RootCertStore::empty();
        let trusted: Vec<CertificateDer<'static>> = match ca {
            Some(pem) => CertificateDer::pem_slice_iter(pem.as_bytes()).flatten().collect(),
            None => rustls_native_certs::load_native_certs().certs,
        };
        // The system may have certificates of kinds that rustls does not know.
        let (known, _) = roots.add_parsable_certificates(trusted);
        if known == 0 {
            let text = match ca {
                Some(_) => "`ca` has no certificates; accepted: a file of PEM",
                None => {
                    "this system trusts no authorities; install the package ca-certificates, or set `ca` in [acme]"
                }
            };
            return Err(text.into());
        }
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        Ok(Client { tls: TlsConnector::from(Arc::new(config)), not_before: Arc::default() })
    }

    /// The time before which the directory asked for no request, since the last call.
    pub(crate) fn take_not_before(&self) -> Option<SystemTime> {
        lock(&self.not_before).take()
    }

    async fn ask(self, request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, ClientError> {
        let uri = request.uri().clone();
        let (Some("https"), Some(host)) = (uri.scheme_str(), uri.host()) else {
            return Err(ClientError::Url(uri));
        };
        let host = host.to_string();
        let asked = tokio::time::timeout(WITHIN, self.exchange(&host, &uri, request));
        let response =
            asked.await.unwrap_or_else(|_| Err(ClientError::TimedOut { url: uri.to_string() }))?;
        let is_refusal = matches!(
            response.parts.status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        );
        let stated = response.parts.headers.get(RETRY_AFTER).filter(|_| is_refusal);
        let seconds = stated.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        if let Some(seconds) = seconds {
            let until = SystemTime::now().checked_add(Duration::from_secs(seconds));
            *lock(&self.not_before) = until;
        }
        Ok(response)
    }

    async fn exchange(
        &self,
        host: &str,
        uri: &Uri,
        mut request: Request<BodyWrapper<Bytes>>,
    ) -> Result<BytesResponse, ClientError> {
        let connect = |source| ClientError::Connect { url: uri.to_string(), source };
        let exchange = |source| ClientError::Exchange { url: uri.to_string(), source };
        // IPv6 addresses have brackets in a URL, and none in names.
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let port = uri.port_u16().unwrap_or(443);
        let stream = TcpStream::connect((bare, port)).await.map_err(connect)?;
        let name = ServerName::try_from(bare.to_string()).map_err(io::Error::other);
        let stream = self.tls.connect(name.map_err(connect)?, stream).await.map_err(connect)?;
        let authority = uri.authority().map(|it| it.as_str()).unwrap_or_default();
        let headers = request.headers_mut();
        headers.extend(HeaderValue::from_str(authority).map(|value| (HOST, value)));
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() = path.parse().unwrap_or_default();
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(exchange)?;
        let answer = async {
            let response = sender.send_request(request).await.map_err(exchange)?;
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|_| ClientError::Answer { url: uri.to_string() })?.to_bytes();
            Ok(BytesResponse { parts, body: Box::new(body) })
        };
        // The connection is driven in this future, so that dropping the request also closes it.
        let mut answer = std::pin::pin!(answer);
        tokio::select! {
            answer = &mut answer => answer,
            driven = connection => match driven {
                Ok(()) => answer.await,
                Err(error) => Err(exchange(error)),
            },
        }
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
