//! The backend's side of an attempt: its session, how it ended, and what that means for the
//! request.

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::{Attempt, Failure, Outgoing};
use crate::buffer::Buffer;
use crate::http::head::Framing;
use crate::http::response::ResponseHead;
use crate::lease::Lease;
use crate::reason::Reason;
use crate::upstream::Session;

/// The upstream side of an attempt.
pub(in crate::http) struct Upstream<'a> {
    pub(in crate::http) lease: &'a Lease,
    pub(in crate::http) session: Box<Session>,
    /// Bytes of [`Outgoing::first`] that were sent.
    pub(in crate::http) sent: usize,
    /// The backend accepts no more bytes. It may still have responded.
    pub(in crate::http) deaf: bool,
    /// How the backend's side ended, once it has.
    pub(super) ending: Ending,
    /// Bytes that were read from it and not yet used.
    pub(in crate::http) input: Option<Buffer>,
    /// Bytes written on the session before this request; and those that went over the wire.
    pub(in crate::http) written_before: u64,
    pub(in crate::http) sent_before: u64,
    /// No bytes of other responses follow this one.
    pub(in crate::http) reusable: bool,
    /// It was handed over with requests behind this one.
    pub(in crate::http) was_shared: bool,
    /// It has asked for the body with a 100.
    pub(in crate::http) was_continued: bool,
    /// When the attempt began.
    pub(in crate::http) begun: Instant,
    /// When it had the whole request, or was last sent a part of the body, or the wait for its
    /// response began.
    pub(in crate::http) waiting_since: Instant,
    /// Whether the client is watched during the wait.
    pub(in crate::http) watch: Watch,
}

impl<'a> Upstream<'a> {
    /// An attempt that begins with this session. `begun`: since when its response is awaited.
    pub(in crate::http) fn new(lease: &'a Lease, session: Box<Session>, begun: Instant) -> Self {
        Upstream {
            lease,
            written_before: session.written,
            sent_before: session.sent(),
            reusable: !session.is_stream(),
            was_shared: false,
            session,
            sent: 0,
            deaf: false,
            ending: Ending::InOrder,
            input: None,
            was_continued: false,
            begun,
            waiting_since: begun,
            watch: Watch::Later,
        }
    }
}

impl Upstream<'_> {
    /// The failure of a session without a response head.
    pub(super) fn failure(&self, reason: Reason, outgoing: &Outgoing) -> Failure {
        if self.ending == Ending::Refused {
            let may_retry = !outgoing.streamed;
            let is_peer =
                self.lease.pool().options.tls.as_ref().is_some_and(|it| it.peer().is_some());
            let reason = if is_peer { Reason::PeerTls } else { Reason::UpstreamTls };
            return Failure { reason, may_retry, stale: false };
        }
        let lost = reason == Reason::UpstreamClosed && self.input.is_none();
        let is_counted = self.ending == Ending::InOrder;
        let never_left = lost && is_counted && self.session.nothing_arrived_since(self.sent_before);
        if never_left {
            self.lease.not_begun();
        }
        let may_retry = lost && !outgoing.streamed && (outgoing.head.is_idempotent || never_left);
        let stale = lost && self.session.reused && self.ending != Ending::Silent;
        Failure { reason, may_retry, stale }
    }

    /// The result of a request that a peer handed back. A peer without room has kept the session
    /// open.
    pub(super) fn handed_back(&mut self, head: &ResponseHead, outgoing: &Outgoing) -> Attempt {
        let reason = if head.room == Some(0) { Reason::NoRoom } else { Reason::BackendError };
        let is_over = head.keep_alive && head.framing == Framing::EMPTY;
        let has_surplus = self.input.as_ref().is_some_and(|input| !input.is_empty());
        self.reusable &= is_over && !has_surplus && outgoing.upload.is_done();
        Attempt::Failed(Failure { reason, may_retry: true, stale: false })
    }

    /// Notes how the backend's side has ended.
    pub(super) fn ends(&mut self, error: &io::Error) {
        if self.ending == Ending::InOrder {
            self.ending = Ending::of(error);
        }
    }

    /// Whether to stop waiting because checks failed: the backend may stay silent for long, and the
    /// request can be served elsewhere.
    pub(super) fn is_given_up(&self, outgoing: &Outgoing) -> bool {
        self.lease.pool().options.lost_after.is_some()
            && self.lease.backend().live.unhealthy.load(Relaxed)
            && outgoing.head.is_idempotent
            && !outgoing.streamed
            && self.input.is_none()
    }
}

/// How a backend's side of a session ended, which says what its kernel's count of acknowledged
/// bytes is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Orderly: the backend has received exactly the bytes that it acknowledged.
    InOrder,
    /// With a reset: the kernel drops what that acknowledges.
    Reset,
    /// The session became silent, so the number of received bytes is unknown.
    Silent,
    /// The backend rejected our certificate: it has read nothing.
    Refused,
}

impl Ending {
    fn of(error: &io::Error) -> Ending {
        match error.raw_os_error() {
            Some(libc::ECONNRESET) => Ending::Reset,
            Some(libc::ETIMEDOUT | libc::EHOSTUNREACH | libc::ENETUNREACH) => Ending::Silent,
            _ => Ending::InOrder,
        }
    }
}

/// Whether the client of an awaited response is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Watch {
    /// Not yet: most responses come before it would be worth it.
    Later,
    /// Its reset ends the request.
    Now,
    /// It has sent more, or closed its half and may still read: there is nothing to be learnt.
    Over,
}
