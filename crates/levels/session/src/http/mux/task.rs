//! The task that reads and writes one multiplexed session.

mod wait;

use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::time::Sleep;

use self::wait::WaitingFor;
use super::behind::{Behind, Unusable};
use super::pace::Pace;
use super::session::MuxSession;
use super::ticket::Lost;
use crate::backend_tls::UpstreamTls;
use crate::buffer::Buffer;
use crate::config::Upstream;
use crate::deadline::Deadline;
use crate::http::head::{Framing, HeadScanner};
use crate::http::pump::{Pump, Shape};
use crate::http::response::{HEAD_BYTES_MAX, Reply, ResponseHead, read_response};
use crate::http::routing::edits;
use crate::lease::{Lease, outcome_of};
use crate::reason::Reason;
use crate::snapshot::BackendView;
use crate::socket::poll_fill;
use crate::stats::count_status;
use crate::upstream::Session;
use crate::worker::{Phase, Worker};

/// A response that leaves more than this unsent, or is longer, is not for a shared session.
pub(super) const LARGE_BYTES: u64 = 64 << 10;

/// The other end of a session, and its bounds.
pub(super) struct Target {
    backend: BackendView,
    tls: Option<UpstreamTls>,
    connect: Duration,
    idle: Duration,
    slow: Duration,
    response: Duration,
    idle_sessions_max: usize,
}

impl Target {
    pub(super) fn of(lease: &Lease) -> Target {
        let options = &lease.pool().options;
        Target {
            backend: lease.backend().clone(),
            tls: options.tls.clone(),
            connect: options.connect_timeout,
            idle: options.session_idle_timeout,
            slow: options.multiplex_slow,
            response: options.response_timeout,
            idle_sessions_max: options.idle_sessions_max,
        }
    }
}

/// Owns a session to `target`, until it ends, or is set aside and has all its responses.
pub(super) async fn run(
    worker: Rc<Worker>,
    shared: Rc<MuxSession>,
    target: Target,
    pace: Rc<Pace>,
) {
    let (backend, tls) = (&target.backend, target.tls.as_ref());
    let session = match worker.idle.take(backend, tls) {
        Some(session) => session,
        None => {
            let open = Session::open(backend, tls, None, &worker, || ());
            let Ok(Ok(session)) = tokio::time::timeout(target.connect, open).await else {
                // Waiting requests try an exclusive session, which counts the reason of the
                // failure.
                shared.close(Lost::Unsent);
                return;
            };
            Box::new(session)
        }
    };
    shared.remote.set(session.remote());
    let deadline = Deadline::of_this_task(&worker.deadlines).await;
    let instance = worker.shared.instance.clone();
    let mut task = Task {
        worker,
        shared,
        target,
        pace,
        instance,
        deadline,
        check: None,
        before: session.written,
        session: Some(session),
        writing: Vec::new(),
        written: 0,
        input: None,
        scanner: HeadScanner::default(),
        current: None,
        answer: Vec::new(),
        outstanding: 0,
        behind: None,
        next_since: Instant::now(),
        next_at: 0,
        completed: 0,
        armed_for: None,
    };
    poll_fn(|cx| task.poll(cx)).await;
    task.end();
}

/// A response being passed on.
struct Current {
    head: ResponseHead,
    pump: Pump,
}

struct Task {
    worker: Rc<Worker>,
    shared: Rc<MuxSession>,
    target: Target,
    pace: Rc<Pace>,
    instance: Arc<str>,
    deadline: Deadline,
    /// The next check for a late response, and the response that was next at the last one.
    check: Option<(Pin<Box<Sleep>>, u64)>,
    /// `None` after it was handed over.
    session: Option<Box<Session>>,
    /// Bytes that were written to it before it was shared.
    before: u64,
    writing: Vec<u8>,
    written: usize,
    input: Option<Buffer>,
    scanner: HeadScanner,
    current: Option<Current>,
    answer: Vec<u8>,
    /// Requests written, or being written, that have no response yet.
    outstanding: usize,
    /// It is set aside: the responses behind the late one.
    behind: Option<Behind>,
    /// Since when the response at the front has been the next.
    next_since: Instant,
    /// The count of the backend's responses then.
    next_at: u64,
    /// Responses so far.
    completed: u64,
    /// The wait that the deadline was last set for.
    armed_for: Option<WaitingFor>,
}

impl Task {
    /// Ready when the session is over.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut waker = self.shared.waker.borrow_mut();
        if waker.as_ref().is_none_or(|known| !known.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        drop(waker);
        let now = Instant::now();
        if self.is_unasked() {
            return Poll::Ready(());
        }
        self.poll_write(cx, now);
        while let Poll::Ready(read) = self.poll_read(cx) {
            if !read || !self.pass_on(now) {
                return Poll::Ready(());
            }
        }
        if self.behind.is_some() && self.outstanding == 0 {
            self.give_back(now);
            return Poll::Ready(());
        }
        self.look_for_late(cx, now);
        let ended = self.look_at_time(now);
        if self.is_given_up() { Poll::Ready(()) } else { ended }
    }

    /// Whether the backend has closed, or says something, while no request was with it: what came
    /// could otherwise be taken for the response to the next one.
    fn is_unasked(&self) -> bool {
        let Some(session) = &self.session else { return true };
        let is_unasked = self.outstanding == 0 && !session.socket.is_silent();
        if is_unasked && session.socket.holds_input() {
            self.lose_multiplexing();
        }
        is_unasked
    }

    /// Leaves the backend to exclusive sessions: its responses cannot be separated reliably.
    fn lose_multiplexing(&self) {
        self.target.backend.live.lose_multiplexing(self.worker.index);
    }

    /// Writes the collected requests. A backend that accepts no more bytes may still have
    /// responded, so only reading shows its end.
    fn poll_write(&mut self, cx: &mut Context<'_>, now: Instant) {
        let Some(session) = &mut self.session else { return };
        loop {
            if self.written == self.writing.len() {
                self.writing.clear();
                self.written = 0;
                mem::swap(&mut self.writing, &mut *self.shared.out.borrow_mut());
                if self.writing.is_empty() {
                    return;
                }
                if self.outstanding == 0 {
                    (self.next_since, self.next_at) = (now, self.pace.count());
                }
                self.outstanding = self.shared.queue.borrow().len();
            }
            match session.socket.poll_write(cx, &self.writing[self.written..]) {
                Poll::Ready(Ok(count)) => {
                    self.written += count;
                    session.written += count as u64;
                    let stats = self.target.backend.live.stats.shard(self.worker.index);
                    stats.bytes_out.add(count as u64);
                }
                Poll::Ready(Err(_)) | Poll::Pending => return,
            }
        }
    }

    /// Reads some responses; false at the end.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let Some(session) = &self.session else { return Poll::Ready(false) };
        let read = ready!(poll_fill(cx, &session.socket, &mut self.input, &self.worker.buffers));
        let count = read.unwrap_or(0);
        self.target.backend.live.stats.shard(self.worker.index).bytes_in.add(count as u64);
        Poll::Ready(count > 0)
    }

    /// The session is over. A response in progress is cut, and requests without a response are sent
    /// again.
    fn end(&mut self) {
        if self.current.take().is_some() {
            let removed = self.target.backend.live.cut.load(Relaxed);
            self.cut(if removed { Reason::BackendRemoved } else { Reason::UpstreamClosed });
            self.outstanding -= 1;
        }
        let is_new = self.completed == 0 && !self.session.as_ref().is_some_and(|it| it.reused);
        self.shared.close(match self.outstanding {
            0 => Lost::Behind,
            _ if is_new => Lost::NextOnNew,
            _ => Lost::NextOnUsed,
        });
    }

    /// Forwards received bytes. Returns false if the session is over.
    fn pass_on(&mut self, now: Instant) -> bool {
        loop {
            if let Some(goes_on) = self.discard(now) {
                return goes_on;
            }
            let Some(input) = &mut self.input else { return true };
            if input.is_empty() {
                self.input = None;
                return true;
            }
            let queue = self.shared.queue.borrow();
            // The bytes belong to no request: one that is not written yet has no response.
            let Some(slot) = queue.front().filter(|_| self.outstanding > 0) else {
                self.lose_multiplexing();
                return false;
            };
            if self.current.is_none() {
                let close = slot.close
                    || slot.ticket.door.closing.get()
                    || self.worker.phase.get() != Phase::Running;
                let via = slot.via.then_some(&*self.instance);
                let node_fields = slot.node_fields.within(|| slot.lease.room());
                let edits = edits(&slot.view, slot.routed.as_ref());
                let scheme = slot.view.config.scheme();
                let edits = edits.of_backend(&slot.lease, slot.sticky, scheme);
                let edits = edits.timed(slot.timing(now));
                let reply = Reply { request: &slot.head, close, via, edits, node_fields };
                match read_response(input, &mut self.scanner, &reply, &mut self.answer) {
                    Ok(Some(head)) => {
                        input.consume(head.bytes);
                        self.scanner = HeadScanner::default();
                        if head.is_doubtful {
                            self.target.backend.live.lose_multiplexing(self.worker.index);
                        }
                        if head.is_interim() {
                            if !slot.head.http10 {
                                slot.ticket.deliver(&self.answer);
                            }
                            self.answer.clear();
                            if slot.ticket.leftover.borrow().len() as u64 > LARGE_BYTES {
                                // Interim responses without end, to a client that does not read.
                                drop(queue);
                                self.cut_malformed();
                                return false;
                            }
                            continue;
                        }
                        slot.ticket.responds();
                        slot.lease.went(outcome_of(head.status));
                        let shape = Shape::of_response(head.framing, &slot.head);
                        let pump = Pump::new(head.framing, shape, None);
                        self.current = Some(Current { head, pump });
                    }
                    Ok(None) => {
                        if input.is_full() {
                            input.grow(HEAD_BYTES_MAX + 1);
                        }
                        return true;
                    }
                    Err(_) => {
                        self.target.backend.say_wrong_protocol(Upstream::Multiplexed, input);
                        drop(queue);
                        self.refuse();
                        return false;
                    }
                }
            }
            drop(queue);
            if !self.pass_body(now) {
                return false;
            }
        }
    }

    /// Discards responses behind a late one that was passed on. False: the session is over. `None`:
    /// no such response is left.
    fn discard(&mut self, now: Instant) -> Option<bool> {
        let behind = self.behind.as_mut().filter(|_| self.shared.in_flight() == 0)?;
        let before = behind.left();
        let discarded = behind.discard(&mut self.input);
        let count = before - behind.left();
        self.outstanding -= count;
        self.completed += count as u64;
        if count > 0 {
            self.is_next(now);
        }
        if discarded == Err(Unusable::Malformed) {
            self.lose_multiplexing();
        }
        let is_over = discarded.is_err();
        (is_over || self.outstanding > 0).then_some(!is_over)
    }

    /// The response at the front is next from now on.
    fn is_next(&mut self, now: Instant) {
        (self.next_since, self.next_at) = (now, self.pace.count());
    }

    /// Passes on the body of the current response; false if the session is over.
    fn pass_body(&mut self, now: Instant) -> bool {
        let Some(current) = &mut self.current else { return true };
        let drained = current.pump.drain_into(&mut self.input, &mut self.answer);
        let queue = self.shared.queue.borrow();
        let Some(slot) = queue.front() else { return false };
        if drained.is_err() {
            drop(queue);
            self.refuse();
            return false;
        }
        slot.ticket.deliver(&self.answer);
        self.answer.clear();
        let unsent = slot.ticket.leftover.borrow().len() as u64;
        if unsent > 0 {
            slot.lease.give_permit_back();
        }
        let done = current.pump.is_done();
        let (left, keep_alive) = (current.pump.left_at_least(), current.head.keep_alive);
        drop(queue);
        if done {
            self.complete(now);
            return keep_alive;
        }
        if left.max(unsent) > LARGE_BYTES || current.head.framing == Framing::UntilClose {
            self.hand_over();
            return false;
        }
        true
    }

    /// The response at the front was passed on whole.
    fn complete(&mut self, now: Instant) {
        let Some(current) = self.current.take() else { return };
        let Some(slot) = self.shared.queue.borrow_mut().pop_front() else { return };
        let took = now.saturating_duration_since(slot.leased);
        if self.behind.is_none() {
            self.pace.answered(now.saturating_duration_since(self.next_since));
        }
        self.completed += 1;
        self.outstanding -= 1;
        self.is_next(now);
        let status = current.head.status;
        let stats = slot.lease.stats();
        count_status(&stats.responses, status);
        self.worker.backend_answered(&slot.lease, status, took, now);
        slot.ticket.finish(&slot, &current.head, now);
    }

    /// The first response cannot be parsed. After another response, the bytes may be a surplus of
    /// that response. The request is then retried over an exclusive session, where the next
    /// response is its own.
    fn refuse(&mut self) {
        self.lose_multiplexing();
        if self.completed == 0 || self.current.is_some() {
            self.cut_malformed();
        }
    }

    /// The response at the front is not HTTP.
    fn cut_malformed(&mut self) {
        self.current = None;
        self.cut(Reason::UpstreamMalformed);
        self.outstanding = 0;
    }

    /// The response at the front cannot be passed on to its end.
    fn cut(&mut self, reason: Reason) {
        let Some(slot) = self.shared.queue.borrow_mut().pop_front() else { return };
        self.worker.backend_failed(&slot.lease, reason);
        slot.ticket.cut(reason);
    }
}
