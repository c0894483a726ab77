//! One request and its response: its limits, its attempts, and the refusals of the proxy itself.

use std::time::{Duration, Instant};

use super::answer::{Form, ToPeer};
use super::attempt::{Answered, Outgoing};
use super::connection::{After, ClientConnection};
use super::pump::{Pump, PumpError, Shape};
use super::request::{Marker, RequestHead};
use super::routed::Routed;
use crate::lease::Lease;
use crate::limiter::{self, Entered};
use crate::linger::Rest;
use crate::reason::Reason;
use crate::worker::Phase;

/// Why a request got no response from a backend.
pub(super) enum Unserved {
    /// It failed.
    Failed(Reason),
    /// No healthy backend here can serve it, and the peer that delegated it may have it served
    /// elsewhere.
    HandedBack(Reason),
}

impl From<Reason> for Unserved {
    fn from(reason: Reason) -> Unserved {
        Unserved::Failed(reason)
    }
}

/// How an exchange ended: with the backend's response, or with an answer of our own.
pub(super) struct Reached {
    pub(super) after: After,
    /// 0 if the client received no status.
    pub(super) status: u16,
    pub(super) ended: Instant,
    /// A session's task has counted it already.
    pub(super) counted: bool,
}

impl ClientConnection {
    /// Serves the request with this head; its upstream form is in `out`. `now` is the time at which
    /// the head was read, and on return the time at which the response ended.
    pub(super) fn exchange<'c>(
        &'c mut self,
        head: RequestHead,
        mut out: Vec<u8>,
        now: &'c mut Instant,
    ) -> impl Future<Output = After> + 'c {
        let begun = *now;
        self.log_begin(&head, begun);
        self.trace_begin(&mut out);
        self.door.stats(|stats| {
            stats.requests.add(1);
            stats.requests_in_flight.add(1);
        });
        let upload = Pump::new(head.framing, Shape::Same, self.body_bytes_max());
        let mut outgoing = Outgoing {
            head,
            first: out,
            upload,
            streamed: false,
            copy: None,
            may_discard: false,
            copied: 0,
            queued: Duration::ZERO,
            marker: 0..0,
        };
        if let Some(routed) = &self.routed {
            routed.count(self.worker.index);
        }
        let routed = self.routed.as_ref();
        self.worker.read_affinity(&self.door, routed, &outgoing.first, &mut self.hashes);
        if self.door.view().dispatch.is_some() {
            self.count_arrival(&head);
        }
        // No `async fn`: that would hold the parameters beside `outgoing`, which is made of them.
        async move {
            let reached = self.serve_request(&mut outgoing, begun).await;
            if let Some(copy) = outgoing.copy.take() {
                copy.drop_incomplete();
            }
            if !outgoing.upload.is_done() {
                self.rest = Rest::OfBody;
            }
            self.worker.give_vec(outgoing.first);
            *now = reached.ended;
            let took = now.saturating_duration_since(begun);
            if !reached.counted {
                self.door.stats(|stats| {
                    stats.requests_in_flight.sub(1);
                    stats.request_time.record(took);
                });
            }
            self.log_end(reached.status, reached.ended);
            reached.after
        }
    }

    async fn serve_request(&mut self, outgoing: &mut Outgoing, begun: Instant) -> Reached {
        if outgoing.head.framing.exceeds(self.body_bytes_max()) {
            return self.refuse(outgoing, Reason::RequestBodyTooLarge.into()).await;
        }
        let head_bytes = outgoing.first.len();
        let drained = outgoing.upload.drain_into(&mut self.input, &mut outgoing.first);
        let _entered = match self.permitted() {
            Ok(entered) => entered,
            Err(reason) => return self.refuse(outgoing, reason.into()).await,
        };
        let own = match self.redirection(outgoing) {
            Ok(None) => self.route_answer(outgoing),
            redirection => redirection,
        };
        match own {
            Ok(None) => {}
            Ok(Some(own)) => return Box::pin(self.send_own(&own)).await,
            Err(reason) => return self.refuse(outgoing, reason.into()).await,
        }
        let result = match drained {
            Ok(()) if !self.is_let_in(&outgoing.head) => Err(Reason::Overloaded.into()),
            Ok(()) => {
                self.begin_copy(outgoing, head_bytes);
                self.try_backends(outgoing, begun).await
            }
            Err(error) => Err(request_fault(&error).into()),
        };
        match result {
            Ok(reached) => reached,
            Err(unserved) => self.refuse(outgoing, unserved).await,
        }
    }

    /// Checks that there is memory, and that front door and route let this client send this request
    /// now. Peers have asked their own clients. The request counts as in flight until the result is
    /// dropped.
    fn permitted(&self) -> Result<Option<Entered>, Reason> {
        if self.worker.deadlines.is_memory_short() {
            return Err(Reason::MemoryShort);
        }
        let view = self.door.view();
        let config = &view.config;
        let of_route = self.routed.as_ref().and_then(Routed::limiter);
        let is_unlimited = config.client_limits.is_empty() && of_route.is_none();
        if (config.access.allows_all() && is_unlimited) || self.is_from_peer() {
            return Ok(None);
        }
        let client = self.peer.ip();
        if !config.access.allows(client) {
            return Err(Reason::SourceDenied);
        }
        let (mut entered, keys) = (None, &self.limit_keys);
        for (limiter, is_of_route) in limiter::of_request(of_route, &view.limiter) {
            if is_of_route {
                entered = Some(limiter.enter(client).ok_or(Reason::ConcurrencyLimited)?);
            }
            let keys = if is_of_route { &keys.of_route } else { &keys.of_door };
            self.within(limiter.request(client, keys))?;
        }
        Ok(entered)
    }

    /// Notes when a request that is above a rate is within it.
    fn within(&self, counted: Result<(), Duration>) -> Result<(), Reason> {
        counted.map_err(|wait| {
            self.limited_for.set(wait);
            Reason::RateLimited
        })
    }

    /// Bound on the body of the request.
    fn body_bytes_max(&self) -> Option<u64> {
        let of_route = self.routed.as_ref().and_then(|it| it.options().body_bytes_max);
        of_route.or(self.door.view().config.limits.body_bytes_max)
    }

    /// Answers for the proxy itself.
    async fn refuse(&mut self, outgoing: &Outgoing, unserved: Unserved) -> Reached {
        let head = outgoing.head;
        let (Unserved::Failed(reason) | Unserved::HandedBack(reason)) = unserved;
        let close = !head.keep_alive || !outgoing.upload.is_done() || self.is_closing();
        // The peer that delegated it has another application, and this is not yet for its client.
        let has_no_room = matches!(
            reason,
            Reason::NoRoom | Reason::QueueFull | Reason::QueueTimeout | Reason::MemoryShort
        );
        let to_peer = match (head.marker, unserved) {
            (Marker::Believed, _) if has_no_room => ToPeer::NoRoom,
            (Marker::Believed, Unserved::HandedBack(_)) => ToPeer::Undone,
            _ => ToPeer::Nothing,
        };
        if to_peer == ToPeer::NoRoom {
            self.count_handed_back(&head);
        }
        let form = match (head.grpc, to_peer) {
            (Some(_), ToPeer::Nothing) => Form::Grpc,
            _ if head.is_head => Form::Head,
            _ => Form::Text,
        };
        let after = Box::pin(self.answer(reason, close, form, to_peer)).await;
        Reached { after, status: reason.status(), ended: Instant::now(), counted: false }
    }

    /// Counts what came of an attempt that was answered.
    pub(super) fn concluded(&self, lease: &Lease, answered: Answered) -> Reached {
        let (after, status, ended) = (answered.after, answered.status, answered.ended);
        self.conclude(lease, answered);
        Reached { after, status, ended, counted: false }
    }

    /// The reason to stop waiting now, if there is one. `overdue` is the reason of a passed
    /// deadline.
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
}

/// The reason of a body that cannot be read from the client.
pub(super) fn request_fault(error: &PumpError) -> Reason {
    match error {
        PumpError::Source => Reason::ClientGone,
        PumpError::Malformed => Reason::RequestFraming,
        PumpError::TooLarge => Reason::RequestBodyTooLarge,
        PumpError::Sink => Reason::UpstreamClosed,
    }
}
