//! Recognizing a client that speaks HTTP/2: by ALPN, or by the preface (RFC 9113, section 3.3).

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use crate::http::connection::ClientConnection;
use crate::socket::poll_fill;
use crate::worker::Phase;

/// The first bytes of such a client.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The protocol of a connection.
pub(in crate::http) enum Spoken {
    /// Or it is too early to say, and it has to be treated as HTTP/1.1.
    Http1,
    Http2,
    /// The client closed, or has been idle, before it sent a byte.
    Nothing,
}

/// Reads until it is certain which protocol `client` speaks. The bytes stay in its input.
pub(in crate::http) async fn spoken(client: &mut ClientConnection) -> Spoken {
    let chosen = client.client.tls().and_then(|tls| tls.borrow().chose_http2());
    if let Some(is_http2) = chosen {
        return if is_http2 { Spoken::Http2 } else { Spoken::Http1 };
    }
    let timeouts = client.door.view().config.timeouts.clone();
    let mut begun = false;
    client.deadline.set(Instant::now(), timeouts.idle);
    poll_fn(|cx| {
        loop {
            if let Some(input) = &client.input {
                let known = input.len().min(PREFACE.len());
                if input[..known] != PREFACE[..known] {
                    return Poll::Ready(Spoken::Http1);
                }
                if known == PREFACE.len() {
                    return Poll::Ready(Spoken::Http2);
                }
                if !std::mem::replace(&mut begun, true) {
                    client.deadline.set(Instant::now(), timeouts.header);
                }
            }
            let (socket, buffers) = (Rc::clone(&client.client), &client.worker.buffers);
            let is_over = match poll_fill(cx, &socket, &mut client.input, buffers) {
                Poll::Ready(Ok(1..)) => continue,
                Poll::Ready(Ok(0) | Err(_)) => true,
                Poll::Pending if client.worker.phase.get() == Phase::Cutting => true,
                Poll::Pending if !begun && client.is_closing() => true,
                Poll::Pending => client.deadline.is_past(),
            };
            match (is_over, begun) {
                (false, _) => return Poll::Pending,
                (true, false) => return Poll::Ready(Spoken::Nothing),
                (true, true) => return Poll::Ready(Spoken::Http1),
            }
        }
    })
    .await
}
