//! A client's connection.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use h3::error::{Code, ConnectionError, LocalError};
use h3::frame::FrameStream;
use h3::server::Connection;
use h3::stream::BufRecvStream;
use rustls::pki_types::CertificateDer;

use super::frames::code_of;
use super::quic::{Quic, Request};
use super::request::{self, Arrived};
use super::{field_bytes_max, reset};
use crate::deadline::Deadline;
use crate::door::Door;
use crate::http::http2::downstream::LEAVE_WITHIN;
use crate::http::identity_lines;
use crate::http::logged::log_unread;
use crate::http::resets::Resets;
use crate::reason::Reason;
use crate::worker::{ClientHashes, Phase, Worker};

/// State that the streams of a connection share.
pub(super) struct Shared {
    pub(super) worker: Rc<Worker>,
    pub(super) door: Rc<Door>,
    pub(super) peer: SocketAddr,
    pub(super) hashes: ClientHashes,
    /// Header lines about the client's certificate.
    pub(super) identity: Option<Rc<[u8]>>,
    /// Requests that are served.
    open: Cell<usize>,
    pub(super) resets: Resets,
    /// Why the connection has to be closed.
    failed: Cell<Option<Code>>,
    /// The task of the connection.
    waker: RefCell<Option<Waker>>,
}

impl Shared {
    /// Has the connection closed.
    pub(super) fn fail(&self, code: Code) {
        self.failed.set(Some(code));
    }
}

/// Keeps a request counted.
pub(super) struct Open(pub(super) Rc<Shared>);

impl Open {
    fn new(shared: &Rc<Shared>) -> Open {
        shared.open.set(shared.open.get() + 1);
        Open(Rc::clone(shared))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
        if let Some(waker) = &*self.0.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

/// The progress towards the end of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Serving,
    /// GOAWAY was sent; requests below this stream are served.
    Leaving(u64),
}

enum Event {
    Request(Request),
    Leave,
    Ended(Option<Reason>),
}

struct Serving {
    connection: Connection<Quic, Bytes>,
    quic: quinn::Connection,
    shared: Rc<Shared>,
    deadline: Deadline,
    state: State,
    /// No request is served, and the deadline is set.
    is_idle: bool,
    /// The first stream that has not arrived.
    next_stream: u64,
}

/// Serves a connection after its handshake.
pub(super) async fn serve(
    worker: &Rc<Worker>,
    door: &Rc<Door>,
    quic: quinn::Connection,
    peer: SocketAddr,
) {
    let deadline = Deadline::of_this_task(&worker.deadlines).await;
    let view = door.view();
    let mut builder = h3::server::builder();
    builder.max_field_section_size(field_bytes_max(&view.config.limits)).send_grease(false);
    let built = builder.build(Quic::new(quic.clone()));
    let within = view.config.timeouts.header;
    // A client that permits no stream gets no settings.
    let Ok(Ok(connection)) = tokio::time::timeout(within, built).await else {
        quic.close(code_of(Code::H3_CLOSED_CRITICAL_STREAM), &[]);
        return;
    };
    let certificate = certificate(&quic);
    let shared = Shared {
        worker: Rc::clone(worker),
        door: Rc::clone(door),
        peer,
        hashes: ClientHashes::new(peer, view.config.listen),
        identity: certificate.and_then(|it| identity_lines(door, &it)),
        open: Cell::new(0),
        resets: Resets::new(Instant::now()),
        failed: Cell::new(None),
        waker: RefCell::default(),
    };
    let serving = Serving {
        connection,
        quic,
        shared: Rc::new(shared),
        deadline,
        state: State::Serving,
        is_idle: false,
        next_stream: 0,
    };
    if let Some(reason) = serving.run().await {
        door.dropped(reason);
        log_unread(worker, door, peer, reason);
    }
}

/// The certificate that the client showed.
fn certificate(quic: &quinn::Connection) -> Option<CertificateDer<'static>> {
    let chain = quic.peer_identity()?.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    chain.into_iter().next()
}

impl Serving {
    /// Serves requests to the end of the connection. Returns the reason if it ended badly.
    async fn run(mut self) -> Option<Reason> {
        let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
        *self.shared.waker.borrow_mut() = Some(waker);
        loop {
            match poll_fn(|cx| self.poll(cx)).await {
                Event::Request(request) => self.begin(request),
                Event::Leave => {
                    // The next stream is the first that is not served. `h3` would accept it.
                    self.state = State::Leaving(self.next_stream);
                    self.is_idle = false;
                    let sent = self.connection.shutdown(1);
                    if !matches!(tokio::time::timeout(LEAVE_WITHIN, sent).await, Ok(Ok(()))) {
                        return None;
                    }
                }
                Event::Ended(reason) => return reason,
            }
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        if let Some(code) = self.shared.failed.take() {
            self.quic.close(code_of(code), &[]);
            // Counted with the request that was at fault.
            return Poll::Ready(Event::Ended(None));
        }
        if self.shared.resets.are_too_many() {
            self.quic.close(code_of(Code::H3_EXCESSIVE_LOAD), &[]);
            return Poll::Ready(Event::Ended(Some(Reason::Http3Flood)));
        }
        match self.connection.poll_accept_request_stream(cx) {
            Poll::Ready(Ok(Some(request))) => return Poll::Ready(Event::Request(request)),
            // All requests have ended. A client may close later.
            Poll::Ready(Ok(None)) | Poll::Pending => {}
            Poll::Ready(Err(error)) => return Poll::Ready(Event::Ended(reason_of(&error))),
        }
        let Shared { worker, door, open, .. } = &*self.shared;
        let view = door.view();
        let is_stopping = door.closing.get()
            || view.config.http3.is_none()
            || worker.phase.get() != Phase::Running;
        if is_stopping && self.state == State::Serving {
            return Poll::Ready(Event::Leave);
        }
        // The successor reads from the same socket.
        let may_wait = open.get() > 0 && !(is_stopping && door.is_handed_over());
        if may_wait {
            self.deadline.clear();
            self.is_idle = false;
            return Poll::Pending;
        }
        if worker.phase.get() == Phase::Cutting {
            return Poll::Ready(Event::Ended(None));
        }
        if !std::mem::replace(&mut self.is_idle, true) {
            let within = match self.state {
                State::Serving => view.config.timeouts.idle,
                State::Leaving(_) => LEAVE_WITHIN,
            };
            self.deadline.set(Instant::now(), within);
        }
        match (self.deadline.is_past(), self.state) {
            (false, _) => Poll::Pending,
            (true, State::Serving) => Poll::Ready(Event::Leave),
            (true, State::Leaving(_)) => Poll::Ready(Event::Ended(None)),
        }
    }

    fn begin(&mut self, mut request: Request) {
        let id = request.id;
        let Some((mut send, mut receive, memory)) = request.take_streams() else { return };
        if matches!(self.state, State::Leaving(first) if id >= first) {
            reset(&mut send, Code::H3_REQUEST_REJECTED);
            let _ = receive.stop(code_of(Code::H3_REQUEST_REJECTED));
            return;
        }
        self.next_stream = self.next_stream.max(id + 4);
        let resolver =
            self.connection.create_resolver(FrameStream::new(BufRecvStream::new(request)));
        let open = Open::new(&self.shared);
        let arrived = Arrived { send, receive, resolver, memory };
        tokio::task::spawn_local(request::serve(open, arrived));
    }
}

/// The reason of a connection's end; none if the client has just closed it.
fn reason_of(error: &ConnectionError) -> Option<Reason> {
    match error {
        ConnectionError::Local { error: LocalError::Application { code, .. } }
            if *code != Code::H3_NO_ERROR =>
        {
            Some(Reason::Http3Protocol)
        }
        _ => None,
    }
}
