//! Sessions of a request's own: kept ones, new ones, and streams of shared connections.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use super::connection::ClientConnection;
use super::http2::upstream::is_http2;
use super::tries::{Failure, Sessions, Tries};
use crate::lease::Lease;
use crate::reason::Reason;
use crate::upstream::{Session, connect_failure};

/// A peer that was connected to shakes hands within this. The kernel connects however busy both
/// nodes are; this is done by processes, and the one that delegates does so because it has too much
/// to do.
const HANDSHAKE: Duration = Duration::from_secs(5);

impl ClientConnection {
    /// A session of the request's own to the leased backend, and since when the response on it is
    /// awaited.
    ///
    /// `upgrades`: the request asks for another protocol.
    pub(super) async fn session(
        &mut self,
        lease: &Lease,
        tries: &Tries,
        upgrades: bool,
    ) -> Result<(Box<Session>, Instant), Failure> {
        if is_http2(lease, upgrades) {
            let opened = self.stream(lease, tries).await;
            // It may have chosen HTTP/1.1 now.
            if opened.is_ok() || is_http2(lease, upgrades) {
                return opened;
            }
        }
        if tries.sessions == Sessions::Any
            && let Some(session) = self.take_session(lease)
        {
            return Ok((session, tries.begun));
        }
        let since = Instant::now();
        let opened = Box::pin(self.open_session(lease)).await;
        self.log_connected(since);
        match opened {
            Ok(session) => Ok((session, Instant::now())),
            Err(reason) => Err(Failure { reason, may_retry: true, stale: false }),
        }
    }

    /// As [`Self::session`], of a pool with HTTP/2: a stream of a shared connection.
    async fn stream(
        &mut self,
        lease: &Lease,
        tries: &Tries,
    ) -> Result<(Box<Session>, Instant), Failure> {
        if let Some(session) = self.worker.http2.try_open(&self.worker, lease) {
            return Ok((Box::new(session), tries.begun));
        }
        let since = Instant::now();
        // The connection has the time-out of its own, and ends first: otherwise a retry would wait
        // for the same connection, and count its failure again. This bounds the wait for streams
        // that a backend permits on none of several connections.
        self.arm(since, 2 * lease.pool().options.connect_timeout);
        let opened = {
            let mut open = Box::pin(self.worker.http2.open(&self.worker, lease));
            poll_fn(|cx| match open.as_mut().poll(cx) {
                Poll::Ready(opened) => Poll::Ready(opened),
                Poll::Pending => match self.interruption(lease, Reason::ConnectTimeout) {
                    Some(reason) => Poll::Ready(Err(reason)),
                    None => Poll::Pending,
                },
            })
            .await
        };
        self.log_connected(since);
        match opened {
            Ok(session) => Ok((Box::new(session), Instant::now())),
            Err(reason) => Err(Failure { reason, may_retry: true, stale: false }),
        }
    }

    /// A new session to the leased backend.
    async fn open_session(&mut self, lease: &Lease) -> Result<Box<Session>, Reason> {
        self.arm(Instant::now(), lease.pool().options.connect_timeout);
        let tls = lease.pool().options.tls.as_ref();
        let (backend, header) = (lease.backend(), self.proxy_header(lease));
        let connected = || self.arm(Instant::now(), HANDSHAKE);
        let mut connect = pin!(Session::open(backend, tls, header, &self.worker, connected));
        poll_fn(|cx| match connect.as_mut().poll(cx) {
            Poll::Ready(Ok(session)) => Poll::Ready(Ok(Box::new(session))),
            Poll::Ready(Err(error)) => {
                let reason = connect_failure(&error);
                if reason == Reason::PeerTls {
                    self.worker.say_distrust(&lease.backend().name, &error);
                }
                Poll::Ready(Err(reason))
            }
            Poll::Pending => match self.interruption(lease, Reason::ConnectTimeout) {
                Some(reason) => Poll::Ready(Err(reason)),
                None => Poll::Pending,
            },
        })
        .await
    }
}
