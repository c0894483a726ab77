//! The sink of the cluster's changes. The process that runs the server implements it with its audit
//! log.

use std::net::SocketAddr;

use serde_json::Value;

/// Records requests to the cluster API that change something or were refused.
pub trait Journal: std::fmt::Debug + Send + Sync {
    /// Records a request. The response is sent after this returns.
    fn note(&self, deed: Deed);

    /// Counts a refused caller that exceeds the limit of journal lines.
    fn count(&self);
}

/// A request, and its result.
#[derive(Clone, Debug, PartialEq)]
pub struct Deed {
    /// `operator:NAME` or `node:NAME`, by the certificate; `join-token:ID` of a joining node; or
    /// `anonymous`.
    pub who: String,
    /// The caller's address.
    pub from: SocketAddr,
    /// The request's method.
    pub method: String,
    /// The request's path.
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
