//! Idle sessions to small backends, which threads lend each other.
//!
//! Each thread keeps its own idle sessions, so that a backend may have as many as threads times its
//! limit. A small backend cannot serve them: one with a worker for each connection serves only as
//! many as it has workers, idle ones included, and a request on a further session waits for an idle
//! one to end. So idle sessions to backends with a small limit, stated or learnt, are kept here,
//! where each thread finds them. A session stays registered with the event loop of the thread that
//! used it last. That thread prefers its own ones, which cost no system call; another thread
//! registers the session with its own event loop.
//!
//! # Bound
//! A thread opens a session only if none is idle here, and for a request with a permit. The request
//! leaves the session here before it gives the permit back. So idle sessions and those of requests
//! with a permit are no more than the limit. Requests that gave their permit back earlier (tunnels,
//! slow clients) have sessions beyond the limit, which are kept only if there is room for them.
//! After the limit has fallen, sessions beyond it end by the idle time: the session that was used
//! last is used first, so these are not used.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use equipoise_basics::lock;
use equipoise_tls::ClientTls;
use tokio::io::unix::AsyncFd;

use crate::lookout::Lookout;
use crate::socket::is_silent;
use crate::tls::IdleTls;

/// Backends with a larger limit are not small: each thread keeps its own sessions.
const SMALL_LIMIT_MAX: u32 = 64;

/// The idle sessions of a small backend.
#[derive(Debug, Default)]
pub(crate) struct LentSessions(Mutex<Vec<Lent>>);

/// An idle session.
#[derive(Debug)]
pub(crate) struct Lent {
    pub(crate) fd: AsyncFd<OwnedFd>,
    /// Its encryption, and by which the backend has proven its name; `None`: it is in the clear.
    pub(crate) tls: Option<(IdleTls, ClientTls)>,
    /// The thread with the event loop that watches it.
    pub(crate) thread: usize,
    pub(crate) lookout: Lookout,
    /// Bytes written on it.
    pub(crate) written: u64,
    /// The address at the other end; `None` for a unix socket.
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) since: Instant,
}

/// Whether sessions to a backend with this limit are lent between so many threads.
pub(crate) fn is_small(limit: Option<u32>, threads: usize) -> bool {
    threads > 1 && limit.is_some_and(|limit| limit <= SMALL_LIMIT_MAX)
}

/// The largest number of shared sessions that a thread may open to a backend: `most`, but no more
/// than the thread's part of a small limit.
pub(crate) fn shared_most(most: usize, limit: Option<u32>, threads: usize) -> usize {
    let small = limit.filter(|_| is_small(limit, threads));
    small.map_or(most, |limit| most.min((limit as usize).div_ceil(threads)))
}

impl LentSessions {
    /// Keeps an idle session.
    pub(crate) fn put(&self, session: Lent) {
        lock(&self.0).push(session);
    }

    /// The number of idle sessions.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).len()
    }

    /// The session that was used last: of those that this thread used, if there are some.
    pub(crate) fn pop(&self, thread: usize) -> Option<Lent> {
        let mut sessions = lock(&self.0);
        match sessions.iter().rposition(|it| it.thread == thread) {
            Some(own) => Some(sessions.remove(own)),
            None => sessions.pop(),
        }
    }

    /// Closes sessions that have been idle for this long, that have ended, or that do not reach the
    /// backend. Returns their number.
    pub(crate) fn sweep(
        &self,
        idle: Duration,
        now: Instant,
        reaches: impl Fn(Option<SocketAddr>) -> bool,
    ) -> u64 {
        let mut sessions = lock(&self.0);
        let before = sessions.len();
        sessions.retain(|it| {
            now.duration_since(it.since) < idle && reaches(it.remote) && it.is_silent()
        });
        (before - sessions.len()) as u64
    }

    /// Closes all. Returns their number.
    pub(crate) fn clear(&self) -> u64 {
        std::mem::take(&mut *lock(&self.0)).len() as u64
    }
}

impl Lent {
    /// Whether there is no unread input, and the other side has not closed. With TLS, a ticket or a
    /// new key that comes late counts as input.
    pub(crate) fn is_silent(&self) -> bool {
        is_silent(self.fd.get_ref())
    }
}
