//! Closing a client's connection so that the bytes sent to it arrive.

use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::buffer::Buffer;
use crate::deadline::Deadline;
use crate::socket::{Socket, poll_fill};
use crate::worker::{Phase, Worker};

/// How long, and for how many bytes, a client that was refused is still read from, so that the
/// answer reaches it before the reset that unread bytes would cause (RFC 9112, section 9.6).
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 256 << 10;

/// Sends FIN, and then reads and discards input for a while. `idle` limits the wait until the
/// kernel accepts TLS's announcement of the end. `input` was read already.
pub(crate) async fn linger(
    worker: &Worker,
    client: &Socket,
    deadline: &Deadline,
    idle: Duration,
    input: Option<Buffer>,
) {
    let is_over = || deadline.is_past() || worker.phase.get() == Phase::Cutting;
    deadline.set(Instant::now(), idle);
    poll_fn(|cx| match client.poll_shutdown(cx) {
        Poll::Pending if !is_over() => Poll::Pending,
        Poll::Ready(()) | Poll::Pending => Poll::Ready(()),
    })
    .await;
    deadline.set(Instant::now(), LINGER);
    let mut read_on = LINGER_BYTES;
    let mut buffer = input;
    loop {
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
