//! HTTP/2 from clients: each stream is a client connection of the HTTP/1.1 engine with one request.
//!
//! A stream is a [`Socket`](crate::socket::Socket) of the engine, as TLS is ([`stream`]): the
//! engine reads its request as HTTP/1.1 ([`request`]), and what it writes becomes frames at once
//! ([`response`]); so routing, limits, queue, retries, logs and counters are those of HTTP/1.1.
//! [`tasks`] has the tasks that run the engine.
//!
//! # Bounds
//! A connection serves at most [`Limits::streams_max`](crate::config::Limits::streams_max) requests
//! at once; while that many are served, including those that the client has reset, no more are
//! accepted. A stream holds at most [`SEND_BYTES_MAX`] of a response in `h2`; what a
//! client sends is bounded by [`CONNECTION_WINDOW`]. A client that resets too many requests, or
//! sends too many frames that belong to none ([`control`]), loses its connection.

mod control;
mod preface;
mod priority;
pub(in crate::http) mod request;
pub(in crate::http) mod response;
mod stream;
mod tasks;
mod transport;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::server::{Builder, Connection};

use self::priority::Urgencies;
use self::tasks::Arrived;
use self::transport::{Outbox, Transport};
use super::{DATA_FRAME_BUDGET, SEND_BYTES_MAX, STREAM_WINDOW};
use crate::deadline::Taking;
use crate::door::Door;
use crate::http::connection::ClientConnection;
use crate::http::logged::log_unread;
use crate::http::proxied::ProxyFacts;
use crate::http::resets::{RESETS_MAX, Resets};
use crate::reason::Reason;
use crate::socket::Socket;
use crate::worker::{ClientHashes, Phase, Worker};
pub(in crate::http) use preface::{Spoken, spoken};
pub(crate) use tasks::StreamTasks;

/// Bytes that a client may send on all streams of a connection, ahead of what the backends have
/// taken.
pub(in crate::http) const CONNECTION_WINDOW: u32 = 1 << 20;

/// The time after a GOAWAY in which a client without open streams has to close.
pub(in crate::http) const LEAVE_WITHIN: Duration = Duration::from_secs(1);

/// State that the streams of a connection share.
struct Shared {
    worker: Rc<Worker>,
    door: Rc<Door>,
    peer: SocketAddr,
    hashes: ClientHashes,
    /// Header lines about the client's certificate.
    identity: Option<Rc<[u8]>>,
    /// Content of the PROXY header of the connection.
    proxy: Option<Rc<ProxyFacts>>,
    socket: Rc<Socket>,
    /// Requests that are served.
    open: Cell<usize>,
    resets: Resets,
    /// Responses under way.
    urgencies: Rc<Urgencies>,
    /// The task of the connection.
    waker: RefCell<Option<Waker>>,
}

impl Shared {
    /// Counts a request until the guard is dropped.
    fn enter(self: &Rc<Self>) -> Open {
        self.open.set(self.open.get() + 1);
        Open(Rc::clone(self))
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

/// Keeps a request counted.
struct Open(Rc<Shared>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
        self.0.wake();
    }
}

/// Serves a connection with a client that speaks HTTP/2, from the preface on.
pub(in crate::http) async fn serve(mut client: ClientConnection) {
    let (worker, door) = (Rc::clone(&client.worker), Rc::clone(&client.door));
    let outbox = Outbox::new(Rc::clone(&client.client), &worker.buffers);
    let transport = Transport::new(Rc::clone(&outbox), client.input.take());
    let view = door.view();
    client.deadline.set(Instant::now(), view.config.timeouts.header);
    let mut handshake = pin!(builder(&view.config.limits).handshake::<_, Bytes>(transport));
    let met = poll_fn(|cx| {
        outbox.begin_turn();
        let polled = handshake.as_mut().poll(cx);
        let flushed = outbox.poll_flush(cx);
        match (polled, flushed) {
            (Poll::Ready(result), _) => Poll::Ready(result.map_err(|error| reason_of(&error))),
            (_, Poll::Ready(Err(_))) => Poll::Ready(Err(None)),
            _ if client.deadline.is_past() => Poll::Ready(Err(Some(Reason::HeaderTimeout))),
            _ if worker.phase.get() == Phase::Cutting => Poll::Ready(Err(None)),
            _ => Poll::Pending,
        }
    })
    .await;
    client.deadline.clear();
    let failed = match met {
        Ok(connection) => {
            let shared = Rc::new(Shared {
                worker,
                door: Rc::clone(&door),
                peer: client.peer,
                hashes: client.hashes,
                identity: client.identity.take(),
                proxy: client.proxy.take(),
                socket: Rc::clone(&client.client),
                open: Cell::new(0),
                resets: Resets::new(Instant::now()),
                urgencies: Rc::default(),
                waker: RefCell::default(),
            });
            let serving =
                Serving { connection, outbox, shared, client: &client, state: State::Serving };
            serving.run().await
        }
        Err(failed) => failed,
    };
    if let Some(reason) = failed {
        door.dropped(reason);
        log_unread(&client.worker, &door, client.peer, reason);
    }
    client.linger().await;
}

fn builder(limits: &crate::config::Limits) -> Builder {
    let streams = u32::try_from(limits.streams_max).unwrap_or(u32::MAX);
    let mut builder = h2::server::Builder::new();
    builder
        .max_concurrent_streams(streams)
        .max_header_list_size(u32::try_from(limits.head_bytes_max).unwrap_or(u32::MAX))
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(SEND_BYTES_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX as usize)
        .data_frame_budget(DATA_FRAME_BUDGET)
        .enable_connect_protocol();
    builder
}

/// The progress towards the end of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// New streams are accepted.
    Serving,
    /// GOAWAY was sent at this time; the streams that the client opened before it knew that are
    /// served.
    Leaving(Instant),
    /// GOAWAY was sent, and nothing is accepted.
    Cut(Option<Reason>),
}

impl State {
    /// Why the connection ends, if it ends badly.
    fn reason(self) -> Option<Reason> {
        match self {
            State::Serving | State::Leaving(_) => None,
            State::Cut(reason) => reason,
        }
    }
}

struct Serving<'a> {
    connection: Connection<Transport, Bytes>,
    outbox: Rc<Outbox>,
    shared: Rc<Shared>,
    client: &'a ClientConnection,
    state: State,
}

impl Serving<'_> {
    /// Serves the streams to the end of the connection. Returns the reason if it ended badly.
    async fn run(mut self) -> Option<Reason> {
        let mut idle = Idle { since: None, taking: Taking::default() };
        let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
        *self.shared.waker.borrow_mut() = Some(waker);
        poll_fn(|cx| {
            self.outbox.begin_turn();
            self.poll(cx, &mut idle)
        })
        .await
    }

    fn poll(&mut self, cx: &mut Context<'_>, idle: &mut Idle) -> Poll<Option<Reason>> {
        loop {
            if let Poll::Ready(ended) = self.poll_streams(cx) {
                return Poll::Ready(ended);
            }
            if let Poll::Ready(Err(_)) = self.outbox.poll_flush(cx) {
                return Poll::Ready(self.state.reason());
            }
            let shared = &self.shared;
            let is_stopping =
                shared.door.closing.get() || shared.worker.phase.get() != Phase::Running;
            if self.state == State::Serving && is_stopping {
                self.leave();
            } else if self.state != State::Cut(Some(Reason::Http2Flood))
                && (shared.resets.are_too_many() || self.outbox.is_flooded())
            {
                self.cut(Some(Reason::Http2Flood));
            } else if self.is_idle_for_too_long(idle) {
                match self.state {
                    State::Serving => self.leave(),
                    State::Leaving(_) => self.cut(None),
                    State::Cut(reason) => return Poll::Ready(reason),
                }
                idle.since = None;
                self.client.deadline.stand();
            } else {
                return Poll::Pending;
            }
        }
    }

    /// Accepts streams and moves frames; ready at the end of the connection.
    fn poll_streams(&mut self, cx: &mut Context<'_>) -> Poll<Option<Reason>> {
        let streams_max = self.shared.door.view().config.limits.streams_max;
        loop {
            if let State::Cut(reason) = self.state {
                return self.connection.poll_closed(cx).map(|_| reason);
            }
            if self.shared.open.get() >= streams_max {
                let closed = self.connection.poll_closed(cx);
                return closed.map(|closed| closed.err().and_then(|error| reason_of(&error)));
            }
            match self.connection.poll_accept(cx) {
                Poll::Ready(Some(Ok((_, mut respond)))) if self.has_left() => {
                    respond.send_reset(h2::Reason::REFUSED_STREAM);
                }
                Poll::Ready(Some(Ok((request, respond)))) => {
                    let arrived = Arrived { request, respond };
                    let open = self.shared.enter();
                    self.shared.worker.streams.serve(open, arrived);
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(reason_of(&error)),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Sends GOAWAY, and serves the streams that are open.
    fn leave(&mut self) {
        self.connection.graceful_shutdown();
        self.state = State::Leaving(Instant::now());
    }

    /// Whether the client should know of the GOAWAY. `h2` accepts its streams until it has answered
    /// a PING.
    fn has_left(&self) -> bool {
        matches!(self.state, State::Leaving(since) if since.elapsed() >= LEAVE_WITHIN)
    }

    /// Sends the last GOAWAY.
    fn cut(&mut self, reason: Option<Reason>) {
        let code = match reason {
            Some(_) => h2::Reason::ENHANCE_YOUR_CALM,
            None => h2::Reason::NO_ERROR,
        };
        self.connection.abrupt_shutdown(code);
        self.state = State::Cut(reason);
    }

    /// Whether there was no open stream, and nothing was sent, for as long as the client may be
    /// idle.
    fn is_idle_for_too_long(&self, idle: &mut Idle) -> bool {
        let deadline = &self.client.deadline;
        let moved = (self.client.client.sent(), self.client.client.received());
        let is_cutting = self.shared.worker.phase.get() == Phase::Cutting;
        if self.shared.open.get() > 0 && !matches!(self.state, State::Cut(_)) {
            idle.since = None;
            deadline.clear();
            return false;
        }
        let sent = match idle.since {
            Some(since) if since.has_sent_data(moved) => moved.0 - since.sent,
            Some(_) => return deadline.is_past() || is_cutting,
            None => 0,
        };
        // `h2` may hold whole responses for the client.
        idle.taking.note(deadline, sent, true);
        idle.since = Some(Moved { sent: moved.0, received: moved.1 });
        let within = match self.state {
            State::Serving => self.shared.door.view().config.timeouts.idle,
            State::Leaving(_) | State::Cut(_) => LEAVE_WITHIN,
        };
        deadline.set(Instant::now(), within);
        false
    }
}

/// A connection without open streams.
struct Idle {
    /// When the deadline was set.
    since: Option<Moved>,
    taking: Taking,
}

/// Bytes that were sent to the client and received from it, ever.
#[derive(Clone, Copy)]
struct Moved {
    sent: u64,
    received: u64,
}

impl Moved {
    /// Whether some of a response has been sent since. The answers to PING and SETTINGS are not
    /// longer than these.
    fn has_sent_data(self, (sent, received): (u64, u64)) -> bool {
        sent - self.sent > received - self.received
    }
}

/// The reason of a connection's end; none if the client has just closed it.
fn reason_of(error: &h2::Error) -> Option<Reason> {
    match error.reason() {
        None | Some(h2::Reason::NO_ERROR) => None,
        Some(_) if error.is_remote() => None,
        Some(h2::Reason::ENHANCE_YOUR_CALM) => Some(Reason::Http2Flood),
        Some(_) => Some(Reason::Http2Protocol),
    }
}
