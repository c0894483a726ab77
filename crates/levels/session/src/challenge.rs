//! TLS-ALPN-01: the handshake by which an ACME directory verifies a name (RFC 8737, section 3).

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use equipoise_tls::Challenges;
use rustls::ServerConfig;
use rustls::server::Acceptor;

use crate::buffer::Buffer;
use crate::socket::Socket;

/// The configuration with the answer, if this client is a directory that verifies a name of this
/// process. Reads the client's whole first message into `input`, which has its beginning.
///
/// `None` also if the client fails first, or its time `is_over`: the usual handshake finds the
/// error.
pub(crate) async fn handshake(
    challenges: &Challenges,
    client: &Socket,
    input: &mut Buffer,
    is_over: impl Fn() -> bool,
) -> Option<Arc<ServerConfig>> {
    let mut acceptor = Acceptor::default();
    let mut fed = 0;
    loop {
        while fed < input.len() {
            fed += acceptor.read_tls(&mut &input[fed..]).ok()?;
            if let Some(accepted) = acceptor.accept().ok()? {
                return challenges.handshake(&accepted.client_hello());
            }
        }
        poll_fn(|cx| poll_more(cx, client, input, &is_over)).await?;
    }
}

/// Ready with nothing if no more bytes will come, or fit.
fn poll_more(
    cx: &mut Context<'_>,
    client: &Socket,
    input: &mut Buffer,
    is_over: impl Fn() -> bool,
) -> Poll<Option<()>> {
    if input.is_full() || is_over() {
        return Poll::Ready(None);
    }
    match client.poll_read(cx, input.space()) {
        Poll::Ready(Ok(read @ 1..)) => {
            input.filled(read);
            Poll::Ready(Some(()))
        }
        Poll::Ready(Ok(0) | Err(_)) => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    }
}
