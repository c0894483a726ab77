//! Messages on the wire, and their limits.
//!
//! Version 1, under `/cluster/v1`. A change of meaning gets a new version, which is served beside
//! the old one for a release. Within a version fields may be added, each with a default, and
//! omitted while they have it:
//!
//! - here (joining, tokens) a receiver ignores unknown fields;
//! - reports and instructions are exact (`equipoise_controller`): a receiver refuses a message with
//!   an unknown field and names the field, rather than obeying half of it. Therefore controllers
//!   are upgraded first, nodes after them, and new options are configured last. A node that refuses
//!   instructions continues with those it has.
//!
//! SSE events with an unknown name are ignored. A node that asks for instructions with `?changes=1`
//! understands [`TOLD_EVENT`]s; a controller without them sends [`INSTRUCTIONS_EVENT`]s instead.
//! `&names=1` asks for names, too.

use std::collections::BTreeMap;

use equipoise_controller::ClusterView;
use serde::{Deserialize, Serialize};

use crate::token::{TokenId, Used};
use crate::{Fingerprint, Name};

/// Token and signing request in, certificates out. The only path that needs no certificate.
pub const JOIN: &str = "/cluster/v1/join";
/// Signing request in, a new certificate of the same name out.
pub const RENEW: &str = "/cluster/v1/renew";
/// A node's report. The answer to one with tallies has the tallies of other balancers for the same
/// backends (`equipoise_controller::Tallies`); otherwise it is empty.
pub const REPORT: &str = "/cluster/v1/report";
/// Instructions, as server-sent events.
pub const INSTRUCTIONS: &str = "/cluster/v1/instructions";
/// A node's question for certificates of front doors (of `equipoise_acme`) or for keys of session
/// tickets (of `equipoise_tickets`), and the controller's answer, which may take two seconds.
pub const CERTIFICATES: &str = "/cluster/v1/certificates";
/// The state of the cluster.
pub const MEMBERS: &str = "/cluster/v1/members";
/// Join tokens: for operators.
pub const TOKENS: &str = "/cluster/v1/tokens";
/// Nodes that joined: for operators.
pub const NODES: &str = "/cluster/v1/nodes";

/// The title of the [`Problem`] by which a controller refuses a node that was evicted.
pub const EVICTED_TITLE: &str = "evicted";

/// The name of events with whole instructions, for nodes without `?changes`.
pub const INSTRUCTIONS_EVENT: &str = "instructions";
/// The name of events for nodes with `?changes`: the part that concerns the node, first whole and
/// then its changes.
pub const TOLD_EVENT: &str = "told";
/// The name of events with evicted keys (fingerprints, by node) with certificates that are still
/// valid; peers refuse them. Each has all of them. Sent at the beginning of a stream and after
/// changes.
pub const EVICTED_EVENT: &str = "evicted";

/// Largest body of any request but a report, in bytes.
pub const SMALL_BYTES_MAX: usize = 64 << 10;
/// Largest answer that a node accepts, one event included, in bytes.
pub const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Body of [`JOIN`].
#[derive(Clone, Serialize, Deserialize)]
pub struct JoinRequest {
    /// The token's text.
    pub token: String,
    /// The name that the node asks for.
    pub name: Name,
    /// A PKCS #10 request, DER in base64.
    pub request: String,
}

/// Body of [`RENEW`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RenewRequest {
    /// A PKCS #10 request, DER in base64.
    pub request: String,
}

/// Answer to [`JOIN`] and [`RENEW`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Joined {
    /// The node's certificate, PEM.
    pub certificate: String,
    /// The authority's certificate, PEM. It may be newer than the node's copy.
    pub authority: String,
}

/// Body of a POST to [`TOKENS`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CreateToken {
    /// Lifetime in seconds.
    pub time_to_live_s: u64,
    /// True if it is for one node only.
    #[serde(default)]
    pub single_use: bool,
    /// The only node that may use it.
    #[serde(default)]
    pub node: Option<Name>,
}

/// Answer to [`CreateToken`].
#[derive(Clone, Serialize, Deserialize)]
pub struct CreatedToken {
    /// The token's text; it cannot be shown again.
    pub token: String,
    /// The token's entry in the list.
    pub listed: ListedToken,
}

/// An entry of the list at [`TOKENS`]. Times are in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedToken {
    /// The token's id.
    pub id: TokenId,
    /// Time of creation.
    pub created_at: u64,
    /// End of its validity.
    pub expires_at: u64,
    /// True if it is for one node only.
    pub single_use: bool,
    /// The only node that may use it.
    #[serde(default)]
    pub node: Option<Name>,
    /// The use of a single-use token.
    #[serde(default)]
    pub used: Option<Used>,
}

/// The list at [`TOKENS`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedTokens {
    /// The tokens, ordered by id.
    pub tokens: Vec<ListedToken>,
}

/// An entry of the list at [`NODES`]. Times are in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedNode {
    /// Its name.
    pub name: Name,
    /// Time of joining.
    pub joined_at: u64,
    /// The end of its last certificate.
    pub valid_until: u64,
    /// The token with which it joined.
    pub token: TokenId,
    /// True if controllers and peers refuse its certificate.
    pub evicted: bool,
}

/// The list at [`NODES`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedNodes {
    /// The nodes, ordered by name.
    pub nodes: Vec<ListedNode>,
}

/// Answer to [`MEMBERS`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Members {
    /// The cluster's name.
    pub cluster: Name,
    /// Its authority.
    pub authority: Fingerprint,
    /// The state of the cluster as the answering controller sees it.
    pub view: ClusterView,
    /// Requests that the controller's cluster API accepted, refused and dropped, by name.
    #[serde(default)]
    pub counts: BTreeMap<String, u64>,
}

/// An error as in RFC 9457 (`application/problem+json`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The HTTP status.
    pub status: u16,
    /// The kind of error.
    pub title: String,
    /// Description of this error.
    #[serde(default)]
    pub detail: String,
}

impl std::fmt::Debug for JoinRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JoinRequest").field("name", &self.name).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for CreatedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedToken").field("listed", &self.listed).finish_non_exhaustive()
    }
}
