//! Multiplexed upstream sessions: requests of many clients pipelined over a few pooled ones.
//!
//! A client's task puts its request on a session's queue ([`client`]); the session's own task
//! writes all queued requests in one call, reads responses in bulk and writes each to its client
//! ([`task`]). A request thus costs two system calls and a share of two, instead of four, and
//! the backend is woken once for many. This is L3B's virtual client: one conversation with the
//! endpoint for many clients.
//!
//! Responses come in the order of the requests, so that a slow or large one delays those behind it.
//! The requests behind it are then retried on another session (only idempotent ones are here). A
//! session with a late response is set aside: it takes no further request until it has that
//! response and those behind it, which are discarded ([`behind`]), and is then pooled. With a
//! large response, or a slow one that has begun, the session is handed over to the client of that
//! response, as an exclusive one ([`task`]).
//!
//! Sharing pays as long as few requests are sent again. So a path with many such responses gets
//! exclusive sessions ([`paths`]), and the depth of all sessions to a backend falls as the share of
//! late responses rises, to exclusive sessions in the end ([`pace`]).
//!
//! A response belongs to a request by its place alone, so that a backend which sends too much would
//! answer one client with another's response. A backend with this fault gets exclusive sessions
//! from then on ([`BackendLive::lose_multiplexing`](crate::BackendLive)).

mod behind;
mod client;
mod pace;
mod paths;
mod session;
mod task;
mod ticket;

use std::cell::RefCell;
use std::hash::RandomState;
use std::rc::Rc;

use equipoise_core::load::RequestClass;

use super::head::Framing;
use super::request::RequestHead;
use crate::config::Upstream;
use crate::lease::Lease;
use crate::lent::shared_most;
use crate::upstream::ByBackend;
use crate::worker::Worker;
pub(super) use client::Shared;
use pace::Pace;
use paths::{PathId, Paths};
use session::MuxSession;
pub(super) use ticket::{HandOver, Lost, Ticket};

/// One thread's multiplexed sessions, by backend.
#[derive(Default)]
pub(crate) struct MuxSessions {
    by_backend: RefCell<ByBackend<Backend>>,
    hasher: RandomState,
}

#[derive(Default)]
struct Backend {
    sessions: Vec<Rc<MuxSession>>,
    paths: Paths,
    pace: Rc<Pace>,
}

/// Whether a request may share a session: sent again it does no harm, and its body ends with its
/// head.
pub(super) fn may_multiplex(head: &RequestHead, lease: &Lease) -> bool {
    lease.pool().options.upstream == Upstream::Multiplexed
        && !lease.backend().live.is_multiplexing_lost()
        // Which peer answers is verified for each request.
        && lease.pool().options.tls.as_ref().is_none_or(|tls| tls.peer().is_none())
        && head.is_idempotent
        // A backend that answers HEAD with a body would have it taken for the next response.
        && !head.is_head
        && head.framing == Framing::EMPTY
        && !head.upgrade
        && !head.expects_continue
        // Responses come in the order of requests, so a light one must not wait for one that is
        // known to take long.
        && matches!(head.class, RequestClass::Light | RequestClass::SmallTransfer)
}

impl MuxSessions {
    /// The session to put a request of this path for the leased backend on: an idle one, a new one
    /// while there may be more, or the one with the fewest requests. `None` if it is better off
    /// alone: its path has slow or large responses, all sessions are full, or the wait would be a
    /// slow response's.
    ///
    /// Gathering requests on few sessions as long as none waits noticeably was tried: larger
    /// batches, but the backend and this thread then take turns, and a request cost a tenth more.
    fn choose(&self, worker: &Rc<Worker>, lease: &Lease, path: PathId) -> Option<Rc<MuxSession>> {
        let options = &lease.pool().options;
        let mut all = self.by_backend.borrow_mut();
        let backend = all.entry(lease.backend().id).or_default();
        if backend.paths.goes_alone(path) {
            return None;
        }
        backend.sessions.retain(|session| session.is_open());
        // Sessions to addresses that the backend's host name no longer has get no further requests.
        let usable = || backend.sessions.iter().filter(|session| session.reaches(lease.backend()));
        let least = usable().min_by_key(|session| session.in_flight());
        let full = least.is_none_or(|session| session.in_flight() > 0);
        let most = || {
            let limit = lease.backend().live.own_limit();
            shared_most(options.multiplex_sessions, limit, worker.shared.threads)
        };
        if full && usable().count() < most() {
            let session = MuxSession::start(worker, lease, &backend.pace);
            backend.sessions.push(session.clone());
            return Some(session);
        }
        let (pace, slow) = (&backend.pace, options.multiplex_slow);
        let depth = options.multiplex_depth.min(pace.depth());
        least
            .filter(|session| session.in_flight() < depth && pace.wait(session.in_flight()) < slow)
            .cloned()
    }

    /// Forgets backends that have no session left.
    pub(crate) fn sweep(&self) {
        self.by_backend.borrow_mut().retain(|_, backend| {
            backend.sessions.retain(|session| session.is_open());
            !backend.sessions.is_empty()
        });
    }

    /// Notes that a response of this path was slow or large.
    fn note_slow(&self, backend: u32, path: PathId) {
        if let Some(backend) = self.by_backend.borrow_mut().get_mut(&backend) {
            backend.paths.note(path);
        }
    }

    /// The path of a request, which begins with its request line.
    fn path_of(&self, request: &[u8]) -> PathId {
        PathId::of(request, &self.hasher)
    }
}
