//! The sink of the cluster's changes. The process that runs the server implements it with its audit
//! log.

use std::net::SocketAddr;

use serde_json::Value;

/// Takes what was asked of the cluster API that changes something, or was not allowed.
pub trait Journal: std::fmt::Debug + Send + Sync {
    /// Notes it; the answer is sent after this returns.
    fn note(&self, deed: Deed);

    /// Counts a refused caller without a line of its own, since it has had too many.
    fn count(&self);
}

/// Something that was asked, and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Deed {
    /// `operator:NAME` or `node:NAME`, by the certificate; `join-token:ID` of a joining node; or
    /// `anonymous`.
    pub who: String,
    /// Where they are.
    pub from: SocketAddr,
    /// The request's.
    pub method: String,
    /// The request's.
    pub path: String,
    /// Status of the response.
    pub status: u16,
    /// Reason of a failure or refusal; for a refused join, the reason that the node does not
    /// receive.
    pub detail: Option<String>,
    /// State after the change.
    pub after: Option<Value>,
}

/// For processes without a journal.
#[derive(Clone, Copy, Debug)]
pub struct NoJournal;

impl Journal for NoJournal {
    fn note(&self, _: Deed) {}

    fn count(&self) {}
}
