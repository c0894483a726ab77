//! One request and its response: picking backends until one answers.

use std::time::{Duration, Instant};

use equipoise_core::load::RequestClass;

use super::answer::{Form, ToPeer};
use super::attempt::{Answered, Attempt, Outgoing};
use super::connection::{After, ClientConnection};
use super::course::Course;
use super::mux::{Lost, Shared, may_multiplex};
use super::pump::{Pump, PumpError, Shape};
use super::request::{Marker, RequestHead};
use super::routed::Routed;
use crate::door::Counted;
use crate::lease::Lease;
use crate::limiter::Entered;
use crate::queue::{self, Full, Rank, Turn};
use crate::reason::Reason;
use crate::worker::{Phase, Pick};

/// Why an attempt gave no response to send on.
pub(super) struct Failure {
    pub(super) reason: Reason,
    /// True if no part of the request can have had an effect, or if it may be sent twice.
    pub(super) may_retry: bool,
    /// A pooled connection turned out to be closed, which is not the backend's fault.
    pub(super) stale: bool,
}

/// The most peers that are asked to do one request.
pub(super) const PEERS_ASKED: u32 = 2;

/// How often a request is put on a shared session: once more if the first one ends before its turn
/// (a backend closes after so many requests), then it gets a session of its own.
const SHARES: u32 = 2;

/// The result of an attempt at a backend of this node.
enum Next {
    /// The client received the response.
    Done(Reached),
    /// Try again.
    Again,
    /// No retries are left here, but a peer may serve it.
    Elsewhere,
    /// The client receives an error.
    Over(Reason),
}

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

/// Which sessions of its own a request may use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sessions {
    /// A pooled one, or a new one.
    Any,
    /// Only one that is certainly open, because a pooled one was closed.
    New,
}

/// The place of the next attempt.
enum Place {
    /// A backend of this node.
    Here(Lease),
    /// A peer.
    Peer(Lease),
    /// The pool has changed while the request waited: pick again.
    Changed,
    /// No backend of this node can.
    Nowhere,
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

/// The attempts of an exchange so far.
pub(super) struct Tries {
    /// When the current one began.
    pub(super) begun: Instant,
    /// Tries on another backend that were used up.
    retries: u32,
    /// Remaining attempts on a shared session.
    shares: u32,
    pub(super) sessions: Sessions,
    /// The backend that failed last, and how.
    pub(super) failed: Option<(u32, Reason)>,
    /// Where the request may be served next.
    pub(super) course: Course,
    /// Time spent in the queue, in all tries, and at peers that had no room.
    pub(super) queued: Duration,
    /// Whether it has had a backend of this node.
    turn: Turn,
}

impl ClientConnection {
    /// Serves the request with this head; its upstream form is in `out`. `now` is the time at which
    /// the head was read, and on return the time at which the response ended.
    pub(super) async fn exchange(
        &mut self,
        head: RequestHead,
        mut out: Vec<u8>,
        now: &mut Instant,
    ) -> After {
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
        let reached = self.serve_request(&mut outgoing, begun).await;
        if let Some(copy) = outgoing.copy.take() {
            copy.drop_incomplete();
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

    /// Checks that front door and route let this client send this request now. Peers have asked
    /// their own clients. The request counts as in flight until the result is dropped.
    fn permitted(&self) -> Result<Option<Entered>, Reason> {
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
        let mut entered = None;
        // First, so that a request which its route refuses does not count at the front door.
        if let Some(limiter) = of_route {
            entered = Some(limiter.enter(client).ok_or(Reason::ConcurrencyLimited)?);
            self.within(limiter.request(client, &self.limit_keys.of_route))?;
        }
        self.within(view.limiter.request(client, &self.limit_keys.of_door))?;
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
        let has_no_room =
            matches!(reason, Reason::NoRoom | Reason::QueueFull | Reason::QueueTimeout);
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

    /// Tries backends until one answers, or no further try is allowed.
    async fn try_backends(
        &mut self,
        outgoing: &mut Outgoing,
        begun: Instant,
    ) -> Result<Reached, Unserved> {
        let mut tries = Tries::new(begun, self.course(outgoing));
        let mut dispatched = None;
        loop {
            let place = self.place(outgoing, begun, &mut tries, &mut dispatched);
            let reached = match place.await? {
                Place::Here(lease) => match self.try_here(lease, outgoing, begun, &mut tries).await
                {
                    Next::Done(reached) => Some(reached),
                    Next::Again => None,
                    Next::Elsewhere => Box::pin(self.without_backend(outgoing, &mut tries)).await?,
                    Next::Over(reason) => return Err(reason.into()),
                },
                Place::Peer(peer) => {
                    let counted = dispatched.as_mut();
                    Box::pin(self.leave(peer, outgoing, &mut tries, counted)).await?
                }
                Place::Changed => None,
                Place::Nowhere => Box::pin(self.without_backend(outgoing, &mut tries)).await?,
            };
            if let Some(reached) = reached {
                return Ok(reached);
            }
        }
    }

    /// Where a request may be served. A light one is not worth asking peers for their room, and one
    /// with a body that is still arriving cannot come back.
    fn course(&self, outgoing: &Outgoing) -> Course {
        match self.may_delegate(&outgoing.head) {
            true => Course::free(
                outgoing.head.class != RequestClass::Light && outgoing.upload.is_done(),
            ),
            false => Course::Bound,
        }
    }

    /// Tries the leased backend of this node, over a shared session or one of the request's own.
    async fn try_here(
        &mut self,
        lease: Lease,
        outgoing: &mut Outgoing,
        begun: Instant,
        tries: &mut Tries,
    ) -> Next {
        tries.turn = Turn::Again;
        lease.stats().requests.add(1);
        self.log_backend(&lease);
        self.trace_attempt(&lease, outgoing);
        let (most, backend) = (self.retries(&lease), lease.backend().id);
        outgoing.queued = tries.queued;
        outgoing.may_discard = tries.retries < most;
        let retries_reset = self.retry_on(&lease).reset;
        let (attempt, lease) = match self.put(lease, outgoing, begun, tries).await {
            Shared::Done(reached) => {
                self.trace_status(reached.status);
                return Next::Done(reached);
            }
            Shared::Failed(reason) => return Next::Over(reason),
            Shared::Lost(lost) => {
                self.trace_failed(Reason::UpstreamClosed);
                let has_retries =
                    tries.lost(lost, most) && (retries_reset || lost != Lost::NextOnNew);
                return match self.may_go_on(has_retries, lost) {
                    Ok(()) => {
                        self.retried();
                        tries.begun = Instant::now();
                        Next::Again
                    }
                    Err(why) => {
                        tries.failed = Some((backend, why));
                        Next::Elsewhere
                    }
                };
            }
            Shared::HandedOver(hand_over, unsent) => {
                Box::pin(self.resume(*hand_over, unsent, outgoing)).await
            }
            Shared::NoRoom(lease) => self.alone_or_hedged(lease, tries, outgoing).await,
        };
        self.trace_outcome(&attempt);
        let next = match attempt {
            Attempt::Answered(answered) => {
                self.count_bytes(&outgoing.head, answered.bytes);
                return Next::Done(self.concluded(&lease, answered));
            }
            Attempt::Failed(failure) => self.after(&lease, &failure, tries),
            Attempt::Discarded => {
                tries.failed = Some((lease.backend().id, Reason::BackendError));
                tries.retries += 1;
                Next::Again
            }
        };
        if matches!(next, Next::Again) {
            self.retried();
            tries.begun = Instant::now();
        }
        next
    }

    /// Chooses the place of the next attempt; `dispatched` counts the request there, in node mode.
    async fn place(
        &mut self,
        outgoing: &Outgoing,
        begun: Instant,
        tries: &mut Tries,
        dispatched: &mut Option<Counted>,
    ) -> Result<Place, Reason> {
        let head = &outgoing.head;
        if tries.course.is_planned()
            && let Some((counted, peer)) =
                self.worker.dispatch(&self.door, head.class, outgoing.upload.is_done())
        {
            *dispatched = Some(counted);
            if let Some(peer) = peer {
                return Ok(Place::Peer(peer));
            }
        }
        let avoid = tries.failed.map(|(backend, _)| backend);
        let picked = match tries.course.is_last_resort() {
            true => self.worker.pick_open(head.class.into(), &self.door, &self.hashes, avoid),
            false => self.pick(head, avoid),
        };
        match picked {
            Pick::Free(lease) => Ok(Place::Here(lease)),
            Pick::Full(full) => Box::pin(self.find_room(full, head, begun, tries)).await,
            Pick::NoBackend => Ok(Place::Nowhere),
        }
    }

    /// Finds room for a request where no backend here has some: at a peer, or in the queue.
    async fn find_room(
        &mut self,
        full: Full,
        head: &RequestHead,
        begun: Instant,
        tries: &mut Tries,
    ) -> Result<Place, Reason> {
        if head.may_wait == Some(Duration::ZERO) {
            return Err(Reason::NoRoom);
        }
        if tries.course.may_ask()
            && let Some(peer) = self.worker.peer_with_room(&self.door)
        {
            return Ok(Place::Peer(peer));
        }
        // The front door may have another table when the wait is over.
        let own = full.pool().id;
        Ok(match self.wait_in_queue(full, head, begun, tries).await? {
            Some(lease) if lease.pool().id != own => Place::Peer(lease),
            Some(lease) => Place::Here(lease),
            None => Place::Changed,
        })
    }

    /// Picks a backend. A peer's check of this node does not wait for requests.
    pub(super) fn pick(&self, head: &RequestHead, avoid: Option<u32>) -> Pick {
        if head.is_check && self.is_from_peer() {
            return self.worker.pick_for_check(&self.door, &self.hashes, avoid);
        }
        let routed = self.routed.as_ref();
        self.worker.pick_for(head.class.into(), &self.door, routed, &self.hashes, avoid)
    }

    /// Waits for a backend with room. `None`: pick again, the pool has changed.
    async fn wait_in_queue(
        &mut self,
        full: Full,
        head: &RequestHead,
        begun: Instant,
        tries: &mut Tries,
    ) -> Result<Option<Lease>, Reason> {
        let longest = full.longest();
        let longest = head.may_wait.map_or(longest, |most| longest.min(most));
        let (now, left) = (Instant::now(), longest.saturating_sub(tries.queued));
        let due = self.request_end.map_or(now + left, |end| end.min(now + left));
        let rank = Rank::new(self.door.view().config.priority, head.class, begun, due);
        let rank = rank.in_turn(tries.turn).leaving(tries.course.may_ask());
        let avoid = tries.failed.map(|(backend, _)| backend);
        self.arm(now, left);
        let (worker, door, client) = (&self.worker, &self.door, &self.client);
        let waited = queue::wait(worker, door, client, &self.deadline, &full, rank, avoid).await;
        tries.queued += waited.took;
        tries.begun = Instant::now();
        self.log_queued(tries.queued);
        waited.lease.map_err(|reason| match reason {
            Reason::QueueTimeout => self.timed_out(reason),
            reason => reason,
        })
    }

    /// Counts what came of an attempt that was answered.
    pub(super) fn concluded(&self, lease: &Lease, answered: Answered) -> Reached {
        let (after, status, ended) = (answered.after, answered.status, answered.ended);
        self.conclude(lease, answered);
        Reached { after, status, ended, counted: false }
    }

    /// Puts the request on a shared session, if that is allowed.
    async fn put(
        &mut self,
        lease: Lease,
        outgoing: &Outgoing,
        begun: Instant,
        tries: &mut Tries,
    ) -> Shared {
        let is_alone = tries.shares == 0 || self.needs_session(&lease);
        if is_alone || !may_multiplex(&outgoing.head, &lease) {
            return Shared::NoRoom(lease);
        }
        tries.shares -= 1;
        self.share(lease, outgoing, begun, tries.begun).await
    }

    /// Whether a shared session cannot do what the request's route asks for.
    fn needs_session(&self, lease: &Lease) -> bool {
        let has_timeout = |it: &Routed| it.options().response_timeout.is_some();
        self.routed.as_ref().is_some_and(has_timeout)
            || !self.retry_on(lease).statuses.is_empty()
            || self.bandwidth().is_some()
    }

    /// Tries on another backend that the request has.
    fn retries(&self, lease: &Lease) -> u32 {
        let of_route = self.routed.as_ref().and_then(|it| it.options().retries);
        of_route.unwrap_or(lease.pool().options.retries)
    }

    /// Whether a request may be retried after its shared session ended, or the reason why not.
    fn may_go_on(&self, has_retries: bool, lost: Lost) -> Result<(), Reason> {
        let reason = Reason::UpstreamClosed;
        if !has_retries {
            return Err(reason);
        }
        // Otherwise the backend has not begun with the request.
        match lost == Lost::NextOnNew
            && !self.worker.may_retry(&self.door, self.routed.as_ref(), reason)
        {
            true => Err(Reason::RetryBudget),
            false => Ok(()),
        }
    }

    /// Counts a failed attempt, and says what follows.
    fn after(&self, lease: &Lease, failure: &Failure, tries: &mut Tries) -> Next {
        let may_retry = failure.may_retry
            && (failure.stale || self.retry_on(lease).has(failure.reason))
            && self.worker.phase.get() != Phase::Cutting;
        if failure.stale && may_retry && tries.sessions == Sessions::Any {
            // The next backend is not to blame.
            tries.sessions = Sessions::New;
            return Next::Again;
        }
        self.worker.backend_failed(lease, failure.reason);
        if !may_retry {
            return Next::Over(failure.reason);
        }
        tries.failed = Some((lease.backend().id, failure.reason));
        if tries.retries >= self.retries(lease) {
            return Next::Elsewhere;
        }
        if !lease.pool().may_retry(failure.reason, Instant::now()) {
            // A peer has a budget of its own.
            tries.failed = Some((lease.backend().id, Reason::RetryBudget));
            return Next::Elsewhere;
        }
        tries.retries += 1;
        Next::Again
    }

    /// Tries the leased backend over a session of the request's own.
    pub(super) async fn alone(
        &mut self,
        lease: &Lease,
        tries: &Tries,
        outgoing: &mut Outgoing,
    ) -> Attempt {
        match self.session(lease, tries).await {
            Ok((session, begun)) => self.attempt(lease, session, outgoing, begun).await,
            Err(failure) => Attempt::Failed(failure),
        }
    }

    /// As [`Self::alone`]. If the pool hedges, a request with a late response is sent to a second
    /// backend, too. Returns the lease of the backend that the attempt ended with.
    async fn alone_or_hedged(
        &mut self,
        lease: Lease,
        tries: &Tries,
        outgoing: &mut Outgoing,
    ) -> (Attempt, Lease) {
        match self.may_hedge(&lease, outgoing) {
            true => Box::pin(self.hedged(lease, tries, outgoing)).await,
            false => (self.alone(&lease, tries, outgoing).await, lease),
        }
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

impl Tries {
    fn new(begun: Instant, course: Course) -> Tries {
        Tries {
            begun,
            retries: 0,
            shares: SHARES,
            sessions: Sessions::Any,
            failed: None,
            course,
            queued: Duration::ZERO,
            turn: Turn::First,
        }
    }

    /// Notes that a shared session ended before it answered; false if that used up the last of the
    /// `most` retries.
    fn lost(&mut self, lost: Lost, most: u32) -> bool {
        match lost {
            Lost::Behind => {}
            Lost::Unsent => self.shares = 0,
            Lost::NextOnUsed => (self.shares, self.sessions) = (0, Sessions::New),
            Lost::NextOnNew => (self.shares, self.retries) = (0, self.retries + 1),
        }
        self.retries <= most
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
