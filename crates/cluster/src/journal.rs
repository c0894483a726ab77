//! Where changes of the cluster are noted: the process that has the server keeps an audit log, and says what it is.

use std::net::SocketAddr;

use serde_json::Value;

/// Takes what was asked of the cluster API that changes something, or was not allowed.
pub trait Journal: std::fmt::Debug + Send + Sync {
    /// Notes it; the answer is sent after this returns.
    fn note(&self, deed: Deed);

    /// Somebody was turned away of whom there have been too many lines.
    fn count(&self);
}

/// Something that was asked, and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Deed {
    /// `operator:NAME` or `node:NAME`, by their certificate; `join-token:ID` of who joins; or `anonymous`.
    pub who: String,
    /// Where they are.
    pub from: SocketAddr,
    /// The request's.
    pub method: String,
    /// The request's.
    pub path: String,
    /// What it was answered with.
    pub status: u16,
    /// Why it was not done; of who may not join, what they are not told.
    pub detail: Option<String>,
    /// What was made of it.
    pub after: Option<Value>,
}

/// For who keeps none.
#[derive(Clone, Copy, Debug)]
pub struct NoJournal;

impl Journal for NoJournal {
    fn note(&self, _: Deed) {}

    fn count(&self) {}
}
