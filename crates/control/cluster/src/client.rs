//! A connection to a controller, and the requests over it.

use std::sync::Arc;
use std::time::Duration;

use equipoise_basics::with_causes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use rustls::{CertificateError, ClientConfig};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::ControllerAddress;
use crate::wire::{ANSWER_BYTES_MAX, EVICTED_TITLE, Problem};

/// The reason why a request to controllers failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The host is unknown.
    #[error("{address}: cannot resolve the host name")]
    Resolve {
        /// Address of the controller.
        address: ControllerAddress,
        /// Error of the resolver.
        #[source]
        source: std::io::Error,
    },
    /// The connection failed.
    #[error("{address}: no connection")]
    Connect {
        /// Address of the controller.
        address: ControllerAddress,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The certificate was not accepted.
    #[error("{address}: {what}")]
    Handshake {
        /// Address of the controller.
        address: ControllerAddress,
        /// The meaning of the error, and what to do.
        what: String,
    },
    /// The controller did not answer in time.
    #[error("{address}: no answer within {within:?} ({step})")]
    TimedOut {
        /// Address of the controller.
        address: ControllerAddress,
        /// The step that took too long.
        step: &'static str,
        /// The timeout.
        within: Duration,
    },
    /// The controller refused.
    #[error("{address} says {}: {}", .problem.status, .problem.detail)]
    Refused {
        /// Address of the controller.
        address: ControllerAddress,
        /// The reason for the refusal.
        problem: Problem,
    },
    /// The connection broke.
    #[error("{address}: the connection ended ({what})")]
    Ended {
        /// Address of the controller.
        address: ControllerAddress,
        /// The cause.
        what: String,
    },
    /// The response is not of this protocol.
    #[error("{address}: cannot understand the response: {what}")]
    NotUnderstood {
        /// Address of the controller.
        address: ControllerAddress,
        /// The unexpected content.
        what: String,
    },
    /// All controllers failed.
    #[error("no controller answers: {}", each(.0))]
    Nobody(Vec<ClientError>),
}

/// The error of each controller, with its causes.
fn each(errors: &[ClientError]) -> String {
    let texts: Vec<String> = errors.iter().map(|error| with_causes(error)).collect();
    texts.join("; ")
}

impl ClientError {
    /// The texts of the errors of all controllers.
    pub fn by_controller(&self) -> Vec<String> {
        match self {
            ClientError::Nobody(errors) => errors.iter().map(|error| with_causes(error)).collect(),
            one => vec![with_causes(one)],
        }
    }

    /// The status of the response, if the controller refused the request.
    pub fn status(&self) -> Option<u16> {
        match self {
            ClientError::Refused { problem, .. } => Some(problem.status),
            _ => None,
        }
    }

    /// True if a controller refuses this node because an operator evicted it.
    pub(crate) fn is_eviction(&self) -> bool {
        matches!(self, ClientError::Refused { problem, .. } if problem.title == EVICTED_TITLE)
    }
}

/// Timeouts of requests to a controller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Patience {
    /// To resolve the address and connect.
    pub connect: Duration,
    /// For the TLS handshake.
    pub handshake: Duration,
    /// For the response to a request.
    pub answer: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            connect: Duration::from_secs(1),
            handshake: Duration::from_secs(2),
            answer: Duration::from_secs(3),
        }
    }
}

/// An open connection. Dropping it closes it.
pub(crate) struct Connection {
    address: ControllerAddress,
    send: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
    patience: Patience,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    pub(crate) async fn open(
        address: &ControllerAddress,
        tls: &Arc<ClientConfig>,
        patience: Patience,
    ) -> Result<Connection, ClientError> {
        let timed_out = |step, within| {
            let address = address.clone();
            move |_| ClientError::TimedOut { address, step, within }
        };
        let stream = timeout(patience.connect, connect(address))
            .await
            .map_err(timed_out("connecting", patience.connect))??;
        let connector = TlsConnector::from(Arc::clone(tls));
        let shaking = connector.connect(address.server_name(), stream);
        let stream = timeout(patience.handshake, shaking)
            .await
            .map_err(timed_out("TLS handshake", patience.handshake))?
            .map_err(|error| handshake_error(address, &error))?;
        let opened = http1::handshake(TokioIo::new(stream)).await;
        let (send, connection) = opened.map_err(|error| ended(address, &error))?;
        let driver = tokio::spawn(async move {
            // Waiting requests receive the error of the connection.
            let _ = connection.await;
        });
        Ok(Connection { address: address.clone(), send, driver, patience })
    }

    /// Sends a request with a JSON body. An empty response is `null`.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T, ClientError> {
        let within = self.patience.answer;
        let asked = timeout(within, self.ask_in_any_time(method, path, body)).await;
        asked.unwrap_or_else(|_| {
            let address = self.address.clone();
            Err(ClientError::TimedOut { address, step: "answer", within })
        })
    }

    async fn ask_in_any_time<T: DeserializeOwned>(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T, ClientError> {
        let request = self.request(method, path, None, body);
        let response = self.send(request).await?;
        let bytes = self.whole(response).await?;
        let bytes = if bytes.is_empty() { Bytes::from_static(b"null") } else { bytes };
        serde_json::from_slice(&bytes).map_err(|error| self.not_understood(&error.to_string()))
    }

    /// Sends a request with a streaming response.
    pub(crate) async fn stream(
        &mut self,
        path: &str,
        last_event: Option<String>,
    ) -> Result<Incoming, ClientError> {
        let within = self.patience.answer;
        let request = self.request(Method::GET, path, last_event, Bytes::new());
        let sent = timeout(within, self.send(request)).await;
        let response = sent.map_err(|_| {
            let address = self.address.clone();
            ClientError::TimedOut { address, step: "answer", within }
        })??;
        if response.status() != StatusCode::OK {
            let status = response.status();
            return Err(match timeout(within, self.whole(response)).await {
                Ok(Err(refused)) => refused,
                _ => self.not_understood(&format!("status {status}")),
            });
        }
        Ok(response.into_body())
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        last_event: Option<String>,
        body: Bytes,
    ) -> Request<Full<Bytes>> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, self.address.to_string())
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(last) = last_event {
            request = request.header("last-event-id", last);
        }
        request.body(Full::new(body)).expect("paths and ids are made of plain characters")
    }

    async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, ClientError> {
        let sent = match self.send.ready().await {
            Ok(()) => self.send.send_request(request).await,
            Err(error) => Err(error),
        };
        sent.map_err(|error| ended(&self.address, &error))
    }

    /// The body of a successful response. A refusal becomes an error.
    async fn whole(&self, response: Response<Incoming>) -> Result<Bytes, ClientError> {
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
        let bytes = match body.collect().await {
            Ok(collected) => collected.to_bytes(),
            Err(error) => {
                let (address, what) = (self.address.clone(), error.to_string());
                return Err(ClientError::Ended { address, what });
            }
        };
        if status.is_success() {
            return Ok(bytes);
        }
        let problem = serde_json::from_slice(&bytes).unwrap_or_else(|_| Problem {
            status: status.as_u16(),
            title: String::new(),
            detail: "something else than equipoise answers there".to_string(),
        });
        Err(ClientError::Refused { address: self.address.clone(), problem })
    }

    fn not_understood(&self, what: &str) -> ClientError {
        ClientError::NotUnderstood { address: self.address.clone(), what: what.to_string() }
    }

    /// True if another request may be sent over it.
    pub(crate) fn is_open(&self) -> bool {
        !self.send.is_closed()
    }
}

/// Encodes one of our own types as JSON.
pub(crate) fn json(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).expect("our types are plain JSON").into()
}

async fn connect(address: &ControllerAddress) -> Result<TcpStream, ClientError> {
    let resolve = |source| ClientError::Resolve { address: address.clone(), source };
    let found = tokio::net::lookup_host((address.host(), address.port())).await.map_err(resolve)?;
    let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
    for one in found {
        match TcpStream::connect(one).await {
            Ok(stream) => {
                // Without the option, small messages are only sent later.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(ClientError::Connect { address: address.clone(), source: last })
}

fn ended(address: &ControllerAddress, error: &hyper::Error) -> ClientError {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    let what = format!("{error}{}", cause.unwrap_or_default());
    ClientError::Ended { address: address.clone(), what }
}

fn handshake_error(address: &ControllerAddress, error: &std::io::Error) -> ClientError {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let host = address.host();
    let what = match tls {
        Some(rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) => format!(
            "its certificate is not for {host}; add {host} to `cluster.advertise` of that controller, or use a name of its certificate here"
        ),
        Some(rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        )) => "its certificate is of another cluster's authority than this node's, or its token's; check the address".to_string(),
        Some(rustls::Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        )) => format!("its certificate is not valid now ({error}); compare the machines' clocks"),
        Some(rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)) => {
            "its certificate is not a controller's".to_string()
        }
        _ => format!("TLS handshake failed: {error}"),
    };
    ClientError::Handshake { address: address.clone(), what }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("address", &self.address).finish_non_exhaustive()
    }
}
