//! Two byte streams between a client and a backend, both ways at once, to their end.
//!
//! Each direction copies through a pooled buffer while it moves little at a time, and splices
//! ([`crate::splice`]) while it moves much, which takes one more system call per chunk but no copy.
//! It holds a buffer or a pipe only while bytes are on their way; an idle connection holds neither.

use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use std::future::poll_fn;
use std::io;

use equipoise_core::load::RequestClass;

use crate::buffer::{BUFFER_BYTES, Buffer};
use crate::deadline::Deadline;
use crate::door::Door;
use crate::lease::Lease;
use crate::reason::Reason;
use crate::socket::Socket;
use crate::splice::{CHUNK_BYTES, Pipe};
use crate::upstream::Session;
use crate::worker::{Phase, Worker};

/// A direction splices when this much, a buffer full, has come without a pause; and from the start
/// of a burst when the one before was as large.
///
/// Measured on loopback, CPU per exchange of the proxy, copied / spliced: 12 KB 22 / 19 us (equal
/// within the noise), 20 KB 30 / 20, 100 KB 82 / 26, 1 MB 507 / 201. Copying through 64 KiB buffers
/// costs 24, 43 and 326, so that larger buffers do not make up for it.
const SPLICE_FROM_BYTES: usize = BUFFER_BYTES;

/// A splice that moved less has probably emptied the socket. The next read then copies, and so
/// finds out for the price of the `EAGAIN` that a splice would end in too. 32, 128, 256 and 512 KiB
/// measure alike.
const SPLICE_AGAIN_BYTES: usize = 128 << 10;

/// Reads of one direction in one turn of the task, so that others get theirs.
const ROUNDS: usize = 16;

/// How a relay ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// `None`: both sides closed in good order.
    pub(crate) reason: Option<Reason>,
    /// Bytes from the client to the backend.
    pub(crate) sent: u64,
    /// Bytes from the backend to the client.
    pub(crate) received: u64,
}

/// Moves bytes between `client` and `session` until both directions have ended, or either fails, or
/// nothing moves for `idle`. `to_upstream` and `to_client` were read already and go first.
///
/// Every other end than an orderly one makes the sockets' close a reset: a reader of the stream's
/// end must not take a cut stream for complete. Bytes, also by a request's class, and reasons are
/// counted here.
#[allow(clippy::too_many_arguments)]
pub(crate) async fn relay(
    worker: &Worker,
    door: &Door,
    lease: &Lease,
    client: &Socket,
    session: &Session,
    to_upstream: Option<Buffer>,
    to_client: Option<Buffer>,
    deadline: &Deadline,
    idle: Duration,
    class: Option<RequestClass>,
) -> End {
    let now = Instant::now();
    deadline.set(now, idle);
    let mut relay = Relay {
        worker,
        door,
        lease,
        client,
        upstream: &session.socket,
        up: Direction::new(to_upstream),
        down: Direction::new(to_client),
        last_moved: now,
        class,
    };
    let reason = poll_fn(|cx| relay.poll(cx, deadline, idle)).await;
    deadline.clear();
    relay.end(reason)
}

struct Relay<'a> {
    worker: &'a Worker,
    door: &'a Door,
    lease: &'a Lease,
    client: &'a Socket,
    upstream: &'a Socket,
    up: Direction,
    down: Direction,
    last_moved: Instant,
    class: Option<RequestClass>,
}

impl Relay<'_> {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        deadline: &Deadline,
        idle: Duration,
    ) -> Poll<Option<Reason>> {
        if self.lease.is_cut() {
            return Poll::Ready(Some(Reason::BackendRemoved));
        }
        if self.worker.phase.get() == Phase::Cutting {
            return Poll::Ready(Some(Reason::ShuttingDown));
        }
        let before = (self.up.moved, self.down.moved);
        let is_cut = self.down.over == Some(Turn::WriteFailed);
        let up = self.up.turn(cx, self.client, self.upstream, self.worker, is_cut);
        let is_cut = up == Turn::WriteFailed;
        let down = self.down.turn(cx, self.upstream, self.client, self.worker, is_cut);
        self.count(self.up.moved - before.0, self.down.moved - before.1);
        if up == Turn::Again || down == Turn::Again {
            cx.waker().wake_by_ref();
        }
        match verdict(up, down) {
            Some(reason) => Poll::Ready(reason),
            None if deadline.is_past() && !self.is_alive(deadline, idle) => {
                Poll::Ready(Some(Reason::IdleTimeout))
            }
            None => Poll::Pending,
        }
    }

    fn count(&mut self, up: u64, down: u64) {
        if up + down == 0 {
            return;
        }
        self.last_moved = self.last_moved.max(self.worker.deadlines.now());
        self.door.stats(|stats| {
            stats.bytes_in.add(up);
            stats.bytes_out.add(down);
            if let Some(class) = self.class {
                stats.classes[class as usize].bytes.add(up + down);
            }
        });
        self.lease.stats().bytes_out.add(up);
        self.lease.stats().bytes_in.add(down);
    }

    /// Whether something moved within the idle time; then the deadline is moved to its end. Doing
    /// so only when the deadline fires saves a clock read and a store per chunk.
    fn is_alive(&self, deadline: &Deadline, idle: Duration) -> bool {
        let now = Instant::now();
        let left = idle.saturating_sub(now.saturating_duration_since(self.last_moved));
        if !left.is_zero() {
            deadline.set(now, left);
        }
        !left.is_zero()
    }

    fn end(&self, reason: Option<Reason>) -> End {
        if let Some(reason) = reason {
            self.client.reset_on_close();
            self.upstream.reset_on_close();
            self.door.dropped(reason);
            if matches!(reason, Reason::UpstreamClosed | Reason::BackendRemoved) {
                self.worker.backend_failed(self.lease, reason);
            }
        }
        End { reason, sent: self.up.moved, received: self.down.moved }
    }
}

/// Whether it is over, from what both directions (client to backend, backend to client) have come
/// to.
fn verdict(up: Turn, down: Turn) -> Option<Option<Reason>> {
    use Turn::{Again, Blocked, Ended, ReadFailed, Waiting, WriteFailed};
    match (up, down) {
        (ReadFailed, _) => Some(Some(Reason::ClientGone)),
        (_, ReadFailed) => Some(Some(Reason::UpstreamClosed)),
        // A side that no longer reads may have sent something before, which still gets through.
        (WriteFailed, Blocked | Again) | (Blocked | Again, WriteFailed) => None,
        (WriteFailed, _) => Some(Some(Reason::UpstreamClosed)),
        (_, WriteFailed) => Some(Some(Reason::ClientGone)),
        (Ended, Ended) => Some(None),
        (Ended | Waiting | Blocked | Again, _) => None,
    }
}

/// The state of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Nothing to read; nothing is held.
    Waiting,
    /// The receiver takes no more now.
    Blocked,
    /// There may be more, but it is the others' turn.
    Again,
    /// The sender ended its stream, and the receiver was notified.
    Ended,
    /// The sender's connection failed.
    ReadFailed,
    /// The receiver's connection failed.
    WriteFailed,
}

enum Held {
    Nothing,
    Copy(Buffer),
    Pipe(Pipe),
}

struct Direction {
    held: Held,
    /// The sender has ended its stream.
    at_end: bool,
    /// Ended or failed: it stays so.
    over: Option<Turn>,
    splicing: bool,
    /// Bytes that have come since it last waited.
    burst: usize,
    /// Bytes written.
    moved: u64,
}

impl Direction {
    fn new(first: Option<Buffer>) -> Direction {
        let held = first.map_or(Held::Nothing, Held::Copy);
        Direction { held, at_end: false, over: None, splicing: false, burst: 0, moved: 0 }
    }

    /// `is_cut`: writing to `from` failed. The kernel reports a reset once, and then the end of the
    /// stream, which is not passed on as such.
    fn turn(
        &mut self,
        cx: &mut Context<'_>,
        from: &Socket,
        to: &Socket,
        worker: &Worker,
        is_cut: bool,
    ) -> Turn {
        if let Some(turn) = self.over {
            return turn;
        }
        for _ in 0..ROUNDS {
            match self.flush(cx, to) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return self.end(Turn::WriteFailed),
                Poll::Pending => {
                    from.read_ahead(cx);
                    return Turn::Blocked;
                }
            }
            if self.at_end {
                return match is_cut || to.poll_shutdown(cx).is_ready() {
                    true => self.end(Turn::Ended),
                    false => Turn::Blocked,
                };
            }
            self.splicing &= from.may_splice() && to.may_splice();
            match self.read(cx, from, worker) {
                Poll::Ready(Ok(0)) => self.at_end = true,
                Poll::Ready(Ok(read)) => self.burst += read,
                Poll::Ready(Err(_)) => return self.end(Turn::ReadFailed),
                Poll::Pending => {
                    self.held = Held::Nothing;
                    if self.burst > 0 {
                        self.splicing = self.burst >= SPLICE_FROM_BYTES;
                    }
                    self.burst = 0;
                    return Turn::Waiting;
                }
            }
        }
        Turn::Again
    }

    fn end(&mut self, turn: Turn) -> Turn {
        self.held = Held::Nothing;
        self.over = Some(turn);
        turn
    }

    fn flush(&mut self, cx: &mut Context<'_>, to: &Socket) -> Poll<io::Result<()>> {
        match &mut self.held {
            Held::Nothing => {}
            Held::Copy(buffer) => {
                while !buffer.is_empty() {
                    let written = ready!(to.poll_write(cx, buffer))?;
                    buffer.consume(written);
                    self.moved += written as u64;
                }
            }
            Held::Pipe(pipe) if pipe.is_empty() => {}
            Held::Pipe(pipe) => {
                let before = pipe.len();
                let result = pipe.poll_empty_to(cx, to);
                self.moved += (before - pipe.len()) as u64;
                ready!(result)?;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads with nothing held; 0 is the end of the stream.
    fn read(
        &mut self,
        cx: &mut Context<'_>,
        from: &Socket,
        worker: &Worker,
    ) -> Poll<io::Result<usize>> {
        if self.splicing {
            let spliced = ready!(self.read_spliced(cx, from, worker))?;
            self.splicing = spliced.is_some_and(|read| read >= SPLICE_AGAIN_BYTES);
            if let Some(read) = spliced {
                return Poll::Ready(Ok(read));
            }
        }
        if !matches!(self.held, Held::Copy(_)) {
            self.held = Held::Copy(worker.buffers.take());
        }
        let Held::Copy(buffer) = &mut self.held else { unreachable!("set above") };
        let space = buffer.space();
        let read = ready!(from.poll_read(cx, space))?;
        buffer.filled(read);
        self.splicing = read >= BUFFER_BYTES;
        Poll::Ready(Ok(read))
    }

    /// Reads into a pipe. `None`: copy instead. This is the result without a pipe, and when a
    /// splice finds nothing or the end, because it reports both also in front of an urgent byte,
    /// where a copying read continues.
    fn read_spliced(
        &mut self,
        cx: &mut Context<'_>,
        from: &Socket,
        worker: &Worker,
    ) -> Poll<io::Result<Option<usize>>> {
        ready!(from.poll_readable(cx))?;
        if !matches!(self.held, Held::Pipe(_)) {
            let Some(pipe) = worker.pipes.take() else { return Poll::Ready(Ok(None)) };
            self.held = Held::Pipe(pipe);
        }
        let Held::Pipe(pipe) = &mut self.held else { unreachable!("set above") };
        from.poll_reading(cx, |socket| match pipe.fill_from(socket, CHUNK_BYTES) {
            Ok(0) => Ok(None),
            Ok(read) => {
                from.has_received(read);
                Ok(Some(read))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        })
    }
}

#[cfg(test)]
mod tests;
