//! Closing a client's connection so that the bytes sent to it arrive.

use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::buffer::Buffer;
use crate::deadline::Deadline;
use crate::socket::{Socket, poll_fill};
use crate::worker::{Phase, Worker};

/// How long, and for how many bytes, a client is still read from, so that the answer reaches it
/// before the reset that unread bytes would cause (RFC 9112, section 9.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// The client has no reason to send more.
    Unexpected,
    /// The client sends the rest of a body that was refused, and many read the answer only then.
    /// The times are those of nginx (`lingering_timeout`, `lingering_time`).
    OfBody,
}

impl Rest {
    /// The longest silence, the longest time and the most bytes.
    const fn bounds(self) -> (Duration, Duration, usize) {
        let second = Duration::from_secs(1);
        match self {
            Rest::Unexpected => (second, second, 256 << 10),
            Rest::OfBody => (Duration::from_secs(5), Duration::from_secs(30), usize::MAX),
        }
    }
}

/// Sends FIN, and then reads and discards input for a while. `idle` limits the wait until the
/// kernel accepts TLS's announcement of the end. `input` was read already. A process that stops
/// expects no rest.
pub(crate) async fn linger(
    worker: &Worker,
    client: &Socket,
    deadline: &Deadline,
    idle: Duration,
    input: Option<Buffer>,
    rest: Rest,
) {
    let is_over = || deadline.is_past() || worker.phase.get() == Phase::Cutting;
    deadline.set(Instant::now(), idle);
    poll_fn(|cx| match client.poll_shutdown(cx) {
        Poll::Pending if !is_over() => Poll::Pending,
        Poll::Ready(()) | Poll::Pending => Poll::Ready(()),
    })
    .await;
    let running = worker.phase.get() == Phase::Running;
    let (silence, longest, bytes) = if running { rest } else { Rest::Unexpected }.bounds();
    let (end, mut read_on, mut buffer) = (Instant::now() + longest, bytes, input);
    loop {
        let now = Instant::now();
        deadline.set(now, silence.min(end.saturating_duration_since(now)));
        if let Some(buffer) = &mut buffer {
            buffer.consume(buffer.len());
        }
        let read = poll_fn(|cx| match poll_fill(cx, client, &mut buffer, &worker.buffers) {
            Poll::Ready(read) => Poll::Ready(read.unwrap_or(0)),
            Poll::Pending if is_over() => Poll::Ready(0),
            Poll::Pending => Poll::Pending,
        })
        .await;
        read_on = read_on.saturating_sub(read);
        if read == 0 || read_on == 0 {
            return;
        }
    }
}
