//! TLS of the API's address.

use std::io::{self, Cursor};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use equipoise_tls::ServerTls;
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Chain, Join, ReadHalf, WriteHalf,
};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{HandshakeKind, ServerConfig};
use tokio_rustls::server::TlsStream;

use crate::auth::ClientCertificate;

/// Longest time for a handshake, from the connection on.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time for a client to read the reason of a failed handshake. The kernel would discard
/// the reason if this side closed with unread bytes.
const LINGER: Duration = Duration::from_secs(1);
/// First byte of a TLS connection: a record of the handshake (RFC 8446, section 5.1).
const FIRST_BYTE: u8 = 0x16;

/// The answer to a client that speaks HTTP in the clear.
const IN_THE_CLEAR: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/problem+json\r\nContent-Length: 107\r\nConnection: close\r\n\r\n\
{\"title\":\"TLS needed\",\"status\":400,\"detail\":\"this address speaks TLS (option `api.tls`): use https://...\"}\n";

/// An encrypted stream, of which the first byte was read before the handshake.
pub(crate) type Encrypted<S> = TlsStream<Join<Chain<Cursor<[u8; 1]>, ReadHalf<S>>, WriteHalf<S>>>;

/// TLS of the API's address, which reloads exchange. Without it, the address speaks HTTP in the
/// clear.
#[derive(Debug, Default)]
pub struct ApiTls {
    in_force: RwLock<Option<ServerTls>>,
    handshakes: AtomicU64,
    resumed: AtomicU64,
}

impl ApiTls {
    /// TLS as a configuration states it.
    pub fn new(tls: Option<ServerTls>) -> ApiTls {
        ApiTls { in_force: RwLock::new(tls), ..ApiTls::default() }
    }

    /// Sets TLS, from the next connection on. If it is the same, clients' tickets stay valid.
    pub fn set(&self, tls: Option<ServerTls>) {
        let mut in_force = self.in_force.write().unwrap_or_else(PoisonError::into_inner);
        if *in_force != tls {
            *in_force = tls;
        }
    }

    /// TLS in force.
    pub fn in_force(&self) -> Option<ServerTls> {
        self.in_force.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Complete handshakes, resumed sessions included.
    pub fn handshakes(&self) -> u64 {
        self.handshakes.load(Relaxed)
    }

    /// Handshakes that resumed a session.
    pub fn resumed(&self) -> u64 {
        self.resumed.load(Relaxed)
    }

    /// Performs the handshake with a client. Returns the encrypted stream and the client's
    /// certificate, if one was asked for and verified.
    pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        config: Arc<ServerConfig>,
    ) -> io::Result<(Encrypted<S>, Option<ClientCertificate>)> {
        let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake(stream, config));
        let stream = handshake.await.map_err(|_| io::ErrorKind::TimedOut)??;
        let (_, connection) = stream.get_ref();
        self.handshakes.fetch_add(1, Relaxed);
        if connection.handshake_kind() == Some(HandshakeKind::Resumed) {
            self.resumed.fetch_add(1, Relaxed);
        }
        let certificate = connection.peer_certificates().and_then(|chain| chain.first());
        let certificate = certificate.map(ClientCertificate::of);
        Ok((stream, certificate))
    }
}

/// Performs the handshake. The client learns the reason of a failure.
async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    config: Arc<ServerConfig>,
) -> io::Result<Encrypted<S>> {
    let first = stream.read_u8().await?;
    if first != FIRST_BYTE {
        stream.write_all(IN_THE_CLEAR).await?;
        linger(stream).await;
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the client does not speak TLS"));
    }
    let (read, write) = tokio::io::split(stream);
    let stream = tokio::io::join(Cursor::new([first]).chain(read), write);
    match TlsAcceptor::from(config).accept(stream).into_fallible().await {
        Ok(stream) => Ok(stream),
        Err((error, stream)) => {
            linger(stream).await;
            Err(error)
        }
    }
}

/// Announces the end, and reads until the client ends, too.
async fn linger(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let rest = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
    };
    // The connection ends either way.
    let _ = tokio::time::timeout(LINGER, rest).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_in_the_clear_has_its_length() {
        let text = String::from_utf8_lossy(IN_THE_CLEAR);
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{}", body.len());
        assert!(serde_json::from_str::<serde_json::Value>(body).is_ok());
    }
}
