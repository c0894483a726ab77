//! The tasks that run the engine for clients' streams. A task that has served its stream waits for
//! another one: to start a task costs more than to wake it.

use std::cell::{Cell, RefCell, RefMut};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{Method, Request, Response, StatusCode};

use super::Open;
use super::priority::Priority;
use super::request::{is_known_tunnel, is_tunnel, write_head};
use super::response::{Asked, KnownFields};
use super::stream::{Ended, Http2Stream, Turns};
use crate::deadline::Deadline;
use crate::http::connection::ClientConnection;
use crate::http::http2::Message;
use crate::http::http2::incoming::Incoming;
use crate::http::logged::log_unread;
use crate::http::served::{ServedStream, run_engine, send_rest};
use crate::http::version::ClientVersion;
use crate::reason::Reason;
use crate::socket::Socket;
use crate::stats::count_status;
use crate::worker::{Phase, Worker};

/// Tasks that wait for a stream, at the most. One takes 10 KB or less.
const WAITING_MAX: usize = 64;

/// A stream with its request's head.
pub(super) struct Arrived {
    pub(super) request: Request<RecvStream>,
    pub(super) respond: SendResponse<Bytes>,
}

/// State that a thread's streams share: tasks that wait for one, and fields of responses.
#[derive(Default)]
pub(crate) struct StreamTasks {
    waiting: RefCell<Vec<Rc<Seat>>>,
    known_fields: RefCell<KnownFields>,
}

/// The next stream of a task.
struct Seat {
    next: Cell<Option<(Open, Arrived)>>,
    waker: RefCell<Waker>,
}

impl StreamTasks {
    /// Has a task serve a stream.
    pub(super) fn serve(&self, open: Open, arrived: Arrived) {
        let waiting = self.waiting.borrow_mut().pop();
        match waiting {
            Some(seat) => {
                seat.next.set(Some((open, arrived)));
                seat.waker.borrow().wake_by_ref();
            }
            None => {
                let worker = Rc::clone(&open.0.worker);
                let next = Cell::new(Some((open, arrived)));
                let seat = Seat { next, waker: RefCell::new(Waker::noop().clone()) };
                tokio::task::spawn_local(run(worker, Rc::new(seat)));
            }
        }
    }

    /// Fields of earlier responses.
    pub(in crate::http) fn known_fields(&self) -> RefMut<'_, KnownFields> {
        self.known_fields.borrow_mut()
    }

    /// Has the task of `seat` wait for a stream; false if enough tasks wait.
    fn wait(&self, seat: &Rc<Seat>) -> bool {
        let mut waiting = self.waiting.borrow_mut();
        let has_room = waiting.len() < WAITING_MAX;
        if has_room {
            waiting.push(Rc::clone(seat));
        }
        has_room
    }
}

async fn run(worker: Rc<Worker>, seat: Rc<Seat>) {
    let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
    *seat.waker.borrow_mut() = waker.clone();
    let mut deadline = Rc::new(worker.deadlines.register(waker.clone()));
    loop {
        let (open, arrived) = poll_fn(|_| match seat.next.take() {
            Some(next) => Poll::Ready(next),
            None => Poll::Pending,
        })
        .await;
        serve(open, arrived, &waker, &deadline).await;
        deadline.clear();
        if Rc::strong_count(&deadline) > 1 {
            deadline = Rc::new(worker.deadlines.register(waker.clone()));
        }
        if worker.phase.get() != Phase::Running || !worker.streams.wait(&seat) {
            return;
        }
    }
}

/// Serves a stream to its end. `waker` and `deadline` are those of this task.
async fn serve(open: Open, mut arrived: Arrived, waker: &Waker, deadline: &Rc<Deadline>) {
    let shared = &open.0;
    let (worker, door) = (&shared.worker, &shared.door);
    let _task = worker.task();
    let (parts, body) = arrived.request.into_parts();
    if !is_known_tunnel(&parts) {
        let reason = Reason::TunnelProtocol;
        door.dropped(reason);
        door.stats(|stats| count_status(&stats.responses, reason.status()));
        log_unread(worker, door, shared.peer, reason);
        let mut refused = Response::new(());
        *refused.status_mut() = StatusCode::NOT_IMPLEMENTED;
        // The client may have reset the stream.
        drop(arrived.respond.send_response(refused, true));
        return;
    }
    let mut head = Vec::with_capacity(512);
    let Ok(framing) = write_head(&parts, !body.is_end_stream(), &mut head) else {
        door.dropped(Reason::Http2Protocol);
        log_unread(worker, door, shared.peer, Reason::Http2Protocol);
        arrived.respond.send_reset(h2::Reason::PROTOCOL_ERROR);
        shared.resets.add(Instant::now());
        return;
    };
    let asked = match parts.method {
        Method::HEAD => Asked::Head,
        _ if is_tunnel(&parts) => Asked::Tunnel,
        _ => Asked::Usual,
    };
    let priority = Priority::default().changed_by(&parts.headers);
    drop(parts);
    let request = Incoming::new(body, Message::Request, framing, head);
    let all = Rc::clone(&shared.urgencies);
    let turns = Turns { priority, all, next: None, own: None };
    let (waker, worker) = (waker.clone(), Rc::clone(worker));
    let stream = Http2Stream::new(request, arrived.respond, asked, turns, waker, worker);
    let stream = Rc::new(stream);
    let client = ClientConnection {
        version: ClientVersion::Http2,
        identity: shared.identity.clone(),
        proxy: shared.proxy.clone(),
        under: Some(Rc::clone(&shared.socket)),
        ..ClientConnection::new(
            shared.worker.clone(),
            door.clone(),
            Socket::of_client(stream.clone()),
            shared.peer,
            shared.hashes,
            Rc::clone(deadline),
        )
    };
    run_engine(client, &*stream).await;
    stream.finish();
    let ended = match stream.ended() {
        Some(ended) => ended,
        None => send_rest(&*stream, &shared.worker, door, deadline).await,
    };
    match ended {
        Ended::Whole => shared.resets.ended(),
        Ended::Cut => {}
        Ended::Reset => shared.resets.add(Instant::now()),
    }
}
