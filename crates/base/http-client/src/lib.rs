//! HTTP/1.1 requests of the control side to other services: directories, webhooks, sources of
//! backends, collectors.
//!
//! **In**: a request with an absolute URL, the longest time, the largest answer, and for https the
//! authorities that are trusted. **Out**: the answer, whatever its status. A redirect is an answer
//! like any other, and proxies of the environment are not used. Each request has a connection of
//! its own, because requests are rare; it is closed when the answer is dropped. **Fails** with
//! [`HttpError`].

mod answer;
mod authorities;
mod error;

use std::io;
use std::time::Duration;

use hyper::body::{Body, Bytes};
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST, HeaderValue, USER_AGENT};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

pub use answer::HttpAnswer;
pub use authorities::{Authorities, AuthoritiesError};
pub use error::HttpError;

use answer::Connection;

/// Longest time to open a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Time after which an idle connection is probed, so that a long answer notices a peer that is
/// gone.
const PROBE_AFTER: Duration = Duration::from_secs(10);

/// Sends a request, and reads the whole answer: at most `bytes_max` bytes, within this time.
///
/// # Errors
/// [`HttpError`]; whatever has begun is closed.
pub async fn whole<B>(
    request: Request<B>,
    authorities: Option<&Authorities>,
    within: Duration,
    bytes_max: u64,
) -> Result<Response<Bytes>, HttpError>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let host = host_of(request.uri());
    let answer = async { send(request, authorities).await?.whole(bytes_max).await };
    timeout(within, answer).await.unwrap_or(Err(HttpError::Late { host, within }))
}

/// Sends a request, and waits for the head of the answer within this time.
///
/// # Errors
/// [`HttpError`].
pub async fn head<B>(
    request: Request<B>,
    authorities: Option<&Authorities>,
    within: Duration,
) -> Result<HttpAnswer, HttpError>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let host = host_of(request.uri());
    let answer = timeout(within, send(request, authorities)).await;
    answer.unwrap_or(Err(HttpError::Late { host, within }))
}

/// Host and port of a URL, as stated.
fn host_of(uri: &Uri) -> String {
    uri.authority().map(ToString::to_string).unwrap_or_default()
}

async fn send<B>(
    request: Request<B>,
    authorities: Option<&Authorities>,
) -> Result<HttpAnswer, HttpError>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let uri = request.uri().clone();
    let (authorities, port) = match (uri.scheme_str(), authorities) {
        (Some("http"), _) => (None, 80),
        (Some("https"), Some(authorities)) => (Some(authorities), 443),
        (Some("https"), None) => return Err(HttpError::NoAuthorities(uri)),
        _ => return Err(HttpError::Url(uri)),
    };
    let host = host_of(&uri);
    // IPv6 addresses have brackets in a URL, and none in names.
    let name = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let request = relative(request, &host);
    let connect = |source| HttpError::Connect { host: host.clone(), source };
    let stream = open(name, uri.port_u16().unwrap_or(port)).await.map_err(connect)?;
    match authorities {
        None => exchange(stream, request, host).await,
        Some(authorities) => {
            let stream = authorities.encrypt(name, stream).await.map_err(connect)?;
            exchange(stream, request, host).await
        }
    }
}

async fn open(name: &str, port: u16) -> io::Result<TcpStream> {
    let opened = timeout(CONNECT_WITHIN, TcpStream::connect((name, port))).await;
    let stream = opened.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    let probes = socket2::TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_AFTER);
    socket2::SockRef::from(&stream).set_tcp_keepalive(&probes)?;
    Ok(stream)
}

/// The request as it is sent: its target is the path, and the host is a field.
fn relative<B>(mut request: Request<B>, host: &str) -> Request<B> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse().unwrap_or_default();
    let headers = request.headers_mut();
    headers.extend(HeaderValue::from_str(host).map(|value| (HOST, value)));
    headers.entry(USER_AGENT).or_insert(HeaderValue::from_static("equipoise"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    request
}

async fn exchange<B>(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<B>,
    host: String,
) -> Result<HttpAnswer, HttpError>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let failed = |source| HttpError::Exchange { host: host.clone(), source };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    // An error of the connection is an error of the answer, too.
    let task = tokio::spawn(async move { drop(connection.await) });
    let connection = Connection(task.abort_handle());
    let response = sender.send_request(request).await.map_err(failed)?;
    Ok(HttpAnswer::new(response, host, connection))
}
