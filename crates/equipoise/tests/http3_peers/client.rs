//! A client with quinn and h3.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use h3::client::{RequestStream, SendRequest};
use h3::error::StreamError;
use h3_quinn::{BidiStream, OpenStreams};
use http::{Method, Request, Response};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use quinn::{ClientConfig, Connection, Endpoint};

use super::{NAME, PATIENCE};

pub(crate) type Stream = RequestStream<BidiStream<Bytes>, Bytes>;

/// A connection.
pub(crate) struct Client {
    endpoint: Endpoint,
    pub(crate) quic: Connection,
    pub(crate) requests: SendRequest<OpenStreams, Bytes>,
}

/// A certificate and its key.
pub(crate) type Identity = (CertificateDer<'static>, Vec<u8>);

/// An endpoint that trusts `authority`.
fn endpoint(authority: &CertificateDer<'static>, identity: Option<Identity>) -> Endpoint {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone()).expect("a certificate");
    let tls = quinn::rustls::ClientConfig::builder_with_provider(Arc::new(
        quinn::rustls::crypto::aws_lc_rs::default_provider(),
    ))
    .with_protocol_versions(&[&quinn::rustls::version::TLS13])
    .expect("TLS 1.3")
    .with_root_certificates(roots);
    let mut tls = match identity {
        None => tls.with_no_client_auth(),
        Some((certificate, key)) => {
            let key = PrivatePkcs8KeyDer::from(key).into();
            tls.with_client_auth_cert(vec![certificate], key).expect("a key")
        }
    };
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let tls = QuicClientConfig::try_from(tls).expect("a suite of QUIC");
    let mut endpoint = Endpoint::client("127.0.0.1:0".parse().expect("an address")).expect("UDP");
    endpoint.set_default_client_config(ClientConfig::new(Arc::new(tls)));
    endpoint
}

/// A connection of QUIC alone.
pub(crate) async fn connect(
    authority: &CertificateDer<'static>,
    to: SocketAddr,
) -> (Endpoint, Connection) {
    connect_as(authority, to, None).await
}

async fn connect_as(
    authority: &CertificateDer<'static>,
    to: SocketAddr,
    identity: Option<Identity>,
) -> (Endpoint, Connection) {
    let endpoint = endpoint(authority, identity);
    let connecting = endpoint.connect(to, NAME).expect("a server name");
    let quic = within(connecting).await.expect("a connection");
    (endpoint, quic)
}

impl Client {
    pub(crate) async fn open(authority: &CertificateDer<'static>, to: SocketAddr) -> Client {
        Client::open_as(authority, to, None).await
    }

    /// Opens a connection with a certificate.
    pub(crate) async fn open_as(
        authority: &CertificateDer<'static>,
        to: SocketAddr,
        identity: Option<Identity>,
    ) -> Client {
        let (endpoint, quic) = connect_as(authority, to, identity).await;
        let made = h3::client::new(h3_quinn::Connection::new(quic.clone()));
        let (mut driver, requests) = within(made).await.expect("HTTP/3");
        tokio::spawn(async move { poll_fn(|cx| driver.poll_close(cx)).await });
        Client { endpoint, quic, requests }
    }

    /// Sends a request's head.
    pub(crate) async fn begin(
        &mut self,
        method: Method,
        path: &str,
    ) -> Result<Stream, StreamError> {
        let request = Request::builder().method(method).uri(format!("https://{NAME}{path}"));
        within(self.requests.send_request(request.body(()).expect("a request"))).await
    }

    /// Closes the connection.
    pub(crate) async fn close(self) {
        self.quic.close(0u32.into(), &[]);
        within(self.endpoint.wait_idle()).await;
    }

    /// A response with its body.
    pub(crate) async fn ask(&mut self, method: Method, path: &str) -> (Response<()>, Vec<u8>) {
        let mut stream = self.begin(method, path).await.expect("a request can be sent");
        within(stream.finish()).await.expect("a request ends");
        answer(&mut stream).await.expect("an answer")
    }

    /// The answer to a POST with this body.
    pub(crate) async fn post(&mut self, path: &str, body: &[u8]) -> (Response<()>, Vec<u8>) {
        let stream = self.begin(Method::POST, path).await.expect("a request can be sent");
        let (mut sending, mut receiving) = stream.split();
        let body = Bytes::copy_from_slice(body);
        let sent = tokio::spawn(async move {
            for at in (0..body.len()).step_by(32 << 10) {
                let piece = body.slice(at..body.len().min(at + (32 << 10)));
                within(sending.send_data(piece)).await.expect("a body can be sent");
            }
            within(sending.finish()).await.expect("a request ends");
        });
        let response = within(receiving.recv_response()).await.expect("an answer");
        let mut bytes = Vec::new();
        while let Some(mut piece) = within(receiving.recv_data()).await.expect("a body") {
            bytes.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
        }
        sent.await.expect("the body was sent");
        (response, bytes)
    }
}

/// The answer to a request that was sent.
pub(crate) async fn answer(stream: &mut Stream) -> Result<(Response<()>, Vec<u8>), StreamError> {
    let response = within(stream.recv_response()).await?;
    let mut body = Vec::new();
    while let Some(mut piece) = within(stream.recv_data()).await? {
        body.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
    }
    Ok((response, body))
}

/// Waits for as long as tests wait.
pub(crate) async fn within<T>(future: impl IntoFuture<Output = T>) -> T {
    let patience: Duration = PATIENCE;
    tokio::time::timeout(patience, future).await.expect("it comes in time")
}
