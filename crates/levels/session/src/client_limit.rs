//! A limit on the clients of a front door or route, as configured.

use std::num::NonZeroU32;
use std::sync::Arc;

use equipoise_limits::{Rate, SourceMask};

/// One limit on what clients may do at a front door or route. A request or connection has to be
/// within each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientLimit {
    /// The events that are counted together.
    pub by: LimitBy,
    /// Of requests (HTTP) or connections (TCP); more is answered 429 or closed.
    pub rate: Option<Rate>,
    /// Connections that are open at once (front door; more are closed), or requests in flight
    /// (route; more are answered 429). Not by a header.
    pub concurrency: Option<NonZeroU32>,
    /// Of so many keys the rate is kept.
    pub keys: usize,
    /// The nodes of a cluster admit the rate together.
    pub shared: bool,
}

/// The events that a [`ClientLimit`] counts together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitBy {
    /// All events of the front door or route.
    All,
    /// By the client's address.
    Source(SourceMask),
    /// By the value of this header field. Requests without it count together. HTTP only.
    Header(Arc<str>),
}
