//! One try of a request over an exclusive upstream session.

mod upstream;

use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use equipoise_core::concurrency::Outcome;

pub(super) use self::upstream::Upstream;
use self::upstream::{Ending, Watch};
use super::connection::{After, ClientConnection};
use super::edits::Timing;
use super::exchange::request_fault;
use super::head::HeadScanner;
use super::mirror::RequestCopy;
use super::mux::HandOver;
use super::pump::{Pump, PumpError};
use super::request::RequestHead;
use super::response::{HEAD_BYTES_MAX, Reply, ResponseHead, read_response};
use super::routing::edits;
use super::tries::Failure;
use crate::lease::{Lease, outcome_of};
use crate::reason::Reason;
use crate::route::RetryOn;
use crate::socket::{Socket, poll_fill};
use crate::stats::count_status;
use crate::tls::is_refusal;
use crate::upstream::Session;

/// A request on its way: the content that each attempt sends, and its known state.
pub(super) struct Outgoing {
    pub(super) head: RequestHead,
    /// The head, and the part of the body that was read with it.
    pub(super) first: Vec<u8>,
    /// The rest of the body.
    pub(super) upload: Pump,
    /// Some of the rest was sent: the request cannot be sent again.
    pub(super) streamed: bool,
    /// Time that it has waited for a backend with room.
    pub(super) queued: Duration,
    /// Where the marker is in `first`, while there is one.
    pub(super) marker: Range<usize>,
    /// The copy for the route's mirror, while the body is arriving.
    pub(super) copy: Option<Box<RequestCopy>>,
    /// A response with a status that is retried may be discarded: a try is left.
    pub(super) may_discard: bool,
    /// Bytes of the upload's copy that are in `first`, because the request is sent again.
    pub(super) copied: usize,
}

/// How an attempt ended.
pub(super) enum Attempt {
    /// The response was sent, or its sending failed.
    Answered(Answered),
    /// Nothing was sent to the client.
    Failed(Failure),
    /// The response has a status after which the request is tried again. It was counted.
    Discarded,
}

impl Attempt {
    /// Adds the session to a response after which it can be used again.
    fn with(mut self, upstream: Upstream<'_>) -> Attempt {
        if let Attempt::Answered(answered) = &mut self
            && upstream.reusable
        {
            answered.session = Some(upstream.session);
        }
        self
    }
}

/// A response that reached the client, whole or not.
pub(super) struct Answered {
    pub(super) after: After,
    pub(super) status: u16,
    /// Why it was not sent to its end.
    pub(super) failed: Option<Reason>,
    /// May carry another request.
    pub(super) session: Option<Box<Session>>,
    pub(super) took: Duration,
    /// When the response ended.
    pub(super) ended: Instant,
    /// Of the request and the response.
    pub(super) bytes: u64,
}

/// A client that has taken so long to send a body, and has not sent the rest, gives the request's
/// permit back.
const SLOW_UPLOAD: Duration = Duration::from_millis(100);

/// A response that takes longer is worth a look whether its client is still there.
const WATCH_CLIENT_AFTER: Duration = Duration::from_millis(100);

impl ClientConnection {
    /// Sends the request over `session`, and the response to the client.
    pub(super) async fn attempt(
        &mut self,
        lease: &Lease,
        mut session: Box<Session>,
        outgoing: &mut Outgoing,
        begun: Instant,
    ) -> Attempt {
        let streams = !outgoing.upload.is_done() || outgoing.head.upgrade;
        session.look_out(lease.pool().options.lost_after, streams);
        self.attempt_with(Upstream::new(lease, session, begun), outgoing).await
    }

    /// Sends the request as far as that has not happened yet, and the response to the client.
    pub(super) async fn attempt_with(
        &mut self,
        mut upstream: Upstream<'_>,
        outgoing: &mut Outgoing,
    ) -> Attempt {
        let mut answer = self.worker.take_vec();
        let attempt = self.attempt_over(&mut upstream, &mut None, &mut answer, outgoing).await;
        self.worker.give_vec(answer);
        if let Attempt::Failed(Failure { reason: Reason::NoRoom, .. }) = &attempt
            && upstream.reusable
        {
            self.keep_session(upstream.lease, upstream.session, Instant::now());
            return attempt;
        }
        attempt.with(upstream)
    }

    /// Continues with a session that was handed over during its response. `unsent` is the
    /// part of the response that the client has not received yet.
    pub(super) async fn resume(
        &mut self,
        hand_over: HandOver,
        mut unsent: Vec<u8>,
        outgoing: &mut Outgoing,
    ) -> (Attempt, Lease) {
        let mut upstream = Upstream {
            sent: outgoing.first.len().saturating_sub(hand_over.unsent),
            input: hand_over.input,
            was_shared: hand_over.shared,
            reusable: !hand_over.shared,
            ..Upstream::new(&hand_over.lease, hand_over.session, Instant::now())
        };
        let mut begun = Some(hand_over.response);
        let attempt = self.attempt_over(&mut upstream, &mut begun, &mut unsent, outgoing).await;
        (attempt.with(upstream), hand_over.lease)
    }

    /// Sends the request, unless `response` has begun, and the response to the client.
    async fn attempt_over(
        &mut self,
        upstream: &mut Upstream<'_>,
        response: &mut Option<(ResponseHead, Pump)>,
        answer: &mut Vec<u8>,
        outgoing: &mut Outgoing,
    ) -> Attempt {
        let lease = upstream.lease;
        let begun = upstream.waiting_since;
        self.wait_from(begun, upstream, outgoing);
        let (head, mut body) = match response.take() {
            Some((head, body)) => (head, Some(body)),
            None => match self.response_head(upstream, outgoing, answer).await {
                Ok(head) => (head, None),
                Err(reason) => return Attempt::Failed(upstream.failure(reason, outgoing)),
            },
        };
        self.trace_status(head.status);
        if !outgoing.marker.is_empty() {
            // An error that a node answers itself announces nothing.
            if head.room.is_some() || head.status < 500 {
                lease.set_room(head.room);
            }
            if head.is_undone && !outgoing.streamed {
                return upstream.handed_back(&head, outgoing);
            }
        }
        if body.is_none() && self.discards(lease, outgoing, &head) {
            count_status(&lease.stats().responses, head.status);
            lease.went(outcome_of(head.status));
            let now = Instant::now();
            let took = now.saturating_duration_since(begun);
            self.worker.backend_answered(lease, head.status, took, now);
            return Attempt::Discarded;
        }
        let mut answered = self.respond(upstream, outgoing, head, &mut body, answer).await;
        // On a session that was shared, responses to the requests behind follow.
        let has_surplus = answered.failed.is_none()
            && head.status != 101
            && !upstream.was_shared
            && upstream.input.is_some();
        if head.is_doubtful || has_surplus {
            self.worker.framing_failed(lease);
        }
        answered.took = answered.ended.saturating_duration_since(begun);
        upstream.reusable &= answered.failed.is_none()
            && head.keep_alive
            // A backend may answer before it has the whole head.
            && upstream.sent == outgoing.first.len()
            && outgoing.upload.is_done()
            && upstream.input.is_none();
        let written = upstream.session.written - upstream.written_before;
        lease.stats().bytes_out.add(written);
        answered.bytes += written;
        Attempt::Answered(answered)
    }

    /// Sends the request and waits for the final response's head, which is put into `answer` as the
    /// client gets it; interim ones are passed on.
    async fn response_head(
        &mut self,
        upstream: &mut Upstream<'_>,
        outgoing: &mut Outgoing,
        answer: &mut Vec<u8>,
    ) -> Result<ResponseHead, Reason> {
        let view = self.door.view();
        let via = view.config.via.then(|| self.worker.shared.instance.clone());
        let node_fields = self.node_fields(&outgoing.head);
        let routed = self.routed.clone();
        let mut scanner = HeadScanner::default();
        loop {
            if let Some(input) = &mut upstream.input {
                let close = !(outgoing.head.keep_alive && outgoing.upload.is_done());
                let close = close || self.is_closing();
                let timing = view
                    .config
                    .server_timing
                    .then(|| Timing { backend: upstream.begun.elapsed(), queue: outgoing.queued });
                let reply = Reply {
                    request: &outgoing.head,
                    close,
                    via: via.as_deref(),
                    edits: edits(&view, routed.as_ref())
                        .of_backend(upstream.lease, self.hashes.sticky, view.config.scheme())
                        .timed(timing),
                    node_fields: node_fields.within(|| upstream.lease.room()),
                };
                let head = read_response(input, &mut scanner, &reply, answer);
                if head.is_err() {
                    let pool = upstream.lease.pool();
                    let backend = upstream.lease.backend();
                    backend.say_wrong_protocol(pool.options.upstream, input);
                    self.worker.framing_failed(upstream.lease);
                }
                match head.map_err(|_| Reason::UpstreamMalformed)? {
                    Some(head) => {
                        input.consume(head.bytes);
                        if !head.is_interim() {
                            return Ok(head);
                        }
                        Box::pin(self.pass_interim(&upstream.session.socket, outgoing, answer))
                            .await?;
                        scanner = HeadScanner::default();
                        if input.is_empty() {
                            upstream.input = None;
                        }
                        // Only the first 100 gives more time, to a client that waited for it with
                        // its body.
                        let is_continue = head.status == 100
                            && !outgoing.upload.is_done()
                            && !upstream.was_continued;
                        upstream.was_continued |= is_continue;
                        let since =
                            if is_continue { Instant::now() } else { upstream.waiting_since };
                        self.wait_from(since, upstream, outgoing);
                        continue;
                    }
                    None if input.is_full() => input.grow(HEAD_BYTES_MAX + 1),
                    None => {}
                }
            }
            let read = poll_fn(|cx| self.poll_response(cx, upstream, outgoing));
            if read.await? == 0 {
                return Err(Reason::UpstreamClosed);
            }
        }
    }

    /// The failures after which the request is tried again.
    pub(super) fn retry_on<'l>(&'l self, lease: &'l Lease) -> &'l RetryOn {
        let of_route = self.routed.as_ref().and_then(|it| it.options().retry_on.as_ref());
        of_route.unwrap_or(&lease.pool().options.retry_on)
    }

    /// From the last byte of the request to the first of the response.
    pub(super) fn response_timeout(&self, lease: &Lease) -> Duration {
        let of_route = self.routed.as_ref().and_then(|it| it.options().response_timeout);
        of_route.unwrap_or(lease.pool().options.response_timeout)
    }

    /// Waits for the rest of the request, or for the response, from `now` on.
    fn wait_from(&self, now: Instant, upstream: &mut Upstream<'_>, outgoing: &Outgoing) {
        (upstream.waiting_since, upstream.watch) = (now, Watch::Later);
        if outgoing.upload.is_done() {
            let bound = self.response_timeout(upstream.lease);
            self.arm(now, WATCH_CLIENT_AFTER.min(bound));
        } else {
            self.arm_upload(upstream);
        }
    }

    /// Bounds the wait for more of the body, which has lasted since `waiting_since`.
    fn arm_upload(&self, upstream: &Upstream<'_>) {
        let idle = self.door.view().config.timeouts.idle;
        let has_permit = upstream.lease.holds_others_up();
        self.arm(upstream.waiting_since, if has_permit { idle.min(SLOW_UPLOAD) } else { idle });
    }

    /// Gives the permit back once the client is slow with the body: the backend waits for the
    /// client, too. A body that comes at once keeps the permit, as the backend then works on it at
    /// once.
    pub(super) fn look_at_upload(&self, upstream: &Upstream<'_>, outgoing: &Outgoing) {
        let (is_past, lease) = (self.deadline.is_past(), upstream.lease);
        if outgoing.upload.is_done() || !(is_past || lease.holds_others_up()) {
            return;
        }
        let now = Instant::now();
        let holds_bytes = self.input.is_some() || outgoing.upload.holds_bytes();
        let awaits_continue =
            outgoing.head.expects_continue && !outgoing.streamed && !upstream.was_continued;
        if !holds_bytes && !awaits_continue && now - upstream.begun >= SLOW_UPLOAD {
            lease.went(Outcome::NotMeasured);
            lease.give_permit_back();
        }
        let idle = self.door.view().config.timeouts.idle;
        let is_overdue =
            now - upstream.waiting_since >= idle || self.request_end.is_some_and(|end| now >= end);
        if is_past && !is_overdue {
            self.arm(upstream.waiting_since, idle);
        }
    }

    /// Sends the 1xx head in `answer` to the client, if it can read one. It is not counted: it
    /// answers no request.
    async fn pass_interim(
        &mut self,
        backend: &Socket,
        outgoing: &Outgoing,
        answer: &mut Vec<u8>,
    ) -> Result<(), Reason> {
        if !outgoing.head.http10 {
            self.arm(Instant::now(), self.door.view().config.timeouts.idle);
            let mut sent = 0;
            poll_fn(|cx| {
                let poll = self.poll_send(cx, answer, &mut sent);
                if poll.is_pending() {
                    backend.read_ahead(cx);
                }
                poll
            })
            .await?;
        }
        answer.clear();
        Ok(())
    }

    /// Pushes the request on and reads some of the response.
    fn poll_response(
        &mut self,
        cx: &mut Context<'_>,
        upstream: &mut Upstream<'_>,
        outgoing: &mut Outgoing,
    ) -> Poll<Result<usize, Reason>> {
        if let Err(reason) = self.poll_request(cx, upstream, outgoing) {
            return Poll::Ready(Err(reason));
        }
        let from = &upstream.session.socket;
        if let Poll::Ready(read) = poll_fill(cx, from, &mut upstream.input, &self.worker.buffers) {
            if let Ok(count) = read {
                upstream.lease.stats().bytes_in.add(count as u64);
            }
            return Poll::Ready(read.map_err(|error| {
                if error.kind() == io::ErrorKind::InvalidData && upstream.session.is_stream() {
                    return Reason::UpstreamMalformed;
                }
                if is_refusal(&error) {
                    upstream.ending = Ending::Refused;
                    self.worker.say_refusal(upstream.lease, &error);
                } else {
                    upstream.ends(&error);
                }
                Reason::UpstreamClosed
            }));
        }
        self.look_at_upload(upstream, outgoing);
        let uploaded = outgoing.upload.is_done();
        if upstream.watch == Watch::Later && uploaded && self.deadline.is_past() {
            upstream.watch = Watch::Now;
            let left = self.response_timeout(upstream.lease);
            self.arm(upstream.waiting_since, left);
        }
        if upstream.watch == Watch::Now && self.client.poll_readable(cx).is_ready() {
            if self.client.is_reset() {
                return Poll::Ready(Err(Reason::ClientGone));
            }
            upstream.watch = Watch::Over;
        }
        if upstream.is_given_up(outgoing) {
            upstream.ending = Ending::Silent;
            return Poll::Ready(Err(Reason::UpstreamClosed));
        }
        let holds_bytes = self.input.is_some() || outgoing.upload.holds_bytes();
        let overdue = match (uploaded, holds_bytes) {
            (true, _) => Reason::ResponseTimeout,
            (false, true) => Reason::UpstreamStalled,
            (false, false) => Reason::BodyTimeout,
        };
        match self.interruption(upstream.lease, overdue) {
            Some(reason) => Poll::Ready(Err(reason)),
            None => Poll::Pending,
        }
    }

    /// Sends what can be sent of the request now.
    pub(super) fn poll_request(
        &mut self,
        cx: &mut Context<'_>,
        upstream: &mut Upstream<'_>,
        outgoing: &mut Outgoing,
    ) -> Result<(), Reason> {
        while upstream.sent < outgoing.first.len() && !upstream.deaf {
            let session = &mut upstream.session;
            match session.socket.poll_write(cx, &outgoing.first[upstream.sent..]) {
                Poll::Ready(Ok(count)) => {
                    upstream.sent += count;
                    session.written += count as u64;
                }
                Poll::Ready(Err(error)) => {
                    upstream.deaf = true;
                    if error.kind() == io::ErrorKind::Unsupported && session.is_stream() {
                        return Err(Reason::UpstreamNoTunnels);
                    }
                    if error.kind() == io::ErrorKind::InvalidInput && session.is_stream() {
                        // HTTP/2 cannot express it.
                        return Err(Reason::RequestMalformed);
                    }
                    // The kernel reports the reason only once. A later read would look like an
                    // orderly end.
                    upstream.ends(&error);
                }
                Poll::Pending => return Ok(()),
            }
        }
        if upstream.deaf || outgoing.upload.is_done() {
            return Ok(());
        }
        let (worker, client, session) = (&self.worker, &self.client, &mut upstream.session);
        let moved = outgoing.upload.poll(cx, client, &mut self.input, worker, &session.socket);
        let count = outgoing.upload.take_moved();
        if count > 0 {
            outgoing.streamed = true;
            session.written += count;
            self.door.stats(|stats| stats.bytes_in.add(count));
            upstream.waiting_since = Instant::now();
            self.arm_upload(upstream);
        }
        match moved {
            Poll::Ready(Ok(())) => {
                if let Some(copy) = outgoing.copy.take() {
                    copy.send_with(outgoing.upload.copied());
                }
                upstream.lease.take_permit_back();
                upstream.waiting_since = Instant::now();
                upstream.watch = Watch::Now;
                let left = self.response_timeout(upstream.lease);
                self.arm(upstream.waiting_since, left);
            }
            Poll::Ready(Err(PumpError::Sink)) => upstream.deaf = true,
            Poll::Ready(Err(error)) => return Err(request_fault(&error)),
            Poll::Pending => {}
        }
        Ok(())
    }
}
