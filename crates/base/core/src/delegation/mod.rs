//! Which node serves a request: the one question of the session level to the dispatch level.
//!
//! The session level serves requests at a pool. At a front door with a [`Delegation`], a request
//! may be served by a peer instead: the session level counts what is in flight, the
//! [`DispatchTable`] chooses, and the [`Delegation`] signs the request for the peer or verifies
//! that a peer sent it. [`words`] are the header fields that nodes send each other.

mod words;

use std::any::Any;
use std::fmt;

use crate::load::{DispatchTable, PerClass, RequestClass, Shares};

pub use words::{
    DELEGATED_FIELD, ROOM_FIELD, UNDONE, announced_room, read_question, write_question, write_room,
};

/// The rules by which a front door delegates requests to peers and accepts theirs.
pub trait Delegation: Any + fmt::Debug + Send + Sync {
    /// Whether anything can be delegated.
    fn may_delegate(&self) -> bool;

    /// The class of a request. `body_bytes` is `None` if its body has no stated length. `scratch`
    /// is emptied.
    fn classify(
        &self,
        method: &str,
        path: &str,
        body_bytes: Option<u64>,
        scratch: &mut Vec<u8>,
    ) -> RequestClass;

    /// The table over these peers, each with its name and weight; without a plan as the
    /// configuration states.
    fn table(&self, plan: Option<&Shares>, peers: &[(&str, u32)]) -> DispatchTable;

    /// The part of each class that is kept while there are peers, 0..=1.
    fn keep(&self, plan: Option<&Shares>) -> PerClass<f64>;

    /// Writes the line of the marker with which `peer` accepts the request; false without a key.
    fn sign(&self, head: &SignedHead<'_>, peer: &str, out: &mut Vec<u8>) -> bool;

    /// Whether a trusted peer signed this marker for this request and this node. `sender` are the
    /// nodes in the sender's certificate; `None`: the request came unencrypted.
    fn verify(&self, marker: &[u8], head: &SignedHead<'_>, sender: Option<&[String]>) -> bool;

    /// How delegated requests are encrypted.
    fn encryption(&self) -> Encryption;

    /// Whether another one has the same rules.
    fn equals(&self, other: &dyn Delegation) -> bool;
}

/// The part of a request that a marker signs.
pub struct SignedHead<'a> {
    /// Request line and `Host` line, as they go over the wire.
    pub lines: &'a [u8],
    /// Calls its argument with each field about the origin, in the order of the wire.
    pub origin: &'a dyn Fn(EachField<'_>),
}

/// Receives a field about the origin of a request, and its value.
pub type EachField<'a> = &'a mut dyn FnMut(OriginField, &[u8]);

/// A field about the origin of a request, by its letter in the signed text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OriginField {
    /// `Forwarded`.
    Forwarded = b'f',
    /// `X-Forwarded-For`.
    For = b'x',
    /// `X-Forwarded-Host`.
    Host = b'h',
    /// `X-Forwarded-Proto`.
    Proto = b'p',
}

/// How a node encrypts delegated requests, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// Requests are delegated unencrypted.
    Off,
    /// Requests are delegated unencrypted, and accepted encrypted, too.
    Accepted,
    /// Encryption is required.
    Required,
    /// Encryption is required, and there is no certificate yet, so nothing is delegated.
    Waiting,
}
