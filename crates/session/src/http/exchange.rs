//! One request and its response: picking backends until one answers.

use std::future::{Future, poll_fn};
use std::io;
use std::task::Poll;
use std::time::Instant;

use super::attempt::{Attempt, Outgoing};
use super::connection::{After, ClientConnection};
use super::mux::{Lost, Shared, may_multiplex};
use super::pump::{Pump, PumpError, Shape};
use super::request::RequestHead;
use crate::reason::Reason;
use crate::upstream::Session;
use crate::worker::{Lease, Phase};

/// Why an attempt gave no response to send on.
pub(super) struct Failure {
    pub(super) reason: Reason,
    /// Nothing of the request can have had an effect, or it may be sent twice.
    pub(super) may_retry: bool,
    /// A kept-open session turned out to be closed: no fault of the backend's.
    pub(super) stale: bool,
}

/// How often a request is put on a shared session: once more if the first one ends before its turn (a
/// backend closes after so many requests), then it gets a session of its own.
const SHARES: u32 = 2;

/// A response that reached the client.
pub(super) struct Reached {
    pub(super) after: After,
    pub(super) status: u16,
    /// When it ended, if a session's task has counted it already.
    pub(super) counted: Option<Instant>,
}

/// How an exchange ended, for the connection and the access log.
struct Outcome {
    after: After,
    status: u16,
    lease: Option<Lease>,
    /// When the response ended, if a session's task has counted it already.
    counted: Option<Instant>,
}

impl ClientConnection {
    /// Serves `head`, whose upstream form is in `out`. `now` is when the head was read, and then when
    /// the response ended.
    pub(super) async fn exchange(
        &mut self,
        head: RequestHead,
        out: &mut Vec<u8>,
        now: &mut Instant,
    ) -> After {
        let begun = *now;
        let log = self.log_begin(out);
        self.door.stats(|stats| {
            stats.requests.add(1);
            stats.requests_in_flight.add(1);
        });
        let outcome = self.serve_request(head, out, begun).await;
        *now = outcome.counted.unwrap_or_else(Instant::now);
        let took = now.saturating_duration_since(begun);
        if outcome.counted.is_none() {
            self.door.stats(|stats| {
                stats.requests_in_flight.sub(1);
                stats.request_time.record(took);
            });
        }
        if let Some(request) = log {
            self.log_end(&request, outcome.status, outcome.lease.as_ref(), took);
        }
        outcome.after
    }

    async fn serve_request(
        &mut self,
        head: RequestHead,
        out: &mut Vec<u8>,
        begun: Instant,
    ) -> Outcome {
        let limit = self.door.view().config.limits.body_bytes_max;
        let mut upload = Pump::new(head.framing, Shape::Same, limit);
        if let Some(input) = &mut self.input {
            let drained = upload.drain_into(input, out);
            if input.is_empty() {
                self.input = None;
            }
            if let Err(error) = drained {
                let reason = request_fault(&error);
                let after = self.answer(reason, true, !head.is_head, out).await;
                return Outcome { after, status: reason.status(), lease: None, counted: None };
            }
        }
        let mut outgoing = Outgoing { head, first: std::mem::take(out), upload, streamed: false };
        let (result, lease) = self.try_backends(&mut outgoing, begun).await;
        *out = outgoing.first;
        match result {
            Ok(Reached { after, status, counted }) => Outcome { after, status, lease, counted },
            Err(reason) => {
                let uploaded = outgoing.upload.is_done();
                let close = !head.keep_alive || !uploaded || self.is_closing();
                let after = self.answer(reason, close, !head.is_head, out).await;
                Outcome { after, status: reason.status(), lease, counted: None }
            }
        }
    }

    /// Tries backends until one answers, or no further try is allowed.
    async fn try_backends(
        &mut self,
        outgoing: &mut Outgoing,
        begun: Instant,
    ) -> (Result<Reached, Reason>, Option<Lease>) {
        let mut retries = 0;
        let mut shares = SHARES;
        let mut avoid = None;
        let mut fresh = false;
        let mut failed: Option<(Reason, Lease)> = None;
        loop {
            let Some(lease) = self.worker.pick(&self.door, &self.hashes, avoid) else {
                let (reason, lease) = failed.unzip();
                return (Err(reason.unwrap_or(Reason::NoBackend)), lease);
            };
            lease.stats().requests.add(1);
            let (attempt, lease) = if shares > 0 && may_multiplex(&outgoing.head, &lease) {
                shares -= 1;
                match self.share(lease, outgoing, begun).await {
                    Shared::Done(reached) => return (Ok(reached), None),
                    Shared::Failed(reason) => return (Err(reason), None),
                    Shared::HandedOver(hand_over, unsent) => {
                        self.resume(*hand_over, unsent, outgoing).await
                    }
                    Shared::Lost(lost) => {
                        self.door.stats(|stats| stats.retries.add(1));
                        match lost {
                            Lost::Behind => {}
                            Lost::Unsent => shares = 0,
                            Lost::NextOnUsed => (shares, fresh) = (0, true),
                            Lost::NextOnNew => (shares, retries) = (0, retries + 1),
                        }
                        continue;
                    }
                    Shared::NoRoom(lease) => (self.alone(&lease, fresh, outgoing).await, lease),
                }
            } else {
                (self.alone(&lease, fresh, outgoing).await, lease)
            };
            let failure = match attempt {
                Attempt::Answered(answered) => {
                    let (after, status) = (answered.after, answered.status);
                    self.conclude(&lease, answered);
                    return (Ok(Reached { after, status, counted: None }), Some(lease));
                }
                Attempt::Failed(failure) => failure,
            };
            let may_retry = failure.may_retry && self.worker.phase.get() != Phase::Cutting;
            if failure.stale && may_retry {
                // Whichever backend is picked, over a session that is certainly open.
                fresh = true;
                self.door.stats(|stats| stats.retries.add(1));
                continue;
            }
            self.worker.backend_failed(&lease, failure.reason);
            if !may_retry || retries >= lease.pool().options.retries {
                return (Err(failure.reason), Some(lease));
            }
            retries += 1;
            self.door.stats(|stats| stats.retries.add(1));
            avoid = Some(lease.backend().id);
            failed = Some((failure.reason, lease));
        }
    }

    /// Tries the leased backend over a session of the request's own.
    async fn alone(&mut self, lease: &Lease, fresh: bool, outgoing: &mut Outgoing) -> Attempt {
        match self.session(lease, fresh).await {
            Ok(session) => self.attempt(lease, session, outgoing).await,
            Err(reason) => Attempt::Failed(Failure { reason, may_retry: true, stale: false }),
        }
    }

    /// A session to the leased backend: a kept-open one, or a new one.
    async fn session(&mut self, lease: &Lease, fresh: bool) -> Result<Session, Reason> {
        if !fresh && let Some(session) = self.worker.idle.take(lease.backend().id) {
            return Ok(session);
        }
        self.arm(Instant::now(), lease.pool().options.connect_timeout);
        let mut connect = Box::pin(Session::open(lease.backend(), self.worker.index));
        poll_fn(|cx| match connect.as_mut().poll(cx) {
            Poll::Ready(Ok(session)) => Poll::Ready(Ok(session)),
            Poll::Ready(Err(error)) => Poll::Ready(Err(connect_fault(&error))),
            Poll::Pending => match self.interruption(lease, Reason::ConnectTimeout) {
                Some(reason) => Poll::Ready(Err(reason)),
                None => Poll::Pending,
            },
        })
        .await
    }

    /// Why waiting has to end now, if it has to; `overdue` is what the deadline means.
    pub(super) fn interruption(&self, lease: &Lease, overdue: Reason) -> Option<Reason> {
        if self.deadline.is_past() {
            Some(self.timed_out(overdue))
        } else if self.worker.phase.get() == Phase::Cutting {
            Some(Reason::ShuttingDown)
        } else if lease.is_cut() {
            Some(Reason::BackendRemoved)
        } else {
            None
        }
    }

    fn log_begin(&self, out: &[u8]) -> Option<String> {
        let share = self.door.view().config.access_log;
        if share <= 0.0 || (share < 1.0 && self.worker.sample() >= share) {
            return None;
        }
        let line = out.split(|byte| *byte == b'\r').next().unwrap_or_default();
        Some(String::from_utf8_lossy(line.strip_suffix(b" HTTP/1.1").unwrap_or(line)).into_owned())
    }

    fn log_end(
        &self,
        request: &str,
        status: u16,
        lease: Option<&Lease>,
        took: std::time::Duration,
    ) {
        let (client, view) = (self.peer, self.door.view());
        let backend = lease.map_or("-", |lease| &lease.backend().name);
        let line = format!(
            "client={client} front_door={} backend={backend} request={request:?} status={status} duration_us={}",
            view.config.name,
            took.as_micros(),
        );
        if !self.worker.shared.access_log.write(line) {
            self.door.stats(|stats| stats.access_log_dropped.add(1));
        }
    }
}

/// What a body that cannot be read from the client means.
pub(super) fn request_fault(error: &PumpError) -> Reason {
    match error {
        PumpError::Source => Reason::ClientGone,
        PumpError::Malformed => Reason::RequestFraming,
        PumpError::TooLarge => Reason::RequestBodyTooLarge,
        PumpError::Sink => Reason::UpstreamClosed,
    }
}

fn connect_fault(error: &io::Error) -> Reason {
    match error.raw_os_error() {
        Some(libc::ECONNREFUSED) => Reason::ConnectRefused,
        Some(libc::ETIMEDOUT) => Reason::ConnectTimeout,
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM | libc::EADDRNOTAVAIL) => {
            Reason::OutOfResources
        }
        _ => Reason::ConnectFailed,
    }
}
