//! The connection between nodes and controllers, over TLS.
//!
//! | comes in | goes out |
//! |---|---|
//! | a join token and a key | a short-lived certificate of the cluster's authority |
//! | a node's report, each period | the report, at every [`Intake`](equipoise_controller::Intake) |
//! | instructions of a controller | the instructions, at every node; only newer ones |
//!
//! A [`ClusterServer`] serves one controller's intake, a [`NodeClient`] is a node's end. The
//! certificate is the identity ([`Identity`]): a node reports as itself or not at all. A joining
//! node knows the authority by the fingerprint in its token ([`JoinToken`]), so it never trusts an
//! unknown server.
//!
//! Failures: a node without controllers continues with its last instructions and reports their age
//! ([`NodeStatus`]). A controller counts refused and dropped requests by name.
//!
//! Nodes trust each other by the same certificates ([`PeerCredentials`]), without a controller
//! between them.

mod address;
mod asker;
mod attempts;
mod authority;
mod backoff;
mod certificates;
mod changes;
mod client;
mod config;
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
pub use authority::{
    AUTHORITY_LIFETIME, Authority, AuthorityError, CannotLoadAuthority, Issued, SigningRequest,
};
pub use certificates::{CertificateDesk, NoCertificates};
pub use client::{ClientError, Patience};
pub use config::{Cluster, ClusterRole, TokenPlace, agent_socket};
pub use fingerprint::{Fingerprint, NotAFingerprint};
pub use folder::{FolderError, StateFile, StateFolder};
pub use identity::{Certified, Identity, NotCertified, Role};
pub use journal::{Deed, Journal, NoJournal};
pub use lookout::{Lookout, Sightings};
pub use name::{Name, NotAName};
pub use node::{
    CertificateQuestions, HeardTallies, NoToken, NodeClient, NodeOptions, NodeStatus, ReportStatus,
    TokenSource,
};
pub use peer::{PeerCredentials, PeerFilesError, PeerNames};
pub use server::{ClusterServer, Office, OfficeError, ServeError, ServerLimits, ServerOptions};
pub use tls::TlsError;
pub use token::{
    JoinRefused, JoinToken, NodeRecord, NotAToken, TokenError, TokenId, TokenRecord, TokenWish,
    Tokens, Used,
};
