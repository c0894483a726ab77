//! Hedged requests: if a backend's response is late, a second backend is asked, too, and the first
//! response is sent on.
//!
//! The session to the other backend is closed, which tells it that its response is not awaited any
//! more. A hedge needs a backend with a free permit, and uses the retry budget: it adds little
//! load, and none to a pool that is full.
//!
//! # Source
//! Dean and Barroso, "The Tail at Scale", CACM 56 (2013).

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::time::sleep_until;

use super::attempt::{Attempt, Outgoing, Upstream};
use super::connection::ClientConnection;
use super::http2::upstream::is_http2;
use super::tries::Tries;
use crate::lease::Lease;
use crate::reason::Reason;
use crate::socket::poll_fill;
use crate::upstream::{Session, connect_failure};
use crate::worker::Pick;

impl ClientConnection {
    /// Whether this request may be put to a second backend.
    pub(super) fn may_hedge(&self, lease: &Lease, outgoing: &Outgoing) -> bool {
        let (pool, head) = (lease.pool(), &outgoing.head);
        pool.options.hedge.is_some()
            && pool.backends.len() > 1
            && head.is_idempotent
            && !head.upgrade
            && outgoing.upload.is_done()
    }

    /// Tries the leased backend, and a second one if no response has begun in the pool's time.
    /// Returns the lease of the backend that the attempt ended with.
    pub(super) async fn hedged(
        &mut self,
        lease: Lease,
        tries: &Tries,
        outgoing: &mut Outgoing,
    ) -> (Attempt, Lease) {
        let (session, begun) = match self.session(&lease, tries, false).await {
            Ok(opened) => opened,
            Err(failure) => return (Attempt::Failed(failure), lease),
        };
        let mut first = Upstream::new(&lease, session, begun);
        let second = match self.is_late(&mut first, outgoing).await {
            true => self.second(&lease, outgoing),
            false => None,
        };
        if let Some(second) = second
            && let Some(upstream) = self.ask_second(&mut first, &second, outgoing).await
        {
            let took = begun.elapsed();
            // The response of the first would have taken longer.
            self.worker.note_response_time(&lease, took, Instant::now());
            drop(first);
            drop(lease);
            self.door.stats(|stats| stats.hedges_won.add(1));
            self.log_backend(&second);
            let attempt = self.attempt_with(upstream, outgoing).await;
            self.note_wait(&second, took, &attempt);
            return (attempt, second);
        }
        let took = begun.elapsed();
        let attempt = self.attempt_with(first, outgoing).await;
        self.note_wait(&lease, took, &attempt);
        (attempt, lease)
    }

    /// Notes how long the response to a request was awaited.
    fn note_wait(&self, lease: &Lease, took: Duration, attempt: &Attempt) {
        if matches!(attempt, Attempt::Answered(_)) {
            self.worker.hedge_delays.note(lease.pool(), took);
        }
    }

    /// Sends the request and waits until the response is late. False if it is not: it has begun, or
    /// the attempt has failed.
    async fn is_late(&mut self, first: &mut Upstream<'_>, outgoing: &mut Outgoing) -> bool {
        let pool = first.lease.pool();
        let bound = self.response_timeout(first.lease);
        self.arm(first.waiting_since, bound);
        let delay = self.worker.hedge_delays.of(pool).unwrap_or(bound);
        // Deadlines are looked at every 25 ms, which would be late for a hedge.
        let mut late = pin!(sleep_until((first.waiting_since + delay).into()));
        poll_fn(|cx| {
            if self.poll_first(cx, first, outgoing).is_ready() || self.deadline.is_past() {
                return Poll::Ready(false);
            }
            late.as_mut().poll(cx).map(|()| true)
        })
        .await
    }

    /// Sends the request to the first backend. Ready once its response has begun or the attempt
    /// must end. Consumes nothing, so the attempt finds all input.
    fn poll_first(
        &mut self,
        cx: &mut Context<'_>,
        first: &mut Upstream<'_>,
        outgoing: &mut Outgoing,
    ) -> Poll<()> {
        let has_failed = self.poll_request(cx, first, outgoing).is_err() || first.deaf;
        if has_failed || self.is_ended(first.lease) {
            return Poll::Ready(());
        }
        first.session.socket.poll_left(cx).map(|_| ())
    }

    /// A second backend, if another has a free permit and the retry budget permits it.
    fn second(&mut self, first: &Lease, outgoing: &Outgoing) -> Option<Lease> {
        let own = first.backend().id;
        let Pick::Free(second) = self.pick(&outgoing.head, Some(own)) else { return None };
        let is_permitted = second.backend().id != own
            && first.pool().may_retry(Reason::ResponseTimeout, Instant::now());
        is_permitted.then_some(second)
    }

    /// Puts the request to the second backend. Returns that attempt if it is the one to go on with.
    async fn ask_second<'s>(
        &mut self,
        first: &mut Upstream<'_>,
        second: &'s Lease,
        outgoing: &mut Outgoing,
    ) -> Option<Upstream<'s>> {
        let session = self.open_beside(first, second, outgoing).await?;
        self.door.stats(|stats| stats.hedges.add(1));
        second.stats().requests.add(1);
        let mut upstream = Upstream::new(second, session, Instant::now());
        // The first request was sent before, so that the header can be changed.
        self.trace_attempt(second, outgoing);
        let has_won = poll_fn(|cx| self.poll_race(cx, first, &mut upstream, outgoing)).await;
        self.trace_race(has_won);
        has_won.then_some(upstream)
    }

    /// A session to the second backend; `None` if the first response began in the meantime, or
    /// there is no session.
    async fn open_beside(
        &mut self,
        first: &mut Upstream<'_>,
        second: &Lease,
        outgoing: &mut Outgoing,
    ) -> Option<Box<Session>> {
        let tls = second.pool().options.tls.as_ref();
        if let Some(session) = self.take_session(second) {
            return Some(session);
        }
        let header = self.proxy_header(second);
        let worker = Rc::clone(&self.worker);
        let mut connect = pin!(async {
            if is_http2(second, false) {
                let opened = worker.http2.open(&worker, second).await;
                // It may have chosen HTTP/1.1 now.
                if opened.is_ok() || is_http2(second, false) {
                    return opened;
                }
            }
            let opened = Session::open(second.backend(), tls, header, &worker, || ()).await;
            opened.map_err(|error| connect_failure(&error))
        });
        poll_fn(|cx| {
            if self.poll_first(cx, first, outgoing).is_ready() || self.deadline.is_past() {
                return Poll::Ready(None);
            }
            connect.as_mut().poll(cx).map(|opened| match opened {
                Ok(session) => Some(Box::new(session)),
                Err(reason) => {
                    self.worker.backend_failed(second, reason);
                    None
                }
            })
        })
        .await
    }

    /// Whether the second attempt is the one to go on with, once one of both has begun to answer or
    /// has ended.
    fn poll_race(
        &mut self,
        cx: &mut Context<'_>,
        first: &mut Upstream<'_>,
        second: &mut Upstream<'_>,
        outgoing: &mut Outgoing,
    ) -> Poll<bool> {
        if let Poll::Ready(has_begun) = self.poll_begun(cx, first, outgoing) {
            return Poll::Ready(!has_begun);
        }
        if let Poll::Ready(has_begun) = self.poll_begun(cx, second, outgoing) {
            return Poll::Ready(has_begun);
        }
        match self.is_ended(first.lease) || self.deadline.is_past() {
            true => Poll::Ready(false),
            false => Poll::Pending,
        }
    }

    /// Whether the response has begun, once it has or the session has ended. Such an end is counted
    /// here.
    fn poll_begun(
        &mut self,
        cx: &mut Context<'_>,
        upstream: &mut Upstream<'_>,
        outgoing: &mut Outgoing,
    ) -> Poll<bool> {
        if self.poll_request(cx, upstream, outgoing).is_err() {
            return Poll::Ready(false);
        }
        let from = &upstream.session.socket;
        poll_fill(cx, from, &mut upstream.input, &self.worker.buffers).map(|read| {
            let count = read.unwrap_or(0);
            upstream.lease.stats().bytes_in.add(count as u64);
            if count == 0 && !upstream.session.reused {
                self.worker.backend_failed(upstream.lease, Reason::UpstreamClosed);
            }
            count > 0
        })
    }

    /// Whether the attempt has to end for another reason than time.
    fn is_ended(&self, lease: &Lease) -> bool {
        !self.deadline.is_past() && self.interruption(lease, Reason::ResponseTimeout).is_some()
    }
}
