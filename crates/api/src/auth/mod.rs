//! Who asks, and whether they may.
//!
//! Over the unix socket, the file's permissions have decided; over TCP, a token decides, where there are
//! any. [`Gate`] is what is configured; [`admit`] is the one way in.

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
