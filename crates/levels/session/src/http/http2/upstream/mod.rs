//! HTTP/2 to backends: each request of the engine is a stream on one of few connections.
//!
//! A stream is a [`Socket`](crate::socket::Socket) of the engine, as TLS is: what the engine writes
//! as HTTP/1.1 becomes frames of the `h2` crate at once ([`stream`], [`head`]), without a task or
//! buffers in between. So queue, retries, hedging, time-outs, logs and counters are those of
//! HTTP/1.1. [`connection`] has the task that moves the frames of a connection.
//!
//! # Bounds
//! A connection carries at most `streams-max` streams, and no more than the backend permits
//! (`SETTINGS_MAX_CONCURRENT_STREAMS`). A further connection is opened only when all are full, so
//! that there are as many as the requests in flight need. Each stream has its window, and a
//! connection the sum of those of its streams: a client that does not read holds up no other
//! client's response.
//!
//! # Lost streams
//! A stream that the backend refuses (`REFUSED_STREAM`), or that is above the last one that its
//! GOAWAY names, was not processed (RFC 9113, section 8.7): its request is safe to retry whatever
//! its method. A connection with a GOAWAY gets no further streams, and ends with its last one.
//!
//! # Agreement
//! With `upstream = "auto"` a connection offers HTTP/1.1, too. That of a backend which chooses it
//! becomes an idle session of HTTP/1.1, and the backend gets others for a while ([`is_http2`]).

mod connection;
mod head;
mod stream;
mod transport;

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Waker};

use crate::config::Upstream;
use crate::lease::Lease;
use crate::reason::Reason;
use crate::snapshot::Snapshot;
use crate::upstream::{ByBackend, Session};
use crate::worker::Worker;
use connection::{Http2Connection, Place};

/// Whether requests to the leased backend are streams of HTTP/2. `upgrades`: the request asks for
/// another protocol.
pub(crate) fn is_http2(lease: &Lease, upgrades: bool) -> bool {
    match lease.pool().options.upstream {
        Upstream::Http2 => true,
        // Few backends permit tunnels over HTTP/2.
        Upstream::Auto => !upgrades && !lease.backend().live.tls.speaks_http1(),
        Upstream::Exclusive | Upstream::Multiplexed => false,
    }
}

/// One thread's connections, by backend.
#[derive(Default)]
pub(crate) struct Http2Sessions {
    by_backend: RefCell<ByBackend<Vec<Rc<Http2Connection>>>>,
}

impl Http2Sessions {
    /// A stream to the leased backend, if an open connection has room for one.
    pub(crate) fn try_open(&self, worker: &Rc<Worker>, lease: &Lease) -> Option<Session> {
        let all = self.by_backend.borrow();
        let mut known = all.get(&lease.backend().id)?.iter();
        let streams_max = lease.pool().options.streams_max;
        let connection = known.find(|connection| {
            connection.is_open() && connection.has_room(streams_max) && connection.fits(lease)
        })?;
        connection.place().session(worker, lease.backend())
    }

    /// A stream to the leased backend, over a new connection if no other has room; the caller
    /// limits the time.
    ///
    /// # Errors
    /// The reason for which the connection could not be opened.
    pub(crate) async fn open(&self, worker: &Rc<Worker>, lease: &Lease) -> Result<Session, Reason> {
        loop {
            let place = self.place(worker, lease);
            place.opened().await?;
            // The backend may permit fewer streams than wait for its connection.
            if let Some(session) = place.session(worker, lease.backend()) {
                return Ok(session);
            }
        }
    }

    /// A place on a connection that is open, or about to be.
    fn place(&self, worker: &Rc<Worker>, lease: &Lease) -> Place {
        let mut all = self.by_backend.borrow_mut();
        let known = all.entry(lease.backend().id).or_default();
        known.retain(|connection| !connection.is_closed());
        let streams_max = lease.pool().options.streams_max;
        let with_room = known
            .iter()
            .find(|connection| connection.has_room(streams_max) && connection.fits(lease));
        if let Some(connection) = with_room {
            return connection.place();
        }
        let connection = Http2Connection::start(worker, lease);
        known.push(Rc::clone(&connection));
        connection.place()
    }

    /// Ends connections to backends that may not be picked, once they carry no stream, and forgets
    /// those that have ended.
    pub(crate) fn sweep(&self, snapshot: &Snapshot) {
        let known = |id| snapshot.pools.iter().flat_map(|pool| &pool.backends).any(|b| b.id == id);
        self.by_backend.borrow_mut().retain(|id, connections| {
            connections.retain(|connection| !connection.is_closed());
            if !known(*id) {
                connections.iter().for_each(|connection| connection.leave());
            }
            !connections.is_empty()
        });
    }
}

/// A context for looking at a state without waiting for its change.
fn no_wait() -> Context<'static> {
    Context::from_waker(Waker::noop())
}
