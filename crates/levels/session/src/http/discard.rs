//! Responses that are discarded because their request is tried again: those with a status that
//! `retry-on` lists.
//!
//! A status of HTTP is retried for idempotent requests that arrived with their whole body. gRPC
//! calls are POST, and their body comes behind the head. So a status of gRPC is retried whatever
//! the method, as far as the bytes that were sent are kept. A response with a message or with
//! metadata before its status has begun, and is passed on: only one with trailers alone is retried.
//!
//! # Source
//! Envoy's `retry_on` has the names of the statuses. gRPC's "Retry design" (A6) calls a call
//! committed when the client has its header, or when its messages exceed the buffer.

use std::time::Instant;

use super::attempt::Outgoing;
use super::connection::ClientConnection;
use super::response::ResponseHead;
use crate::lease::Lease;
use crate::reason::Reason;

/// Bytes of a gRPC call's messages that are kept for further tries.
const CALL_BYTES_MAX: usize = 64 << 10;

impl ClientConnection {
    /// Keeps the messages that are sent from now on, if a status of gRPC may be retried.
    pub(super) fn keep_messages(&self, lease: &Lease, outgoing: &mut Outgoing) {
        let is_kept = outgoing.may_discard
            && outgoing.head.grpc.is_some()
            && !outgoing.streamed
            && !outgoing.upload.is_done()
            && self.retry_on(lease).grpc.is_some();
        if is_kept {
            outgoing.upload.copy(CALL_BYTES_MAX);
        }
    }

    /// Whether this response is discarded, because the request is tried again. Counts the retry.
    pub(super) fn discards(
        &self,
        lease: &Lease,
        outgoing: &Outgoing,
        response: &ResponseHead,
    ) -> bool {
        if !outgoing.may_discard {
            return false;
        }
        let retry_on = self.retry_on(lease);
        let is_listed = match response.grpc_status {
            Some(status) => retry_on.grpc.has(status) && outgoing.may_rewind(),
            None => {
                outgoing.head.is_idempotent
                    && !outgoing.streamed
                    && outgoing.upload.is_done()
                    && retry_on.has_status(response.status)
            }
        };
        is_listed && lease.pool().may_retry(Reason::BackendError, Instant::now())
    }
}

impl Outgoing {
    /// Whether every byte that was sent is there to be sent again.
    fn may_rewind(&self) -> bool {
        !self.streamed || self.upload.copied().is_some()
    }

    /// Prepares the request for another try: the messages that were sent are sent again. Call it
    /// behind [`ClientConnection::discards`] alone.
    pub(super) fn rewind(&mut self) {
        if !std::mem::take(&mut self.streamed) {
            return;
        }
        if let Some(copied) = self.upload.copied() {
            self.first.extend_from_slice(&copied[self.copied..]);
            self.copied = copied.len();
        }
    }
}
