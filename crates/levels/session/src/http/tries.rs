//! The attempts of one request at backends, until one answers or no further try is allowed.

use std::time::{Duration, Instant};

use super::attempt::{Attempt, Outgoing};
use super::connection::ClientConnection;
use super::course::Course;
use super::exchange::{Reached, Unserved};
use super::mux::{Lost, Shared, may_multiplex};
use super::place::Place;
use super::routed::Routed;
use crate::lease::Lease;
use crate::queue::Turn;
use crate::reason::Reason;
use crate::worker::Phase;

/// Why an attempt gave no response to send on.
pub(super) struct Failure {
    pub(super) reason: Reason,
    /// True if no part of the request can have had an effect, or if it may be sent twice.
    pub(super) may_retry: bool,
    /// A pooled connection turned out to be closed, which is not the backend's fault.
    pub(super) stale: bool,
}

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

/// Which sessions of its own a request may use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sessions {
    /// A pooled one, or a new one.
    Any,
    /// Only one that is certainly open, because a pooled one was closed.
    New,
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
    pub(super) turn: Turn,
}

impl ClientConnection {
    /// Tries backends until one answers, or no further try is allowed.
    pub(super) async fn try_backends(
        &mut self,
        outgoing: &mut Outgoing,
        begun: Instant,
    ) -> Result<Reached, Unserved> {
        let mut tries = Tries::new(begun, self.course(outgoing));
        let mut dispatched = None;
        loop {
            // No `match` of what is awaited: that would hold it beside its parts.
            let place = self.place(outgoing, begun, &mut tries, &mut dispatched).await?;
            let reached = match place {
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
        self.keep_messages(&lease, outgoing);
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
                outgoing.rewind();
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
        match self.session(lease, tries, outgoing.head.upgrade).await {
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
