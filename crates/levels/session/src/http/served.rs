//! Serves a request that is a stream of a client's connection: with HTTP/2, and with HTTP/3.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Instant;

use super::connection::ClientConnection;
use crate::deadline::{Deadline, Taking};
use crate::door::Door;
use crate::reason::Reason;
use crate::socket::ClientStream;
use crate::worker::{Phase, Worker};

/// A stream that the engine serves as a client's connection.
pub(super) trait ServedStream: ClientStream {
    /// How a stream ended.
    type Ended;

    /// How the stream ended; `None` before.
    fn ended(&self) -> Option<Self::Ended>;

    /// Bytes of the response's payload that were handed on.
    fn sent(&self) -> u64;

    /// Sends what the engine has written, as the client's window permits. Ready when the stream has
    /// ended.
    fn poll_end(&self, cx: &mut Context<'_>) -> Poll<Self::Ended>;
}

/// Runs the engine for a stream.
pub(super) async fn run_engine<S: ServedStream>(mut client: ClientConnection, stream: &S) {
    let mut engine = pin!(client.run());
    poll_fn(|cx| {
        loop {
            let had_ended = stream.ended().is_some();
            if engine.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            // The engine has to notice the end.
            if had_ended || stream.poll_end(cx).is_pending() {
                return Poll::Pending;
            }
        }
    })
    .await;
}

/// Waits until the client has taken what the engine has left behind, as long as it takes some
/// within the time that it may be idle.
pub(super) async fn send_rest<S: ServedStream>(
    stream: &S,
    worker: &Worker,
    door: &Door,
    deadline: &Deadline,
) -> S::Ended {
    let (mut sent_before, mut taking) = (None, Taking::default());
    poll_fn(|cx| {
        if let Poll::Ready(ended) = stream.poll_end(cx) {
            return Poll::Ready(ended);
        }
        let sent = stream.sent();
        let before = sent_before.replace(sent);
        if before != Some(sent) {
            deadline.set(Instant::now(), door.view().config.timeouts.idle);
        }
        taking.note(deadline, sent - before.unwrap_or(sent), true);
        if deadline.is_past() || worker.phase.get() == Phase::Cutting {
            door.dropped(Reason::ClientStalled);
            stream.cut();
            return stream.poll_end(cx);
        }
        Poll::Pending
    })
    .await
}
