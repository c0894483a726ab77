//! Outcomes of requests: counters, rows of failures, log lines about a backend.

use std::time::{Duration, Instant};

use super::Worker;
use crate::backend_tls::{self, UpstreamTls};
use crate::config::Upstream;
use crate::lease::Lease;
use crate::reason::Reason;
use crate::snapshot::BackendEvent;

impl Worker {
    /// Counts a failure of the leased backend, reporting a row of them. Does nothing for a `reason`
    /// that does not blame it.
    pub(crate) fn backend_failed(&self, lease: &Lease, reason: Reason) {
        lease.failed(reason);
        if !reason.blames_backend() {
            return;
        }
        lease.stats().failures[reason as usize].add(1);
        let (pool, backend) = (lease.pool(), lease.backend());
        let in_row = backend.live.failed(Instant::now(), self.shared.epoch);
        let threshold = pool.passive.failures;
        if threshold > 0 && in_row >= threshold {
            // A full channel loses the report; the next failure repeats it.
            let event = BackendEvent::Failing { pool: pool.id, backend: backend.id, reason };
            let _ = self.shared.events.try_send(event);
        }
    }

    /// Counts a fault of the leased backend's framing, after which its pool does not multiplex it.
    pub(crate) fn framing_failed(&self, lease: &Lease) {
        if lease.pool().options.upstream == Upstream::Multiplexed {
            lease.backend().live.lose_multiplexing(self.index);
        }
    }

    /// Tells the log why a peer is not trusted, but not for each request.
    pub(crate) fn say_distrust(&self, peer: &str, error: &std::io::Error) {
        if self.distrust_lines.borrow_mut().may_write() {
            tracing::warn!(%peer, %error, "not delegating to this peer, because it is not trusted; check that it uses TLS (`peer-tls`), and that its certificate is valid, of the same authority and for its name");
        }
    }

    /// Notes that the leased backend rejected our certificate.
    pub(crate) fn say_refusal(&self, lease: &Lease, error: &std::io::Error) {
        let backend = lease.backend();
        match &lease.pool().options.tls {
            Some(UpstreamTls::Server(_)) => {
                let error = backend_tls::handshake_failed(error);
                backend.live.tls.failed(|| backend.label(), &error);
            }
            Some(UpstreamTls::Peer(_)) | None => self.say_distrust(&backend.name, error),
        }
    }

    /// Counts a response of the leased backend that was passed on whole. It ends a row of failures
    /// unless its status is listed as one.
    pub(crate) fn backend_answered(
        &self,
        lease: &Lease,
        status: u16,
        took: Duration,
        now: Instant,
    ) {
        let stats = lease.stats();
        stats.response_time.record(took);
        stats.permit_time_us.add(lease.permit_time(took, now).as_micros() as u64);
        let live = &lease.backend().live;
        self.note_response_time(lease, took, now);
        if lease.pool().passive.counts(status) {
            return self.backend_failed(lease, Reason::BackendError);
        }
        if status >= 500 {
            live.failed_answer(now, self.shared.epoch);
        }
        live.succeeded();
    }

    /// Notes how long a response took, or that it would have taken longer, for schedulers that go
    /// by it.
    pub(crate) fn note_response_time(&self, lease: &Lease, took: Duration, now: Instant) {
        if lease.pool().needs_response_time {
            lease.backend().live.responded(took, now, self.shared.epoch);
        }
    }
}
