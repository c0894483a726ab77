//! A client of a running equipoise's API, which performs the operations of [`crate::routes`].

mod capture;
mod endpoint;
mod events;

use std::fmt;
use std::io;
use std::time::Duration;

use equipoise_tls::{ClientTls, Fault, FaultKind};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::{Operation, Problem, Token};

pub use capture::CaptureStream;
pub use endpoint::{BadEndpoint, Endpoint, Place};
pub use events::EventStream;

/// Longest time for an answer. A reload that opens many front doors takes longest.
const TIMEOUT: Duration = Duration::from_secs(30);

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
    /// The TLS handshake failed.
    #[error("TLS with {place} failed: {}; {}", fault.text, remedy(fault))]
    Tls {
        /// The endpoint that was asked.
        place: Place,
        /// The reason.
        fault: Fault,
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

/// The remedy for a failed handshake.
fn remedy(fault: &Fault) -> &'static str {
    match fault.kind {
        FaultKind::Name => "name the API by a name of its certificate: --api https://NAME:PORT",
        FaultKind::Expired => {
            "renew the certificate of [api.tls]; equipoise uses new files without a reload"
        }
        FaultKind::Issuer => {
            "--ca FILE names the authority that signed it, or the certificate itself if it signed itself"
        }
        FaultKind::ClientCertificate => {
            "--certificate FILE names your own, which an authority of `tls.clients.ca` has signed"
        }
        FaultKind::Other => "http://HOST:PORT is for an API without [api.tls]",
    }
}

/// A client of one process. Each request uses a new connection.
#[derive(Clone, Debug)]
pub struct Client {
    place: Place,
    token: Option<Token>,
    tls: Option<ClientTls>,
}

impl Client {
    /// A client of the process behind an endpoint.
    pub fn new(place: impl Into<Place>) -> Client {
        Client { place: place.into(), token: None, tls: None }
    }

    /// The endpoint of the process.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Sets the token to send over TCP.
    pub fn with_token(self, token: Option<Token>) -> Client {
        Client { token, ..self }
    }

    /// Sets how servers are verified over TLS, and the certificate for them.
    pub fn with_tls(self, tls: Option<ClientTls>) -> Client {
        Client { tls, ..self }
    }

    /// Performs an operation; the question is `()` for none.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::Refused`] has the reason why the process did not do it.
    pub async fn ask<Q: Serialize, A: DeserializeOwned>(
        &self,
        operation: Operation<Q, A>,
        question: &Q,
    ) -> Result<A, ClientError> {
        let exchange = async {
            let response = self.send(operation, question, "application/json").await?;
            let body = self.collected(response.into_body()).await?;
            serde_json::from_slice(&body).map_err(|error| self.not_understood(error))
        };
        self.in_time(exchange).await
    }

    /// Opens a stream, which may last.
    async fn open_stream<Q: Serialize, A>(
        &self,
        operation: Operation<Q, A>,
        question: &Q,
        media_type: &'static str,
    ) -> Result<Incoming, ClientError> {
        let response = self.send(operation, question, media_type);
        Ok(self.in_time(response).await?.into_body())
    }

    async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        tokio::time::timeout(TIMEOUT, answer)
            .await
            .map_err(|_| ClientError::NoAnswer { place: self.place.clone() })?
    }

    /// Performs the TLS handshake, and verifies the server.
    async fn encrypt(
        &self,
        stream: TcpStream,
        authority: &str,
    ) -> Result<TlsStream<TcpStream>, ClientError> {
        let failed = |fault| ClientError::Tls { place: self.place.clone(), fault };
        let no_authority =
            || Fault { kind: FaultKind::Issuer, text: "no authority is known".into() };
        let tls = self.tls.as_ref().ok_or_else(|| failed(no_authority()))?;
        let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = tls.server_name(Some(host), None);
        let stream = TlsConnector::from(tls.config().clone()).connect(name, stream).await;
        stream.map_err(|error| failed(Fault::of_handshake(&error)))
    }

    /// Sends a request over a connection of its own. Returns the head of a successful answer.
    async fn send<Q: Serialize, A>(
        &self,
        operation: Operation<Q, A>,
        question: &Q,
        accept: &'static str,
    ) -> Result<Response<Incoming>, ClientError> {
        let (target, body) = operation.request(question);
        let (stream, host) = self.connect().await?;
        let mut request = Request::builder()
            .method(operation.method)
            .uri(target)
            .header(header::HOST, host)
            .header(header::ACCEPT, accept)
            .header(header::CONTENT_TYPE, "application/json");
        if let (Some(token), Endpoint::Tcp(_) | Endpoint::Tls(_)) =
            (&self.token, &self.place.endpoint)
        {
            let mut value = HeaderValue::from_maybe_shared(format!("Bearer {}", token.reveal()))
                .map_err(|error| self.not_understood(error))?;
            value.set_sensitive(true);
            request = request.header(header::AUTHORIZATION, value);
        }
        let request = request.body(Full::new(body)).map_err(|error| self.not_understood(error))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.broken(&error))?;
        // The task ends with the body. The answer reports its error.
        tokio::spawn(connection);
        let response = sender.send_request(request).await.map_err(|error| self.broken(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        match serde_json::from_slice::<Problem>(&self.collected(body).await?) {
            Ok(problem) => Err(ClientError::Refused(problem)),
            Err(_) => Err(self.not_understood(format!("status {}", head.status))),
        }
    }

    /// Connects. Also returns the value of the header `Host`.
    async fn connect(&self) -> Result<(Box<dyn Connection>, &str), ClientError> {
        match &self.place.endpoint {
            Endpoint::Unix(socket) => {
                let stream =
                    UnixStream::connect(socket).await.map_err(|e| self.no_connection(e))?;
                Ok((Box::new(stream), "localhost"))
            }
            Endpoint::Tcp(authority) => {
                let stream =
                    TcpStream::connect(authority).await.map_err(|e| self.no_connection(e))?;
                Ok((Box::new(stream), authority))
            }
            Endpoint::Tls(authority) => {
                let stream =
                    TcpStream::connect(authority).await.map_err(|e| self.no_connection(e))?;
                Ok((Box::new(self.encrypt(stream, authority).await?), authority))
            }
        }
    }

    async fn collected(&self, body: Incoming) -> Result<Bytes, ClientError> {
        let body = body.collect().await.map_err(|error| self.broken(&error))?;
        Ok(body.to_bytes())
    }

    fn no_connection(&self, source: io::Error) -> ClientError {
        let place = self.place.clone();
        match source.kind() {
            io::ErrorKind::PermissionDenied => ClientError::NoPermission { place, source },
            _ => ClientError::NotRunning { place, source },
        }
    }

    /// The error of an exchange. TLS 1.3 reports a rejected client certificate only then.
    fn broken(&self, error: &hyper::Error) -> ClientError {
        let first = Some(error as &(dyn std::error::Error + 'static));
        let mut causes = std::iter::successors(first, |error| error.source());
        match causes.find_map(|cause| Fault::within(cause.downcast_ref()?)) {
            Some(fault) => ClientError::Tls { place: self.place.clone(), fault },
            None => self.not_understood(error),
        }
    }

    fn not_understood(&self, what: impl fmt::Display) -> ClientError {
        ClientError::NotUnderstood { place: self.place.clone(), what: what.to_string() }
    }
}

/// A connection of either kind.
trait Connection: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection for S {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::process::STATUS;

    #[tokio::test]
    async fn the_not_running_error_names_the_socket_and_the_start_command() {
        let client = Client::new(Endpoint::Unix("/nonexistent/equipoise.sock".into()));
        let error = client.ask(STATUS, &()).await.unwrap_err();
        assert!(matches!(error, ClientError::NotRunning { .. }));
        let text = error.to_string();
        assert!(
            text.contains("/nonexistent/equipoise.sock") && text.contains("equipoise run FILE"),
            "{text}"
        );
    }
}
