//! Asks one proxy one question.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use equipoise_import::trial::{HttpQuestion, ProxyAnswer, TrialQuestion, TriedDoor};
use equipoise_tls::{ClientOptions, ClientTls, Profile, Protocols, Trust};
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, HOST, USER_AGENT};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Longest time to open a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// Longest time for an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Time in which a server for TCP sends its first bytes.
const GREETING_WITHIN: Duration = Duration::from_millis(500);
/// Most bytes of a greeting.
const GREETING_MAX: usize = 1024;
/// Bytes after which a body is not read further.
const BODY_MAX: usize = 1 << 20;
/// The name for a server that may have any.
const ANY_NAME: &str = "localhost";
const AGENT: &str = concat!("equipoise-import/", env!("CARGO_PKG_VERSION"));

/// A socket of the loopback address.
pub(super) fn socket_from_loopback(
    family: IpAddr,
    options: impl FnOnce(&TcpSocket) -> io::Result<()>,
) -> io::Result<TcpSocket> {
    let (socket, ip) = match family.is_ipv4() {
        true => (TcpSocket::new_v4()?, IpAddr::from(Ipv4Addr::LOCALHOST)),
        false => (TcpSocket::new_v6()?, IpAddr::from(Ipv6Addr::LOCALHOST)),
    };
    options(&socket)?;
    socket.bind((ip, 0).into())?;
    Ok(socket)
}

/// Opens a connection from the loopback address, so that both proxies see the same client.
///
/// # Errors
/// Nothing listens there.
pub(super) async fn open(at: SocketAddr) -> anyhow::Result<TcpStream> {
    let opened = async { socket_from_loopback(at.ip(), |_| Ok(()))?.connect(at).await };
    let opened = timeout(CONNECT_WITHIN, opened).await;
    let opened = opened.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    opened.map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => anyhow::anyhow!("nothing listens at {at}"),
        // The address is not one of this machine.
        _ => anyhow::anyhow!("nothing listens at {at} on this machine ({error})"),
    })
}

/// The answer of the proxy at an address to a question for a front door.
pub(super) async fn ask(at: SocketAddr, door: &TriedDoor, question: &TrialQuestion) -> ProxyAnswer {
    let why = match timeout(ANSWER_WITHIN, answer(at, door, question)).await {
        Ok(Ok(answer)) => return answer,
        Ok(Err(error)) => format!("{error:#}"),
        Err(_) => format!("none within {ANSWER_WITHIN:?}"),
    };
    ProxyAnswer::none(&why)
}

async fn answer(
    at: SocketAddr,
    door: &TriedDoor,
    question: &TrialQuestion,
) -> anyhow::Result<ProxyAnswer> {
    let mut stream = open(at).await?;
    if door.has_proxy_header {
        let header = proxy_header(stream.local_addr()?, stream.peer_addr()?);
        stream.write_all(header.as_bytes()).await?;
    }
    let (name, protocols) = match question {
        TrialQuestion::Handshake(name) => (name.as_str(), Protocols::Any),
        TrialQuestion::Http(question) if door.is_tls => (question.host.as_str(), Protocols::Http1),
        TrialQuestion::Greeting if door.is_tls => (ANY_NAME, Protocols::Any),
        TrialQuestion::Http(question) => return exchange(stream, question).await,
        TrialQuestion::Greeting => return greeting(stream).await,
    };
    let stream = encrypted(stream, name, protocols).await?;
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let certificate = chain.first().map(|it| it.to_vec()).unwrap_or_default();
    let answer = match question {
        TrialQuestion::Handshake(_) => ProxyAnswer::handshake(),
        TrialQuestion::Http(question) => exchange(stream, question).await?,
        TrialQuestion::Greeting => greeting(stream).await?,
    };
    Ok(answer.with_certificate(&certificate))
}

/// A header of the PROXY protocol, version 1, which names this client.
fn proxy_header(from: SocketAddr, to: SocketAddr) -> String {
    let family = if from.is_ipv4() { "TCP4" } else { "TCP6" };
    format!("PROXY {family} {} {} {} {}\r\n", from.ip(), to.ip(), from.port(), to.port())
}

/// Performs a TLS handshake. Any certificate is accepted, since certificates are compared.
async fn encrypted(
    stream: TcpStream,
    name: &str,
    protocols: Protocols,
) -> anyhow::Result<TlsStream<TcpStream>> {
    let tls = ClientTls::new(ClientOptions {
        trust: Trust::Anyone,
        certificate: None,
        profile: Profile::Intermediate,
        server_name: None,
        protocols,
    })?;
    let host = name.trim_start_matches('[').trim_end_matches(']');
    let name = tls.server_name(Some(host), None);
    TlsConnector::from(tls.config().clone()).connect(name, stream).await.context("TLS")
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    question: &HttpQuestion,
) -> anyhow::Result<ProxyAnswer> {
    let mut request = Request::builder()
        .method(question.method)
        .uri(&question.target)
        .header(HOST, &question.host)
        .header(ACCEPT, "*/*")
        .header(USER_AGENT, AGENT);
    for (name, value) in &question.headers {
        request = request.header(name, value);
    }
    let request = request.body(Empty::<Bytes>::new()).context("the request cannot be made")?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the sender and the answer.
    tokio::spawn(connection);
    let (head, mut rest) = sender.send_request(request).await?.into_parts();
    let mut body = Vec::new();
    while body.len() < BODY_MAX
        && let Some(frame) = rest.frame().await
    {
        body.extend_from_slice(&frame?.into_data().unwrap_or_default());
    }
    body.truncate(BODY_MAX);
    let headers = head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    Ok(ProxyAnswer::http(head.status.as_u16(), headers, &body))
}

/// Reads until the server is silent or closes the connection.
async fn greeting(mut stream: impl AsyncRead + Unpin) -> anyhow::Result<ProxyAnswer> {
    let (end, mut bytes) = (Instant::now() + GREETING_WITHIN, Vec::new());
    while bytes.len() < GREETING_MAX {
        match timeout_at(end, stream.read_buf(&mut bytes)).await {
            Ok(Ok(1..)) => {}
            Ok(_) => return Ok(ProxyAnswer::greeting(&bytes, true)),
            Err(_) => break,
        }
    }
    Ok(ProxyAnswer::greeting(&bytes, false))
}
