//! The TLS handshake of a client with a front door.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use rustls::ServerConfig;

use crate::buffer::Buffer;
use crate::challenge;
use crate::deadline::Deadline;
use crate::door::Door;
use crate::linger::{Rest, linger};
use crate::reason::Reason;
use crate::socket::{Socket, poll_fill};
use crate::tls::{FIRST_BYTE, Tls};
use crate::worker::{Phase, Worker};

/// A fatal alert, `unexpected_message`, in the clear (RFC 8446, section 6): the answer to a client
/// that does not speak TLS.
pub(crate) const NOT_TLS: [u8; 7] = [0x15, 3, 1, 0, 2, 2, 10];

/// The end of a connection without a handshake.
pub(crate) enum Refused {
    /// The client closed, or the front door did, before the client sent a byte; or an ACME
    /// directory has seen the answer to its challenge. Nothing is lost.
    Unused,
    /// The client does not speak TLS. Its first bytes.
    NotTls(Buffer),
    /// The handshake failed. The client was sent an alert if there is one for the failure.
    Failed(Reason),
}

/// Performs the handshake within the front door's header time-out; `first` was read already.
///
/// Until the client's first byte the connection holds no buffer and no TLS state.
///
/// # Errors
/// [`Refused`]; the connection is in the clear again.
pub(crate) async fn accept(
    worker: &Worker,
    door: &Door,
    config: &Arc<ServerConfig>,
    client: &mut Socket,
    first: Option<Buffer>,
    deadline: &Deadline,
) -> Result<(), Refused> {
    deadline.set(Instant::now(), door.view().config.timeouts.header);
    let mut input = first;
    if input.is_none() {
        poll_fn(|cx| poll_first(cx, worker, door, client, &mut input, deadline)).await?;
    }
    let Some(mut first) = input else { return Err(Refused::Unused) };
    if first.first() != Some(&FIRST_BYTE) {
        return Err(Refused::NotTls(first));
    }
    let challenges = &worker.shared.challenges;
    let is_over = || poll_end(worker, deadline).is_ready();
    let challenge = match challenges.expects_handshakes() {
        true => Box::pin(challenge::handshake(challenges, client, &mut first, is_over)).await,
        false => None,
    };
    let begun = Tls::server(challenge.as_ref().unwrap_or(config), first, &worker.buffers);
    client.encrypt(begun.map_err(|_| Refused::Failed(Reason::OutOfResources))?);
    let result = poll_fn(|cx| match client.poll_handshake(cx) {
        Poll::Ready(result) => Poll::Ready(result.map_err(|error| reason_of(&error))),
        Poll::Pending => poll_end(worker, deadline).map(Err),
    })
    .await;
    deadline.clear();
    if let Err(reason) = result {
        let reason = match reason {
            Reason::TlsHandshake if awaits_certificate(door, client) => Reason::TlsNoCertificate,
            reason => reason,
        };
        client.give_up_tls();
        return Err(Refused::Failed(reason));
    }
    if challenge.is_some() {
        let idle = door.view().config.timeouts.idle;
        Box::pin(linger(worker, client, deadline, idle, None, Rest::Unexpected)).await;
        return Err(Refused::Unused);
    }
    let is_resumed = client.tls().is_some_and(|tls| tls.borrow().is_resumed());
    door.stats(|stats| {
        stats.tls_handshakes.add(1);
        stats.tls_resumed.add(u64::from(is_resumed));
    });
    Ok(())
}

/// Whether the name that the client asked for has no certificate yet.
fn awaits_certificate(door: &Door, client: &Socket) -> bool {
    let (view, tls) = (door.view(), client.tls());
    let (Some(server), Some(tls)) = (&view.config.tls, tls) else { return false };
    server.awaits(tls.borrow().server_name())
}

/// Reads the client's first bytes into `input`.
fn poll_first(
    cx: &mut Context<'_>,
    worker: &Worker,
    door: &Door,
    client: &Socket,
    input: &mut Option<Buffer>,
    deadline: &Deadline,
) -> Poll<Result<(), Refused>> {
    match poll_fill(cx, client, input, &worker.buffers) {
        Poll::Ready(Ok(1..)) => return Poll::Ready(Ok(())),
        Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Err(Refused::Unused)),
        Poll::Pending => {}
    }
    if door.ends_idle() {
        return Poll::Ready(Err(Refused::Unused));
    }
    poll_end(worker, deadline).map(|reason| Err(Refused::Failed(reason)))
}

/// Ready with the reason once the client has had its time.
pub(crate) fn poll_end(worker: &Worker, deadline: &Deadline) -> Poll<Reason> {
    if deadline.is_past() {
        return Poll::Ready(Reason::TlsTimeout);
    }
    match worker.phase.get() {
        Phase::Cutting => Poll::Ready(Reason::ShuttingDown),
        Phase::Running | Phase::Draining => Poll::Pending,
    }
}

fn reason_of(error: &io::Error) -> Reason {
    tracing::debug!(%error, "a TLS handshake failed");
    match crate::tls::is_tls_failure(error) {
        true => Reason::TlsHandshake,
        false => Reason::ClientGone,
    }
}
