//! Authentication and authorization of callers.
//!
//! The file's permissions decide over the unix socket. Over TCP a token decides, if tokens are
//! configured. [`Gate`] has the configuration; every request passes [`admit`].

mod admit;
mod gate;
mod guard;
mod peer;
mod role;
mod throttle;
mod token;

pub(crate) use admit::{ANSWER_TIMEOUT, admit};
pub use gate::{Gate, Policy};
pub(crate) use peer::{Caller, Peer, Who};
pub use role::{Access, Role};
pub use token::{ApiToken, BadDigest, BadToken, Token, TokenDigest};
