//! A client of a running equipoise's API.

mod cluster;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::wire::packet::{FlowAnswer, FlowQuestion, Pin, PinKey, Pins};
use crate::wire::plan::{NodeStatus, PlanStatus, PoolWish};
use crate::wire::slice::{
    SliceMove, SliceMoves, SlicePin, SlicePlan, SliceWorker, StreamStatus, Streams,
};
use crate::wire::{Changed, Reloaded, SetWeight, Status};
use crate::{Problem, Token};

/// Longest time for an answer. A reload that opens many front doors takes longest.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Address of an API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A unix socket.
    Unix(PathBuf),
    /// `host:port` of a TCP listener.
    Tcp(String),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Unix(path) => path.display().fmt(f),
            Endpoint::Tcp(authority) => write!(f, "http://{authority}"),
        }
    }
}

/// An endpoint and the reason for its choice, for errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Address of the API.
    pub endpoint: Endpoint,
    /// The source of the address, such as `from --api`.
    pub origin: String,
    /// Advice for the operator if no process answers there.
    pub advice: String,
}

impl From<Endpoint> for Place {
    fn from(endpoint: Endpoint) -> Place {
        let advice = "start one with `equipoise run FILE`, or name the API of another with --api SOCKET or --config FILE";
        Place { endpoint, origin: String::new(), advice: advice.into() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.endpoint.fmt(f)?;
        if self.origin.is_empty() { Ok(()) } else { write!(f, " ({})", self.origin) }
    }
}

/// The text is neither a path nor the address of an HTTP server.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is neither the path of a unix socket nor http://HOST:PORT")]
pub struct BadEndpoint(String);

impl FromStr for Endpoint {
    type Err = BadEndpoint;

    fn from_str(text: &str) -> Result<Endpoint, BadEndpoint> {
        if let Some(rest) = text.strip_prefix("http://") {
            let authority = rest.trim_end_matches('/');
            let port = authority.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
            return match port {
                Some(Ok(_)) if !authority.contains('/') => Ok(Endpoint::Tcp(authority.into())),
                _ => Err(BadEndpoint(text.into())),
            };
        }
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Endpoint::Unix(path.into()));
        }
        if text.is_empty() || text == "unix:" || text.contains("://") {
            return Err(BadEndpoint(text.into()));
        }
        let is_port = |(_, port): (&str, &str)| port.parse::<u16>().is_ok();
        if !text.contains('/') && text.rsplit_once(':').is_some_and(is_port) {
            return Ok(Endpoint::Tcp(text.into()));
        }
        Ok(Endpoint::Unix(text.into()))
    }
}

/// Reasons why there is no answer, with remedies.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nothing listens at the endpoint.
    #[error("no equipoise answers at {place}: {}", place.advice)]
    NotRunning {
        /// The endpoint that was tried.
        place: Place,
        /// Error of the connection attempt.
        #[source]
        source: io::Error,
    },
    /// The socket belongs to another user.
    #[error(
        "no permission to use {place}: run this command as the user that runs equipoise (often with sudo)"
    )]
    NoPermission {
        /// The endpoint that was tried.
        place: Place,
        /// Error of the connection attempt.
        #[source]
        source: io::Error,
    },
    /// The process accepted the connection, and sent no answer.
    #[error("equipoise at {place} did not answer within {} s: it is overloaded or stopped; see its log", TIMEOUT.as_secs())]
    NoAnswer {
        /// The endpoint that was asked.
        place: Place,
    },
    /// The API rejected the request.
    #[error("{}", .0.detail)]
    Refused(Problem),
    /// The answer is not that of an equipoise, or is that of another version.
    #[error(
        "the answer from {place} does not fit this API ({what}); check that it is equipoise, and of this version"
    )]
    NotUnderstood {
        /// The endpoint that was asked.
        place: Place,
        /// Description of the malformed part.
        what: String,
    },
}

/// A client of one process. Each request uses a new connection.
#[derive(Clone, Debug)]
pub struct Client {
    place: Place,
    token: Option<Token>,
}

impl Client {
    /// A client of the process behind an endpoint.
    pub fn new(place: impl Into<Place>) -> Client {
        Client { place: place.into(), token: None }
    }

    /// The endpoint of the process.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Sets the token to send over TCP.
    pub fn with_token(self, token: Option<Token>) -> Client {
        Client { token, ..self }
    }

    /// `GET /v1/status`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn status(&self) -> Result<Status, ClientError> {
        self.ask(Method::GET, "/v1/status", Bytes::new()).await
    }

    /// `POST /v1/reload`.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::Refused`] has every error of the file.
    pub async fn reload(&self) -> Result<Reloaded, ClientError> {
        self.ask(Method::POST, "/v1/reload", Bytes::new()).await
    }

    /// `POST .../drain`, `undrain`, `enable` or `disable`; `action` is this last part.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn change(
        &self,
        pool: &str,
        backend: &str,
        action: &str,
    ) -> Result<Changed, ClientError> {
        self.ask(Method::POST, &backend_path(pool, backend, action), Bytes::new()).await
    }

    /// `POST /v1/nodes/NODE/drain` or `undrain`; `action` is this last part.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn change_node(&self, node: &str, action: &str) -> Result<NodeStatus, ClientError> {
        let path = format!("/v1/nodes/{}/{action}", encoded(node));
        self.ask(Method::POST, &path, Bytes::new()).await
    }

    /// `PUT .../weight`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn set_weight(
        &self,
        pool: &str,
        backend: &str,
        weight: u16,
    ) -> Result<Changed, ClientError> {
        let body = to_json(&SetWeight { weight });
        self.ask(Method::PUT, &backend_path(pool, backend, "weight"), body).await
    }

    /// `GET /v1/flow`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn explain_flow(&self, question: &FlowQuestion) -> Result<FlowAnswer, ClientError> {
        let FlowQuestion { source, vip, mac } = question;
        let mut path = format!("/v1/flow?source={}&vip={}", encoded(source), encoded(vip));
        if let Some(mac) = mac {
            path.push_str(&format!("&mac={}", encoded(mac)));
        }
        self.ask(Method::GET, &path, Bytes::new()).await
    }

    /// `GET /v1/pins`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn pins(&self) -> Result<Pins, ClientError> {
        self.ask(Method::GET, "/v1/pins", Bytes::new()).await
    }

    /// `POST /v1/pins`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn add_pin(&self, pin: &Pin) -> Result<Pin, ClientError> {
        self.ask(Method::POST, "/v1/pins", to_json(pin)).await
    }

    /// `PUT /v1/pins`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn move_pin(&self, pin: &Pin) -> Result<Pin, ClientError> {
        self.ask(Method::PUT, "/v1/pins", to_json(pin)).await
    }

    /// `DELETE /v1/pins`. Returns the remaining pins.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn remove_pin(&self, key: &PinKey) -> Result<Pins, ClientError> {
        let path = format!("/v1/pins?vip={}&flow={}", encoded(&key.vip), encoded(&key.flow));
        self.ask(Method::DELETE, &path, Bytes::new()).await
    }

    /// `GET /v1/plan`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn plan(&self, next: bool) -> Result<PlanStatus, ClientError> {
        self.ask(Method::GET, &format!("/v1/plan?next={next}"), Bytes::new()).await
    }

    /// `PUT /v1/plan/pools/POOL`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn wish(&self, pool: &str, wish: &PoolWish) -> Result<PlanStatus, ClientError> {
        let path = format!("/v1/plan/pools/{}", encoded(pool));
        self.ask(Method::PUT, &path, to_json(wish)).await
    }

    /// `GET /v1/slices`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn streams(&self) -> Result<Streams, ClientError> {
        self.ask(Method::GET, "/v1/slices", Bytes::new()).await
    }

    /// `GET /v1/slices/STREAM/plan`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn slice_plan(&self, stream: &str) -> Result<SlicePlan, ClientError> {
        let path = format!("/v1/slices/{}/plan", encoded(stream));
        self.ask(Method::GET, &path, Bytes::new()).await
    }

    /// `POST /v1/slices/STREAM/moves`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn move_slices(
        &self,
        stream: &str,
        wish: &SliceMove,
    ) -> Result<SliceMoves, ClientError> {
        let path = format!("/v1/slices/{}/moves", encoded(stream));
        self.ask(Method::POST, &path, to_json(wish)).await
    }

    /// `POST /v1/slices/STREAM/workers/WORKER/drain` or `undrain`; `action` is this last part.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn change_worker(
        &self,
        stream: &str,
        worker: &str,
        action: &str,
    ) -> Result<SliceWorker, ClientError> {
        let path = format!("/v1/slices/{}/workers/{}/{action}", encoded(stream), encoded(worker));
        self.ask(Method::POST, &path, Bytes::new()).await
    }

    /// `PUT /v1/slices/STREAM/pins/SLICE`, or `DELETE` without a worker.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn pin_slice(
        &self,
        stream: &str,
        slice: u32,
        worker: Option<&str>,
    ) -> Result<StreamStatus, ClientError> {
        let path = format!("/v1/slices/{}/pins/{slice}", encoded(stream));
        match worker {
            Some(worker) => {
                let pin = SlicePin { worker: worker.to_owned() };
                self.ask(Method::PUT, &path, to_json(&pin)).await
            }
            None => self.ask(Method::DELETE, &path, Bytes::new()).await,
        }
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T, ClientError> {
        let exchange = async {
            match &self.place.endpoint {
                Endpoint::Unix(socket) => {
                    let stream =
                        UnixStream::connect(socket).await.map_err(|e| self.no_connection(e))?;
                    self.exchange(stream, "localhost", method, path, body).await
                }
                Endpoint::Tcp(authority) => {
                    let stream =
                        TcpStream::connect(authority).await.map_err(|e| self.no_connection(e))?;
                    self.exchange(stream, authority, method, path, body).await
                }
            }
        };
        tokio::time::timeout(TIMEOUT, exchange)
            .await
            .map_err(|_| ClientError::NoAnswer { place: self.place.clone() })?
    }

    async fn exchange<T: DeserializeOwned>(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        host: &str,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T, ClientError> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, host)
            .header(header::CONTENT_TYPE, "application/json");
        if let (Some(token), Endpoint::Tcp(_)) = (&self.token, &self.place.endpoint) {
            let mut value = HeaderValue::from_maybe_shared(format!("Bearer {}", token.reveal()))
                .map_err(|error| self.not_understood(error))?;
            value.set_sensitive(true);
            request = request.header(header::AUTHORIZATION, value);
        }
        let request = request.body(Full::new(body)).map_err(|error| self.not_understood(error))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.not_understood(error))?;
        let answer = async {
            let response = sender.send_request(request).await?;
            let (head, body) = response.into_parts();
            Ok::<_, hyper::Error>((head, body.collect().await?.to_bytes()))
        };
        tokio::pin!(answer);
        tokio::pin!(connection);
        // The connection makes progress only while it is polled; the answer reports its error.
        let (head, body) = tokio::select! {
            answer = &mut answer => answer,
            _ = &mut connection => answer.await,
        }
        .map_err(|error| self.not_understood(error))?;
        if head.status.is_success() {
            return serde_json::from_slice(&body).map_err(|error| self.not_understood(error));
        }
        match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) => Err(ClientError::Refused(problem)),
            Err(_) => Err(self.not_understood(format!("status {}", head.status))),
        }
    }

    fn no_connection(&self, source: io::Error) -> ClientError {
        let place = self.place.clone();
        match source.kind() {
            io::ErrorKind::PermissionDenied => ClientError::NoPermission { place, source },
            _ => ClientError::NotRunning { place, source },
        }
    }

    fn not_understood(&self, what: impl fmt::Display) -> ClientError {
        ClientError::NotUnderstood { place: self.place.clone(), what: what.to_string() }
    }
}

fn to_json(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).expect("wire types have string keys and no failing serializer").into()
}

fn backend_path(pool: &str, backend: &str, action: &str) -> String {
    format!("/v1/pools/{}/backends/{}/{action}", encoded(pool), encoded(backend))
}

/// Percent-encodes one path segment: all characters except RFC 3986's unreserved ones.
fn encoded(segment: &str) -> String {
    segment
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_path_or_an_http_address() {
        assert_eq!("/run/x.sock".parse(), Ok(Endpoint::Unix("/run/x.sock".into())));
        assert_eq!("unix:/run/x.sock".parse(), Ok(Endpoint::Unix("/run/x.sock".into())));
        assert_eq!("unix:x:1234".parse(), Ok(Endpoint::Unix("x:1234".into())));
        assert_eq!("http://127.0.0.1:9000/".parse(), Ok(Endpoint::Tcp("127.0.0.1:9000".into())));
        assert_eq!("127.0.0.1:9000".parse(), Ok(Endpoint::Tcp("127.0.0.1:9000".into())));
        assert_eq!("[::1]:9000".parse(), Ok(Endpoint::Tcp("[::1]:9000".into())));
        assert_eq!("./x:9000".parse(), Ok(Endpoint::Unix("./x:9000".into())));
        for bad in
            ["", "https://127.0.0.1:1", "http://127.0.0.1", "http://h:1/path", "http://h:99999"]
        {
            assert!(bad.parse::<Endpoint>().is_err(), "{bad}");
        }
    }

    #[test]
    fn names_of_any_characters_fit_in_one_segment() {
        assert_eq!(
            backend_path("web", "[::1]:80/x y", "drain"),
            "/v1/pools/web/backends/%5B%3A%3A1%5D%3A80%2Fx%20y/drain"
        );
    }

    #[tokio::test]
    async fn a_missing_process_is_named_with_what_to_do() {
        let client = Client::new(Endpoint::Unix("/nonexistent/equipoise.sock".into()));
        let error = client.status().await.unwrap_err();
        assert!(matches!(error, ClientError::NotRunning { .. }));
        let text = error.to_string();
        assert!(
            text.contains("/nonexistent/equipoise.sock") && text.contains("equipoise run FILE"),
            "{text}"
        );
    }
}
