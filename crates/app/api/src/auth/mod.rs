//! Authentication and authorization of callers.
//!
//! Over the unix socket, the permissions of its file decide. Over TCP, tokens and, with TLS, client
//! certificates decide, if any are configured. [`Gate`] has the rules; every request passes
//! [`crate::admit`].

mod certificate;
mod gate;
mod guard;
mod peer;
mod role;
mod throttle;
mod token;

pub use certificate::ApiClient;
pub(crate) use certificate::ClientCertificate;
pub use gate::{Gate, Policy};
pub(crate) use gate::{Shown, TurnedAwayFor, Unknown};
pub(crate) use guard::refuse;
pub(crate) use peer::{Caller, Peer, Who};
pub use role::{Access, Role};
pub use token::{ApiToken, BadDigest, BadToken, Token, TokenDigest};
