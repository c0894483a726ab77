//! One check of a backend: connection, PROXY header, TLS and the exchange of the check's type.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

use crate::checks::{Check, HealthCheck, Origin};
use crate::place::connect_first;
use crate::secure::CheckTls;
use crate::{CheckError, Place};

/// Runs one check of the backend at `place` (with `address` as its own address), within `timeout`.
/// `port` replaces the backend's port. With `tls` the check is encrypted. Closes the connection at
/// the end.
///
/// # Errors
/// The [`CheckError`] that describes the backend's failure.
pub(crate) async fn probe(
    check: &HealthCheck,
    how: How<'_>,
    address: SocketAddr,
    place: &Place,
    port: Option<u16>,
    timeout: Duration,
) -> Result<(), CheckError> {
    match place {
        Place::Address => {
            let host = at_port(address, port).to_string();
            probe_first(check, how, &host, vec![address], port, timeout).await?.1
        }
        Place::Host { name, resolved } => {
            probe_first(check, how, name, resolved.ordered().collect(), port, timeout).await?.1
        }
        Place::Socket(path) => {
            let deadline = Instant::now() + timeout;
            let stream = opened(timeout_at(deadline, UnixStream::connect(path)).await, timeout)?;
            answer(check, how, "localhost", Stream::Unix(stream), deadline, timeout).await
        }
    }
}

/// How checks of a backend begin.
#[derive(Clone, Copy, Default)]
pub(crate) struct How<'a> {
    /// TLS; `None`: the check is not encrypted.
    pub(crate) tls: Option<&'a CheckTls>,
    /// Bytes that go first, in the clear.
    pub(crate) preamble: &'static [u8],
}

/// Runs one check like [`probe`], at the first of these addresses that accepts a connection.
/// Returns that address.
///
/// # Errors
/// The [`CheckError`] of the connection attempts, if no address accepts one.
pub(crate) async fn probe_first(
    check: &HealthCheck,
    how: How<'_>,
    host: &str,
    addresses: Vec<SocketAddr>,
    port: Option<u16>,
    timeout: Duration,
) -> Result<(SocketAddr, Result<(), CheckError>), CheckError> {
    let deadline = Instant::now() + timeout;
    let connect = connect_first(addresses, |address| TcpStream::connect(at_port(address, port)));
    let (address, stream) = opened(timeout_at(deadline, connect).await, timeout)?;
    Ok((address, answer(check, how, host, Stream::Tcp(stream), deadline, timeout).await))
}

fn at_port(address: SocketAddr, port: Option<u16>) -> SocketAddr {
    port.map_or(address, |port| SocketAddr::new(address.ip(), port))
}

fn opened<T>(opened: Result<io::Result<T>, Elapsed>, timeout: Duration) -> Result<T, CheckError> {
    opened
        .map_err(|_| CheckError::ConnectTimeout(timeout))?
        .map_err(|error| CheckError::connecting(&error))
}

/// Runs the check over an open connection. The limit is the check's own, or else `deadline`, which
/// is `timeout` after the start of the check.
async fn answer(
    check: &HealthCheck,
    how: How<'_>,
    host: &str,
    stream: Stream,
    deadline: Instant,
    timeout: Duration,
) -> Result<(), CheckError> {
    let (deadline, patience) = match check.within() {
        Some(within) => (Instant::now() + within, within),
        None => (deadline, timeout),
    };
    let answered = timeout_at(deadline, ask(check, how, host, stream)).await;
    answered.map_err(|_| CheckError::AnswerTimeout(patience))?
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Runs the check's exchange over an open connection. `host` is the Host header unless the check
/// sets one.
async fn ask(
    check: &HealthCheck,
    how: How<'_>,
    host: &str,
    stream: Stream,
) -> Result<(), CheckError> {
    match stream {
        Stream::Tcp(stream) => ask_encrypted(check, how, host, stream).await,
        Stream::Unix(stream) => ask_encrypted(check, how, host, stream).await,
    }
}

/// As [`ask`], with the handshake if there is `tls`.
async fn ask_encrypted(
    check: &HealthCheck,
    how: How<'_>,
    host: &str,
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
) -> Result<(), CheckError> {
    if !how.preamble.is_empty() {
        stream.write_all(how.preamble).await.map_err(|_| CheckError::Closed)?;
    }
    let origin = |scheme| Origin { scheme, host };
    match how.tls {
        None => check.ask(stream, origin("http")).await,
        Some(tls) => check.ask(tls.over(stream).await?, origin("https")).await,
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;
    use crate::checks::tests::{PATIENT, backend};
    use crate::checks::{HttpCheck, TcpCheck};

    fn http() -> HealthCheck {
        HealthCheck::Http(HttpCheck::get("/healthz"))
    }

    #[tokio::test]
    async fn the_preamble_comes_before_the_request() {
        let (address, asked) = backend(b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), true).await;
        let how = How { tls: None, preamble: b"PROXY UNKNOWN\r\n" };
        let passed = probe(&http(), how, address, &Place::Address, None, PATIENT).await;
        assert_eq!(passed, Ok(()));
        let asked = asked.await.unwrap();
        assert!(asked.starts_with("PROXY UNKNOWN\r\nGET /healthz HTTP/1.1\r\n"), "{asked}");
    }

    #[tokio::test]
    async fn a_unix_socket_is_checked_in_the_place_of_the_address() {
        let path = std::env::temp_dir().join(format!("eqp-check-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let nobody = SocketAddr::from(([0, 0, 0, 0], 0));
        let place = Place::Socket(path.as_path().into());
        let answer = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                assert!(stream.read_buf(&mut asked).await.unwrap() > 0);
            }
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
            String::from_utf8(asked).unwrap().to_ascii_lowercase()
        });
        assert_eq!(probe(&http(), How::default(), nobody, &place, None, PATIENT).await, Ok(()));
        assert!(answer.await.unwrap().contains("host: localhost\r\n"));
        let refused =
            probe(&HealthCheck::Tcp(TcpCheck), How::default(), nobody, &place, None, PATIENT).await;
        assert_eq!(refused, Err(CheckError::Refused));
        std::fs::remove_file(&path).unwrap();
    }
}
