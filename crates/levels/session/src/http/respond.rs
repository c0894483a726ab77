//! Passing a response on to the client, or what becomes of the connection after 101.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use equipoise_core::concurrency::Outcome;

use super::attempt::{Answered, Outgoing, Upstream};
use super::connection::{After, ClientConnection};
use super::pump::{Pump, PumpError, Shape};
use super::response::ResponseHead;
use crate::deadline::Taking;
use crate::lease::{Lease, outcome_of};
use crate::pace::Pace;
use crate::reason::Reason;
use crate::relay::relay;
use crate::stats::count_status;

impl ClientConnection {
    /// Sends the response with its head in `answer` and the begin of its body in `upstream.input`,
    /// or the rest of its body.
    pub(super) async fn respond(
        &mut self,
        upstream: &mut Upstream<'_>,
        outgoing: &mut Outgoing,
        head: ResponseHead,
        body: &mut Option<Pump>,
        answer: &mut Vec<u8>,
    ) -> Answered {
        let status = head.status;
        self.log_first_byte();
        self.door.stats(|stats| count_status(&stats.responses, status));
        count_status(&upstream.lease.stats().responses, status);
        upstream.lease.went(outcome_of(status));
        if status == 101 {
            // Boxed, as all that is rare: an idle connection's task is as large as its largest
            // moment.
            return Box::pin(self.tunnel(upstream, outgoing, answer)).await;
        }
        let shape = Shape::of_response(head.framing, &outgoing.head);
        let download = body.get_or_insert_with(|| Pump::new(head.framing, shape, None));
        let drained = download.drain_into(&mut upstream.input, answer);
        let pace = self.bandwidth().map(|rate| Box::new(Pace::new(rate, Instant::now())));
        let taking = Taking::default();
        let mut sending =
            Sending { sent: 0, moved: 0, download, drained, armed: false, taking, pace };
        let result =
            poll_fn(|cx| self.poll_respond(cx, upstream, outgoing, answer, &mut sending)).await;
        if sending.armed {
            self.deadline.stand();
        }
        let (after, failed) = match result {
            Ok(()) if head.closes_client || !outgoing.upload.is_done() => (After::Close, None),
            Ok(()) => (After::KeepAlive, None),
            Err(reason) => {
                self.dropped(reason);
                (After::Abort, Some(reason))
            }
        };
        let ended = Instant::now();
        let (took, bytes) = (Duration::ZERO, sending.sent as u64 + sending.moved);
        Answered { after, status, failed, session: None, took, ended, bytes }
    }

    /// Sends the 101 in `answer`, and then bytes both ways until the connection ends.
    async fn tunnel(
        &mut self,
        upstream: &mut Upstream<'_>,
        outgoing: &mut Outgoing,
        answer: &[u8],
    ) -> Answered {
        upstream.reusable = false;
        // A tunnel is idle for most of its time, and may last for days.
        upstream.lease.went(Outcome::NotMeasured);
        upstream.lease.give_permit_back();
        let mut sent = 0;
        let result = poll_fn(|cx| {
            // The request may not be through yet, and the other protocol begins after it.
            if let Err(reason) = self.poll_request(cx, upstream, outgoing) {
                return Poll::Ready(Err(reason));
            }
            match self.poll_send(cx, answer, &mut sent) {
                Poll::Ready(Ok(())) if outgoing.upload.is_done() => Poll::Ready(Ok(())),
                Poll::Ready(Err(reason)) => Poll::Ready(Err(reason)),
                _ => match self.interruption(upstream.lease, Reason::ClientStalled) {
                    Some(reason) => Poll::Ready(Err(reason)),
                    None => Poll::Pending,
                },
            }
        });
        let failed = match result.await {
            Ok(()) => {
                // The end of the request's body has taken it back.
                upstream.lease.give_permit_back();
                let end = relay(
                    &self.worker,
                    &self.door,
                    upstream.lease,
                    &self.client,
                    &upstream.session,
                    self.input.take(),
                    upstream.input.take(),
                    &self.deadline,
                    self.tunnel_timeout(),
                    Some(outgoing.head.class),
                );
                // The relay has counted its reason.
                let end = end.await;
                self.log_reason(end.reason);
                None
            }
            Err(reason) => {
                self.dropped(reason);
                Some(reason)
            }
        };
        let (took, ended) = (Duration::ZERO, Instant::now());
        let after = if failed.is_some() { After::Abort } else { After::Over };
        // Bytes after the heads were counted as they passed.
        Answered { after, status: 101, failed, session: None, took, ended, bytes: sent as u64 }
    }

    /// How long a tunnel may be idle.
    fn tunnel_timeout(&self) -> Duration {
        let of_route = self.routed.as_ref().and_then(|it| it.options().tunnel_timeout);
        let view = self.door.view();
        let timeouts = &view.config.timeouts;
        of_route.or(timeouts.tunnel).unwrap_or(timeouts.idle)
    }

    fn poll_respond(
        &mut self,
        cx: &mut Context<'_>,
        upstream: &mut Upstream<'_>,
        outgoing: &mut Outgoing,
        answer: &[u8],
        sending: &mut Sending<'_>,
    ) -> Poll<Result<(), Reason>> {
        let (sent_before, moved_before) = (sending.sent, sending.moved);
        if let Poll::Ready(Err(reason)) = self.poll_send(cx, answer, &mut sending.sent) {
            return Poll::Ready(Err(reason));
        }
        let mut moved = (sending.sent - sent_before) as u64;
        if sending.sent == answer.len() {
            if let Err(error) = &sending.drained {
                return Poll::Ready(Err(response_fault(error)));
            }
            if let Some(pace) = &mut sending.pace {
                pace.spend(moved);
            }
            let pumped = self.poll_download(cx, upstream, sending);
            moved = (sending.sent - sent_before) as u64 + sending.moved - moved_before;
            if let Poll::Ready(result) = pumped {
                return Poll::Ready(result.map_err(|error| response_fault(&error)));
            }
        }
        if !outgoing.upload.is_done() {
            // The response is what counts now; an upload that fails ends with both connections.
            if self.poll_request(cx, upstream, outgoing).is_err() {
                (upstream.deaf, upstream.reusable) = (true, false);
            }
            self.look_at_upload(upstream, outgoing);
        }
        if moved > 0 || !sending.armed {
            sending.armed = true;
            self.arm(Instant::now(), self.door.view().config.timeouts.idle);
        }
        let to_client = upstream.input.is_some()
            || sending.download.holds_bytes()
            || sending.sent < answer.len();
        sending.taking.note(&self.deadline, moved, to_client);
        if to_client {
            // The backend waits for the client now, as far as the buffers between them are full.
            upstream.lease.give_permit_back();
            upstream.session.socket.read_ahead(cx);
        }
        let overdue = if to_client { Reason::ClientStalled } else { Reason::UpstreamStalled };
        match self.interruption(upstream.lease, overdue) {
            Some(reason) => Poll::Ready(Err(reason)),
            None => Poll::Pending,
        }
    }

    /// Moves what can be moved of the body, at its rate.
    fn poll_download(
        &mut self,
        cx: &mut Context<'_>,
        upstream: &mut Upstream<'_>,
        sending: &mut Sending<'_>,
    ) -> Poll<Result<(), PumpError>> {
        let (worker, from) = (&self.worker, &upstream.session.socket);
        loop {
            if let Some(pace) = &mut sending.pace {
                sending.download.bound(pace.poll(cx, Instant::now()));
            }
            let pumped = sending.download.poll(cx, from, &mut upstream.input, worker, &self.client);
            let count = sending.download.take_moved();
            self.door.stats(|stats| stats.bytes_out.add(count));
            upstream.lease.stats().bytes_in.add(count);
            sending.moved += count;
            match &mut sending.pace {
                // Once there are no bytes left to be sent now, the pace wakes the task.
                Some(pace) if count > 0 && pumped.is_pending() => pace.spend(count),
                _ => return pumped,
            }
        }
    }

    /// Bound on the bytes a second of the response.
    pub(super) fn bandwidth(&self) -> Option<u64> {
        let of_route = self.routed.as_ref().and_then(|it| it.options().bandwidth);
        of_route.or(self.door.view().config.bandwidth)
    }

    /// Counts how a request went at its backend, and keeps its session.
    pub(super) fn conclude(&self, lease: &Lease, answered: Answered) {
        let now = answered.ended;
        if let Some(session) = answered.session
            && !lease.backend().live.is_multiplexing_lost()
        {
            self.keep_session(lease, session, now);
        }
        match answered.failed {
            Some(reason) => self.worker.backend_failed(lease, reason),
            None => self.worker.backend_answered(lease, answered.status, answered.took, now),
        }
    }
}

/// The client side of a response.
struct Sending<'p> {
    /// Bytes of the answer that were sent.
    sent: usize,
    /// Bytes of its body that followed.
    moved: u64,
    download: &'p mut Pump,
    /// Whether the bytes read with the head were well-formed.
    drained: Result<(), PumpError>,
    armed: bool,
    taking: Taking,
    /// Of the bytes to the client, if their rate is bounded.
    pace: Option<Box<Pace>>,
}

/// The reason of a body that cannot be moved to the client.
fn response_fault(error: &PumpError) -> Reason {
    match error {
        PumpError::Source => Reason::UpstreamClosed,
        PumpError::Malformed | PumpError::TooLarge => Reason::UpstreamMalformed,
        PumpError::Sink => Reason::ClientGone,
    }
}
