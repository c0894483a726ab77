//! HTTP/1.1 with a bearer token and TLS, one connection for each request.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use equipoise_basics::files;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, HOST, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::background::Background;
use crate::options::Access;

/// Largest files of a token and of certificates, in bytes.
const TOKEN_BYTES_MAX: u64 = 64 << 10;
const CA_BYTES_MAX: u64 = 4 << 20;
/// Longest time to open a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Time after which an idle connection is probed, so that a watch notices a peer that is gone.
const PROBE_AFTER: Duration = Duration::from_secs(10);

/// A client of one server.
pub(crate) struct Client {
    access: Access,
    /// The header that has the token, and what stands before it.
    token: (HeaderName, &'static str),
    files: Background<Result<Files, HttpError>>,
}

struct Files {
    token: Option<String>,
    /// The authorities, if they are needed.
    tls: Option<TlsConnector>,
}

/// The reason why a request has no usable answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    #[error("{path} cannot be read")]
    File { path: String, source: io::Error },
    #[error("{0} has no certificate that can be used; accepted: PEM")]
    Authorities(String),
    #[error("{0} is not a URL")]
    Url(String),
    #[error("{host} cannot be reached")]
    Connect { host: String, source: io::Error },
    #[error("{host} did not answer within {within:?}")]
    Late { host: String, within: Duration },
    #[error("{host} did not answer in HTTP")]
    Exchange { host: String, source: hyper::Error },
    #[error("{host} answered {status}")]
    Status { host: String, status: StatusCode },
    #[error("{host} sent more than {max} bytes")]
    Large { host: String, max: u64 },
}

/// A response. Dropping it closes the connection.
pub(crate) struct Answer {
    response: Response<Incoming>,
    host: String,
    /// Bytes that were read and not taken.
    read: Vec<u8>,
    _connection: Connection,
}

impl Client {
    pub(crate) fn new(access: Access, token: (HeaderName, &'static str)) -> Client {
        Client { access, token, files: Background::new() }
    }

    /// The URL of the server.
    pub(crate) fn url(&self) -> &str {
        &self.access.url
    }

    /// Sends a GET, and waits for the head of the response at most `within`. Files are read each
    /// time, because tokens and certificates change.
    ///
    /// # Errors
    /// [`HttpError`]; for instance a status other than 200.
    pub(crate) async fn get(&mut self, url: &str, within: Duration) -> Result<Answer, HttpError> {
        let uri: Uri = url.parse().map_err(|_| HttpError::Url(url.into()))?;
        let host = uri.authority().map(ToString::to_string).unwrap_or_default();
        let late = HttpError::Late { host: host.clone(), within };
        let sent = tokio::time::timeout(within, self.send(&uri, &host)).await;
        let answer = sent.unwrap_or(Err(late))?;
        match answer.response.status() {
            StatusCode::OK => Ok(answer),
            status => Err(HttpError::Status { host, status }),
        }
    }

    async fn send(&mut self, uri: &Uri, host: &str) -> Result<Answer, HttpError> {
        let is_secure = uri.scheme_str() == Some("https");
        let (token_file, ca) = (self.access.token_file.clone(), self.access.ca.clone());
        let read = move || read_files(token_file.as_deref(), ca.as_deref(), is_secure);
        let failed = |source| HttpError::File { path: "a file".into(), source };
        let files = self.files.run(read).await.map_err(failed)??;
        let name = uri.host().unwrap_or_default();
        // IPv6 addresses have brackets in a URL, and none in names.
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        let connect = |source| HttpError::Connect { host: host.into(), source };
        let opened = tokio::time::timeout(CONNECT_WITHIN, TcpStream::connect((bare, port))).await;
        let stream = opened.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let stream = stream.map_err(connect)?;
        let probes = socket2::TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_AFTER);
        socket2::SockRef::from(&stream).set_tcp_keepalive(&probes).map_err(connect)?;
        let request = self.request(uri, host, files.token.as_deref());
        match files.tls {
            Some(tls) => {
                let server = ServerName::try_from(bare.to_string()).map_err(io::Error::other);
                let stream = tls.connect(server.map_err(connect)?, stream).await;
                exchange(stream.map_err(connect)?, request, host).await
            }
            None => exchange(stream, request, host).await,
        }
    }

    fn request(&self, uri: &Uri, host: &str, token: Option<&str>) -> Request<Empty<Bytes>> {
        let mut request = Request::new(Empty::new());
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() = path.parse().unwrap_or_default();
        let headers = request.headers_mut();
        headers.extend(HeaderValue::from_str(host).map(|value| (HOST, value)));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static("equipoise"));
        let (name, scheme) = &self.token;
        let value = token.and_then(|it| HeaderValue::from_str(&format!("{scheme}{it}")).ok());
        headers.extend(value.map(|mut value| {
            value.set_sensitive(true);
            (name.clone(), value)
        }));
        request
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<Empty<Bytes>>,
    host: &str,
) -> Result<Answer, HttpError> {
    let failed = |source| HttpError::Exchange { host: host.into(), source };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    // An error of the connection is an error of the response, too.
    let task = tokio::spawn(async move { drop(connection.await) });
    let connection = Connection(task.abort_handle());
    let response = sender.send_request(request).await.map_err(failed)?;
    Ok(Answer { response, host: host.into(), read: Vec::new(), _connection: connection })
}

/// The task of a connection, which ends with it.
struct Connection(AbortHandle);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Answer {
    /// A header of the response, as text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// The rest of the body, of at most `max` bytes, within a time.
    ///
    /// # Errors
    /// [`HttpError::Large`], [`HttpError::Late`], [`HttpError::Exchange`].
    pub(crate) async fn body(mut self, max: u64, within: Duration) -> Result<Vec<u8>, HttpError> {
        let late = HttpError::Late { host: self.host.clone(), within };
        let read = async {
            while self.more(max).await? {}
            Ok(std::mem::take(&mut self.read))
        };
        tokio::time::timeout(within, read).await.unwrap_or(Err(late))
    }

    /// The next line of the body, of at most `max` bytes; `None` at its end. May be cancelled.
    ///
    /// # Errors
    /// [`HttpError::Large`], [`HttpError::Exchange`].
    pub(crate) async fn line(&mut self, max: u64) -> Result<Option<Vec<u8>>, HttpError> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let rest = self.read.split_off(end + 1);
                return Ok(Some(std::mem::replace(&mut self.read, rest)));
            }
            if !self.more(max).await? {
                return Ok(None);
            }
        }
    }

    /// Reads more of the body; `false` at its end.
    async fn more(&mut self, max: u64) -> Result<bool, HttpError> {
        let Some(frame) = self.response.body_mut().frame().await else { return Ok(false) };
        let failed = |source| HttpError::Exchange { host: self.host.clone(), source };
        if let Ok(data) = frame.map_err(failed)?.into_data() {
            if (self.read.len() + data.len()) as u64 > max {
                return Err(HttpError::Large { host: self.host.clone(), max });
            }
            self.read.extend_from_slice(&data);
        }
        Ok(true)
    }
}

fn read_files(
    token: Option<&Path>,
    ca: Option<&Path>,
    is_secure: bool,
) -> Result<Files, HttpError> {
    let unreadable =
        |path: &Path, source| HttpError::File { path: path.display().to_string(), source };
    let token = match token {
        Some(path) => {
            let text =
                files::read_text(path, TOKEN_BYTES_MAX).map_err(|error| unreadable(path, error))?;
            Some(text.trim().to_string())
        }
        None => None,
    };
    if !is_secure {
        return Ok(Files { token, tls: None });
    }
    let trusted: Vec<CertificateDer<'static>> = match ca {
        Some(path) => {
            let pem = files::read(path, CA_BYTES_MAX).map_err(|error| unreadable(path, error))?;
            CertificateDer::pem_slice_iter(&pem).flatten().collect()
        }
        None => rustls_native_certs::load_native_certs().certs,
    };
    let mut roots = RootCertStore::empty();
    // The system may have certificates of kinds that rustls does not know.
    let (known, _) = roots.add_parsable_certificates(trusted);
    if known == 0 {
        let from = ca.map_or_else(|| "the system".to_string(), |it| it.display().to_string());
        return Err(HttpError::Authorities(from));
    }
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    Ok(Files { token, tls: Some(TlsConnector::from(Arc::new(config))) })
}
