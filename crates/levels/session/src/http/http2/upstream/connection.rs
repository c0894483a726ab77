//! A connection to a backend, and the task that moves its frames.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use equipoise_tls::Protocols;
use h2::client::{Connection, SendRequest};
use http::uri::Scheme;
use tokio::sync::Notify;

use super::no_wait;
use super::stream::Http2Stream;
use super::transport::Transport;
use crate::backend_tls::UpstreamTls;
use crate::config::Upstream;
use crate::deadline::Deadline;
use crate::http::http2::{DATA_FRAME_BUDGET, SEND_BYTES_MAX, STREAM_WINDOW};
use crate::http::response::HEAD_BYTES_MAX;
use crate::lease::Lease;
use crate::permits::Work;
use crate::reason::Reason;
use crate::snapshot::BackendView;
use crate::upstream::{Session, connect_failure};
use crate::worker::{Phase, Worker};

/// Streams that were reset and may receive late frames.
const RESET_STREAMS_MAX: usize = 1000;

/// The time in which a backend has to take the last frames.
const LEAVE_WITHIN: Duration = Duration::from_secs(1);

/// A connection is silent if nothing came for so long while a request waited for its response.
const SILENT_AFTER: Duration = Duration::from_secs(5);

/// A connection that requests of many clients share.
pub(super) struct Http2Connection {
    state: RefCell<State>,
    changed: Notify,
    /// The task of the connection.
    waker: RefCell<Option<Waker>>,
    /// Requests that have a stream, or wait for one.
    places: Cell<usize>,
    /// Requests that have a stream.
    streams: Cell<usize>,
    /// It has carried a response.
    has_answered: Cell<bool>,
}

enum State {
    /// Connecting, or waiting for the backend's settings.
    Opening,
    Open {
        send: SendRequest<Bytes>,
        session: Rc<Session>,
    },
    /// No further streams: it could not be opened for this reason, or is about to end.
    Closed(Reason),
}

/// The options of the pool that a connection uses.
struct Options {
    connect: Duration,
    idle: Duration,
    streams_max: usize,
    tls: Option<UpstreamTls>,
    /// For a session of HTTP/1.1, if the pool permits that; the most that are kept.
    idle_sessions_max: Option<usize>,
}

impl Http2Connection {
    /// Starts a connection to the leased backend.
    pub(super) fn start(worker: &Rc<Worker>, lease: &Lease) -> Rc<Http2Connection> {
        let connection = Rc::new(Http2Connection {
            state: RefCell::new(State::Opening),
            changed: Notify::new(),
            waker: RefCell::default(),
            places: Cell::new(0),
            streams: Cell::new(0),
            has_answered: Cell::new(false),
        });
        let options = &lease.pool().options;
        let options = Options {
            connect: options.connect_timeout,
            idle: options.session_idle_timeout,
            streams_max: options.streams_max,
            tls: options.tls.clone(),
            idle_sessions_max: (options.upstream == Upstream::Auto)
                .then_some(options.idle_sessions_max),
        };
        let backend = lease.backend().clone();
        tokio::task::spawn_local(run(worker.clone(), connection.clone(), backend, options));
        connection
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(*self.state.borrow(), State::Open { .. })
    }

    /// Whether it takes no further streams.
    pub(super) fn is_closed(&self) -> bool {
        matches!(*self.state.borrow(), State::Closed(_))
    }

    /// Whether there is room for one more request.
    pub(super) fn has_room(&self, streams_max: usize) -> bool {
        match &*self.state.borrow() {
            State::Opening => self.places.get() < streams_max,
            State::Open { send, .. } => {
                self.places.get() < streams_max.min(send.current_max_send_streams())
            }
            State::Closed(_) => false,
        }
    }

    /// Whether it goes to an address that the leased backend has now, encrypted as its pool has it.
    pub(super) fn fits(&self, lease: &Lease) -> bool {
        match &*self.state.borrow() {
            State::Open { session, .. } => {
                let tls = lease.pool().options.tls.as_ref();
                session.reaches(lease.backend()) && session.is_good_for(tls)
            }
            State::Opening | State::Closed(_) => true,
        }
    }

    /// Counts one more request.
    pub(super) fn place(self: &Rc<Self>) -> Place {
        self.places.set(self.places.get() + 1);
        Place { connection: Rc::clone(self), has_stream: false }
    }

    /// Takes no further streams.
    pub(super) fn leave(&self) {
        self.close(Reason::UpstreamClosed);
        self.wake();
    }

    fn close(&self, reason: Reason) {
        if !self.is_closed() {
            *self.state.borrow_mut() = State::Closed(reason);
            self.changed.notify_waiters();
        }
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Bytes that were received, ever; `None` once it takes no further streams.
    fn received(&self) -> Option<u64> {
        match &*self.state.borrow() {
            State::Open { session, .. } => Some(session.socket.received()),
            State::Opening | State::Closed(_) => None,
        }
    }
}

/// Keeps a request counted at its connection.
pub(super) struct Place {
    connection: Rc<Http2Connection>,
    has_stream: bool,
}

impl Place {
    /// Waits until the connection is open.
    pub(super) async fn opened(&self) -> Result<(), Reason> {
        loop {
            let changed = self.connection.changed.notified();
            match &*self.connection.state.borrow() {
                State::Opening => {}
                State::Open { .. } => return Ok(()),
                State::Closed(reason) => return Err(*reason),
            }
            changed.await;
        }
    }

    /// A stream of the connection; `None` if it permits no more, or has closed.
    pub(super) fn session(mut self, worker: &Worker, backend: &BackendView) -> Option<Session> {
        let connection = &self.connection;
        let send = match &*connection.state.borrow() {
            State::Open { send, .. }
                if connection.streams.get() < send.current_max_send_streams() =>
            {
                // Another handle, which has no stream that waits for the backend's permission.
                send.clone()
            }
            _ => return None,
        };
        let is_used = connection.has_answered.get();
        connection.streams.set(connection.streams.get() + 1);
        self.has_stream = true;
        let stream = Http2Stream::new(send, self, Rc::clone(&worker.buffers));
        Some(Session::of_stream(Box::new(stream), backend, worker, is_used))
    }

    /// Bytes that came over the connection, ever.
    pub(super) fn received(&self) -> Option<u64> {
        self.connection.received()
    }

    /// The scheme of requests.
    pub(super) fn scheme(&self) -> Scheme {
        match &*self.connection.state.borrow() {
            State::Open { session, .. } if session.socket.tls().is_some() => Scheme::HTTPS,
            _ => Scheme::HTTP,
        }
    }

    /// Notes that a response has begun.
    pub(super) fn has_answered(&self) {
        self.connection.has_answered.set(true);
    }

    /// Notes that a request which was sent at `sent` ended without a response, when `received`
    /// bytes had come before it. A connection that has been silent since then gets no further
    /// streams: the backend may be gone.
    pub(super) fn gave_up(&self, sent: Instant, received: Option<u64>) {
        let now = self.connection.received();
        if now.is_some() && now == received && sent.elapsed() >= SILENT_AFTER {
            self.connection.leave();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let connection = &self.connection;
        connection.places.set(connection.places.get() - 1);
        if self.has_stream {
            connection.streams.set(connection.streams.get() - 1);
        }
        if connection.places.get() == 0 {
            connection.wake();
        }
    }
}

type Frames = Connection<Transport, Bytes>;

async fn run(
    worker: Rc<Worker>,
    shared: Rc<Http2Connection>,
    backend: BackendView,
    options: Options,
) {
    let deadline = Deadline::of_this_task(&worker.deadlines).await;
    deadline.set(Instant::now(), options.connect);
    let opened = {
        let mut opening = pin!(open(&worker, &backend, &options));
        poll_fn(|cx| match opening.as_mut().poll(cx) {
            Poll::Ready(opened) => Poll::Ready(opened),
            Poll::Pending if deadline.is_past() => Poll::Ready(Err(Reason::ConnectTimeout)),
            Poll::Pending if worker.phase.get() == Phase::Cutting => {
                Poll::Ready(Err(Reason::ShuttingDown))
            }
            Poll::Pending => Poll::Pending,
        })
        .await
    };
    let (send, session, frames) = match opened {
        Ok(opened) => opened,
        Err(reason) => {
            if reason == Reason::UpstreamMalformed && !backend.live.tls.speaks_http1() {
                backend.say_wrong_protocol(Upstream::Http2, &[]);
            }
            return shared.close(reason);
        }
    };
    if !shared.is_closed() {
        *shared.state.borrow_mut() = State::Open { send, session };
        shared.changed.notify_waiters();
    }
    let mut task =
        Task { worker, shared, backend, deadline, idle: options.idle, frames, armed: None };
    poll_fn(|cx| task.poll(cx)).await;
    task.shared.close(Reason::UpstreamClosed);
}

/// Opens a connection, and waits for the backend's settings, so that no request is sent to one that
/// does not speak HTTP/2, and none more than it permits.
///
/// HTTP/2 is prior knowledge, but over TLS it has to be agreed on by ALPN. A connection with
/// HTTP/1.1 becomes an idle session, if the pool permits that.
async fn open(
    worker: &Worker,
    backend: &BackendView,
    options: &Options,
) -> Result<(SendRequest<Bytes>, Rc<Session>, Frames), Reason> {
    let offers = options.idle_sessions_max.map(|_| Protocols::Http2);
    let tls = options.tls.as_ref();
    let session = Session::open_offering(backend, tls, offers, None, worker, || ()).await;
    let session = session.map_err(|error| connect_failure(&error))?;
    if session.socket.tls().is_some_and(|tls| tls.borrow().chose_http2() != Some(true)) {
        if let Some(most) = options.idle_sessions_max {
            backend.live.tls.chose_http1();
            // The request takes it from there.
            worker.idle.give(Box::new(session), Some(Work::Usual), most, Instant::now());
        }
        return Err(Reason::UpstreamMalformed);
    }
    let session = Rc::new(session);
    let transport = Transport::new(Rc::clone(&session));
    let handshake = builder(options.streams_max).handshake(transport).await;
    let (send, mut frames) = handshake.map_err(|error| reason_of(&error))?;
    poll_fn(|cx| match Pin::new(&mut frames).poll(cx) {
        Poll::Ready(Ok(())) => Poll::Ready(Err(Reason::UpstreamClosed)),
        Poll::Ready(Err(error)) => Poll::Ready(Err(reason_of(&error))),
        Poll::Pending if send.current_max_send_streams() > 0 => Poll::Ready(Ok(())),
        Poll::Pending => Poll::Pending,
    })
    .await?;
    Ok((send, session, frames))
}

fn builder(streams_max: usize) -> h2::client::Builder {
    let streams = u32::try_from(streams_max).unwrap_or(u32::MAX);
    let window_max = i32::MAX as u32;
    let mut builder = h2::client::Builder::new();
    builder
        .enable_push(false)
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(streams.saturating_mul(STREAM_WINDOW).min(window_max))
        .max_send_buffer_size(SEND_BYTES_MAX)
        .data_frame_budget(DATA_FRAME_BUDGET)
        // None before the backend's settings.
        .initial_max_send_streams(0)
        // A bound for servers: a connection to a backend may live for days.
        .max_local_error_reset_streams(None)
        .max_concurrent_reset_streams(RESET_STREAMS_MAX);
    builder
}

/// Why a connection could not be opened.
fn reason_of(error: &h2::Error) -> Reason {
    match error.is_io() || error.is_remote() {
        true => Reason::UpstreamClosed,
        false => Reason::UpstreamMalformed,
    }
}

struct Task {
    worker: Rc<Worker>,
    shared: Rc<Http2Connection>,
    backend: BackendView,
    deadline: Deadline,
    /// How long it stays open without streams.
    idle: Duration,
    frames: Frames,
    /// The wait that the deadline was set for.
    armed: Option<Wait>,
}

/// A time in which something has to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// A further stream.
    Stream,
    /// The end.
    End,
}

impl Task {
    /// Ready when the connection is over.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        *self.shared.waker.borrow_mut() = Some(cx.waker().clone());
        loop {
            if Pin::new(&mut self.frames).poll(cx).is_ready() {
                return Poll::Ready(());
            }
            if !self.stops() {
                return self.look_at_time();
            }
        }
    }

    /// Closes the connection for further streams if there is a reason to. True if it has.
    fn stops(&mut self) -> bool {
        let has_gone_away = match &mut *self.shared.state.borrow_mut() {
            State::Open { send, .. } => {
                matches!(send.poll_ready(&mut no_wait()), Poll::Ready(Err(_)))
            }
            State::Opening => false,
            State::Closed(_) => return false,
        };
        let is_unused = self.shared.places.get() == 0;
        let is_done = self.worker.phase.get() != Phase::Running
            || self.backend.live.cut.load(Relaxed)
            || (self.armed == Some(Wait::Stream) && self.deadline.is_past());
        let closes = has_gone_away || (is_unused && is_done);
        if closes {
            // Without this handle `h2` ends the connection behind its last stream.
            self.shared.close(Reason::UpstreamClosed);
        }
        closes
    }

    /// Bounds the time without streams, and the time for the last frames.
    fn look_at_time(&mut self) -> Poll<()> {
        if self.worker.phase.get() == Phase::Cutting {
            return Poll::Ready(());
        }
        let wait = match (self.shared.places.get(), self.shared.is_closed()) {
            (1.., _) => None,
            (0, false) => Some(Wait::Stream),
            (0, true) => Some(Wait::End),
        };
        if self.armed == wait {
            return match wait == Some(Wait::End) && self.deadline.is_past() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            };
        }
        self.armed = wait;
        match wait {
            None => self.deadline.clear(),
            Some(Wait::Stream) => self.deadline.set(Instant::now(), self.idle),
            Some(Wait::End) => self.deadline.set(Instant::now(), LEAVE_WITHIN),
        }
        Poll::Pending
    }
}
