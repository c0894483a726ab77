//! Copies of requests to the pool of a route's mirror. Their answers are read and dropped.
//!
//! A copy is sent by a task of its own, over a session of its own, without a queue and without
//! retries: nothing that happens to it reaches the request. Copies are bounded in number and size.
//! A copy beyond a bound is not made, and counted ([`CopyOutcome`]).

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use super::attempt::Outgoing;
use super::connection::ClientConnection;
use super::edits::ResponseEdits;
use super::head::{Framing, HeadScanner};
use super::http2::upstream::is_http2;
use super::pump::{Pump, Shape};
use super::request::RequestHead;
use super::response::{HEAD_BYTES_MAX, NodeFields, Reply, ResponseHead, read_response};
use super::routed::Routed;
use crate::buffer::Buffer;
use crate::deadline::Deadline;
use crate::lease::{Lease, outcome_of};
use crate::reason::Reason;
use crate::route::{CopyInFlight, CopyOutcome};
use crate::socket::poll_fill;
use crate::stats::count_status;
use crate::upstream::{Session, connect_failure};
use crate::worker::{ClientHashes, Phase, Pick, Worker};

/// The header field that marks a copy. Its value is the name of the route.
pub(super) const MIRRORED_FIELD: &str = "equipoise-mirrored";

/// The copy of a request.
pub(super) struct RequestCopy {
    worker: Rc<Worker>,
    routed: Routed,
    hashes: ClientHashes,
    head: RequestHead,
    /// The head as it goes to a backend, and the body as far as it has arrived.
    bytes: Vec<u8>,
    /// Bytes of the body that may follow.
    left: usize,
    in_flight: CopyInFlight,
}

impl ClientConnection {
    /// Copies the request if its route asks for it. The copy of a request with a body that is still
    /// arriving is sent when the body has been passed on. `head_bytes`: of the request's head.
    pub(super) fn begin_copy(&self, outgoing: &mut Outgoing, head_bytes: usize) {
        let Some(routed) = &self.routed else { return };
        let Some((mirror, live)) = routed.mirror() else { return };
        let is_drawn = mirror.share >= 1.0 || self.worker.sample() < mirror.share;
        if !is_drawn || outgoing.head.upgrade {
            return;
        }
        let thread = self.worker.index;
        let body_bytes = (outgoing.first.len() - head_bytes) as u64;
        let Some(left) = mirror.body_bytes_max.checked_sub(body_bytes) else {
            return live.count(thread, CopyOutcome::BodyTooLarge);
        };
        if outgoing.head.framing.exceeds(Some(mirror.body_bytes_max)) {
            return live.count(thread, CopyOutcome::BodyTooLarge);
        }
        let Some(in_flight) = live.enter(mirror.in_flight_max) else {
            return live.count(thread, CopyOutcome::InFlight);
        };
        let bytes = marked(&outgoing.first, head_bytes, &routed.route().name);
        let (worker, routed, hashes) = (Rc::clone(&self.worker), routed.clone(), self.hashes);
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let copy =
            RequestCopy { worker, routed, hashes, head: outgoing.head, bytes, left, in_flight };
        match outgoing.upload.is_done() {
            true => copy.send(),
            false => {
                outgoing.upload.copy(left);
                outgoing.copy = Some(Box::new(copy));
            }
        }
    }
}

/// A request with the mark of a copy at the end of its head.
fn marked(request: &[u8], head_bytes: usize, route: &str) -> Vec<u8> {
    let (lines, rest) = request.split_at(head_bytes - b"\r\n".len());
    let mark = format!("{MIRRORED_FIELD}: {route}\r\n");
    [lines, mark.as_bytes(), rest].concat()
}

impl RequestCopy {
    /// Sends the copy with the rest of its body; `None`: that was too large.
    pub(super) fn send_with(mut self, rest: Option<&[u8]>) {
        match rest {
            Some(rest) if rest.len() <= self.left => {
                self.bytes.extend_from_slice(rest);
                self.send();
            }
            _ => self.ended(CopyOutcome::BodyTooLarge),
        }
    }

    /// Drops the copy of a request that ended before its body did.
    pub(super) fn drop_incomplete(self) {
        self.ended(CopyOutcome::BodyIncomplete);
    }

    fn send(self) {
        let Some(pool) = self.routed.mirror_pool() else { return };
        let picked =
            self.worker.pick_for_copy(&self.routed.snapshot, pool, &self.bytes, self.hashes);
        match picked {
            Pick::Free(lease) => drop(tokio::task::spawn_local(self.run(lease))),
            Pick::Full(_) => self.ended(CopyOutcome::NoRoom),
            Pick::NoBackend => self.ended(CopyOutcome::NoBackend),
        }
    }

    fn ended(self, outcome: CopyOutcome) {
        self.in_flight.0.count(self.worker.index, outcome);
    }

    async fn run(self, lease: Lease) {
        let deadline = Deadline::of_this_task(&self.worker.deadlines).await;
        lease.stats().requests.add(1);
        let begun = Instant::now();
        let outcome = match self.exchange(&lease, &deadline).await {
            Ok(status) => {
                count_status(&lease.stats().responses, status);
                lease.went(outcome_of(status));
                let now = Instant::now();
                self.worker.backend_answered(&lease, status, now - begun, now);
                CopyOutcome::Answered
            }
            Err(reason) => {
                self.worker.backend_failed(&lease, reason);
                CopyOutcome::Failed
            }
        };
        drop(lease);
        self.ended(outcome);
    }

    /// Sends the copy, and reads the answer to its end. Returns its status.
    async fn exchange(&self, lease: &Lease, deadline: &Deadline) -> Result<u16, Reason> {
        let options = &lease.pool().options;
        deadline.set(Instant::now(), options.connect_timeout);
        let opened = self.within(lease, deadline, Reason::ConnectTimeout, self.session(lease));
        let mut session = opened.await?;
        session.look_out(options.lost_after, false);
        deadline.set(Instant::now(), options.response_timeout);
        let mut talk = Talk::default();
        let talked = self.talk(lease, &mut session, &mut talk);
        let read = self.within(lease, deadline, Reason::ResponseTimeout, talked).await;
        lease.stats().bytes_out.add(talk.sent as u64);
        let head = match read {
            // A pooled connection that turns out to be closed is no failure of the backend.
            Err(Reason::UpstreamClosed) if session.reused && !talk.has_begun => {
                return Err(Reason::ClientGone);
            }
            read => read?,
        };
        if head.is_doubtful || talk.input.is_some() {
            self.worker.framing_failed(lease);
        }
        let is_reusable = head.keep_alive
            && talk.sent == self.bytes.len()
            && talk.input.is_none()
            && !session.is_stream()
            && !lease.backend().live.is_multiplexing_lost();
        if is_reusable {
            let max = options.idle_sessions_max;
            self.worker.idle.give(session, lease.permit(), max, Instant::now());
        }
        Ok(head.status)
    }

    /// A session to the leased backend.
    async fn session(&self, lease: &Lease) -> Result<Box<Session>, Reason> {
        let (worker, options) = (&self.worker, &lease.pool().options);
        if is_http2(lease, false) {
            let opened = match worker.http2.try_open(worker, lease) {
                Some(session) => Ok(session),
                None => worker.http2.open(worker, lease).await,
            };
            // It may have chosen HTTP/1.1 now.
            if opened.is_ok() || is_http2(lease, false) {
                return opened.map(Box::new);
            }
        }
        let tls = options.tls.as_ref();
        if let Some(session) = worker.idle.take(lease.backend(), tls) {
            return Ok(session);
        }
        let opened = Session::open(lease.backend(), tls, None, worker, || ()).await;
        opened.map(Box::new).map_err(|error| connect_failure(&error))
    }

    /// Writes the copy and reads the answer, both at once, since a backend may answer before it has
    /// read the body.
    async fn talk(
        &self,
        lease: &Lease,
        session: &mut Session,
        talk: &mut Talk,
    ) -> Result<ResponseHead, Reason> {
        let mut scanner = HeadScanner::default();
        let mut answer: Option<(ResponseHead, Pump)> = None;
        let mut dropped = self.worker.take_vec();
        let read = loop {
            if let Some(input) = &mut talk.input {
                if answer.is_none() {
                    match self.read_head(input, &mut scanner, &mut dropped) {
                        Ok(head) => answer = head.map(|head| (head, body_of(&head))),
                        Err(reason) => break Err(reason),
                    }
                }
                if input.is_empty() {
                    talk.input = None;
                }
            }
            if let Some((head, body)) = &mut answer {
                if body.drain_into(&mut talk.input, &mut dropped).is_err() {
                    break Err(Reason::UpstreamMalformed);
                }
                dropped.clear();
                if body.is_done() {
                    break Ok(*head);
                }
            }
            match self.move_on(session, talk).await {
                Ok(0) => {
                    break match &answer {
                        Some((head, _)) if head.framing == Framing::UntilClose => Ok(*head),
                        _ => Err(Reason::UpstreamClosed),
                    };
                }
                Ok(count) => lease.stats().bytes_in.add(count as u64),
                Err(_) => break Err(Reason::UpstreamClosed),
            }
        };
        self.worker.give_vec(dropped);
        read
    }

    /// Takes the head of the final answer from `input`; interim ones are dropped.
    fn read_head(
        &self,
        input: &mut Buffer,
        scanner: &mut HeadScanner,
        dropped: &mut Vec<u8>,
    ) -> Result<Option<ResponseHead>, Reason> {
        let reply = Reply {
            request: &self.head,
            close: false,
            via: None,
            edits: ResponseEdits::default(),
            node_fields: NodeFields::Passed,
        };
        loop {
            dropped.clear();
            let head = read_response(input, scanner, &reply, dropped);
            match head.map_err(|_| Reason::UpstreamMalformed)? {
                Some(head) => {
                    input.consume(head.bytes);
                    *scanner = HeadScanner::default();
                    if !head.is_interim() {
                        return Ok(Some(head));
                    }
                }
                None => {
                    if input.is_full() {
                        input.grow(HEAD_BYTES_MAX + 1);
                    }
                    return Ok(None);
                }
            }
        }
    }

    /// Writes what can be written, until something was read. 0 is the end.
    async fn move_on(&self, session: &mut Session, talk: &mut Talk) -> std::io::Result<usize> {
        let buffers = &self.worker.buffers;
        let read = poll_fn(|cx| {
            while talk.sent < self.bytes.len() && !talk.is_deaf {
                match session.socket.poll_write(cx, &self.bytes[talk.sent..]) {
                    Poll::Ready(Ok(count)) => {
                        talk.sent += count;
                        session.written += count as u64;
                    }
                    // Its answer may have come before.
                    Poll::Ready(Err(_)) => talk.is_deaf = true,
                    Poll::Pending => break,
                }
            }
            poll_fill(cx, &session.socket, &mut talk.input, buffers)
        });
        let read = read.await;
        talk.has_begun |= matches!(read, Ok(1..));
        read
    }

    /// Runs `work` until the deadline, or until the backend is set down or the process stops.
    async fn within<T>(
        &self,
        lease: &Lease,
        deadline: &Deadline,
        overdue: Reason,
        work: impl Future<Output = Result<T, Reason>>,
    ) -> Result<T, Reason> {
        let mut work = pin!(work);
        poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(result) => Poll::Ready(result),
            Poll::Pending if deadline.is_past() => Poll::Ready(Err(overdue)),
            Poll::Pending if self.worker.phase.get() == Phase::Cutting => {
                Poll::Ready(Err(Reason::ShuttingDown))
            }
            Poll::Pending if lease.is_cut() => Poll::Ready(Err(Reason::BackendRemoved)),
            Poll::Pending => Poll::Pending,
        })
        .await
    }
}

fn body_of(head: &ResponseHead) -> Pump {
    Pump::new(head.framing, Shape::Same, None)
}

/// Progress of a copy on its session.
#[derive(Default)]
struct Talk {
    /// Bytes of the copy that were sent.
    sent: usize,
    /// The backend accepts no more of it.
    is_deaf: bool,
    /// Some of the answer has come.
    has_begun: bool,
    /// Bytes that were read and not yet used.
    input: Option<Buffer>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_the_last_field_of_the_head() {
        let request = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n\r\n\r\n";
        let copy = marked(request, request.len() - 4, "shop");
        let expected =
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nequipoise-mirrored: shop\r\n\r\n\r\n\r\n";
        assert_eq!(copy, expected);
    }
}
