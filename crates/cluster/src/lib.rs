//! The way between nodes and controllers, over TLS.
//!
//! | comes in | goes out |
//! |---|---|
//! | a join token and a key | a certificate of the cluster's own authority, short-lived, renewed |
//! | a node's report, each period | the same, to every controller's [`Intake`](equipoise_controller::Intake) |
//! | instructions of a controller | the same, at every node: newer ones only |
//!
//! A [`ClusterServer`] serves one controller's intake, a [`NodeClient`] is a node's end. Who somebody is, is what the
//! certificate says ([`Identity`]): a node reports as itself or not at all. A joining node knows the authority by the
//! fingerprint in its token ([`JoinToken`]), so there is no moment in which it trusts whoever answers.
//!
//! It fails softly: a node without controllers goes on with its last instructions and says their age
//! ([`NodeStatus`]). What a controller refuses or drops is counted by name.
//!
//! Nodes trust each other by the same certificates ([`PeerCredentials`]), with no controller between them.

mod address;
mod asker;
mod attempts;
mod authority;
mod backoff;
mod changes;
mod client;
mod evicted;
mod fingerprint;
mod folder;
mod identity;
mod journal;
mod lookout;
mod name;
mod node;
mod peer;
mod server;
mod sse;
mod tls;
mod token;
pub mod wire;

pub use address::{ControllerAddress, NotAnAddress};
pub use asker::{Asker, CannotAsk};
pub use attempts::AttemptLimits;
pub use authority::{AUTHORITY_LIFETIME, Authority, AuthorityError, Issued, SigningRequest};
pub use client::{ClientError, Patience};
pub use fingerprint::{Fingerprint, NotAFingerprint};
pub use folder::{FolderError, StateFile, StateFolder};
pub use identity::{Certified, Identity, NotCertified, Role};
pub use journal::{Deed, Journal, NoJournal};
pub use lookout::{Lookout, Sightings};
pub use name::{Name, NotAName};
pub use node::{NoToken, NodeClient, NodeOptions, NodeStatus, ReportStatus, TokenSource};
pub use peer::{PeerCredentials, PeerFilesError, PeerNames};
pub use server::{ClusterServer, Office, OfficeError, ServeError, ServerLimits, ServerOptions};
pub use tls::TlsError;
pub use token::{
    JoinRefused, JoinToken, NodeRecord, NotAToken, TokenError, TokenId, TokenRecord, TokenWish,
    Tokens, Used,
};
