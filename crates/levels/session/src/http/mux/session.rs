//! The task that owns one multiplexed session.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::mem;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use super::ticket::{HandOver, Lost, Slot, State};
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
const LARGE_BYTES: u64 = 64 << 10;

/// A session that requests of many clients are put on.
pub(super) struct MuxSession {
    /// Requests not yet written.
    out: RefCell<Vec<u8>>,
    /// Requests written or about to be, in order.
    queue: RefCell<VecDeque<Slot>>,
    waker: RefCell<Option<Waker>>,
    open: Cell<bool>,
    /// The address at the other end; `None` while it connects, and for a unix socket.
    remote: Cell<Option<SocketAddr>>,
    /// A request was put on it before.
    used: Cell<bool>,
    /// Bytes of all requests that were put on it.
    pushed: Cell<u64>,
    /// How long a response takes once it is next, nanoseconds; an average of the last few.
    turn_ns: Cell<u64>,
}

impl MuxSession {
    /// Starts a session to the leased backend; requests may be put on it before it is connected.
    pub(super) fn start(worker: &Rc<Worker>, lease: &Lease) -> Rc<MuxSession> {
        let session = Rc::new(MuxSession {
            out: RefCell::default(),
            queue: RefCell::default(),
            waker: RefCell::default(),
            open: Cell::new(true),
            remote: Cell::new(None),
            used: Cell::new(false),
            pushed: Cell::new(0),
            turn_ns: Cell::new(0),
        });
        let (backend, tls) = (lease.backend().clone(), lease.pool().options.tls.clone());
        let task = run(worker.clone(), session.clone(), backend, tls, Times::of(lease));
        tokio::task::spawn_local(task);
        session
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.get()
    }

    /// Whether it goes to an address that the backend has now.
    pub(super) fn reaches(&self, backend: &BackendView) -> bool {
        self.remote.get().is_none_or(|remote| backend.place.includes(Some(remote)))
    }

    pub(super) fn in_flight(&self) -> usize {
        self.queue.borrow().len()
    }

    /// How long a request put on the queue now would wait for its turn.
    pub(super) fn wait(&self) -> Duration {
        Duration::from_nanos(self.turn_ns.get()).saturating_mul(self.in_flight() as u32)
    }

    /// Notes how long a response took once it was next.
    fn took_turn(&self, took: Duration) {
        let (old, new) = (self.turn_ns.get(), took.as_nanos() as u64);
        self.turn_ns.set(old - old / 8 + new / 8);
    }

    /// Puts a request on the queue.
    pub(super) fn push(&self, mut slot: Slot, request: &[u8]) {
        if self.used.replace(true) {
            slot.lease.stats().sessions_reused.add(1);
        }
        let mut out = self.out.borrow_mut();
        // The task runs after those that are ready now, and so finds their requests as well.
        if out.is_empty()
            && let Some(waker) = &*self.waker.borrow()
        {
            waker.wake_by_ref();
        }
        out.extend_from_slice(request);
        self.pushed.set(self.pushed.get() + request.len() as u64);
        slot.end = self.pushed.get();
        self.queue.borrow_mut().push_back(slot);
    }

    /// Takes no more requests. Those on the queue are sent again elsewhere. `next` is the fate of
    /// the first of them.
    fn close(&self, next: Lost) {
        self.open.set(false);
        let rest = if next == Lost::Unsent { Lost::Unsent } else { Lost::Behind };
        let fates = std::iter::once(next).chain(std::iter::repeat(rest));
        for (slot, fate) in self.queue.take().into_iter().zip(fates) {
            if fate == Lost::Behind {
                slot.lease.stats().multiplex_repeated.add(1);
            }
            if matches!(fate, Lost::Behind | Lost::Unsent) {
                slot.lease.not_begun();
            }
            slot.ticket.tell(State::Lost(fate));
        }
    }
}

/// The bounds that a session keeps to.
#[derive(Clone, Copy)]
struct Times {
    connect: Duration,
    idle: Duration,
    slow: Duration,
}

impl Times {
    fn of(lease: &Lease) -> Times {
        let options = &lease.pool().options;
        Times {
            connect: options.connect_timeout,
            idle: options.session_idle_timeout,
            slow: options.multiplex_slow,
        }
    }
}

async fn run(
    worker: Rc<Worker>,
    shared: Rc<MuxSession>,
    backend: BackendView,
    tls: Option<UpstreamTls>,
    times: Times,
) {
    let session = match worker.idle.take(&backend, tls.as_ref()) {
        Some(session) => session,
        None => {
            let open = Session::open(&backend, tls.as_ref(), None, &worker, || ());
            let Ok(Ok(session)) = tokio::time::timeout(times.connect, open).await else {
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
        backend,
        instance,
        deadline,
        times,
        before: session.written,
        session: Some(session),
        writing: Vec::new(),
        written: 0,
        input: None,
        scanner: HeadScanner::default(),
        current: None,
        answer: Vec::new(),
        outstanding: 0,
        next_since: Instant::now(),
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
    backend: BackendView,
    instance: Arc<str>,
    deadline: Deadline,
    times: Times,
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
    /// Since when the response at the front has been the next.
    next_since: Instant,
    /// Responses passed on so far.
    completed: u64,
    /// The last setting of the deadline: an idle session, or the number of the awaited response.
    armed_for: Option<(bool, u64)>,
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
        self.look_at_time(now)
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
        self.backend.live.lose_multiplexing(self.worker.index);
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
                if self.outstanding == 0 {
                    self.next_since = now;
                }
                self.outstanding = self.shared.queue.borrow().len();
                if self.writing.is_empty() {
                    return;
                }
            }
            match session.socket.poll_write(cx, &self.writing[self.written..]) {
                Poll::Ready(Ok(count)) => {
                    self.written += count;
                    session.written += count as u64;
                    self.backend.live.stats.shard(self.worker.index).bytes_out.add(count as u64);
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
        self.backend.live.stats.shard(self.worker.index).bytes_in.add(count as u64);
        Poll::Ready(count > 0)
    }

    /// The session is over. A response in progress is cut, and requests without a response are sent
    /// again.
    fn end(&mut self) {
        if self.current.take().is_some() {
            let removed = self.backend.live.cut.load(Relaxed);
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
                let reply = Reply { request: &slot.head, close, via, edits, node_fields };
                match read_response(input, &mut self.scanner, &reply, &mut self.answer) {
                    Ok(Some(head)) => {
                        input.consume(head.bytes);
                        self.scanner = HeadScanner::default();
                        if head.is_doubtful {
                            self.backend.live.lose_multiplexing(self.worker.index);
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
                        self.backend.say_wrong_protocol(Upstream::Multiplexed, input);
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
        self.completed += 1;
        self.shared.took_turn(now.saturating_duration_since(self.next_since));
        self.next_since = now;
        self.outstanding -= 1;
        let status = current.head.status;
        let stats = slot.lease.stats();
        count_status(&stats.responses, status);
        let took = now.saturating_duration_since(slot.leased);
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

    /// Gives the session to the client at the front; the requests behind are sent again elsewhere.
    fn hand_over(&mut self) {
        let mut queue = self.shared.queue.borrow_mut();
        let (Some(slot), Some(mut session)) = (queue.pop_front(), self.session.take()) else {
            return;
        };
        drop(queue);
        let written = session.written - self.before;
        let leaves = written + session.socket.pending() as u64;
        session.reused |= self.completed > 0;
        self.outstanding = 0;
        slot.lease.stats().multiplex_handed_over.add(1);
        self.worker.mux.note_slow(self.backend.id, slot.path);
        let unsent = slot.end.saturating_sub(written);
        let hand_over = HandOver {
            lease: slot.lease,
            session,
            input: self.input.take().filter(|input| !input.is_empty()),
            response: self.current.take().map(|current| (current.head, current.pump)),
            shared: leaves > slot.end,
            unsent: usize::try_from(unsent).unwrap_or(usize::MAX),
        };
        slot.ticket.tell(State::HandedOver(Box::new(hand_over)));
    }

    /// Ends the session when it is idle for too long or cut, hands it over when its response is
    /// slow.
    fn look_at_time(&mut self, now: Instant) -> Poll<()> {
        let idle = self.shared.queue.borrow().is_empty();
        let phase = self.worker.phase.get();
        if phase == Phase::Cutting || self.backend.live.cut.load(Relaxed) {
            return Poll::Ready(());
        }
        if idle && phase == Phase::Draining {
            return Poll::Ready(());
        }
        let waiting_for = (idle, self.completed);
        if self.armed_for.replace(waiting_for) != Some(waiting_for) {
            self.deadline.set(now, if idle { self.times.idle } else { self.times.slow });
        } else if self.deadline.is_past() {
            if !idle {
                self.hand_over();
            }
            return Poll::Ready(());
        }
        Poll::Pending
    }
}
